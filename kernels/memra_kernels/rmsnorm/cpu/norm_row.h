// Root-mean-square norm of one row, group by group.
#pragma once
#include <cmath>

#include "../../runtime/types.h"
#include "../../runtime/vec.h"

namespace memra::MEMRA_VARIANT {

// Squares are summed in two vectors that take turns, so that additions of one do not wait for the other. Lanes beyond
// the width of a row are zero (rows are padded), and groups within a row are multiples of 16.
static inline void norm_group(const float* x, const float* weight, float* out, int width, float eps, float scale) {
  F even = f_zero(), odd = f_zero();
  for (int i = 0; i < width; i += 32) {
    const F v = f_load(x + i);
    even = f_fma(v, v, even);
    if (i + 16 < width) {
      const F u = f_load(x + i + 16);
      odd = f_fma(u, u, odd);
    }
  }
  const F inverse = f_set(1.0f / std::sqrt(f_sum(f_add(even, odd)) / (float)width + eps));
  for (int i = 0; i < width; i += 16) {
    F v = f_mul(f_load(x + i), inverse);
    if (weight) v = f_mul(v, f_load(weight + i));
    f_store(out + i, scale == 1.0f ? v : f_mul(v, f_set(scale)));
  }
}

static void norm_row(const RowOp& op, int row) {
  const float* x = op.x->row(row);
  float* out = op.out->row(row);
  for (int g = 0; g < op.x->width; g += op.group_width)
    norm_group(x + g, op.weight, out + g, op.group_width, op.eps, op.scale);
}

}  // namespace memra::MEMRA_VARIANT
