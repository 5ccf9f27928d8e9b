// The one pool of worker threads. It runs integer matmuls, float matmuls and numba kernels alike.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace ling3 {

// A parallel region hands the items [0, count) out in chunks of `grain`; whoever is free takes the next chunk, the
// calling thread included. Which thread computes an item must therefore never change its value.
//
// Workers that wait spin for a short time (a decode step opens a region every few tens of microseconds) and then sleep.
// The caller never waits for a worker that has not woken up: a worker has to join an open region, and the caller closes
// the region when no chunk is left.
//
// Regions of different calling threads take turns. A region inside a region is not supported. In a forked child, which
// has no workers, every region runs on the calling thread.
class Pool {
 public:
  using Task = void (*)(const void* context, int64_t begin, int64_t end);

  // Starts threads - 1 workers. With `cpus`, worker i (from 1) is pinned to cpus[i % size] and cpus[0] is left to the
  // caller, whose own affinity is not touched; if the system refuses one CPU, no worker stays pinned.
  Pool(int threads, const std::vector<int>& cpus);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }
  bool pinned() const { return pinned_; }

  void run(Task task, const void* context, int64_t count, int64_t grain);

  template <class Function>
  void each(int64_t count, int64_t grain, const Function& function) {
    run([](const void* f, int64_t begin, int64_t end) { (*static_cast<const Function*>(f))(begin, end); }, &function,
        count, grain);
  }

 private:
  struct Region {
    Task task;
    const void* context;
    int64_t count;
    int64_t grain;
  };

  static void* start(void* self);
  void work();
  bool join();
  void leave();
  void take_chunks();
  void stop_workers();
  bool pin_workers(const std::vector<int>& cpus);
  bool forked() const;

  const int threads_;
  const unsigned generation_;
  bool pinned_ = false;
  bool spins_ = true;
  std::vector<pthread_t> workers_;
  std::mutex turn_;
  Region region_{};
  std::atomic<bool> stopping_{false};
  // Each on a cache line of its own: all three are written while others poll.
  alignas(64) std::atomic<uint32_t> epoch_{0};  // grows with every region; workers wait for it to change
  alignas(64) std::atomic<uint32_t> state_{0};  // the open bit and the number of workers inside
  alignas(64) std::atomic<int64_t> next_{0};    // first item that nobody has taken
};

}  // namespace ling3
