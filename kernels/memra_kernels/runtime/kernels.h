// The door between the plan and an instruction-set variant: one table of functions per variant.
#pragma once
#include "types.h"

namespace memra {

// Memory that one thread keeps for itself.
struct ThreadScratch {
  void* row_pointers;  // one per row of the largest step
  float* outputs;      // [rows][2][32]: outputs of the many-row kernel, twice for gate and up
  void* unpacked;      // weights of the many-row kernels
  float* scores;       // attention: [queries][split_tokens]
  float* partials;     // attention: see attention/cpu/attention.h
  float* page;         // attention: keys, or values, of one page in float32, [page_tokens][512]
};

struct KernelTable {
  const char* name;
  size_t unpacked_bytes;
  int many_rows_from;  // rows from which the many-row kernel is the faster one
  // Around a thread's part of a step: registers that other code of the process may want between steps.
  void (*begin)();
  void (*end)();
  void (*linear)(const LinearOp&, const Step&, int item, bool many, ThreadScratch&);
  void (*gated)(const GatedOp&, const Step&, int item, bool many, ThreadScratch&);
  void (*head)(const HeadOp&, const Step&, int item, bool many, ThreadScratch&);
  void (*hidden)(const HiddenOp&, const Step&, int item);
  void (*conv)(const ConvOp&, const Step&, int row);
  void (*delta)(const DeltaOp&, const Step&, int item);
  void (*route)(const ExpertsOp&, int row);
  void (*expert_gated)(const ExpertsOp&, int item, int many_from, ThreadScratch&);
  void (*expert_down)(const ExpertsOp&, int item, int many_from, ThreadScratch&);
  void (*expert_mix)(const ExpertsOp&, int row);
  void (*row)(const RowOp*, int count, const Step&, int row);
  void (*attention)(const AttentionOp&, const Step&, const AttentionWork&, float* partials, ThreadScratch&);
  void (*merge)(const AttentionOp&, const Step&, const AttentionWork&, const float* partials);
};

#define MEMRA_DECLARE_VARIANT(variant) \
  namespace variant {                  \
  extern const KernelTable table;      \
  }
MEMRA_DECLARE_VARIANT(scalar)
MEMRA_DECLARE_VARIANT(avx2)
MEMRA_DECLARE_VARIANT(avxvnni)
MEMRA_DECLARE_VARIANT(avx512vnni)
MEMRA_DECLARE_VARIANT(avx512amx)
MEMRA_DECLARE_VARIANT(neon_dot)
MEMRA_DECLARE_VARIANT(neon_i8mm)

}  // namespace memra
