#include "cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace memra {
namespace {

#if defined(__x86_64__)
// AVX-VNNI is leaf 7, subleaf 1, bit 4 of EAX (Intel SDM volume 2, CPUID); older compilers have no name for it.
bool has_avxvnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}

// The compiler's own checks include whether the operating system saves the registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512vnni() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

}  // namespace

const KernelTable* find_variant(const std::string& name) {
#if defined(__x86_64__)
  if (name == "avx512vnni" && has_avx512vnni()) return &avx512vnni::table;
  if (name == "avxvnni" && has_avx2() && has_avxvnni()) return &avxvnni::table;
  if (name == "avx2" && has_avx2()) return &avx2::table;
#endif
  return name == "scalar" ? &scalar::table : nullptr;
}

std::string usable_variants() {
  std::string names;
  for (const char* name : {"avx512vnni", "avxvnni", "avx2"})
    if (find_variant(name)) names += std::string(name) + ",";
  return names + "scalar";
}

}  // namespace memra
