// The AMX unit (TILE and INT8): eight or sixteen activation rows times one block of sixteen outputs, in int32.
//
// The configuration never changes, so a thread loads it once a step. Own assembly instead of the compiler's intrinsics,
// which do not tell the compiler what memory they read and write.
#pragma once
#include <cstdint>

namespace memra::MEMRA_VARIANT {

// Tiles by number, for N = 8 and 16 rows of activations.
template <int N>
constexpr int tile_sums = N == 16 ? 0 : 1;
template <int N>
constexpr int tile_activations = N == 16 ? 2 : 3;
constexpr int tile_weights = 4;

// Operand of LDTILECFG, palette 1: Intel SDM volume 2.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 32, 32, 64};
  uint8_t rows[16] = {16, 8, 16, 8, 8};
};

inline constexpr TileConfig tile_config;

// Between these two calls the thread's tiles are ours; outside, other code of the process may configure its own.
static void begin_step() { asm volatile("ldtilecfg %0" : : "m"(tile_config)); }
static void end_step() { asm volatile("tilerelease"); }

// N rows of 32 activations, `spacing` bytes apart.
template <int N>
static inline void tile_load_rows(const int8_t* x, long spacing) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(tile_activations<N>), "r"(x), "r"(spacing) : "memory");
}

// out[n][output] = the loaded rows times weights `[8][16 outputs][4]`.
template <int N>
static inline void tile_product(const uint8_t* weights, int32_t (*out)[16]) {
  asm volatile(
      "tileloadd (%4,%6,1), %%tmm%c3\n\t"
      "tilezero %%tmm%c1\n\t"
      "tdpbssd %%tmm%c3, %%tmm%c2, %%tmm%c1\n\t"
      "tilestored %%tmm%c1, (%5,%6,1)"
      : "=m"(*(int32_t(*)[N][16])out)
      : "i"(tile_sums<N>), "i"(tile_activations<N>), "i"(tile_weights), "r"(weights), "r"(out), "r"((long)64),
        "m"(*(const uint8_t(*)[8][64])weights));
}

}  // namespace memra::MEMRA_VARIANT
