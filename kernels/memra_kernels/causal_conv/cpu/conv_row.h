// Causal depthwise convolution of one row, over the rows before it and the inputs that the sequence has left behind.
#pragma once
#include "../../elementwise/cpu/functions.h"

namespace memra::MEMRA_VARIANT {

// Input `back` tokens before `row`; null where the sequence had not begun.
static inline const float* conv_input(const ConvOp& op, const Step& step, const SequenceRun& run, int row, int back) {
  const int at = row - run.first - back;  // counted from the run's first row
  if (at >= 0) return op.x->row(run.first + at);
  const float* state = step.state(run.state_in, op.state_offset);
  return state ? state + (size_t)(op.taps - 1 + at) * op.x->width : nullptr;
}

// One chain of fused multiply-adds per channel, from the oldest token to the newest. The run's last row also leaves the
// last inputs behind for the next step; nobody reads them in this one.
static void conv_row(const ConvOp& op, const Step& step, int row) {
  const SequenceRun& run = step.runs[step.sequences[row]];
  const float* inputs[max_taps];
  for (int j = 0; j < op.taps; j++) inputs[j] = conv_input(op, step, run, row, op.taps - 1 - j);
  const int width = op.x->width;
  float* out = op.out->row(row);
  for (int c = 0; c < width; c += 16) {
    F sum = f_zero();
    for (int j = 0; j < op.taps; j++) {
      if (inputs[j]) sum = f_fma(f_load(inputs[j] + c), f_load(op.weight + (size_t)j * op.weight_stride + c), sum);
    }
    if (op.bias) sum = f_add(sum, f_load(op.bias + c));
    if (op.has_activation) sum = activation_of(op.activation, sum);
    f_store(out + c, within(width - c, sum));
  }
  if (row != run.first + run.count - 1) return;
  float* next = step.state_out(run, op.state_offset);
  for (int j = 1; j < op.taps; j++) {
    float* kept = next + (size_t)(j - 1) * width;
    if (inputs[j]) memcpy(kept, inputs[j], (size_t)width * sizeof(float));
    else memset(kept, 0, (size_t)width * sizeof(float));
  }
}

}  // namespace memra::MEMRA_VARIANT
