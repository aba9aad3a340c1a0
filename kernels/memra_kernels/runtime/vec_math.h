// exp, tanh, silu and gelu on sixteen lanes, the same bits on every variant.
#pragma once
#include "vec.h"

namespace memra::MEMRA_VARIANT {

// exp(x), relative error about 1e-7, by x = n ln 2 + r and the Taylor series to r**7 on |r| <= ln 2 / 2, where the
// remainder r**8 / 8! is below 6e-9. Below -87 the answer stays at exp(-87), above 88 at exp(88): no infinities.
static inline F f_exp(F x) {
  x = f_min(f_max(x, f_set(-87.0f)), f_set(88.0f));
  const F n = f_round(f_mul(x, f_set(1.44269504f)));  // 1 / ln 2
  // ln 2 in two parts, the first with zeros at its end, so that n * part is exact (Cody and Waite).
  F r = f_fnma(n, f_set(0x1.62e400p-1f), x);
  r = f_fnma(n, f_set(0x1.7f7d1cp-20f), r);
  F p = f_set(1.0f / 5040);
  p = f_fma(p, r, f_set(1.0f / 720));
  p = f_fma(p, r, f_set(1.0f / 120));
  p = f_fma(p, r, f_set(1.0f / 24));
  p = f_fma(p, r, f_set(1.0f / 6));
  p = f_fma(p, r, f_set(0.5f));
  p = f_fma(p, r, f_set(1.0f));
  p = f_fma(p, r, f_set(1.0f));
  return f_mul(p, f_power_of_two(i_from_float(n)));
}

// tanh(x) = 1 - 2 / (exp(2x) + 1); absolute error about 1e-7.
static inline F f_tanh(F x) { return f_sub(f_set(1.0f), f_div(f_set(2.0f), f_add(f_exp(f_add(x, x)), f_set(1.0f)))); }

static inline F f_silu(F x) { return f_div(x, f_add(f_set(1.0f), f_exp(f_sub(f_zero(), x)))); }

static inline F f_sigmoid(F x) { return f_div(f_set(1.0f), f_add(f_set(1.0f), f_exp(f_sub(f_zero(), x)))); }

// x * (1 + erf(x / sqrt 2)) / 2 with erf by Abramowitz and Stegun 7.1.26, absolute error of erf below 1.5e-7. The sign
// moves out: x * erf(x / sqrt 2) is even.
static inline F f_gelu(F x) {
  const F magnitude = f_abs(x), z = f_mul(magnitude, f_set(0.70710678f));
  const F t = f_div(f_set(1.0f), f_fma(z, f_set(0.3275911f), f_set(1.0f)));
  F p = f_set(1.061405429f);
  p = f_fma(p, t, f_set(-1.453152027f));
  p = f_fma(p, t, f_set(1.421413741f));
  p = f_fma(p, t, f_set(-0.284496736f));
  p = f_fma(p, t, f_set(0.254829592f));
  const F erf = f_fnma(f_mul(p, t), f_exp(f_sub(f_zero(), f_mul(z, z))), f_set(1.0f));
  return f_mul(f_set(0.5f), f_fma(magnitude, erf, x));
}

// The tanh form of GELU (Hendrycks and Gimpel 2016), constants sqrt(2 / pi) and 0.044715.
static inline F f_gelu_tanh(F x) {
  const F inner = f_mul(f_set(0.79788456f), f_fma(f_mul(f_mul(x, x), x), f_set(0.044715f), x));
  return f_mul(f_mul(f_set(0.5f), x), f_add(f_set(1.0f), f_tanh(inner)));
}

}  // namespace memra::MEMRA_VARIANT
