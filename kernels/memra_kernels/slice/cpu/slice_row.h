// Columns taken out of groups of one row: op.num_heads groups of op.stride columns, op.head_dim of each from op.offset on.
#pragma once
#include <cstring>

#include "../../runtime/types.h"

namespace memra::MEMRA_VARIANT {

static void slice_row(const RowOp& op, int row) {
  const float* x = op.x->row(row) + op.offset;
  float* out = op.out->row(row);
  for (int g = 0; g < op.num_heads; g++)
    memcpy(out + (size_t)g * op.head_dim, x + (size_t)g * op.stride, (size_t)op.head_dim * sizeof(float));
}

}  // namespace memra::MEMRA_VARIANT
