// 32 float32 activations to int8 with one scale and the sums that offset weights and minimums need.
#pragma once
#include "types.h"
#include "vec.h"

namespace memra::MEMRA_VARIANT {

static inline QuantBlock* quant_blocks(uint8_t* row, int width) { return (QuantBlock*)(row + padded_width(width)); }

// Rounds to nearest even. A block whose largest magnitude is below 1e-30 counts as zero: its reciprocal could overflow.
static inline void quantise32(uint8_t* row, int width, int block, F low, F high) {
  const float largest = f_highest(f_max(f_abs(low), f_abs(high)));
  const bool is_zero = largest < 1e-30f;
  const float scale = is_zero ? 0.0f : largest / 127.0f, inverse = is_zero ? 0.0f : 127.0f / largest;
  const I a = i_from_float(f_mul(low, f_set(inverse))), b = i_from_float(f_mul(high, f_set(inverse)));
  int8_t* q = (int8_t*)row + (size_t)block * 32;
  i_store_int8(q, a);
  i_store_int8(q + 16, b);
  const int32_t sum_low = i_sum(a), sum_high = i_sum(b);
  const int32_t sum = sum_low + sum_high;
  quant_blocks(row, width)[block] = {scale, scale * (float)sum, -sum, -sum_low, -sum_high};
}

// A whole row whose floats are padded with zeros to a multiple of 32.
static inline void quantise_row(uint8_t* row, int width, const float* x) {
  for (int block = 0; block * 32 < width; block++) {
    quantise32(row, width, block, f_load(x + block * 32), f_load(x + block * 32 + 16));
  }
}

}  // namespace memra::MEMRA_VARIANT
