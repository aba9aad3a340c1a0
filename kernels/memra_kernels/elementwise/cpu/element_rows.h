// Row operations that work element by element.
#pragma once
#include <cmath>

#include "functions.h"

namespace memra::MEMRA_VARIANT {

static inline void add_row(const RowOp& op, int row) {
  const float *x = op.x->row(row), *y = op.y->row(row);
  float* out = op.out->row(row);
  for (int i = 0; i < op.out->width; i += 16) {
    const F v = f_load(y + i);
    f_store(out + i, f_add(f_load(x + i), op.scale == 1.0f ? v : f_mul(v, f_set(op.scale))));
  }
}

static inline void add_vector_row(const RowOp& op, int row) {
  const float* x = op.x->row(row);
  float* out = op.out->row(row);
  for (int i = 0; i < op.out->width; i += 16) f_store(out + i, f_add(f_load(x + i), f_load(op.weight + i)));
}

static inline void gate_row(const RowOp& op, int row) {
  const float *x = op.x->row(row), *y = op.y->row(row);
  float* out = op.out->row(row);
  const int width = op.out->width;
  for (int i = 0; i < width; i += 16)
    f_store(out + i, within(width - i, gated_of(op.activation, op.limit, f_load(x + i), f_load(y + i))));
}

static inline void activate_row(const RowOp& op, int row) {
  const float* x = op.x->row(row);
  float* out = op.out->row(row);
  const int width = op.out->width;
  for (int i = 0; i < width; i += 16)
    f_store(out + i, within(width - i, activation_of(op.activation, f_load(x + i))));
}

static inline void multiply_row(const RowOp& op, int row, float factor) {
  const float* x = op.x->row(row);
  float* out = op.out->row(row);
  for (int i = 0; i < op.out->width; i += 16) f_store(out + i, f_mul(f_load(x + i), f_set(factor)));
}

// By a constant, times a weight of one element if there is one.
static inline void scale_row(const RowOp& op, int row) {
  multiply_row(op, row, op.weight ? op.scale * op.weight[0] : op.scale);
}

// Each of op.num_heads groups by the sigmoid of its element of y; several groups begin at multiples of 16.
static inline void scale_by_gate_row(const RowOp& op, int row) {
  const float *x = op.x->row(row), *gate = op.y->row(row);
  float* out = op.out->row(row);
  const int width = op.out->width / op.num_heads;
  for (int g = 0; g < op.num_heads; g++) {
    const F factor = f_sigmoid(f_set(gate[g]));
    for (int i = g * width; i < (g + 1) * width; i += 16) f_store(out + i, f_mul(f_load(x + i), factor));
  }
}

// By 1 + scale * ln(1 + floor((position + offset) / stride)); in double until the end.
static inline void scale_by_position_row(const RowOp& op, const Step& step, int row) {
  const int steps = (step.positions[row] + op.offset) / op.stride;
  multiply_row(op, row, (float)(1.0 + (double)op.scale * std::log(1.0 + (double)steps)));
}

}  // namespace memra::MEMRA_VARIANT
