// One tile of float weights (F16, BF16, F32) times one float32 activation row.
//
// Four accumulators take k modulo 4 and are added as (0 + 1) + (2 + 3): one order whatever the number of rows.
#pragma once
#include "block_ops.h"

namespace memra::MEMRA_VARIANT {

template <Layout L>
static MEMRA_INLINE F load_floats(const uint8_t* p) {
  if constexpr (L == Layout::F16) return f_from_half((const uint16_t*)p);
  else if constexpr (L == Layout::BF16) return f_from_bfloat((const uint16_t*)p);
  else return f_load((const float*)p);
}

template <Layout L, int N>
static void float_rows_tile(const Weight& w, int tile, const float* const* x, F* out) {
  constexpr int step = 2 * traits(L).bits;  // bytes of one k: 16 rows
  const uint8_t* p = w.data + (size_t)tile * w.tile_bytes;
  F acc[N][4];
  for (int n = 0; n < N; n++)
    for (int j = 0; j < 4; j++) acc[n][j] = f_zero();
  int k = 0;
  for (; k + 4 <= w.cols; k += 4, p += 4 * step) {
    prefetch(p + 4096);
    for (int j = 0; j < 4; j++) {
      const F v = load_floats<L>(p + j * step);
      for (int n = 0; n < N; n++) acc[n][j] = f_fma(v, f_set(x[n][k + j]), acc[n][j]);
    }
  }
  for (int j = 0; k < w.cols; k++, j++, p += step)
    for (int n = 0; n < N; n++) acc[n][j] = f_fma(load_floats<L>(p), f_set(x[n][k]), acc[n][j]);
  for (int n = 0; n < N; n++) out[n] = f_add(f_add(acc[n][0], acc[n][1]), f_add(acc[n][2], acc[n][3]));
}

template <Layout L>
static void float_rows(const Weight& w, int tile, const float* const* x, int rows, F* out) {
  int n = 0;
  for (; n + 4 <= rows; n += 4) float_rows_tile<L, 4>(w, tile, x + n, out + n);
  for (; n < rows; n++) float_rows_tile<L, 1>(w, tile, x + n, out + n);
}

}  // namespace memra::MEMRA_VARIANT
