// W4 matmul with int8 activations: the variants of this machine against each other and against the memory.
//
//   cmake --build build/native --target lab_w4_matmul && build/native/lab_w4_matmul [threads] [experts]
//
// Versions: scalar (reference, plain loops), avx2 (vpmaddubsw, int16 sums over windows of four native tiles), avx512
// (vpdpbusd), neon (sdot; one or two rows: 16 columns in registers; more: rows in the lanes). Each is checked against
// scalar first and shows its first value pairs. Weights are experts of N=1024, K=1536, one K tile, 0.75 MiB each,
// enough of them to be out of every cache; a pass takes each expert once.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "matmul.h"

using namespace ling3;

namespace {

constexpr int64_t n = 1024, k = 1536;
constexpr int repeats = 9;

double now(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The best of some runs, on the wall and on the process's CPU clock: on a machine with other work only the second tells
// what the kernel costs.
struct Seconds {
  double wall = 1e9, cpu = 1e9;
};

template <class Function>
Seconds best_seconds(const Function& function) {
  Seconds best;
  for (int i = 0; i < repeats; ++i) {
    const double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    function();
    best.wall = std::min(best.wall, now(CLOCK_MONOTONIC) - wall);
    best.cpu = std::min(best.cpu, now(CLOCK_PROCESS_CPUTIME_ID) - cpu);
  }
  return best;
}

// Sums of the same bytes in the same order: what the memory gives to these threads.
Seconds read_seconds(Pool& pool, const std::vector<uint8_t>& data) {
  const int64_t chunk = 48 * 1024, chunks = static_cast<int64_t>(data.size()) / chunk;
  std::vector<uint64_t> sums(static_cast<size_t>(chunks));
  return best_seconds([&] {
    pool.each(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        uint64_t sum[8] = {};
        for (int64_t i = 0; i < chunk; i += 64) {
          uint64_t words[8];
          memcpy(words, data.data() + c * chunk + i, sizeof words);
          for (int j = 0; j < 8; ++j) sum[j] += words[j];
        }
        for (uint64_t part : sum) sums[static_cast<size_t>(c)] += part;
      }
    });
  });
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 2;
  const int64_t experts = count > 2 ? std::atoi(arguments[2]) : 256;
  Pool pool(threads, {});
  std::mt19937_64 random(1);
  std::vector<uint8_t> weights(static_cast<size_t>(experts * n * k / 2));
  for (size_t i = 0; i < weights.size(); i += 8) {
    const uint64_t bits = random();
    memcpy(weights.data() + i, &bits, 8);
  }
  std::vector<float> scale(static_cast<size_t>(experts * n), 1e-3f);
  const Seconds read = read_seconds(pool, weights);
  const double gigabytes = static_cast<double>(weights.size()) * 1e-9;
  printf("%d threads, %lld experts, %.0f MB of weights; plain reading %.2f GB/s, per CPU second %.2f GB\n", threads,
         static_cast<long long>(experts), gigabytes * 1e3, gigabytes / read.wall, gigabytes / read.cpu);

  for (const Kernels* const* usable = usable_kernels(); *usable != nullptr; ++usable) {
    const Kernels& kernels = **usable;
    for (int64_t rows : {1, 2, 4, 8, 32, 128}) {
      // Rows per expert; fewer experts where the work is large, still far more than the caches hold.
      const int64_t used = std::max<int64_t>(16, rows <= 2 ? experts : experts / rows);
      std::vector<int8_t> q(static_cast<size_t>(used * rows * k));
      for (int8_t& value : q) value = static_cast<int8_t>(random());
      std::vector<float> a_scale(static_cast<size_t>(used * rows), 1e-2f), y(static_cast<size_t>(used * rows * n)),
          expected(y);
      std::vector<int32_t> ids, offsets{0};
      for (int64_t e = 0; e < used; ++e) {
        ids.push_back(static_cast<int32_t>(e));
        offsets.push_back(static_cast<int32_t>((e + 1) * rows));
      }
      const TiledWeights tiled{weights.data(), scale.data(), n, k, 1};
      const Groups one{ids.data(), offsets.data(), 1}, all{ids.data(), offsets.data(), used};
      tiled_matmul(pool, scalar_kernels.w4, tiled, one, q.data(), a_scale.data(), expected.data(), n);
      tiled_matmul(pool, kernels.w4, tiled, one, q.data(), a_scale.data(), y.data(), n);
      float largest = 0;
      for (int64_t i = 0; i < rows * n; ++i) largest = std::max(largest, std::abs(y[size_t(i)] - expected[size_t(i)]));
      if (rows == 1) {
        for (size_t i = 0; i < 5; ++i)
          printf("  %s[%zu] scalar %.6f, %.6f\n", kernels.name, i, double(expected[i]), double(y[i]));
      }
      if (&kernels == &scalar_kernels && rows > 2) continue;
      const Seconds seconds =
          best_seconds([&] { tiled_matmul(pool, kernels.w4, tiled, all, q.data(), a_scale.data(), y.data(), n); });
      const double bytes = static_cast<double>(used * n * k / 2), products = static_cast<double>(used * rows * n * k);
      printf(
          "%-7s rows %3lld: %7.2f ms, %6.2f GB/s of weights, %6.1f G products/s; per CPU second %6.2f GB, %6.1f G; "
          "maxdiff %g\n",
          kernels.name, static_cast<long long>(rows), seconds.wall * 1e3, bytes / seconds.wall * 1e-9,
          products / seconds.wall * 1e-9, bytes / seconds.cpu * 1e-9, products / seconds.cpu * 1e-9, double(largest));
    }
  }
}
