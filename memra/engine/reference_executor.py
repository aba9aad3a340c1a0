"""The torch executor: the oracle that every other executor is held against, and the fallback where none is.

Trade: runs a program operator by operator with the reference operators of `memra_kernels`, on any device that torch
knows. Activations are float32; matrices, embeddings and the key-value cache have the chosen type.

The promise, tested by equality of bits: a row's logits and cache bytes depend on its own sequence alone. Every sum has
one order: norms and softmax sums by halving, attention by blocks at fixed positions, added first to last, and products
with a weight in the matrix library's order for tile heights that were probed, when the weight was loaded, to agree. The
bits belong to one machine, build and number of threads of torch, which must not change while an executor lives.

Refuses to know queues, sampling and text. One thread, the worker's, owns an instance.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from memra_kernels.attention.reference import attention
from memra_kernels.embed.reference import embed
from memra_kernels.gated_product.reference import gelu_tanh_product, silu_product
from memra_kernels.head.reference import head
from memra_kernels.linear.reference import linear
from memra_kernels.rmsnorm.reference import rms_norm
from memra_kernels.rope.reference import RopeTable, build_rope_table, rope
from numpy.typing import NDArray

from memra.engine.executor import RowBatch, WeightTensors
from memra.engine.reference_attention import PagedCache, TileGroup, TilePlanner
from memra.engine.reference_tiles import probe_attention_tiles, probe_weight_tiles
from memra.engine.reference_weights import choose_device, choose_dtype, load_weights
from memra.errors import ConfigurationError
from memra.layers.operators import (
    Activation,
    Add,
    Attention,
    Embed,
    GatedProduct,
    Head,
    Linear,
    Operator,
    RmsNorm,
    Rope,
    RopeStyle,
)
from memra.layers.program import Program

_GATED_PRODUCTS = {Activation.SILU: silu_product, Activation.GELU_TANH: gelu_tanh_product}

_Angles = tuple[int, float, float, str | None]
"""What makes two rotations turn by the same angles."""


def _angles_of(operator: Rope) -> _Angles:
    return operator.rotary_dims, operator.base, operator.position_scale, operator.frequency_factors


@dataclass(slots=True)
class _Step:
    """The state of one call: `num_real` rows, padded with token 0 at position 0 to T rows, whole tiles of any height.

    Attributes:
        token_ids, positions: int64 `[T]`.
        slots: int64 `[num_real]`, where each row's key and value go in the flattened pages.
        groups: tile groups of the step, by window.
        output_rows: int64, the `num_outputs` rows that want logits, padded to whole tiles by repeating the last.
        buffers: float32 `[T, width]`, by name.
        angles: `[T, rotary_dims / 2]`, the rows' part of every rope table.
    """

    num_real: int
    num_outputs: int
    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    groups: dict[int | None, list[TileGroup]]
    output_rows: torch.Tensor
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    angles: dict[_Angles, RopeTable] = field(default_factory=dict)
    logits: torch.Tensor | None = None


def _thread_suffix(device: torch.device) -> str:
    return f"-{torch.get_num_threads()}t" if device.type == "cpu" else ""


class ReferenceExecutor:
    """Implements `memra.engine.executor.Executor` in torch.

    Args:
        program: what to run.
        tensors: the file's tensors; dequantised here, not kept.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        dtype: `float32` or `bfloat16`.
        num_pages: pages of the key-value cache.
        page_tokens: tokens a page.

    Raises:
        ConfigurationError: the device, the dtype or a size cannot be used.
        CorruptFileError: a tensor is missing, misshapen or not finite.
    """

    def __init__(  # noqa: PLR0913  (keyword-only settings)
        self,
        program: Program,
        tensors: WeightTensors,
        *,
        device: str,
        dtype: str,
        num_pages: int,
        page_tokens: int = 64,
    ) -> None:
        if num_pages < 1 or page_tokens < 1:
            raise ConfigurationError(f"A cache of {num_pages} pages of {page_tokens} tokens holds nothing.")
        self._device = choose_device(device)
        self._program = program
        self._page_tokens = page_tokens
        self._num_pages = num_pages
        self._backend = f"torch-{self._device.type}-{dtype}{_thread_suffix(self._device)}"
        torch_dtype = choose_dtype(dtype)
        self._weights = load_weights(program, tensors, device=self._device, dtype=torch_dtype)
        self._tiles = probe_weight_tiles(program, self._weights)
        # Heights are powers of two, so that every small tile divides a step that is padded to the tallest of them.
        self._row_multiple = max(tiles.small for tiles in self._tiles.values())
        self._cache = PagedCache(
            program.kv_layers, num_pages=num_pages, page_tokens=page_tokens, device=self._device, dtype=torch_dtype
        )
        attentions = [operator for operator in program if isinstance(operator, Attention)]
        self._planner = TilePlanner(
            probe_attention_tiles(attentions, self._device, page_tokens),
            page_tokens=page_tokens,
            num_heads=max(operator.num_heads for operator in attentions),
            device=self._device,
        )
        self._windows = {operator.window for operator in attentions}
        self._max_positions = min(program.context_tokens, num_pages * page_tokens)
        ropes = {_angles_of(operator): operator for operator in program if isinstance(operator, Rope)}
        self._rope_tables = {key: self._build_rope_table(operator) for key, operator in ropes.items()}
        self._instructions = [self._bind(operator) for operator in program]

    @property
    def backend(self) -> str:
        """`torch-<device>-<dtype>`; on a CPU also the number of threads, which can change a library's order of sums."""
        return self._backend

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return self._program.vocab_size

    @property
    def page_tokens(self) -> int:
        """Tokens per key-value page."""
        return self._page_tokens

    @property
    def num_pages(self) -> int:
        """Number of pages; ids are 0 to num_pages - 1."""
        return self._num_pages

    @torch.inference_mode()
    def run(self, batch: RowBatch) -> NDArray[np.float32]:
        """Compute the rows, write their keys and values into the pages, return logits `[N, vocab_size]`.

        Raises:
            ValueError: the batch names a token, position, sequence, page or row that does not exist.
        """
        self._check(batch)
        if not len(batch.token_ids):
            return np.empty((0, self.vocab_size), dtype=np.float32)
        step = self._begin(batch)
        for instruction in self._instructions:
            instruction(step)
        if step.logits is None:
            return np.empty((0, self.vocab_size), dtype=np.float32)
        logits: NDArray[np.float32] = step.logits[: step.num_outputs].cpu().numpy()
        return logits

    def export_pages(self, page_ids: list[int]) -> bytes:
        """Return the raw cache bytes: page by page, in each layer by layer, keys before values."""
        return self._cache.export(page_ids)

    def close(self) -> None:
        """Free the weights and the pages; nothing may be called afterwards."""
        self._instructions.clear()
        self._weights.clear()
        self._rope_tables.clear()
        self._cache.keys.clear()
        self._cache.values.clear()

    def _check(self, batch: RowBatch) -> None:
        num_rows = len(batch.token_ids)
        num_sequences, num_table_pages = batch.page_tables.shape
        max_positions = min(self._max_positions, num_table_pages * self._page_tokens)
        for name, values, limit in (
            ("token id", batch.token_ids, self.vocab_size),
            ("position", batch.positions, max_positions),
            ("sequence", batch.sequences, num_sequences),
            ("page", batch.page_tables, self._num_pages),
            ("output row", batch.output_rows, num_rows),
        ):
            if values.size and not (values.min() >= 0 and values.max() < limit):
                raise ValueError(f"a {name} of the batch lies outside 0 to {limit - 1}")

    def _begin(self, batch: RowBatch) -> _Step:
        num_real = len(batch.token_ids)
        num_rows = -(-num_real // self._row_multiple) * self._row_multiple
        pages = batch.page_tables[batch.sequences, batch.positions // self._page_tokens].astype(np.int64)
        slots = pages * self._page_tokens + batch.positions % self._page_tokens
        num_outputs = len(batch.output_rows)
        num_padded = -(-num_outputs // self._row_multiple) * self._row_multiple
        output_rows = np.pad(
            batch.output_rows, (0, num_padded - num_outputs), mode="edge" if num_outputs else "constant"
        )
        return _Step(
            num_real=num_real,
            num_outputs=num_outputs,
            token_ids=self._to_device(np.pad(batch.token_ids, (0, num_rows - num_real))),
            positions=self._to_device(np.pad(batch.positions, (0, num_rows - num_real))),
            slots=self._to_device(slots),
            groups={window: self._planner.plan(batch, window) for window in self._windows},
            output_rows=self._to_device(output_rows),
        )

    def _to_device(self, array: NDArray[np.integer]) -> torch.Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(self._device)

    def _bind(self, operator: Operator) -> Callable[[_Step], None]:
        handlers: dict[type[Operator], Callable[[Any, _Step], None]] = {
            Embed: self._run_embed,
            RmsNorm: self._run_norm,
            Linear: self._run_linear,
            Rope: self._run_rope,
            Attention: self._run_attention,
            GatedProduct: self._run_gated_product,
            Add: self._run_add,
            Head: self._run_head,
        }
        return partial(handlers[type(operator)], operator)

    def _build_rope_table(self, operator: Rope) -> RopeTable:
        factors = None if operator.frequency_factors is None else self._weights[operator.frequency_factors]
        table = build_rope_table(
            self._max_positions,
            operator.rotary_dims,
            operator.base,
            position_scale=operator.position_scale,
            frequency_factors=factors,
        )
        return RopeTable(table.cosines.to(self._device), table.sines.to(self._device))

    def _run_embed(self, operator: Embed, step: _Step) -> None:
        step.buffers[operator.out] = embed(step.token_ids, self._weights[operator.weight], operator.scale)

    def _run_norm(self, operator: RmsNorm, step: _Step) -> None:
        weight = self._weights[operator.weight]
        step.buffers[operator.out] = rms_norm(step.buffers[operator.x], weight, operator.eps)

    def _run_linear(self, operator: Linear, step: _Step) -> None:
        bias = None if operator.bias is None else self._weights[operator.bias]
        tiles = self._tiles[operator.weight].cut(step.num_real)
        weight = self._weights[operator.weight]
        step.buffers[operator.out] = linear(step.buffers[operator.x], weight, bias, tiles=tiles)

    def _run_rope(self, operator: Rope, step: _Step) -> None:
        key = _angles_of(operator)
        if key not in step.angles:
            table = self._rope_tables[key]
            step.angles[key] = RopeTable(
                *(rows.index_select(0, step.positions) for rows in (table.cosines, table.sines))
            )
        rope(
            step.buffers[operator.x],
            step.angles[key],
            head_dim=operator.head_dim,
            interleaved=operator.style is RopeStyle.INTERLEAVED,
        )

    def _run_attention(self, operator: Attention, step: _Step) -> None:
        keys, values = (step.buffers[name][: step.num_real] for name in (operator.k, operator.v))
        self._cache.append(operator.layer, step.slots, keys, values)
        q = step.buffers[operator.q]
        out = torch.zeros_like(q)
        for group in step.groups[operator.window]:
            keys, values = self._cache.gather(operator.layer, group)
            tiles = q.index_select(0, group.rows)
            tiles = tiles.view(*group.visible.shape[:2], operator.num_heads, operator.head_dim)
            attended = attention(tiles, keys, values, group.visible, scale=operator.scale, softcap=operator.softcap)
            out.index_copy_(0, group.real_rows, attended.view(-1, q.shape[1]).index_select(0, group.real))
        step.buffers[operator.out] = out

    def _run_gated_product(self, operator: GatedProduct, step: _Step) -> None:
        gate, up = step.buffers[operator.gate], step.buffers[operator.up]
        step.buffers[operator.out] = _GATED_PRODUCTS[operator.activation](gate, up)

    def _run_add(self, operator: Add, step: _Step) -> None:
        step.buffers[operator.out] = step.buffers[operator.x] + step.buffers[operator.y]

    def _run_head(self, operator: Head, step: _Step) -> None:
        if not step.num_outputs:
            return
        rows = step.buffers[operator.x].index_select(0, step.output_rows)
        step.logits = head(
            rows,
            self._weights[operator.weight],
            scale=operator.scale,
            softcap=operator.softcap,
            tiles=self._tiles[operator.weight].cut(step.num_outputs),
        )
