// Causal attention over paged keys and values, in splits of 256 keys that are merged in order of position.
//
// Splits start at multiples of 256 positions and each is a softmax of its own, so the float order of a row depends on
// its position alone: decode, prefill, any batch, any number of threads, and parts computed elsewhere give the same
// bits.
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

static inline void finish_query(const AttentionOp& op, int row, int head, const float* running) {
  const int dim = op.layer.head_dim;
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
static inline void see_split(Query& q, int split, int window) {
  const int start = split * split_tokens, oldest = window && q.position >= window ? q.position - window + 1 : 0;
  q.from = oldest > start ? oldest - start : 0;
  q.to = q.position + 1 - start < split_tokens ? q.position + 1 - start : split_tokens;
}

template <int N>
static void group_split(const AttentionOp& op, const uint16_t* const* keys, const uint16_t* const* values,
                        const Query* queries) {
  int from = split_tokens, to = 0;
  for (int n = 0; n < N; n++) {
    from = queries[n].from < from ? queries[n].from : from;
    to = queries[n].to > to ? queries[n].to : to;
  }
  for (int page = from / page_tokens; page * page_tokens < to; page++)
    page_scores<N>(keys[page], op.layer.head_dim, queries, page, op.scale, op.softcap);
  for (int n = 0; n < N; n++) softmax_split(queries[n], op.layer.head_dim);
  group_values<N>(values, op.layer.head_dim, queries);
}

typedef void (*GroupSplitFn)(const AttentionOp&, const uint16_t* const*, const uint16_t* const*, const Query*);
static constexpr GroupSplitFn group_split_kernels[query_group] = {group_split<1>, group_split<2>, group_split<3>,
                                                                  group_split<4>, group_split<5>, group_split<6>};

// One split for all queries that see some of it, in groups of even size.
static inline void attend_split(const AttentionOp& op, const Step& step, const AttentionWork& work, int split,
                                Query* queries, int count) {
  const uint16_t *keys[split_tokens / page_tokens], *values[split_tokens / page_tokens];
  const int sequence = step.sequences[work.row], last = step.positions[work.row + work.num_rows - 1];
  for (int page = 0; page < split_tokens / page_tokens; page++) {
    const int position = split * split_tokens + page * page_tokens;
    if (position > last) break;
    keys[page] = page_keys(step, op.layer, sequence, position, work.kv_head);
    values[page] = page_values(step, op.layer, sequence, position, work.kv_head);
  }
  Query seeing[max_queries];
  int num = 0;
  for (int n = 0; n < count; n++) {
    see_split(queries[n], split, op.window);
    if (queries[n].from < queries[n].to) seeing[num++] = queries[n];
  }
  const int groups = (num + query_group - 1) / query_group;
  for (int g = 0; g < groups; g++) {
    const int first = num * g / groups, size = num * (g + 1) / groups - first;
    group_split_kernels[size - 1](op, keys, values, seeing + first);
  }
  for (int n = 0; n < num; n++)
    if (work.slot < 0) merge_partial(seeing[n].running, seeing[n].partial, op.layer.head_dim);
}

static void attention_work(const AttentionOp& op, const Step& step, const AttentionWork& work, float* partials,
                           ThreadScratch& scratch) {
  const int dim = op.layer.head_dim, floats = partial_floats(dim), count = work.num_rows * work.num_heads;
  Query queries[max_queries];
  for (int n = 0; n < count; n++) {
    const int row = work.row + n / work.num_heads, head = work.first_head + n % work.num_heads;
    queries[n] = {op.q->row(row) + (size_t)head * dim,
                  scratch.scores + n * split_tokens,
                  scratch.partials + (size_t)n * 2 * floats,
                  scratch.partials + (size_t)(n * 2 + 1) * floats,
                  step.positions[row],
                  0,
                  0};
    if (work.slot < 0) start_running(queries[n].running, dim);
  }
  for (int s = 0; s < work.num_splits; s++) {
    if (work.slot >= 0) {
      for (int n = 0; n < count; n++)
        queries[n].partial = partials + (size_t)(work.slot + s * work.num_heads + n) * floats;
    }
    attend_split(op, step, work, work.first_split + s, queries, count);
  }
  if (work.slot >= 0) return;
  for (int n = 0; n < count; n++) {
    finish_query(op, work.row + n / work.num_heads, work.first_head + n % work.num_heads, queries[n].running);
  }
}

// Finishes one row's heads from the partials of its splits.
static void merge_work(const AttentionOp& op, const Step&, const AttentionWork& work, const float* partials) {
  const int dim = op.layer.head_dim, floats = partial_floats(dim);
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
