// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011; constants of their Random123 library).
#pragma once
#include <cstdint>

namespace memra::sampler {

// The number in [0, 1) that belongs to a key and a counter, with 53 random bits.
inline double uniform(uint64_t seed, uint64_t position) {
  uint32_t w0 = (uint32_t)position, w1 = (uint32_t)(position >> 32), w2 = 0, w3 = 0;
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = 0xD2511F53ull * w0, p1 = 0xCD9E8D57ull * w2;
    w0 = (uint32_t)(p1 >> 32) ^ w1 ^ k0;
    w1 = (uint32_t)p1;
    w2 = (uint32_t)(p0 >> 32) ^ w3 ^ k1;
    w3 = (uint32_t)p0;
    k0 += 0x9E3779B9u;  // the golden ratio
    k1 += 0xBB67AE85u;  // sqrt(3) - 1
  }
  return (double)(((uint64_t)w0 << 32 | w1) >> 11) * 0x1p-53;
}

}  // namespace memra::sampler
