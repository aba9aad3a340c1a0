// Picks the vector header of the variant that this object is compiled for; MEMRA_VARIANT names it and its namespace.
#pragma once
#if defined(MEMRA_VEC_AVX512)
#include "vec_avx512.h"
#elif defined(MEMRA_VEC_AVX2)
#include "vec_avx2.h"
#elif defined(MEMRA_VEC_NEON)
#include "vec_neon.h"
#else
#include "vec_scalar.h"
#endif

#if defined(MEMRA_AMX)
#include "vec_amx.h"
#else
namespace memra::MEMRA_VARIANT {

// What a thread does before and after its part of a step: only tiles need anything.
static void begin_step() {}
static void end_step() {}

}  // namespace memra::MEMRA_VARIANT
#endif
