"""One request's tokens on their way through the engine: queued, prefilling, decoding, finished.

Knows its own tokens, its pages and when it must stop; not who else runs, nor how a token is computed or chosen.
"""

from enum import Enum

import numpy as np
from numpy.typing import NDArray

from memra.engine.loaded_model import PageLease
from memra.engine.token_window import TokenWindow
from memra.messages.sampling import SamplingParams
from memra.messages.work import SubmitPrompt
from memra.types import RequestId, StopCause, TokenId

NO_STATE = -1
"""In place of a state's id: all zeros, or none at all."""


class SequencePhase(Enum):
    """How far a sequence has come."""

    QUEUED = "queued"
    PREFILLING = "prefilling"
    DECODING = "decoding"
    FINISHED = "finished"


class Sequence:
    """A prompt and its answer so far.

    Attributes:
        request: as submitted.
        phase: the scheduler moves it on.
        capacity_tokens: the most tokens that prompt and answer can come to.
        lease: the pages, from admission to retirement; empty otherwise.
        num_tokens: known tokens, prompt and answer.
        num_computed_tokens: leading tokens whose keys and values lie in the pages.
        num_generated: sampled tokens; an ending end-of-sequence token is counted, a client's stop token is not.
        window: what the penalties look at; None when the request sets no penalty.
        state_in: the recurrent state after the computed tokens; `NO_STATE` before the first.
    """

    __slots__ = (
        "_token_ids",
        "capacity_tokens",
        "lease",
        "num_computed_tokens",
        "num_generated",
        "num_tokens",
        "page_table",
        "phase",
        "request",
        "state_in",
        "window",
    )

    def __init__(self, request: SubmitPrompt, *, context_tokens: int) -> None:
        """Queue a prompt that is shorter than the context.

        Args:
            request: the prompt and how to go on from it.
            context_tokens: the model's limit for prompt and answer together.
        """
        self.request = request
        self.phase = SequencePhase.QUEUED
        self.capacity_tokens = min(len(request.prompt_ids) + request.max_new_tokens, context_tokens)
        self.num_tokens = len(request.prompt_ids)
        self.num_computed_tokens = 0
        self.num_generated = 0
        self.window: TokenWindow | None = None
        self.state_in = NO_STATE
        self._token_ids: NDArray[np.int32] = np.empty(0, np.int32)
        self._set_lease(PageLease())

    @property
    def request_id(self) -> RequestId:
        """The id that was chosen upstairs."""
        return self.request.request_id

    @property
    def generates_nothing(self) -> bool:
        """Whether only the prompt was to be taken: such a sequence needs neither pages nor a row."""
        return self.request.max_new_tokens == 0

    @property
    def num_waiting_tokens(self) -> int:
        """Known tokens that are not computed yet."""
        return self.num_tokens - self.num_computed_tokens

    def start(self, lease: PageLease) -> None:
        """Leave the queue with pages for the whole capacity."""
        self._set_lease(lease)
        self._token_ids = np.empty(self.capacity_tokens, np.int32)
        self._token_ids[: self.num_tokens] = self.request.prompt_ids
        self.num_computed_tokens = lease.num_cached_tokens
        if _has_penalty(self.request.sampling):
            self.window = TokenWindow(self.request.prompt_ids)
        self.phase = SequencePhase.PREFILLING

    def read_tokens(self, start: int, num: int) -> NDArray[np.int32]:
        """Return a view of `num` known tokens from position `start` on, int32."""
        return self._token_ids[start : start + num]

    @property
    def state_out(self) -> int:
        """Where the next step leaves its recurrent state; `NO_STATE` for a model without recurrent operators."""
        return next((state for state in self.lease.state_ids if state != self.state_in), NO_STATE)

    def mark_computed(self, num: int) -> None:
        """Note that the next `num` tokens lie in the pages now, and that the state is the one after them."""
        self.num_computed_tokens += num
        self.state_in = self.state_out

    def append(self, token_id: TokenId) -> StopCause | None:
        """Take a sampled token in, and say whether and why the sequence ends with it.

        A token that ends the sequence does not become part of the answer. The client's are looked at first and are not
        counted; the model's own are.
        """
        self.phase = SequencePhase.DECODING
        if token_id in self.request.stop_ids:
            return StopCause.STOP_TOKEN
        self.num_generated += 1
        if token_id in self.request.eos_ids:
            return StopCause.END_OF_SEQUENCE
        self._token_ids[self.num_tokens] = token_id
        self.num_tokens += 1
        if self.window is not None:
            self.window.append(token_id)
        if self.num_generated >= self.request.max_new_tokens:
            return StopCause.MAX_TOKENS
        return StopCause.CONTEXT_FULL if self.num_tokens >= self.capacity_tokens else None

    def finish(self) -> PageLease:
        """End here, and hand over the pages; an empty lease when there are none."""
        lease = self.lease
        self._set_lease(PageLease())
        self.phase = SequencePhase.FINISHED
        return lease

    def _set_lease(self, lease: PageLease) -> None:
        self.lease = lease
        self.page_table: NDArray[np.int32] = np.array(lease.page_ids, np.int32)


def _has_penalty(sampling: SamplingParams) -> bool:
    return bool(
        sampling.frequency_penalty or sampling.presence_penalty or sampling.repetition_penalty != 1.0  # neutral
    )
