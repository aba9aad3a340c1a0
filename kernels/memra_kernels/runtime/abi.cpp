#include "abi.h"

#include <exception>
#include <stdexcept>
#include <string>

#include "cpu_features.h"
#include "plan.h"

using namespace memra;

namespace {

thread_local std::string last_error;

// Runs fn and returns what it returns, or `failure` with the reason kept for memra_error().
template <class T, class Fn>
T guarded(T failure, Fn fn) noexcept {
  try {
    return fn();
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "an unknown error";
  }
  return failure;
}

const Buffer* optional_buffer(Plan& plan, int id) { return id < 0 ? nullptr : plan.buffer(id); }

RowOp row_op(Plan& plan, const RowSpec& s) {
  RowOp op{};
  op.kind = (RowKind)s.kind;
  op.x = optional_buffer(plan, s.x);
  op.y = optional_buffer(plan, s.y);
  op.out = optional_buffer(plan, s.out);
  if (s.weight) op.weight = plan.keep_floats(s.weight, s.weight_length, (s.weight_length + 15) / 16 * 16);
  if (s.bias) op.bias = plan.keep_floats(s.bias, s.bias_length, (s.bias_length + 15) / 16 * 16);
  if (s.frequencies) op.frequencies = plan.keep_doubles(s.frequencies, s.half_dims);
  op.group_width = s.group_width;
  op.num_heads = s.num_heads;
  op.head_dim = s.head_dim;
  op.half_dims = s.half_dims;
  op.offset = s.offset;
  op.stride = s.stride;
  op.interleaved = s.interleaved != 0;
  op.activation = (Gate)s.activation;
  op.scale = s.scale;
  op.eps = s.eps;
  op.limit = s.limit;
  if (s.layer >= 0) op.layer = plan.cache_layer(s.layer);
  op.stored_type = s.stored_type;
  op.stored = s.stored;
  op.stored_row_bytes = s.stored_row_bytes;
  return op;
}

LinearOp linear_op(Plan& plan, const LinearSpec& s) {
  LinearOp op{plan.buffer(s.x), s.num_parts, {}};
  for (int p = 0; p < s.num_parts; p++) {
    const Weight* w = plan.weight(s.weight[p]);
    const float* bias = s.bias[p] ? plan.keep_floats(s.bias[p], w->rows, w->tiles * 16) : nullptr;
    op.parts[p] = {w, bias, plan.buffer(s.out[p]), s.add[p] != 0};
  }
  return op;
}

ConvOp conv_op(Plan& plan, const ConvSpec& s) {
  ConvOp op{};
  op.x = plan.buffer(s.x);
  op.out = plan.buffer(s.out);
  op.taps = s.taps;
  op.weight_stride = op.x->stride;
  op.weight = plan.keep_rows(s.weight, s.taps, op.x->width, (int)op.weight_stride);
  if (s.bias) op.bias = plan.keep_floats(s.bias, op.x->width, (int)op.x->stride);
  op.has_activation = s.activation >= 0;
  op.activation = op.has_activation ? (Gate)s.activation : Gate::Silu;
  op.state_offset = s.state_offset;
  return op;
}

DeltaOp delta_op(Plan& plan, const DeltaSpec& s) {
  DeltaOp op{};
  op.q = plan.buffer(s.q);
  op.k = plan.buffer(s.k);
  op.v = plan.buffer(s.v);
  op.a = plan.buffer(s.a);
  op.b = plan.buffer(s.b);
  op.out = plan.buffer(s.out);
  op.a_log = plan.keep_floats(s.a_log, s.num_value_heads, s.num_value_heads);
  op.dt_bias = plan.keep_floats(s.dt_bias, s.num_value_heads, s.num_value_heads);
  op.state_offset = s.state_offset;
  op.num_key_heads = s.num_key_heads;
  op.num_value_heads = s.num_value_heads;
  op.key_dim = s.key_dim;
  op.value_dim = s.value_dim;
  op.tiled = s.tiled != 0;
  op.scale = s.scale;
  return op;
}

ExpertsOp experts_op(Plan& plan, const ExpertsSpec& s) {
  ExpertsOp op{};
  op.x = plan.buffer(s.x);
  op.logits = plan.buffer(s.logits);
  op.out = plan.buffer(s.out);
  op.hidden = plan.buffer(s.hidden);
  op.parts = plan.buffer(s.parts);
  const int n = op.num_experts = s.num_experts;
  op.gate = plan.parts_of(s.gate, n);
  op.up = plan.parts_of(s.up, n);
  op.down = plan.parts_of(s.down, n);
  op.width = s.width;
  op.bias_stride = (size_t)(s.width + 15) / 16 * 16;
  op.down_bias_stride = (size_t)(op.out->width + 15) / 16 * 16;
  if (s.gate_bias) op.gate_bias = plan.keep_rows(s.gate_bias, n, s.width, (int)op.bias_stride);
  if (s.up_bias) op.up_bias = plan.keep_rows(s.up_bias, n, s.width, (int)op.bias_stride);
  if (s.down_bias) op.down_bias = plan.keep_rows(s.down_bias, n, op.out->width, (int)op.down_bias_stride);
  if (s.correction) op.correction = plan.keep_floats(s.correction, n, n);
  if (s.expert_scale) op.expert_scale = plan.keep_floats(s.expert_scale, n, n);
  op.used = s.used;
  op.num_groups = s.num_groups;
  op.num_groups_used = s.num_groups_used;
  op.router = (RouterFunction)s.router;
  op.normalise = s.normalise != 0;
  op.scales_input = s.scales_input != 0;
  op.weight_scale = s.weight_scale;
  op.limit = s.limit;
  op.activation = (Gate)s.activation;
  return op;
}

}  // namespace

MEMRA_API const char* memra_error() { return last_error.c_str(); }

MEMRA_API const char* memra_source_digest() { return MEMRA_SOURCE_DIGEST; }

MEMRA_API const char* memra_compiler() { return MEMRA_COMPILER; }

MEMRA_API const char* memra_variants() {
  static const std::string names = usable_variants();
  return names.c_str();
}

MEMRA_API int memra_grids(const uint8_t* levels, size_t bytes) {
  return guarded(-1, [&] {
    if (bytes != sizeof grids) throw std::invalid_argument("the grids do not have the size of IQ1, IQ2 and IQ3 types");
    memcpy(&grids, levels, bytes);
    return 0;
  });
}

MEMRA_API Pool* memra_pool_new(int threads, int spin_us) {
  return guarded<Pool*>(nullptr, [&] { return new Pool(threads, spin_us); });
}

MEMRA_API void memra_pool_free(Pool* pool) { delete pool; }

MEMRA_API Plan* memra_plan_new(Pool* pool, const char* variant, int max_rows) {
  return guarded<Plan*>(nullptr, [&] {
    const KernelTable* kernels = find_variant(variant);
    if (!kernels) throw std::invalid_argument("this processor or this build has no variant " + std::string(variant));
    return new Plan(*pool, *kernels, max_rows);
  });
}

MEMRA_API void memra_plan_free(Plan* plan) { delete plan; }

MEMRA_API int memra_plan_weight(Plan* plan, int ggml_type, const uint8_t* stored, size_t bytes, int rows, int cols) {
  return guarded(-1, [&] { return plan->add_weight(ggml_type, stored, bytes, rows, cols); });
}

MEMRA_API int memra_plan_tiles(Plan* plan, int ggml_type, const uint8_t* tiles, size_t bytes, int rows, int cols) {
  return guarded(-1, [&] { return plan->add_tiles(ggml_type, tiles, bytes, rows, cols); });
}

MEMRA_API int64_t memra_weight_bytes(int ggml_type, int rows, int cols) {
  return guarded<int64_t>(-1, [&] { return (int64_t)weight_bytes(tiled_weight(ggml_type, rows, cols)); });
}

// `tiles` has room for memra_weight_bytes().
MEMRA_API int memra_repack(Pool* pool, int ggml_type, const uint8_t* stored, size_t bytes, int rows, int cols,
                           uint8_t* tiles) {
  return guarded(-1, [&] {
    Weight weight = tiled_weight(ggml_type, rows, cols);
    weight.data = tiles;
    return repack(*pool, ggml_type, stored, bytes, weight), 0;
  });
}

MEMRA_API int memra_plan_unpack(Plan* plan, int weight, float* out) {
  return guarded(-1, [&] { return plan->unpack_weight(weight, out), 0; });
}

MEMRA_API int memra_plan_buffer(Plan* plan, int width, int has_values, int has_quants, int copies) {
  return guarded(-1, [&] { return plan->add_buffer(width, has_values != 0, has_quants != 0, copies); });
}

MEMRA_API int memra_plan_states(Plan* plan, int num_states, size_t floats) {
  return guarded(-1, [&] { return plan->set_states(num_states, floats), 0; });
}

MEMRA_API int memra_plan_conv(Plan* plan, const ConvSpec* spec) {
  return guarded(-1, [&] { return plan->add_conv(conv_op(*plan, *spec)), 0; });
}

MEMRA_API int memra_plan_delta(Plan* plan, const DeltaSpec* spec) {
  return guarded(-1, [&] { return plan->add_delta(delta_op(*plan, *spec)), 0; });
}

MEMRA_API int memra_plan_experts(Plan* plan, const ExpertsSpec* spec) {
  return guarded(-1, [&] { return plan->add_experts(experts_op(*plan, *spec)), 0; });
}

MEMRA_API size_t memra_plan_state_bytes(Plan* plan) { return plan->state_bytes(); }

MEMRA_API const uint8_t* memra_plan_state(Plan* plan, int state) {
  return guarded<const uint8_t*>(nullptr, [&] { return plan->state(state); });
}

MEMRA_API int memra_plan_cache(Plan* plan, int num_pages, int num_layers, const int* kv_heads, const int* head_dims,
                               const int* value_dims, int type) {
  return guarded(-1, [&] {
    std::vector<CacheLayer> layers;
    for (int i = 0; i < num_layers; i++) layers.push_back({kv_heads[i], head_dims[i], value_dims[i], (KvType)type, 0});
    return plan->set_cache(num_pages, layers), 0;
  });
}

MEMRA_API int memra_plan_row(Plan* plan, const RowSpec* spec) {
  return guarded(-1, [&] { return plan->add_row_op(row_op(*plan, *spec), spec->starts_step != 0), 0; });
}

MEMRA_API int memra_plan_linear(Plan* plan, const LinearSpec* spec) {
  return guarded(-1, [&] { return plan->add_linear(linear_op(*plan, *spec)), 0; });
}

MEMRA_API int memra_plan_gated(Plan* plan, int x, int gate, int up, int out, int activation, float limit) {
  return guarded(-1, [&] {
    return plan->add_gated(
               {plan->buffer(x), plan->weight(gate), plan->weight(up), plan->buffer(out), (Gate)activation, limit}),
           0;
  });
}

MEMRA_API int memra_plan_attention(Plan* plan, const AttentionSpec* s) {
  return guarded(-1, [&] {
    const float* sinks = s->sinks ? plan->keep_floats(s->sinks, s->num_heads, s->num_heads) : nullptr;
    return plan->add_attention({plan->buffer(s->q), plan->buffer(s->out), plan->cache_layer(s->layer), s->num_heads,
                                {s->window, s->chunk, s->causal != 0}, s->scale, s->softcap, sinks}),
           0;
  });
}

MEMRA_API int memra_plan_head(Plan* plan, int x, int weight, float scale, float softcap) {
  return guarded(-1, [&] { return plan->add_head({plan->buffer(x), plan->weight(weight), scale, softcap}), 0; });
}

MEMRA_API int memra_plan_hidden(Plan* plan, int x) {
  return guarded(-1, [&] { return plan->add_hidden({plan->buffer(x)}), 0; });
}

MEMRA_API void memra_plan_positions(Plan* plan, int limit) { plan->set_positions(limit); }

MEMRA_API void memra_plan_vocabulary(Plan* plan, int size) { plan->set_vocabulary(size); }

MEMRA_API void memra_plan_many_rows_from(Plan* plan, int rows) { plan->set_many_rows_from(rows); }

MEMRA_API int memra_plan_run(Plan* plan, const StepSpec* s) {
  return guarded(-1, [&] {
    Step step{};
    step.rows = s->rows;
    step.outputs = s->outputs;
    step.token_ids = s->token_ids;
    step.positions = s->positions;
    step.sequences = s->sequences;
    step.output_rows = s->output_rows;
    step.page_tables = s->page_tables;
    step.states_in = s->states_in;
    step.states_out = s->states_out;
    step.num_sequences = s->num_sequences;
    step.pages_per_sequence = s->pages_per_sequence;
    step.logits = s->logits;
    step.logits_stride = (size_t)s->logits_stride;
    return plan->run(step), 0;
  });
}

MEMRA_API size_t memra_plan_page_bytes(Plan* plan) { return plan->page_bytes(); }

MEMRA_API size_t memra_plan_bytes(Plan* plan) { return plan->bytes(); }

MEMRA_API uint8_t* memra_plan_page(Plan* plan, int page) {
  return guarded<uint8_t*>(nullptr, [&] { return plan->page(page); });
}
