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
  float scale, eps;
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
  int32_t q, out, layer, num_heads, window;
  float scale, softcap;
  const float* sinks;  // [num_heads], or null
};

struct StepSpec {
  int32_t rows, outputs, num_sequences, pages_per_sequence, logits_stride;
  const int32_t *token_ids, *positions, *sequences, *output_rows, *page_tables;
  float* logits;
};

}  // namespace memra
