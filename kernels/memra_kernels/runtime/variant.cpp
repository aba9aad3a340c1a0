// Compiled once per instruction set, with MEMRA_VARIANT naming it: every kernel of that variant and the table of them.
#include "../attention/cpu/attention.h"
#include "../causal_conv/cpu/conv_row.h"
#include "../experts/cpu/experts.h"
#include "../gated_delta/cpu/delta_head.h"
#include "../gated_product/cpu/gated_linear.h"
#include "../head/cpu/head.h"
#include "kernels.h"
#include "row_ops.h"

namespace memra::MEMRA_VARIANT {

#define MEMRA_NAME_OF(token) #token
#define MEMRA_NAME(token) MEMRA_NAME_OF(token)

extern const KernelTable table;
const KernelTable table = {MEMRA_NAME(MEMRA_VARIANT),
                           unpacked_bytes,
                           many_rows_from,
                           begin_step,
                           end_step,
                           linear_item,
                           gated_item,
                           head_item,
                           hidden_item,
                           conv_row,
                           delta_item,
                           route_row,
                           expert_gated_item,
                           expert_down_item,
                           expert_mix_row,
                           run_row,
                           attention_work,
                           merge_work};

}  // namespace memra::MEMRA_VARIANT
