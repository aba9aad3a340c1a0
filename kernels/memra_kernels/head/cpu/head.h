// Logits of the rows that the step asks for, scaled and soft-capped.
#pragma once
#include "../../linear/cpu/linear.h"
#include "../../runtime/vec_math.h"

namespace memra::MEMRA_VARIANT {

static void head_item(const HeadOp& op, const Step& step, int item, bool many, ThreadScratch& scratch) {
  const int unit = many ? 2 : 1, tile = item * unit;
  const int num_tiles = op.weight->tiles - tile < unit ? op.weight->tiles - tile : unit;
  const Rows rows{op.x, step.output_rows, step.outputs};
  for_outputs(*op.weight, tile, num_tiles, rows, many, scratch, [&](int row, int t, F value) {
    if (op.scale != 1.0f) value = f_mul(value, f_set(op.scale));
    if (op.softcap != 0.0f) value = f_mul(f_set(op.softcap), f_tanh(f_div(value, f_set(op.softcap))));
    f_store(step.logits + (size_t)row * step.logits_stride + (size_t)t * 16, value);
  });
}

// Item i is output row i of a program that ends without a head.
static void hidden_item(const HiddenOp& op, const Step& step, int item) {
  memcpy(step.logits + (size_t)item * step.logits_stride, op.x->row(step.output_rows[item]),
         (size_t)op.x->width * sizeof(float));
}

}  // namespace memra::MEMRA_VARIANT
