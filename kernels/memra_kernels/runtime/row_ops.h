// The row-local operations, by kind; a chain of them runs on one row while it is in the near cache.
#pragma once
#include "../attention/cpu/cache.h"
#include "../elementwise/cpu/element_rows.h"
#include "../embed/cpu/embed_row.h"
#include "../join/cpu/join_row.h"
#include "../layer_norm/cpu/layer_norm_row.h"
#include "../rmsnorm/cpu/norm_row.h"
#include "../rope/cpu/rope_row.h"
#include "../slice/cpu/slice_row.h"
#include "quantise.h"

namespace memra::MEMRA_VARIANT {

static void run_row(const RowOp* ops, int count, const Step& step, int row) {
  for (const RowOp* op = ops; op < ops + count; op++) {
    switch (op->kind) {
      case RowKind::Embed: embed_row(*op, step.token_ids[row], row); break;
      case RowKind::Norm: norm_row(*op, row); break;
      case RowKind::Add: add_row(*op, row); break;
      case RowKind::Quantise: quantise_row(op->x->quant_row(row), op->x->width, op->x->row(row)); break;
      case RowKind::Angles: angles_row(*op, step, row); break;
      case RowKind::Rope: rope_row(*op, row); break;
      case RowKind::Store: store_row(*op, step, row); break;
      case RowKind::Gate: gate_row(*op, row); break;
      case RowKind::PositionEmbed: embed_row(*op, step.positions[row] + op->offset, row); break;
      case RowKind::LayerNorm: layer_norm_row(*op, row); break;
      case RowKind::Slice: slice_row(*op, row); break;
      case RowKind::Activate: activate_row(*op, row); break;
      case RowKind::AddVector: add_vector_row(*op, row); break;
      case RowKind::Scale: scale_row(*op, row); break;
      case RowKind::ScaleRows: scale_by_gate_row(*op, row); break;
      case RowKind::Join: join_row(*op, row); break;
      case RowKind::ScaleByPosition: scale_by_position_row(*op, step, row); break;
    }
  }
}

}  // namespace memra::MEMRA_VARIANT
