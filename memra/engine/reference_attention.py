"""Paged keys and values for the torch executor, and the cutting of a step's rows into attention tiles.

Trade: where a row's key goes, which keys a row sees, and which rows are computed together. Blocks of keys begin at
fixed positions of a sequence, and tiles never mix sequences, so no row's result depends on its neighbours. Refuses to
know programs, weights and how attention is computed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from memra_kernels.linear.tiles import RowTiles
from numpy.typing import NDArray

from memra.engine.executor import RowBatch
from memra.layers.operators import Attention
from memra.layers.program import KvLayer

KEY_BLOCK_TOKENS = 256
"""Keys that are summed together: long enough for the matrix library, short enough that a short context pays little."""

_MAX_SCORES = 1 << 22
"""Scores that are held at once: 16 MiB in float32."""


def key_block_tokens(page_tokens: int) -> int:
    """Keys in a block: as many whole pages as fit into `KEY_BLOCK_TOKENS`, and at least one."""
    return page_tokens * max(1, KEY_BLOCK_TOKENS // page_tokens)


@dataclass(frozen=True, slots=True)
class Sight:
    """Which keys of its sequence a query sees; the attributes are those of the operator `Attention`."""

    window: int | None
    chunk: int | None
    causal: bool

    def bounds(self, positions: NDArray[np.int32], last: NDArray[np.int32]) -> tuple[NDArray[np.int64], ...]:
        """Return the oldest and the newest key that queries see.

        Args:
            positions: of the queries, int32, any shape.
            last: the last position of each query's sequence, of the same shape.
        """
        newest = positions.astype(np.int64) if self.causal else last.astype(np.int64)
        oldest = np.zeros_like(newest)
        if self.chunk is not None:
            oldest = newest // self.chunk * self.chunk
        if self.window is not None and self.causal:
            oldest = np.maximum(oldest, positions - self.window + 1)
        elif self.window is not None:
            oldest = np.maximum(oldest, positions - self.window // 2)
            newest = np.minimum(newest, positions + self.window // 2)
        return oldest, newest


def sight_of(operator: Attention) -> Sight:
    """Return what the queries of an operator see."""
    return Sight(operator.window, operator.chunk, operator.causal)


class PagedCache:
    """Keys and values of all layers, in pages; memory is committed by the first write.

    Attributes:
        keys, values: one tensor a layer, `[num_pages, page_tokens, num_kv_heads, head_dim]`; values with their own.
    """

    def __init__(
        self,
        layers: Sequence[KvLayer],
        *,
        num_pages: int,
        page_tokens: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        def allocate(num_kv_heads: int, dim: int) -> torch.Tensor:
            shape = (num_pages, page_tokens, num_kv_heads, dim)
            if device.type != "cpu":
                return torch.zeros(shape, dtype=dtype, device=device)
            # numpy's zeros are the system's untouched pages, where torch's are written.
            raw = np.zeros((*shape, dtype.itemsize), dtype=np.uint8)
            return torch.from_numpy(raw).view(dtype).view(shape)

        self.keys = [allocate(layer.num_kv_heads, layer.head_dim) for layer in layers]
        self.values = [allocate(layer.num_kv_heads, layer.value_dim) for layer in layers]

    def append(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Write rows, float32 `[T, J * D]` and `[T, J * E]`, rounded to the cache's type, into the slots `[T]`."""
        for pages, rows in ((self.keys[layer], keys), (self.values[layer], values)):
            flat = pages.view(-1, rows.shape[1])
            flat.index_copy_(0, slots, rows.to(flat.dtype))

    def gather(self, layer: int, group: "TileGroup") -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values of a group's blocks, float32 `[B, n, S, J, D or E]`; unseen values are zero."""
        num_tiles, _, num_blocks, block = group.visible.shape
        keys, values = (
            pages[layer]
            .index_select(0, group.page_ids)
            .float()
            .view(num_tiles, num_blocks, block, *pages[layer].shape[2:])
            for pages in (self.keys, self.values)
        )
        # A weight of zero does not silence what an earlier owner of the page left there if that was not finite.
        return keys, values.masked_fill_(group.unseen[..., None, None], 0.0)

    def export(self, page_ids: Sequence[int]) -> bytes:
        """Return the raw bytes: page by page, in each layer by layer, keys before values."""
        parts = []
        for page_id in page_ids:
            for keys, values in zip(self.keys, self.values, strict=True):
                parts += [
                    pages[page_id].contiguous().view(torch.uint8).cpu().numpy().tobytes() for pages in (keys, values)
                ]
        return b"".join(parts)

    def load(self, page_id: int, data: bytes) -> None:
        """Make a page hold what `export` gave for one page.

        Raises:
            ValueError: the bytes are not one page's.
        """
        parts = [pages[page_id] for pair in zip(self.keys, self.values, strict=True) for pages in pair]
        num_bytes = sum(part.numel() * part.element_size() for part in parts)
        if len(data) != num_bytes:
            raise ValueError(f"a page has {num_bytes} bytes, not {len(data)}")
        raw, start = np.frombuffer(data, np.uint8), 0
        for part in parts:
            end = start + part.numel() * part.element_size()
            part.copy_(torch.from_numpy(raw[start:end].copy()).view(part.dtype).view(part.shape))
            start = end


@dataclass(frozen=True, slots=True)
class TileGroup:
    """Tiles of equal height that look at equally many blocks: one call of the operator.

    B tiles of R rows, n blocks of S keys.

    Attributes:
        rows: int64 `[B * R]`, rows of the step; a tile that is not full repeats its last row.
        real: int64 `[num_real]`, which of them are not such repetitions.
        page_ids: int64 `[B * n * pages per block]`.
        visible: bool `[B, R, n, S]`.
        unseen: bool `[B, n, S]`, keys that no row of the tile sees.
    """

    rows: torch.Tensor
    real: torch.Tensor
    page_ids: torch.Tensor
    visible: torch.Tensor
    unseen: torch.Tensor

    @property
    def real_rows(self) -> torch.Tensor:
        """The rows of the step that the group computes, in the order of `real`."""
        return self.rows.index_select(0, self.real)


@dataclass(frozen=True, slots=True)
class _Tile:
    """Rows `first` to `first + num_rows - 1` of one sequence."""

    first: int
    num_rows: int
    height: int
    first_block: int
    num_blocks: int


class TilePlanner:
    """Cuts steps into tile groups; holds what does not change between steps.

    Args:
        tiles: heights at which a row's bits were seen to agree.
        num_heads: query heads of the widest layer, for the bound on memory.
    """

    def __init__(self, tiles: RowTiles, *, page_tokens: int, num_heads: int, device: torch.device) -> None:
        self._tiles = tiles
        self._page_tokens = page_tokens
        self._block = key_block_tokens(page_tokens)
        self._num_heads = num_heads
        self._device = device

    def plan(self, batch: RowBatch, sight: Sight) -> list[TileGroup]:
        """Cut the rows of a step for the layers whose queries see this."""
        ends = np.flatnonzero(np.diff(batch.sequences, append=-1))
        last = np.repeat(batch.positions[ends], np.diff(ends, prepend=-1))
        oldest, newest = sight.bounds(batch.positions, last)
        by_kind: dict[tuple[int, int], list[_Tile]] = {}
        for tile in self._cut(batch, oldest, newest):
            by_kind.setdefault((tile.height, tile.num_blocks), []).append(tile)
        groups = []
        for (height, num_blocks), tiles in by_kind.items():
            limit = max(1, _MAX_SCORES // (height * num_blocks * self._block * self._num_heads))
            parts = (tiles[start : start + limit] for start in range(0, len(tiles), limit))
            groups += [self._build_group(batch, part, oldest, newest) for part in parts]
        return groups

    def _cut(self, batch: RowBatch, oldest: NDArray[np.int64], newest: NDArray[np.int64]) -> Iterator[_Tile]:
        starts = np.flatnonzero(np.diff(batch.sequences, prepend=-1)).tolist()
        for first, end in zip(starts, [*starts[1:], len(batch.sequences)], strict=True):
            row = first
            while row < end:
                height = self._tiles.small if end - row <= self._tiles.small else self._tiles.large
                num_rows = min(height, end - row)
                first_block = int(oldest[row]) // self._block
                last_block = int(newest[row + num_rows - 1]) // self._block
                yield _Tile(row, num_rows, height, first_block, last_block - first_block + 1)
                row += num_rows

    def _build_group(
        self, batch: RowBatch, tiles: list[_Tile], oldest: NDArray[np.int64], newest: NDArray[np.int64]
    ) -> TileGroup:
        height, num_blocks = tiles[0].height, tiles[0].num_blocks
        first = np.array([tile.first for tile in tiles])[:, None]
        num_rows = np.array([tile.num_rows for tile in tiles])[:, None]
        offsets = np.arange(height)
        rows = first + np.minimum(offsets, num_rows - 1)
        first_key = np.array([tile.first_block * self._block for tile in tiles])[:, None]
        keys = first_key + np.arange(num_blocks * self._block)
        visible = (keys[:, None] <= newest[rows][..., None]) & (keys[:, None] >= oldest[rows][..., None])
        pages = np.minimum(keys[:, :: self._page_tokens] // self._page_tokens, batch.page_tables.shape[1] - 1)
        page_ids = batch.page_tables[batch.sequences[first], pages]
        shape = (len(tiles), height, num_blocks, self._block)
        return TileGroup(
            rows=self._to_device(rows.ravel()),
            real=self._to_device(np.flatnonzero(offsets < num_rows)),
            page_ids=self._to_device(page_ids.ravel().astype(np.int64)),
            visible=self._to_device(visible.reshape(shape)),
            unseen=self._to_device(~visible.any(axis=1).reshape(len(tiles), num_blocks, self._block)),
        )

    def _to_device(self, array: NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)
