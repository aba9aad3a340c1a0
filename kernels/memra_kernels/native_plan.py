"""A plan of the native engine: one model's weights, activations, key-value pages and steps, and their one call.

Trade: the C interface of `runtime/abi.h`, call by call. Knows nothing of models; `memra_kernels.native` is the door to
it and `native_specs` writes its structures.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from memra_kernels.native_library import AttentionSpec, ConvSpec, NativeError, StepSpec, checked, library
from memra_kernels.native_operations import (
    ACTIVATIONS,
    GGML_TYPES,
    KV_TYPES,
    Batch,
    CacheLayer,
    DeltaOp,
    ExpertsOp,
    LinearPart,
    RowOp,
)
from memra_kernels.native_specs import Kept, address_of, delta_spec, experts_spec, linear_spec, row_spec
from memra_kernels.native_threads import ThreadPool


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
            self._plan, GGML_TYPES[quant_type], address_of(data), data.nbytes, rows, columns
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
        index = checked(self._lib.memra_plan_tiles(self._plan, number, address_of(tiles), tiles.nbytes, rows, columns))
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
        checked(self._lib.memra_plan_unpack(self._plan, weight, address_of(out)))
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
        addresses = (address_of(array) for array in (heads, dims, value_dims))
        checked(self._lib.memra_plan_cache(self._plan, num_pages, len(layers), *addresses, KV_TYPES[kv_type]))

    def row(self, op: RowOp) -> None:
        """Add a row-local operation."""
        if op.stored is not None:
            self._kept.append(op.stored)
        kept = Kept()
        checked(self._lib.memra_plan_row(self._plan, ctypes.byref(row_spec(op, kept))))

    def linear(self, x: int, parts: Sequence[LinearPart]) -> None:
        """Add a step of one to four matrices that read the same `x`."""
        kept = Kept()
        checked(self._lib.memra_plan_linear(self._plan, ctypes.byref(linear_spec(x, parts, kept))))

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
        kept = Kept()
        spec = ConvSpec(
            x=x,
            out=out,
            taps=weight.shape[1],
            activation=-1 if activation is None else ACTIVATIONS[activation],
            weight=kept.address(weight.T),
            bias=kept.address(bias),
            state_offset=offset,
        )
        checked(self._lib.memra_plan_conv(self._plan, ctypes.byref(spec)))

    def delta(self, op: DeltaOp) -> None:
        """Add a gated delta rule."""
        kept = Kept()
        checked(self._lib.memra_plan_delta(self._plan, ctypes.byref(delta_spec(op, kept))))

    def experts(self, op: ExpertsOp) -> None:
        """Add a mixture of experts: the choice, the experts' work, and the sums."""
        kept = Kept()
        checked(self._lib.memra_plan_experts(self._plan, ctypes.byref(experts_spec(op, kept))))

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
        kept = Kept()
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
            sinks=kept.address(sinks),
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
        spec.logits_stride, spec.logits = stride, address_of(self._logits)
        spec.token_ids, spec.positions = address_of(batch.token_ids), address_of(batch.positions)
        spec.sequences, spec.output_rows = address_of(batch.sequences), address_of(batch.output_rows)
        spec.page_tables = address_of(batch.page_tables)
        spec.states_in, spec.states_out = address_of(batch.states_in), address_of(batch.states_out)
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

    def write_page(self, index: int, data: bytes) -> None:
        """Make a page hold what `page` returned for one of a plan of the same kind.

        Raises:
            NativeError: no such page.
            ValueError: the bytes are not one page's.
        """
        address = checked(self._lib.memra_plan_page(self._plan, index))
        _write(address, data, self._lib.memra_plan_page_bytes(self._plan), noun="page")

    def state(self, index: int) -> bytes:
        """A copy of one state, float32.

        Raises:
            NativeError: no such state.
        """
        address = checked(self._lib.memra_plan_state(self._plan, index))
        return ctypes.string_at(address, self._lib.memra_plan_state_bytes(self._plan))

    def write_state(self, index: int, data: bytes) -> None:
        """Make a state hold what `state` returned.

        Raises:
            NativeError: no such state.
            ValueError: the bytes are not one state's.
        """
        address = checked(self._lib.memra_plan_state(self._plan, index))
        _write(address, data, self._lib.memra_plan_state_bytes(self._plan), noun="state")

    def close(self) -> None:
        """Free everything; nothing else may be called afterwards. May be called twice."""
        if self._handle is not None:
            self._lib.memra_plan_free(self._handle)
            self._handle = None
            self._kept.clear()


def _write(address: int, data: bytes, num_bytes: int, *, noun: str) -> None:
    if len(data) != num_bytes:
        raise ValueError(f"a {noun} has {num_bytes} bytes, not {len(data)}")
    ctypes.memmove(address, data, num_bytes)
