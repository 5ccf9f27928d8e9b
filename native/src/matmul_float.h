// The float dot products, compiled once per instruction set. Everything here is static: an inline function with
// external linkage could be merged with the copy of another translation unit, and then run instructions that the CPU
// lacks.
#pragma once

#include <cstdint>
#include <cstring>

#include "matmul.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__x86_64__)
#include <emmintrin.h>  // and no more: SIMDe has its own names for the rest
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ling3 {
namespace {

// Sixteen partial sums on every machine, in as many vectors as the machine needs for them. bf16 is the upper half of a
// float.
constexpr int lanes = 16;

#if defined(__AVX2__)
typedef __m256 Vector;
inline Vector load(const float* from) { return _mm256_loadu_ps(from); }
inline Vector load(const uint16_t* from) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
#elif defined(__x86_64__)
typedef __m128 Vector;
inline Vector load(const float* from) { return _mm_loadu_ps(from); }
inline Vector load(const uint16_t* from) {
  const __m128i halves = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), halves));
}
#elif defined(__aarch64__)
typedef float32x4_t Vector;
inline Vector load(const float* from) { return vld1q_f32(from); }
inline Vector load(const uint16_t* from) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(from), 16)); }
#endif

constexpr int vector_lanes = sizeof(Vector) / sizeof(float);
constexpr int parts = lanes / vector_lanes;

inline float widen(float value) { return value; }

inline float widen(uint16_t value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

// `rows` rows against `columns` columns; k beyond the last sixteen goes to the first lanes, one value each.
template <int rows, int columns, class Weight>
inline void dots(const float* x, const Weight* weights, int64_t k, float* y, int64_t y_stride) {
  Vector sum[rows][columns][parts] = {};
  const int64_t whole = k / lanes * lanes;
  for (int64_t i = 0; i < whole; i += lanes) {
#pragma GCC unroll 4
    for (int p = 0; p < parts; ++p) {
      Vector a[rows];
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) a[r] = load(x + r * k + i + p * vector_lanes);
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) {
        const Vector w = load(weights + c * k + i + p * vector_lanes);
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) sum[r][c][p] += a[r] * w;
      }
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      float tree[lanes];
      memcpy(tree, sum[r][c], sizeof tree);
      for (int64_t i = whole; i < k; ++i) tree[i - whole] += x[r * k + i] * widen(weights[c * k + i]);
      for (int width = lanes / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) tree[i] += tree[i + width];
      y[r * y_stride + c] = tree[0];
    }
  }
}

template <class Weight>
void float_dots(const float* x, int rows, const void* weights, int64_t columns, int64_t k, float* y, int64_t y_stride) {
  const Weight* w = static_cast<const Weight*>(weights);
  int64_t c = 0;
  if (rows == 1) {
    for (; c + 4 <= columns; c += 4) dots<1, 4>(x, w + c * k, k, y + c, y_stride);
  }
  for (; c < columns; ++c) {
    int r = 0;
    for (; r + 4 <= rows; r += 4) dots<4, 1>(x + r * k, w + c * k, k, y + r * y_stride + c, y_stride);
    for (; r < rows; ++r) dots<1, 1>(x + r * k, w + c * k, k, y + r * y_stride + c, y_stride);
  }
}

}  // namespace
}  // namespace ling3
