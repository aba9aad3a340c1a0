"""Texts that wait to become vectors, and which of them are computed in the next step.

Trade: one model's requests, served a text at a time in turns, better lanes first, and the pages under the texts that
are being computed. An encoder's text lies whole in a step; a causal model's may be cut anywhere, so that the last text
of a step may go on in the next. Refuses to know what the rows are made into. Called by `embedding_runner`.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from memra.engine.embedding_steps import Piece
from memra.engine.loaded_model import LoadedModel
from memra.messages.work import PoolTexts
from memra.types import Lane, TokenId


@dataclass(slots=True, eq=False)
class Job:
    """One request.

    Attributes:
        vectors: of the texts that are done, by index.
        num_begun: texts that were given pages, which is in order.
        is_announced: its sender knows that it has begun.
    """

    request: PoolTexts
    vectors: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    num_begun: int = 0
    is_announced: bool = False

    @property
    def num_tokens(self) -> int:
        """Tokens of all texts."""
        return sum(map(len, self.request.sequences))

    @property
    def num_waiting_tokens(self) -> int:
        """Tokens of the texts that were not begun."""
        return sum(map(len, self.request.sequences[self.num_begun :]))

    @property
    def is_complete(self) -> bool:
        """Whether every text is a vector."""
        return len(self.vectors) == len(self.request.sequences)


@dataclass(slots=True, eq=False)
class TextInWork:
    """A text that holds pages.

    Attributes:
        total: `[width]`, float64, the sum of the rows that count so far.
        num_done: rows computed.
    """

    job: Job
    index: int
    page_ids: tuple[int, ...]
    total: NDArray[np.float64]
    num_done: int = 0

    @property
    def token_ids(self) -> tuple[TokenId, ...]:
        """Of the whole text."""
        return self.job.request.sequences[self.index]

    @property
    def num_left(self) -> int:
        """Rows to be computed."""
        return len(self.token_ids) - self.num_done

    def piece(self, num_rows: int, *, index: int, page_tokens: int) -> Piece:
        """The next rows, with the pages up to their end, as part of a step in which this is the text of that index."""
        end = self.num_done + num_rows
        page_ids = np.array(self.page_ids[: -(-end // page_tokens)], np.int32)
        return Piece(index, self.num_done, self.token_ids[self.num_done : end], page_ids)


@dataclass(frozen=True, slots=True)
class Portion:
    """Rows of one text in a step."""

    text: TextInWork
    num_rows: int


class EmbeddingQueue:
    """See the module."""

    def __init__(self, model: LoadedModel, *, width: int, is_causal: bool) -> None:
        """Begin empty.

        Args:
            model: whose pages are used.
            width: of a vector.
            is_causal: whether a text may be cut.
        """
        self._model = model
        self._width = width
        self._is_causal = is_causal
        self._waiting: dict[Lane, deque[Job]] = {lane: deque() for lane in Lane}
        self._cut: TextInWork | None = None

    def add(self, job: Job) -> None:
        """Let a request wait for its turn."""
        self._waiting[job.request.lane].append(job)

    def drop(self, job: Job) -> None:
        """Forget a request, and free what its texts hold; called between steps."""
        lane = self._waiting[job.request.lane]
        if job in lane:
            lane.remove(job)
        if self._cut is not None and self._cut.job is job:
            self.release(self._cut)

    def release(self, text: TextInWork) -> None:
        """Free the pages of a text that is done, or not gone on with."""
        self._model.pool.release(text.page_ids)
        text.page_ids = ()
        if self._cut is text:
            self._cut = None

    def take(self, max_rows: int) -> list[Portion]:
        """Return what the next step computes; nothing only when nothing waits.

        Args:
            max_rows: at least 1; an encoder's text that is longer stands alone.
        """
        portions: list[Portion] = []
        num_left = max_rows
        while num_left > 0 and (text := self._cut or self._begin(num_left, is_first=not portions)) is not None:
            num_rows = min(text.num_left, num_left) if self._is_causal else text.num_left
            portions.append(Portion(text, num_rows))
            num_left -= num_rows
            self._cut = None
            if num_rows < text.num_left:
                self._cut = text
                break
        return portions

    def check_integrity(self) -> None:
        """Compare the pages with those that hold them; called between steps. Raises `IntegrityError`."""
        self._model.pool.check_integrity([] if self._cut is None else [self._cut.page_ids])

    def _begin(self, num_rows: int, *, is_first: bool) -> TextInWork | None:
        """Give pages to the text whose turn it is, if it fits; its request goes to the end of its lane's line."""
        lane = next((lane for lane in self._lines() if lane), None)
        if lane is None:
            return None
        job = lane[0]
        token_ids = job.request.sequences[job.num_begun]
        if not (self._is_causal or is_first or len(token_ids) <= num_rows):
            return None
        page_ids = self._model.pool.allocate(self._model.count_pages(len(token_ids)))
        if page_ids is None:
            return None
        text = TextInWork(job, job.num_begun, page_ids, np.zeros(self._width, np.float64))
        job.num_begun += 1
        lane.rotate(-1)
        if job.num_begun == len(job.request.sequences):
            lane.pop()
        return text

    def _lines(self) -> Iterator[deque[Job]]:
        """The lines of the lanes, best first."""
        return iter([self._waiting[lane] for lane in Lane])
