// The gated delta rule of one value head over the consecutive rows of one sequence: the plain recurrence, token by token,
// in decode and in prefill alike, so that both give the same bits. The head's state stays in the near cache.
#pragma once
#include <cmath>
#include <cstring>

#include "../../runtime/types.h"
#include "../../runtime/vec_math.h"

namespace memra::MEMRA_VARIANT {

// exp(a_log * softplus(a + dt_bias)), in double: one value a token and head. Above 20 softplus is its argument, as in
// torch.
static inline float delta_decay(float a, float a_log, float dt_bias) {
  const double x = (double)a + (double)dt_bias, softplus = x > 20.0 ? x : std::log1p(std::exp(x));
  return (float)std::exp((double)a_log * softplus);
}

// One row of the state: decays, moves towards v, and answers q. `key_dim` is a multiple of 16. Sixteen lanes are summed
// along the row, then folded by halves.
static inline float delta_row(float* state, const float* k, const float* q, int key_dim, float decay, float beta, float v) {
  F seen = f_zero(), answer = f_zero();
  for (int i = 0; i < key_dim; i += 16) {
    const F s = f_mul(f_load(state + i), f_set(decay));
    f_store(state + i, s);
    seen = f_fma(s, f_load(k + i), seen);
  }
  const F error = f_set((v - f_sum(seen)) * beta);
  for (int i = 0; i < key_dim; i += 16) {
    const F s = f_fma(f_load(k + i), error, f_load(state + i));
    f_store(state + i, s);
    answer = f_fma(s, f_load(q + i), answer);
  }
  return f_sum(answer);
}

// Item i is value head i % num_value_heads of run i / num_value_heads.
static void delta_item(const DeltaOp& op, const Step& step, int item) {
  const SequenceRun& run = step.runs[item / op.num_value_heads];
  if (!run.count) return;
  const int head = item % op.num_value_heads;
  const int key_head = op.tiled ? head % op.num_key_heads : head * op.num_key_heads / op.num_value_heads;
  const size_t floats = (size_t)op.key_dim * op.value_dim, offset = op.state_offset + floats * head;
  float* state = step.state_out(run, offset);
  const float* before = step.state(run.state_in, offset);
  if (before) memcpy(state, before, floats * sizeof(float));
  else memset(state, 0, floats * sizeof(float));
  for (int row = run.first; row < run.first + run.count; row++) {
    const float decay = delta_decay(op.a->row(row)[head], op.a_log[head], op.dt_bias[head]);
    const float beta = (float)(1.0 / (1.0 + std::exp(-(double)op.b->row(row)[head])));
    const float *k = op.k->row(row) + (size_t)key_head * op.key_dim, *q = op.q->row(row) + (size_t)key_head * op.key_dim;
    const float* v = op.v->row(row) + (size_t)head * op.value_dim;
    float* out = op.out->row(row) + (size_t)head * op.value_dim;
    for (int i = 0; i < op.value_dim; i++)
      out[i] = delta_row(state + (size_t)i * op.key_dim, k, q, op.key_dim, decay, beta, v[i]) * op.scale;
  }
}

}  // namespace memra::MEMRA_VARIANT
