#include "quantise.h"

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cstring>

namespace ling3 {
namespace {

constexpr int64_t serial_elements = 16384;  // less work than waking a worker
constexpr int32_t infinity_bits = 0x7f800000;

int64_t rows_per_chunk(int64_t row_elements) {
  return std::max<int64_t>(1, serial_elements / std::max<int64_t>(row_elements, 1));
}

// The largest |x| as its bits, which order like the numbers; infinities and NaN compare as the largest.
int32_t largest_magnitude(const float* x, int64_t count) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    int32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// Adding 1.5 * 2^23 leaves no fraction bits, so the hardware rounds half to even, and the low bits are the integer.
// Unlike lrintf this becomes SIMD everywhere.
int8_t rounded(float value) {
  const float shifted = value + 12582912.0f;
  int32_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  return static_cast<int8_t>(bits);
}

bool quantise_tile(const float* x, int64_t used, int64_t tile, int8_t* q, float* scale) {
  const int32_t bits = largest_magnitude(x, used);
  if (bits >= infinity_bits) return false;
  float largest;
  memcpy(&largest, &bits, sizeof largest);
  *scale = bits == 0 ? 1.0f : std::max(largest / 127.0f, FLT_MIN);
  const float factor = 1.0f / *scale;
  // No clamp: |x| * factor is at most 127 and three roundings of one part in 2^24, which goes to 127.
  for (int64_t i = 0; i < used; ++i) q[i] = rounded(x[i] * factor);
  if (used < tile) memset(q + used, 0, static_cast<size_t>(tile - used));
  return true;
}

}  // namespace

bool quantise_rows(Pool& pool, const float* x, int64_t rows, int64_t width, int64_t k, int64_t tile, int8_t* q,
                   float* scale) {
  const int64_t tiles = k / tile;
  std::atomic<bool> finite{true};
  pool.each(rows, rows_per_chunk(k), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t first = std::min(t * tile, width), used = std::min(tile, width - first);
        if (!quantise_tile(x + r * width + first, used, tile, q + r * k + t * tile, scale + r * tiles + t))
          finite.store(false, std::memory_order_relaxed);
      }
  });
  return finite.load();
}

void gather_w8_rows(const int8_t* weights, const float* scale, int64_t n, int64_t k, int64_t tiles, const int64_t* ids,
                    int64_t count, float* out, int64_t width) {
  const int64_t tile = k / tiles;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = ids[i];
    const int8_t* column = weights + (id / 32 * (k / 32) * 32 + id % 32) * 32;
    for (int64_t j = 0; j < width; ++j)
      out[i * width + j] = static_cast<float>(column[j / 32 * 1024 + j % 32]) * scale[j / tile * n + id];
  }
}

}  // namespace ling3
