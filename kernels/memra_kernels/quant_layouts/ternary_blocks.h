// Blocks of 32 of ggml's one- and two-bit types taken apart, in the place of a longer stored block. Quants are 0 to 3
// and stand for q - 1; every block repeats the float16 scale of its stored block.
//
// The block formats are those of ggml-common.h and ggml-quants.c (dequantize_row_tq1_0, _tq2_0, _q1_0).
#pragma once
#include "codes.h"

namespace memra::stored {

// Five digits to base three are a fraction in a byte: multiplying brings the wanted one on top.
static inline uint8_t base3_digit(uint8_t byte, int place) {
  static constexpr uint8_t powers[5] = {1, 3, 9, 27, 81};
  return (uint8_t)((uint8_t)(byte * powers[place]) * 3 >> 8);
}

// Block `b` of 8: five of 32 bytes, five halves of 16 bytes, and 16 weights of four bytes.
static inline void decode_tq1_0(const uint8_t* p, int b, uint8_t* q) {
  for (int j = 0; j < 32; j++) {
    const int i = 32 * b + j;
    if (i < 160) q[j] = base3_digit(p[j], b);
    else if (i < 240) q[j] = base3_digit(p[32 + i % 16], i / 16 - 10);
    else q[j] = base3_digit(p[48 + i % 4], i / 4 - 60);
  }
}

static inline void decode_tq2_0(const uint8_t* p, int b, uint8_t* q) {
  for (int j = 0; j < 32; j++) q[j] = p[b / 4 * 32 + j] >> (2 * (b % 4)) & 3;
}

static inline void decode_q1_0(const uint8_t* p, int b, uint8_t* q) {
  for (int j = 0; j < 32; j++) q[j] = (uint8_t)(2 * (p[4 * b + j / 8] >> (j % 8) & 1));
}

}  // namespace memra::stored
