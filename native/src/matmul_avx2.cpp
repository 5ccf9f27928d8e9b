// AVX2. A window of four native tiles (4 KiB of weights, read front to back) meets the same activations; sums per lane
// stay in L1 from window to window and are added up across lanes at the end of the K tile.
#if defined(LING3_SIMDE)
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx2.h>
#else
#include <immintrin.h>
#endif

#include <cstring>

#include "matmul_float.h"

namespace ling3 {
namespace {

constexpr int window = 4;
constexpr int64_t sums_bytes = 64;  // behind the activations: the sum of each row, for the offset of W4

__m256i load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }

#if defined(LING3_SIMDE)
inline void forget(const uint8_t*&) {}
inline void settle(__m256i&) {}
#else
// Two things that g++ makes of the loops below cost half the speed, each by spilling dozens of registers: it loads the
// activations of all rows before the loop over columns, and it delays all additions behind all multiplications.
inline void forget(const uint8_t*& pointer) { asm("" : "+r"(pointer)); }
inline void settle(__m256i& sum) { asm("" : "+x"(sum)); }
#endif

// The line that the same step of the window after next reads. A window is one page, and the hardware's own prefetching
// starts anew with every page and stream: without this, decoding reads at half the speed (lab/w4_matmul.cpp).
template <int blocks>
inline void prefetch(const uint8_t* weights, int step, int steps) {
  if constexpr (blocks == window) {
    const uint8_t* from = weights + 2 * window * block_bytes + step * (window * block_bytes / steps);
    for (int64_t line = 0; line < window * block_bytes / steps; line += 64)
      _mm_prefetch(reinterpret_cast<const char*>(from + line), _MM_HINT_T0);
  }
}

// W4: 32 bytes are two columns; a lane of 128 bits holds the 32 k values of one column.
// Prepared: per native tile and row, the 16 even values twice, then the 16 odd ones twice.
constexpr int w4_columns = 64;
constexpr int pairs = w4_columns / 2;
constexpr int64_t w4_step = 64;  // prepared bytes per native tile and row

int64_t w4_prepared_bytes(int rows, int64_t tile) { return tile / k_block * rows * w4_step + sums_bytes; }

void w4_prepare(const int8_t* q, int64_t stride, int rows, int64_t tile, uint8_t* prepared) {
  const int64_t blocks = tile / k_block;
  // Bytes of a lane: even positions to the lower half, odd ones to the upper.
  const __m256i split = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 0, 2, 4, 6, 8, 10, 12,
                                         14, 1, 3, 5, 7, 9, 11, 13, 15);
  int32_t* sums = reinterpret_cast<int32_t*>(prepared + blocks * rows * w4_step);
  for (int r = 0; r < rows; ++r) {
    __m256i total = _mm256_setzero_si256();
    for (int64_t b = 0; b < blocks; ++b) {
      const __m256i values = load(q + r * stride + b * k_block);
      const __m256i halves = _mm256_shuffle_epi8(values, split);
      uint8_t* out = prepared + (b * rows + r) * w4_step;
      _mm256_store_si256(reinterpret_cast<__m256i*>(out), _mm256_permute4x64_epi64(halves, 0x88));
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + 32), _mm256_permute4x64_epi64(halves, 0xdd));
      const __m256i twos = _mm256_maddubs_epi16(_mm256_set1_epi8(1), values);
      total = _mm256_add_epi32(total, _mm256_madd_epi16(twos, _mm256_set1_epi16(1)));
    }
    int32_t parts[8];
    memcpy(parts, &total, sizeof parts);
    sums[r] = parts[0] + parts[1] + parts[2] + parts[3] + parts[4] + parts[5] + parts[6] + parts[7];
  }
}

// The unsigned operand of vpmaddubsw is w + 8 in 0...15. One instruction adds two products per 16-bit lane, at most
// 2 * 15 * 128 = 3840 in size; a window adds 2 * 4 of them, 30720, which 16 bits hold: nothing saturates.
template <int rows, int blocks, bool first>
inline void w4_window(const uint8_t* prepared, const uint8_t* weights, __m256i* acc) {
  static_assert(blocks * 2 * 2 * 15 * 128 <= 32767);
  const __m256i nibble = _mm256_set1_epi8(15), sign = _mm256_set1_epi8(static_cast<char>(0x88)),
                ones = _mm256_set1_epi16(1);
  __m256i held[2 * blocks];  // one row's activations fit the registers
  if constexpr (rows == 1) {
    for (int i = 0; i < 2 * blocks; ++i) held[i] = load(prepared + i * 32);
  }
  for (int p = 0; p < pairs; ++p) {
    forget(prepared);
    prefetch<blocks>(weights, p, pairs);
    __m256i sum[rows];
    for (int b = 0; b < blocks; ++b) {
      const __m256i w = _mm256_xor_si256(load(weights + b * block_bytes + p * 32), sign);
      const __m256i even = _mm256_and_si256(w, nibble), odd = _mm256_and_si256(_mm256_srli_epi16(w, 4), nibble);
      for (int r = 0; r < rows; ++r) {
        const uint8_t* a = prepared + (b * rows + r) * w4_step;
        const __m256i a_even = rows == 1 ? held[2 * b] : load(a), a_odd = rows == 1 ? held[2 * b + 1] : load(a + 32);
        const __m256i products = _mm256_maddubs_epi16(even, a_even);
        sum[r] = b == 0 ? products : _mm256_add_epi16(sum[r], products);
        sum[r] = _mm256_add_epi16(sum[r], _mm256_maddubs_epi16(odd, a_odd));
        settle(sum[r]);
      }
    }
    for (int r = 0; r < rows; ++r) {
      const __m256i wide = _mm256_madd_epi16(sum[r], ones);
      acc[r * pairs + p] = first ? wide : _mm256_add_epi32(acc[r * pairs + p], wide);
    }
  }
}

template <int rows>
void w4_tile(const uint8_t* prepared, int64_t tile, const uint8_t* weights, int32_t* out) {
  __m256i acc[rows * pairs];
  const int64_t blocks = tile / k_block;
  int64_t b = 0;
  if (blocks >= window) {
    w4_window<rows, window, true>(prepared, weights, acc);
    for (b = window; b + window <= blocks; b += window)
      w4_window<rows, window, false>(prepared + b * rows * w4_step, weights + b * block_bytes, acc);
  } else {
    w4_window<rows, 1, true>(prepared, weights, acc);
    b = 1;
  }
  for (; b < blocks; ++b) w4_window<rows, 1, false>(prepared + b * rows * w4_step, weights + b * block_bytes, acc);

  const int32_t* sums = reinterpret_cast<const int32_t*>(prepared + blocks * rows * w4_step);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int r = 0; r < rows; ++r) {
    const __m256i offset = _mm256_set1_epi32(8 * sums[r]);
    for (int p = 0; p < pairs; p += 4) {
      const __m256i* four = acc + r * pairs + p;
      const __m256i sum = _mm256_hadd_epi32(_mm256_hadd_epi32(four[0], four[1]), _mm256_hadd_epi32(four[2], four[3]));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + r * w4_columns + 2 * p),
                          _mm256_sub_epi32(_mm256_permutevar8x32_epi32(sum, order), offset));
    }
  }
}

// W8: 32 bytes are one column. Both operands have their full range, so products are taken of 16-bit values: vpmaddwd
// adds two of them in 32 bits, and 2 * 128 * 128 is far from the limit. Prepared: per native tile and row, 32 16-bit
// values.
constexpr int w8_columns = 32;
constexpr int64_t w8_step = 64;

int64_t w8_prepared_bytes(int rows, int64_t tile) { return tile / k_block * rows * w8_step; }

__m256i widen(const void* bytes) { return _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(bytes))); }

void w8_prepare(const int8_t* q, int64_t stride, int rows, int64_t tile, uint8_t* prepared) {
  for (int r = 0; r < rows; ++r)
    for (int64_t b = 0; b < tile / k_block; ++b) {
      const int8_t* values = q + r * stride + b * k_block;
      uint8_t* out = prepared + (b * rows + r) * w8_step;
      _mm256_store_si256(reinterpret_cast<__m256i*>(out), widen(values));
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + 32), widen(values + 16));
    }
}

template <int rows, int blocks, bool first>
inline void w8_window(const uint8_t* prepared, const uint8_t* weights, __m256i* acc) {
  __m256i held[2 * blocks];
  if constexpr (rows == 1) {
    for (int i = 0; i < 2 * blocks; ++i) held[i] = load(prepared + i * 32);
  }
  for (int n = 0; n < w8_columns; ++n) {
    forget(prepared);
    prefetch<blocks>(weights, n, w8_columns);
    __m256i sum[rows];
    for (int r = 0; r < rows; ++r) sum[r] = first ? _mm256_setzero_si256() : acc[r * w8_columns + n];
    for (int b = 0; b < blocks; ++b) {
      const uint8_t* w = weights + b * block_bytes + n * k_block;
      const __m256i low = widen(w), high = widen(w + 16);
      for (int r = 0; r < rows; ++r) {
        const uint8_t* a = prepared + (b * rows + r) * w8_step;
        const __m256i a_low = rows == 1 ? held[2 * b] : load(a), a_high = rows == 1 ? held[2 * b + 1] : load(a + 32);
        sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(low, a_low));
        sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(high, a_high));
        settle(sum[r]);
      }
    }
    for (int r = 0; r < rows; ++r) acc[r * w8_columns + n] = sum[r];
  }
}

template <int rows>
void w8_tile(const uint8_t* prepared, int64_t tile, const uint8_t* weights, int32_t* out) {
  __m256i acc[rows * w8_columns];
  const int64_t blocks = tile / k_block;
  w8_window<rows, 1, true>(prepared, weights, acc);
  int64_t b = 1;
  for (; b + window <= blocks; b += window)
    w8_window<rows, window, false>(prepared + b * rows * w8_step, weights + b * block_bytes, acc);
  for (; b < blocks; ++b) w8_window<rows, 1, false>(prepared + b * rows * w8_step, weights + b * block_bytes, acc);

  for (int r = 0; r < rows; ++r)
    for (int n = 0; n < w8_columns; n += 4) {
      const __m256i* four = acc + r * w8_columns + n;
      const __m256i sum = _mm256_hadd_epi32(_mm256_hadd_epi32(four[0], four[1]), _mm256_hadd_epi32(four[2], four[3]));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + r * w8_columns + n),
                       _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1)));
    }
}

using Tile = void (*)(const uint8_t* prepared, int64_t tile, const uint8_t* weights, int32_t* out);

void w4_accumulate(const uint8_t* prepared, int rows, int64_t tile, const uint8_t* weights, int32_t* acc) {
  static constexpr Tile table[row_block] = {w4_tile<1>, w4_tile<2>, w4_tile<3>, w4_tile<4>,
                                            w4_tile<5>, w4_tile<6>, w4_tile<7>, w4_tile<8>};
  table[rows - 1](prepared, tile, weights, acc);
}

void w8_accumulate(const uint8_t* prepared, int rows, int64_t tile, const uint8_t* weights, int32_t* acc) {
  static constexpr Tile table[row_block] = {w8_tile<1>, w8_tile<2>, w8_tile<3>, w8_tile<4>,
                                            w8_tile<5>, w8_tile<6>, w8_tile<7>, w8_tile<8>};
  table[rows - 1](prepared, tile, weights, acc);
}

}  // namespace

const Kernels avx2_kernels = {
    "avx2",
    {w4_columns, w4_prepared_bytes, w4_prepare, w4_accumulate},
    {w8_columns, w8_prepared_bytes, w8_prepare, w8_accumulate},
    float_dots<float>,
    float_dots<uint16_t>,
};

}  // namespace ling3
