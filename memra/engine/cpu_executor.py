"""The native CPU executor: one call without the GIL per step, int8 activations, weights in tiled layouts.

Trade: owns the threads, the weights and the key-value pages of one model, and keeps the executor's promise that a row's
bits depend on its own sequence alone. Chosen by `memra.engine.executor_choice` where the native library is built; never
imports torch. Refuses to know queues, sampling and text.
"""

import numpy as np
from memra_kernels.native import (
    PAGE_TOKENS,
    Batch,
    NativeError,
    NativeUnavailableError,
    Plan,
    ThreadPool,
    usable_variants,
)
from numpy.typing import NDArray

from memra.engine.cpu_limits import refuse_unrunnable_shapes
from memra.engine.cpu_plan import PlanBuilder, cache_layers, state_floats
from memra.engine.executor import RowBatch, WeightTensors
from memra.engine.matrix_tiles import load_tiles
from memra.engine.repack_cache import RepackCache
from memra.errors import ConfigurationError
from memra.layers.program import Program

_SPARE_STATES = 2
"""Where a sequence's state waits that is cut by the end of a native step."""
_MAX_ROWS = 512
"""Rows of one native step; larger batches run as several. Activations of 512 rows stay within the caches."""


class CpuExecutor:
    """Runs a program with the native CPU kernels; owned and called by one thread.

    Attributes:
        variant: the instruction set in use; all give the same bits.
    """

    def __init__(  # noqa: PLR0913  (keyword-only settings)
        self,
        program: Program,
        tensors: WeightTensors,
        *,
        num_threads: int,
        num_pages: int,
        num_states: int = 0,
        kv_type: str = "f16",
        variant: str | None = None,
        cache: RepackCache | None = None,
    ) -> None:
        """Load and repack all weights; takes as long as reading the file, or no time where `cache` has them.

        Args:
            program: what to run.
            tensors: weights by name; the embedding table's bytes are read in place, so the file stays mapped.
            num_threads: threads of a step, the caller among them.
            num_pages: size of the cache in pages of 64 tokens.
            num_states: recurrent states, for a program that has any.
            kv_type: how keys and values are kept, `f16` or `q8_0`.
            variant: an entry of `memra_kernels.native.usable_variants()`; None takes the best.
            cache: where the repacked weights of this model are kept, or None to keep them in memory alone.

        Raises:
            ConfigurationError: a setting that the kernels do not have, or the native library is missing.
            CorruptFileError: a tensor is missing, misshapen, or holds NaN or infinite scales.
            UnsupportedModelError: a shape that the kernels do not run.
        """
        self._program = program
        self._num_pages = num_pages
        self._num_states = num_states
        self._kv_type = kv_type
        self._pool: ThreadPool | None = None
        self._plan: Plan | None = None
        refuse_unrunnable_shapes(program)
        try:
            self.variant = variant or usable_variants()[0]
            self._pool = ThreadPool(num_threads)
            # An encoder's sequences cannot be cut.
            self._max_rows = _MAX_ROWS if program.is_causal else max(_MAX_ROWS, program.context_tokens)
            self._plan = Plan(self._pool, variant=self.variant, max_rows=self._max_rows)
            self._plan.cache(num_pages=num_pages, layers=cache_layers(program), kv_type=kv_type)
            if num_states:
                self._plan.states(num_states + _SPARE_STATES, num_floats=state_floats(program))
            tiles = None if cache is None else load_tiles(cache, self._pool, program, tensors)
            PlanBuilder(self._plan, program, tensors, tiles=tiles).build()
        except (NativeError, NativeUnavailableError) as error:
            self.close()
            raise ConfigurationError(f"The CPU engine cannot start: {error}.") from error
        except BaseException:
            self.close()
            raise

    @property
    def backend(self) -> str:
        """`cpu-` and the instruction set; then `-q8_0kv` where keys and values are not f16, for that changes bits."""
        return f"cpu-{self.variant}" if self._kv_type == "f16" else f"cpu-{self.variant}-{self._kv_type}kv"

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return self._program.vocab_size

    @property
    def page_tokens(self) -> int:
        """Tokens per key-value page."""
        return PAGE_TOKENS

    @property
    def num_pages(self) -> int:
        """Number of pages."""
        return self._num_pages

    @property
    def num_states(self) -> int:
        """Number of recurrent states."""
        return self._num_states

    @property
    def num_bytes(self) -> int:
        """Bytes of weights, activations and pages; weights may lie in a mapped file that other processes share."""
        return self._open_plan().num_bytes

    def run(self, batch: RowBatch) -> NDArray[np.float32]:
        """Compute the rows, write their keys and values, return logits `[N, vocab_size]` valid until the next call.

        Raises:
            NativeError: an index of the batch is out of range.
        """
        plan = self._open_plan()
        native = Batch(
            _int32(batch.token_ids),
            _int32(batch.positions),
            _int32(batch.sequences),
            _int32(batch.page_tables),
            _int32(batch.output_rows),
            _int32(batch.states_in) if self._num_states else None,
            _int32(batch.states_out) if self._num_states else None,
        )
        num_rows = native.token_ids.size
        if num_rows == 0:
            return np.empty((0, self._program.output_width), np.float32)
        if num_rows <= self._max_rows:
            return plan.run(native)
        return self._run_in_parts(plan, native)

    def _run_in_parts(self, plan: Plan, batch: Batch) -> NDArray[np.float32]:
        if not self._program.is_causal:
            raise NativeError(f"an encoder takes at most {self._max_rows} rows in one step")
        logits = np.empty((batch.output_rows.size, self._program.output_width), np.float32)
        for index, first in enumerate(range(0, batch.token_ids.size, _MAX_ROWS)):
            rows = slice(first, first + _MAX_ROWS)
            low, high = np.searchsorted(batch.output_rows, [first, first + _MAX_ROWS])
            states_in, states_out = self._cut_states(batch, index)
            part = Batch(
                batch.token_ids[rows],
                batch.positions[rows],
                batch.sequences[rows],
                batch.page_tables,
                _int32(batch.output_rows[low:high] - first),
                states_in,
                states_out,
            )
            logits[low:high] = plan.run(part)
        return logits

    def _cut_states(self, batch: Batch, index: int) -> tuple[NDArray[np.int32], NDArray[np.int32]] | tuple[None, None]:
        """States for part `index`: a sequence that goes on from the part before, or into the next, waits in a spare.

        The spares are used in turns, so that no part writes the state that it reads.
        """
        if batch.states_in is None or batch.states_out is None:
            return None, None
        states_in, states_out = batch.states_in.copy(), batch.states_out.copy()
        first, end = index * _MAX_ROWS, (index + 1) * _MAX_ROWS
        sequences = batch.sequences
        if first and sequences[first - 1] == sequences[first]:
            states_in[sequences[first]] = self._num_states + (index - 1) % _SPARE_STATES
        if end < sequences.size and sequences[end - 1] == sequences[end]:
            states_out[sequences[end]] = self._num_states + index % _SPARE_STATES
        return states_in, states_out

    def export_pages(self, page_ids: list[int]) -> bytes:
        """The raw cache bytes of these pages."""
        plan = self._open_plan()
        return b"".join(plan.page(page) for page in page_ids)

    def export_state(self, state_id: int) -> bytes:
        """The raw bytes of one recurrent state."""
        return self._open_plan().state(state_id) if self._num_states else b""

    def import_page(self, page_id: int, data: bytes) -> None:
        """Make a page hold exported bytes."""
        self._open_plan().write_page(page_id, data)

    def import_state(self, state_id: int, data: bytes) -> None:
        """Make a recurrent state hold exported bytes."""
        self._open_plan().write_state(state_id, data)

    def close(self) -> None:
        """Stop the threads and free the memory; may be called twice."""
        if self._plan is not None:
            self._plan.close()
            self._plan = None
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _open_plan(self) -> Plan:
        if self._plan is None:
            raise NativeError("the executor is closed")
        return self._plan


def _int32(array: NDArray[np.integer]) -> NDArray[np.int32]:
    return np.ascontiguousarray(array, np.int32)
