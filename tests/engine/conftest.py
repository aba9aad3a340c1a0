"""A strict executor without weights, and shortcuts to engines that run on it."""

import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from memra.engine.engine import Engine
from memra.engine.executor import RowBatch
from memra.engine.loaded_model import LoadedModel
from memra.errors import LostBlobError
from memra.messages.sampling import SamplingParams
from memra.messages.work import (
    PromptScored,
    PromptStarted,
    RequestFailed,
    StepFinished,
    SubmitPrompt,
    TokensGenerated,
)
from memra.types import ModelName, RequestId

_MOST_TOKENS = 256
"""Of a fake state."""


class MalformedBatchError(BaseException):
    """The engine broke the executor's contract; no engine code may catch this."""


class FakeExecutor:
    """Logits are a hash of the whole prefix, read through the page table, so a wrong page, position or reuse shows."""

    backend = "fake"

    def __init__(  # noqa: PLR0913  (each test sets one or two)
        self,
        *,
        vocab_size: int = 40,
        page_tokens: int = 4,
        num_pages: int = 64,
        num_states: int = 0,
        salt: int = 0,
        raising: dict[int, Exception] | None = None,
        nan_tokens: Iterable[int] = (),
    ) -> None:
        self.vocab_size = vocab_size
        self.page_tokens = page_tokens
        self.num_pages = num_pages
        self.num_states = num_states
        self._states: dict[int, list[int]] = {-1: []}
        self.salt = salt
        self.raising = raising or {}
        self.nan_tokens = set(nan_tokens)
        self.batches: list[RowBatch] = []
        self.is_closed = False
        self._cached_tokens = np.full((num_pages, page_tokens), -1, np.int64)
        self._cached_positions = np.full((num_pages, page_tokens), -1, np.int64)
        self._last_logits = np.zeros((0, vocab_size), np.float32)

    def run(self, batch: RowBatch) -> NDArray[np.float32]:
        self._last_logits[:] = np.nan  # what the engine kept from the last call is gone
        self._check(batch)
        self.batches.append(RowBatch(*(getattr(batch, name).copy() for name in RowBatch.__dataclass_fields__)))
        states = self._read_states(batch)
        rows = list(zip(batch.token_ids, batch.positions, batch.sequences, strict=True))
        for token_id, position, sequence in rows:
            page = batch.page_tables[sequence, position // self.page_tokens]
            self._cached_tokens[page, position % self.page_tokens] = token_id
            self._cached_positions[page, position % self.page_tokens] = position
            if int(token_id) in self.raising:
                raise self.raising[int(token_id)]
        self._states |= states
        self._last_logits = np.empty((len(batch.output_rows), self.vocab_size), np.float32)
        for place, row in enumerate(batch.output_rows):
            token_id, position, sequence = rows[row]
            self._last_logits[place] = self.compute_logits(self._read(batch.page_tables[sequence], int(position) + 1))
            if int(token_id) in self.nan_tokens:
                self._last_logits[place, 7] = np.nan
        return self._last_logits

    def compute_logits(self, prefix: Iterable[int]) -> NDArray[np.float32]:
        """What a sequence of these tokens must get, coarse enough for ties."""
        generator = np.random.default_rng(zlib.crc32(np.array(prefix, np.int64).tobytes(), self.salt))
        return np.round(generator.standard_normal(self.vocab_size) * 4).astype(np.float32) / 2

    def _read_states(self, batch: RowBatch) -> dict[int, list[int]]:
        """What each sequence leaves as its state: all its tokens; the one that it goes on from must fit."""
        if not self.num_states:
            _require(not batch.states_in.size and not batch.states_out.size, "states of a model that has none")
            return {}
        _require(len(batch.states_in) == len(batch.states_out) == len(batch.page_tables), "a sequence has no state")
        _require(_is_within(batch.states_out, self.num_states), "a state is out of range")
        _require(not set(batch.states_out.tolist()) & set(batch.states_in.tolist()), "a state is read and written")
        states = {}
        for sequence, (before, after) in enumerate(
            zip(batch.states_in.tolist(), batch.states_out.tolist(), strict=True)
        ):
            rows = batch.sequences == sequence
            tokens = self._states[before]
            _require(len(tokens) == batch.positions[rows][0], f"state {before} is of {len(tokens)} tokens")
            states[after] = tokens + batch.token_ids[rows].tolist()
            prefix = self._read(batch.page_tables[sequence], len(tokens)).tolist()
            _require(tokens == prefix, f"state {before} is another sequence's")
        return states

    def export_state(self, state_id: int) -> bytes:
        tokens = self._states.get(state_id, [])
        state = np.zeros(1 + _MOST_TOKENS, np.int64)
        state[: 1 + len(tokens)] = [len(tokens), *tokens]
        return state.tobytes()

    def export_pages(self, page_ids: list[int]) -> bytes:
        return b"".join(
            self._cached_tokens[page].tobytes() + self._cached_positions[page].tobytes() for page in page_ids
        )

    def import_state(self, state_id: int, data: bytes) -> None:
        num, *tokens = np.frombuffer(data, np.int64).tolist()
        self._states[state_id] = tokens[:num]

    def import_page(self, page_id: int, data: bytes) -> None:
        tokens, positions = np.frombuffer(data, np.int64).reshape(2, self.page_tokens)
        self._cached_tokens[page_id], self._cached_positions[page_id] = tokens, positions

    def close(self) -> None:
        self.is_closed = True

    def _read(self, page_table: NDArray[np.int32], num_tokens: int) -> NDArray[np.int64]:
        pages = page_table[: -(-num_tokens // self.page_tokens)]
        positions = self._cached_positions[pages].ravel()[:num_tokens]
        _require(bool((positions == np.arange(num_tokens)).all()), f"pages hold the positions {positions}")
        return self._cached_tokens[pages].ravel()[:num_tokens]

    def _check(self, batch: RowBatch) -> None:
        arrays = {name: getattr(batch, name) for name in RowBatch.__dataclass_fields__}
        for name, array in arrays.items():
            _require(array.dtype == np.int32 and bool(array.flags.c_contiguous), f"{name} is {array.dtype}")
            _require(array.ndim == 1 + (name == "page_tables"), f"{name} has {array.ndim} dimensions")
        num_rows, num_sequences = len(batch.token_ids), len(batch.page_tables)
        _require(len(batch.positions) == len(batch.sequences) == num_rows > 0, "row arrays differ in length")
        _require(_is_within(batch.token_ids, self.vocab_size), "a token is outside of the vocabulary")
        _require(_is_within(batch.page_tables, self.num_pages), "a page is out of range")
        _require(_is_within(batch.output_rows, num_rows), "an output row is out of range")
        _require(bool((np.diff(batch.output_rows) > 0).all()), "output rows do not ascend")
        _require(
            list(dict.fromkeys(batch.sequences.tolist())) == list(range(num_sequences))
            and bool((np.diff(batch.sequences) >= 0).all()),
            f"sequences are not contiguous: {batch.sequences}",
        )
        self._check_pages(batch)

    def _check_pages(self, batch: RowBatch) -> None:
        writers: dict[int, int] = {}
        for sequence, table in enumerate(batch.page_tables):
            positions = batch.positions[batch.sequences == sequence]
            _require(bool((np.diff(positions) == 1).all()), f"positions are not consecutive: {positions}")
            num_used = int(positions[-1]) // self.page_tokens + 1
            _require(bool(positions[0] >= 0) and num_used <= len(table), "a position lies outside of the page table")
            _require(len(set(table[:num_used].tolist())) == num_used, f"a page occurs twice: {table}")
            _require(not table[num_used:].any(), f"unused entries are not zero: {table}")
            for page in table[int(positions[0]) // self.page_tokens : num_used].tolist():
                _require(writers.setdefault(page, sequence) == sequence, f"two sequences write page {page}")


def _require(is_sound: bool, complaint: str) -> None:  # noqa: FBT001  (reads like an assertion)
    if not is_sound:
        raise MalformedBatchError(complaint)


def _is_within(values: NDArray[np.int32], bound: int) -> bool:
    return bool(((values >= 0) & (values < bound)).all())


class MemoryStore:
    """A host store in a dictionary, with books that are checked."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.blobs: dict[int, bytes] = {}
        self.lost: set[int] = set()
        self.is_on = True
        self.num_puts = 0
        self.is_closed = False

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self.blobs.values()))

    def put(self, data: bytes) -> Any:
        if self.num_bytes + len(data) > self.limit_bytes:
            return None
        self.num_puts += 1
        self.blobs[self.num_puts] = data
        return self.num_puts

    def get(self, handle: int) -> bytes:
        if handle in self.lost:
            raise LostBlobError("lost")
        return self.blobs[handle]

    def free(self, handle: int) -> None:
        del self.blobs[handle]

    def close(self) -> None:
        assert not self.blobs, "blobs are left"
        self.is_closed = True

    def check_integrity(self) -> None:
        assert self.num_bytes <= self.limit_bytes


class Outcome:
    """What the events said about one request."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.num_started = 0
        self.num_events = 0
        self.last: TokensGenerated | None = None
        self.failed: RequestFailed | None = None

    @property
    def stop(self) -> str | None:
        return None if self.last is None else self.last.stop

    @property
    def is_over(self) -> bool:
        return self.stop is not None or self.failed is not None


class Watcher:
    """Steps an engine, checks it after each tick, and sorts the events by request."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.outcomes: dict[str, Outcome] = {}

    def __getitem__(self, request_id: str) -> Outcome:
        return self.outcomes.setdefault(request_id, Outcome())

    def step(self) -> StepFinished:
        finished = self.engine.step()
        self.engine.check_integrity()
        for event in finished.events:
            self._note(event)
        return finished

    def finish(self, max_ticks: int = 5000) -> None:
        """Step until nothing is left to do."""
        for _ in range(max_ticks):
            if not self.engine.has_work:
                return
            self.step()
        raise AssertionError(f"still at work after {max_ticks} ticks")

    def _note(self, event: PromptStarted | PromptScored | TokensGenerated | RequestFailed) -> None:
        outcome = self[event.request_id]
        assert not outcome.is_over, f"{event} came after the end"
        outcome.num_events += 1
        if isinstance(event, PromptStarted):
            outcome.num_started += 1
        elif isinstance(event, RequestFailed):
            outcome.failed = event
        elif isinstance(event, TokensGenerated):
            assert outcome.num_started == 1
            outcome.token_ids += event.token_ids
            outcome.last = event


def _make_request(request_id: str, prompt_ids: Iterable[int], max_new_tokens: int = 5, **fields: Any) -> SubmitPrompt:
    fields = {"sampling": SamplingParams(temperature=0), "model": "m", **fields}
    return SubmitPrompt(RequestId(request_id), fields.pop("model"), tuple(prompt_ids), max_new_tokens, **fields)


def _make_model(executor: FakeExecutor | None = None, *, name: str = "m", **limits: int) -> LoadedModel:
    return LoadedModel(ModelName(name), executor or FakeExecutor(), **{"context_tokens": 64, **limits})


def _watch(*models: LoadedModel, **options: Any) -> Watcher:
    engine = Engine(**options)
    for model in models:
        engine.add_model(model)
    return Watcher(engine)


@pytest.fixture(scope="session")
def fake_executor() -> type[FakeExecutor]:
    return FakeExecutor


@pytest.fixture(scope="session")
def memory_store() -> type[MemoryStore]:
    return MemoryStore


@pytest.fixture(scope="session")
def malformed_batch() -> type[MalformedBatchError]:
    return MalformedBatchError


@pytest.fixture(scope="session")
def make_model() -> Callable[..., LoadedModel]:
    """Takes an executor, a name and limits."""
    return _make_model


@pytest.fixture(scope="session")
def make_request() -> Callable[..., SubmitPrompt]:
    """Takes an id, a prompt, the number of new tokens and further fields; greedy on model `m` by default."""
    return _make_request


@pytest.fixture(scope="session")
def watch() -> Callable[..., Watcher]:
    """Takes models; returns a watched engine that serves them."""
    return _watch
