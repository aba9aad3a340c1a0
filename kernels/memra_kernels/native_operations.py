"""What a plan is made of, in plain values: operations, their parts, batches, and names with the engine's numbers.

Trade: the vocabulary of `memra_kernels.native`. Knows numpy arrays and the numbers of `runtime/types.h`; refuses to
know ctypes, the library and how an operation is passed to it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PAGE_TOKENS = 64
"""Tokens of one key-value page: `page_tokens` of `runtime/types.h`."""
MAX_HEAD_DIM = 512
"""Largest head: the stack buffer of `attention/cpu/attention.h`."""

GGML_TYPES = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q5_0": 6,
    "Q5_1": 7,
    "Q8_0": 8,
    "Q2_K": 10,
    "Q3_K": 11,
    "Q4_K": 12,
    "Q5_K": 13,
    "Q6_K": 14,
    "IQ2_XXS": 16,
    "IQ2_XS": 17,
    "IQ3_XXS": 18,
    "IQ1_S": 19,
    "IQ4_NL": 20,
    "IQ3_S": 21,
    "IQ2_S": 22,
    "IQ4_XS": 23,
    "IQ1_M": 29,
    "BF16": 30,
    "TQ1_0": 34,
    "TQ2_0": 35,
    "MXFP4": 39,
    "NVFP4": 40,
    "Q1_0": 41,
}
"""Stored types that have a tiled layout, with ggml's numbers (ggml.h)."""
FLOAT_TYPES = frozenset({"F32", "F16", "BF16"})
"""Types whose linear kernels read float activations; the others read int8."""

ACTIVATIONS = {"silu": 0, "gelu_tanh": 1, "gelu": 2, "sigmoid": 3, "tanh": 4, "swiglu_clamped": 5}
"""Functions by name: `Gate` of `runtime/types.h`."""
KV_TYPES = {"f16": 0, "q8_0": 1}
"""How keys and values are kept, by name: `KvType` of `runtime/types.h`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOp:
    """One row-local operation; buffers are ids of `Plan.buffer`.

    Attributes:
        kind: `embed`, `norm`, `add`, `quantise`, `angles`, `rope`, `store`, `gate`, `position_embed`, `layer_norm`,
            `slice`, `activate`, `add_vector`, `scale`, `scale_rows`, `join` or `scale_by_position`.
        x: input; for `rope` and `quantise` also the output; for `store` the keys.
        y: second input; for `rope` the angles, for `store` the values.
        out: output.
        weight: of a norm, `[group_width]`, or None; of `add_vector`, `[width]`.
        bias: of a layer norm, `[width]`, or None.
        offset: of a `slice`, the first column of a group; of `rope`, the first rotated element of a head; of
            `position_embed` and `scale_by_position`, added to positions; of a `join`, columns from one group of `y` to
            the next, or 0 where all are the same.
        stride: of a `slice`, the columns of a group; `num_heads` is the number of groups, `head_dim` what is taken; of
            a `join`, columns of a group of `y`, and `head_dim` of `x`; of `scale_by_position`, positions of a step.
        scale: factor of `embed`, `norm`, `scale`, `angles` (on cosines and sines), on the second input of `add`, and on
            the logarithm of `scale_by_position`.
        limit: of a `gate`, the bound of the activation and of the second input; 0 is none.
        frequencies: radians per position for `angles`, `[half_dims]`.
        layer: cache layer of `store`.
        stored_type: name of the embedding table's type; `stored` are its bytes, kept alive by the plan.
        starts_step: True begins a new step, False continues the chain of the step before on the same row.
    """

    kind: str
    x: int = -1
    y: int = -1
    out: int = -1
    weight: NDArray[np.float32] | None = None
    bias: NDArray[np.float32] | None = None
    offset: int = 0
    stride: int = 0
    frequencies: NDArray[np.float64] | None = None
    group_width: int = 0
    num_heads: int = 0
    head_dim: int = 0
    half_dims: int = 0
    interleaved: bool = False
    activation: str = "silu"
    layer: int = -1
    scale: float = 1.0
    eps: float = 0.0
    limit: float = 0.0
    stored_type: str = "F32"
    stored: NDArray[np.uint8] | None = None
    stored_row_bytes: int = 0
    starts_step: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsOp:
    """A mixture of experts: weights by id, with the rows of all experts one after the other; buffers by id.

    Attributes:
        hidden: a buffer of `num_used` copies, `[width]`, in the forms that `down` reads.
        parts: a buffer of `num_used` copies as wide as `out`.
        router: `softmax`, `sigmoid` or `softmax_of_chosen`.
        limit: bound of the activation and of the second product; 0 is none.
        gate_bias, up_bias: `[num_experts, width]` or None.
        down_bias: `[num_experts, width of out]` or None.
        correction, expert_scale: `[num_experts]` or None.
    """

    x: int
    logits: int
    out: int
    hidden: int
    parts: int
    gate: int
    up: int
    down: int
    num_experts: int
    num_used: int
    width: int
    router: str
    activation: str
    num_groups: int = 1
    num_groups_used: int = 1
    normalise: bool = False
    scales_input: bool = False
    scale: float = 1.0
    limit: float = 0.0
    gate_bias: NDArray[np.float32] | None = None
    up_bias: NDArray[np.float32] | None = None
    down_bias: NDArray[np.float32] | None = None
    correction: NDArray[np.float32] | None = None
    expert_scale: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaOp:
    """The gated delta rule over buffers by id; `offset` is the place of its state, in float32 values.

    Attributes:
        a_log, dt_bias: `[num_value_heads]`.
        tiled: value head h reads key head `h % num_key_heads`, else `h * num_key_heads // num_value_heads`.
    """

    q: int
    k: int
    v: int
    a: int
    b: int
    out: int
    a_log: NDArray[np.float32]
    dt_bias: NDArray[np.float32]
    offset: int
    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    scale: float
    tiled: bool


@dataclass(frozen=True, slots=True)
class LinearPart:
    """One matrix of a linear step: `out = x @ weight.T + bias`, or added to what `out` holds."""

    weight: int
    out: int
    bias: NDArray[np.float32] | None = None
    add: bool = False


@dataclass(frozen=True, slots=True)
class CacheLayer:
    """What one attention layer keeps of a token: keys of `head_dim` and values of `value_dim` for each kv head."""

    num_kv_heads: int
    head_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Contiguous int32 arrays of one step, as in `memra.engine.executor.RowBatch`; page tables are two-dimensional.

    The states are left out for a plan without any.
    """

    token_ids: NDArray[np.int32]
    positions: NDArray[np.int32]
    sequences: NDArray[np.int32]
    page_tables: NDArray[np.int32]
    output_rows: NDArray[np.int32]
    states_in: NDArray[np.int32] | None = None
    states_out: NDArray[np.int32] | None = None
