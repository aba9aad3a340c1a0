// Sixteen-lane vectors on 64-bit ARM with the dot-product instructions: four registers each. The contract is in
// vec_avx512.h. Where the processor multiplies unsigned by signed bytes (i8mm), that is used; else both are signed.
#pragma once
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace memra::MEMRA_VARIANT {

struct F {
  float32x4_t a, b, c, d;
};
struct I {
  int32x4_t a, b, c, d;
};
struct B {
  uint8x16_t a, b, c, d;
};

// fn of each quarter of its operands.
template <class R, class Fn, class... X>
static inline __attribute__((always_inline)) R each(Fn fn, const X&... x) {
  return {fn(x.a...), fn(x.b...), fn(x.c...), fn(x.d...)};
}

static inline F f_set(float v) {
  const float32x4_t q = vdupq_n_f32(v);
  return {q, q, q, q};
}
static inline F f_zero() { return f_set(0.0f); }
static inline F f_load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
static inline void f_store(float* p, F v) {
  vst1q_f32(p, v.a);
  vst1q_f32(p + 4, v.b);
  vst1q_f32(p + 8, v.c);
  vst1q_f32(p + 12, v.d);
}
static inline F f_add(F x, F y) {
  return each<F>([](float32x4_t p, float32x4_t q) { return vaddq_f32(p, q); }, x, y);
}
static inline F f_sub(F x, F y) {
  return each<F>([](float32x4_t p, float32x4_t q) { return vsubq_f32(p, q); }, x, y);
}
static inline F f_mul(F x, F y) {
  return each<F>([](float32x4_t p, float32x4_t q) { return vmulq_f32(p, q); }, x, y);
}
static inline F f_div(F x, F y) {
  return each<F>([](float32x4_t p, float32x4_t q) { return vdivq_f32(p, q); }, x, y);
}
static inline F f_fma(F x, F y, F z) {
  return each<F>([](float32x4_t p, float32x4_t q, float32x4_t r) { return vfmaq_f32(r, p, q); }, x, y, z);
}
static inline F f_fnma(F x, F y, F z) {
  return each<F>([](float32x4_t p, float32x4_t q, float32x4_t r) { return vfmsq_f32(r, p, q); }, x, y, z);
}
// Not fmax and fmin, whose answers for NaN and for zeros of both signs are others.
static inline float32x4_t larger(float32x4_t p, float32x4_t q) { return vbslq_f32(vcgtq_f32(p, q), p, q); }
static inline float32x4_t smaller(float32x4_t p, float32x4_t q) { return vbslq_f32(vcltq_f32(p, q), p, q); }
static inline F f_max(F x, F y) { return each<F>(larger, x, y); }
static inline F f_min(F x, F y) { return each<F>(smaller, x, y); }
static inline F f_abs(F x) {
  return each<F>([](float32x4_t p) { return vabsq_f32(p); }, x);
}
static inline F f_round(F x) {
  return each<F>([](float32x4_t p) { return vrndnq_f32(p); }, x);
}
static inline float32x4_t quarter_from_half(const uint16_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static inline F f_from_half(const uint16_t* p) {
  return {quarter_from_half(p), quarter_from_half(p + 4), quarter_from_half(p + 8), quarter_from_half(p + 12)};
}
static inline void f_to_half(uint16_t* p, F v) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v.a)));
  vst1_u16(p + 4, vreinterpret_u16_f16(vcvt_f16_f32(v.b)));
  vst1_u16(p + 8, vreinterpret_u16_f16(vcvt_f16_f32(v.c)));
  vst1_u16(p + 12, vreinterpret_u16_f16(vcvt_f16_f32(v.d)));
}
static inline float32x4_t quarter_from_bfloat(const uint16_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static inline F f_from_bfloat(const uint16_t* p) {
  return {quarter_from_bfloat(p), quarter_from_bfloat(p + 4), quarter_from_bfloat(p + 8), quarter_from_bfloat(p + 12)};
}
static inline F f_select(int lo, int hi, F x, F y) {
  static const int32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const int32x4_t first = vdupq_n_s32(lo), end = vdupq_n_s32(hi);
  const I lane = {vld1q_s32(lanes), vld1q_s32(lanes + 4), vld1q_s32(lanes + 8), vld1q_s32(lanes + 12)};
  return each<F>(
      [=](int32x4_t at, float32x4_t p, float32x4_t q) {
        return vbslq_f32(vandq_u32(vcgeq_s32(at, first), vcltq_s32(at, end)), p, q);
      },
      lane, x, y);
}
static inline float f_sum(F v) {
  const float32x4_t four = vaddq_f32(vaddq_f32(v.a, v.c), vaddq_f32(v.b, v.d));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
static inline float f_highest(F v) {
  const float32x4_t four = larger(larger(v.a, v.c), larger(v.b, v.d));
  const float32x4_t two = larger(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(larger(two, vextq_f32(two, two, 1)), 0);
}

static inline I i_set(int32_t v) {
  const int32x4_t q = vdupq_n_s32(v);
  return {q, q, q, q};
}
static inline I i_zero() { return i_set(0); }
static inline I i_load(const int32_t* p) {
  return {vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)};
}
static inline void i_store(int32_t* p, I v) {
  vst1q_s32(p, v.a);
  vst1q_s32(p + 4, v.b);
  vst1q_s32(p + 8, v.c);
  vst1q_s32(p + 12, v.d);
}
static inline I i_add(I x, I y) {
  return each<I>([](int32x4_t p, int32x4_t q) { return vaddq_s32(p, q); }, x, y);
}
static inline I i_sub(I x, I y) {
  return each<I>([](int32x4_t p, int32x4_t q) { return vsubq_s32(p, q); }, x, y);
}
static inline I i_mul(I x, I y) {
  return each<I>([](int32x4_t p, int32x4_t q) { return vmulq_s32(p, q); }, x, y);
}
static inline int32_t i_sum(I v) { return vaddvq_s32(vaddq_s32(vaddq_s32(v.a, v.b), vaddq_s32(v.c, v.d))); }
template <int N>
static inline I i_shl(I x) {
  return each<I>([](int32x4_t p) { return vshlq_n_s32(p, N); }, x);
}
static inline I i_from_words(int16x8_t low, int16x8_t high) {
  return {vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)};
}
static inline I i_from_u8(const uint8_t* p) {
  const uint8x16_t v = vld1q_u8(p);
  return i_from_words(vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(v))), vreinterpretq_s16_u16(vmovl_high_u8(v)));
}
static inline I i_from_i8(const uint8_t* p) {
  const int8x16_t v = vreinterpretq_s8_u8(vld1q_u8(p));
  return i_from_words(vmovl_s8(vget_low_s8(v)), vmovl_high_s8(v));
}
static inline F f_from_int(I v) {
  return each<F>([](int32x4_t p) { return vcvtq_f32_s32(p); }, v);
}
// What does not fit becomes the lowest integer, as on x86; the instruction alone would saturate.
static inline I i_from_float(F v) {
  return each<I>(
      [](float32x4_t p) {
        return vbslq_s32(vcaltq_f32(p, vdupq_n_f32(0x1p31f)), vcvtnq_s32_f32(p), vdupq_n_s32(INT32_MIN));
      },
      v);
}
static inline F f_power_of_two(I n) {
  return each<F>(
      [](int32x4_t p) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(p, vdupq_n_s32(127)), 23)); }, n);
}
static inline void i_store_int8(int8_t* p, I v) {
  const int16x8_t low = vqmovn_high_s32(vqmovn_s32(v.a), v.b), high = vqmovn_high_s32(vqmovn_s32(v.c), v.d);
  vst1q_s8(p, vqmovn_high_s16(vqmovn_s16(low), high));
}

static inline B b_load(const uint8_t* p) { return {vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}; }
static inline void b_store(uint8_t* p, B v) {
  vst1q_u8(p, v.a);
  vst1q_u8(p + 16, v.b);
  vst1q_u8(p + 32, v.c);
  vst1q_u8(p + 48, v.d);
}
static inline B b_set(uint8_t v) {
  const uint8x16_t q = vdupq_n_u8(v);
  return {q, q, q, q};
}
static inline B b_and(B x, B y) {
  return each<B>([](uint8x16_t p, uint8x16_t q) { return vandq_u8(p, q); }, x, y);
}
// Bytes are shifted one by one: what would cross to the neighbour, and is masked by every caller, stays zero.
template <int N>
static inline B b_shr(B x) {
  return each<B>([](uint8x16_t p) { return vshrq_n_u8(p, N); }, x);
}
template <int N>
static inline B b_shl(B x) {
  return each<B>([](uint8x16_t p) { return vshlq_n_u8(p, N); }, x);
}
static inline B b_blend(B m, B x, B y) {
  return each<B>([](uint8x16_t o, uint8x16_t p, uint8x16_t q) { return vbslq_u8(o, p, q); }, m, x, y);
}
static inline B b_table(const uint8_t* p) {
  const uint8x16_t q = vld1q_u8(p);
  return {q, q, q, q};
}
static inline B b_lookup(B t, B index) {
  return each<B>([](uint8x16_t p, uint8x16_t q) { return vqtbl1q_u8(p, q); }, t, index);
}

template <bool Wide>
static inline I i_dot(I acc, B w, int32_t x4) {
  const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(x4));
#if defined(__ARM_FEATURE_MATMUL_INT8)
  return each<I>([=](int32x4_t sum, uint8x16_t q) { return vusdotq_s32(sum, q, x); }, acc, w);
#else
  if constexpr (Wide) {  // w = (w - 128) + 128, and flipping the highest bit takes the 128 away
    const int32x4_t half = vdotq_s32(vdupq_n_s32(0), x, vdupq_n_s8(64)), rest = vaddq_s32(half, half);
    return each<I>(
        [=](int32x4_t sum, uint8x16_t q) {
          return vdotq_s32(vaddq_s32(sum, rest), vreinterpretq_s8_u8(veorq_u8(q, vdupq_n_u8(128))), x);
        },
        acc, w);
  }
  return each<I>([=](int32x4_t sum, uint8x16_t q) { return vdotq_s32(sum, vreinterpretq_s8_u8(q), x); }, acc, w);
#endif
}

// To the second level, as on x86, and not by the compiler's own name for it for the same reason.
static inline void prefetch(const void* p) { asm volatile("prfm pldl2keep, %0" : : "Q"(*(const char*)p)); }

}  // namespace memra::MEMRA_VARIANT
