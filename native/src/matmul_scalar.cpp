// The reference: plain loops, always built; every other variant is compared with it bit for bit.
#include <cstring>

#include "matmul_float.h"

namespace ling3 {
namespace {

int64_t prepared_bytes(int rows, int64_t tile) { return rows * tile; }

void prepare(const int8_t* q, int64_t stride, int rows, int64_t tile, uint8_t* prepared) {
  for (int r = 0; r < rows; ++r) memcpy(prepared + r * tile, q + r * stride, static_cast<size_t>(tile));
}

int low_nibble(uint8_t byte) { return static_cast<int8_t>(byte << 4) >> 4; }
int high_nibble(uint8_t byte) { return static_cast<int8_t>(byte) >> 4; }

void accumulate_w4(const uint8_t* prepared, int rows, int64_t tile, const uint8_t* weights, int32_t* acc) {
  constexpr int columns = 64;
  for (int r = 0; r < rows; ++r) {
    for (int n = 0; n < columns; ++n) {
      int32_t sum = 0;
      for (int64_t block = 0; block < tile / k_block; ++block) {
        const int8_t* a = reinterpret_cast<const int8_t*>(prepared) + r * tile + block * k_block;
        const uint8_t* w = weights + block * block_bytes + n * (k_block / 2);
        for (int i = 0; i < k_block / 2; ++i) sum += a[2 * i] * low_nibble(w[i]) + a[2 * i + 1] * high_nibble(w[i]);
      }
      acc[r * columns + n] = sum;
    }
  }
}

void accumulate_w8(const uint8_t* prepared, int rows, int64_t tile, const uint8_t* weights, int32_t* acc) {
  constexpr int columns = 32;
  for (int r = 0; r < rows; ++r) {
    for (int n = 0; n < columns; ++n) {
      int32_t sum = 0;
      for (int64_t block = 0; block < tile / k_block; ++block) {
        const int8_t* a = reinterpret_cast<const int8_t*>(prepared) + r * tile + block * k_block;
        const int8_t* w = reinterpret_cast<const int8_t*>(weights) + block * block_bytes + n * k_block;
        for (int i = 0; i < k_block; ++i) sum += a[i] * w[i];
      }
      acc[r * columns + n] = sum;
    }
  }
}

}  // namespace

const Kernels scalar_kernels = {
    "scalar",
    {64, prepared_bytes, prepare, accumulate_w4},
    {32, prepared_bytes, prepare, accumulate_w8},
    float_dots<float>,
    float_dots<uint16_t>,
};

}  // namespace ling3
