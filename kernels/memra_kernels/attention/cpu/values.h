// Weighted sums of values over one split: for each query and dimension one chain of fused multiply-adds over the keys
// that the query sees, in order of position, whoever shares the pass. With scales the weight of a key is multiplied by
// the scale of its 32 dimensions first.
#pragma once
#include "scores.h"

namespace memra::MEMRA_VARIANT {

// Weights times scales of the keys [from, to) of a page: [N][groups of 32 dimensions][64].
template <int N, int G>
static inline void scale_weights(float (&weights)[N][G][page_tokens], const uint16_t* scales, const Query* queries,
                                 int page, int from, int to) {
  for (int b = from / 16 * 16; b < to; b += 16) {
    for (int g = 0; g < G; g++) {
      const F s = f_from_half(scales + g * page_tokens + b);
      for (int n = 0; n < N; n++)
        f_store(weights[n][g] + b, f_mul(f_load(queries[n].scores + page * page_tokens + b), s));
    }
  }
}

// Adds keys [from, to) of the split for N queries, V vectors of dimensions from `d` on.
template <int N, int V, class T, bool Scaled>
static void add_values(const ValuePage<T>* pages, int dim, int d, const Query* queries, int from, int to) {
  constexpr int groups = (V + 1) / 2;
  F out[N][V];
  for (int n = 0; n < N; n++)
    for (int j = 0; j < V; j++) out[n][j] = f_load(queries[n].partial + d + j * 16);
  for (int page = from / page_tokens; page * page_tokens < to; page++) {
    const int start = page * page_tokens, first = from > start ? from - start : 0;
    const int end = to - start < page_tokens ? to - start : page_tokens;
    [[maybe_unused]] float weights[Scaled ? N : 1][groups][page_tokens];
    if constexpr (Scaled)
      scale_weights<N, groups>(weights, pages[page].scales + d / 32 * page_tokens, queries, page, first, end);
    for (int key = first; key < end; key++) {
      const T* v = pages[page].elements + key * dim + d;
      F value[V];
      for (int j = 0; j < V; j++) value[j] = f_read(v + j * 16);
      for (int n = 0; n < N; n++) {
        F p[groups];
        for (int g = 0; g < groups; g++) {
          if constexpr (Scaled) p[g] = f_set(weights[n][g][key]);
          else p[g] = f_set(queries[n].scores[start + key]);
        }
        for (int j = 0; j < V; j++) out[n][j] = f_fma(value[j], p[j / 2], out[n][j]);
      }
    }
  }
  for (int n = 0; n < N; n++)
    for (int j = 0; j < V; j++) f_store(queries[n].partial + d + j * 16, out[n][j]);
}

template <int N, class T, bool Scaled>
static void add_all_values(const ValuePage<T>* pages, int dim, const Query* queries, int from, int to) {
  if (from >= to) return;
  int d = 0;
  for (; d + 64 <= dim; d += 64) add_values<N, 4, T, Scaled>(pages, dim, d, queries, from, to);
  for (; d + 32 <= dim; d += 32) add_values<N, 2, T, Scaled>(pages, dim, d, queries, from, to);
  for (; d < dim; d += 16) add_values<N, 1, T, Scaled>(pages, dim, d, queries, from, to);
}

// Adds the keys of [low, high) that each query sees. Those that all N see are read once; those that only some see are
// added query by query before and after.
template <int N, class T, bool Scaled>
static void group_values(const ValuePage<T>* pages, int dim, const Query* queries, int low, int high) {
  int first[N], end[N], from = low, to = high;
  for (int n = 0; n < N; n++) {
    first[n] = queries[n].from > low ? queries[n].from : low;
    end[n] = queries[n].to < high ? queries[n].to : high;
    from = first[n] > from ? first[n] : from;
    to = end[n] < to ? end[n] : to;
  }
  if (from > to) from = to;
  for (int n = 0; n < N; n++)
    add_all_values<1, T, Scaled>(pages, dim, queries + n, first[n], from < end[n] ? from : end[n]);
  add_all_values<N, T, Scaled>(pages, dim, queries, from, to);
  for (int n = 0; n < N; n++)
    add_all_values<1, T, Scaled>(pages, dim, queries + n, to > first[n] ? to : first[n], end[n]);
}

}  // namespace memra::MEMRA_VARIANT
