// Weights of two tiles, a chunk of blocks unpacked: what the many-row kernels share of it.
#pragma once
#include "block_ops.h"

namespace memra::MEMRA_VARIANT {

constexpr int chunk_blocks = 16;

struct alignas(64) UnpackedScales {
  float scale[chunk_blocks][2][16], min[chunk_blocks][2][16];            // [block][tile]
  float scale_high[chunk_blocks][2][16], min_high[chunk_blocks][2][16];  // of halved layouts
};

template <Layout L>
static MEMRA_INLINE void keep_scales(UnpackedScales& u, int j, int z, const BlockScales& s) {
  constexpr LayoutTraits t = traits(L);
  f_store(u.scale[j][z], s.scale);
  if constexpr (t.min != Min::None) f_store(u.min[j][z], s.min);
  if constexpr (is_halved(t.scale)) f_store(u.scale_high[j][z], s.scale_high);
  if constexpr (t.min == Min::KByte16) f_store(u.min_high[j][z], s.min_high);
}

template <Layout L>
static MEMRA_INLINE BlockScales reload_scales(const UnpackedScales& u, int j, int z) {
  constexpr LayoutTraits t = traits(L);
  BlockScales s;
  s.scale = f_load(u.scale[j][z]);
  if constexpr (t.min != Min::None) s.min = f_load(u.min[j][z]);
  if constexpr (is_halved(t.scale)) s.scale_high = f_load(u.scale_high[j][z]);
  if constexpr (t.min == Min::KByte16) s.min_high = f_load(u.min_high[j][z]);
  return s;
}

// Bytes ahead of the reader that are prefetched; each tile is a stream of its own.
constexpr int unpack_prefetch_bytes = 2048;

// Block k of a tile becomes block j of tile z of the scratch; the quants are returned.
template <Layout L>
static MEMRA_INLINE void unpack_to(const Weight& w, int tile, int k, UnpackedScales& u, int j, int z, B v[8]) {
  const int block = k % record_blocks(L);
  const uint8_t* header = w.data + (size_t)tile * w.tile_bytes + (size_t)(k / record_blocks(L)) * record_bytes(L);
  const uint8_t* q = header + header_bytes(L) + block * block_bytes(L);
  for (int c = 0; c < block_bytes(L); c += 64) prefetch(q + unpack_prefetch_bytes + c);
  unpack_block<L>(q, v);
  keep_scales<L>(u, j, z, load_scales<L>(header, block));
}

}  // namespace memra::MEMRA_VARIANT
