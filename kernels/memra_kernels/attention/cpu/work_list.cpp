#include "work_list.h"

#include <algorithm>

namespace memra {
namespace {

// Rows from `row` on that are neighbours in one sequence.
int run_length(const Step& step, int row) {
  int end = row + 1;
  while (end < step.rows && step.sequences[end] == step.sequences[row] &&
         step.positions[end] == step.positions[end - 1] + 1) {
    end++;
  }
  return end - row;
}

}  // namespace

int WorkList::first_split(const Step& step, int row) const {
  return shape_.sight.oldest(step.positions[row]) / split_tokens;
}

int WorkList::end_split(const Step& step, int row) const {
  return shape_.sight.newest(step.positions[row], step.last_position(row)) / split_tokens + 1;
}

// Rows side by side share each pass over their keys and values.
void WorkList::add_run(const Step& step, int row, int num_rows) {
  const int group = shape_.num_heads / shape_.num_kv_heads, heads = std::min(group, max_queries);
  const int tile = rows_per_work(heads);
  for (int end = row + num_rows; row < end; row += tile) {
    const int rows = std::min(tile, end - row);
    const int first = first_split(step, row), splits = end_split(step, row + rows - 1) - first;
    for (int kv = 0; kv < shape_.num_kv_heads; kv++) {
      for (int h = 0; h < group; h += heads) {
        works_.push_back({row, rows, kv, kv * group + h, std::min(heads, group - h), first, splits, -1});
      }
    }
  }
}

// One row whose splits, or whose heads, go to several threads.
void WorkList::add_split_row(const Step& step, int row, int splits_per_work, int heads_per_work) {
  const int group = shape_.num_heads / shape_.num_kv_heads;
  const int first = first_split(step, row), end = end_split(step, row);
  for (int kv = 0; kv < shape_.num_kv_heads; kv++) {
    for (int h = 0; h < group; h += heads_per_work) {
      const int heads = std::min(heads_per_work, group - h);
      AttentionWork work{row, 1, kv, kv * group + h, heads, first, end - first, -1};
      if (end - first <= splits_per_work) {
        works_.push_back(work);
        continue;
      }
      work.slot = slots_;
      merges_.push_back(work);
      for (int s = first; s < end; s += splits_per_work) {
        work.first_split = s;
        work.num_splits = std::min(splits_per_work, end - s);
        work.slot = slots_ + (s - first) * heads;
        works_.push_back(work);
      }
      slots_ += (end - first) * heads;
    }
  }
}

void WorkList::plan(const Step& step, int threads) {
  works_.clear();
  merges_.clear();
  slots_ = 0;
  // With four pieces a thread the last one to finish costs little; with fewer, rows are cut further.
  const int enough = 4 * threads, group = shape_.num_heads / shape_.num_kv_heads;
  int pieces = 0, splits = 0;
  for (int row = 0; row < step.rows; row++) {
    splits += end_split(step, row) - first_split(step, row);
    pieces += shape_.num_kv_heads;
  }
  if (threads == 1 || pieces >= enough) {
    for (int row = 0; row < step.rows;) {
      const int length = run_length(step, row);
      add_run(step, row, length);
      row += length;
    }
  } else {
    const int split_pieces = splits * shape_.num_kv_heads;
    const int splits_per_work = std::max(1, split_pieces / enough);
    const int heads =
        split_pieces >= enough ? std::min(group, max_queries) : std::max(1, group * split_pieces / enough);
    for (int row = 0; row < step.rows; row++) add_split_row(step, row, splits_per_work, std::min(heads, group));
  }
  // Growing here is safe: a late worker of the step before finds no work that would read the old memory.
  partials_.resize(std::max(partials_.size(), (size_t)slots_ * (size_t)partial_floats(shape_.value_dim)));
}

}  // namespace memra
