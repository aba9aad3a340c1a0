// The smallest set of elements of greatest key whose mass reaches a target, found without sorting the row.
#pragma once
#include "workspace.h"

namespace memra::sampler {

// n elements, padded; no key is INT_MIN.
struct Keyed {
  const Key* keys;
  const float* masses;
  int n;
};

// Keeps every key above `key`, and `key` itself at places below `end`.
struct Border {
  int32_t key;
  int end;

  bool keeps(int32_t other, int place) const { return other > key || (other == key && place < end); }
};

struct Search {
  double target;  // above zero
  int64_t low;    // elements with smaller keys are never needed
  int64_t high;   // above all keys
  int64_t guess;  // tried first, where it lies between the two; with luck few keys are above it
  double mass;    // of all elements
};

// Ties at the border go to lower places. Uses the workspace's spare arrays, which `all` must not lie in.
Border find_border(const Passes& passes, const Keyed& all, const Search& search, Workspace& space);

}  // namespace memra::sampler
