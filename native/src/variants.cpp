// Which kernels this CPU can run. The questions stand here and not beside the kernels: those files are compiled for
// instructions that the CPU may lack.
#include <cstring>
#include <iterator>

#include "matmul.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace ling3 {
namespace {

struct Variant {
  const Kernels* kernels;
  bool (*supported)();
};

constexpr Variant variants[] = {
#if defined(__x86_64__)
    {&avx512_kernels,
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512vnni") != 0;
     }},
    {&avx2_kernels, [] { return __builtin_cpu_supports("avx2") != 0; }},
#elif defined(__aarch64__)
    {&neon_kernels, [] { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }},
#endif
    {&scalar_kernels, [] { return true; }},
};

}  // namespace

const Kernels* const* usable_kernels() {
  static const Kernels* const* const list = [] {
    static const Kernels* usable[std::size(variants) + 1] = {};
    int count = 0;
    for (const Variant& variant : variants)
      if (variant.supported()) usable[count++] = variant.kernels;
    return usable;
  }();
  return list;
}

const Kernels* find_kernels(const char* name) {
  for (const Kernels* const* kernels = usable_kernels(); *kernels != nullptr; ++kernels)
    if (strcmp((*kernels)->name, name) == 0) return *kernels;
  return nullptr;
}

}  // namespace ling3
