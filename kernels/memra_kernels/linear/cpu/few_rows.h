// One tile (16 outputs) times a few activation rows, streaming the weights once: the decode kernel.
#pragma once
#include <array>
#include <utility>

#include "block_ops.h"

namespace memra::MEMRA_VARIANT {

// As many rows as have room in the registers; the portable variant has none to spare, and compiles quickly so.
#if defined(MEMRA_VEC_AVX512)
constexpr int few_rows = 8;
#elif defined(MEMRA_VEC_AVX2)
constexpr int few_rows = 4;
#else
constexpr int few_rows = 1;
#endif
// Bytes ahead of the reader that are prefetched: the best of 1, 2, 3, 4 and 8 KiB, for one row and for eight, on a Xeon
// with AVX512-VNNI; 4 KiB cost 7 to 17 %.
constexpr int prefetch_bytes = 2048;

template <Layout L, int N>
static MEMRA_INLINE void few_rows_block(const uint8_t* header, int block, const uint8_t* const* x, int width, int k,
                                        F acc[N]) {
  const uint8_t* q = header + header_bytes(L) + block * block_bytes(L);
  for (int z = 0; z < block_bytes(L); z += 64) prefetch(q + prefetch_bytes + z);
  B v[8];
  unpack_block<L>(q, v);
  const BlockScales scales = load_scales<L>(header, block);
#pragma GCC unroll 8
  for (int n = 0; n < N; n++) {
    const int8_t* p = (const int8_t*)x[n] + k * 32;
    const QuantBlock& xb = ((const QuantBlock*)(x[n] + width))[k];
    if constexpr (is_halved(traits(L).scale)) {
      I low = start_sum<L>(xb.negated_low), high = start_sum<L>(xb.negated_high);
      for (int i = 0; i < 4; i++) {
        low = dot_vector<L>(low, v[i], p + 4 * i);
        high = dot_vector<L>(high, v[4 + i], p + 16 + 4 * i);
      }
      acc[n] = add_block<L>(acc[n], low, high, scales, xb);
    } else {
      I sum = start_sum<L>(xb.negated_sum);
      for (int i = 0; i < 8; i++) sum = dot_vector<L>(sum, v[i], p + 4 * i);
      acc[n] = add_block<L>(acc[n], sum, sum, scales, xb);
    }
  }
}

// out[n] = the 16 outputs of `tile` for activation row x[n].
template <Layout L, int N>
static void few_rows_tile(const Weight& w, int tile, const uint8_t* const* x, F* out) {
  const uint8_t* record = w.data + (size_t)tile * w.tile_bytes;
  const int width = padded_width(w.cols);
  F acc[N];
  for (int n = 0; n < N; n++) acc[n] = f_zero();
  for (int r = 0, k = 0; r < w.records; r++, record += record_bytes(L)) {
    for (int z = 0; z < header_bytes(L); z += 64) prefetch(record + prefetch_bytes + z);
    for (int b = 0; b < record_blocks(L); b++, k++) few_rows_block<L, N>(record, b, x, width, k, acc);
  }
  for (int n = 0; n < N; n++) out[n] = acc[n];
}

typedef void (*FewRowsFn)(const Weight& w, int tile, const uint8_t* const* x, F* out);

template <Layout L, size_t... N>
static constexpr std::array<FewRowsFn, few_rows> few_rows_table(std::index_sequence<N...>) {
  return {few_rows_tile<L, N + 1>...};
}

// By number of rows, less one.
template <Layout L>
static constexpr std::array<FewRowsFn, few_rows> few_rows_kernels =
    few_rows_table<L>(std::make_index_sequence<few_rows>());

}  // namespace memra::MEMRA_VARIANT
