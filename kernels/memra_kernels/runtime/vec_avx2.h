// Sixteen-lane vectors on AVX2 with FMA and F16C: two registers each. The contract is in vec_avx512.h.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace memra::MEMRA_VARIANT {

struct F {
  __m256 a, b;
};
struct I {
  __m256i a, b;
};
typedef I B;

static inline F f_zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline F f_set(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
static inline F f_load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void f_store(float* p, F v) {
  _mm256_storeu_ps(p, v.a);
  _mm256_storeu_ps(p + 8, v.b);
}
static inline F f_add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
static inline F f_sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
static inline F f_mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
static inline F f_div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
static inline F f_fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
static inline F f_fnma(F x, F y, F z) { return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)}; }
static inline F f_max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
static inline F f_min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
static inline F f_abs(F x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
static inline F f_round(F x) {
  return {_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
static inline F f_from_half(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
          _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
static inline void f_to_half(uint16_t* p, F v) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm_storeu_si128((__m128i*)(p + 8), _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline F f_from_bfloat(const uint16_t* p) {
  const __m128i lo = _mm_loadu_si128((const __m128i*)p), hi = _mm_loadu_si128((const __m128i*)(p + 8));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(lo), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(hi), 16))};
}
static inline F f_select(int lo, int hi, F x, F y) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), lane8 = _mm256_add_epi32(lane, _mm256_set1_epi32(8));
  const __m256i low = _mm256_set1_epi32(lo - 1), high = _mm256_set1_epi32(hi);
  const __m256i ma = _mm256_and_si256(_mm256_cmpgt_epi32(lane, low), _mm256_cmpgt_epi32(high, lane));
  const __m256i mb = _mm256_and_si256(_mm256_cmpgt_epi32(lane8, low), _mm256_cmpgt_epi32(high, lane8));
  return {_mm256_blendv_ps(y.a, x.a, _mm256_castsi256_ps(ma)), _mm256_blendv_ps(y.b, x.b, _mm256_castsi256_ps(mb))};
}
static inline float f_sum(F v) {
  const __m256 a = _mm256_add_ps(v.a, v.b);
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}
static inline float f_highest(F v) {
  const __m256 a = _mm256_max_ps(v.a, v.b);
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}

static inline I i_zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
static inline I i_set(int32_t v) { return {_mm256_set1_epi32(v), _mm256_set1_epi32(v)}; }
static inline I i_load(const int32_t* p) {
  return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 8))};
}
static inline void i_store(int32_t* p, I v) {
  _mm256_storeu_si256((__m256i*)p, v.a);
  _mm256_storeu_si256((__m256i*)(p + 8), v.b);
}
static inline I i_add(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
static inline I i_sub(I x, I y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
static inline I i_mul(I x, I y) { return {_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b)}; }
static inline int32_t i_sum(I v) {
  int32_t lanes[8], sum = 0;
  _mm256_storeu_si256((__m256i*)lanes, _mm256_add_epi32(v.a, v.b));
  for (int32_t lane : lanes) sum += lane;
  return sum;
}
template <int N>
static inline I i_shl(I x) {
  return {_mm256_slli_epi32(x.a, N), _mm256_slli_epi32(x.b, N)};
}
static inline I i_from_u8(const uint8_t* p) {
  const __m128i v = _mm_loadu_si128((const __m128i*)p);
  return {_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8))};
}
static inline I i_from_i8(const uint8_t* p) {
  const __m128i v = _mm_loadu_si128((const __m128i*)p);
  return {_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8))};
}
static inline F f_from_int(I v) { return {_mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b)}; }
static inline I i_from_float(F v) { return {_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b)}; }
static inline F f_power_of_two(I n) {
  const __m256i bias = _mm256_set1_epi32(127);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.a, bias), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.b, bias), 23))};
}
static inline void i_store_int8(int8_t* p, I v) {
  // packs works within 128-bit halves, so the dwords come out as 0 4 1 5 and are put in order.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(v.a, v.b), 0xD8);
  _mm_storeu_si128((__m128i*)p, _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

static inline B b_load(const uint8_t* p) { return i_load((const int32_t*)p); }
static inline void b_store(uint8_t* p, B v) { i_store((int32_t*)p, v); }
static inline B b_set(uint8_t v) { return {_mm256_set1_epi8((char)v), _mm256_set1_epi8((char)v)}; }
static inline B b_and(B x, B y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
template <int N>
static inline B b_shr(B x) {
  return {_mm256_srli_epi16(x.a, N), _mm256_srli_epi16(x.b, N)};
}
template <int N>
static inline B b_shl(B x) {
  return {_mm256_slli_epi16(x.a, N), _mm256_slli_epi16(x.b, N)};
}
static inline B b_blend(B m, B x, B y) {
  return {_mm256_or_si256(_mm256_and_si256(m.a, x.a), _mm256_andnot_si256(m.a, y.a)),
          _mm256_or_si256(_mm256_and_si256(m.b, x.b), _mm256_andnot_si256(m.b, y.b))};
}
static inline B b_table(const uint8_t* p) {
  const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)p));
  return {t, t};
}
static inline B b_lookup(B t, B index) {
  return {_mm256_shuffle_epi8(t.a, index.a), _mm256_shuffle_epi8(t.b, index.b)};
}

static inline __m256i dot_half(__m256i acc, __m256i w, __m256i x) {
#ifdef __AVXVNNI__
  return _mm256_dpbusd_avx_epi32(acc, w, x);
#else
  // Pairs of products are summed in 16 bits: exact while the weight is at most 128 (128 * 127 * 2 < 2**15).
  return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
#endif
}
template <bool Wide>
static inline I i_dot(I acc, B w, int32_t x4) {
  const __m256i x = _mm256_set1_epi32(x4);
#ifndef __AVXVNNI__
  if constexpr (Wide) {  // eight-bit weights go through as two nibbles, whose pair sums cannot saturate
    const __m256i low = _mm256_set1_epi8(15), zero = _mm256_setzero_si256();
    const __m256i ha = dot_half(zero, _mm256_and_si256(_mm256_srli_epi16(w.a, 4), low), x);
    const __m256i hb = dot_half(zero, _mm256_and_si256(_mm256_srli_epi16(w.b, 4), low), x);
    acc = {_mm256_add_epi32(acc.a, _mm256_slli_epi32(ha, 4)), _mm256_add_epi32(acc.b, _mm256_slli_epi32(hb, 4))};
    w = {_mm256_and_si256(w.a, low), _mm256_and_si256(w.b, low)};
  }
#endif
  return {dot_half(acc.a, w.a, x), dot_half(acc.b, w.b, x)};
}

// To the first level: with a reader 2 KiB behind, up to 11 % faster than to the second. Not _mm_prefetch: gcc 12 takes a
// loop of nothing but prefetches for one without effect and drops it.
static inline void prefetch(const void* p) { asm volatile("prefetcht0 %0" : : "m"(*(const char*)p)); }

}  // namespace memra::MEMRA_VARIANT
