// Unpacked weights of two tiles: the scratch of the many-row kernels.
#pragma once
#include "block_ops.h"

namespace memra::MEMRA_VARIANT {

constexpr int chunk_blocks = 16;

struct alignas(64) Unpacked {
  uint8_t quants[chunk_blocks][8][2][64];  // [block][vector][tile]
  float scale[chunk_blocks][2][16], min[chunk_blocks][2][16];
  int32_t bytes[chunk_blocks][2][4][16];  // scale low, high, min low, high
};

template <Layout L>
static void unpack_chunk(const Weight& w, int tile, int num_tiles, int k0, int count, Unpacked& u) {
  constexpr LayoutTraits t = traits(L);
  for (int z = 0; z < num_tiles; z++) {
    for (int j = 0; j < count; j++) {
      const int k = k0 + j, block = k % record_blocks(L);
      const uint8_t* header =
          w.data + (size_t)(tile + z) * w.tile_bytes + (size_t)(k / record_blocks(L)) * record_bytes(L);
      const uint8_t* q = header + header_bytes(L) + block * block_bytes(L);
      for (int c = 0; c < block_bytes(L); c += 64) prefetch(q + 2048 + c);
      B v[8];
      unpack_block<L>(q, v);
      for (int i = 0; i < 8; i++) b_store(u.quants[j][i][z], v[i]);
      const BlockScales s = load_scales<L>(header, block);
      f_store(u.scale[j][z], s.scale);
      if constexpr (t.min != Min::None) f_store(u.min[j][z], s.min);
      if constexpr (is_halved(t.scale)) {
        i_store(u.bytes[j][z][0], s.scale_low);
        i_store(u.bytes[j][z][1], s.scale_high);
      }
      if constexpr (t.min == Min::KByte16) {
        i_store(u.bytes[j][z][2], s.min_low);
        i_store(u.bytes[j][z][3], s.min_high);
      }
    }
  }
}

template <Layout L>
static MEMRA_INLINE BlockScales reload_scales(const Unpacked& u, int j, int z) {
  BlockScales s;
  s.scale = f_load(u.scale[j][z]);
  if constexpr (traits(L).min != Min::None) s.min = f_load(u.min[j][z]);
  if constexpr (is_halved(traits(L).scale)) {
    s.scale_low = i_load(u.bytes[j][z][0]);
    s.scale_high = i_load(u.bytes[j][z][1]);
  }
  if constexpr (traits(L).min == Min::KByte16) {
    s.min_low = i_load(u.bytes[j][z][2]);
    s.min_high = i_load(u.bytes[j][z][3]);
  }
  return s;
}

}  // namespace memra::MEMRA_VARIANT
