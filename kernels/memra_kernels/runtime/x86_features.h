// Instruction sets of an x86 processor, from cpuid itself (Intel SDM volume 2, CPUID): __builtin_cpu_supports denies
// everything in a library that zig linked, whose runtime leaves the builtin's table empty.
#pragma once
#include <cpuid.h>

namespace memra {

struct Cpuid {
  unsigned a = 0, b = 0, c = 0, d = 0;  // zeros where the processor has no such leaf

  explicit Cpuid(unsigned leaf, unsigned subleaf = 0) { __get_cpuid_count(leaf, subleaf, &a, &b, &c, &d); }
};

static inline bool has_bits(unsigned word, unsigned bits) { return (word & bits) == bits; }

// Whether the operating system saves the registers that these bits of XCR0 name (SDM volume 1, chapter 13).
static inline bool saves_registers(unsigned bits) {
  if (!has_bits(Cpuid(1).c, 1u << 27)) return false;  // OSXSAVE: the instruction below exists
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return has_bits(low, bits);
}

// AVX2, FMA and F16C.
static inline bool has_x86_avx2() {
  return saves_registers(0x06) && has_bits(Cpuid(1).c, 1u << 12 | 1u << 28 | 1u << 29) &&
         has_bits(Cpuid(7).b, 1u << 5);
}

// AVX-512 F, DQ, BW and VL.
static inline bool has_x86_avx512() {
  return has_x86_avx2() && saves_registers(0xe6) && has_bits(Cpuid(7).b, 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31);
}

}  // namespace memra
