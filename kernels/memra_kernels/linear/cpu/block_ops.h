// What every linear kernel does with one block: 16 output rows times 32 inputs. Sharing it is what makes the few-row
// and the many-row kernel give the same bits: the integer sum is exact, and one float order follows it.
#pragma once
#include "../../runtime/quantise.h"
#include "../../runtime/types.h"
#include "../../runtime/vec.h"

#define MEMRA_INLINE inline __attribute__((always_inline))

namespace memra::MEMRA_VARIANT {

// The eight vectors of quants of a block, as unsigned bytes.
template <Layout L>
static MEMRA_INLINE void unpack_block(const uint8_t* q, B v[8]) {
  constexpr LayoutTraits t = traits(L);
  if constexpr (t.bits == 8) {
    for (int i = 0; i < 8; i++) v[i] = b_load(q + 64 * i);
  } else if constexpr (t.bits == 2) {
    const B mask = b_set(3);
    for (int z = 0; z < 2; z++) {
      const B plane = b_load(q + 64 * z);
      v[4 * z] = b_and(plane, mask);
      v[4 * z + 1] = b_and(b_shr<2>(plane), mask);
      v[4 * z + 2] = b_and(b_shr<4>(plane), mask);
      v[4 * z + 3] = b_and(b_shr<6>(plane), mask);
    }
  } else {
    const B low = b_set(15);
    for (int i = 0; i < 4; i++) {
      v[2 * i] = b_load(q + 64 * i);
      v[2 * i + 1] = b_shr<4>(v[2 * i]);
    }
    if constexpr (t.bits == 5) {  // bit i of the plane becomes bit 4 of vector i
      const B mask = b_set(31), plane = b_load(q + 256);
      v[0] = b_and(b_blend(low, v[0], b_shl<4>(plane)), mask);
      v[1] = b_and(b_blend(low, v[1], b_shl<3>(plane)), mask);
      v[2] = b_and(b_blend(low, v[2], b_shl<2>(plane)), mask);
      v[3] = b_and(b_blend(low, v[3], b_shl<1>(plane)), mask);
      v[4] = b_and(b_blend(low, v[4], plane), mask);
      v[5] = b_and(b_blend(low, v[5], b_shr<1>(plane)), mask);
      v[6] = b_and(b_blend(low, v[6], b_shr<2>(plane)), mask);
      v[7] = b_and(b_blend(low, v[7], b_shr<3>(plane)), mask);
    } else if constexpr (t.bits == 6) {  // two bits of a plane become bits 4 and 5
      const B mask = b_set(63);
      for (int z = 0; z < 2; z++) {
        const B plane = b_load(q + 256 + 64 * z);
        v[4 * z] = b_and(b_blend(low, v[4 * z], b_shl<4>(plane)), mask);
        v[4 * z + 1] = b_and(b_blend(low, v[4 * z + 1], b_shl<2>(plane)), mask);
        v[4 * z + 2] = b_and(b_blend(low, v[4 * z + 2], plane), mask);
        v[4 * z + 3] = b_and(b_blend(low, v[4 * z + 3], b_shr<2>(plane)), mask);
      }
    } else {
      for (int i = 0; i < 8; i++) v[i] = b_and(v[i], low);
      if constexpr (t.table != nullptr) {
        const B table = b_table(t.table);
        for (int i = 0; i < 8; i++) v[i] = b_lookup(table, v[i]);
      }
    }
  }
}

// Scales of one block for 16 rows: of its 32 inputs, or, for halved layouts, of the first and the second 16.
struct BlockScales {
  F scale, min;
  F scale_high, min_high;
};

template <Scale S>
static MEMRA_INLINE F scale_bytes(const uint8_t* p) {
  if constexpr (S == Scale::KSigned32 || S == Scale::KSigned16) return f_from_int(i_from_i8(p));
  else return f_from_int(i_from_u8(p));
}

template <Layout L>
static MEMRA_INLINE BlockScales load_scales(const uint8_t* header, int block) {
  constexpr LayoutTraits t = traits(L);
  constexpr int so = scale_offset(L), mo = min_offset(L);
  BlockScales s;
  if constexpr (t.scale == Scale::Half32) s.scale = f_from_half((const uint16_t*)(header + block * 32));
  if constexpr (t.scale == Scale::Bfloat32) s.scale = f_from_bfloat((const uint16_t*)(header + block * 32));
  if constexpr (t.min == Min::Half32) s.min = f_from_half((const uint16_t*)(header + mo + block * 32));
  if constexpr (t.scale == Scale::Half16) {
    s.scale = f_from_half((const uint16_t*)(header + block * 64));
    s.scale_high = f_from_half((const uint16_t*)(header + block * 64 + 32));
  }
  if constexpr (is_k(t.scale)) s.scale = f_from_half((const uint16_t*)header);
  if constexpr (t.scale_log2 != 0) s.scale = f_mul(s.scale, f_set(scale_factor(L)));
  if constexpr (is_k(t.scale) && t.min != Min::None) s.min = f_from_half((const uint16_t*)(header + 32));
  // An f16 times a byte is exact in float32.
  const uint8_t *sb = header + so + block * (is_halved(t.scale) ? 32 : 16), *mb = header + mo + (sb - (header + so));
  if constexpr (is_k(t.scale) && is_halved(t.scale)) s.scale_high = f_mul(s.scale, scale_bytes<t.scale>(sb + 16));
  if constexpr (is_k(t.scale)) s.scale = f_mul(s.scale, scale_bytes<t.scale>(sb));
  if constexpr (t.min == Min::KByte16) s.min_high = f_mul(s.min, f_from_int(i_from_u8(mb + 16)));
  if constexpr (is_k(t.scale) && t.min != Min::None) s.min = f_mul(s.min, f_from_int(i_from_u8(mb)));
  return s;
}

// The integer accumulator before the first product: what the weights' offset takes away.
template <Layout L>
static MEMRA_INLINE I start_sum(int32_t negated_sum) {
  constexpr int shift = traits(L).offset_log2;
  if constexpr (shift < 0) return i_zero();
  else return i_shl<shift>(i_set(negated_sum));
}

template <Layout L>
static MEMRA_INLINE I dot_vector(I sum, B weights, const int8_t* x) {
  int32_t x4;
  memcpy(&x4, x, 4);
  // Bytes above 127 occur where the offset is 128.
  return i_dot<traits(L).offset_log2 == 7>(sum, weights, x4);
}

// Adds one block to the float accumulator. For halved layouts `low` and `high` are the sums over 16 inputs each,
// for the others `low` is the whole sum.
template <Layout L>
static MEMRA_INLINE F add_block(F acc, I low, I high, const BlockScales& s, const QuantBlock& x) {
  constexpr LayoutTraits t = traits(L);
  const F d = f_set(x.scale);
  if constexpr (is_halved(t.scale)) {
    const F scaled = f_fma(f_from_int(high), s.scale_high, f_mul(f_from_int(low), s.scale));
    acc = f_fma(scaled, d, acc);
  } else {
    acc = f_fma(f_from_int(low), f_mul(s.scale, d), acc);
  }
  if constexpr (t.min == Min::Half32) acc = f_fma(s.min, f_set(x.scaled_sum), acc);
  if constexpr (t.min == Min::KByte32) acc = f_fnma(s.min, f_set(x.scaled_sum), acc);
  if constexpr (t.min == Min::KByte16) {  // the sums are negated already
    const F sum_low = f_from_int(i_set(x.negated_low)), sum_high = f_from_int(i_set(x.negated_high));
    acc = f_fma(f_fma(sum_high, s.min_high, f_mul(sum_low, s.min)), d, acc);
  }
  return acc;
}

}  // namespace memra::MEMRA_VARIANT
