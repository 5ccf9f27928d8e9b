// The Python face of the kernels, ling3._native: checks everything, releases the interpreter lock, computes nothing
// itself.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <sched.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "array.h"
#include "matmul.h"
#include "pool.h"
#include "quantise.h"
#include "run.h"

namespace ling3 {
namespace {

using Format = TileKernels Kernels::*;

constexpr int most_threads = 256;

const Kernels& named_kernels(const std::string& name, const char* who) {
  if (const Kernels* kernels = find_kernels(name.c_str())) return *kernels;
  std::string names;
  for (const Kernels* const* kernels = usable_kernels(); *kernels != nullptr; ++kernels)
    names += std::string(names.empty() ? "" : ", ") + (*kernels)->name;
  refuse(std::string(who) + ": kernel variant '" + name +
         "' does not exist or this CPU cannot run it; it runs: " + names);
}

// LING3_KERNEL is read once, at the first use: one process computes with one variant.
const Kernels& active_kernels() {
  static const Kernels* active = nullptr;
  if (active == nullptr) {
    const char* name = std::getenv("LING3_KERNEL");
    active = name == nullptr || *name == '\0' ? usable_kernels()[0] : &named_kernels(name, "LING3_KERNEL");
  }
  return *active;
}

void check_groups(const Array& experts, const Array& offsets, int64_t expert_count, int64_t rows) {
  const int64_t count = experts.shape(0);
  offsets.expect({count + 1});
  const int32_t* expert = experts.data<const int32_t>();
  const int32_t* offset = offsets.data<const int32_t>();
  for (int64_t g = 0; g < count; ++g) {
    if (expert[g] < 0 || expert[g] >= expert_count)
      refuse("experts: entry " + std::to_string(expert[g]) + " is not in 0..." + std::to_string(expert_count - 1));
    if (offset[g] > offset[g + 1]) refuse("offsets: must not fall");
  }
  if (offset[0] != 0) refuse("offsets: must start at 0");
  if (offset[count] != rows) refuse("offsets: must end at the number of rows, " + std::to_string(rows));
}

// The K tile count of a scale or activation scale, checked against K.
int64_t checked_tiles(const Array& scale, int64_t tiles, int64_t k) {
  if (tiles < 1 || k % tiles != 0 || k / tiles % k_block != 0 || k / tiles > most_tile)
    scale.refuse_shape("the number of K tiles must divide K = " + std::to_string(k) +
                       " into multiples of 32, at most " + std::to_string(most_tile));
  return tiles;
}

// weights [..., N/columns, K/32, columns, bytes of a column]; `lead` axes come before.
void check_tiles(const Array& weights, int lead, int columns) {
  const int64_t column_bytes = block_bytes / columns;
  if (weights.shape(lead) < 1 || weights.shape(lead + 1) < 1 || weights.shape(lead + 2) != columns ||
      weights.shape(lead + 3) != column_bytes)
    weights.refuse_shape("native tiles [N/" + std::to_string(columns) + ", K/32, " + std::to_string(columns) + ", " +
                         std::to_string(column_bytes) + "] are needed in the last four axes");
}

template <Format format>
void matmul(Pool& pool, nb::handle weights_object, nb::handle scale_object, nb::handle q_object,
            nb::handle a_scale_object, nb::handle experts_object, nb::handle offsets_object, nb::handle y_object) {
  const TileKernels& kernels = active_kernels().*format;
  const Array weights(weights_object, "weights", kernels.columns == 64 ? uint8 : int8, 5);
  const Array scale(scale_object, "scale", float32, 3);
  const Array q(q_object, "q", int8, 2);
  const Array a_scale(a_scale_object, "a_scale", float32, 2);
  const Array experts(experts_object, "experts", int32, 1);
  const Array offsets(offsets_object, "offsets", int32, 1);
  const Array y(y_object, "y", float32, 2, Array::writes);
  check_tiles(weights, 1, kernels.columns);
  const int64_t n = weights.shape(1) * kernels.columns, k = weights.shape(2) * k_block, rows = q.shape(0);
  const int64_t tiles = checked_tiles(scale, scale.shape(1), k);
  scale.expect({weights.shape(0), tiles, n});
  q.expect({-1, k});
  a_scale.expect({rows, tiles});
  y.expect({rows, -1});
  if (y.shape(1) > n) y.refuse_shape("at most N = " + std::to_string(n) + " columns are possible");
  check_groups(experts, offsets, weights.shape(0), rows);
  const TiledWeights tiled{weights.data<const uint8_t>(), scale.data<const float>(), n, k, tiles};
  const Groups groups{experts.data<const int32_t>(), offsets.data<const int32_t>(), experts.shape(0)};
  const nb::gil_scoped_release unlocked;
  tiled_matmul(pool, kernels, tiled, groups, q.data<const int8_t>(), a_scale.data<const float>(), y.data<float>(),
               y.shape(1));
}

template <Format format>
void accumulate(Pool& pool, nb::handle weights_object, nb::handle q_object, nb::handle acc_object,
                const std::string& variant) {
  const TileKernels& kernels = named_kernels(variant, "variant").*format;
  const Array weights(weights_object, "weights", kernels.columns == 64 ? uint8 : int8, 4);
  const Array q(q_object, "q", int8, 2);
  const Array acc(acc_object, "acc", int32, 3, Array::writes);
  check_tiles(weights, 0, kernels.columns);
  const int64_t n = weights.shape(0) * kernels.columns, k = weights.shape(1) * k_block, rows = q.shape(0);
  q.expect({-1, k});
  const int64_t tiles = checked_tiles(acc, acc.shape(1), k);
  acc.expect({rows, tiles, n});
  const nb::gil_scoped_release unlocked;
  tiled_accumulate(pool, kernels, {weights.data<const uint8_t>(), nullptr, n, k, tiles}, rows, q.data<const int8_t>(),
                   acc.data<int32_t>());
}

void dense(Pool& pool, FloatDots dots, const ElementType& type, nb::handle weights_object, nb::handle x_object,
           nb::handle experts_object, nb::handle offsets_object, nb::handle y_object) {
  const Array weights(weights_object, "weights", type, 3);
  const Array x(x_object, "x", float32, 2);
  const Array experts(experts_object, "experts", int32, 1);
  const Array offsets(offsets_object, "offsets", int32, 1);
  const Array y(y_object, "y", float32, 2, Array::writes);
  const int64_t rows = x.shape(0);
  x.expect({-1, weights.shape(2)});
  y.expect({rows, weights.shape(1)});
  check_groups(experts, offsets, weights.shape(0), rows);
  const FloatWeights plain{weights.data<const uint8_t>(), type.size, weights.shape(1), weights.shape(2)};
  const Groups groups{experts.data<const int32_t>(), offsets.data<const int32_t>(), experts.shape(0)};
  const nb::gil_scoped_release unlocked;
  float_matmul(pool, dots, plain, groups, x.data<const float>(), y.data<float>());
}

void quantise(Pool& pool, nb::handle x_object, int64_t tile, nb::handle q_object, nb::handle scale_object) {
  const Array x(x_object, "x", float32, 2);
  const Array q(q_object, "q", int8, 2, Array::writes);
  const Array scale(scale_object, "scale", float32, 2, Array::writes);
  const int64_t rows = x.shape(0), width = x.shape(1), k = q.shape(1);
  if (tile < k_block || tile % k_block != 0)
    refuse("tile: must be a positive multiple of 32, got " + std::to_string(tile));
  q.expect({rows, -1});
  if (k < width || k % tile != 0)
    q.refuse_shape("the columns must be a multiple of tile = " + std::to_string(tile) + " and at least " +
                   std::to_string(width));
  scale.expect({rows, k / tile});
  bool finite;
  {
    const nb::gil_scoped_release unlocked;
    finite = quantise_rows(pool, x.data<const float>(), rows, width, k, tile, q.data<int8_t>(), scale.data<float>());
  }
  if (!finite) refuse("x: holds a value that is not finite");
}

void gather(nb::handle weights_object, nb::handle scale_object, nb::handle ids_object, nb::handle out_object) {
  const Array weights(weights_object, "weights", int8, 4);
  const Array scale(scale_object, "scale", float32, 2);
  const Array ids(ids_object, "ids", int64, 1);
  const Array out(out_object, "out", float32, 2, Array::writes);
  check_tiles(weights, 0, 32);
  const int64_t n = weights.shape(0) * 32, k = weights.shape(1) * k_block, count = ids.shape(0);
  const int64_t tiles = checked_tiles(scale, scale.shape(0), k);
  scale.expect({tiles, n});
  out.expect({count, -1});
  if (out.shape(1) > k) out.refuse_shape("at most K = " + std::to_string(k) + " columns are possible");
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = ids.data<const int64_t>()[i];
    if (id < 0 || id >= n) refuse("ids: entry " + std::to_string(id) + " is not in 0..." + std::to_string(n - 1));
  }
  const nb::gil_scoped_release unlocked;
  gather_w8_rows(weights.data<const int8_t>(), scale.data<const float>(), n, k, tiles, ids.data<const int64_t>(), count,
                 out.data<float>(), out.shape(1));
}

void make_pool(Pool* place, int threads, const std::optional<std::vector<int>>& cpus) {
  if (threads < 1 || threads > most_threads)
    refuse("threads: must be in 1..." + std::to_string(most_threads) + ", got " + std::to_string(threads));
  for (int cpu : cpus.value_or(std::vector<int>{}))
    if (cpu < 0 || cpu >= CPU_SETSIZE) refuse("cpus: " + std::to_string(cpu) + " is no CPU number");
  new (place) Pool(threads, cpus.value_or(std::vector<int>{}));
}

}  // namespace

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // modules that keep a pool until the interpreter ends are no leak

  nb::class_<Pool>(m, "Pool")
      .def("__init__", make_pool, nb::arg("threads"), nb::arg("cpus") = nb::none())
      .def_prop_ro("threads", &Pool::threads)
      .def_prop_ro("pinned", &Pool::pinned)
      .def("run", run_kernel, nb::arg("kernel_address"), nb::arg("items"), nb::arg("args"), nb::arg("grain") = 1);

  m.def("w4_matmul", matmul<&Kernels::w4>, nb::arg("pool"), nb::arg("weights"), nb::arg("scale"), nb::arg("q"),
        nb::arg("a_scale"), nb::arg("experts"), nb::arg("offsets"), nb::arg("y"));
  m.def("w8_matmul", matmul<&Kernels::w8>, nb::arg("pool"), nb::arg("weights"), nb::arg("scale"), nb::arg("q"),
        nb::arg("a_scale"), nb::arg("experts"), nb::arg("offsets"), nb::arg("y"));
  m.def("w4_accumulate", accumulate<&Kernels::w4>, nb::arg("pool"), nb::arg("weights"), nb::arg("q"), nb::arg("acc"),
        nb::arg("variant"));
  m.def("w8_accumulate", accumulate<&Kernels::w8>, nb::arg("pool"), nb::arg("weights"), nb::arg("q"), nb::arg("acc"),
        nb::arg("variant"));
  m.def(
      "f32_matmul",
      [](Pool& pool, nb::handle weights, nb::handle x, nb::handle experts, nb::handle offsets, nb::handle y) {
        dense(pool, active_kernels().f32, float32, weights, x, experts, offsets, y);
      },
      nb::arg("pool"), nb::arg("weights"), nb::arg("x"), nb::arg("experts"), nb::arg("offsets"), nb::arg("y"));
  m.def(
      "bf16_matmul",
      [](Pool& pool, nb::handle weights, nb::handle x, nb::handle experts, nb::handle offsets, nb::handle y) {
        dense(pool, active_kernels().bf16, uint16, weights, x, experts, offsets, y);
      },
      nb::arg("pool"), nb::arg("weights"), nb::arg("x"), nb::arg("experts"), nb::arg("offsets"), nb::arg("y"));
  m.def("quantise_rows", quantise, nb::arg("pool"), nb::arg("x"), nb::arg("tile"), nb::arg("q"), nb::arg("scale"));
  m.def("gather_w8_rows", gather, nb::arg("weights"), nb::arg("scale"), nb::arg("ids"), nb::arg("out"));

  m.def("variants", [] {
    std::vector<std::string> names;
    for (const Kernels* const* kernels = usable_kernels(); *kernels != nullptr; ++kernels)
      names.push_back((*kernels)->name);
    return names;
  });
  m.def("active_variant", [] { return std::string(active_kernels().name); });
}

}  // namespace ling3
