// NEON with the ARMv8.2 dot product (sdot: four products of signed bytes added to a 32-bit lane). A nibble moved to the
// upper half of its byte is 16 w as a signed byte, so nothing has to be sign-extended; the sums are divided by 16 at
// the end, exactly, and 16 * 128 * 8 * K fits 32 bits up to K = 131071.
#include <arm_neon.h>

#include "matmul_float.h"

namespace ling3 {
namespace {

int8x16_t load(const uint8_t* from) { return vreinterpretq_s8_u8(vld1q_u8(from)); }

// The 32 weights of a column are two vectors of 16 signed bytes, its halves; `split` gives activations the same order.
struct W4 {
  static constexpr int columns = 64;
  static constexpr int column_bytes = 16;
  static constexpr int shift = 4;

  static int8x16x2_t split(int8x16_t left, int8x16_t right) { return vuzpq_s8(left, right); }  // even k, odd k
  static int8x16_t low(int8x16_t bytes) { return vshlq_n_s8(bytes, 4); }
  static int8x16_t high(int8x16_t bytes) { return vandq_s8(bytes, vdupq_n_s8(static_cast<int8_t>(0xf0))); }

  // Four neighbouring columns at a time: loads that stand together become load pairs.
  static void unpack(const uint8_t* weights, int8x16_t (&first)[4], int8x16_t (&second)[4]) {
    int8x16_t bytes[4];
    for (int c = 0; c < 4; ++c) bytes[c] = load(weights + c * column_bytes);
    for (int c = 0; c < 4; ++c) {
      first[c] = low(bytes[c]);
      second[c] = high(bytes[c]);
    }
  }

  template <int half>
  static void unpack_half(const uint8_t* weights, int8x16_t (&out)[8]) {
    for (int c = 0; c < 8; ++c) out[c] = load(weights + c * column_bytes);
    for (int8x16_t& column : out) column = half == 0 ? low(column) : high(column);
  }
};

struct W8 {
  static constexpr int columns = 32;
  static constexpr int column_bytes = 32;
  static constexpr int shift = 0;

  static int8x16x2_t split(int8x16_t left, int8x16_t right) { return {{left, right}}; }

  static void unpack(const uint8_t* weights, int8x16_t (&first)[4], int8x16_t (&second)[4]) {
    for (int c = 0; c < 4; ++c) {
      first[c] = load(weights + c * column_bytes);
      second[c] = load(weights + c * column_bytes + 16);
    }
  }

  template <int half>
  static void unpack_half(const uint8_t* weights, int8x16_t (&out)[8]) {
    for (int c = 0; c < 8; ++c) out[c] = load(weights + c * column_bytes + half * 16);
  }
};

struct Square {
  int32x4_t row[4];
};

Square transposed(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
  const int64x2_t ab = vreinterpretq_s64_s32(vzip1q_s32(a, b)), ab_high = vreinterpretq_s64_s32(vzip2q_s32(a, b));
  const int64x2_t cd = vreinterpretq_s64_s32(vzip1q_s32(c, d)), cd_high = vreinterpretq_s64_s32(vzip2q_s32(c, d));
  return {{vreinterpretq_s32_s64(vzip1q_s64(ab, cd)), vreinterpretq_s32_s64(vzip2q_s64(ab, cd)),
           vreinterpretq_s32_s64(vzip1q_s64(ab_high, cd_high)), vreinterpretq_s32_s64(vzip2q_s64(ab_high, cd_high))}};
}

int lane_rows(int rows) { return rows == 1 ? 1 : (rows + 3) / 4 * 4; }

int64_t prepared_bytes(int rows, int64_t tile) { return lane_rows(rows) * tile; }

template <class Format>
int8x16x2_t split_block(const int8_t* q) {
  return Format::split(vld1q_s8(q), vld1q_s8(q + 16));
}

// One row: [native tile][half][16]. More: four rows interleaved so that a vector holds the same four k values of each,
// [native tile][half][4 k quads][rows / 4][4 rows][4]; rows that are missing are zero.
template <class Format>
void prepare(const int8_t* q, int64_t stride, int rows, int64_t tile, uint8_t* prepared) {
  const int quads = lane_rows(rows) / 4;
  for (int64_t b = 0; b < tile / k_block; ++b) {
    const int8_t* from = q + b * k_block;
    if (rows == 1) {
      const int8x16x2_t row = split_block<Format>(from);
      vst1q_u8(prepared + b * k_block, vreinterpretq_u8_s8(row.val[0]));
      vst1q_u8(prepared + b * k_block + 16, vreinterpretq_u8_s8(row.val[1]));
    }
    for (int quad = 0; quad < quads; ++quad) {
      int8x16x2_t row[4] = {};
      for (int r = 0; r < 4 && quad * 4 + r < rows; ++r) row[r] = split_block<Format>(from + (quad * 4 + r) * stride);
      for (int half = 0; half < 2; ++half) {
        const Square square =
            transposed(vreinterpretq_s32_s8(row[0].val[half]), vreinterpretq_s32_s8(row[1].val[half]),
                       vreinterpretq_s32_s8(row[2].val[half]), vreinterpretq_s32_s8(row[3].val[half]));
        for (int k = 0; k < 4; ++k)
          vst1q_u8(prepared + (((b * 2 + half) * 4 + k) * quads + quad) * 16, vreinterpretq_u8_s32(square.row[k]));
      }
    }
  }
}

template <int shift>
int32x4_t shifted(int32x4_t sums) {
  if constexpr (shift == 0) return sums;
  else return vshrq_n_s32(sums, shift);
}

// One row. Sixteen columns keep their sums in registers over the whole K tile; their lines are fetched some native
// tiles ahead, since the stride between them is more than a prefetcher can be trusted with.
template <class Format>
void accumulate_row(const uint8_t* prepared, int64_t tile, const uint8_t* weights, int32_t* acc) {
  constexpr int width = 16;
  constexpr int ahead = 8;
  for (int n = 0; n < Format::columns; n += width) {
    int32x4_t sum[width];
    for (int32x4_t& column : sum) column = vdupq_n_s32(0);
    for (int64_t b = 0; b < tile / k_block; ++b) {
      const uint8_t* w = weights + b * block_bytes + n * Format::column_bytes;
      for (int line = 0; line < width * Format::column_bytes; line += 64)
        __builtin_prefetch(w + ahead * block_bytes + line);
      const int8x16_t a_first = load(prepared + b * k_block), a_second = load(prepared + b * k_block + 16);
      for (int c = 0; c < width; c += 4) {
        int8x16_t first[4], second[4];
        Format::unpack(w + c * Format::column_bytes, first, second);
        for (int i = 0; i < 4; ++i)
          sum[c + i] = vdotq_s32(vdotq_s32(sum[c + i], first[i], a_first), second[i], a_second);
      }
    }
    for (int c = 0; c < width; c += 4) {
      const int32x4_t four = vpaddq_s32(vpaddq_s32(sum[c], sum[c + 1]), vpaddq_s32(sum[c + 2], sum[c + 3]));
      vst1q_s32(acc + n + c, shifted<Format::shift>(four));
    }
  }
}

// Sixteen sums and half of the weights of eight columns just fit the registers. These keep g++ from holding both halves
// at once, and from starting all sums as copies of one register, which it then moves about in every pass.
inline void forget(const uint8_t*& pointer) { asm("" : "+r"(pointer)); }
inline void settle(int32x4_t& sum) { asm("" : "+w"(sum)); }

template <int lane, int quads, int width>
void dot_lane(int32x4_t (&sum)[width][quads], const int8x16_t (&column)[width], const uint8_t* a) {
  int8x16_t rows[quads];
  for (int quad = 0; quad < quads; ++quad) rows[quad] = load(a + (lane * quads + quad) * 16);
  for (int c = 0; c < width; ++c)
    for (int quad = 0; quad < quads; ++quad) sum[c][quad] = vdotq_laneq_s32(sum[c][quad], rows[quad], column[c], lane);
}

template <class Format, int half, int quads, int width>
void dot_half(int32x4_t (&sum)[width][quads], const uint8_t* weights, const uint8_t* a) {
  int8x16_t column[width];
  Format::template unpack_half<half>(weights, column);
  a += half * 4 * quads * 16;
  dot_lane<0>(sum, column, a);
  dot_lane<1>(sum, column, a);
  dot_lane<2>(sum, column, a);
  dot_lane<3>(sum, column, a);
}

// Four or eight rows in the lanes, eight columns at a time: no addition across lanes.
template <class Format, int quads>
void accumulate_interleaved(const uint8_t* prepared, int64_t tile, const uint8_t* weights, int32_t* acc) {
  constexpr int width = 8;
  for (int n = 0; n < Format::columns; n += width) {
    int32x4_t sum[width][quads];
    for (auto& column : sum)
      for (int32x4_t& quad : column) {
        quad = vdupq_n_s32(0);
        settle(quad);
      }
    for (int64_t b = 0; b < tile / k_block; ++b) {
      const uint8_t* w = weights + b * block_bytes + n * Format::column_bytes;
      const uint8_t* a = prepared + b * quads * 4 * k_block;
      dot_half<Format, 0>(sum, w, a);
      forget(w);
      dot_half<Format, 1>(sum, w, a);
    }
    for (int quad = 0; quad < quads; ++quad)
      for (int c = 0; c < width; c += 4) {
        const Square square = transposed(sum[c][quad], sum[c + 1][quad], sum[c + 2][quad], sum[c + 3][quad]);
        for (int r = 0; r < 4; ++r)
          vst1q_s32(acc + (quad * 4 + r) * Format::columns + n + c, shifted<Format::shift>(square.row[r]));
      }
  }
}

template <class Format>
void accumulate(const uint8_t* prepared, int rows, int64_t tile, const uint8_t* weights, int32_t* acc) {
  if (rows == 1) accumulate_row<Format>(prepared, tile, weights, acc);
  else if (rows <= 4) accumulate_interleaved<Format, 1>(prepared, tile, weights, acc);
  else accumulate_interleaved<Format, 2>(prepared, tile, weights, acc);
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
