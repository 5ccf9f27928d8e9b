// Stand-alone check of the kernels, for instruction sets that the build machine can only emulate (the Python tests
// build it with SIMDe, and with a cross compiler for qemu) and for the sanitizers. Integer sums are compared with the
// index formulas of the native tile order, floats bit for bit with the scalar variant and with one thread.
//
//   kernel_check            prints the variants that can run, then one line per check; exit code 1 after a difference
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "matmul.h"
#include "quantise.h"

using namespace ling3;

namespace {

std::mt19937 random_bits(20240607);
bool okay = true;

struct Format {
  const char* name;
  TileKernels Kernels::* kernels;
  int64_t columns;
  int least, most;  // weights
};

constexpr Format formats[] = {{"w4", &Kernels::w4, 64, -8, 7}, {"w8", &Kernels::w8, 32, -128, 127}};

struct Matrix {
  std::vector<int> plain;       // [n, k]
  std::vector<uint8_t> native;  // the same in tile order
};

// What a kernel could get wrong only at the ends of the ranges: every sum at its largest, both signs, and signs that
// alternate.
enum class Pattern { random, low_weights_high_rows, low_weights_low_rows, high_weights_low_rows, alternating };
constexpr Pattern patterns[] = {Pattern::random, Pattern::low_weights_high_rows, Pattern::low_weights_low_rows,
                                Pattern::high_weights_low_rows, Pattern::alternating};

int between(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_bits); }

Matrix make_weights(const Format& format, int64_t n_total, int64_t k_total, Pattern pattern) {
  Matrix matrix{std::vector<int>(static_cast<size_t>(n_total * k_total)), {}};
  matrix.native.resize(static_cast<size_t>(n_total * k_total) / (format.columns == 64 ? 2 : 1));
  for (int64_t n = 0; n < n_total; ++n)
    for (int64_t k = 0; k < k_total; ++k) {
      int w = between(format.least, format.most);
      if (pattern == Pattern::low_weights_high_rows || pattern == Pattern::low_weights_low_rows) w = format.least;
      if (pattern == Pattern::high_weights_low_rows) w = format.most;
      if (pattern == Pattern::alternating) w = (k + n) % 2 ? format.least : format.most;
      matrix.plain[static_cast<size_t>(n * k_total + k)] = w;
      if (format.columns == 64) {
        const int64_t nibble = (n / 64 * (k_total / 32) + k / 32) * 2048 + n % 64 * 32 + k % 32;
        matrix.native[static_cast<size_t>(nibble / 2)] |= static_cast<uint8_t>((w & 15) << nibble % 2 * 4);
      } else {
        matrix.native[static_cast<size_t>((n / 32 * (k_total / 32) + k / 32) * 1024 + n % 32 * 32 + k % 32)] =
            static_cast<uint8_t>(w);
      }
    }
  return matrix;
}

std::vector<int8_t> make_rows(int64_t rows, int64_t k_total, Pattern pattern) {
  std::vector<int8_t> q(static_cast<size_t>(rows * k_total));
  for (size_t i = 0; i < q.size(); ++i) {
    int a = between(-128, 127);
    if (pattern == Pattern::low_weights_high_rows) a = 127;
    if (pattern == Pattern::low_weights_low_rows || pattern == Pattern::high_weights_low_rows) a = -128;
    if (pattern == Pattern::alternating) a = i % 2 ? -128 : 127;
    q[i] = static_cast<int8_t>(a);
  }
  return q;
}

template <class Value>
void compare(const std::string& what, const std::vector<Value>& expected, const std::vector<Value>& found) {
  int shown = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (memcmp(&expected[i], &found[i], sizeof(Value)) == 0) continue;
    okay = false;
    if (shown++ < 5)
      printf("%s: [%zu] expected %.9g, found %.9g\n", what.c_str(), i, double(expected[i]), double(found[i]));
  }
}

// Floats differ from machine to machine in nothing: values in (-1, 1) with a few bits more than a product keeps.
std::vector<float> make_floats(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(random_bits);
  return values;
}

void check_sums(const Format& format, const Kernels& kernels, Pool& pool) {
  struct Shape {
    int64_t n_tiles, k, tile;
  };
  constexpr Shape shapes[] = {{1, 32, 32},   {1, 64, 64},     {2, 96, 96},   {1, 128, 32},  {3, 160, 160},
                              {1, 192, 64},  {1, 224, 224},   {2, 256, 128}, {1, 288, 288}, {1, 512, 512},
                              {1, 512, 256}, {1, 1536, 1536}, {1, 1536, 384}};
  int64_t sums = 0;
  for (const Shape& shape : shapes) {
    const int64_t n = shape.n_tiles * format.columns, tiles = shape.k / shape.tile;
    for (Pattern pattern : patterns) {
      const Matrix weights = make_weights(format, n, shape.k, pattern);
      for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33}) {
        if (rows > 9 && shape.k > 512) continue;
        const std::vector<int8_t> q = make_rows(rows, shape.k, pattern);
        std::vector<int32_t> expected(static_cast<size_t>(rows * tiles * n)), found(expected.size());
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t t = 0; t < tiles; ++t)
            for (int64_t j = 0; j < n; ++j) {
              int32_t sum = 0;
              for (int64_t k = t * shape.tile; k < (t + 1) * shape.tile; ++k)
                sum += q[static_cast<size_t>(r * shape.k + k)] * weights.plain[static_cast<size_t>(j * shape.k + k)];
              expected[static_cast<size_t>((r * tiles + t) * n + j)] = sum;
            }
        tiled_accumulate(pool, kernels.*format.kernels, {weights.native.data(), nullptr, n, shape.k, tiles}, rows,
                         q.data(), found.data());
        compare(std::string(format.name) + " " + kernels.name + " k " + std::to_string(shape.k) + " tile " +
                    std::to_string(shape.tile) + " rows " + std::to_string(rows),
                expected, found);
        sums += static_cast<int64_t>(expected.size());
      }
    }
  }
  printf("%s %s: %lld sums compared\n", format.name, kernels.name, static_cast<long long>(sums));
}

// Groups of experts, one of them empty and one expert twice, columns that are dropped.
void check_floats(const Kernels& kernels, Pool& single, Pool& pool) {
  const std::vector<int32_t> experts{2, 0, 1, 0}, offsets{0, 1, 1, 12, 21};
  const Groups groups{experts.data(), offsets.data(), 4};
  const int64_t rows = 21, k = 192, tiles = 3, expert_count = 3;
  for (const Format& format : formats) {
    const int64_t n = format.columns * 2, kept = n - 5;
    std::vector<uint8_t> weights(static_cast<size_t>(expert_count * n * k) / (format.columns == 64 ? 2 : 1));
    for (uint8_t& byte : weights) byte = static_cast<uint8_t>(between(0, 255));
    const std::vector<int8_t> q = make_rows(rows, k, Pattern::random);
    const std::vector<float> scale = make_floats(expert_count * tiles * n), a_scale = make_floats(rows * tiles);
    const TiledWeights tiled{weights.data(), scale.data(), n, k, tiles};
    std::vector<float> expected(static_cast<size_t>(rows * kept)), found(expected.size());
    tiled_matmul(single, scalar_kernels.*format.kernels, tiled, groups, q.data(), a_scale.data(), expected.data(),
                 kept);
    tiled_matmul(pool, kernels.*format.kernels, tiled, groups, q.data(), a_scale.data(), found.data(), kept);
    compare(std::string(format.name) + " matmul " + kernels.name, expected, found);
  }
  for (int64_t width : {1, 15, 16, 17, 64, 100, 1536}) {
    const int64_t n = 37;
    const std::vector<float> x = make_floats(rows * width), weights = make_floats(expert_count * n * width);
    std::vector<uint16_t> halves;
    for (float weight : weights) {
      uint32_t bits;
      memcpy(&bits, &weight, sizeof bits);
      halves.push_back(static_cast<uint16_t>(bits >> 16));
    }
    std::vector<float> expected(static_cast<size_t>(rows * n)), found(expected.size());
    const FloatWeights f32{reinterpret_cast<const uint8_t*>(weights.data()), 4, n, width};
    float_matmul(single, scalar_kernels.f32, f32, groups, x.data(), expected.data());
    float_matmul(pool, kernels.f32, f32, groups, x.data(), found.data());
    compare(std::string("f32 ") + kernels.name, expected, found);
    const FloatWeights bf16{reinterpret_cast<const uint8_t*>(halves.data()), 2, n, width};
    float_matmul(single, scalar_kernels.bf16, bf16, groups, x.data(), expected.data());
    float_matmul(pool, kernels.bf16, bf16, groups, x.data(), found.data());
    compare(std::string("bf16 ") + kernels.name, expected, found);
  }
  printf("float %s: compared with scalar\n", kernels.name);
}

void check_pool(Pool& pool) {
  for (int64_t count = 0; count < 3000; count = count * 3 / 2 + 1) {
    std::vector<int32_t> seen(static_cast<size_t>(count)), once(seen.size(), 1);
    pool.each(count, 1 + count % 7, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    compare("pool items", once, seen);
  }
  printf("pool %d: every item once\n", pool.threads());
}

// Values at which quantising is easy to get wrong: halves, denormals, the largest float, a tile of zeros, a short row.
void check_quantise(Pool& pool) {
  std::vector<float> x(40, 0.0f);
  x[0] = 127.0f;
  x[1] = 0.5f;
  x[2] = 1.5f;
  x[3] = -2.5f;
  x[4] = -127.0f;
  std::vector<int8_t> q(128);
  std::vector<float> scale(4);
  okay &= quantise_rows(pool, x.data(), 1, 40, 128, 32, q.data(), scale.data());
  compare<int8_t>("rounding", {127, 0, 2, -2, -127}, {q.begin(), q.begin() + 5});
  compare<float>("scale", {1.0f, 1.0f, 1.0f, 1.0f}, scale);
  x[3] = 3.4e38f;
  x[35] = -1e-45f;
  okay &= quantise_rows(pool, x.data(), 1, 40, 128, 32, q.data(), scale.data());
  compare<int8_t>("extremes", {0, 127, 0}, {q[0], q[3], q[35]});
  x[39] = __builtin_nanf("");
  okay &= !quantise_rows(pool, x.data(), 1, 40, 128, 32, q.data(), scale.data());
  printf("quantise: compared\n");
}

}  // namespace

int main() {
  std::vector<const Kernels*> variants;
  for (const Kernels* const* usable = usable_kernels(); *usable != nullptr; ++usable) variants.push_back(*usable);
#if defined(LING3_SIMDE)
  variants = {&avx512_kernels, &avx2_kernels, &scalar_kernels};
#endif
  printf("variants:");
  for (const Kernels* kernels : variants) printf(" %s", kernels->name);
  printf("\n");
  Pool single(1, {}), pair(2, {}), four(4, {});
  for (Pool* pool : {&single, &pair, &four}) check_pool(*pool);
  check_quantise(pair);
  for (const Kernels* kernels : variants) {
    for (const Format& format : formats) check_sums(format, *kernels, pair);
    for (Pool* pool : {&single, &pair, &four}) check_floats(*kernels, single, *pool);
  }
  printf("overall okay: %d\n", okay);
  return okay ? 0 : 1;
}
