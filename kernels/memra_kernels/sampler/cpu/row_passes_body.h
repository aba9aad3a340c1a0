// The passes of row_passes.h for one instruction set. Included several times, by row_passes.cpp, with these macros
// set: MEMRA_PASSES the namespace, MEMRA_PASSES_NAME its name, MEMRA_PASSES_TARGET the attribute of every function,
// MEMRA_PASSES_BYTES a register's size, MEMRA_PASSES_BITS(flags) the signs of a register's lanes as bits.
//
// Every operation is an IEEE one on one element, no two are fused, and sums have one order whatever the register:
// chunks of 64 elements become sixteen floats, ((x[i] + x[i+16]) + (x[i+32] + x[i+48])), which are added to sixteen
// doubles, which are added by halving at the end. No address of an array can change a bit either.

namespace memra::sampler::MEMRA_PASSES {

#define MEMRA_FN MEMRA_PASSES_TARGET static inline

constexpr int width = MEMRA_PASSES_BYTES / 4;  // floats in a register
constexpr int half = width / 2;                // doubles in a register
constexpr int lanes = 16;

typedef float F __attribute__((vector_size(MEMRA_PASSES_BYTES)));
typedef int32_t I __attribute__((vector_size(MEMRA_PASSES_BYTES)));
typedef double D __attribute__((vector_size(MEMRA_PASSES_BYTES)));
typedef float HF __attribute__((vector_size(MEMRA_PASSES_BYTES / 2)));
typedef int32_t HI __attribute__((vector_size(MEMRA_PASSES_BYTES / 2)));
// The same in memory, at any address.
typedef F FM __attribute__((aligned(4), may_alias));
typedef I IM __attribute__((aligned(4), may_alias));
typedef HF HFM __attribute__((aligned(4), may_alias));
typedef HI HIM __attribute__((aligned(4), may_alias));

MEMRA_FN F load(const float* p) { return *(const FM*)p; }
MEMRA_FN I load(const Key* p) { return *(const IM*)p; }
MEMRA_FN void store(float* p, F v) { *(FM*)p = v; }
MEMRA_FN void store(Key* p, I v) { *(IM*)p = v; }
MEMRA_FN F all(float v) { return F{} + v; }
MEMRA_FN I all(int32_t v) { return I{} + v; }

// A running sum, in sixteen double lanes.
struct Sum {
  D part[lanes / half];
};

// Adds a chunk: its registers, in order.
MEMRA_FN void add(Sum& sum, const F* x) {
  constexpr int registers = lanes / width;
#pragma GCC unroll 4
  for (int r = 0; r < registers; r++) {
    const F four = (x[r] + x[r + registers]) + (x[r + 2 * registers] + x[r + 3 * registers]);
    HF halves[2];
    std::memcpy(halves, &four, sizeof four);
    sum.part[2 * r] += __builtin_convertvector(halves[0], D);
    sum.part[2 * r + 1] += __builtin_convertvector(halves[1], D);
  }
}

MEMRA_FN double total(const Sum& sum) {
  double v[lanes];
  std::memcpy(v, sum.part, sizeof v);
#pragma GCC unroll 4
  for (int n = lanes / 2; n; n /= 2)
    for (int i = 0; i < n; i++) v[i] += v[i + n];
  return v[0];
}

// The next chunk, or, at the end of the row, what is left with minus infinity behind it.
MEMRA_FN const float* next_chunk(const float* values, int left, float* room) {
  if (left >= chunk) return values;
  for (int i = 0; i < chunk; i++) room[i] = i < left ? values[i] : -INFINITY;
  return room;
}

// (value - peak) / temperature; dividing by one changes nothing and is left out.
template <bool Divide>
MEMRA_FN F exponent(const float* p, Scale scale) {
  const F shifted = load(p) - scale.peak;
  return Divide ? shifted / scale.temperature : shifted;
}

MEMRA_FN F exponent(const float* p, Scale scale) { return exponent<true>(p, scale); }

// One bit a lane of a chunk: what `test` says of the register at each place.
template <class Test>
MEMRA_FN uint64_t test_chunk(Test test) {
  uint64_t bits = 0;
#pragma GCC unroll 16
  for (int j = 0; j < chunk; j += width) bits |= (uint64_t)MEMRA_PASSES_BITS(test(j)) << j;
  return bits;
}

// exp(x) for x <= 0, relative error below 3e-7, by x = n ln 2 + r and the Taylor series to r**7 on |r| <= ln 2 / 2,
// where the remainder r**8 / 8! is below 6e-9. Zero below -87: no answer is subnormal, whatever the processor does
// with those.
MEMRA_FN F exp_negative(F x) {
  const F clamped = x > all(-87.0f) ? x : all(-87.0f);
  const F shifted = clamped * 1.44269504f + 12582912.0f;  // 1 / ln 2; 1.5 * 2**23 rounds to an integer
  const F n = shifted - 12582912.0f;
  // ln 2 in two parts, the first with zeros at its end, so that n * part is exact (Cody and Waite).
  const F r = (clamped - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  F p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const I power = ((I)shifted - 0x4b400000 + 127) << 23;  // the integer in the low bits of `shifted`, as 2**n
  return (F)((I)(p * (F)power) & (x >= all(-87.0f)));
}

// The largest lane.
MEMRA_FN float highest(F x) {
  float v[width];
  store(v, x);
#pragma GCC unroll 4
  for (int n = width / 2; n; n /= 2)
    for (int i = 0; i < n; i++) v[i] = v[i + n] > v[i] ? v[i + n] : v[i];
  return v[0];
}

MEMRA_PASSES_TARGET static Peak find_peak(const float* values, int n, int block, float* block_max) {
  float room[chunk], peak = -INFINITY;
  I unordered = {};
  for (int start = 0; start < n; start += block) {
    const int end = n - start < block ? n : start + block;
    F most[4] = {all(-INFINITY), all(-INFINITY), all(-INFINITY), all(-INFINITY)};  // no order matters to a maximum
    for (int i = start; i < end; i += chunk) {
      const float* p = next_chunk(values + i, end - i, room);
#pragma GCC unroll 16
      for (int j = 0; j < chunk / width; j++) {
        const F x = load(p + j * width);
        most[j % 4] = x > most[j % 4] ? x : most[j % 4];
        unordered |= x != x;
      }
    }
    const F low = most[1] > most[0] ? most[1] : most[0], high = most[3] > most[2] ? most[3] : most[2];
    const float block_peak = block_max[start / block] = highest(high > low ? high : low);
    if (block_peak > peak) peak = block_peak;
  }
  return {peak, MEMRA_PASSES_BITS(unordered) != 0};
}

MEMRA_PASSES_TARGET static void mask_row(const float* values, const uint32_t* mask, int n, float* out) {
  I bit = {};
  for (int i = 0; i < width; i++) bit[i] = 1 << i;
  float room[chunk];
  for (int i = 0; i < n; i += chunk) {
    const float* p = next_chunk(values + i, n - i, room);
    const int num_words = n - i > 32 ? 2 : 1;  // the last chunk may have no second word
    const uint64_t words = mask[i / 32] | (num_words == 2 ? (uint64_t)mask[i / 32 + 1] << 32 : 0);
#pragma GCC unroll 16
    for (int j = 0; j < chunk; j += width) {
      const I allowed = (all((int32_t)(uint32_t)(words >> j)) & bit) != 0;
      store(out + i + j, allowed ? load(p + j) : all(-INFINITY));
    }
  }
}

template <bool Divide>
MEMRA_FN double weigh_all(const float* values, int n, Scale scale, float* weights) {
  Sum sum = {};
  float room[chunk];
  for (int i = 0; i < n; i += chunk) {
    const float* p = next_chunk(values + i, n - i, room);
    F x[chunk / width];
#pragma GCC unroll 16
    for (int j = 0; j < chunk / width; j++) {
      x[j] = exp_negative(exponent<Divide>(p + j * width, scale));
      store(weights + i + j * width, x[j]);
    }
    add(sum, x);
  }
  return total(sum);
}

MEMRA_PASSES_TARGET static double weigh(const float* values, int n, Scale scale, float* weights) {
  return scale.temperature == 1.0f ? weigh_all<false>(values, n, scale, weights)
                                   : weigh_all<true>(values, n, scale, weights);
}

MEMRA_PASSES_TARGET static RangeSum sum_range(const Key* keys, const float* masses, int n, int64_t low, int64_t high) {
  Sum sum = {};
  const I above = all((int32_t)(low - 1)), last = all((int32_t)(high - 1));
  I count = {};
  for (int i = 0; i < n; i += chunk) {
    F x[chunk / width];
#pragma GCC unroll 16
    for (int j = 0; j < chunk / width; j++) {
      const I key = load(keys + i + j * width), inside = (key > above) & (key <= last);
      x[j] = (F)((I)load(masses + i + j * width) & inside);
      count = inside ? count + 1 : count;
    }
    add(sum, x);
  }
  int64_t found = 0;
  for (int i = 0; i < width; i++) found += count[i];
  return {total(sum), found};
}

MEMRA_PASSES_TARGET static int gather_places(const float* values, int first, int n, float border, int32_t* places,
                                             int count) {
  float room[chunk];
  for (int i = first; i < first + n; i += chunk) {
    const float* p = next_chunk(values + i, first + n - i, room);
    uint64_t bits = test_chunk([&](int j) MEMRA_PASSES_TARGET { return load(p + j) >= all(border); });
    if (first + n - i < chunk) bits &= ((uint64_t)1 << (first + n - i)) - 1;
    for (; bits; bits &= bits - 1) places[count++] = i + std::countr_zero(bits);
  }
  return count;
}

MEMRA_PASSES_TARGET static int gather_range(const Key* keys, const float* masses, int n, int64_t low, int64_t high,
                                            Key* out_keys, float* out_masses) {
  const I above = all((int32_t)(low - 1)), last = all((int32_t)(high - 1));
  int count = 0;
  for (int i = 0; i < n; i += chunk) {
    uint64_t bits = test_chunk([&](int j) MEMRA_PASSES_TARGET {
      const I key = load(keys + i + j);
      return (key > above) & (key <= last);
    });
    for (; bits; bits &= bits - 1) {
      const int place = i + std::countr_zero(bits);
      out_keys[count] = keys[place];
      out_masses[count++] = masses[place];
    }
  }
  return count;
}

MEMRA_PASSES_TARGET static double sum_exponents(const float* values, const float* weights, int n, Scale scale) {
  Sum sum = {};
  float room[chunk];
  for (int i = 0; i < n; i += chunk) {
    const float* p = next_chunk(values + i, n - i, room);
    F product[chunk / width];
#pragma GCC unroll 16
    for (int j = 0; j < chunk / width; j++) {
      const F x = exponent(p + j * width, scale);
      product[j] = (x > all(-87.0f) ? x : all(-87.0f)) * load(weights + i + j * width);
    }
    add(sum, product);
  }
  return total(sum);
}

MEMRA_PASSES_TARGET static void near_keys(const float* values, int n, Scale scale, float centre, Key* keys) {
  float room[chunk];
  for (int i = 0; i < n; i += chunk) {
    const float* p = next_chunk(values + i, n - i, room);
#pragma GCC unroll 16
    for (int j = 0; j < chunk; j += width) {
      const I distance = (I)(exponent(p + j, scale) - centre) & 0x7fffffff;
      store(keys + i + j, 0x7f800000 - distance);  // bits of floats that are not negative are in the floats' order
    }
  }
}

MEMRA_PASSES_TARGET static void order_keys(const float* values, int n, Key* keys) {
  float room[chunk];
  for (int i = 0; i < n; i += chunk) {
    const float* p = next_chunk(values + i, n - i, room);
#pragma GCC unroll 16
    for (int j = 0; j < chunk; j += width) {
      const I bits = (I)(load(p + j) + all(0.0f));  // makes minus zero zero
      store(keys + i + j, bits ^ ((bits >> 31) & 0x7fffffff));
    }
  }
}

MEMRA_PASSES_TARGET static double drop(const Key* keys, int n, int32_t key, int end, float* masses) {
  Sum sum = {};
  I lane = {};
  for (int i = 0; i < width; i++) lane[i] = i;
  for (int i = 0; i < n; i += chunk) {
    F x[chunk / width];
#pragma GCC unroll 16
    for (int j = 0; j < chunk / width; j++) {
      const I other = load(keys + i + j * width), place = lane + (i + j * width);
      const I kept = (other > all(key)) | ((other == all(key)) & (place < all(end)));
      x[j] = (F)((I)load(masses + i + j * width) & kept);
      store(masses + i + j * width, x[j]);
    }
    add(sum, x);
  }
  return total(sum);
}

constexpr Passes passes = {MEMRA_PASSES_NAME, find_peak,     mask_row,   weigh,     sum_range, gather_places,
                           gather_range,      sum_exponents, order_keys, near_keys, drop};

#undef MEMRA_FN

}  // namespace memra::sampler::MEMRA_PASSES
