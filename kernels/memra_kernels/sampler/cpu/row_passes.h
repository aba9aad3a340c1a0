// Passes over a row: the vectorised inner loops of the sampler, once per instruction set, the same bits from each.
#pragma once
#include <cstdint>

namespace memra::sampler {

// Arrays that a pass reads as keys, masses or weights end on a multiple of this; see `pad` in workspace.h.
constexpr int chunk = 64;

// A key may be the bits of a float, read where they lie.
typedef int32_t Key __attribute__((may_alias));

struct Peak {
  float value;
  bool has_nan;
};

struct RangeSum {
  double mass;
  int64_t count;
};

// What scales a logit to an exponent: (logit - peak) / temperature, in float32.
struct Scale {
  float peak, temperature;
};

struct Passes {
  const char* name;

  // The largest of n values, minus infinity where there is none, and whether one of them is NaN; block_max[b] is the
  // largest of values[b * block] to values[(b + 1) * block - 1]. `block` is a multiple of 64.
  Peak (*find_peak)(const float* values, int n, int block, float* block_max);

  // out[i] = values[i] where bit i % 32 of mask[i / 32] is set, else minus infinity; to the end of the chunk.
  void (*mask_row)(const float* values, const uint32_t* mask, int n, float* out);

  // weights[i] = exp((values[i] - peak) / temperature), zero below exp(-87), to the end of the chunk; returns the sum.
  double (*weigh)(const float* values, int n, Scale scale, float* weights);

  // Sum and number of what has low <= key < high. Reads whole chunks.
  RangeSum (*sum_range)(const Key* keys, const float* masses, int n, int64_t low, int64_t high);

  // Appends the places i, ascending, with first <= i < first + n and values[i] >= border; returns the new count.
  int (*gather_places)(const float* values, int first, int n, float border, int32_t* places, int count);

  // Copies what has low <= key < high to the front of the outputs, which may be the inputs; returns
  // how many. Reads whole chunks.
  int (*gather_range)(const Key* keys, const float* masses, int n, int64_t low, int64_t high, Key* out_keys,
                      float* out_masses);

  // The sum of weights[i] * x[i], where x is the exponent of values[i].
  double (*sum_exponents)(const float* values, const float* weights, int n, Scale scale);

  // keys[i]: an integer in the order of values[i], equal for both zeros.
  void (*order_keys)(const float* values, int n, Key* keys);

  // keys[i]: the greater, the nearer the exponent of values[i] lies to `centre`; to the end of the chunk.
  void (*near_keys)(const float* values, int n, Scale scale, float centre, Key* keys);

  // Zeroes masses[i] unless keys[i] > key, or keys[i] == key and i < end; returns the sum of the others.
  double (*drop)(const Key* keys, int n, int32_t key, int end, float* masses);
};

// The passes of an instruction set, or null where this processor lacks it. Best first; null ends the list.
const Passes* usable_passes(int index);

}  // namespace memra::sampler
