// Rotary position embedding of one row.
#pragma once
#include <cmath>

#include "../../runtime/types.h"

namespace memra::MEMRA_VARIANT {

// Cosines, then sines, of position * frequency, times the magnitude; in double until the end, so that long contexts keep
// their angles.
static void angles_row(const RowOp& op, const Step& step, int row) {
  float* out = op.out->row(row);
  const double position = step.positions[row];
  for (int i = 0; i < op.half_dims; i++) {
    out[i] = (float)(std::cos(position * op.frequencies[i]) * op.scale);
    out[op.half_dims + i] = (float)(std::sin(position * op.frequencies[i]) * op.scale);
  }
}

// Plain products and sums, element by element: the compiler may use any vectors without changing a bit.
static void rope_row(const RowOp& op, int row) {
  const float* __restrict cosine = op.y->row(row);
  const float* __restrict sine = cosine + op.half_dims;
  const int step = op.interleaved ? 2 : 1, partner = op.interleaved ? 1 : op.half_dims;
  for (int h = 0; h < op.num_heads; h++) {
    float* __restrict x = op.x->row(row) + (size_t)h * op.head_dim + op.offset;
    for (int i = 0; i < op.half_dims; i++) {
      const float a = x[i * step], b = x[i * step + partner];
      x[i * step] = a * cosine[i] - b * sine[i];
      x[i * step + partner] = a * sine[i] + b * cosine[i];
    }
  }
}

}  // namespace memra::MEMRA_VARIANT
