// Layer norm of one row.
#pragma once
#include <cmath>

#include "../../elementwise/cpu/functions.h"

namespace memra::MEMRA_VARIANT {

// Two passes: the mean, then the squares of what is left; sums run over sixteen lanes, folded by halves. Lanes beyond the
// width count as nothing.
static void layer_norm_row(const RowOp& op, int row) {
  const float* x = op.x->row(row);
  float* out = op.out->row(row);
  const int width = op.x->width;
  F sum = f_zero(), squares = f_zero();
  for (int i = 0; i < width; i += 16) sum = f_add(sum, f_load(x + i));
  const F mean = f_set(f_sum(sum) / (float)width);
  for (int i = 0; i < width; i += 16) {
    const F centred = within(width - i, f_sub(f_load(x + i), mean));
    squares = f_fma(centred, centred, squares);
  }
  const F inverse = f_set(1.0f / std::sqrt(f_sum(squares) / (float)width + op.eps));
  for (int i = 0; i < width; i += 16) {
    F v = f_mul(f_mul(f_sub(f_load(x + i), mean), inverse), f_load(op.weight + i));
    if (op.bias) v = f_add(v, f_load(op.bias + i));
    f_store(out + i, within(width - i, v));
  }
}

}  // namespace memra::MEMRA_VARIANT
