// Functions of single elements, sixteen at a time.
#pragma once
#include "../../runtime/types.h"
#include "../../runtime/vec_math.h"

namespace memra::MEMRA_VARIANT {

// The first `count` lanes, zeros beyond: rows end in zeros, on which the kernels rely.
static inline F within(int count, F v) { return count >= 16 ? v : f_select(0, count, v, f_zero()); }

static inline F activation_of(Gate activation, F x) {
  switch (activation) {
    case Gate::GeluTanh: return f_gelu_tanh(x);
    case Gate::Gelu: return f_gelu(x);
    case Gate::Sigmoid: return f_sigmoid(x);
    case Gate::Tanh: return f_tanh(x);
    default: return f_silu(x);
  }
}

// activation(gate) * up; with a limit above 0 min(activation(gate), limit) * clip(up, -limit, limit). The clamped form is
// gpt-oss's: min(gate, 7) * sigmoid(1.702 * gate) * (clip(up, -7, 7) + 1).
static inline F gated_of(Gate activation, float limit, F gate, F up) {
  if (activation != Gate::SwigluClamped) {
    gate = activation_of(activation, gate);
    if (limit <= 0.0f) return f_mul(gate, up);
    return f_mul(f_min(gate, f_set(limit)), f_max(f_min(up, f_set(limit)), f_set(-limit)));
  }
  gate = f_min(gate, f_set(7.0f));
  up = f_max(f_min(up, f_set(7.0f)), f_set(-7.0f));
  return f_mul(f_mul(f_sigmoid(f_mul(gate, f_set(1.702f))), gate), f_add(up, f_set(1.0f)));
}

}  // namespace memra::MEMRA_VARIANT
