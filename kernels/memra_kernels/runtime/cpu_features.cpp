#include "cpu_features.h"

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>

#include "x86_features.h"
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace memra {
namespace {

#if defined(__x86_64__)
// AVX-VNNI is leaf 7, subleaf 1, bit 4 of EAX (Intel SDM volume 2, CPUID).
bool has_avxvnni() { return has_bits(Cpuid(7, 1).a, 1u << 4); }

bool has_avx2() { return has_x86_avx2(); }

bool has_avx512vnni() { return has_x86_avx512() && has_bits(Cpuid(7).c, 1u << 11); }

// AMX-TILE and AMX-INT8 are leaf 7, bits 24 and 25 of EDX; XCR0 has bits 17 and 18 where the operating system saves
// tiles (Intel SDM volume 1, chapter 13).
bool has_tiles() {
  constexpr unsigned wanted = 1u << 24 | 1u << 25, saved = 1u << 17 | 1u << 18;
  if (!has_bits(Cpuid(7).d, wanted)) return false;
  unsigned a = 0, d = 0;
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
#elif defined(__aarch64__) && defined(__linux__)
// HWCAP_ASIMDDP and HWCAP2_I8MM of Linux's arch/arm64/include/uapi/asm/hwcap.h; older systems have no names for them.
bool has_dot() { return getauxval(AT_HWCAP) & 1ul << 20; }
bool has_i8mm() { return has_dot() && (getauxval(AT_HWCAP2) & 1ul << 13); }
#elif defined(__aarch64__) && defined(__APPLE__)
bool has_dot() { return true; }  // every 64-bit Mac has it, and not every one the other
bool has_i8mm() { return false; }
#endif

}  // namespace

const KernelTable* find_variant(const std::string& name) {
#if defined(__x86_64__)
  if (name == "avx512amx" && has_avx512amx()) return &avx512amx::table;
  if (name == "avx512vnni" && has_avx512vnni()) return &avx512vnni::table;
  if (name == "avxvnni" && has_avx2() && has_avxvnni()) return &avxvnni::table;
  if (name == "avx2" && has_avx2()) return &avx2::table;
#elif defined(__aarch64__)
  if (name == "neon_i8mm" && has_i8mm()) return &neon_i8mm::table;
  if (name == "neon_dot" && has_dot()) return &neon_dot::table;
#endif
  return name == "scalar" ? &scalar::table : nullptr;
}

std::string usable_variants() {
  std::string names;
  for (const char* name : {"avx512amx", "avx512vnni", "avxvnni", "avx2", "neon_i8mm", "neon_dot"})
    if (find_variant(name)) names += std::string(name) + ",";
  return names + "scalar";
}

}  // namespace memra
