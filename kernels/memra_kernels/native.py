"""Binds the native CPU engine (C++ in this package) to Python with ctypes and numpy.

A `Plan` is one model: weights in tiled layouts, activations, key-value pages and a list of steps; `run` computes one
batch in a single call that holds no GIL. This module knows the C interface of `runtime/abi.h` and nothing of models;
`memra.engine.cpu_executor` turns a model's program into a plan. Build the library with
`python -m memra_kernels.build_native`.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from memra_kernels.native_library import (
    MAX_PARTS,
    AttentionSpec,
    ConvSpec,
    DeltaSpec,
    ExpertsSpec,
    LinearSpec,
    NativeError,
    NativeUnavailableError,
    RowSpec,
    StepSpec,
    checked,
    library,
)

__all__ = [
    "ACTIVATIONS",
    "FLOAT_TYPES",
    "GGML_TYPES",
    "KV_TYPES",
    "MAX_HEAD_DIM",
    "MAX_PARTS",
    "PAGE_TOKENS",
    "Batch",
    "CacheLayer",
    "LinearPart",
    "NativeError",
    "NativeUnavailableError",
    "Plan",
    "RowOp",
    "ThreadPool",
    "compiler_version",
    "library",
    "usable_variants",
]

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
_ROW_KINDS = {"embed": 0, "norm": 1, "add": 2, "quantise": 3, "angles": 4, "rope": 5, "store": 6, "gate": 7}
_ROW_KINDS |= {"position_embed": 8, "layer_norm": 9, "slice": 10, "activate": 11, "add_vector": 12, "scale": 13}
_ROW_KINDS |= {"scale_rows": 14, "join": 15, "scale_by_position": 16}
_ROUTERS = {"softmax": 0, "sigmoid": 1, "softmax_of_chosen": 2}

_SPIN_US = 1000  # workers stay awake between the steps of a running generation, and sleep soon after the last


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


def usable_variants() -> list[str]:
    """Instruction-set variants that this processor runs, best first; all give the same bits.

    Raises:
        NativeUnavailableError: as `library`.
    """
    names: str = library().memra_variants().decode()
    return names.split(",")


def compiler_version() -> str:
    """Name and version of the compiler that built the library.

    Raises:
        NativeUnavailableError: as `library`.
    """
    version: str = library().memra_compiler().decode()
    return version


def _address(array: NDArray[np.generic] | None) -> int | None:
    return None if array is None else array.ctypes.data


class ThreadPool:
    """The engine's threads, shared by the plans of one caller; one plan runs at a time."""

    def __init__(self, num_threads: int) -> None:
        """Start `num_threads - 1` workers; the caller of `Plan.run` is the last.

        Raises:
            NativeError: not between 1 and 64, or the system gives no more threads.
        """
        self._lib = library()
        self._handle: int | None = checked(self._lib.memra_pool_new(num_threads, _SPIN_US))
        self.num_threads = num_threads

    @property
    def handle(self) -> int:
        """The native address.

        Raises:
            NativeError: the pool is closed.
        """
        if self._handle is None:
            raise NativeError("the thread pool is closed")
        return self._handle

    def close(self) -> None:
        """Stop and join the workers; every plan on this pool must be closed before. May be called twice."""
        if self._handle is not None:
            self._lib.memra_pool_free(self._handle)
            self._handle = None


@dataclass(slots=True)
class _StepArguments:
    """What one step passes to C; `arrays` keeps the memory alive until the next step."""

    spec: StepSpec = field(default_factory=StepSpec)
    arrays: Batch | None = None


class Plan:
    """One model's weights, buffers, pages and steps; built once, run by one thread at a time."""

    def __init__(self, pool: ThreadPool, *, variant: str, max_rows: int) -> None:
        """Start an empty plan.

        Args:
            pool: outlives the plan.
            variant: one of `usable_variants()`.
            max_rows: rows of the largest batch.

        Raises:
            NativeError: unknown variant, or no memory.
        """
        self._lib = library()
        self._pool = pool
        self._handle: int | None = checked(self._lib.memra_plan_new(pool.handle, variant.encode(), max_rows))
        self._kept: list[NDArray[np.uint8]] = []
        self._num_tile_bytes = 0
        self._step = _StepArguments()
        self._shapes: list[tuple[int, int]] = []
        self._output_width = 0
        self._logits: NDArray[np.float32] = np.empty((0, 0), np.float32)

    @property
    def _plan(self) -> int:
        if self._handle is None:
            raise NativeError("the plan is closed")
        return self._handle

    @property
    def num_bytes(self) -> int:
        """Bytes of weights, activations and pages; tiles that lie in a mapped file are among them."""
        return int(self._lib.memra_plan_bytes(self._plan)) + self._num_tile_bytes

    def weight(self, stored: NDArray[np.uint8], *, quant_type: str, rows: int, columns: int) -> int:
        """Repack a stored matrix into its tiled layout, losslessly; returns its id.

        Raises:
            NativeError: no layout for the type, sizes that contradict each other, or a NaN or infinite scale.
        """
        if quant_type not in GGML_TYPES:
            raise NativeError(f"type {quant_type} has no tiled layout")
        data = np.ascontiguousarray(stored)
        index = self._lib.memra_plan_weight(
            self._plan, GGML_TYPES[quant_type], _address(data), data.nbytes, rows, columns
        )
        self._shapes.append((rows, columns))
        return checked(index)

    def tiles(self, tiles: NDArray[np.uint8], *, quant_type: str, rows: int, columns: int) -> int:
        """Take a matrix that `repacking.repack` wrote, as it is and where it is; returns its id.

        Args:
            tiles: at a multiple of 64 bytes, with `repacking.TAIL_BYTES` of readable memory behind; kept by the plan.
            quant_type: of the stored matrix that it was made from.
            rows: of that matrix.
            columns: of that matrix.

        Raises:
            NativeError: no layout for the type, or the tiles have another size or a wrong place.
        """
        if quant_type not in GGML_TYPES:
            raise NativeError(f"type {quant_type} has no tiled layout")
        number = GGML_TYPES[quant_type]
        index = checked(self._lib.memra_plan_tiles(self._plan, number, _address(tiles), tiles.nbytes, rows, columns))
        self._kept.append(tiles)
        self._num_tile_bytes += tiles.nbytes
        self._shapes.append((rows, columns))
        return index

    def check(self, stored: NDArray[np.uint8], *, quant_type: str, rows: int, columns: int) -> None:
        """Refuse what `weight` refuses and keep nothing: for an embedding table, whose rows are read as stored.

        Raises:
            NativeError: as `weight`.
        """
        probe = Plan(self._pool, variant="scalar", max_rows=1)
        try:
            probe.weight(stored, quant_type=quant_type, rows=rows, columns=columns)
        finally:
            probe.close()

    def unpack(self, weight: int) -> NDArray[np.float32]:
        """Every weight read back from the tiles, `[rows, columns]`: bit for bit what the file says."""
        out = np.empty(self._shapes[weight], np.float32)
        checked(self._lib.memra_plan_unpack(self._plan, weight, _address(out)))
        return out

    def buffer(self, width: int, *, values: bool = True, quants: bool = False, copies: int = 1) -> int:
        """An activation `[max_rows * copies, width]` in float32, in int8, or both; returns its id."""
        return checked(self._lib.memra_plan_buffer(self._plan, width, values, quants, copies))

    def states(self, num_states: int, *, num_floats: int) -> None:
        """Make the states of recurrent sequences, `[num_states, num_floats]` float32."""
        checked(self._lib.memra_plan_states(self._plan, num_states, num_floats))

    def cache(self, *, num_pages: int, layers: Sequence[CacheLayer], kv_type: str = "f16") -> None:
        """Make the key-value pages, kept as one of `KV_TYPES`.

        Raises:
            NativeError: a head_dim or value_dim that is no multiple of 16 or above 512, an unknown type, or no memory.
        """
        if kv_type not in KV_TYPES:
            raise NativeError(f"keys and values are kept as {' or '.join(KV_TYPES)}, not as {kv_type}")
        heads = np.array([layer.num_kv_heads for layer in layers], np.int32)
        dims = np.array([layer.head_dim for layer in layers], np.int32)
        value_dims = np.array([layer.value_dim for layer in layers], np.int32)
        addresses = (_address(array) for array in (heads, dims, value_dims))
        checked(self._lib.memra_plan_cache(self._plan, num_pages, len(layers), *addresses, KV_TYPES[kv_type]))

    def row(self, op: RowOp) -> None:
        """Add a row-local operation."""
        weight = None if op.weight is None else np.ascontiguousarray(op.weight, np.float32)
        bias = None if op.bias is None else np.ascontiguousarray(op.bias, np.float32)
        frequencies = None if op.frequencies is None else np.ascontiguousarray(op.frequencies, np.float64)
        if op.stored is not None:
            self._kept.append(op.stored)
        spec = RowSpec(
            kind=_ROW_KINDS[op.kind],
            x=op.x,
            y=op.y,
            out=op.out,
            weight_length=0 if weight is None else weight.size,
            group_width=op.group_width,
            num_heads=op.num_heads,
            head_dim=op.head_dim,
            half_dims=op.half_dims,
            interleaved=op.interleaved,
            activation=ACTIVATIONS[op.activation],
            layer=op.layer,
            stored_type=GGML_TYPES[op.stored_type],
            starts_step=op.starts_step,
            offset=op.offset,
            stride=op.stride,
            bias_length=0 if bias is None else bias.size,
            scale=op.scale,
            eps=op.eps,
            limit=op.limit,
            weight=_address(weight),
            bias=_address(bias),
            frequencies=_address(frequencies),
            stored=_address(op.stored),
            stored_row_bytes=op.stored_row_bytes,
        )
        checked(self._lib.memra_plan_row(self._plan, ctypes.byref(spec)))

    def linear(self, x: int, parts: Sequence[LinearPart]) -> None:
        """Add a step of one to four matrices that read the same `x`."""
        spec = LinearSpec(x=x, num_parts=len(parts))
        biases = [None if part.bias is None else np.ascontiguousarray(part.bias, np.float32) for part in parts]
        for index, (part, bias) in enumerate(zip(parts, biases, strict=True)):
            spec.weight[index] = part.weight
            spec.out[index] = part.out
            spec.add[index] = part.add
            spec.bias[index] = _address(bias)
        checked(self._lib.memra_plan_linear(self._plan, ctypes.byref(spec)))

    def gated(  # noqa: PLR0913 - the attributes of the operator
        self, x: int, *, gate: int, up: int, out: int, activation: str, limit: float = 0.0
    ) -> None:
        """Add `out = activation(x @ gate.T) * (x @ up.T)`; the matrices have a multiple of 32 rows.

        With a limit above 0, the activation is at most that, and `x @ up.T` at most that far from 0.
        """
        checked(self._lib.memra_plan_gated(self._plan, x, gate, up, out, ACTIVATIONS[activation], limit))

    def conv(  # noqa: PLR0913 - the attributes of the operator
        self,
        x: int,
        *,
        out: int,
        weight: NDArray[np.float32],
        offset: int,
        bias: NDArray[np.float32] | None = None,
        activation: str | None = None,
    ) -> None:
        """Add a causal depthwise convolution; weight `[channels, taps]`, its state at `offset` floats."""
        taps = np.ascontiguousarray(weight.T, np.float32)
        bias = None if bias is None else np.ascontiguousarray(bias, np.float32)
        spec = ConvSpec(
            x=x,
            out=out,
            taps=taps.shape[0],
            activation=-1 if activation is None else ACTIVATIONS[activation],
            weight=_address(taps),
            bias=_address(bias),
            state_offset=offset,
        )
        checked(self._lib.memra_plan_conv(self._plan, ctypes.byref(spec)))

    def delta(self, op: DeltaOp) -> None:
        """Add a gated delta rule."""
        a_log, dt_bias = (np.ascontiguousarray(values, np.float32) for values in (op.a_log, op.dt_bias))
        spec = DeltaSpec(
            **{name: getattr(op, name) for name in ("q", "k", "v", "a", "b", "out", "key_dim", "value_dim")},
            num_key_heads=op.num_key_heads,
            num_value_heads=op.num_value_heads,
            tiled=op.tiled,
            scale=op.scale,
            a_log=_address(a_log),
            dt_bias=_address(dt_bias),
            state_offset=op.offset,
        )
        checked(self._lib.memra_plan_delta(self._plan, ctypes.byref(spec)))

    def experts(self, op: ExpertsOp) -> None:
        """Add a mixture of experts: the choice, the experts' work, and the sums."""
        names = ("gate_bias", "up_bias", "down_bias", "correction", "expert_scale")
        vectors = {name: getattr(op, name) for name in names}
        vectors = {
            name: None if vector is None else np.ascontiguousarray(vector, np.float32)
            for name, vector in vectors.items()
        }
        plain = ("x", "logits", "out", "hidden", "parts", "gate", "up", "down", "num_experts", "width")
        spec = ExpertsSpec(
            **{name: getattr(op, name) for name in (*plain, "num_groups", "num_groups_used")},
            used=op.num_used,
            router=_ROUTERS[op.router],
            normalise=op.normalise,
            scales_input=op.scales_input,
            activation=ACTIVATIONS[op.activation],
            weight_scale=op.scale,
            limit=op.limit,
            **{name: _address(vector) for name, vector in vectors.items()},
        )
        checked(self._lib.memra_plan_experts(self._plan, ctypes.byref(spec)))

    def attention(  # noqa: PLR0913 - the attributes of the operator
        self,
        q: int,
        *,
        out: int,
        layer: int,
        num_heads: int,
        scale: float,
        window: int = 0,
        chunk: int = 0,
        causal: bool = True,
        softcap: float = 0.0,
        sinks: NDArray[np.float32] | None = None,
    ) -> None:
        """Add attention over the pages; window and chunk 0 see everything, softcap 0 is off, `sinks` are `[num_heads]`.

        Raises:
            NativeError: sizes that contradict each other.
        """
        if sinks is not None and sinks.shape != (num_heads,):
            raise NativeError(f"{num_heads} heads need as many sinks, not an array of shape {sinks.shape}")
        kept = None if sinks is None else np.ascontiguousarray(sinks, np.float32)
        spec = AttentionSpec(
            q=q,
            out=out,
            layer=layer,
            num_heads=num_heads,
            window=window,
            chunk=chunk,
            causal=causal,
            scale=scale,
            softcap=softcap,
            sinks=_address(kept),
        )
        checked(self._lib.memra_plan_attention(self._plan, ctypes.byref(spec)))

    def head(self, x: int, *, weight: int, scale: float = 1.0, softcap: float = 0.0) -> None:
        """Add the logits of the output rows."""
        checked(self._lib.memra_plan_head(self._plan, x, weight, scale, softcap))
        self._output_width = self._shapes[weight][0]
        self.limit(token_ids=self._output_width)

    def hidden(self, x: int, *, width: int) -> None:
        """Add the output rows of `x` as they are, in place of logits."""
        checked(self._lib.memra_plan_hidden(self._plan, x))
        self._output_width = width

    def limit(self, *, token_ids: int | None = None, positions: int | None = None) -> None:
        """Say how many token ids and positions there are: `run` refuses others."""
        if token_ids is not None:
            self._lib.memra_plan_vocabulary(self._plan, token_ids)
        if positions is not None:
            self._lib.memra_plan_positions(self._plan, positions)

    def set_many_rows_from(self, rows: int) -> None:
        """Rows from which the many-row kernel runs: for measurements and tests of equality; no bit depends on it."""
        self._lib.memra_plan_many_rows_from(self._plan, rows)

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Run all steps on a batch; returns logits `[N, vocabulary]` or hidden rows, valid until the next call.

        Raises:
            NativeError: an index of the batch is out of range or its arrays do not fit together (nothing was written),
                or the process has forked.
        """
        if not batch.token_ids.size == batch.positions.size == batch.sequences.size:
            raise NativeError("the rows of a step need as many positions and sequences as token ids")
        num_outputs, stride = batch.output_rows.size, -(-self._output_width // 16) * 16
        if self._logits.shape[0] < num_outputs or self._logits.shape[1] != stride:
            self._logits = np.empty((max(num_outputs, 1), stride), np.float32)
        step = self._step
        step.arrays, spec = batch, step.spec
        spec.rows, spec.outputs = batch.token_ids.size, num_outputs
        spec.num_sequences, spec.pages_per_sequence = batch.page_tables.shape
        spec.logits_stride, spec.logits = stride, _address(self._logits)
        spec.token_ids, spec.positions = _address(batch.token_ids), _address(batch.positions)
        spec.sequences, spec.output_rows = _address(batch.sequences), _address(batch.output_rows)
        spec.page_tables = _address(batch.page_tables)
        spec.states_in, spec.states_out = _address(batch.states_in), _address(batch.states_out)
        checked(self._lib.memra_plan_run(self._plan, ctypes.byref(spec)))
        return self._logits[:num_outputs, : self._output_width]

    def page(self, index: int) -> bytes:
        """A copy of one page: per layer, per kv head, keys `[4][dim][16]` then values `[64][dim]`.

        Elements are float16, or int8 with float16 scales; `attention/cpu/cache.h` says where those lie.

        Raises:
            NativeError: no such page.
        """
        address = checked(self._lib.memra_plan_page(self._plan, index))
        return ctypes.string_at(address, self._lib.memra_plan_page_bytes(self._plan))

    def state(self, index: int) -> bytes:
        """A copy of one state, float32.

        Raises:
            NativeError: no such state.
        """
        address = checked(self._lib.memra_plan_state(self._plan, index))
        return ctypes.string_at(address, self._lib.memra_plan_state_bytes(self._plan))

    def close(self) -> None:
        """Free everything; nothing else may be called afterwards. May be called twice."""
        if self._handle is not None:
            self._lib.memra_plan_free(self._handle)
            self._handle = None
            self._kept.clear()
