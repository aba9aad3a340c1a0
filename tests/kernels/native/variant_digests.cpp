// What every usable variant computes on pseudo-random data, as one line "variant case digest" each: matrices of every
// layout with few rows and with many, a small model of every kind of step with its cache pages, and tokens of the
// sampler. Linked with the library's objects by test_neon_variants.py, for this processor and for another one.
#include <cstdio>
#include <string>
#include <vector>

#include "quant_layouts/codebook_blocks.h"
#include "runtime/cpu_features.h"
#include "runtime/plan.h"
#include "sampler/cpu/token_choice.h"
#include "sampler/cpu/workspace.h"

namespace {

using namespace memra;

// Marsaglia's xorshift, 64 bits (2003).
struct Random {
  uint64_t state;

  uint32_t word() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
  }
  float unit() { return (float)(int32_t)word() * 0x1p-31f; }  // -1 to 1
};

// FNV-1a, 64 bits.
uint64_t digest_of(const void* data, size_t bytes, uint64_t digest = 0xcbf29ce484222325) {
  for (size_t i = 0; i < bytes; i++) digest = (digest ^ ((const uint8_t*)data)[i]) * 0x100000001b3;
  return digest;
}

void say(const char* variant, const std::string& name, uint64_t digest) {
  std::printf("%s %s %016llx\n", variant, name.c_str(), (unsigned long long)digest);
}

std::vector<float> random_floats(Random& random, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = random.unit();
  return values;
}

// Places of the float16 scales in a stored block (ggml-common.h).
constexpr int iq1_m = 29, tq1_0 = 34, tq2_0 = 35;  // ggml's numbers of types that share a layout with others

std::vector<int> half_offsets(const StoredType& type) {
  if (type.ggml_type == tq1_0) return {52};
  if (type.ggml_type == tq2_0) return {64};
  switch (type.layout) {
    case Layout::Q4_1:
    case Layout::Q5_1:
    case Layout::Q4_K:
    case Layout::Q5_K: return {0, 2};
    case Layout::Q2_K: return {80, 82};
    case Layout::Q3_K: return {108};
    case Layout::Q6_K: return {208};
    default: return {0};
  }
}

void write_half(uint8_t* to, float value) {
  const uint16_t half = float_to_half(value);
  memcpy(to, &half, 2);
}

// A float16 in the upper nibbles of four words, of which `to` is the upper byte of the first.
void write_nibbles(uint8_t* to, uint16_t half) {
  for (int word = 0; word < 4; word++)
    to[2 * word] = (uint8_t)((to[2 * word] & 15) | (half >> (4 * word) & 15) << 4);
}

// Levels as random as the blocks: the variants must agree on any.
void fill_grids() {
  Random random{3};
  uint8_t* levels = (uint8_t*)&grids;
  for (size_t i = 0; i < sizeof grids; i++) levels[i] = (uint8_t)(random.word() % 3);
  for (auto& entry : grids.iq3_xxs)
    for (uint8_t& level : entry) level = (uint8_t)(random.word() % 8);
  for (auto& entry : grids.iq3_s)
    for (uint8_t& level : entry) level = (uint8_t)(random.word() % 8);
}

std::vector<uint8_t> random_blocks(const StoredType& type, int rows, int cols, Random& random) {
  std::vector<uint8_t> stored((size_t)rows * (size_t)(cols / type.elements) * (size_t)type.bytes);
  for (uint8_t& byte : stored) byte = (uint8_t)random.word();
  for (uint8_t* block = stored.data(); block < stored.data() + stored.size(); block += type.bytes) {
    const float value = random.unit();
    if (type.layout == Layout::F32) memcpy(block, &value, 4);
    else if (type.layout == Layout::BF16) memcpy(block, (const uint8_t*)&value + 2, 2);
    else if (type.layout == Layout::F16) write_half(block, value);
    else if (type.layout == Layout::MXFP4) block[0] = (uint8_t)(120 + block[0] % 8);
    else if (type.layout == Layout::NVFP4)
      for (int i = 0; i < 4; i++) block[i] %= 24;  // as unsigned float8 with four bits of exponent: up to a sixteenth
    else if (type.ggml_type == iq1_m) write_nibbles(block + 49, float_to_half(value * 0.004f));
    else
      for (int offset : half_offsets(type)) write_half(block + offset, random.unit() * 0.004f);
  }
  return stored;
}

// Rows `first` to `first + count` of one sequence, whose tokens are their positions modulo `vocabulary`.
struct Batch {
  std::vector<int32_t> tokens, positions, sequences, outputs, table;
  std::vector<float> logits;
  Step step{};

  Batch(int first, int count, int vocabulary, int vocabulary_out, int pages) : sequences((size_t)count, 0) {
    for (int i = 0; i < count; i++) {
      tokens.push_back((first + i) * 5 % vocabulary);
      positions.push_back(first + i);
      outputs.push_back(i);
    }
    for (int i = 0; i < pages; i++) table.push_back(pages - 1 - i);
    step.logits_stride = (size_t)(vocabulary_out + 15) / 16 * 16;
    logits.resize(step.logits_stride * (size_t)count);
    step.rows = step.outputs = count;
    step.token_ids = tokens.data();
    step.positions = positions.data();
    step.sequences = sequences.data();
    step.output_rows = outputs.data();
    step.page_tables = table.data();
    step.num_sequences = 1;
    step.pages_per_sequence = pages;
    step.logits = logits.data();
  }

  uint64_t run(Plan& plan) {
    plan.run(step);
    return digest_of(logits.data(), logits.size() * sizeof(float));
  }
};

constexpr int rows = 40, cols = 512, vocabulary = 16;

void matrix(Pool& pool, const KernelTable& kernels, const StoredType& type) {
  Random random{(uint64_t)type.ggml_type + 1};
  Plan plan(pool, kernels, 40);
  const std::vector<uint8_t> stored = random_blocks(type, rows, cols, random);
  const std::vector<float> table = random_floats(random, (size_t)vocabulary * cols);
  const int weight = plan.add_weight(type.ggml_type, stored.data(), stored.size(), rows, cols);
  RowOp embed{};
  embed.kind = RowKind::Embed;
  embed.out = plan.buffer(plan.add_buffer(cols, true, true));
  embed.scale = 1.0f;
  embed.stored = (const uint8_t*)table.data();
  embed.stored_row_bytes = cols * sizeof(float);
  RowOp quantise{};
  quantise.kind = RowKind::Quantise;
  quantise.x = embed.out;
  plan.set_vocabulary(vocabulary);
  plan.set_cache(1, {{1, 16, 16, KvType::F16, 0}});
  plan.add_row_op(embed, true);
  plan.add_row_op(quantise, false);
  plan.add_head({embed.out, plan.weight(weight), 1.0f, 0.0f});
  for (int many_from : {1000, 1}) {
    plan.set_many_rows_from(many_from);
    for (int count : {1, 7, 33}) {
      Batch batch(0, count, vocabulary, rows, 1);
      const std::string name = "type" + std::to_string(type.ggml_type) + (many_from == 1 ? "-many" : "-few");
      say(kernels.name, name + std::to_string(count), batch.run(plan));
    }
  }
}

constexpr int width = 256, ffn = 512, kv_width = 128, head_dim = 64, pages = 6;

// One layer with all kinds of steps, of which the plan keeps its own copies; types by ggml's numbers.
struct Model {
  Plan plan;
  Random random{99};
  std::vector<uint8_t> table;
  std::vector<float> ones, slopes;
  std::vector<double> frequencies;

  Model(Pool& pool, const KernelTable& kernels) : plan(pool, kernels, 320), ones(width, 1.0f) {
    table = random_blocks(*find_stored_type(8), vocabulary, width, random);
    slopes = random_floats(random, width);
    for (int i = 0; i < head_dim / 2; i++) frequencies.push_back(1.0 / (1 + 7 * i));
    plan.set_vocabulary(vocabulary);
    plan.set_cache(pages, {{kv_width / head_dim, head_dim, head_dim, KvType::F16, 0}});
    build();
  }

  const Buffer* buffer(int size) { return plan.buffer(plan.add_buffer(size, true, true)); }

  const Weight* weight(int type, int out, int in) {
    const std::vector<uint8_t> stored = random_blocks(*find_stored_type(type), out, in, random);
    return plan.weight(plan.add_weight(type, stored.data(), stored.size(), out, in));
  }

  RowOp& row(RowOp& op, RowKind kind, const Buffer* x, const Buffer* y, const Buffer* out) {
    op = {};
    op.kind = kind;
    op.x = x;
    op.y = y;
    op.out = out;
    op.scale = 1.0f;
    op.eps = 1e-6f;
    op.weight = plan.keep_floats(slopes.data(), width, width);
    op.group_width = width;
    op.layer = plan.cache_layer(0);
    op.head_dim = head_dim;
    op.half_dims = head_dim / 2;
    op.frequencies = plan.keep_doubles(frequencies.data(), head_dim / 2);
    return op;
  }

  void norm(const Buffer* x, const Buffer* out) {
    RowOp op;
    plan.add_row_op(row(op, RowKind::Norm, x, nullptr, out), false);
    plan.add_row_op(row(op, RowKind::Quantise, out, nullptr, nullptr), false);
  }

  void rope(const Buffer* x, const Buffer* angles, int heads, bool interleaved) {
    RowOp op;
    row(op, RowKind::Rope, x, angles, nullptr);
    op.num_heads = heads;
    op.interleaved = interleaved;
    plan.add_row_op(op, false);
  }

  void build() {
    const Buffer *x = buffer(width), *normed = buffer(width), *angles = buffer(head_dim), *q = buffer(width);
    const Buffer *k = buffer(kv_width), *v = buffer(kv_width), *seen = buffer(width), *inner = buffer(ffn);
    const float* bias = plan.keep_floats(slopes.data(), width, width);
    RowOp op;
    row(op, RowKind::Embed, nullptr, nullptr, x);
    op.stored_type = 8;
    op.stored = table.data();
    op.stored_row_bytes = width / 32 * 34;
    plan.add_row_op(op, true);
    plan.add_row_op(row(op, RowKind::Angles, nullptr, nullptr, angles), false);
    norm(x, normed);
    plan.add_linear({normed,
                     3,
                     {{weight(12, width, width), bias, q, false},
                      {weight(8, kv_width, width), bias, k, false},
                      {weight(14, kv_width, width), nullptr, v, false}}});
    rope(q, angles, width / head_dim, false);
    rope(k, angles, kv_width / head_dim, true);
    plan.add_row_op(row(op, RowKind::Store, k, v, nullptr), false);
    plan.add_attention({q, seen, plan.cache_layer(0), width / head_dim, {0, 0, true}, 0.125f, 0.0f, nullptr});
    plan.add_linear({seen, 1, {{weight(2, width, width), nullptr, x, true}}});
    plan.add_attention({q, seen, plan.cache_layer(0), width / head_dim, {100, 0, true}, 0.125f, 20.0f, nullptr});
    plan.add_linear({seen, 1, {{weight(23, width, width), nullptr, x, true}}});
    for (const Gate gate : {Gate::Silu, Gate::GeluTanh}) {
      norm(x, normed);
      plan.add_gated({normed, weight(12, ffn, width), weight(3, ffn, width), inner, gate});
      plan.add_linear({inner, 1, {{weight(13, width, ffn), nullptr, normed, false}}});
      row(op, RowKind::Gate, normed, x, normed);
      op.activation = gate;
      plan.add_row_op(op, false);
      plan.add_row_op(row(op, RowKind::Add, normed, x, x), false);
    }
    norm(x, normed);
    plan.add_head({normed, weight(30, 112, width), 0.5f, 30.0f});
  }
};

void model(Pool& pool, const KernelTable& kernels) {
  Model model(pool, kernels);
  Batch prompt(0, 300, vocabulary, 112, pages);
  say(kernels.name, "prompt", prompt.run(model.plan));
  for (int position = 300; position < 310; position++) {
    Batch token(position, 1, vocabulary, 112, pages);
    say(kernels.name, "token" + std::to_string(position), token.run(model.plan));
  }
  for (int page = 0; page < pages; page++)
    say(kernels.name, "page" + std::to_string(page), digest_of(model.plan.page(page), model.plan.page_bytes()));
}

void sample(const sampler::Passes& passes) {
  constexpr int size = 5003;
  Random random{5};
  std::vector<float> logits = random_floats(random, size);
  std::vector<uint8_t> workspace(sampler::Workspace::bytes(size));
  std::vector<uint32_t> mask((size + 31) / 32, 0xfff7ffff);
  for (float& logit : logits) logit = 12.0f * logit;
  for (int place = 0; place < 64; place++) {
    sampler::Request request{};
    request.temperature = place & 1 ? 0.7 : 1.0;
    request.top_p = place & 2 ? 0.9 : 1.0;
    request.min_p = place & 4 ? 0.05 : 0.0;
    request.typical_p = place & 8 ? 0.9 : 1.0;
    request.top_k = place & 16 ? 40 : 0;
    request.mask = place & 32 ? mask.data() : nullptr;
    request.repetition_penalty = 1.0;
    request.seed = 11;
    request.position = (uint64_t)place;
    request.logits = logits.data();
    request.vocab_size = size;
    request.num_top = 5;
    sampler::Answer answer{};
    sampler::choose(passes, request, workspace.data(), answer);
    say(passes.name, "choice" + std::to_string(place), digest_of(&answer, sizeof answer));
  }
}

}  // namespace

int main() {
  fill_grids();
  Pool pool(2, 50);
  const std::string names = usable_variants() + ",";
  for (size_t from = 0, to; (to = names.find(',', from)) != std::string::npos; from = to + 1) {
    const KernelTable& kernels = *find_variant(names.substr(from, to - from));
    for (const StoredType& type : stored_types) matrix(pool, kernels, type);
    model(pool, kernels);
  }
  for (int i = 0; sampler::usable_passes(i); i++) sample(*sampler::usable_passes(i));
}
