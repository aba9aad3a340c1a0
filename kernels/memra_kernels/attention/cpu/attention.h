// Attention over paged keys and values, in splits of 256 keys that are merged in order of position.
//
// Splits start at multiples of 256 positions and each is a softmax of its own, so the float order of a row depends on
// its position alone: decode, prefill, any batch, any number of threads, and parts computed elsewhere give the same
// bits. Where many queries look at a page, it is turned into float32 first; conversions are exact, so that no bit
// changes.
#pragma once
#include "../../runtime/kernels.h"
#include "../../runtime/quantise.h"
#include "values.h"

namespace memra::MEMRA_VARIANT {

constexpr int query_group = 6;  // six queries times four vectors leave eight of 32 registers

// Merges a split's partial into the running one: both become relative to the larger maximum.
static inline void merge_partial(float* running, const float* partial, int dim) {
  const float before = running[dim], now = partial[dim], maximum = before > now ? before : now;
  const F a = f_exp(f_set(before - maximum)), b = f_exp(f_set(now - maximum));
  for (int d = 0; d < dim; d += 16) f_store(running + d, f_fma(f_load(partial + d), b, f_mul(f_load(running + d), a)));
  const F sum = f_fma(f_set(partial[dim + 1]), b, f_mul(f_set(running[dim + 1]), a));
  float lanes[16];
  f_store(lanes, sum);
  running[dim] = maximum;
  running[dim + 1] = lanes[0];
}

static inline void start_running(float* running, int dim) {
  for (int d = 0; d < dim + 16; d += 16) f_store(running + d, f_zero());
  running[dim] = -1e30f;  // below any score, and finite: differences stay numbers
}

// A sink is a key that everybody sees and that has no value: a last partial of maximum `sink`, sum 1 and output zero.
static inline void merge_sink(float* running, float sink, int dim) {
  float partial[partial_floats(512)];
  for (int d = 0; d < dim; d += 16) f_store(partial + d, f_zero());
  partial[dim] = sink;
  partial[dim + 1] = 1.0f;
  merge_partial(running, partial, dim);
}

static inline void finish_query(const AttentionOp& op, int row, int head, float* running) {
  const int dim = op.layer.value_dim;
  if (op.sinks) merge_sink(running, op.sinks[head], dim);
  const F inverse = f_set(1.0f / running[dim + 1]);
  const Buffer& out = *op.out;
  if (out.values) {
    for (int d = 0; d < dim; d += 16) f_store(out.row(row) + head * dim + d, f_mul(f_load(running + d), inverse));
  }
  if (!out.quants) return;
  for (int d = 0; d < dim; d += 32) {
    quantise32(out.quant_row(row), out.width, (head * dim + d) / 32, f_mul(f_load(running + d), inverse),
               f_mul(f_load(running + d + 16), inverse));
  }
}

// The part of a query's keys that lies in a split; empty when from >= to.
static inline void see_split(Query& q, int split) {
  const int start = split * split_tokens;
  q.from = q.oldest > start ? q.oldest - start : 0;
  q.to = q.newest + 1 - start < split_tokens ? q.newest + 1 - start : split_tokens;
}

// The two passes by number of queries, less one.
template <class T, bool Scaled>
struct Passes {
  typedef void (*Scores)(const KeyPage<T>&, int, const Query*, int, float, float);
  typedef void (*Values)(const ValuePage<T>*, int, const Query*, int, int);
  static constexpr Scores scores[query_group] = {page_scores<1, T, Scaled>, page_scores<2, T, Scaled>,
                                                 page_scores<3, T, Scaled>, page_scores<4, T, Scaled>,
                                                 page_scores<5, T, Scaled>, page_scores<6, T, Scaled>};
  static constexpr Values values[query_group] = {group_values<1, T, Scaled>, group_values<2, T, Scaled>,
                                                 group_values<3, T, Scaled>, group_values<4, T, Scaled>,
                                                 group_values<5, T, Scaled>, group_values<6, T, Scaled>};
};

// One split at the pages where it lies, and the queries that see some of it in groups of even size.
struct SplitView {
  const uint8_t *keys[split_pages], *values[split_pages];
  Query seeing[max_queries];
  int num, groups, from, to;

  int group_first(int g) const { return num * g / groups; }
  int group_size(int g) const { return group_first(g + 1) - group_first(g); }
};

template <class T>
static inline KeyPage<T> stored_keys(const CacheLayer& layer, const uint8_t* page) {
  const size_t stride = key_block_bytes(layer.type, layer.head_dim);
  const uint16_t* scales = layer.type == KvType::F16 ? nullptr : key_scales(page, layer.head_dim);
  return {(const T*)page, stride / sizeof(T), scales, stride / 2};
}

template <class T>
static inline ValuePage<T> stored_values(const CacheLayer& layer, const uint8_t* page) {
  return {(const T*)page, layer.type == KvType::F16 ? nullptr : value_scales(page, layer.value_dim)};
}

// One group reads pages as they are stored.
template <class T, bool Scaled>
static void attend_stored(const AttentionOp& op, const SplitView& view) {
  const CacheLayer& layer = op.layer;
  ValuePage<T> values[split_pages];
  for (int page = view.from / page_tokens; page * page_tokens < view.to; page++) {
    Passes<T, Scaled>::scores[view.num - 1](stored_keys<T>(layer, view.keys[page]), layer.head_dim, view.seeing, page,
                                            op.scale, op.softcap);
    values[page] = stored_values<T>(layer, view.values[page]);
  }
  for (int n = 0; n < view.num; n++) softmax_split(view.seeing[n], layer.value_dim);
  Passes<T, Scaled>::values[view.num - 1](values, layer.value_dim, view.seeing, 0, split_tokens);
}

// Several groups share a page in float32, made once; `unpacked` holds it.
template <class T, bool Scaled>
static void attend_unpacked(const AttentionOp& op, const SplitView& view, float* unpacked) {
  const CacheLayer& layer = op.layer;
  const int key_elements = layer.head_dim * key_lanes, value_elements = layer.value_dim * page_tokens;
  const int first = view.from / page_tokens, end = (view.to + page_tokens - 1) / page_tokens;
  for (int page = first; page < end; page++) {
    const KeyPage<T> keys = stored_keys<T>(layer, view.keys[page]);
    for (int b = 0; b < page_tokens / key_lanes; b++) {
      for (int i = 0; i < key_elements; i += 16)
        f_store(unpacked + b * key_elements + i, f_read(keys.elements + b * keys.stride + i));
    }
    const KeyPage<float> floats{unpacked, (size_t)key_elements, keys.scales, keys.scale_stride};
    for (int g = 0; g < view.groups; g++) {
      Passes<float, Scaled>::scores[view.group_size(g) - 1](floats, layer.head_dim, view.seeing + view.group_first(g),
                                                            page, op.scale, op.softcap);
    }
  }
  for (int n = 0; n < view.num; n++) softmax_split(view.seeing[n], layer.value_dim);
  for (int page = first; page < end; page++) {
    const ValuePage<T> values = stored_values<T>(layer, view.values[page]);
    for (int i = 0; i < value_elements; i += 16) f_store(unpacked + i, f_read(values.elements + i));
    ValuePage<float> floats[split_pages];
    floats[page] = {unpacked, values.scales};
    for (int g = 0; g < view.groups; g++) {
      Passes<float, Scaled>::values[view.group_size(g) - 1](floats, layer.value_dim, view.seeing + view.group_first(g),
                                                            page * page_tokens, (page + 1) * page_tokens);
    }
  }
}

// One split for all queries that see some of it.
static inline void attend_split(const AttentionOp& op, const Step& step, const AttentionWork& work, int split,
                                Query* queries, int count, float* unpacked) {
  const int dim = op.layer.value_dim, sequence = step.sequences[work.row];
  SplitView view;
  view.num = view.to = 0;
  view.from = split_tokens;
  for (int n = 0; n < count; n++) {
    Query& q = queries[n];
    see_split(q, split);
    if (q.from >= q.to) continue;
    for (int d = 0; d < dim; d += 16) f_store(q.partial + d, f_zero());
    view.from = q.from < view.from ? q.from : view.from;
    view.to = q.to > view.to ? q.to : view.to;
    view.seeing[view.num++] = q;
  }
  for (int page = view.from / page_tokens; page * page_tokens < view.to; page++) {
    const int position = split * split_tokens + page * page_tokens;
    view.keys[page] = page_keys(step, op.layer, sequence, position, work.kv_head);
    view.values[page] = page_values(step, op.layer, sequence, position, work.kv_head);
  }
  view.groups = (view.num + query_group - 1) / query_group;
  const bool is_f16 = op.layer.type == KvType::F16;
  if (view.groups == 1) {
    (is_f16 ? attend_stored<uint16_t, false> : attend_stored<int8_t, true>)(op, view);
  } else if (view.groups > 1) {
    (is_f16 ? attend_unpacked<uint16_t, false> : attend_unpacked<int8_t, true>)(op, view, unpacked);
  }
  for (int n = 0; n < view.num; n++)
    if (work.slot < 0) merge_partial(view.seeing[n].running, view.seeing[n].partial, dim);
}

static void attention_work(const AttentionOp& op, const Step& step, const AttentionWork& work, float* partials,
                           ThreadScratch& scratch) {
  const int dim = op.layer.value_dim, floats = partial_floats(dim), count = work.num_rows * work.num_heads;
  Query queries[max_queries];
  for (int n = 0; n < count; n++) {
    const int row = work.row + n / work.num_heads, head = work.first_head + n % work.num_heads;
    const int position = step.positions[row];
    queries[n] = {op.q->row(row) + (size_t)head * op.layer.head_dim,
                  scratch.scores + n * split_tokens,
                  scratch.partials + (size_t)n * 2 * floats,
                  scratch.partials + (size_t)(n * 2 + 1) * floats,
                  op.sight.oldest(position),
                  op.sight.newest(position, step.last_position(row)),
                  0,
                  0};
    if (work.slot < 0) start_running(queries[n].running, dim);
  }
  for (int s = 0; s < work.num_splits; s++) {
    if (work.slot >= 0) {
      for (int n = 0; n < count; n++)
        queries[n].partial = partials + (size_t)(work.slot + s * work.num_heads + n) * floats;
    }
    attend_split(op, step, work, work.first_split + s, queries, count, scratch.page);
  }
  if (work.slot >= 0) return;
  for (int n = 0; n < count; n++) {
    finish_query(op, work.row + n / work.num_heads, work.first_head + n % work.num_heads, queries[n].running);
  }
}

// Finishes one row's heads from the partials of its splits.
static void merge_work(const AttentionOp& op, const Step&, const AttentionWork& work, const float* partials) {
  const int dim = op.layer.value_dim, floats = partial_floats(dim);
  float running[partial_floats(512)];
  for (int h = 0; h < work.num_heads; h++) {
    start_running(running, dim);
    for (int s = 0; s < work.num_splits; s++) {
      merge_partial(running, partials + (size_t)(work.slot + s * work.num_heads + h) * floats, dim);
    }
    finish_query(op, work.row, work.first_head + h, running);
  }
}

}  // namespace memra::MEMRA_VARIANT
