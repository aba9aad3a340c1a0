// Scores of up to six queries against the 64 keys of one page.
#pragma once
#include "../../runtime/vec_math.h"
#include "cache.h"

namespace memra::MEMRA_VARIANT {

// One query: head of one row. It sees the keys of the split at hand with from <= position - split start < to.
struct Query {
  const float* q;
  float* scores;   // [split_tokens]
  float* partial;  // output of the split at hand, then maximum and sum
  float* running;  // the same, merged over the splits so far
  int oldest, newest;  // positions that it sees
  int from, to;
};

// Adds the products of dimensions [from, to) to one chain of fused multiply-adds per score.
template <int N, class T>
static inline __attribute__((always_inline)) void chain_scores(const KeyPage<T>& keys, const Query* queries, int from,
                                                               int to, F (&sum)[N][4]) {
  for (int d = from; d < to; d++) {
    F k[4];
    for (int b = 0; b < 4; b++) k[b] = f_read(keys.elements + b * keys.stride + d * key_lanes);
    for (int n = 0; n < N; n++) {
      const F q = f_set(queries[n].q[d]);
      for (int b = 0; b < 4; b++) sum[n][b] = f_fma(k[b], q, sum[n][b]);
    }
  }
}

// Each score is one chain over the dimensions, whatever the group. With scales it is a chain of chains: one over each
// 32 dimensions of int8, whose sum is multiplied by the scale as it is added.
template <int N, class T, bool Scaled>
static void page_scores(const KeyPage<T>& keys, int dim, const Query* queries, int page, float scale, float softcap) {
  F sum[N][4];
  for (int n = 0; n < N; n++)
    for (int b = 0; b < 4; b++) sum[n][b] = f_zero();
  if constexpr (Scaled) {
    F total[N][4];  // in memory between groups: the registers hold the chains
    for (int n = 0; n < N; n++)
      for (int b = 0; b < 4; b++) total[n][b] = f_zero();
    for (int d = 0; d < dim; d += 32) {
      chain_scores<N>(keys, queries, d, d + 32 < dim ? d + 32 : dim, sum);
      for (int b = 0; b < 4; b++) {
        const F s = f_from_half(keys.scales + b * keys.scale_stride + d / 32 * key_lanes);
        for (int n = 0; n < N; n++) {
          total[n][b] = f_fma(sum[n][b], s, total[n][b]);
          sum[n][b] = f_zero();
        }
      }
    }
    for (int n = 0; n < N; n++)
      for (int b = 0; b < 4; b++) sum[n][b] = total[n][b];
  } else {
    chain_scores<N>(keys, queries, 0, dim, sum);
  }
  for (int n = 0; n < N; n++) {
    for (int b = 0; b < 4; b++) {
      F s = f_mul(sum[n][b], f_set(scale));
      if (softcap != 0.0f) s = f_mul(f_set(softcap), f_tanh(f_div(s, f_set(softcap))));
      f_store(queries[n].scores + page * page_tokens + b * 16, s);
    }
  }
}

// Lanes of block `b` that the query sees.
static inline int lane_from(const Query& q, int b) {
  return q.from <= b * 16 ? 0 : q.from - b * 16 > 16 ? 16 : q.from - b * 16;
}
static inline int lane_to(const Query& q, int b) {
  return q.to <= b * 16 ? 0 : q.to - b * 16 > 16 ? 16 : q.to - b * 16;
}

// Turns scores into exp(score - maximum) and leaves maximum and sum behind the partial output. Sixteen lanes are summed
// block by block, then folded; an unseen key adds zero.
static inline void softmax_split(const Query& q, int dim) {
  const F lowest = f_set(-__builtin_inff());
  F highest = lowest, sum = f_zero();
  const int first = q.from / 16, last = (q.to + 15) / 16;
  for (int b = first; b < last; b++)
    highest = f_max(highest, f_select(lane_from(q, b), lane_to(q, b), f_load(q.scores + b * 16), lowest));
  const float maximum = f_highest(highest);
  for (int b = first; b < last; b++) {
    const F e = f_exp(f_sub(f_load(q.scores + b * 16), f_set(maximum)));
    const F p = f_select(lane_from(q, b), lane_to(q, b), e, f_zero());
    f_store(q.scores + b * 16, p);
    sum = f_add(sum, p);
  }
  q.partial[dim] = maximum;
  q.partial[dim + 1] = f_sum(sum);
}

}  // namespace memra::MEMRA_VARIANT
