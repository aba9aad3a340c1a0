// From a row's router logits to its experts and their weights.
#pragma once
#include <cstring>

#include "../../runtime/types.h"
#include "../../runtime/vec_math.h"
#include "expert_lists.h"

namespace memra::MEMRA_VARIANT {

// Softmax or sigmoid of all logits. A padded row's lanes beyond the experts count as nothing.
static inline void router_scores(const ExpertsOp& op, const float* logits, float* scores) {
  const int n = op.num_experts;
  float highest = logits[0];
  for (int e = 1; e < n; e++) highest = logits[e] > highest ? logits[e] : highest;
  F sum = f_zero();
  for (int e = 0; e < n; e += 16) {
    const F x = f_load(logits + e);
    F s = op.router == RouterFunction::Sigmoid ? f_sigmoid(x) : f_exp(f_sub(x, f_set(highest)));
    if (n - e < 16) s = f_select(0, n - e, s, f_zero());
    f_store(scores + e, s);
    sum = f_add(sum, s);
  }
  if (op.router == RouterFunction::Sigmoid) return;
  const F inverse = f_set(1.0f / f_sum(sum));
  for (int e = 0; e < n; e += 16) f_store(scores + e, f_mul(f_load(scores + e), inverse));
}

// The best of `values`, the lowest index among equals; those marked as taken are passed over.
static inline int best_of(const float* values, const bool* taken, int n) {
  int best = -1;
  for (int i = 0; i < n; i++)
    if (!taken[i] && (best < 0 || values[i] > values[best])) best = i;
  return best;
}

// Marks the experts of all groups but the best ones as taken. A group ranks by its best choice value, or where experts
// have a correction by the sum of its two best.
static inline void take_weak_groups(const ExpertsOp& op, const float* values, bool* taken) {
  const int size = op.num_experts / op.num_groups;
  float ranks[max_experts];
  bool used[max_experts] = {};
  for (int g = 0; g < op.num_groups; g++) {
    const float* group = values + g * size;
    float first = -__builtin_inff(), second = -__builtin_inff();
    for (int i = 0; i < size; i++) {
      if (group[i] > first) {
        second = first;
        first = group[i];
      } else if (group[i] > second) {
        second = group[i];
      }
    }
    ranks[g] = op.correction ? first + second : first;
  }
  for (int n = 0; n < op.num_groups_used; n++) used[best_of(ranks, used, op.num_groups)] = true;
  for (int e = 0; e < op.num_experts; e++) taken[e] = !used[e / size];
}

// Weights of the chosen: their scores, made into a softmax of their own, into shares, and scaled, as the model asks.
static inline void choice_weights(const ExpertsOp& op, const float* scores, const int32_t* chosen, float* weights) {
  float sum = 0.0f;
  for (int j = 0; j < op.used; j++) {
    weights[j] = scores[chosen[j]];
    if (op.router == RouterFunction::SoftmaxOfChosen) {  // the first is the highest
      float lanes[16];
      f_store(lanes, f_exp(f_set(weights[j] - scores[chosen[0]])));
      weights[j] = lanes[0];
    }
    sum += weights[j];
  }
  const bool shares = op.normalise || op.router == RouterFunction::SoftmaxOfChosen;
  const float factor = shares ? op.weight_scale / (sum > 1e-20f ? sum : 1e-20f) : op.weight_scale;
  for (int j = 0; j < op.used; j++) weights[j] *= factor;
}

static void route_row(const ExpertsOp& op, int row) {
  float scores[max_experts + 16], values[max_experts];
  bool taken[max_experts] = {};
  const float* logits = op.logits->row(row);
  if (op.router == RouterFunction::SoftmaxOfChosen) memcpy(scores, logits, (size_t)op.num_experts * sizeof(float));
  else router_scores(op, logits, scores);
  for (int e = 0; e < op.num_experts; e++) values[e] = op.correction ? scores[e] + op.correction[e] : scores[e];
  if (op.num_groups_used < op.num_groups) take_weak_groups(op, values, taken);
  int32_t* chosen = op.lists->chosen(row);
  for (int j = 0; j < op.used; j++) {
    // NaN logits compare false with everything: then any expert does, as the result is no number anyhow.
    const int best = best_of(values, taken, op.num_experts);
    chosen[j] = best < 0 ? 0 : best;
    taken[chosen[j]] = true;
  }
  choice_weights(op, scores, chosen, op.lists->weights(row));
}

}  // namespace memra::MEMRA_VARIANT
