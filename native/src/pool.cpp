#include "pool.h"

#include <sched.h>
#include <signal.h>

#include <chrono>
#include <system_error>

namespace ling3 {
namespace {

constexpr uint32_t open_bit = 0x80000000u;

// Longer than the pause between two regions of a decode step, much shorter than a person notices.
constexpr std::chrono::microseconds spin_time{200};

std::atomic<unsigned> fork_generation{0};

void count_fork() { fork_generation.fetch_add(1, std::memory_order_relaxed); }

unsigned current_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, count_fork);
  (void)registered;
  return fork_generation.load(std::memory_order_relaxed);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // `yield` is a no-op on the cores in question; isb waits a few cycles
#endif
}

// Returns when `value` differs from `seen`; sleeps in the kernel once the spinning was in vain.
void wait_for_change(std::atomic<uint32_t>& value, uint32_t seen, bool spins) {
  if (spins) {
    const auto end = std::chrono::steady_clock::now() + spin_time;
    do {
      for (int i = 0; i < 64; ++i) {
        if (value.load(std::memory_order_acquire) != seen) return;
        relax();
      }
    } while (std::chrono::steady_clock::now() < end);
  }
  value.wait(seen, std::memory_order_acquire);
}

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

Pool::Pool(int threads, const std::vector<int>& cpus) : threads_(threads), generation_(current_generation()) {
  // With more threads than CPUs a spinning thread takes the CPU from one that has work.
  spins_ = threads <= usable_cpus();
  // Signals belong to the interpreter's threads: workers inherit a mask that blocks them all.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  for (int i = 1; i < threads && error == 0; ++i) {
    pthread_t worker;
    error = pthread_create(&worker, nullptr, start, this);
    if (error == 0) {
      pthread_setname_np(worker, "ling3-pool");
      workers_.push_back(worker);
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    stop_workers();
    throw std::system_error(error, std::generic_category(), "cannot start a worker thread");
  }
  pinned_ = pin_workers(cpus);
}

Pool::~Pool() {
  // The threads of a forked child's copy do not exist; there is nothing to join.
  if (!forked()) stop_workers();
}

bool Pool::forked() const { return generation_ != fork_generation.load(std::memory_order_relaxed); }

void Pool::stop_workers() {
  stopping_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (pthread_t worker : workers_) pthread_join(worker, nullptr);
}

bool Pool::pin_workers(const std::vector<int>& cpus) {
  if (cpus.empty()) return false;
  for (size_t i = 0; i < workers_.size(); ++i) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(cpus[(i + 1) % cpus.size()]), &one);
    if (pthread_setaffinity_np(workers_[i], sizeof one, &one) == 0) continue;
    cpu_set_t inherited;
    CPU_ZERO(&inherited);
    if (sched_getaffinity(0, sizeof inherited, &inherited) == 0) {
      for (size_t j = 0; j < i; ++j) pthread_setaffinity_np(workers_[j], sizeof inherited, &inherited);
    }
    return false;
  }
  return true;
}

void* Pool::start(void* self) {
  static_cast<Pool*>(self)->work();
  return nullptr;
}

void Pool::work() {
  for (;;) {
    const uint32_t seen = epoch_.load();
    if (stopping_.load()) return;
    // A region opens before the epoch grows: one that is missed here changes the epoch, so the wait ends at once.
    if (join()) {
      take_chunks();
      leave();
    }
    wait_for_change(epoch_, seen, spins_);
  }
}

bool Pool::join() {
  uint32_t state = state_.load(std::memory_order_relaxed);
  while (state & open_bit) {
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire, std::memory_order_relaxed))
      return true;
  }
  return false;
}

void Pool::leave() {
  if (state_.fetch_sub(1, std::memory_order_acq_rel) == 1) state_.notify_all();  // closed, and this was the last one
}

void Pool::take_chunks() {
  const Region region = region_;
  for (;;) {
    const int64_t begin = next_.fetch_add(region.grain, std::memory_order_relaxed);
    if (begin >= region.count) return;
    const int64_t left = region.count - begin;
    region.task(region.context, begin, begin + (left < region.grain ? left : region.grain));
  }
}

void Pool::run(Task task, const void* context, int64_t count, int64_t grain) {
  if (count <= 0) return;
  if (threads_ == 1 || count <= grain || forked()) {
    task(context, 0, count);
    return;
  }
  const std::lock_guard<std::mutex> lock(turn_);
  region_ = {task, context, count, grain};
  next_.store(0, std::memory_order_relaxed);
  state_.store(open_bit, std::memory_order_release);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  take_chunks();
  uint32_t inside = state_.fetch_and(~open_bit, std::memory_order_acq_rel) & ~open_bit;
  while (inside != 0) {
    wait_for_change(state_, inside, spins_);
    inside = state_.load(std::memory_order_acquire);
  }
}

}  // namespace ling3
