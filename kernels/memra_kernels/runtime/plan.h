// One model as a flat list of steps over its own weights, activations and key-value pages; one call runs a batch.
//
// Built once from Python, then run by one thread at a time. A row step (norms, residuals, rotation, storing keys and
// values) of a small batch is run by the thread that finishes the step before it, which saves a meeting of all threads.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "../attention/cpu/work_list.h"
#include "../experts/cpu/expert_lists.h"
#include "../quant_layouts/tiles.h"
#include "arena.h"
#include "kernels.h"
#include "pool.h"

namespace memra {

enum class StepKind {
  Rows,
  Linear,
  Gated,
  Attention,
  Head,
  Hidden,
  Conv,
  Delta,
  Route,
  ExpertGated,
  ExpertDown,
  ExpertMix
};

// One step; only the member that its kind names is in use.
struct PlanStep {
  explicit PlanStep(StepKind k, int threads) : kind(k), claims(threads), merge_claims(threads) {}

  StepKind kind;
  std::vector<RowOp> rows;
  LinearOp linear{};
  GatedOp gated{};
  AttentionOp attention{};
  HeadOp head{};
  HiddenOp hidden{};
  ConvOp conv{};
  DeltaOp delta{};
  ExpertsOp experts{};
  int work_class = 0;
  Claims claims, merge_claims;
};

class Plan final : public Job {
 public:
  Plan(Pool& pool, const KernelTable& kernels, int max_rows);
  ~Plan() override;

  int add_weight(int ggml_type, const uint8_t* stored, size_t bytes, int rows, int cols);
  // Tiles that the caller keeps for as long as the plan lives, with 64 KiB of readable memory behind them.
  int add_tiles(int ggml_type, const uint8_t* tiles, size_t bytes, int rows, int cols);
  // `copies` rows for each row of a step.
  int add_buffer(int width, bool has_values, bool has_quants, int copies = 1);
  void set_cache(int num_pages, const std::vector<CacheLayer>& shapes);
  // States of `floats` float32 each, for sequences of recurrent models.
  void set_states(int num_states, size_t floats);
  void add_conv(const ConvOp& op);
  void add_delta(const DeltaOp& op);
  // Four steps: choose, compute each expert's hidden rows, their outputs, and the sums.
  void add_experts(ExpertsOp op);
  void add_row_op(RowOp op, bool starts_step);
  void add_linear(const LinearOp& op);
  void add_gated(const GatedOp& op);
  void add_attention(AttentionOp op);
  void add_head(const HeadOp& op);
  void add_hidden(const HiddenOp& op);

  // Checks every index of the batch, then runs it. Throws std::invalid_argument before anything is written.
  void run(const Step& step);
  void work(int thread, uint32_t generation, const JobCounts& counts) override;

  const Buffer* buffer(int id) const;
  const Weight* weight(int id) const;
  // The `count` equal parts of a weight's rows, each a weight of its own: a stack of experts.
  const Weight* parts_of(int id, int count);
  const uint8_t* state(int id) const;
  size_t state_bytes() const { return state_floats_ * sizeof(float); }
  const CacheLayer& cache_layer(int layer) const { return layers_.at((size_t)layer); }
  const float* keep_floats(const float* values, int count, int padded);
  // `rows` rows of `count` floats, each padded with zeros.
  const float* keep_rows(const float* values, int rows, int count, int padded);
  const double* keep_doubles(const double* values, int count);
  void unpack_weight(int id, float* out) { unpack(pool_, *weight(id), out); }
  void set_vocabulary(int size) { vocabulary_ = size; }
  void set_positions(int limit) { positions_ = limit; }
  void set_many_rows_from(int rows) { many_rows_from_ = rows; }
  uint8_t* page(int id);
  size_t page_bytes() const { return page_bytes_; }
  size_t bytes() const { return arena_.bytes(); }

 private:
  void check(const Step& step) const;
  void check_states(const Step& step) const;
  void find_runs(const Step& step);
  bool run_step(PlanStep& s, PlanStep* tail, int thread, uint32_t generation, const JobCounts& counts);
  void run_rows(const PlanStep& s, int first, int count);

  Pool& pool_;
  const KernelTable& kernels_;
  int max_rows_, many_rows_from_, vocabulary_ = 0, num_pages_ = 0;
  int positions_ = INT32_MAX;  // one more than the last position that the plan has a learned embedding for
  Arena arena_;
  std::deque<Weight> weights_;
  std::deque<Buffer> buffers_;
  std::vector<CacheLayer> layers_;
  std::deque<PlanStep> steps_;
  std::deque<WorkList> work_lists_;
  std::deque<ExpertLists> expert_lists_;
  std::deque<std::vector<Weight>> expert_weights_;
  std::vector<SequenceRun> runs_;
  float* states_ = nullptr;
  size_t state_floats_ = 0;
  int num_states_ = 0;
  std::vector<ThreadScratch> scratch_;
  uint8_t* pages_ = nullptr;
  size_t page_bytes_ = 0;
  Step step_{};
};

}  // namespace memra
