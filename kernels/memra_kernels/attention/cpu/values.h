// Weighted sums of values over one split: for each query and dimension one chain of fused multiply-adds over the keys
// that the query sees, in order of position, whoever shares the pass.
#pragma once
#include "scores.h"

namespace memra::MEMRA_VARIANT {

// Adds keys [from, to) of the split for N queries, V vectors of dimensions from `d` on.
template <int N, int V>
static void add_values(const uint16_t* const* pages, int dim, int d, const Query* queries, int from, int to) {
  F out[N][V];
  for (int n = 0; n < N; n++)
    for (int j = 0; j < V; j++) out[n][j] = f_load(queries[n].partial + d + j * 16);
  for (int key = from; key < to; key++) {
    const uint16_t* v = pages[key / page_tokens] + (key % page_tokens) * dim + d;
    F value[V];
    for (int j = 0; j < V; j++) value[j] = f_from_half(v + j * 16);
    for (int n = 0; n < N; n++) {
      const F p = f_set(queries[n].scores[key]);
      for (int j = 0; j < V; j++) out[n][j] = f_fma(value[j], p, out[n][j]);
    }
  }
  for (int n = 0; n < N; n++)
    for (int j = 0; j < V; j++) f_store(queries[n].partial + d + j * 16, out[n][j]);
}

template <int N>
static void add_all_values(const uint16_t* const* pages, int dim, const Query* queries, int from, int to) {
  if (from >= to) return;
  int d = 0;
  for (; d + 64 <= dim; d += 64) add_values<N, 4>(pages, dim, d, queries, from, to);
  for (; d + 32 <= dim; d += 32) add_values<N, 2>(pages, dim, d, queries, from, to);
  for (; d < dim; d += 16) add_values<N, 1>(pages, dim, d, queries, from, to);
}

// Keys that all N queries see are read once; those that only some see are added query by query before and after.
template <int N>
static void group_values(const uint16_t* const* pages, int dim, const Query* queries) {
  int from = 0, to = split_tokens;
  for (int n = 0; n < N; n++) {
    from = queries[n].from > from ? queries[n].from : from;
    to = queries[n].to < to ? queries[n].to : to;
  }
  if (from > to) from = to;
  for (int n = 0; n < N; n++) {
    for (int d = 0; d < dim; d += 16) f_store(queries[n].partial + d, f_zero());
    add_all_values<1>(pages, dim, queries + n, queries[n].from, from < queries[n].to ? from : queries[n].to);
  }
  add_all_values<N>(pages, dim, queries, from, to);
  for (int n = 0; n < N; n++) {
    add_all_values<1>(pages, dim, queries + n, to > queries[n].from ? to : queries[n].from, queries[n].to);
  }
}

}  // namespace memra::MEMRA_VARIANT
