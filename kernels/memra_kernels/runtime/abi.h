// The C interface, bound by native.py with ctypes. Indices come from the adding functions; a negative result, or null,
// is a failure whose reason memra_error() tells to the same thread. No exception leaves the library.
#pragma once
#include <cstddef>
#include <cstdint>

#define MEMRA_API extern "C" __attribute__((visibility("default")))

namespace memra {

// Buffers, weights and layers by index, -1 for none. Mirrored field by field in native.py.
struct RowSpec {
  int32_t kind, x, y, out, weight_length, group_width, num_heads, head_dim, half_dims, interleaved, activation, layer;
  int32_t stored_type, starts_step, offset, stride, bias_length;
  float scale, eps, limit;
  const float *weight, *bias;
  const double* frequencies;
  const uint8_t* stored;
  size_t stored_row_bytes;
};

struct LinearSpec {
  int32_t x, num_parts, weight[4], out[4], add[4];
  const float* bias[4];
};

struct AttentionSpec {
  int32_t q, out, layer, num_heads, window, chunk, causal;
  float scale, softcap;
  const float* sinks;  // [num_heads], or null
};

struct ConvSpec {
  int32_t x, out, taps, activation;  // activation -1 is none
  const float *weight, *bias;        // [taps][width of x], and [width] or null
  size_t state_offset;
};

struct DeltaSpec {
  int32_t q, k, v, a, b, out, num_key_heads, num_value_heads, key_dim, value_dim, tiled;
  float scale;
  const float *a_log, *dt_bias;
  size_t state_offset;
};

// Weights hold the rows of all experts, one expert after the other; vectors are [num_experts][length of a row], or null.
struct ExpertsSpec {
  int32_t x, logits, out, hidden, parts, gate, up, down;
  int32_t num_experts, used, width, num_groups, num_groups_used, router, normalise, scales_input, activation;
  float weight_scale, limit;
  const float *gate_bias, *up_bias, *down_bias, *correction, *expert_scale;
};

struct StepSpec {
  int32_t rows, outputs, num_sequences, pages_per_sequence, logits_stride;
  const int32_t *token_ids, *positions, *sequences, *output_rows, *page_tables, *states_in, *states_out;
  float* logits;
};

}  // namespace memra
