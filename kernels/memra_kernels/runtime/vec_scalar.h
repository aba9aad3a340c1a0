// Sixteen-lane vectors in plain C++: the oracle of the other variants. The contract is in vec_avx512.h.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "half.h"

namespace memra::MEMRA_VARIANT {

struct F {
  float v[16];
};
struct I {
  int32_t v[16];
};
struct B {
  uint8_t v[64];
};

template <class T, class Fn>
static inline T each(Fn fn) {
  T r;
  for (int i = 0; i < 16; i++) r.v[i] = fn(i);
  return r;
}

static inline F f_zero() { return F{}; }
static inline F f_set(float v) {
  return each<F>([=](int) { return v; });
}
static inline F f_load(const float* p) {
  return each<F>([=](int i) { return p[i]; });
}
static inline void f_store(float* p, F v) { memcpy(p, v.v, sizeof v.v); }
static inline F f_add(F a, F b) {
  return each<F>([&](int i) { return a.v[i] + b.v[i]; });
}
static inline F f_sub(F a, F b) {
  return each<F>([&](int i) { return a.v[i] - b.v[i]; });
}
static inline F f_mul(F a, F b) {
  return each<F>([&](int i) { return a.v[i] * b.v[i]; });
}
static inline F f_div(F a, F b) {
  return each<F>([&](int i) { return a.v[i] / b.v[i]; });
}
static inline F f_fma(F a, F b, F c) {
  return each<F>([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
static inline F f_fnma(F a, F b, F c) {
  return each<F>([&](int i) { return std::fma(-a.v[i], b.v[i], c.v[i]); });
}
// As maxps and minps: the second operand where either is NaN.
static inline F f_max(F a, F b) {
  return each<F>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
static inline F f_min(F a, F b) {
  return each<F>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
static inline F f_abs(F a) {
  return each<F>([&](int i) { return std::fabs(a.v[i]); });
}
static inline F f_round(F a) {
  return each<F>([&](int i) { return std::nearbyint(a.v[i]); });
}
static inline F f_from_half(const uint16_t* p) {
  return each<F>([=](int i) { return half_to_float(p[i]); });
}
static inline void f_to_half(uint16_t* p, F v) {
  for (int i = 0; i < 16; i++) p[i] = float_to_half(v.v[i]);
}
static inline F f_from_bfloat(const uint16_t* p) {
  return each<F>([=](int i) { return bits_to_float((uint32_t)p[i] << 16); });
}
static inline F f_select(int lo, int hi, F a, F b) {
  return each<F>([&](int i) { return i >= lo && i < hi ? a.v[i] : b.v[i]; });
}
static inline float f_sum(F v) {
  for (int n = 8; n; n /= 2)
    for (int i = 0; i < n; i++) v.v[i] += v.v[i + n];
  return v.v[0];
}
static inline float f_highest(F v) {
  for (int n = 8; n; n /= 2)
    for (int i = 0; i < n; i++) v.v[i] = v.v[i] > v.v[i + n] ? v.v[i] : v.v[i + n];
  return v.v[0];
}

static inline I i_zero() { return I{}; }
static inline I i_set(int32_t v) {
  return each<I>([=](int) { return v; });
}
static inline I i_load(const int32_t* p) {
  return each<I>([=](int i) { return p[i]; });
}
static inline void i_store(int32_t* p, I v) { memcpy(p, v.v, sizeof v.v); }
static inline I i_add(I a, I b) {
  return each<I>([&](int i) { return a.v[i] + b.v[i]; });
}
static inline I i_sub(I a, I b) {
  return each<I>([&](int i) { return a.v[i] - b.v[i]; });
}
static inline I i_mul(I a, I b) {
  return each<I>([&](int i) { return a.v[i] * b.v[i]; });
}
static inline int32_t i_sum(I v) {
  int32_t sum = 0;
  for (int32_t lane : v.v) sum += lane;
  return sum;
}
template <int N>
static inline I i_shl(I a) {
  return each<I>([&](int i) { return a.v[i] * (1 << N); });
}
static inline I i_from_u8(const uint8_t* p) {
  return each<I>([=](int i) { return (int32_t)p[i]; });
}
static inline I i_from_i8(const uint8_t* p) {
  return each<I>([=](int i) { return (int32_t)(int8_t)p[i]; });
}
static inline F f_from_int(I v) {
  return each<F>([&](int i) { return (float)v.v[i]; });
}
static inline I i_from_float(F v) {
  // cvtps2dq answers INT_MIN for what does not fit.
  return each<I>(
      [&](int i) { return std::fabs(v.v[i]) < 2147483648.0f ? (int32_t)std::nearbyint(v.v[i]) : INT32_MIN; });
}
static inline F f_power_of_two(I n) {
  return each<F>([&](int i) { return bits_to_float((uint32_t)(n.v[i] + 127) << 23); });
}
static inline void i_store_int8(int8_t* p, I v) {
  for (int i = 0; i < 16; i++) p[i] = (int8_t)(v.v[i] < -128 ? -128 : v.v[i] > 127 ? 127 : v.v[i]);
}

static inline B b_load(const uint8_t* p) {
  B r;
  memcpy(r.v, p, 64);
  return r;
}
static inline void b_store(uint8_t* p, B v) { memcpy(p, v.v, 64); }
static inline B b_set(uint8_t v) {
  B r;
  memset(r.v, v, 64);
  return r;
}
static inline B b_and(B a, B b) {
  for (int i = 0; i < 64; i++) a.v[i] &= b.v[i];
  return a;
}
// The bits that a 16-bit shift carries over from the neighbour are masked away by every caller; here they stay zero.
template <int N>
static inline B b_shr(B a) {
  for (int i = 0; i < 64; i++) a.v[i] = (uint8_t)(a.v[i] >> N);
  return a;
}
template <int N>
static inline B b_shl(B a) {
  for (int i = 0; i < 64; i++) a.v[i] = (uint8_t)(a.v[i] << N);
  return a;
}
static inline B b_blend(B m, B a, B b) {
  for (int i = 0; i < 64; i++) a.v[i] = (uint8_t)((a.v[i] & m.v[i]) | (b.v[i] & ~m.v[i]));
  return a;
}
static inline B b_table(const uint8_t* p) {
  B r;
  for (int i = 0; i < 64; i++) r.v[i] = p[i % 16];
  return r;
}
static inline B b_lookup(B table, B index) {
  for (int i = 0; i < 64; i++) index.v[i] = table.v[index.v[i] & 15];
  return index;
}
template <bool Wide>
static inline I i_dot(I acc, B w, int32_t x4) {
  int8_t x[4];
  memcpy(x, &x4, 4);
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 4; j++) acc.v[i] += (int32_t)w.v[4 * i + j] * x[j];
  return acc;
}

static inline void prefetch(const void*) {}

}  // namespace memra::MEMRA_VARIANT
