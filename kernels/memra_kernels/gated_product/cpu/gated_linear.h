// activation(x @ gate.T) * (x @ up.T) in one step: 32 outputs an item, stored as floats, int8, or both.
#pragma once
#include "../../elementwise/cpu/functions.h"
#include "../../linear/cpu/linear.h"
#include "../../runtime/quantise.h"

namespace memra::MEMRA_VARIANT {

static inline void store_gated(const Buffer& out, int row, int item, F low, F high) {
  if (out.quants) quantise32(out.quant_row(row), out.width, item, low, high);
  if (out.values) {
    f_store(out.row(row) + (size_t)item * 32, low);
    f_store(out.row(row) + (size_t)item * 32 + 16, high);
  }
}

static void gated_item(const GatedOp& op, const Step& step, int item, bool many, ThreadScratch& scratch) {
  const Rows all{op.x, nullptr, step.rows};
  float *gate = scratch.outputs, *up = scratch.outputs + (size_t)step.rows * 32;
  // The many-row kernel leaves its outputs at scratch.outputs: up goes first and is moved behind.
  for_outputs(*op.up, item * 2, 2, all, many, scratch,
              [&](int row, int t, F value) { f_store(up + (size_t)row * 32 + (t & 1) * 16, value); });
  for_outputs(*op.gate, item * 2, 2, all, many, scratch,
              [&](int row, int t, F value) { f_store(gate + (size_t)row * 32 + (t & 1) * 16, value); });
  for (int row = 0; row < step.rows; row++, gate += 32, up += 32) {
    const F low = gated_of(op.activation, op.limit, f_load(gate), f_load(up));
    const F high = gated_of(op.activation, op.limit, f_load(gate + 16), f_load(up + 16));
    store_gated(*op.out, row, item, low, high);
  }
}

}  // namespace memra::MEMRA_VARIANT
