// The superblocks of ggml's IQ1, IQ2 and IQ3 types taken apart: grid indices and signs become table indices.
//
// The block formats are those of ggml-common.h and ggml-quants.c (dequantize_row_iq*). A weight is
// d * (2 * scale + 1) * 2**scale_log2 * table value, so that every scale here is an odd byte.
#pragma once
#include "codes.h"

namespace memra {

// Levels of the grids, from codebooks.py: `memra_grids` copies them here once, before the first weight.
struct Grids {
  uint8_t iq2_xxs[256][8], iq2_xs[512][8], iq2_s[1024][8], iq3_xxs[256][4], iq3_s[512][4], iq1[2048][8];
};

inline Grids grids;

namespace stored {

// Negative values stand this far behind the positive ones in the tables of layouts.h.
constexpr int iq2_negative = 3, iq3_negative = 8, iq1_first = 6;

static inline uint8_t odd(int scale) { return (uint8_t)(2 * scale + 1); }

// Seven stored sign bits; the eighth makes their number even.
static inline int even_signs(uint32_t bits) {
  bits &= 127;
  return (int)bits | __builtin_parity(bits) << 7;
}

static inline void signed_levels(const uint8_t* levels, int n, int negative, int signs, uint8_t* q) {
  for (int j = 0; j < n; j++) q[j] = (uint8_t)(levels[j] + (signs >> j & 1) * negative);
}

// Two grid entries of four for eight signs.
static inline void iq3_levels(const uint8_t* first, const uint8_t* second, int signs, uint8_t* q) {
  signed_levels(first, 4, iq3_negative, signs, q);
  signed_levels(second, 4, iq3_negative, signs >> 4, q + 4);
}

// Eight of IQ1: level - 1, plus or minus an eighth; the table holds eighths.
static inline void iq1_levels(const uint8_t* levels, bool is_minus, uint8_t* q) {
  for (int j = 0; j < 8; j++) q[j] = (uint8_t)(iq1_first + 2 * levels[j] + is_minus);
}

static inline void nibble_scales(const uint8_t* p, Codes& c) {
  for (int j = 0; j < 16; j++) c.scale_byte[j] = odd(p[j / 2] >> (4 * (j % 2)) & 15);
}

static inline void decode_iq2_xxs(const uint8_t* p, Codes& c) {
  c.scale[0] = u16(p);
  for (int b = 0; b < 8; b++) {
    const uint8_t* block = p + 2 + 8 * b;
    const uint32_t signs = u32(block + 4);
    c.scale_byte[2 * b] = odd((int)(signs >> 28));
    for (int l = 0; l < 4; l++) {
      signed_levels(grids.iq2_xxs[block[l]], 8, iq2_negative, even_signs(signs >> (7 * l)), c.q + 32 * b + 8 * l);
    }
  }
}

static inline void decode_iq2_xs(const uint8_t* p, Codes& c) {
  c.scale[0] = u16(p);
  nibble_scales(p + 66, c);
  for (int l = 0; l < 32; l++) {
    const uint32_t code = u16(p + 2 + 2 * l);
    signed_levels(grids.iq2_xs[code & 511], 8, iq2_negative, even_signs(code >> 9), c.q + 8 * l);
  }
}

static inline void decode_iq2_s(const uint8_t* p, Codes& c) {
  c.scale[0] = u16(p);
  nibble_scales(p + 74, c);
  for (int l = 0; l < 32; l++) {
    const int code = p[2 + l] | (p[66 + l / 4] >> (2 * (l % 4)) & 3) << 8;
    signed_levels(grids.iq2_s[code], 8, iq2_negative, p[34 + l], c.q + 8 * l);
  }
}

static inline void decode_iq3_xxs(const uint8_t* p, Codes& c) {
  c.scale[0] = u16(p);
  for (int b = 0; b < 8; b++) {
    const uint32_t signs = u32(p + 66 + 4 * b);
    c.scale_byte[2 * b] = odd((int)(signs >> 28));
    for (int l = 0; l < 4; l++) {
      const uint8_t* code = p + 2 + 8 * b + 2 * l;
      iq3_levels(grids.iq3_xxs[code[0]], grids.iq3_xxs[code[1]], even_signs(signs >> (7 * l)), c.q + 32 * b + 8 * l);
    }
  }
}

static inline void decode_iq3_s(const uint8_t* p, Codes& c) {
  c.scale[0] = u16(p);
  for (int b = 0; b < 8; b++) c.scale_byte[2 * b] = odd(p[106 + b / 2] >> (4 * (b % 2)) & 15);
  for (int l = 0; l < 32; l++) {
    const uint8_t *code = p + 2 + 2 * l, high = p[66 + l / 4] >> (2 * (l % 4)) & 3;
    iq3_levels(grids.iq3_s[code[0] | (high & 1) << 8], grids.iq3_s[code[1] | (high >> 1) << 8], p[74 + l], c.q + 8 * l);
  }
}

static inline void decode_iq1_s(const uint8_t* p, Codes& c) {
  c.scale[0] = u16(p);
  for (int b = 0; b < 8; b++) {
    const int high = u16(p + 34 + 2 * b);
    c.scale_byte[2 * b] = odd(high >> 12 & 7);
    for (int l = 0; l < 4; l++) {
      const int code = p[2 + 4 * b + l] | (high >> (3 * l) & 7) << 8;
      iq1_levels(grids.iq1[code], high >> 15, c.q + 32 * b + 8 * l);
    }
  }
}

// The float16 scale lies in the upper nibbles of the four words that hold three-bit scales.
static inline void decode_iq1_m(const uint8_t* p, Codes& c) {
  for (int j = 0; j < 16; j++) {
    const int word = u16(p + 48 + j / 4 * 2);
    c.scale_byte[j] = odd(word >> (3 * (j % 4)) & 7);
    if (j % 4 == 0) c.scale[0] |= (uint16_t)(word >> 12 << j);
  }
  for (int l = 0; l < 32; l++) {
    const int high = p[32 + l / 2] >> (4 * (l % 2)) & 15;
    iq1_levels(grids.iq1[p[l] | (high & 7) << 8], high >> 3, c.q + 8 * l);
  }
}

static inline void decode_codebook(int ggml_type, const uint8_t* p, Codes& c) {
  switch (ggml_type) {
    case iq1_s: return decode_iq1_s(p, c);
    case iq1_m: return decode_iq1_m(p, c);
    case iq2_xxs: return decode_iq2_xxs(p, c);
    case iq2_xs: return decode_iq2_xs(p, c);
    case iq2_s: return decode_iq2_s(p, c);
    case iq3_xxs: return decode_iq3_xxs(p, c);
    default: return decode_iq3_s(p, c);
  }
}

}  // namespace stored
}  // namespace memra
