// Where keys and values lie: pages of 64 tokens, and in a page, per layer and kv head, the keys blocked [16 tokens]
// as [dim][16] (a score needs no sum over lanes), then the values as [token][dim]; float16.
#pragma once
#include "../../runtime/types.h"
#include "../../runtime/vec.h"

namespace memra::MEMRA_VARIANT {

static inline uint16_t* page_keys(const Step& step, const CacheLayer& layer, int sequence, int position, int kv_head) {
  const size_t head_bytes = (size_t)page_tokens * layer.head_dim * 4;
  return (uint16_t*)(step.page(sequence, position) + layer.offset + (size_t)kv_head * head_bytes);
}

static inline uint16_t* page_values(const Step& step, const CacheLayer& layer, int sequence, int position,
                                    int kv_head) {
  return page_keys(step, layer, sequence, position, kv_head) + page_tokens * layer.head_dim;
}

// Stores the keys and values of one row; op.x holds k, op.y holds v.
static void store_row(const RowOp& op, const Step& step, int row) {
  const int position = step.positions[row], sequence = step.sequences[row], dim = op.layer.head_dim;
  const int slot = position % page_tokens;
  for (int h = 0; h < op.layer.num_kv_heads; h++) {
    const float *k = op.x->row(row) + h * dim, *v = op.y->row(row) + h * dim;
    uint16_t* keys = page_keys(step, op.layer, sequence, position, h) + slot / 16 * 16 * dim + slot % 16;
    uint16_t* values = page_values(step, op.layer, sequence, position, h) + slot * dim;
    for (int i = 0; i < dim; i += 16) {
      uint16_t half[16];
      f_to_half(half, f_load(k + i));
      for (int j = 0; j < 16; j++) keys[(i + j) * 16] = half[j];
      f_to_half(values + i, f_load(v + i));
    }
  }
}

}  // namespace memra::MEMRA_VARIANT
