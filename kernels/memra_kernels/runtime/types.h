// Plain values that the plan (compiled once) and the kernels (compiled once per instruction set) share.
#pragma once
#include <cstddef>
#include <cstdint>

#include "../quant_layouts/layouts.h"

namespace memra {

constexpr int page_tokens = 64;    // tokens of one key-value page
constexpr int split_tokens = 256;  // keys that one attention partial covers; splits start at multiples of it
constexpr int split_pages = split_tokens / page_tokens;
constexpr int max_parts = 4;       // matrices that one linear step may hold side by side

// A quantised activation row is `padded` int8 values followed by one of these per 32 values.
struct QuantBlock {
  float scale;               // largest magnitude / 127
  float scaled_sum;          // scale * sum of the int8 values
  int32_t negated_sum;   // minus the sum: starts an accumulator whose weights carry an offset
  int32_t negated_low;   // the same over the first 16
  int32_t negated_high;  // and over the second 16
};

// Activations are padded to whole superblocks, so that kernels never look at a tail.
static constexpr int padded_width(int width) { return (width + 255) / 256 * 256; }
// One line more than needed keeps rows from meeting in one cache set.
static constexpr size_t quant_row_bytes(int width) {
  return (size_t)padded_width(width) + (size_t)padded_width(width) / 32 * sizeof(QuantBlock) + 64;
}

// Rows of one activation: float32 in lines of `stride`, int8 in records of `quant_stride`; either may be absent.
struct Buffer {
  int32_t width;
  size_t stride, quant_stride;
  float* values;
  uint8_t* quants;

  float* row(int r) const { return values + (size_t)r * stride; }
  uint8_t* quant_row(int r) const { return quants + (size_t)r * quant_stride; }
};

struct LinearPart {
  const Weight* weight;
  const float* bias;  // padded to whole tiles, or null
  const Buffer* out;
  bool add;  // add to what `out` holds: a residual
};

// y = x @ W.T + b for one or more matrices that read the same x.
struct LinearOp {
  const Buffer* x;
  int32_t num_parts;
  LinearPart parts[max_parts];
};

// Elementwise functions; SwigluClamped is one of products only.
enum class Gate : int32_t { Silu, GeluTanh, Gelu, Sigmoid, Tanh, SwigluClamped };

struct GatedOp {
  const Buffer* x;
  const Weight *gate, *up;
  const Buffer* out;
  Gate activation;
  float limit;
};

struct HeadOp {
  const Buffer* x;
  const Weight* weight;
  float scale, softcap;  // softcap 0 is off
};

// The rows that the step asks for, as they are.
struct HiddenOp {
  const Buffer* x;
};

// How keys and values are kept: as float16, or as int8 with one float16 scale per 32 dimensions.
enum class KvType : int32_t { F16, Q8_0 };

static constexpr int kv_groups(int dim) { return (dim + 31) / 32; }  // scales of one q8_0 key or value

// Bytes of one head's key, or value, of one token.
static constexpr size_t kv_row_bytes(KvType type, int dim) {
  return type == KvType::F16 ? (size_t)dim * 2 : (size_t)dim + (size_t)kv_groups(dim) * 2;
}

struct CacheLayer {
  int32_t num_kv_heads, head_dim, value_dim;  // of a key and of a query; of a value
  KvType type;
  size_t offset;  // bytes from the start of a page: per head, K blocks then V rows; see attention/cpu/cache.h

  size_t key_bytes() const { return page_tokens * kv_row_bytes(type, head_dim); }  // of one head in one page
  size_t head_bytes() const { return key_bytes() + page_tokens * kv_row_bytes(type, value_dim); }
};

// Which keys of its sequence a query sees; window and chunk 0 are off.
struct Sight {
  int32_t window, chunk;
  bool causal;

  bool operator==(const Sight&) const = default;

  int oldest(int position) const {
    const int first = chunk ? position / chunk * chunk : 0, reach = causal ? window - 1 : window / 2;
    return window && position - reach > first ? position - reach : first;
  }
  // `last` is the last position of the sequence.
  int newest(int position, int last) const {
    if (causal) return position;
    return window && position + window / 2 < last ? position + window / 2 : last;
  }
};

struct AttentionOp {
  const Buffer *q, *out;
  CacheLayer layer;
  int32_t num_heads;
  Sight sight;
  float scale, softcap;
  const float* sinks;  // a score per query head that has no value, or null
};

enum class RowKind : int32_t {
  Embed,
  Norm,
  Add,
  Quantise,
  Angles,
  Rope,
  Store,
  Gate,
  PositionEmbed,
  LayerNorm,
  Slice,
  Activate,
  AddVector,
  Scale,
  ScaleRows,
  Join,
  ScaleByPosition
};

// One row-local operation; a row step runs a chain of them on one row.
struct RowOp {
  RowKind kind;
  const Buffer *x, *y, *out;
  const float *weight, *bias;  // either may be null
  int32_t group_width, num_heads, head_dim, half_dims;
  // Slice: columns of a group; Join: columns of y; Rope: first rotated element; PositionEmbed, ScaleByPosition: added to
  // positions.
  int32_t offset, stride;
  bool interleaved;
  Gate activation;
  float scale, eps, limit;   // Gate: bound of activation(gate) and of up, or 0
  const double* frequencies;  // Angles: radians per position, [half_dims]
  CacheLayer layer;           // Store: x is k, y is v
  int32_t stored_type;        // Embed: GGML type of the table's rows
  const uint8_t* stored;      // mapped by the caller for as long as the plan lives
  size_t stored_row_bytes;
};

constexpr int max_taps = 16;       // of a convolution
constexpr int max_experts = 1024;  // of a mixture

// Depthwise convolution over a sequence's last `taps` rows; `state_offset` floats into a state lie its last inputs.
struct ConvOp {
  const Buffer *x, *out;
  const float *weight, *bias;  // weight [taps][weight_stride], the oldest token's first; bias or null
  size_t weight_stride, state_offset;
  int32_t taps;
  bool has_activation;
  Gate activation;
};

struct DeltaOp {
  const Buffer *q, *k, *v, *a, *b, *out;
  const float *a_log, *dt_bias;
  size_t state_offset;
  int32_t num_key_heads, num_value_heads, key_dim, value_dim;
  bool tiled;
  float scale;
};

enum class RouterFunction : int32_t { Softmax, Sigmoid, SoftmaxOfChosen };

class ExpertLists;

// A mixture of experts: weights by expert, buffers of one row a slot (see experts/cpu/expert_lists.h).
struct ExpertsOp {
  const Buffer *x, *logits, *out;
  const Buffer *hidden, *parts;  // one row a slot
  const Weight *gate, *up, *down;  // [num_experts]
  const float *gate_bias, *up_bias, *down_bias, *correction, *expert_scale;  // rows of `*_stride`, or null
  size_t bias_stride, down_bias_stride;
  int32_t num_experts, used, width, num_groups, num_groups_used;
  RouterFunction router;
  bool normalise, scales_input;
  float weight_scale, limit;
  Gate activation;
  ExpertLists* lists;
};

// The consecutive rows of one sequence in a step, and its states before and after them; state_in -1 is all zeros.
struct SequenceRun {
  int32_t first, count, state_in, state_out;
};

// What a step's kernels may read; valid while an item of that step is running.
struct Step {
  int32_t rows, outputs;
  const int32_t *token_ids, *positions, *sequences, *output_rows, *page_tables;
  int32_t num_sequences, pages_per_sequence;
  uint8_t* pages;
  size_t page_bytes;
  float* logits;  // [outputs][logits_stride]
  size_t logits_stride;
  const int32_t *states_in, *states_out;  // [num_sequences], or null for a model without states
  const SequenceRun* runs;                // [num_sequences]
  float* states;
  size_t state_floats;

  // The last position of a row's sequence in this step.
  int last_position(int row) const {
    const SequenceRun& run = runs[sequences[row]];
    return positions[run.first + run.count - 1];
  }

  // Part of a state before the step, null for zeros; and where that part goes after it.
  const float* state(int id, size_t offset) const {
    return id < 0 ? nullptr : states + (size_t)id * state_floats + offset;
  }
  float* state_out(const SequenceRun& run, size_t offset) const {
    return states + (size_t)run.state_out * state_floats + offset;
  }

  uint8_t* page(int sequence, int position) const {
    return pages + (size_t)page_tables[(size_t)sequence * pages_per_sequence + position / page_tokens] * page_bytes;
  }
};

// A piece of attention: `num_rows` consecutive rows of one sequence, the query heads [first_head, first_head +
// num_heads) of one kv head, the splits [first_split, first_split + num_splits). With slot < 0 the work covers all
// splits and finishes its outputs; else it leaves partials from that slot on, [split][head], for a merge to finish.
struct AttentionWork {
  int32_t row, num_rows, kv_head, first_head, num_heads, first_split, num_splits, slot;
};

constexpr int max_queries = 32;  // rows times heads of one work

static constexpr int partial_floats(int value_dim) { return value_dim + 16; }  // output, then maximum and sum

// The largest tile of rows that shares one pass over keys and values.
static constexpr int rows_per_work(int heads) { return heads >= 24 ? 1 : 24 / heads; }

}  // namespace memra
