// Activations to int8 and back: symmetric, one scale per (row, K tile).
#pragma once

#include <cstdint>

#include "pool.h"

namespace ling3 {

// x: [rows, width] float32; q: [rows, k] int8; scale: [rows, k / tile] float32. Columns from `width` on count as zero.
// scale = max|x| / 127 but at least the smallest normal float, 1 for a tile of zeros; q = x times the float32
// reciprocal of the scale, half to even, within +-127. Returns false, with q and scale unusable, if x holds an infinity
// or a NaN.
bool quantise_rows(Pool& pool, const float* x, int64_t rows, int64_t width, int64_t k, int64_t tile, int8_t* q,
                   float* scale);

// Rows of a W8 matrix [N/32, K/32, 32, 32] with scale [tiles, N] as float32: out: [count, width], width <= k.
void gather_w8_rows(const int8_t* weights, const float* scale, int64_t n, int64_t k, int64_t tiles, const int64_t* ids,
                    int64_t count, float* out, int64_t width);

}  // namespace ling3
