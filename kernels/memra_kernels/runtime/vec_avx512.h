// Sixteen-lane vectors on AVX-512 (F, BW, DQ, VL, VNNI): one register each.
//
// The vec_*.h files offer the same names. Float operations are IEEE single operations lane by lane, so that
// every variant gives the same bits; sums over lanes always fold 16 -> 8 -> 4 -> 2 -> 1 by halves.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace memra::MEMRA_VARIANT {

typedef __m512 F;   // 16 float32
typedef __m512i I;  // 16 int32
typedef __m512i B;  // 64 bytes, unsigned

static inline F f_zero() { return _mm512_setzero_ps(); }
static inline F f_set(float v) { return _mm512_set1_ps(v); }
static inline F f_load(const float* p) { return _mm512_loadu_ps(p); }
static inline void f_store(float* p, F v) { _mm512_storeu_ps(p, v); }
static inline F f_add(F a, F b) { return _mm512_add_ps(a, b); }
static inline F f_sub(F a, F b) { return _mm512_sub_ps(a, b); }
static inline F f_mul(F a, F b) { return _mm512_mul_ps(a, b); }
static inline F f_div(F a, F b) { return _mm512_div_ps(a, b); }
static inline F f_fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }    // a * b + c
static inline F f_fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a * b
static inline F f_max(F a, F b) { return _mm512_max_ps(a, b); }
static inline F f_min(F a, F b) { return _mm512_min_ps(a, b); }
static inline F f_abs(F a) { return _mm512_abs_ps(a); }
static inline F f_round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline F f_from_half(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
static inline void f_to_half(uint16_t* p, F v) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline F f_from_bfloat(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
}
// Lanes lo <= lane < hi from a, the others from b.
static inline F f_select(int lo, int hi, F a, F b) {
  const uint32_t mask = ((1u << hi) - 1u) & ~((1u << lo) - 1u);
  return _mm512_mask_mov_ps(b, (__mmask16)mask, a);
}
static inline float f_sum(F v) {
  __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}
static inline float f_highest(F v) {
  __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}

static inline I i_zero() { return _mm512_setzero_si512(); }
static inline I i_set(int32_t v) { return _mm512_set1_epi32(v); }
static inline I i_load(const int32_t* p) { return _mm512_loadu_si512(p); }
static inline void i_store(int32_t* p, I v) { _mm512_storeu_si512(p, v); }
static inline I i_add(I a, I b) { return _mm512_add_epi32(a, b); }
static inline I i_sub(I a, I b) { return _mm512_sub_epi32(a, b); }
static inline I i_mul(I a, I b) { return _mm512_mullo_epi32(a, b); }
static inline int32_t i_sum(I v) { return _mm512_reduce_add_epi32(v); }
template <int N>
static inline I i_shl(I a) {
  return _mm512_slli_epi32(a, N);
}
static inline I i_from_u8(const uint8_t* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)); }
static inline I i_from_i8(const uint8_t* p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)); }
static inline F f_from_int(I v) { return _mm512_cvtepi32_ps(v); }
static inline I i_from_float(F v) { return _mm512_cvtps_epi32(v); }  // to nearest, ties to even
static inline F f_power_of_two(I n) {                                // 2 ** n for -126 <= n <= 127
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}
static inline void i_store_int8(int8_t* p, I v) { _mm_storeu_si128((__m128i*)p, _mm512_cvtsepi32_epi8(v)); }

static inline B b_load(const uint8_t* p) { return _mm512_loadu_si512(p); }
static inline void b_store(uint8_t* p, B v) { _mm512_storeu_si512(p, v); }
static inline B b_set(uint8_t v) { return _mm512_set1_epi8((char)v); }
static inline B b_and(B a, B b) { return _mm512_and_si512(a, b); }
static inline B b_sub(B a, B b) { return _mm512_sub_epi8(a, b); }
// Shifts move 16-bit lanes: the caller masks what crosses a byte.
template <int N>
static inline B b_shr(B a) {
  return _mm512_srli_epi16(a, N);
}
template <int N>
static inline B b_shl(B a) {
  return _mm512_slli_epi16(a, N);
}
// Bits of a where mask is one, bits of b elsewhere.
static inline B b_blend(B mask, B a, B b) { return _mm512_ternarylogic_epi32(a, b, mask, 0xE4); }
static inline B b_table(const uint8_t* p) { return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)p)); }
static inline B b_lookup(B table, B index) { return _mm512_shuffle_epi8(table, index); }  // index < 16

// acc[lane] += sum of four products: unsigned weight byte times signed activation byte. x holds four activations.
// Wide says that weights may exceed 127; here both cost the same.
template <bool Wide>
static inline I i_dot(I acc, B w, int32_t x) {
  return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x));
}

// To the first level: with a reader 2 KiB behind, up to 11 % faster than to the second. Not _mm_prefetch: gcc 12 takes a
// loop of nothing but prefetches for one without effect and drops it.
static inline void prefetch(const void* p) { asm volatile("prefetcht0 %0" : : "m"(*(const char*)p)); }

}  // namespace memra::MEMRA_VARIANT
