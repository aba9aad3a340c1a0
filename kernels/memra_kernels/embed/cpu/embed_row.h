// One embedding row, dequantised straight from the stored table.
#pragma once
#include "../../quant_layouts/stored_blocks.h"
#include "../../runtime/types.h"

namespace memra::MEMRA_VARIANT {

// `index` is the row of the table: the token's id, or its position.
static void embed_row(const RowOp& op, int index, int row) {
  const StoredType& type = *find_stored_type(op.stored_type);
  const uint8_t* stored = op.stored + (size_t)index * op.stored_row_bytes;
  float* out = op.out->row(row);
  const int width = op.out->width;
  if (is_float(type.layout)) {
    for (int i = 0; i < width; i++)
      out[i] = stored::float_value(type.layout, stored + (size_t)i * type.bytes) * op.scale;
    return;
  }
  const int elements = record_blocks(type.layout) * 32;
  Codes codes;
  for (int i = 0; i < width; i++) {
    if (i % elements == 0) decode_record(type, stored, width, i / elements, codes);
    out[i] = code_value(type.layout, codes, i % elements) * op.scale;
  }
}

}  // namespace memra::MEMRA_VARIANT
