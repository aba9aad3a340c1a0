// IEEE half precision without hardware: exact both ways, to nearest with ties to even. Subnormals are kept.
#pragma once
#include <cstdint>
#include <cstring>

namespace memra {

static inline float bits_to_float(uint32_t bits) {
  float v;
  memcpy(&v, &bits, 4);
  return v;
}

static inline uint32_t float_to_bits(float v) {
  uint32_t bits;
  memcpy(&bits, &v, 4);
  return bits;
}

static inline float half_to_float(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ff;
  if (exponent == 31) return bits_to_float(sign | 0x7f800000 | fraction << 13 | (fraction ? 0x400000 : 0));
  if (exponent) return bits_to_float(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = (float)fraction * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

static inline uint16_t float_to_half(float v) {
  const uint32_t bits = float_to_bits(v), magnitude = bits & 0x7fffffff;
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  if (magnitude >= 0x7f800000)  // infinity, or NaN made quiet with its leading payload
    return (uint16_t)(sign | 0x7c00 | (magnitude > 0x7f800000 ? 0x200 | (magnitude >> 13 & 0x3ff) : 0));
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00);  // rounds past the largest half, 65504
  if (magnitude < 0x38800000) {                                   // subnormal: units of 2**-24, rounded by the addition
    return (uint16_t)(sign | (float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3f000000));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

static inline bool half_is_finite(uint16_t h) { return (h & 0x7c00) != 0x7c00; }

}  // namespace memra
