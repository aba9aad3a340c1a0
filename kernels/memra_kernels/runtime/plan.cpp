#include "plan.h"

#include <stdexcept>

namespace memra {
namespace {

constexpr int inline_rows = 2;  // batches up to this size run row steps on the thread that finished the step before
// Places in JobCounts: rows, outputs, sequences, then works and merges of each attention shape.
constexpr int count_rows = 0, count_outputs = 1, count_sequences = 2, count_works = 3;

// A thread's registers for its part of one step.
class Registers {
 public:
  explicit Registers(const KernelTable& kernels) : end_(kernels.end) { kernels.begin(); }
  ~Registers() { end_(); }
  Registers(const Registers&) = delete;
  Registers& operator=(const Registers&) = delete;

 private:
  void (*end_)();
};

// Refuses what a row operation would divide by, and what it would read or write outside of its rows.
void check_row_op(const RowOp& op) {
  const bool reads = op.kind != RowKind::Embed && op.kind != RowKind::PositionEmbed && op.kind != RowKind::Angles;
  const bool in_place = op.kind == RowKind::Rope || op.kind == RowKind::Store || op.kind == RowKind::Quantise;
  if ((reads && !op.x) || (!in_place && !op.out)) throw std::invalid_argument("a row operation lacks a buffer");
  bool fits = true;
  switch (op.kind) {
    case RowKind::Norm: fits = op.group_width > 0 && op.x->width % op.group_width == 0; break;
    case RowKind::ScaleRows: fits = op.y && op.num_heads > 0 && op.out->width % op.num_heads == 0; break;
    case RowKind::ScaleByPosition: fits = op.stride > 0; break;
    case RowKind::Slice:
      fits = op.num_heads > 0 && op.num_heads * op.head_dim <= op.out->width &&
             (op.num_heads - 1) * op.stride + op.offset + op.head_dim <= op.x->width;
      break;
    case RowKind::Rope:
      fits = op.y && op.num_heads * op.head_dim <= op.x->width && op.offset + 2 * op.half_dims <= op.head_dim;
      break;
    case RowKind::Join: fits = op.y && op.num_heads * (op.head_dim + op.stride) <= op.out->width; break;
    case RowKind::Add:
    case RowKind::Gate:
    case RowKind::Store: fits = op.y; break;
    default: break;
  }
  if (!fits) throw std::invalid_argument("a row operation does not fit its buffers");
}

int units(const Weight& w, int unit) { return (w.tiles + unit - 1) / unit; }

}  // namespace

Plan::Plan(Pool& pool, const KernelTable& kernels, int max_rows)
    : pool_(pool), kernels_(kernels), max_rows_(max_rows), many_rows_from_(kernels.many_rows_from) {
  if (max_rows < 1) throw std::invalid_argument("max_rows must be positive");
  for (int thread = 0; thread < pool.threads(); thread++) {
    scratch_.push_back({arena_.take((size_t)max_rows * sizeof(void*)), arena_.take_array<float>((size_t)max_rows * 64),
                        arena_.take(kernels.unpacked_bytes), arena_.take_array<float>(max_queries * split_tokens),
                        arena_.take_array<float>((size_t)max_queries * 2 * partial_floats(512)),
                        arena_.take_array<float>((size_t)page_tokens * 512)});
  }
}

Plan::~Plan() { pool_.quiesce(); }

int Plan::add_weight(int ggml_type, const uint8_t* stored, size_t bytes, int rows, int cols) {
  Weight weight = tiled_weight(ggml_type, rows, cols);
  weight.data = arena_.take(weight_bytes(weight));
  repack(pool_, ggml_type, stored, bytes, weight);
  weights_.push_back(weight);
  return (int)weights_.size() - 1;
}

int Plan::add_tiles(int ggml_type, const uint8_t* tiles, size_t bytes, int rows, int cols) {
  Weight weight = tiled_weight(ggml_type, rows, cols);
  if (bytes != weight_bytes(weight)) throw std::invalid_argument("the tiles do not have the size of the matrix");
  if ((uintptr_t)tiles % 64) throw std::invalid_argument("the tiles do not begin at a multiple of 64 bytes");
  weight.data = const_cast<uint8_t*>(tiles);  // written by repack alone
  weights_.push_back(weight);
  return (int)weights_.size() - 1;
}

int Plan::add_buffer(int width, bool has_values, bool has_quants, int copies) {
  if (width < 1 || copies < 1) throw std::invalid_argument("a buffer needs a width and rows");
  Buffer b{width, (size_t)(width + 31) / 32 * 32, quant_row_bytes(width), nullptr, nullptr};
  if (has_values) b.values = arena_.take_array<float>(b.stride * (size_t)(max_rows_ * copies));
  if (has_quants) b.quants = arena_.take(b.quant_stride * (size_t)(max_rows_ * copies));
  buffers_.push_back(b);
  return (int)buffers_.size() - 1;
}

void Plan::set_cache(int num_pages, const std::vector<CacheLayer>& shapes) {
  page_bytes_ = 0;
  for (CacheLayer layer : shapes) {
    for (const int dim : {layer.head_dim, layer.value_dim}) {
      if (dim < 16 || dim % 16 || dim > 512)
        throw std::invalid_argument("head_dim and value_dim must be multiples of 16, at most 512");
    }
    if (layer.type != KvType::F16 && layer.type != KvType::Q8_0)
      throw std::invalid_argument("keys and values are kept as f16 or q8_0");
    layer.offset = page_bytes_;
    page_bytes_ += (size_t)layer.num_kv_heads * layer.head_bytes();
    layers_.push_back(layer);
  }
  num_pages_ = num_pages;
  pages_ = arena_.take(page_bytes_ * (size_t)num_pages);
}

void Plan::set_states(int num_states, size_t floats) {
  num_states_ = num_states;
  state_floats_ = (floats + 15) / 16 * 16;
  states_ = arena_.take_array<float>(state_floats_ * (size_t)num_states);
}

void Plan::add_conv(const ConvOp& op) {
  if (op.taps < 2 || op.taps > max_taps) throw std::invalid_argument("a convolution has 2 to 16 taps");
  steps_.emplace_back(StepKind::Conv, pool_.threads()).conv = op;
}

void Plan::add_delta(const DeltaOp& op) {
  if (op.key_dim % 16) throw std::invalid_argument("keys of a delta rule must be a multiple of 16 wide");
  steps_.emplace_back(StepKind::Delta, pool_.threads()).delta = op;
}

void Plan::add_experts(ExpertsOp op) {
  if (op.width % 32) throw std::invalid_argument("experts must be a multiple of 32 wide");
  if (op.num_experts > max_experts || op.used < 1 || op.used > op.num_experts)
    throw std::invalid_argument("a mixture has up to 1024 experts, and uses some of them");
  op.lists = &expert_lists_.emplace_back(op.num_experts, op.used, max_rows_);
  for (const StepKind kind : {StepKind::Route, StepKind::ExpertGated, StepKind::ExpertDown, StepKind::ExpertMix})
    steps_.emplace_back(kind, pool_.threads()).experts = op;
}

const Weight* Plan::parts_of(int id, int count) {
  const Weight& whole = *weight(id);
  if (count < 1 || whole.rows % (16 * count)) throw std::invalid_argument("experts must have a multiple of 16 rows");
  std::vector<Weight>& parts = expert_weights_.emplace_back((size_t)count, whole);
  for (int i = 0; i < count; i++) {
    Weight& part = parts[(size_t)i];
    part.rows = whole.rows / count;
    part.tiles = whole.tiles / count;
    part.data = whole.data + (size_t)i * (size_t)part.tiles * whole.tile_bytes;
  }
  return parts.data();
}

const uint8_t* Plan::state(int id) const {
  if (id < 0 || id >= num_states_) throw std::invalid_argument("state " + std::to_string(id) + " does not exist");
  return (const uint8_t*)(states_ + (size_t)id * state_floats_);
}

void Plan::add_row_op(RowOp op, bool starts_step) {
  check_row_op(op);
  if (starts_step || steps_.empty() || steps_.back().kind != StepKind::Rows)
    steps_.emplace_back(StepKind::Rows, pool_.threads());
  steps_.back().rows.push_back(op);
}

void Plan::add_linear(const LinearOp& op) { steps_.emplace_back(StepKind::Linear, pool_.threads()).linear = op; }

void Plan::add_gated(const GatedOp& op) {
  if (op.gate->rows % 32 || op.gate->rows != op.up->rows)
    throw std::invalid_argument("gate and up must have a multiple of 32 rows");
  steps_.emplace_back(StepKind::Gated, pool_.threads()).gated = op;
}

void Plan::add_head(const HeadOp& op) { steps_.emplace_back(StepKind::Head, pool_.threads()).head = op; }

void Plan::add_hidden(const HiddenOp& op) { steps_.emplace_back(StepKind::Hidden, pool_.threads()).hidden = op; }

void Plan::add_attention(AttentionOp op) {
  const AttentionShape shape{op.num_heads, op.layer.num_kv_heads, op.layer.value_dim, op.sight};
  if (op.num_heads % op.layer.num_kv_heads) throw std::invalid_argument("query heads must be a multiple of kv heads");
  size_t found = 0;
  while (found < work_lists_.size() && !(work_lists_[found].shape() == shape)) found++;
  if (found == work_lists_.size()) work_lists_.emplace_back(shape);
  if (count_works + 2 * (int)work_lists_.size() > step_counts)
    throw std::invalid_argument("more than five attention shapes");
  PlanStep& step = steps_.emplace_back(StepKind::Attention, pool_.threads());
  step.attention = op;
  step.work_class = (int)found;
}

const Buffer* Plan::buffer(int id) const { return &buffers_.at((size_t)id); }

const Weight* Plan::weight(int id) const { return &weights_.at((size_t)id); }

const float* Plan::keep_floats(const float* values, int count, int padded) {
  float* kept = arena_.take_array<float>((size_t)padded);
  std::copy(values, values + count, kept);
  return kept;
}

const float* Plan::keep_rows(const float* values, int rows, int count, int padded) {
  float* kept = arena_.take_array<float>((size_t)rows * (size_t)padded);
  for (int row = 0; row < rows; row++)
    std::copy(values + (size_t)row * (size_t)count, values + (size_t)(row + 1) * (size_t)count,
              kept + (size_t)row * (size_t)padded);
  return kept;
}

const double* Plan::keep_doubles(const double* values, int count) {
  double* kept = arena_.take_array<double>((size_t)count);
  std::copy(values, values + count, kept);
  return kept;
}

uint8_t* Plan::page(int id) {
  if (id < 0 || id >= num_pages_) throw std::invalid_argument("page " + std::to_string(id) + " does not exist");
  return pages_ + (size_t)id * page_bytes_;
}

void Plan::check(const Step& step) const {
  if (step.rows < 1 || step.rows > max_rows_) throw std::invalid_argument("a step takes 1 to max_rows rows");
  int checked = 0;  // entries of the current sequence's table that are known to be good
  for (int row = 0; row < step.rows; row++) {
    const int sequence = step.sequences[row], position = step.positions[row], entries = position / page_tokens + 1;
    if (step.token_ids[row] < 0 || step.token_ids[row] >= vocabulary_)
      throw std::invalid_argument("a token id is outside the vocabulary");
    if (sequence < 0 || sequence >= step.num_sequences)
      throw std::invalid_argument("a row's sequence has no page table");
    if (position < 0 || position >= positions_ || entries > step.pages_per_sequence)
      throw std::invalid_argument("a position lies beyond its page table or the positions that the model has");
    if (row == 0 || sequence != step.sequences[row - 1]) checked = 0;
    for (; checked < entries; checked++) {
      const int page = step.page_tables[(size_t)sequence * (size_t)step.pages_per_sequence + (size_t)checked];
      if (page < 0 || page >= num_pages_) throw std::invalid_argument("a page table names a page that does not exist");
    }
  }
  for (int i = 0; i < step.outputs; i++) {
    if (step.output_rows[i] < 0 || step.output_rows[i] >= step.rows)
      throw std::invalid_argument("an output row is not in the step");
  }
}

// A state that is read may be read by several sequences; one that is written belongs to one alone, and is not read.
void Plan::check_states(const Step& step) const {
  if (!num_states_) return;
  if (!step.states_in || !step.states_out) throw std::invalid_argument("the sequences of a step have no states");
  for (int s = 0; s < step.num_sequences; s++) {
    const int out = step.states_out[s];
    if (step.states_in[s] < -1 || step.states_in[s] >= num_states_ || out < 0 || out >= num_states_)
      throw std::invalid_argument("a state does not exist");
    for (int other = 0; other < step.num_sequences; other++) {
      if (step.states_in[other] == out || (other != s && step.states_out[other] == out))
        throw std::invalid_argument("a state is written that another sequence uses");
    }
  }
}

// Where each sequence's rows lie. Throws where they are not consecutive.
void Plan::find_runs(const Step& step) {
  runs_.assign((size_t)step.num_sequences, SequenceRun{0, 0, -1, -1});
  for (int row = 0; row < step.rows; row++) {
    SequenceRun& run = runs_[(size_t)step.sequences[row]];
    if (run.count == 0) run.first = row;
    else if (row != run.first + run.count || step.positions[row] != step.positions[row - 1] + 1)
      throw std::invalid_argument("the rows of a sequence are not consecutive");
    run.count++;
  }
  for (int s = 0; num_states_ && s < step.num_sequences; s++) {
    runs_[(size_t)s].state_in = step.states_in[s];
    runs_[(size_t)s].state_out = step.states_out[s];
  }
}

void Plan::run(const Step& step) {
  check(step);
  check_states(step);
  find_runs(step);
  step_ = step;
  step_.runs = runs_.data();
  step_.states = states_;
  step_.state_floats = state_floats_;
  step_.pages = pages_;
  step_.page_bytes = page_bytes_;
  JobCounts counts{};
  counts.value[count_rows] = step.rows;
  counts.value[count_outputs] = step.outputs;
  counts.value[count_sequences] = step.num_sequences;
  for (size_t i = 0; i < work_lists_.size(); i++) {
    work_lists_[i].plan(step_, pool_.threads());
    counts.value[count_works + 2 * i] = (int)work_lists_[i].works().size();
    counts.value[count_works + 2 * i + 1] = (int)work_lists_[i].merges().size();
  }
  pool_.run(*this, counts);
}

void Plan::run_rows(const PlanStep& s, int first, int count) {
  for (int row = first; row < first + count; row++) kernels_.row(s.rows.data(), (int)s.rows.size(), step_, row);
}

void Plan::work(int thread, uint32_t generation, const JobCounts& counts) {
  const Registers registers(kernels_);
  const bool tails = counts.value[count_rows] <= inline_rows;
  for (size_t i = 0; i < steps_.size(); i++) {
    const bool has_tail = tails && i + 1 < steps_.size() && steps_[i + 1].kind == StepKind::Rows;
    if (!run_step(steps_[i], has_tail ? &steps_[i + 1] : nullptr, thread, generation, counts)) return;
    i += has_tail;
  }
}

bool Plan::run_step(PlanStep& s, PlanStep* tail, int thread, uint32_t generation, const JobCounts& counts) {
  const int rows = counts.value[count_rows], outputs = counts.value[count_outputs];
  ThreadScratch& scratch = scratch_[(size_t)thread];
  const auto run_tail = [&] {
    if (tail) run_rows(*tail, 0, rows);
  };
  const auto nothing = [] {};
  switch (s.kind) {
    case StepKind::Rows:
      return s.claims.share(rows, thread, generation, [&](int row) { run_rows(s, row, 1); }, run_tail);
    case StepKind::Linear: {
      const bool many = rows >= many_rows_from_;
      int items = 0;
      for (int p = 0; p < s.linear.num_parts; p++) items += units(*s.linear.parts[p].weight, many ? 2 : 1);
      return s.claims.share(
          items, thread, generation, [&](int i) { kernels_.linear(s.linear, step_, i, many, scratch); }, run_tail);
    }
    case StepKind::Gated: {
      const bool many = rows >= many_rows_from_;
      return s.claims.share(
          s.gated.gate->rows / 32, thread, generation, [&](int i) { kernels_.gated(s.gated, step_, i, many, scratch); },
          run_tail);
    }
    case StepKind::Attention: {
      WorkList& list = work_lists_[(size_t)s.work_class];
      const int works = counts.value[count_works + 2 * s.work_class],
                merges = counts.value[count_works + 2 * s.work_class + 1];
      const auto attend = [&](int i) {
        kernels_.attention(s.attention, step_, list.works()[(size_t)i], list.partials(), scratch);
      };
      if (!merges) return s.claims.share(works, thread, generation, attend, run_tail);
      if (!s.claims.share(works, thread, generation, attend, nothing)) return false;
      return s.merge_claims.share(
          merges, thread, generation,
          [&](int i) { kernels_.merge(s.attention, step_, list.merges()[(size_t)i], list.partials()); }, run_tail);
    }
    case StepKind::Head: {
      const bool many = outputs >= many_rows_from_;
      return s.claims.share(
          outputs ? units(*s.head.weight, many ? 2 : 1) : 0, thread, generation,
          [&](int i) { kernels_.head(s.head, step_, i, many, scratch); }, nothing);
    }
    case StepKind::Conv:
      return s.claims.share(rows, thread, generation, [&](int row) { kernels_.conv(s.conv, step_, row); }, run_tail);
    case StepKind::Delta:
      return s.claims.share(
          counts.value[count_sequences] * s.delta.num_value_heads, thread, generation,
          [&](int i) { kernels_.delta(s.delta, step_, i); }, run_tail);
    case StepKind::Route:
      return s.claims.share(
          rows, thread, generation, [&](int row) { kernels_.route(s.experts, row); },
          [&] { s.experts.lists->group(rows); });
    case StepKind::ExpertGated:
      return s.claims.share(
          s.experts.num_experts * (s.experts.width / 32), thread, generation,
          [&](int i) { kernels_.expert_gated(s.experts, i, many_rows_from_, scratch); }, nothing);
    case StepKind::ExpertDown:
      return s.claims.share(
          s.experts.num_experts * ((s.experts.out->width + 31) / 32), thread, generation,
          [&](int i) { kernels_.expert_down(s.experts, i, many_rows_from_, scratch); }, nothing);
    case StepKind::ExpertMix:
      return s.claims.share(rows, thread, generation, [&](int row) { kernels_.expert_mix(s.experts, row); }, run_tail);
    case StepKind::Hidden:
      return s.claims.share(
          outputs, thread, generation, [&](int i) { kernels_.hidden(s.hidden, step_, i); }, nothing);
  }
  return false;
}

}  // namespace memra
