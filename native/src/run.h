// Pool.run: kernels that were compiled elsewhere (numba) on the common pool.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "pool.h"

namespace ling3 {

// Calls kernel(args, begin, end) over [0, items). An array in `args` becomes its address and its sizes, an int one
// word, a float the bits of a double; anything else is refused.
void run_kernel(Pool& pool, int64_t kernel_address, int64_t items, nanobind::list args, int64_t grain);

}  // namespace ling3
