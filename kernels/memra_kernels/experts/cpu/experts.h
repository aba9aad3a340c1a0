// The experts' own work: rows grouped by expert, each row's result in a slot of its own, and the sum over a row's slots in
// the order of its choice. So a row's bits do not depend on who else chose an expert.
#pragma once
#include "../../elementwise/cpu/functions.h"
#include "../../linear/cpu/linear.h"
#include "routing.h"

namespace memra::MEMRA_VARIANT {

// Item i: 32 elements of the hidden rows of expert i / units.
static void expert_gated_item(const ExpertsOp& op, int item, int many_from, ThreadScratch& scratch) {
  const int units = op.width / 32, expert = item / units, unit = item % units, count = op.lists->count(expert);
  if (!count) return;
  const Rows rows{op.x, op.lists->rows(expert), count};
  const bool many = count >= many_from;
  float *gate = scratch.outputs, *up = scratch.outputs + (size_t)count * 32;
  // The many-row kernel leaves its outputs at scratch.outputs: up goes first and is moved behind.
  for_outputs(op.up[expert], unit * 2, 2, rows, many, scratch,
              [&](int n, int t, F v) { f_store(up + (size_t)n * 32 + (t & 1) * 16, v); });
  for_outputs(op.gate[expert], unit * 2, 2, rows, many, scratch,
              [&](int n, int t, F v) { f_store(gate + (size_t)n * 32 + (t & 1) * 16, v); });
  const size_t bias = (size_t)expert * op.bias_stride + (size_t)unit * 32;
  for (int n = 0; n < count; n++, gate += 32, up += 32) {
    const int slot = op.lists->slots(expert)[n];
    const F scale = f_set(op.scales_input ? op.lists->weight(slot) : 1.0f);
    F halves[2];
    for (int z = 0; z < 2; z++) {
      F g = f_load(gate + z * 16), u = f_load(up + z * 16);
      if (op.scales_input) g = f_mul(g, scale), u = f_mul(u, scale);
      if (op.gate_bias) g = f_add(g, f_load(op.gate_bias + bias + z * 16));
      if (op.up_bias) u = f_add(u, f_load(op.up_bias + bias + z * 16));
      halves[z] = gated_of(op.activation, op.limit, g, u);
    }
    const Buffer& out = *op.hidden;
    if (out.quants) quantise32(out.quant_row(slot), out.width, unit, halves[0], halves[1]);
    if (out.values) {
      f_store(out.row(slot) + (size_t)unit * 32, halves[0]);
      f_store(out.row(slot) + (size_t)unit * 32 + 16, halves[1]);
    }
  }
}

// Item i: up to 32 outputs of expert i / units, weighted.
static void expert_down_item(const ExpertsOp& op, int item, int many_from, ThreadScratch& scratch) {
  const int units = (op.out->width + 31) / 32, expert = item / units, tile = item % units * 2;
  const int count = op.lists->count(expert), left = op.down[expert].tiles - tile;
  if (!count) return;
  const int32_t* slots = op.lists->slots(expert);
  const Rows rows{op.hidden, slots, count};
  const size_t bias = (size_t)expert * op.down_bias_stride;
  const float scale = op.expert_scale ? op.expert_scale[expert] : 1.0f;
  for_outputs(op.down[expert], tile, left < 2 ? left : 2, rows, count >= many_from, scratch, [&](int n, int t, F v) {
    if (op.down_bias) v = f_add(v, f_load(op.down_bias + bias + (size_t)t * 16));
    if (op.expert_scale) v = f_mul(v, f_set(scale));
    if (!op.scales_input) v = f_mul(v, f_set(op.lists->weight(slots[n])));
    f_store(op.parts->row(slots[n]) + (size_t)t * 16, v);
  });
}

// The sum of one row's slots.
static void expert_mix_row(const ExpertsOp& op, int row) {
  float* out = op.out->row(row);
  for (int i = 0; i < op.out->width; i += 16) {
    F sum = f_load(op.parts->row(row * op.used) + i);
    for (int j = 1; j < op.used; j++) sum = f_add(sum, f_load(op.parts->row(row * op.used + j) + i));
    f_store(out + i, sum);
  }
}

}  // namespace memra::MEMRA_VARIANT
