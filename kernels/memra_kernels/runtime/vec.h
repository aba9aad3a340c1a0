// Picks the vector header of the variant that this object is compiled for; MEMRA_VARIANT names it and its namespace.
#pragma once
#if defined(MEMRA_VEC_AVX512)
#include "vec_avx512.h"
#elif defined(MEMRA_VEC_AVX2)
#include "vec_avx2.h"
#else
#include "vec_scalar.h"
#endif
