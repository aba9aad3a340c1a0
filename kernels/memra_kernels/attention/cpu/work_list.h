// Dividing the attention of one step between threads: which rows, heads and splits make one piece of work.
//
// The division follows the load and never changes a bit; see attention.h.
#pragma once
#include <vector>

#include "../../runtime/types.h"

namespace memra {

// Attention layers of one shape share a division.
struct AttentionShape {
  int32_t num_heads, num_kv_heads, value_dim;
  Sight sight;

  bool operator==(const AttentionShape&) const = default;
};

class WorkList {
 public:
  explicit WorkList(AttentionShape shape) : shape_(shape) {}

  const AttentionShape& shape() const { return shape_; }
  const std::vector<AttentionWork>& works() const { return works_; }
  const std::vector<AttentionWork>& merges() const { return merges_; }
  float* partials() { return partials_.data(); }

  // Plans a step; the lists and the partials stay valid until the next call.
  void plan(const Step& step, int threads);

 private:
  void add_run(const Step& step, int row, int num_rows);
  void add_split_row(const Step& step, int row, int splits_per_work, int heads_per_work);
  // The splits that a row sees some of: the first, and one more than the last.
  int first_split(const Step& step, int row) const;
  int end_split(const Step& step, int row) const;

  AttentionShape shape_;
  std::vector<AttentionWork> works_, merges_;
  std::vector<float> partials_;
  int slots_ = 0;
};

}  // namespace memra
