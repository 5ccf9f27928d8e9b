// The float dot products, compiled once per instruction set. Everything here is static: an inline function with external
// linkage could be merged with the copy of another translation unit, and then run instructions that the CPU lacks.
#pragma once

#include <cstdint>
#include <cstring>

#include "matmul.h"

namespace ling3 {
namespace {

constexpr int lanes = 16;
typedef float Lanes __attribute__((vector_size(lanes * 4)));
typedef uint32_t Bits __attribute__((vector_size(lanes * 4)));
typedef uint16_t Halves __attribute__((vector_size(lanes * 2)));

inline void load(const float* from, Lanes& to) { memcpy(&to, from, sizeof to); }

inline void load(const uint16_t* from, Lanes& to) {
  Halves halves;
  memcpy(&halves, from, sizeof halves);
  const Bits bits = __builtin_convertvector(halves, Bits) << 16;
  memcpy(&to, &bits, sizeof to);
}

inline float widen(float value) { return value; }

inline float widen(uint16_t value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

inline float sum(const Lanes& parts) {
  float tree[lanes];
  memcpy(tree, &parts, sizeof parts);
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) tree[i] += tree[i + width];
  return tree[0];
}

template <int rows, int columns, class Weight>
inline void dots(const float* x, const Weight* weights, int64_t k, float* y, int64_t y_stride) {
  Lanes parts[rows][columns] = {};
  const int64_t whole = k / lanes * lanes;
  for (int64_t i = 0; i < whole; i += lanes) {
    Lanes w[columns];
    for (int c = 0; c < columns; ++c) load(weights + c * k + i, w[c]);
    for (int r = 0; r < rows; ++r) {
      Lanes a;
      load(x + r * k + i, a);
      for (int c = 0; c < columns; ++c) parts[r][c] += a * w[c];
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      for (int64_t i = whole; i < k; ++i) parts[r][c][i - whole] += x[r * k + i] * widen(weights[c * k + i]);
      y[r * y_stride + c] = sum(parts[r][c]);
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
