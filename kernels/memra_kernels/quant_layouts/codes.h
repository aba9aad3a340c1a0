// One record of weights taken apart: what stored blocks become before they are written in tiles.
#pragma once
#include <cstdint>
#include <cstring>

namespace memra {

// ggml.h: numbers of the types that share a layout with another, or a decoder.
enum : int {
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq3_s = 21,
  iq2_s = 22,
  iq1_m = 29,
  tq1_0 = 34,
  tq2_0 = 35,
  q1_0 = 41
};

// Up to 256 consecutive weights of one row, in the terms of their tiled layout.
struct Codes {
  uint8_t q[256];                        // unsigned quants, or table indices
  uint16_t scale[8], min[8];             // 16-bit scales and minimums per block (Half16: per half block); for K types
                                         // the superblock's in [0]
  uint8_t scale_byte[16], min_byte[16];  // per half block; per block in the even entries
};

namespace stored {

static inline uint16_t u16(const uint8_t* p) {
  uint16_t v;
  memcpy(&v, p, 2);
  return v;
}

static inline uint32_t u32(const uint8_t* p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return v;
}

}  // namespace stored
}  // namespace memra
