#include "border.h"

#include <algorithm>

namespace memra::sampler {
namespace {

constexpr int few = 256;      // so many are sorted
constexpr int sampled = 256;  // keys looked at to choose the next pivots
constexpr int margin = 24;    // of them, on either side of the estimate: three standard deviations at a half (8)

struct Entry {
  int32_t key;
  float mass;
};

bool greater(const Entry& a, const Entry& b) { return a.key > b.key; }

// The border's key lies in [low, high); `above` is the mass from `high` on. `mass` and `count` bound what is between.
struct Bracket {
  int64_t low, high;
  double above, mass;
  int64_t count;
};

class Narrowing {
 public:
  Narrowing(const Passes& passes, const Keyed& all, const Search& search, Workspace& space)
      : passes_(passes), active_(all), target_(search.target), space_(space),
        bracket_{search.low, search.high, 0.0, search.mass, all.n} {}

  // The border's key, and the mass above it.
  Entry run(int64_t guess, double& above) {
    if (active_.n > few) probe(guess);
    while (bracket_.high - bracket_.low > 1) {
      shrink();
      if (active_.n <= few) return sort(above);
      const int64_t before = bracket_.count;
      probe_sampled();
      if (bracket_.count > before / 4 * 3) probe(bracket_.low + (bracket_.high - bracket_.low) / 2);
    }
    above = bracket_.above;
    return {(int32_t)bracket_.low, 0.0f};
  }

 private:
  const Passes& passes_;
  Keyed active_;
  double target_;
  Workspace& space_;
  Bracket bracket_;

  // Moves one end of the bracket to the pivot.
  void probe(int64_t pivot) {
    if (pivot <= bracket_.low || pivot >= bracket_.high) return;
    const RangeSum found = passes_.sum_range(active_.keys, active_.masses, active_.n, pivot, bracket_.high);
    if (bracket_.above + found.mass >= target_) {
      bracket_.low = pivot;
      bracket_.mass = found.mass;
      bracket_.count = found.count;
    } else {
      bracket_.high = pivot;
      bracket_.above += found.mass;
      bracket_.mass -= found.mass;
      bracket_.count -= found.count;
    }
  }

  // Forgets what lies outside of the bracket, where that saves work.
  void shrink() {
    if (bracket_.count > active_.n / 2) return;
    const int n = passes_.gather_range(active_.keys, active_.masses, active_.n, bracket_.low, bracket_.high,
                                       space_.spare_keys, space_.spare_masses);
    pad(space_.spare_keys, space_.spare_masses, n);
    active_ = {space_.spare_keys, space_.spare_masses, n};
    bracket_.count = n;
  }

  // Two pivots around the place that a regular sample suggests.
  void probe_sampled() {
    Entry sample[sampled];
    int count = 0;
    double mass = 0.0;
    for (int i = 0; i < sampled; i++) {
      const int place = (int)((int64_t)i * active_.n / sampled);
      const Entry entry = {active_.keys[place], active_.masses[place]};
      if (entry.key < bracket_.low || entry.key >= bracket_.high) continue;
      sample[count++] = entry;
      mass += entry.mass;
    }
    if (!count) return;
    std::sort(sample, sample + count, greater);
    const double wanted = (target_ - bracket_.above) / bracket_.mass * mass;
    int place = 0;
    for (double sum = sample[0].mass; place + 1 < count && sum < wanted; sum += sample[place].mass) place++;
    const int64_t lower = sample[std::min(place + margin, count - 1)].key;
    if (place >= margin) probe((int64_t)sample[place - margin].key + 1);
    if (lower == bracket_.low) probe(lower + 1);  // many equal keys: is this the border?
    probe(lower);
  }

  Entry sort(double& above) {
    Entry entries[few];
    int count = 0;
    for (int i = 0; i < active_.n; i++)
      if (active_.keys[i] >= bracket_.low && active_.keys[i] < bracket_.high)
        entries[count++] = {active_.keys[i], active_.masses[i]};
    std::sort(entries, entries + count, greater);
    double sum = above = bracket_.above;
    Entry border = {(int32_t)bracket_.low, 0.0f};
    for (int i = 0; i < count && sum < target_; i++) {
      if (!i || entries[i].key != border.key) above = sum;
      border = entries[i];
      sum += border.mass;
    }
    return border;
  }
};

// The place behind the last element of the border's key that is needed.
int find_end(const Passes& passes, const Keyed& all, int32_t key, double above, double target) {
  for (int start = 0; start < all.n; start += sum_block) {
    const int n = std::min(sum_block, all.n - start);
    const double mass = passes.sum_range(all.keys + start, all.masses + start, n, key, (int64_t)key + 1).mass;
    if (above + mass < target) {
      above += mass;
      continue;
    }
    for (int i = start; i < start + n; i++) {
      if (all.keys[i] != key) continue;
      above += all.masses[i];
      if (above >= target) return i + 1;
    }
  }
  return all.n;  // rounding: the target is the whole mass
}

}  // namespace

Border find_border(const Passes& passes, const Keyed& all, const Search& search, Workspace& space) {
  double above = 0.0;
  const Entry border = Narrowing(passes, all, search, space).run(search.guess, above);
  return {border.key, find_end(passes, all, border.key, above, search.target)};
}

}  // namespace memra::sampler
