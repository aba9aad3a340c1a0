// GGML's stored blocks taken apart: integer quants and the scales as they stand in the file, nothing computed.
//
// The block formats are those of ggml-common.h and ggml-quants.c (dequantize_row_*). GGML type numbers: ggml.h.
#pragma once
#include "../runtime/half.h"
#include "codebook_blocks.h"
#include "layouts.h"
#include "ternary_blocks.h"

namespace memra {

struct StoredType {
  int ggml_type, elements, bytes;
  Layout layout;
};

inline constexpr StoredType stored_types[] = {
    {2, 32, 18, Layout::Q4_0},          {3, 32, 20, Layout::Q4_1},
    {6, 32, 22, Layout::Q5_0},          {7, 32, 24, Layout::Q5_1},
    {8, 32, 34, Layout::Q8_0},          {10, 256, 84, Layout::Q2_K},
    {11, 256, 110, Layout::Q3_K},       {12, 256, 144, Layout::Q4_K},
    {13, 256, 176, Layout::Q5_K},       {14, 256, 210, Layout::Q6_K},
    {20, 32, 18, Layout::IQ4_NL},       {23, 256, 136, Layout::IQ4_XS},
    {39, 32, 17, Layout::MXFP4},        {1, 1, 2, Layout::F16},
    {30, 1, 2, Layout::BF16},           {0, 1, 4, Layout::F32},
    {iq2_xxs, 256, 66, Layout::Grid32}, {iq2_xs, 256, 74, Layout::Grid16},
    {iq2_s, 256, 82, Layout::Grid16},   {iq3_xxs, 256, 98, Layout::IQ3_XXS},
    {iq3_s, 256, 110, Layout::IQ3_S},   {iq1_s, 256, 50, Layout::Grid32},
    {iq1_m, 256, 56, Layout::Grid16},   {tq1_0, 256, 54, Layout::Ternary},
    {tq2_0, 256, 66, Layout::Ternary},  {q1_0, 128, 18, Layout::Ternary},
    {40, 64, 36, Layout::NVFP4},
};

static inline const StoredType* find_stored_type(int ggml_type) {
  for (const StoredType& type : stored_types)
    if (type.ggml_type == ggml_type) return &type;
  return nullptr;
}

namespace stored {

static inline float float_value(Layout layout, const uint8_t* p) {
  if (layout == Layout::F16) return half_to_float(u16(p));
  if (layout == Layout::BF16) return bits_to_float((uint32_t)u16(p) << 16);
  float v;
  memcpy(&v, p, 4);
  return v;
}

static inline void nibbles32(const uint8_t* p, uint8_t* q) {
  for (int j = 0; j < 16; j++) {
    q[j] = p[j] & 15;
    q[j + 16] = p[j] >> 4;
  }
}

static inline void fifth_bits32(const uint8_t* p, uint8_t* q) {
  uint32_t bits;
  memcpy(&bits, p, 4);
  for (int j = 0; j < 32; j++) q[j] |= (uint8_t)((bits >> j & 1) << 4);
}

// Six-bit scales and minimums of Q4_K and Q5_K, packed in twelve bytes.
static inline void scales_k4(const uint8_t* p, Codes& c) {
  for (int j = 0; j < 8; j++) {
    c.scale_byte[2 * j] = j < 4 ? p[j] & 63 : (uint8_t)((p[j + 4] & 15) | (p[j - 4] >> 6) << 4);
    c.min_byte[2 * j] = j < 4 ? p[j + 4] & 63 : (uint8_t)((p[j + 4] >> 4) | (p[j] >> 6) << 4);
  }
}

static inline void decode_q4_k(const uint8_t* p, Codes& c, bool fifth) {
  c.scale[0] = u16(p);
  c.min[0] = u16(p + 2);
  scales_k4(p + 4, c);
  const uint8_t *high = p + 16, *q = p + (fifth ? 48 : 16);
  for (int i = 0; i < 256; i++) {
    const int pair = i / 64, in = i % 32, upper = i / 32 % 2;
    c.q[i] = upper ? q[pair * 32 + in] >> 4 : q[pair * 32 + in] & 15;
    if (fifth) c.q[i] |= (uint8_t)((high[in] >> (i / 32) & 1) << 4);
  }
}

static inline void decode_q6_k(const uint8_t* p, Codes& c) {
  memcpy(c.scale_byte, p + 192, 16);
  c.scale[0] = u16(p + 208);
  for (int i = 0; i < 256; i++) {
    const int half = i / 128, group = i % 128 / 32, in = i % 32;
    const uint8_t low = p[half * 64 + (group & 1) * 32 + in], high = p[128 + half * 32 + in];
    c.q[i] = (uint8_t)((group < 2 ? low & 15 : low >> 4) | (high >> (2 * group) & 3) << 4);
  }
}

static inline void decode_q2_k(const uint8_t* p, Codes& c) {
  c.scale[0] = u16(p + 80);
  c.min[0] = u16(p + 82);
  for (int j = 0; j < 16; j++) {
    c.scale_byte[j] = p[j] & 15;
    c.min_byte[j] = p[j] >> 4;
  }
  for (int i = 0; i < 256; i++) c.q[i] = p[16 + i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3;
}

static inline void decode_q3_k(const uint8_t* p, Codes& c) {
  const uint8_t *high = p, *q = p + 32, *packed = p + 96;
  c.scale[0] = u16(p + 108);
  for (int j = 0; j < 16; j++) {
    const int low = j < 8 ? packed[j] & 15 : packed[j - 8] >> 4, top = packed[8 + j % 4] >> (2 * (j / 4)) & 3;
    c.scale_byte[j] = (uint8_t)((low | top << 4) - 32);
  }
  for (int i = 0; i < 256; i++) {
    c.q[i] = (uint8_t)((q[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3) | (high[i % 32] >> (i / 32) & 1) << 2);
  }
}

static inline void decode_iq4_xs(const uint8_t* p, Codes& c) {
  c.scale[0] = u16(p);
  const uint16_t high = u16(p + 2);
  for (int b = 0; b < 8; b++) {
    const int low = p[4 + b / 2] >> (4 * (b % 2)) & 15;
    c.scale_byte[2 * b] = (uint8_t)((low | (high >> (2 * b) & 3) << 4) - 32);
    nibbles32(p + 8 + 16 * b, c.q + 32 * b);
  }
}

// The e8m0 scale halved, as ggml does (its table holds doubled values): 2 ** (e - 128), exact in bfloat16.
static inline uint16_t mxfp4_scale(uint8_t e) { return e < 2 ? (uint16_t)(0x20 << e) : (uint16_t)((e - 1) << 7); }

static inline void decode_mxfp4(const uint8_t* p, Codes& c, int b) {
  nibbles32(p + 1, c.q + 32 * b);
  // Quantisers give a block of zeros the smallest scale, whose products are subnormal, which is slow. Zero is the same.
  bool is_zero = true;
  for (int j = 1; j < 17; j++) is_zero = is_zero && !(p[j] & 0x77);
  c.scale[b] = is_zero ? 0 : mxfp4_scale(p[0]);
}

// An unsigned e4m3 scale halved, as ggml does (its table holds doubled values), in float16, where it is exact:
// exponents 7 to 22 of float16 are those of -8 to 7. Zero is also what ggml makes of the code for NaN.
static inline uint16_t nvfp4_scale(uint8_t e4m3) {
  const int exponent = e4m3 >> 3 & 15, fraction = e4m3 & 7;
  if (e4m3 == 0x7f) return 0;
  if (exponent) return (uint16_t)((exponent + 7) << 10 | fraction << 7);
  return float_to_half((float)fraction * 0x1p-10f);
}

// Half of a block of 64: two times 16 weights, the low nibbles of eight bytes before the high ones.
static inline void decode_nvfp4(const uint8_t* p, int half, Codes& c, int b) {
  for (int s = 0; s < 2; s++) {
    const uint8_t* codes = p + 4 + 16 * half + 8 * s;
    c.scale[2 * b + s] = nvfp4_scale(p[2 * half + s]);
    for (int j = 0; j < 16; j++) c.q[32 * b + 16 * s + j] = j < 8 ? codes[j] & 15 : codes[j - 8] >> 4;
  }
}

static inline void decode_ternary(const StoredType& type, const uint8_t* p, int part, Codes& c, int b) {
  uint8_t* q = c.q + 32 * b;
  c.scale[b] = u16(type.ggml_type == q1_0 ? p : p + type.bytes - 2);
  if (type.ggml_type == q1_0) decode_q1_0(p + 2, part, q);
  else if (type.ggml_type == tq1_0) decode_tq1_0(p, part, q);
  else decode_tq2_0(p, part, q);
}

// 32 weights: block `part` of a stored block; `b` is their place among the codes.
static inline void decode32(const StoredType& type, const uint8_t* p, int part, Codes& c, int b) {
  uint8_t* q = c.q + 32 * b;
  if (type.layout == Layout::MXFP4) return decode_mxfp4(p, c, b);
  if (type.layout == Layout::NVFP4) return decode_nvfp4(p, part, c, b);
  if (type.layout == Layout::Ternary) return decode_ternary(type, p, part, c, b);
  c.scale[b] = u16(p);
  switch (type.layout) {
    case Layout::Q4_1: c.min[b] = u16(p + 2); return nibbles32(p + 4, q);
    case Layout::Q5_0: nibbles32(p + 6, q); return fifth_bits32(p + 2, q);
    case Layout::Q5_1:
      c.min[b] = u16(p + 2);
      nibbles32(p + 8, q);
      return fifth_bits32(p + 4, q);
    case Layout::Q8_0:
      for (int j = 0; j < 32; j++) q[j] = (uint8_t)(p[2 + j] + 128);
      return;
    default:  // Q4_0, IQ4_NL
      return nibbles32(p + 2, q);
  }
}

static inline void decode256(const StoredType& type, const uint8_t* p, Codes& c) {
  switch (type.layout) {
    case Layout::Q4_K: return decode_q4_k(p, c, false);
    case Layout::Q5_K: return decode_q4_k(p, c, true);
    case Layout::Q6_K: return decode_q6_k(p, c);
    case Layout::Q2_K: return decode_q2_k(p, c);
    case Layout::Q3_K: return decode_q3_k(p, c);
    case Layout::IQ4_XS: return decode_iq4_xs(p, c);
    default: return decode_codebook(type.ggml_type, p, c);
  }
}

}  // namespace stored

// Record `r` of a stored row of `cols` elements; what lies beyond the row comes out as zeros with zero scales.
static inline void decode_record(const StoredType& type, const uint8_t* row, int cols, int r, Codes& c) {
  memset(&c, 0, sizeof c);
  const int first = r * record_blocks(type.layout) * 32;
  if (record_blocks(type.layout) == 8) return stored::decode256(type, row + (size_t)(first / 256) * type.bytes, c);
  for (int b = 0; b < record_blocks(type.layout) && first + b * 32 < cols; b++) {
    const int at = first + b * 32;
    stored::decode32(type, row + (size_t)(at / type.elements) * type.bytes, at % type.elements / 32, c, b);
  }
}

// Whether every scale of the record is a finite number.
static inline bool scales_are_finite(Layout layout, const Codes& c) {
  const int n = record_blocks(layout) == 8 ? 1 : record_blocks(layout);  // NVFP4 can say nothing else
  for (int b = 0; b < n; b++) {
    if (layout == Layout::MXFP4 ? (c.scale[b] & 0x7f80) == 0x7f80 : !half_is_finite(c.scale[b])) return false;
    if (!half_is_finite(c.min[b])) return false;
  }
  return true;
}

// Weight i of the record as float32: the same operations in the same order as gguf.quants.dequantize.
static inline float code_value(Layout layout, const Codes& c, int i) {
  const LayoutTraits t = traits(layout);
  const int block = i / 32, entry = is_halved(t.scale) ? i / 16 : 2 * block;
  float q = (float)((t.table ? t.table[c.q[i]] : c.q[i]) - (t.offset_log2 < 0 ? 0 : 1 << t.offset_log2));
  const uint16_t bits = c.scale[is_k(t.scale) ? 0 : t.scale == Scale::Half16 ? entry : block];
  float scale = t.scale == Scale::Bfloat32 ? bits_to_float((uint32_t)bits << 16) : half_to_float(bits);
  if (t.scale == Scale::KByte32 || t.scale == Scale::KByte16) scale *= (float)c.scale_byte[entry];
  if (t.scale == Scale::KSigned32 || t.scale == Scale::KSigned16) scale *= (float)(int8_t)c.scale_byte[entry];
  q *= scale * scale_factor(layout);
  if (t.min == Min::Half32) return q + half_to_float(c.min[block]);
  if (t.min != Min::None) return q - half_to_float(c.min[0]) * (float)c.min_byte[entry];
  return q;
}

}  // namespace memra
