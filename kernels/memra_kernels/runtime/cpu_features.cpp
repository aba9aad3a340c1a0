#include "cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
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

// AMX-TILE and AMX-INT8 are leaf 7, bits 24 and 25 of EDX; XCR0 has bits 17 and 18 where the operating system saves
// tiles (Intel SDM volume 1, chapter 13).
bool has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned wanted = 1u << 24 | 1u << 25, saved = 1u << 17 | 1u << 18;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & wanted) != wanted) return false;
  asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return (a & saved) == saved;
}

// Linux lends tiles to a process that asks; it refuses where a thread's signal stack is too small for them.
bool may_use_tiles() {
#if defined(__linux__)
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

bool has_avx512amx() {
  static const bool usable = has_avx512vnni() && has_tiles() && may_use_tiles();
  return usable;
}
#endif

}  // namespace

const KernelTable* find_variant(const std::string& name) {
#if defined(__x86_64__)
  if (name == "avx512amx" && has_avx512amx()) return &avx512amx::table;
  if (name == "avx512vnni" && has_avx512vnni()) return &avx512vnni::table;
  if (name == "avxvnni" && has_avx2() && has_avxvnni()) return &avxvnni::table;
  if (name == "avx2" && has_avx2()) return &avx2::table;
#endif
  return name == "scalar" ? &scalar::table : nullptr;
}

std::string usable_variants() {
  std::string names;
  for (const char* name : {"avx512amx", "avx512vnni", "avxvnni", "avx2"})
    if (find_variant(name)) names += std::string(name) + ",";
  return names + "scalar";
}

}  // namespace memra
