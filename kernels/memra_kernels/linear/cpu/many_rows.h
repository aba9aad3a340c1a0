// Two tiles (32 outputs) times many activation rows: the prefill kernel.
//
// Weights are unpacked once per `chunk_blocks` blocks into a scratch that stays in the first-level cache, then met by
// groups of rows; the float accumulators go to memory between chunks, which changes no bit.
#pragma once
#include "block_ops.h"
#include "many_rows_scratch.h"

namespace memra::MEMRA_VARIANT {

struct alignas(64) Unpacked {
  uint8_t quants[chunk_blocks][8][2][64];  // [block][vector][tile]
  UnpackedScales scales;
};

template <Layout L>
static void unpack_chunk(const Weight& w, int tile, int num_tiles, int k0, int count, Unpacked& u) {
  for (int z = 0; z < num_tiles; z++) {
    for (int j = 0; j < count; j++) {
      B v[8];
      unpack_to<L>(w, tile + z, k0 + j, u.scales, j, z, v);
      for (int i = 0; i < 8; i++) b_store(u.quants[j][i][z], v[i]);
    }
  }
}

// Vectors [first, last) of block j, two tiles, N rows.
template <Layout L, int N>
static MEMRA_INLINE void dot_vectors(const Unpacked& u, int j, int first, int last, const uint8_t* const* x, int k,
                                     I sum[N][2]) {
#pragma GCC unroll 8
  for (int i = first; i < last; i++) {
    const B w0 = b_load(u.quants[j][i][0]), w1 = b_load(u.quants[j][i][1]);
    for (int n = 0; n < N; n++) {
      const int8_t* p = (const int8_t*)x[n] + k * 32 + 4 * i;
      sum[n][0] = dot_vector<L>(sum[n][0], w0, p);
      sum[n][1] = dot_vector<L>(sum[n][1], w1, p);
    }
  }
}

template <Layout L, int N>
static void many_rows_group(const Unpacked& u, const uint8_t* const* x, int width, int k0, int count, float* out) {
  F acc[N][2];
  for (int n = 0; n < N; n++)
    for (int z = 0; z < 2; z++) acc[n][z] = k0 ? f_load(out + n * 32 + z * 16) : f_zero();
  for (int j = 0; j < count; j++) {
    const int k = k0 + j;
    const QuantBlock* xb[N];
    for (int n = 0; n < N; n++) xb[n] = (const QuantBlock*)(x[n] + width) + k;
    I low[N][2], high[N][2];
    if constexpr (is_halved(traits(L).scale)) {
      for (int n = 0; n < N; n++) low[n][0] = low[n][1] = start_sum<L>(xb[n]->negated_low);
      dot_vectors<L, N>(u, j, 0, 4, x, k, low);
      for (int n = 0; n < N; n++) high[n][0] = high[n][1] = start_sum<L>(xb[n]->negated_high);
      dot_vectors<L, N>(u, j, 4, 8, x, k, high);
      for (int z = 0; z < 2; z++) {
        const BlockScales s = reload_scales<L>(u.scales, j, z);
        for (int n = 0; n < N; n++) acc[n][z] = add_block<L>(acc[n][z], low[n][z], high[n][z], s, *xb[n]);
      }
    } else {
      for (int n = 0; n < N; n++) low[n][0] = low[n][1] = start_sum<L>(xb[n]->negated_sum);
      dot_vectors<L, N>(u, j, 0, 8, x, k, low);
      for (int z = 0; z < 2; z++) {
        const BlockScales s = reload_scales<L>(u.scales, j, z);
        for (int n = 0; n < N; n++) acc[n][z] = add_block<L>(acc[n][z], low[n][z], low[n][z], s, *xb[n]);
      }
    }
  }
  for (int n = 0; n < N; n++)
    for (int z = 0; z < 2; z++) f_store(out + n * 32 + z * 16, acc[n][z]);
}

// out[n][32] = outputs of `tile` and, when num_tiles is 2, `tile + 1` for the rows x[n].
template <Layout L>
static void many_rows(const Weight& w, int tile, int num_tiles, const uint8_t* const* x, int rows, float* out,
                      void* scratch) {
  Unpacked& u = *(Unpacked*)scratch;
  // Accumulators of a group must fit the registers; the halved layouts need two sets.
  constexpr int group = is_halved(traits(L).scale) ? 4 : 6;
  const int width = padded_width(w.cols), blocks = w.records * record_blocks(L);
  for (int k0 = 0; k0 < blocks; k0 += chunk_blocks) {
    const int count = blocks - k0 < chunk_blocks ? blocks - k0 : chunk_blocks;
    unpack_chunk<L>(w, tile, num_tiles, k0, count, u);
    int n = 0;
    for (; n + group <= rows; n += group) many_rows_group<L, group>(u, x + n, width, k0, count, out + n * 32);
    for (; n + 2 <= rows; n += 2) many_rows_group<L, 2>(u, x + n, width, k0, count, out + n * 32);
    for (; n < rows; n++) many_rows_group<L, 1>(u, x + n, width, k0, count, out + n * 32);
  }
}

}  // namespace memra::MEMRA_VARIANT
