// Where keys and values lie: pages of 64 tokens, and in a page, per layer and kv head, the keys blocked [16 tokens]
// as [dim][16] (a score needs no sum over lanes), then the values as [token][dim].
//
// f16: elements are float16. q8_0: elements are int8; behind each block of keys stand its float16 scales
// [32 dimensions][16 tokens], behind the values of the page theirs, [32 dimensions][64 tokens]. Where dim is an odd
// multiple of 16, the last scale stands for 16 dimensions.
#pragma once
#include "../../runtime/half.h"
#include "../../runtime/types.h"
#include "../../runtime/vec.h"

namespace memra::MEMRA_VARIANT {

constexpr int key_lanes = 16;  // tokens of one block of keys

static inline uint8_t* page_keys(const Step& step, const CacheLayer& layer, int sequence, int position, int kv_head) {
  return step.page(sequence, position) + layer.offset + (size_t)kv_head * layer.head_bytes();
}

static inline uint8_t* page_values(const Step& step, const CacheLayer& layer, int sequence, int position, int kv_head) {
  return page_keys(step, layer, sequence, position, kv_head) + layer.key_bytes();
}

static inline size_t key_block_bytes(KvType type, int dim) { return key_lanes * kv_row_bytes(type, dim); }

// One head's keys of a page, as a pass over them reads them: [4][dim][16], `stride` elements from block to block.
template <class T>
struct KeyPage {
  const T* elements;
  size_t stride;
  const uint16_t* scales;  // q8_0: [groups][16] of the first block, those of the next `scale_stride` further; else null
  size_t scale_stride;
};

// One head's values of a page: [64][dim], and for q8_0 their scales [groups][64].
template <class T>
struct ValuePage {
  const T* elements;
  const uint16_t* scales;
};

static inline uint16_t* key_scales(const uint8_t* keys, int dim) { return (uint16_t*)(keys + (size_t)dim * key_lanes); }
static inline uint16_t* value_scales(const uint8_t* values, int dim) {
  return (uint16_t*)(values + (size_t)dim * page_tokens);
}

static inline F f_read(const uint16_t* p) { return f_from_half(p); }
static inline F f_read(const int8_t* p) { return f_from_int(i_from_i8((const uint8_t*)p)); }
static inline F f_read(const float* p) { return f_load(p); }

static inline void store_halves(const CacheLayer& layer, const float* k, const float* v, uint8_t* page, int slot) {
  uint16_t* keys = (uint16_t*)(page + slot / key_lanes * key_block_bytes(layer.type, layer.head_dim)) + slot % key_lanes;
  for (int i = 0; i < layer.head_dim; i += 16) {
    uint16_t half[16];
    f_to_half(half, f_load(k + i));
    for (int j = 0; j < 16; j++) keys[(i + j) * key_lanes] = half[j];
  }
  uint16_t* values = (uint16_t*)(page + layer.key_bytes()) + slot * layer.value_dim;
  for (int i = 0; i < layer.value_dim; i += 16) f_to_half(values + i, f_load(v + i));
}

// Writes up to 32 elements as int8 and returns their float16 scale: the largest magnitude / 127, as in ggml's q8_0.
// Elements are divided by that quotient as float32 and rounded to nearest even; the stored scale is the quotient
// rounded to float16. Magnitudes below 127 * 2**-25, whose scale is no float16, become zero.
static inline uint16_t quantise_group(int8_t* out, const float* x, int count) {
  const F low = f_load(x), high = count > 16 ? f_load(x + 16) : f_zero();
  const float largest = f_highest(f_max(f_abs(low), f_abs(high)));
  const float inverse = largest < 1e-30f ? 0.0f : 127.0f / largest;  // below, it could overflow
  i_store_int8(out, i_from_float(f_mul(low, f_set(inverse))));
  if (count > 16) i_store_int8(out + 16, i_from_float(f_mul(high, f_set(inverse))));
  return float_to_half(largest / 127.0f);
}

static inline void store_quants(const CacheLayer& layer, const float* k, const float* v, uint8_t* page, int slot) {
  uint8_t* block = page + slot / key_lanes * key_block_bytes(layer.type, layer.head_dim);
  uint16_t* scales = key_scales(block, layer.head_dim) + slot % key_lanes;
  for (int i = 0; i < layer.head_dim; i += 32) {
    int8_t quants[32];
    const int count = layer.head_dim - i < 32 ? layer.head_dim - i : 32;
    scales[i / 32 * key_lanes] = quantise_group(quants, k + i, count);
    for (int j = 0; j < count; j++) block[(i + j) * key_lanes + slot % key_lanes] = (uint8_t)quants[j];
  }
  uint8_t* values = page + layer.key_bytes();
  scales = value_scales(values, layer.value_dim) + slot;
  for (int i = 0; i < layer.value_dim; i += 32) {
    const int count = layer.value_dim - i < 32 ? layer.value_dim - i : 32;
    scales[i / 32 * page_tokens] = quantise_group((int8_t*)values + slot * layer.value_dim + i, v + i, count);
  }
}

// Stores the keys and values of one row; op.x holds k, op.y holds v.
static void store_row(const RowOp& op, const Step& step, int row) {
  const CacheLayer& layer = op.layer;
  const auto store = layer.type == KvType::F16 ? store_halves : store_quants;
  for (int h = 0; h < layer.num_kv_heads; h++) {
    uint8_t* page = page_keys(step, layer, step.sequences[row], step.positions[row], h);
    store(layer, op.x->row(row) + h * layer.head_dim, op.y->row(row) + h * layer.value_dim, page,
          step.positions[row] % page_tokens);
  }
}

}  // namespace memra::MEMRA_VARIANT
