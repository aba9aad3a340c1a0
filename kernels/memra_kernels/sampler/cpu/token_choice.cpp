#include "token_choice.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <functional>

#include "border.h"
#include "philox.h"

namespace memra::sampler {
namespace {

constexpr double min_temperature = 1e-5;  // lower ones act like this; float32 would make them zero
constexpr double guess_divisor = 64.0;    // the first border tried for top-p, as a part of the mass that may be missing
constexpr int32_t one_bits = 0x3f800000;  // 1.0f; the bits of floats that are not negative are in the floats' order
constexpr int32_t infinity_bits = 0x7f800000;

struct NotFinite {
  int token;
  float value;
};
struct BadArgument {};

int32_t bits_of(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// An integer in the order of floats, equal for both zeros.
int32_t ordered(float value) {
  const int32_t bits = bits_of(value + 0.0f);
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}

float from_ordered(int32_t key) {
  const int32_t bits = key < 0 ? key ^ 0x7fffffff : key;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// ln(x) for x > 0, normal: by the series of atanh to z**21 on |z| <= 0.172, whose rest is below 1e-18. The system's own
// differs between machines.
double natural_log(double x) {
  int exponent;
  double m = std::frexp(x, &exponent);  // [0.5, 1)
  if (m < 0.70710678118654752) {
    m *= 2.0;
    exponent--;
  }
  const double z = (m - 1.0) / (m + 1.0), z2 = z * z;
  double series = 0.0;
  for (int k = 21; k >= 1; k -= 2) series = series * z2 + 1.0 / k;
  return exponent * 0.69314718055994531 + 2.0 * z * series;
}

// Tokens that may still be drawn: `places` are their ids, ascending, or null for the whole vocabulary.
struct Candidates {
  const int32_t* places;
  int n;
  Border border;   // on the bits of `weights`: what does not keep its place is out
  float heaviest;  // weight of the likeliest
};

class Choice {
 public:
  Choice(const Passes& passes, const Request& request, void* memory)
      : passes_(passes), request_(request), space_(memory, request.vocab_size), n_(request.vocab_size) {}

  void run(Answer& answer) {
    if (request_.num_top < 0) {
      answer.token = pick();
      return;
    }
    const float peak = find_peak(request_.logits, peak_block);
    const double log_total = natural_log(passes_.weigh(request_.logits, n_, {peak, 1.0f}, space_.weights));
    list_top(answer, peak, log_total);
    answer.token = pick();
    answer.logprob = logprob(answer.token, peak, log_total);
  }

 private:
  const Passes& passes_;
  const Request& request_;
  Workspace space_;
  const int n_;

  float find_peak(const float* row, int block) {
    const Peak peak = passes_.find_peak(row, n_, block, space_.block_max);
    if (!peak.has_nan && std::isfinite(peak.value)) return peak.value;
    int token = 0;
    while (peak.has_nan ? row[token] == row[token] : row[token] != peak.value) token++;
    throw NotFinite{token, row[token]};
  }

  float logprob(int token, float peak, double log_total) const {
    return (float)((double)request_.logits[token] - peak - log_total);
  }

  // The likeliest tokens of the unchanged row, best first; find_peak has just seen it.
  void list_top(Answer& answer, float peak, double log_total) {
    const int num = std::min({request_.num_top, max_top, n_});
    if (!num) return;
    const float* row = request_.logits;
    keep_top(row, num, peak);
    std::copy(space_.places, space_.places + num, answer.top_ids);
    std::sort(answer.top_ids, answer.top_ids + num,
              [row](int a, int b) { return row[a] > row[b] || (row[a] == row[b] && a < b); });
    for (int i = 0; i < num; i++) answer.top_logprobs[i] = logprob(answer.top_ids[i], peak, log_total);
  }

  int pick() {
    const float* row = adjust();
    if (request_.temperature <= 0.0) return first_at(row, find_peak(row, wide_block));
    const float peak = find_peak(row, peak_block);
    const Scale scale = {peak, (float)std::max(request_.temperature, min_temperature)};
    Candidates candidates = {nullptr, n_, {0, 0}, 1.0f};
    if (request_.top_k > 0 && request_.top_k < n_) {
      keep_top(row, request_.top_k, peak);
      candidates.n = request_.top_k;
      candidates.places = space_.places;
      for (int i = 0; i < candidates.n; i++) space_.values[i] = row[space_.places[i]];
      row = space_.values;
    }
    double total = passes_.weigh(row, candidates.n, scale, space_.weights);
    if (request_.typical_p < 1.0) total = keep_typical(candidates, row, scale, total);
    if (request_.top_p < 1.0) keep_top_p(candidates, total);
    if (request_.min_p > 0.0) {
      const int32_t lowest = bits_of((float)std::min(request_.min_p, 1.0) * candidates.heaviest);
      if (lowest > candidates.border.key) candidates.border = {lowest, candidates.n};
    }
    return draw(candidates);
  }

  // Bias, penalties and mask, in a copy; the row itself where there are none.
  const float* adjust() {
    if (!request_.num_bias && !request_.num_window && !request_.mask) return request_.logits;
    float* row = space_.row;
    std::memcpy(row, request_.logits, (size_t)n_ * sizeof *row);
    for (int i = 0; i < request_.num_bias; i++) row[checked(request_.bias_ids[i])] += request_.bias_values[i];
    const float repetition = (float)request_.repetition_penalty;
    for (int i = 0; i < request_.num_window; i++) {
      float& logit = row[checked(request_.window_ids[i])];
      const float repeated = logit > 0.0f ? logit / repetition : logit * repetition;
      const double lowered = request_.window_counts[i] * request_.frequency_penalty + request_.presence_penalty;
      logit = (float)((double)repeated - lowered);
    }
    if (request_.mask) passes_.mask_row(row, request_.mask, n_, row);
    return row;
  }

  int64_t checked(int64_t token) const {
    if (token < 0 || token >= n_) throw BadArgument{};
    return token;
  }

  // The lowest id of the largest logit; find_peak has just seen the row in wide blocks.
  int first_at(const float* row, float peak) const {
    int token = 0;
    while (space_.block_max[token / wide_block] != peak) token += wide_block;
    while (row[token] != peak) token++;
    return token;
  }

  // Leaves the places of the `num` largest logits, ascending, in space_.places; find_peak has just seen the row.
  void keep_top(const float* row, int num, float peak) {
    const int num_blocks = (n_ + peak_block - 1) / peak_block;
    if (num * 3 > num_blocks) return keep_many(row, num, peak);
    // The num-th largest of the blocks' maxima is a lower bound of the border: only blocks that reach it are looked at.
    std::copy(space_.block_max, space_.block_max + num_blocks, space_.weights);
    std::nth_element(space_.weights, space_.weights + num - 1, space_.weights + num_blocks, std::greater<>());
    const float floor = space_.weights[num - 1];
    int count = 0;
    for (int start = 0; start < n_; start += peak_block)
      if (space_.block_max[start / peak_block] >= floor)
        count = passes_.gather_places(row, start, std::min(peak_block, n_ - start), floor, space_.places, count);
    for (int i = 0; i < count; i++) space_.values[i] = row[space_.places[i]];
    const Border border = top_border(space_.values, count, num, floor, peak);
    for (int i = 0, kept = 0; kept < num; i++) {
      space_.places[kept] = space_.places[i];
      kept += border.keeps(space_.keys[i], i);
    }
  }

  // The same without a bound, for a `num` that is not small.
  void keep_many(const float* row, int num, float peak) {
    const Border border = top_border(row, n_, num, -INFINITY, peak);
    const int count = passes_.gather_places(row, 0, n_, from_ordered(border.key), space_.places, 0);
    for (int i = 0, kept = 0; kept < num && count > num; i++) {
      const int place = space_.places[i];
      space_.places[kept] = place;
      kept += border.keeps(space_.keys[place], place);
    }
  }

  Border top_border(const float* values, int n, int num, float floor, float peak) {
    passes_.order_keys(values, n, space_.keys);
    std::fill(space_.weights, space_.weights + n, 1.0f);
    pad(space_.keys, space_.weights, n);
    const Search search = {(double)num, ordered(floor), (int64_t)ordered(peak) + 1, INT_MIN, (double)n};
    return find_border(passes_, {space_.keys, space_.weights, n}, search, space_);
  }

  // Locally typical sampling (Meister et al., arXiv 2202.00666); returns the mass that is left.
  double keep_typical(Candidates& candidates, const float* values, Scale scale, double total) {
    const double mean = passes_.sum_exponents(values, space_.weights, candidates.n, scale) / total;
    // With x the exponent, -log p = log(total) - x and the entropy is log(total) - mean: |-log p - H| = |x - mean|.
    passes_.near_keys(values, candidates.n, scale, (float)mean, space_.keys);
    const Search search = {std::max(request_.typical_p * total, DBL_MIN), 1, (int64_t)infinity_bits + 1, 0, total};
    const Border border = find_border(passes_, {space_.keys, space_.weights, candidates.n}, search, space_);
    const double mass = passes_.drop(space_.keys, candidates.n, border.key, border.end, space_.weights);
    candidates.heaviest = passes_.find_peak(space_.weights, candidates.n, peak_block, space_.block_max).value;
    return mass;
  }

  void keep_top_p(Candidates& candidates, double total) {
    const double missing = (1.0 - request_.top_p) * total;
    // Tokens that together weigh less than half of what may be missing are never needed; half, for the rounding.
    const int32_t lowest = std::max(bits_of((float)(0.5 * missing / candidates.n)), 1);
    const double guess = missing / guess_divisor;
    const Search search = {std::max(request_.top_p * total, DBL_MIN), lowest, (int64_t)one_bits + 1,
                           guess < 0.5 ? bits_of((float)guess) : 0, total};
    candidates.border = find_border(passes_, keyed(candidates), search, space_);
  }

  Keyed keyed(const Candidates& candidates) const {
    return {(const Key*)space_.weights, space_.weights, candidates.n};
  }

  // Walks over the candidates in order of id until more than the drawn part of their mass lies behind.
  int draw(const Candidates& candidates) {
    const Border border = candidates.border;
    const Keyed all = keyed(candidates);
    double total = 0.0;
    int num_blocks = 0;
    for (int start = 0; start < all.n; start += sum_block)
      space_.sums[num_blocks++] = total += kept_mass(all, start, std::min(sum_block, all.n - start), border);
    double target = uniform(request_.seed, request_.position) * total;
    // Rounding may put the target at the whole mass: the last token with any weight is meant.
    if (target >= total) target = std::nextafter(total, 0.0);
    int block = 0;
    while (space_.sums[block] <= target) block++;
    double sum = block ? space_.sums[block - 1] : 0.0;
    int last = 0;
    for (int i = block * sum_block; i < std::min(all.n, (block + 1) * sum_block); i++) {
      if (!all.masses[i] || !border.keeps(all.keys[i], i)) continue;
      last = i;
      sum += all.masses[i];
      if (sum > target) break;
    }
    return candidates.places ? candidates.places[last] : last;
  }

  double kept_mass(const Keyed& all, int start, int n, const Border& border) const {
    const int64_t key = border.key;
    if (border.end <= start || border.end >= start + n) {
      const int64_t low = border.end <= start ? key + 1 : key;
      return passes_.sum_range(all.keys + start, all.masses + start, n, low, INT_MAX).mass;
    }
    double mass = 0.0;
    for (int i = start; i < start + n; i++)
      if (border.keeps(all.keys[i], i)) mass += all.masses[i];
    return mass;
  }
};

}  // namespace

void choose(const Passes& passes, const Request& request, void* workspace, Answer& answer) {
  answer.status = (int32_t)Status::chosen;
  try {
    Choice(passes, request, workspace).run(answer);
  } catch (const NotFinite& found) {
    answer.status = (int32_t)Status::not_finite;
    answer.token = found.token;
    answer.value = found.value;
  } catch (const BadArgument&) {
    answer.status = (int32_t)Status::bad_argument;
  }
}

}  // namespace memra::sampler
