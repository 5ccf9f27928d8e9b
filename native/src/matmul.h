// Matrix products over weights that stay where they are: W4 and W8 in the NPU's native B tile order (D-12), f32 and
// bf16 row-major. One entry serves plain linears (one group) and experts (a group of rows per selected expert).
//
// W4: nibbles [E, N/64, K/32, 64, 32], even k in the low half, two's complement; W8: int8 [E, N/32, K/32, 32, 32].
// Scale: float32 [E, T, N], one per K tile and output. Activations: int8 [rows, K] with float32 [rows, T].
#pragma once

#include <cstdint>

#include "pool.h"

namespace ling3 {

constexpr int64_t k_block = 32;        // k values of one native tile, W4 and W8 alike
constexpr int64_t block_bytes = 1024;  // bytes of one native tile, W4 (64 x 16) and W8 (32 x 32) alike
constexpr int row_block = 8;           // rows that the kernels take at a time
// The longest K tile: 128 * 128 * 65536 is half of what 32 bits hold, and so is 16 * 128 * 8 * 65536 (NEON's W4).
constexpr int64_t most_tile = 65536;

// The integer kernels of one weight format and one instruction set. All work on one K tile and 1...row_block rows.
// `prepare` copies activations into the order that `accumulate` reads; that order is private to the pair.
struct TileKernels {
  int columns;  // outputs of a native tile: 64 or 32
  int64_t (*prepared_bytes)(int rows, int64_t tile);
  void (*prepare)(const int8_t* q, int64_t stride, int rows, int64_t tile, uint8_t* prepared);
  // weights: tile/32 native tiles in a row; acc: [row_block, columns], the exact sums; rows from `rows` on may be
  // overwritten
  void (*accumulate)(const uint8_t* prepared, int rows, int64_t tile, const uint8_t* weights, int32_t* acc);
};

// Dot products of 1...row_block rows x [rows, K] with `columns` rows of weights [columns, K]; y: [rows, columns of
// stride]. Sixteen partial sums, k mod 16 each, then one fixed tree: every instruction set gives the same bits.
using FloatDots = void (*)(const float* x, int rows, const void* weights, int64_t columns, int64_t k, float* y,
                           int64_t y_stride);

struct Kernels {
  const char* name;
  TileKernels w4;
  TileKernels w8;
  FloatDots f32;
  FloatDots bf16;
};

extern const Kernels scalar_kernels;  // the reference
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;  // AVX-512 F, BW and VNNI
extern const Kernels neon_kernels;    // ARMv8.2 with the dot product

// Null-terminated, best first; those that this CPU cannot run are left out.
const Kernels* const* usable_kernels();
const Kernels* find_kernels(const char* name);  // null if unknown or not usable

// Rows offsets[g] ... offsets[g + 1] belong to expert experts[g]; offsets[0] = 0 and offsets[count] = number of rows.
struct Groups {
  const int32_t* experts;
  const int32_t* offsets;
  int64_t count;
};

struct TiledWeights {
  const uint8_t* data;
  const float* scale;  // may be null where only sums are asked for
  int64_t n;
  int64_t k;
  int64_t tiles;  // K tiles, T
};

struct FloatWeights {
  const uint8_t* data;
  int64_t element_bytes;
  int64_t n;
  int64_t k;
};

// y: [rows, y_columns], y_columns <= N. y = sum over K tiles, in order, of float(acc) * (a_scale * scale).
void tiled_matmul(Pool& pool, const TileKernels& kernels, const TiledWeights& weights, const Groups& groups,
                  const int8_t* q, const float* a_scale, float* y, int64_t y_columns);

// acc: [rows, T, N], the sums themselves, for tests and for comparison with the NPU.
void tiled_accumulate(Pool& pool, const TileKernels& kernels, const TiledWeights& weights, int64_t rows,
                      const int8_t* q, int32_t* acc);

// x: [rows, K]; y: [rows, N].
void float_matmul(Pool& pool, FloatDots dots, const FloatWeights& weights, const Groups& groups, const float* x,
                  float* y);

}  // namespace ling3
