// The row-local operations, by kind; a chain of them runs on one row while it is in the near cache.
#pragma once
#include "../attention/cpu/cache.h"
#include "../embed/cpu/embed_row.h"
#include "../gated_product/cpu/gated_linear.h"
#include "../rmsnorm/cpu/norm_row.h"
#include "../rope/cpu/rope_row.h"
#include "quantise.h"

namespace memra::MEMRA_VARIANT {

static inline void add_row(const RowOp& op, int row) {
  const float *x = op.x->row(row), *y = op.y->row(row);
  float* out = op.out->row(row);
  for (int i = 0; i < op.out->width; i += 16) f_store(out + i, f_add(f_load(x + i), f_load(y + i)));
}

static inline void gate_row(const RowOp& op, int row) {
  const float *x = op.x->row(row), *y = op.y->row(row);
  float* out = op.out->row(row);
  for (int i = 0; i < op.out->width; i += 16)
    f_store(out + i, f_mul(gate_of(op.activation, f_load(x + i)), f_load(y + i)));
}

static void run_row(const RowOp* ops, int count, const Step& step, int row) {
  for (const RowOp* op = ops; op < ops + count; op++) {
    switch (op->kind) {
      case RowKind::Embed: embed_row(*op, step, row); break;
      case RowKind::Norm: norm_row(*op, row); break;
      case RowKind::Add: add_row(*op, row); break;
      case RowKind::Quantise: quantise_row(op->x->quant_row(row), op->x->width, op->x->row(row)); break;
      case RowKind::Angles: angles_row(*op, step, row); break;
      case RowKind::Rope: rope_row(*op, row); break;
      case RowKind::Store: store_row(*op, step, row); break;
      case RowKind::Gate: gate_row(*op, row); break;
    }
  }
}

}  // namespace memra::MEMRA_VARIANT
