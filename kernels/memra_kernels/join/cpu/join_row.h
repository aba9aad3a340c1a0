// Groups of two rows put side by side: op.num_heads times op.head_dim columns of x, then op.stride columns of y, whose next
// group begins op.offset columns further; 0 gives every group the same columns.
#pragma once
#include <cstring>

#include "../../runtime/types.h"

namespace memra::MEMRA_VARIANT {

static void join_row(const RowOp& op, int row) {
  const float *x = op.x->row(row), *y = op.y->row(row);
  float* out = op.out->row(row);
  for (int g = 0; g < op.num_heads; g++, out += op.head_dim + op.stride) {
    memcpy(out, x + (size_t)g * op.head_dim, (size_t)op.head_dim * sizeof(float));
    memcpy(out + op.head_dim, y + (size_t)g * op.offset, (size_t)op.stride * sizeof(float));
  }
}

}  // namespace memra::MEMRA_VARIANT
