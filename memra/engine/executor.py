"""The seam between the engine, which decides what runs, and an executor, which computes it.

The engine hands over rows; the executor owns the weights, the key-value pages and the states of recurrent operators,
and gives logits back. One call serves decode, prefill chunks and any mix of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class WeightTensor(Protocol):
    """One tensor of a model file, not yet dequantised."""

    @property
    def name(self) -> str:
        """Name in the file."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Outermost first: `(rows, columns)` for a matrix."""
        ...

    @property
    def quant_type(self) -> str:
        """GGML type name such as `Q4_K` or `F32`."""
        ...

    @property
    def data(self) -> NDArray[np.uint8]:
        """The stored bytes, memory-mapped, one-dimensional."""
        ...

    def dequantise(self) -> NDArray[np.float32]:
        """All values as float32, in `shape`."""
        ...

    def release(self) -> None:
        """Say that the stored bytes have been read, so that the system may take their memory back."""
        ...


WeightTensors = Mapping[str, WeightTensor]


@dataclass(slots=True)
class RowBatch:
    """The rows of one step of one model.

    Rows of one sequence are contiguous and in order of position, without gaps. `T` rows, `S` sequences, `P` pages in
    the longest table, `N` outputs.

    Attributes:
        token_ids: int32 `[T]`.
        positions: int32 `[T]`, position of each row in its sequence.
        sequences: int32 `[T]`, index of each row's sequence into `page_tables`.
        page_tables: int32 `[S, P]`, page ids in order; position p lies in entry `p // page_tokens`. Unused
        entries are 0.
        output_rows: int32 `[N]`, rows whose logits are wanted, ascending.
        states_in: int32 `[S]`, the state from which each sequence goes on, -1 for a sequence that begins. Empty, like
            `states_out`, for a model without recurrent operators.
        states_out: int32 `[S]`, where its state after its last row goes; never a state that the step reads, so that a
            failed step can be run again.
    """

    token_ids: NDArray[np.int32]
    positions: NDArray[np.int32]
    sequences: NDArray[np.int32]
    page_tables: NDArray[np.int32]
    output_rows: NDArray[np.int32]
    states_in: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    states_out: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))


class Executor(Protocol):
    """Runs one model's program; owned and called by the worker's thread alone."""

    @property
    def backend(self) -> str:
        """Short name such as `torch-cuda-bfloat16`; part of the fingerprint."""
        ...

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        ...

    @property
    def page_tokens(self) -> int:
        """Tokens per key-value page."""
        ...

    @property
    def num_pages(self) -> int:
        """Number of pages; ids are 0 to num_pages - 1."""
        ...

    @property
    def num_states(self) -> int:
        """Number of recurrent states; ids are 0 to num_states - 1. 0 for a model without recurrent operators."""
        ...

    def run(self, batch: RowBatch) -> NDArray[np.float32]:
        """Compute the rows, write keys, values and states, return logits `[N, vocab_size]` or hidden rows `[N, width]`.

        The result depends, to the bit, on each row's sequence alone: not on the other rows, nor on how a prompt
        was cut.
        The array is valid until the next call.
        """
        ...

    def export_pages(self, page_ids: list[int]) -> bytes:
        """The raw cache bytes of these pages, for tests of equality and for moving them elsewhere."""
        ...

    def export_state(self, state_id: int) -> bytes:
        """The raw bytes of one recurrent state, layer by layer; empty for a model without recurrent operators."""
        ...

    def import_page(self, page_id: int, data: bytes) -> None:
        """Make a page hold what `export_pages` gave for a page of the same model on the same executor.

        Raises:
            ValueError: the bytes are not one page's.
        """
        ...

    def import_state(self, state_id: int, data: bytes) -> None:
        """Make a state hold what `export_state` gave.

        Raises:
            ValueError: the bytes are not one state's.
        """
        ...

    def close(self) -> None:
        """Free the weights and the pages; nothing may be called afterwards."""
        ...
