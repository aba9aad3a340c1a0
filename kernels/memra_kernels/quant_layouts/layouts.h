// The tiled weight layouts: one per stored type, lossless, in the order in which a kernel reads them.
//
// A tile is 16 output rows as one contiguous stream. A block is 32 input elements of all 16 rows; a record is one
// superblock: a header with the scales of its blocks, then the blocks. Inside a block, k goes in groups of four
// bytes: vector i holds elements 4i..4i+3 of rows 0..15, so that one lane of an integer dot product is one row.
// Rows beyond the last and blocks beyond K have scale zero.
#pragma once
#include <cstddef>
#include <cstdint>

namespace memra {

enum class Layout : int32_t {
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q4_K,
  Q5_K,
  Q6_K,
  Q2_K,
  Q3_K,
  IQ4_NL,
  IQ4_XS,
  MXFP4,
  NVFP4,
  Grid32,  // IQ1_S, IQ2_XXS
  Grid16,  // IQ1_M, IQ2_XS, IQ2_S
  IQ3_XXS,
  IQ3_S,
  Ternary,  // TQ1_0, TQ2_0, Q1_0
  F16,
  BF16,
  F32
};

enum class Scale {
  Half32,     // header: f16 s[SB][16]; one scale per block
  Bfloat32,   // header: bf16 s[SB][16]; exact for powers of two
  Half16,     // header: f16 s[SB][2][16]; one scale per half block
  KByte32,    // header: f16 d[16], f16 dmin[16], u8 scale[SB][16]; scale = d * byte
  KSigned32,  // as KByte32 with signed bytes
  KByte16,    // header: f16 d[16], f16 dmin[16], u8 scale[SB][2][16]; one byte per half block
  KSigned16,  // as KByte16 with signed bytes
  None,       // the weights are floats
};

enum class Min {
  None,
  Half32,   // + f16 m[SB][16] after the scales; weight = scale * q + m
  KByte32,  // + u8 min[SB][16]; weight = scale * q - dmin * byte
  KByte16,  // + u8 min[SB][2][16]
};

struct LayoutTraits {
  int bits;         // stored bits of a quant: nibbles, nibbles and a plane, or bytes
  int offset_log2;  // the quant stands for q - 2**offset_log2; -1 is no offset
  Scale scale;
  Min min;
  const uint8_t* table;  // 16 bytes that a nibble looks up, or null
  int scale_log2 = 0;    // K types: every scale is also multiplied by 2**scale_log2
};

// Values of ggml's non-linear four-bit types, plus the offset that makes them unsigned
// (ggml-common.h: kvalues_iq4nl + 128, kvalues_mxfp4 + 16).
inline constexpr uint8_t iq4_table[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
inline constexpr uint8_t mxfp4_table[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};
// Values of the grids of ggml-common.h. IQ2: 8, 25, 43 and their negatives, plus 64; IQ1 in eighths: -8, 0 and 8, each
// plus 1 and minus 1, plus 64; both are one table because their layouts differ in nothing else.
inline constexpr uint8_t grid_table[16] = {72, 89, 107, 56, 39, 21, 57, 55, 65, 63, 73, 71, 64, 64, 64, 64};
// 4, 12 to 52 and 62, then their negatives, plus 64; odd numbers to 15, then their negatives, plus 16.
inline constexpr uint8_t iq3_xxs_table[16] = {68, 76, 84, 92, 100, 108, 116, 126, 60, 52, 44, 36, 28, 20, 12, 2};
inline constexpr uint8_t iq3_s_table[16] = {17, 19, 21, 23, 25, 27, 29, 31, 15, 13, 11, 9, 7, 5, 3, 1};

static constexpr LayoutTraits traits(Layout layout) {
  switch (layout) {
    case Layout::Q4_0: return {4, 3, Scale::Half32, Min::None, nullptr};
    case Layout::Q4_1: return {4, -1, Scale::Half32, Min::Half32, nullptr};
    case Layout::Q5_0: return {5, 4, Scale::Half32, Min::None, nullptr};
    case Layout::Q5_1: return {5, -1, Scale::Half32, Min::Half32, nullptr};
    case Layout::Q8_0: return {8, 7, Scale::Half32, Min::None, nullptr};
    case Layout::Q4_K: return {4, -1, Scale::KByte32, Min::KByte32, nullptr};
    case Layout::Q5_K: return {5, -1, Scale::KByte32, Min::KByte32, nullptr};
    case Layout::Q6_K: return {6, 5, Scale::KSigned16, Min::None, nullptr};
    case Layout::Q2_K: return {2, -1, Scale::KByte16, Min::KByte16, nullptr};
    case Layout::Q3_K: return {4, 2, Scale::KSigned16, Min::None, nullptr};
    case Layout::IQ4_NL: return {4, 7, Scale::Half32, Min::None, iq4_table};
    case Layout::IQ4_XS: return {4, 7, Scale::KSigned32, Min::None, iq4_table};
    case Layout::MXFP4: return {4, 4, Scale::Bfloat32, Min::None, mxfp4_table};
    case Layout::NVFP4: return {4, 4, Scale::Half16, Min::None, mxfp4_table};
    case Layout::Grid32: return {4, 6, Scale::KByte32, Min::None, grid_table, -3};
    case Layout::Grid16: return {4, 6, Scale::KByte16, Min::None, grid_table, -3};
    case Layout::IQ3_XXS: return {4, 6, Scale::KByte32, Min::None, iq3_xxs_table, -2};
    case Layout::IQ3_S: return {4, 4, Scale::KByte32, Min::None, iq3_s_table};
    case Layout::Ternary: return {2, 0, Scale::Half32, Min::None, nullptr};
    case Layout::F16: return {16, -1, Scale::None, Min::None, nullptr};
    case Layout::BF16: return {16, -1, Scale::None, Min::None, nullptr};
    case Layout::F32: return {32, -1, Scale::None, Min::None, nullptr};
  }
  return {};
}

static constexpr bool is_float(Layout layout) { return traits(layout).scale == Scale::None; }
static constexpr bool is_halved(Scale scale) {
  return scale == Scale::KByte16 || scale == Scale::KSigned16 || scale == Scale::Half16;
}
static constexpr bool is_k(Scale scale) {
  return scale == Scale::KByte32 || scale == Scale::KSigned32 || scale == Scale::KByte16 || scale == Scale::KSigned16;
}

// Blocks of 32 in a record: 8 for the 256-element types, 2 for those whose scales are 16-bit (a 64-byte header line).
static constexpr int record_blocks(Layout layout) { return is_k(traits(layout).scale) ? 8 : is_float(layout) ? 1 : 2; }

static constexpr float scale_factor(Layout layout) { return 1.0f / (float)(1 << -traits(layout).scale_log2); }

static constexpr int scale_offset(Layout layout) { return is_k(traits(layout).scale) ? 64 : 0; }

static constexpr int min_offset(Layout layout) {
  const Scale scale = traits(layout).scale;
  return scale_offset(layout) + (is_k(scale) ? 128 : 64) * (is_halved(scale) ? 2 : 1);
}

static constexpr int header_bytes(Layout layout) {
  if (is_float(layout)) return 0;
  switch (traits(layout).min) {
    case Min::None: return min_offset(layout);
    case Min::Half32: return min_offset(layout) + 64;
    case Min::KByte32: return min_offset(layout) + 128;
    case Min::KByte16: return min_offset(layout) + 256;
  }
  return 0;
}

static constexpr int block_bytes(Layout layout) { return 64 * traits(layout).bits; }

static constexpr size_t record_bytes(Layout layout) {
  return (size_t)header_bytes(layout) + (size_t)record_blocks(layout) * block_bytes(layout);
}

// One matrix in tiles. `data` points into memory that outlives it: an arena or a mapped file.
struct Weight {
  Layout layout;
  int32_t rows, cols, tiles, records;
  size_t tile_bytes;
  uint8_t* data;
};

}  // namespace memra
