#include "row_passes.h"

#include <bit>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>

#include "../../runtime/x86_features.h"
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// Vectors are passed between functions of this file alone, so how other files would pass them does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

#define MEMRA_PASSES baseline
#define MEMRA_PASSES_NAME "baseline"
#define MEMRA_PASSES_TARGET
#define MEMRA_PASSES_BYTES 16
#if defined(__x86_64__)
#define MEMRA_PASSES_BITS(flags) (unsigned)_mm_movemask_ps((__m128)(flags))
#elif defined(__aarch64__)
#define MEMRA_PASSES_BITS(flags) vaddvq_u32(vandq_u32((uint32x4_t)(flags), uint32x4_t{1, 2, 4, 8}))
#else
#define MEMRA_PASSES_BITS(flags) (unsigned)((flags)[0] & 1) | ((flags)[1] & 2) | ((flags)[2] & 4) | ((flags)[3] & 8)
#endif
#include "row_passes_body.h"
#undef MEMRA_PASSES
#undef MEMRA_PASSES_NAME
#undef MEMRA_PASSES_TARGET
#undef MEMRA_PASSES_BYTES
#undef MEMRA_PASSES_BITS

#if defined(__x86_64__)
#define MEMRA_PASSES avx2
#define MEMRA_PASSES_NAME "avx2"
#define MEMRA_PASSES_TARGET __attribute__((target("avx2")))
#define MEMRA_PASSES_BYTES 32
#define MEMRA_PASSES_BITS(flags) (unsigned)_mm256_movemask_ps((__m256)(flags))
#include "row_passes_body.h"
#undef MEMRA_PASSES
#undef MEMRA_PASSES_NAME
#undef MEMRA_PASSES_TARGET
#undef MEMRA_PASSES_BYTES
#undef MEMRA_PASSES_BITS

#define MEMRA_PASSES avx512
#define MEMRA_PASSES_NAME "avx512"
#define MEMRA_PASSES_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define MEMRA_PASSES_BYTES 64
#define MEMRA_PASSES_BITS(flags) (unsigned)_mm512_movepi32_mask((__m512i)(flags))
#include "row_passes_body.h"
#endif

namespace memra::sampler {

const Passes* usable_passes(int index) {
  static const struct Usable {
    const Passes* list[4] = {};
    Usable() {
      int count = 0;
#if defined(__x86_64__)
      if (has_x86_avx512()) list[count++] = &avx512::passes;
      if (has_x86_avx2()) list[count++] = &avx2::passes;
#endif
      list[count] = &baseline::passes;
    }
  } usable;
  return index >= 0 && index < 4 ? usable.list[index] : nullptr;
}

}  // namespace memra::sampler
