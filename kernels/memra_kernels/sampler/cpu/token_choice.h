// One row of logits to one token. The order of the steps and every tie rule are those of sampler/README.md.
#pragma once
#include <cstdint>

#include "row_passes.h"

namespace memra::sampler {

constexpr int max_top = 20;

enum class Status : int32_t { chosen = 0, not_finite = 1, bad_argument = 2 };

// Mirrored field by field in native_sampler.py. Null pointers go with counts of zero; a null mask allows everything.
struct Request {
  double temperature, top_p, min_p, typical_p;
  double repetition_penalty, frequency_penalty, presence_penalty;
  uint64_t seed, position;
  const float* logits;
  const int64_t* window_ids;
  const int32_t* window_counts;
  const int64_t* bias_ids;
  const float* bias_values;
  const uint32_t* mask;
  int32_t vocab_size, top_k, num_window, num_bias;
  int32_t num_top;  // log probabilities wanted, at most max_top; -1 for none at all, 0 for the chosen token's alone
};

// `token` and `value` name the offending logit where the status is not_finite.
struct Answer {
  int32_t status, token;
  float value, logprob;
  int32_t top_ids[max_top];
  float top_logprobs[max_top];
};

void choose(const Passes& passes, const Request& request, void* workspace, Answer& answer);

}  // namespace memra::sampler
