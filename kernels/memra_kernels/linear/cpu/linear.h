// Linear steps: which kernel meets which rows, and where its outputs go.
#pragma once
#include "../../runtime/kernels.h"
#include "few_rows.h"
#include "float_rows.h"
#include "many_rows.h"
#if defined(MEMRA_AMX)
#include "tile_rows.h"
#endif

namespace memra::MEMRA_VARIANT {

typedef void (*ManyRowsFn)(const Weight& w, int tile, int num_tiles, const uint8_t* const* x, int rows, float* out,
                           void* scratch);

struct LayoutKernels {
  const FewRowsFn* few;
  ManyRowsFn many;
};

// The choice of the many-row kernel, and from how many rows it is worth its unpacking: see README.md.
#if defined(MEMRA_AMX)
constexpr int many_rows_from = 16;
constexpr size_t unpacked_bytes = sizeof(SignedUnpacked) > sizeof(Unpacked) ? sizeof(SignedUnpacked) : sizeof(Unpacked);

// Halved layouts need two sums a block, and taking sums out of tiles is what costs most.
template <Layout L>
static constexpr LayoutKernels kernels_of() {
  return {few_rows_kernels<L>.data(), is_halved(traits(L).scale) ? many_rows<L> : tile_rows<L>};
}
#else
constexpr int many_rows_from = 17;
constexpr size_t unpacked_bytes = sizeof(Unpacked);

template <Layout L>
static constexpr LayoutKernels kernels_of() {
  return {few_rows_kernels<L>.data(), many_rows<L>};
}
#endif

static inline LayoutKernels layout_kernels(Layout layout) {
  switch (layout) {
    case Layout::Q4_0: return kernels_of<Layout::Q4_0>();
    case Layout::Q4_1: return kernels_of<Layout::Q4_1>();
    case Layout::Q5_0: return kernels_of<Layout::Q5_0>();
    case Layout::Q5_1: return kernels_of<Layout::Q5_1>();
    case Layout::Q8_0: return kernels_of<Layout::Q8_0>();
    case Layout::Q4_K: return kernels_of<Layout::Q4_K>();
    case Layout::Q5_K: return kernels_of<Layout::Q5_K>();
    case Layout::Q6_K: return kernels_of<Layout::Q6_K>();
    case Layout::Q2_K: return kernels_of<Layout::Q2_K>();
    case Layout::Q3_K: return kernels_of<Layout::Q3_K>();
    case Layout::IQ4_NL: return kernels_of<Layout::IQ4_NL>();
    case Layout::IQ4_XS: return kernels_of<Layout::IQ4_XS>();
    case Layout::NVFP4: return kernels_of<Layout::NVFP4>();
    case Layout::Grid32: return kernels_of<Layout::Grid32>();
    case Layout::Grid16: return kernels_of<Layout::Grid16>();
    case Layout::IQ3_XXS: return kernels_of<Layout::IQ3_XXS>();
    case Layout::IQ3_S: return kernels_of<Layout::IQ3_S>();
    case Layout::Ternary: return kernels_of<Layout::Ternary>();
    default: return kernels_of<Layout::MXFP4>();
  }
}

// The activation rows of a step: all of them, or those that `index` lists.
struct Rows {
  const Buffer* x;
  const int32_t* index;
  int count;

  int at(int i) const { return index ? index[i] : i; }
};

// Up to 8 rows of one tile, whatever the weights are.
static inline void few_outputs(const Weight& w, int tile, const Rows& rows, int first, int count, F* out) {
  if (is_float(w.layout)) {
    const float* x[few_rows];
    for (int n = 0; n < count; n++) x[n] = rows.x->row(rows.at(first + n));
    if (w.layout == Layout::F16) float_rows<Layout::F16>(w, tile, x, count, out);
    else if (w.layout == Layout::BF16) float_rows<Layout::BF16>(w, tile, x, count, out);
    else float_rows<Layout::F32>(w, tile, x, count, out);
    return;
  }
  const uint8_t* x[few_rows];
  for (int n = 0; n < count; n++) x[n] = rows.x->quant_row(rows.at(first + n));
  layout_kernels(w.layout).few[count - 1](w, tile, x, out);
}

// Calls emit(row number, tile, 16 outputs) for the tiles [tile, tile + num_tiles), num_tiles 1 or 2, and all rows.
template <class Emit>
static MEMRA_INLINE void for_outputs(const Weight& w, int tile, int num_tiles, const Rows& rows, bool many,
                                     ThreadScratch& scratch, Emit emit) {
  if (many && !is_float(w.layout)) {
    const uint8_t** x = (const uint8_t**)scratch.row_pointers;
    for (int n = 0; n < rows.count; n++) x[n] = rows.x->quant_row(rows.at(n));
    layout_kernels(w.layout).many(w, tile, num_tiles, x, rows.count, scratch.outputs, scratch.unpacked);
    for (int n = 0; n < rows.count; n++)
      for (int z = 0; z < num_tiles; z++) emit(n, tile + z, f_load(scratch.outputs + n * 32 + z * 16));
    return;
  }
  F out[few_rows];
  for (int z = 0; z < num_tiles; z++) {
    for (int first = 0; first < rows.count; first += few_rows) {
      const int count = rows.count - first < few_rows ? rows.count - first : few_rows;
      few_outputs(w, tile + z, rows, first, count, out);
      for (int n = 0; n < count; n++) emit(first + n, tile + z, out[n]);
    }
  }
}

// Item i is tile i (few rows) or pair of tiles i (many rows), counted through the parts.
static void linear_item(const LinearOp& op, const Step& step, int item, bool many, ThreadScratch& scratch) {
  const int unit = many ? 2 : 1;
  const LinearPart* part = op.parts;
  int tile = item * unit;
  for (int first = item; first >= (part->weight->tiles + unit - 1) / unit; tile = first * unit) {
    first -= (part->weight->tiles + unit - 1) / unit;
    part++;
  }
  const int num_tiles = part->weight->tiles - tile < unit ? part->weight->tiles - tile : unit;
  const Rows rows{op.x, nullptr, step.rows};
  for_outputs(*part->weight, tile, num_tiles, rows, many, scratch, [&](int row, int t, F value) {
    float* out = part->out->row(row) + (size_t)t * 16;
    if (part->bias) value = f_add(value, f_load(part->bias + (size_t)t * 16));
    f_store(out, part->add ? f_add(f_load(out), value) : value);
  });
}

}  // namespace memra::MEMRA_VARIANT
