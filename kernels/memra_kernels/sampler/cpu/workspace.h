// The sampler's memory: one allocation that the caller owns, cut into arrays over the vocabulary.
#pragma once
#include <climits>
#include <cstddef>
#include <cstdint>

#include "row_passes.h"

namespace memra::sampler {

constexpr int sum_block = 512;   // tokens under one sum of the draw: near the square root of large vocabularies
constexpr int peak_block = 256;  // tokens under one maximum, where top-k looks at them
constexpr int wide_block = 4096;  // the same where only the largest of all is wanted

// Elements of an array over n tokens: rounded up to whole chunks, and one more chunk that gathering may write into.
constexpr size_t padded(size_t n) { return (n + chunk - 1) / chunk * chunk + chunk; }

struct Workspace {
  float *row, *values, *weights, *spare_masses, *block_max;
  int32_t* places;
  Key *keys, *spare_keys;
  double* sums;

  static constexpr size_t alignment = 64;

  static size_t bytes(int vocab_size) {
    const size_t n = (size_t)vocab_size;
    return alignment + 7 * padded(n) * 4 + padded(n / peak_block + 1) * 4 + padded(n / sum_block + 1) * 8;
  }

  Workspace(void* memory, int vocab_size) {
    const size_t n = (size_t)vocab_size;
    char* p = (char*)(((uintptr_t)memory + alignment - 1) / alignment * alignment);
    auto take = [&p]<class T>(T*& array, size_t count) {
      array = (T*)p;
      p += count * sizeof(T);
    };
    take(row, padded(n));
    take(values, padded(n));
    take(weights, padded(n));
    take(spare_masses, padded(n));
    take(places, padded(n));
    take(keys, padded(n));
    take(spare_keys, padded(n));
    take(block_max, padded(n / peak_block + 1));
    take(sums, padded(n / sum_block + 1));
  }
};

// Fills the rest of the last chunk behind n elements with what no range holds.
inline void pad(Key* keys, float* masses, int n) {
  for (int i = n; i % chunk; i++) {
    keys[i] = INT_MIN;
    masses[i] = 0.0f;
  }
}

}  // namespace memra::sampler
