// NEON with the ARMv8.2 dot product (sdot: four products of signed bytes added to a 32-bit lane). A nibble moved to the
// upper half of its byte is 16 w as a signed byte, so nothing has to be sign-extended; the sums are divided by 16 at the
// end, exactly, and 16 * 128 * 8 * K fits 32 bits up to K = 131071.
#include <arm_neon.h>

#include <cstring>

#include "matmul_float.h"

namespace ling3 {
namespace {

constexpr int least_interleaved = 3;  // rows; below, four lanes of zeros would cost more than the additions across lanes

// A column of a native tile as two vectors of 16 signed bytes.
struct W4 {
  static constexpr int columns = 64;
  static constexpr int column_bytes = 16;
  static constexpr int shift = 4;

  static int place(int k) { return k / 2 + k % 2 * 16; }

  static int8x16x2_t unpack(const uint8_t* column) {
    const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(column));
    return {{vshlq_n_s8(bytes, 4), vandq_s8(bytes, vdupq_n_s8(static_cast<int8_t>(0xf0)))}};
  }
};

struct W8 {
  static constexpr int columns = 32;
  static constexpr int column_bytes = 32;
  static constexpr int shift = 0;

  static int place(int k) { return k; }

  static int8x16x2_t unpack(const uint8_t* column) {
    return {{vreinterpretq_s8_u8(vld1q_u8(column)), vreinterpretq_s8_u8(vld1q_u8(column + 16))}};
  }
};

int lane_rows(int rows) { return rows < least_interleaved ? rows : (rows + 3) / 4 * 4; }

int64_t prepared_bytes(int rows, int64_t tile) { return lane_rows(rows) * tile; }

// One or two rows: [native tile][row][32]. More: four rows interleaved so that a vector holds the same four k values of
// each, [native tile][8 k quads][rows / 4][4 rows][4]; rows that are missing are zero.
template <class Format>
void prepare(const int8_t* q, int64_t stride, int rows, int64_t tile, uint8_t* prepared) {
  const int height = lane_rows(rows);
  if (height != rows) memset(prepared, 0, static_cast<size_t>(prepared_bytes(rows, tile)));
  for (int64_t b = 0; b < tile / k_block; ++b) {
    uint8_t* block = prepared + b * height * k_block;
    for (int r = 0; r < rows; ++r) {
      const int8_t* from = q + r * stride + b * k_block;
      for (int k = 0; k < k_block; ++k) {
        const int i = Format::place(k);
        const int64_t to = rows < least_interleaved ? r * k_block + i : i / 4 * height * 4 + r * 4 + i % 4;
        block[to] = static_cast<uint8_t>(from[k]);
      }
    }
  }
}

int8x16_t load(const uint8_t* from) { return vreinterpretq_s8_u8(vld1q_u8(from)); }

template <int shift>
int32x4_t shifted(int32x4_t sums) {
  if constexpr (shift == 0) return sums;
  else return vshrq_n_s32(sums, shift);
}

// One or two rows. Sixteen columns (eight for two rows) keep their sums in registers over the whole K tile.
template <class Format, int rows>
void accumulate_plain(const uint8_t* prepared, int64_t tile, const uint8_t* weights, int32_t* acc) {
  constexpr int width = 16 / rows;
  for (int n = 0; n < Format::columns; n += width) {
    int32x4_t sum[rows][width];
    for (auto& row : sum)
      for (int32x4_t& column : row) column = vdupq_n_s32(0);
    for (int64_t b = 0; b < tile / k_block; ++b) {
      const uint8_t* w = weights + b * block_bytes + n * Format::column_bytes;
      const uint8_t* a = prepared + b * rows * k_block;
      for (int c = 0; c < width; ++c) {
        const int8x16x2_t column = Format::unpack(w + c * Format::column_bytes);
        for (int r = 0; r < rows; ++r) {
          sum[r][c] = vdotq_s32(sum[r][c], column.val[0], load(a + r * k_block));
          sum[r][c] = vdotq_s32(sum[r][c], column.val[1], load(a + r * k_block + 16));
        }
      }
    }
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < width; c += 4) {
        const int32x4_t four = vpaddq_s32(vpaddq_s32(sum[r][c], sum[r][c + 1]), vpaddq_s32(sum[r][c + 2], sum[r][c + 3]));
        vst1q_s32(acc + r * Format::columns + n + c, shifted<Format::shift>(four));
      }
  }
}

template <int lane, int quads, int width>
void dot_lane(int32x4_t (&sum)[width][quads], const int8x16_t (&column)[width], const uint8_t* a) {
  for (int quad = 0; quad < quads; ++quad) {
    const int8x16_t rows = load(a + (lane * quads + quad) * 16);
    for (int c = 0; c < width; ++c) sum[c][quad] = vdotq_laneq_s32(sum[c][quad], rows, column[c], lane);
  }
}

// Four or eight rows in the lanes, eight columns at a time: no addition across lanes.
template <class Format, int quads>
void accumulate_interleaved(const uint8_t* prepared, int rows, int64_t tile, const uint8_t* weights, int32_t* acc) {
  constexpr int width = 8;
  for (int n = 0; n < Format::columns; n += width) {
    int32x4_t sum[width][quads];
    for (auto& column : sum)
      for (int32x4_t& quad : column) quad = vdupq_n_s32(0);
    for (int64_t b = 0; b < tile / k_block; ++b) {
      const uint8_t* w = weights + b * block_bytes + n * Format::column_bytes;
      const uint8_t* a = prepared + b * quads * 4 * k_block;
      for (int half = 0; half < 2; ++half) {
        int8x16_t column[width];
        for (int c = 0; c < width; ++c) column[c] = Format::unpack(w + c * Format::column_bytes).val[half];
        const uint8_t* k = a + half * 4 * quads * 16;
        dot_lane<0, quads, width>(sum, column, k);
        dot_lane<1, quads, width>(sum, column, k);
        dot_lane<2, quads, width>(sum, column, k);
        dot_lane<3, quads, width>(sum, column, k);
      }
    }
    for (int c = 0; c < width; ++c)
      for (int quad = 0; quad < quads; ++quad) {
        int32_t four[4];
        vst1q_s32(four, shifted<Format::shift>(sum[c][quad]));
        for (int i = 0; i < 4 && quad * 4 + i < rows; ++i) acc[(quad * 4 + i) * Format::columns + n + c] = four[i];
      }
  }
}

template <class Format>
void accumulate(const uint8_t* prepared, int rows, int64_t tile, const uint8_t* weights, int32_t* acc) {
  if (rows == 1) accumulate_plain<Format, 1>(prepared, tile, weights, acc);
  else if (rows == 2) accumulate_plain<Format, 2>(prepared, tile, weights, acc);
  else if (rows <= 4) accumulate_interleaved<Format, 1>(prepared, rows, tile, weights, acc);
  else accumulate_interleaved<Format, 2>(prepared, rows, tile, weights, acc);
}

}  // namespace

const Kernels neon_kernels = {
    "neon",
    {W4::columns, prepared_bytes, prepare<W4>, accumulate<W4>},
    {W8::columns, prepared_bytes, prepare<W8>, accumulate<W8>},
    float_dots<float>,
    float_dots<uint16_t>,
};

}  // namespace ling3
