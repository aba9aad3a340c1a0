"""The torch executor: the oracle that every other executor is held against, and the fallback where none is.

Trade: runs a program operator by operator with the reference operators of `memra_kernels`, on any device that torch
knows. Activations are float32; matrices, embeddings and the key-value cache have the chosen type.

The promise, tested by equality of bits: a row's logits and cache bytes depend on its own sequence alone. Every sum has
one order: norms and softmax sums by halving, attention by blocks at fixed positions, added first to last, and products
with a weight in the matrix library's order for tile heights that were probed, when the weight was loaded, to agree. The
bits belong to one machine, build and number of threads of torch, which must not change while an executor lives.

Refuses to know queues, sampling and text. One thread, the worker's, owns an instance.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from memra.engine.executor import RowBatch, WeightTensors
from memra.engine.reference_attention import PagedCache, Sight, TilePlanner, sight_of
from memra.engine.reference_row_operators import Instruction, RowOperators
from memra.engine.reference_sequence_operators import SequenceOperators
from memra.engine.reference_states import RecurrentStates
from memra.engine.reference_step import SequenceRows, Step
from memra.engine.reference_tiles import probe_attention_tiles, probe_weight_tiles
from memra.engine.reference_weights import choose_device, choose_dtype, load_weights
from memra.errors import ConfigurationError
from memra.layers.operators import Attention
from memra.layers.program import Program


def _thread_suffix(device: torch.device) -> str:
    return f"-{torch.get_num_threads()}t" if device.type == "cpu" else ""


def _cut_sequences(batch: RowBatch) -> list[SequenceRows]:
    """Return the rows of every sequence, and its states where the model has any."""
    starts = np.flatnonzero(np.diff(batch.sequences, prepend=-1)).tolist()
    ends = [*starts[1:], len(batch.sequences)]
    states = [
        array[batch.sequences[starts]].tolist() if array.size else [-1] * len(starts)
        for array in (batch.states_in, batch.states_out)
    ]
    return [
        SequenceRows(slice(start, end), before, after)
        for start, end, before, after in zip(starts, ends, *states, strict=True)
    ]


class ReferenceExecutor:
    """Implements `memra.engine.executor.Executor` in torch.

    Args:
        program: what to run.
        tensors: the file's tensors; dequantised here, not kept.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        dtype: `float32` or `bfloat16`.
        num_pages: pages of the key-value cache.
        page_tokens: tokens a page.
        num_states: recurrent states, for a program that has any.

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
        num_states: int = 0,
    ) -> None:
        if num_pages < 1 or page_tokens < 1:
            raise ConfigurationError(f"A cache of {num_pages} pages of {page_tokens} tokens holds nothing.")
        self._device = choose_device(device)
        self._program = program
        self._page_tokens = page_tokens
        self._num_pages = num_pages
        self._num_states = num_states
        self._backend = f"torch-{self._device.type}-{dtype}{_thread_suffix(self._device)}"
        torch_dtype = choose_dtype(dtype)
        weights = load_weights(program, tensors, device=self._device, dtype=torch_dtype)
        tiles = probe_weight_tiles(program, weights)
        # Heights are powers of two, so that every small tile divides a step that is padded to the tallest of them.
        self._row_multiple = max(tile.small for tile in tiles.values())
        self._cache = PagedCache(
            program.kv_layers, num_pages=num_pages, page_tokens=page_tokens, device=self._device, dtype=torch_dtype
        )
        self._states = RecurrentStates(program.state_layers, num_states=num_states, device=self._device)
        self._max_positions = min(program.context_tokens, num_pages * page_tokens)
        self._planner, self._sights = self._plan_attention()
        rows = RowOperators(program, weights, tiles=tiles, num_positions=self._max_positions, device=self._device)
        sequences = SequenceOperators(weights, cache=self._cache, states=self._states)
        self._weights = weights
        self._instructions: list[Instruction] = [
            rows.bind(operator) or sequences.bind(operator) for operator in program
        ]

    def _plan_attention(self) -> tuple[TilePlanner, set[Sight]]:
        attentions = [operator for operator in self._program if isinstance(operator, Attention)]
        planner = TilePlanner(
            probe_attention_tiles(attentions, self._device, self._page_tokens),
            page_tokens=self._page_tokens,
            num_heads=max((operator.num_heads for operator in attentions), default=1),
            device=self._device,
        )
        return planner, {sight_of(operator) for operator in attentions}

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

    @property
    def num_states(self) -> int:
        """Number of recurrent states; ids are 0 to num_states - 1."""
        return self._num_states

    @torch.inference_mode()
    def run(self, batch: RowBatch) -> NDArray[np.float32]:
        """Compute the rows, write keys, values and states, return logits `[N, vocab_size]` or hidden rows.

        Raises:
            ValueError: the batch names a token, position, sequence, page or row that does not exist.
        """
        self._check(batch)
        if not len(batch.token_ids):
            return np.empty((0, self._program.output_width), dtype=np.float32)
        step = self._begin(batch)
        for instruction in self._instructions:
            instruction(step)
        if step.outputs is None:
            return np.empty((0, self._program.output_width), dtype=np.float32)
        outputs: NDArray[np.float32] = step.outputs[: step.num_outputs].cpu().numpy()
        return outputs

    def export_pages(self, page_ids: list[int]) -> bytes:
        """Return the raw cache bytes: page by page, in each layer by layer, keys before values."""
        return self._cache.export(page_ids)

    def export_state(self, state_id: int) -> bytes:
        """Return the raw bytes of one recurrent state, layer by layer."""
        return self._states.export(state_id)

    def import_page(self, page_id: int, data: bytes) -> None:
        """Make a page hold exported bytes."""
        self._cache.load(page_id, data)

    def import_state(self, state_id: int, data: bytes) -> None:
        """Make a recurrent state hold exported bytes."""
        self._states.load(state_id, data)

    def close(self) -> None:
        """Free the weights and the pages; nothing may be called afterwards."""
        self._instructions.clear()
        self._weights.clear()
        self._cache.keys.clear()
        self._cache.values.clear()
        self._states.close()

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
            ("state", np.concatenate([batch.states_in + 1, batch.states_out + 1]), self._num_states + 1),
        ):
            if values.size and not (values.min() >= 0 and values.max() < limit):
                raise ValueError(f"a {name} of the batch lies outside 0 to {limit - 1}")

    def _begin(self, batch: RowBatch) -> Step:
        num_real = len(batch.token_ids)
        num_rows = -(-num_real // self._row_multiple) * self._row_multiple
        pages = batch.page_tables[batch.sequences, batch.positions // self._page_tokens].astype(np.int64)
        slots = pages * self._page_tokens + batch.positions % self._page_tokens
        num_outputs = len(batch.output_rows)
        num_padded = -(-num_outputs // self._row_multiple) * self._row_multiple
        output_rows = np.pad(
            batch.output_rows, (0, num_padded - num_outputs), mode="edge" if num_outputs else "constant"
        )
        return Step(
            num_real=num_real,
            num_outputs=num_outputs,
            token_ids=self._to_device(np.pad(batch.token_ids, (0, num_rows - num_real))),
            positions=self._to_device(np.pad(batch.positions, (0, num_rows - num_real))),
            slots=self._to_device(slots),
            groups={sight: self._planner.plan(batch, sight) for sight in self._sights},
            sequences=_cut_sequences(batch),
            output_rows=self._to_device(output_rows),
        )

    def _to_device(self, array: NDArray[np.integer]) -> torch.Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(self._device)
