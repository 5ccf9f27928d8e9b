// AVX-512 with VNNI: vpdpbusd adds four products of unsigned and signed bytes to a 32-bit lane and never saturates. The
// weights are the unsigned operand (w + 8 or w + 128); the sum of the activations takes the offset back. As with AVX2 a
// window of four native tiles meets the same activations, and lanes are added up at the end of the K tile.
#if defined(LING3_SIMDE)
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#else
#include <immintrin.h>
#endif

#include "matmul_float.h"

namespace ling3 {
namespace {

constexpr int window = 4;
constexpr int vectors = 16;         // 64-byte vectors of a native tile
constexpr int64_t step = k_block;   // prepared bytes per native tile and row
constexpr int64_t sums_bytes = 64;  // behind them the sum of each row

int64_t prepared_bytes(int rows, int64_t tile) { return (tile / k_block * rows * step + 63) / 64 * 64 + sums_bytes; }

__m128i load(const int8_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }

template <class Format>
void prepare(const int8_t* q, int64_t stride, int rows, int64_t tile, uint8_t* prepared) {
  int32_t* sums = reinterpret_cast<int32_t*>(prepared + prepared_bytes(rows, tile) - sums_bytes);
  const __m128i ones = _mm_set1_epi8(1), wide_ones = _mm_set1_epi16(1);
  for (int r = 0; r < rows; ++r) {
    __m128i total = _mm_setzero_si128();
    for (int64_t b = 0; b < tile / k_block; ++b) {
      const __m128i left = load(q + r * stride + b * k_block), right = load(q + r * stride + b * k_block + 16);
      __m128i* to = reinterpret_cast<__m128i*>(prepared + (b * rows + r) * step);
      Format::place(left, right, to);
      const __m128i pairs = _mm_add_epi16(_mm_maddubs_epi16(ones, left), _mm_maddubs_epi16(ones, right));
      total = _mm_add_epi32(total, _mm_madd_epi16(pairs, wide_ones));
    }
    int32_t parts[4];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(parts), total);
    sums[r] = parts[0] + parts[1] + parts[2] + parts[3];
  }
}

#if defined(LING3_SIMDE)
#define UNROLLED
inline void forget(const uint8_t*&) {}
#else
// Arrays of vectors become registers only in loops that are unrolled.
#define UNROLLED _Pragma("GCC unroll 16")
// Keeps g++ from loading the activations of all rows before the loop over columns: they would not fit the registers.
inline void forget(const uint8_t*& pointer) { asm("" : "+r"(pointer)); }
#endif

// Four columns a vector, 128 bits each. Even k values meet the low nibbles, odd ones the high nibbles.
struct W4 {
  static constexpr int columns = 64;
  static constexpr int operands = 2;
  static constexpr int32_t offset = 8;

  static void place(__m128i left, __m128i right, __m128i* to) {
    const __m128i even_odd = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    left = _mm_shuffle_epi8(left, even_odd);
    right = _mm_shuffle_epi8(right, even_odd);
    _mm_storeu_si128(to, _mm_unpacklo_epi64(left, right));
    _mm_storeu_si128(to + 1, _mm_unpackhi_epi64(left, right));
  }

  static void unpack(const uint8_t* weights, __m512i* w) {
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i bytes = _mm512_xor_si512(_mm512_loadu_si512(weights), _mm512_set1_epi8(static_cast<char>(0x88)));
    w[0] = _mm512_and_si512(bytes, nibble);
    w[1] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble);
  }

  static __m512i activations(const uint8_t* prepared, int operand) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(prepared + operand * 16)));
  }

  // From lane sums [quarter][vector] of four vectors to their 16 columns.
  static void store(__m512i sums, __m512i less, int32_t* out) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(out, _mm512_sub_epi32(_mm512_permutexvar_epi32(order, sums), less));
  }
};

// Two columns a vector, 256 bits each.
struct W8 {
  static constexpr int columns = 32;
  static constexpr int operands = 1;
  static constexpr int32_t offset = 128;

  static void place(__m128i left, __m128i right, __m128i* to) {
    _mm_storeu_si128(to, left);
    _mm_storeu_si128(to + 1, right);
  }

  static void unpack(const uint8_t* weights, __m512i* w) {
    w[0] = _mm512_xor_si512(_mm512_loadu_si512(weights), _mm512_set1_epi8(static_cast<char>(0x80)));
  }

  static __m512i activations(const uint8_t* prepared, int) {
    return _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(prepared)));
  }

  // From lane sums [quarter][vector] of four vectors to their 8 columns, two quarters each.
  static void store(__m512i sums, __m512i less, int32_t* out) {
    const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    const __m512i halves = _mm512_permutexvar_epi32(order, sums);
    const __m256i whole = _mm256_add_epi32(_mm512_castsi512_si256(halves), _mm512_extracti64x4_epi64(halves, 1));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_sub_epi32(whole, _mm512_castsi512_si256(less)));
  }
};

// The lines that the same step of the window after next reads: a window is one page, and the hardware's own prefetching
// starts anew with every page and stream.
template <int blocks>
inline void prefetch(const uint8_t* weights, int v) {
  if constexpr (blocks == window) {
    const uint8_t* from = weights + 2 * window * block_bytes + v * (window * block_bytes / vectors);
    for (int64_t line = 0; line < window * block_bytes / vectors; line += 64)
      _mm_prefetch(reinterpret_cast<const char*>(from + line), _MM_HINT_T0);
  }
}

template <class Format, int rows, int blocks, bool start>
inline void multiply(const uint8_t* prepared, const uint8_t* weights, __m512i* acc) {
  constexpr int operands = Format::operands;
  __m512i held[blocks * operands];  // one row's activations fit the registers
  if constexpr (rows == 1) {
    UNROLLED
    for (int i = 0; i < blocks * operands; ++i)
      held[i] = Format::activations(prepared + i / operands * step, i % operands);
  }
  for (int v = 0; v < vectors; ++v) {
    forget(prepared);
    prefetch<blocks>(weights, v);
    __m512i sum[rows];
    UNROLLED
    for (int r = 0; r < rows; ++r) sum[r] = start ? _mm512_setzero_si512() : acc[r * vectors + v];
    UNROLLED
    for (int b = 0; b < blocks; ++b) {
      __m512i w[operands];
      Format::unpack(weights + b * block_bytes + v * 64, w);
      UNROLLED
      for (int i = 0; i < rows * operands; ++i) {
        const int r = i / operands, operand = i % operands;
        const __m512i a =
            rows == 1 ? held[b * operands + operand] : Format::activations(prepared + (b * rows + r) * step, operand);
        sum[r] = _mm512_dpbusd_epi32(sum[r], w[operand], a);
      }
    }
    UNROLLED
    for (int r = 0; r < rows; ++r) acc[r * vectors + v] = sum[r];
  }
}

// Sums within each quarter of four vectors: [quarter][vector].
inline __m512i add_lanes(const __m512i* four) {
  const __m512i low =
      _mm512_add_epi32(_mm512_unpacklo_epi32(four[0], four[1]), _mm512_unpackhi_epi32(four[0], four[1]));
  const __m512i high =
      _mm512_add_epi32(_mm512_unpacklo_epi32(four[2], four[3]), _mm512_unpackhi_epi32(four[2], four[3]));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
}

template <class Format, int rows>
void accumulate_rows(const uint8_t* prepared, int64_t tile, const uint8_t* weights, int32_t* out) {
  __m512i acc[rows * vectors];
  const int64_t blocks = tile / k_block;
  multiply<Format, rows, 1, true>(prepared, weights, acc);
  int64_t b = 1;
  for (; b + window <= blocks; b += window)
    multiply<Format, rows, window, false>(prepared + b * rows * step, weights + b * block_bytes, acc);
  for (; b < blocks; ++b) multiply<Format, rows, 1, false>(prepared + b * rows * step, weights + b * block_bytes, acc);

  const int32_t* sums = reinterpret_cast<const int32_t*>(prepared + prepared_bytes(rows, tile) - sums_bytes);
  for (int r = 0; r < rows; ++r) {
    const __m512i less = _mm512_set1_epi32(Format::offset * sums[r]);
    for (int v = 0; v < vectors; v += 4)
      Format::store(add_lanes(acc + r * vectors + v), less, out + r * Format::columns + v * Format::columns / vectors);
  }
}

template <class Format>
void accumulate(const uint8_t* prepared, int rows, int64_t tile, const uint8_t* weights, int32_t* acc) {
  using Rows = void (*)(const uint8_t*, int64_t, const uint8_t*, int32_t*);
  static constexpr Rows table[row_block] = {
      accumulate_rows<Format, 1>, accumulate_rows<Format, 2>, accumulate_rows<Format, 3>, accumulate_rows<Format, 4>,
      accumulate_rows<Format, 5>, accumulate_rows<Format, 6>, accumulate_rows<Format, 7>, accumulate_rows<Format, 8>};
  table[rows - 1](prepared, tile, weights, acc);
}

}  // namespace

const Kernels avx512_kernels = {
    "avx512",
    {W4::columns, prepared_bytes, prepare<W4>, accumulate<W4>},
    {W8::columns, prepared_bytes, prepare<W8>, accumulate<W8>},
    float_dots<float>,
    float_dots<uint16_t>,
};

}  // namespace ling3
