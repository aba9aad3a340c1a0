// Two tiles of weights (32 outputs) times eight and more activation rows on the AMX unit: the prefill kernel of layouts
// with one scale a block.
//
// As in many_rows.h, a chunk of weights is unpacked once; here to signed bytes, whose products need no correction. Rows
// go by sixteen (one tile of weights in turn) and by eight (two at once) while they are equally spaced in memory; the
// rest goes through the few-row kernel. The unit's sums come out through memory; one block's are made while the floats
// of the block before are added. They are the integers of the other kernels, and the floats follow in their order.
#pragma once
#include "few_rows.h"
#include "many_rows_scratch.h"

namespace memra::MEMRA_VARIANT {

struct alignas(64) SignedUnpacked {
  uint8_t quants[2][chunk_blocks][8][64];  // [tile][block][vector]
  UnpackedScales scales;
};

// The two tiles of a call, and which blocks of them the scratch holds or shall hold.
struct TileChunk {
  const Weight& w;
  int tile, num_tiles, k0, count;
  SignedUnpacked& u;
};

template <Layout L>
static MEMRA_INLINE void unpack_signed(const TileChunk& c, int j, int z) {
  constexpr int shift = traits(L).offset_log2;
  B v[8];
  unpack_to<L>(c.w, c.tile + z, c.k0 + j, c.u.scales, j, z, v);
  for (int i = 0; i < 8; i++) {
    if constexpr (shift < 0) b_store(c.u.quants[z][j][i], v[i]);
    else b_store(c.u.quants[z][j][i], b_sub(v[i], b_set(1 << shift)));
  }
}

// N equally spaced activation rows: `x` is the first.
struct SpacedRows {
  const uint8_t* x;
  long spacing;
  int width;

  const int8_t* quants(int k) const { return (const int8_t*)x + k * 32; }
  const QuantBlock& block(int n, int k) const {
    // Written so that the compiler keeps few pointers for many rows.
    return *(const QuantBlock*)(x + width + k * sizeof(QuantBlock) + n / 4 * (4 * spacing) + n % 4 * spacing);
  }
};

// The tiles [first, first + 16 / N) of the scratch for N rows; out is that of the first row. Unpacks the weights on the
// way where `fresh`, two blocks ahead, so that waiting for memory and arithmetic overlap.
template <Layout L, int N>
static void tile_group(const TileChunk& c, int first, bool fresh, const SpacedRows& rows, float* out) {
  constexpr int tiles = 16 / N;
  alignas(64) int32_t sums[2][tiles][N][16];
  F acc[tiles][N];
  for (int z = 0; z < tiles; z++)
    for (int n = 0; n < N; n++) acc[z][n] = c.k0 ? f_load(out + n * 32 + (first + z) * 16) : f_zero();
  const auto unpack = [&](int j) {
    if (!fresh || j >= c.count) return;
    for (int z = first; z < first + tiles && z < c.num_tiles; z++) unpack_signed<L>(c, j, z);
  };
  const auto make_sums = [&](int j) {
    if (j >= c.count) return;
    tile_load_rows<N>(rows.quants(c.k0 + j), rows.spacing);
    for (int z = 0; z < tiles; z++) tile_product<N>(c.u.quants[first + z][j][0], sums[j & 1][z]);
  };
  unpack(0);
  unpack(1);
  make_sums(0);
  for (int j = 0; j < c.count; j++) {
    unpack(j + 2);
    make_sums(j + 1);
#pragma GCC unroll 2
    for (int z = 0; z < tiles; z++) {
      const BlockScales s = reload_scales<L>(c.u.scales, j, first + z);
#pragma GCC unroll 16
      for (int n = 0; n < N; n++) {
        const I sum = i_load(sums[j & 1][z][n]);
        acc[z][n] = add_block<L>(acc[z][n], sum, sum, s, rows.block(n, c.k0 + j));
      }
    }
  }
  for (int z = 0; z < tiles; z++)
    for (int n = 0; n < N; n++) f_store(out + n * 32 + (first + z) * 16, acc[z][n]);
}

// Of the rows from x[0] on, how many make a group: 16 or 8 that are equally spaced, else 0.
static inline int group_size(const uint8_t* const* x, int rows) {
  int n = 1;
  while (n < rows && n < 16 && x[n] - x[n - 1] == x[1] - x[0]) n++;
  return n / 8 * 8;
}

// What no group takes: the whole of K for up to 8 rows.
template <Layout L>
static void tile_rest(const Weight& w, int tile, int num_tiles, const uint8_t* const* x, int rows, float* out) {
  F values[few_rows];
  for (int z = 0; z < num_tiles; z++) {
    few_rows_kernels<L>[rows - 1](w, tile + z, x, values);
    for (int n = 0; n < rows; n++) f_store(out + n * 32 + z * 16, values[n]);
  }
}

// out[n][32] = outputs of `tile` and, when num_tiles is 2, `tile + 1` for the rows x[n].
template <Layout L>
static void tile_rows(const Weight& w, int tile, int num_tiles, const uint8_t* const* x, int rows, float* out,
                      void* scratch) {
  const int width = padded_width(w.cols), blocks = w.records * record_blocks(L);
  for (int k0 = 0; k0 < blocks; k0 += chunk_blocks) {
    const int count = blocks - k0 < chunk_blocks ? blocks - k0 : chunk_blocks;
    const TileChunk chunk{w, tile, num_tiles, k0, count, *(SignedUnpacked*)scratch};
    bool fresh = true;
    for (int n = 0, size; n < rows; n += size ? size : few_rows) {
      size = group_size(x + n, rows - n);
      if (!size) {
        if (k0 == 0) tile_rest<L>(w, tile, num_tiles, x + n, rows - n < few_rows ? rows - n : few_rows, out + n * 32);
        continue;
      }
      const SpacedRows spaced{x[n], x[n + 1] - x[n], width};
      for (int z = 0; z < num_tiles && size == 16; z++) tile_group<L, 16>(chunk, z, fresh, spaced, out + n * 32);
      if (size == 8) tile_group<L, 8>(chunk, 0, fresh, spaced, out + n * 32);
      fresh = false;
    }
  }
}

}  // namespace memra::MEMRA_VARIANT
