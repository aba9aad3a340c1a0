"""One request's tokens on their way through the engine: queued, prefilling, decoding, finished.

Knows its own tokens, its pages and when it must stop; not who else runs, nor how a token is computed or chosen.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from memra.engine.prefix_tree import PrefixNode, Snapshot
from memra.engine.token_window import TokenWindow
from memra.messages.constraint import TokenConstraint
from memra.messages.sampling import SamplingParams
from memra.messages.work import SubmitPrompt
from memra.types import RequestId, StopCause, TokenId

NO_STATE = -1
"""In place of a state's id: all zeros, or none at all."""


@dataclass(frozen=True, slots=True)
class PageLease:
    """The pages and states of one sequence, held until they are returned.

    Attributes:
        page_ids: in order of position; page `i` holds the tokens from `i * page_tokens` on.
        num_cached_tokens: leading tokens whose keys and values lie in these pages already; always fewer than the
            sequence has, because its last token must run to give logits.
        state_ids: two states of a model with recurrent operators, used in turns; empty for others.
        snapshot: whose state the sequence goes on from, held until its first step; None when it begins.
        node: of the last page that is shared with the prefix cache; None where there is no such cache.
    """

    page_ids: tuple[int, ...] = ()
    num_cached_tokens: int = 0
    state_ids: tuple[int, ...] = ()
    snapshot: Snapshot | None = None
    node: PrefixNode | None = None


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
        page_ids, page_table: the pages, from admission to retirement; empty otherwise. One list, once to change and
            once to copy from.
        state_ids: two states of its own where the model is recurrent.
        state_in: the recurrent state after the computed tokens; `NO_STATE` before the first.
        borrowed: the snapshot whose state `state_in` is, held for the next step; None when the state is its own.
        node: of the last full page that is known to the prefix cache; None before admission and without a cache.
        num_known_tokens: leading tokens of pages up to `node`.
        branch_points: positions, ascending, at which its state is to be kept; those that lie ahead.
        leader: a sequence that computes the tokens which both share, and is waited for up to `num_shared_tokens`.
        num_tokens: known tokens, prompt and answer.
        num_computed_tokens: leading tokens whose keys and values lie in the pages.
        num_generated: sampled tokens; an ending end-of-sequence token is counted, a client's stop token is not.
        num_starts: times that it was given room; more than one after a preemption.
        num_scored_tokens: leading tokens of the prompt whose likelihoods were told, of a request that wants them.
        conversation: namespace and name of the conversation that it goes on with; None when it is not known.
        is_announced: whether its start was told.
        window: what the penalties look at; None when the request sets no penalty.
        constraint: what the answer may go on with, after its known tokens; None before its start and without rules.
        started_at: seconds, when it was given room last.
    """

    __slots__ = (
        "_token_ids",
        "borrowed",
        "branch_points",
        "capacity_tokens",
        "constraint",
        "conversation",
        "is_announced",
        "leader",
        "node",
        "num_computed_tokens",
        "num_generated",
        "num_known_tokens",
        "num_scored_tokens",
        "num_shared_tokens",
        "num_starts",
        "num_tokens",
        "page_ids",
        "page_table",
        "phase",
        "request",
        "started_at",
        "state_ids",
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
        self.num_generated = 0
        self.num_computed_tokens = 0
        self.num_starts = 0
        self.num_scored_tokens = 0
        self.started_at = 0.0
        self.is_announced = False
        self.conversation: tuple[str, str] | None = None
        self.window: TokenWindow | None = None
        self.constraint: TokenConstraint | None = None
        self._token_ids = np.empty(max(self.capacity_tokens, self.num_tokens), np.int32)
        self._token_ids[: self.num_tokens] = request.prompt_ids
        self._take(PageLease())

    @property
    def request_id(self) -> RequestId:
        """The id that was chosen upstairs."""
        return self.request.request_id

    @property
    def generates_nothing(self) -> bool:
        """Whether only the prompt was to be taken: such a sequence needs neither pages nor a row."""
        return self.request.max_new_tokens == 0 and not self.request.scores_prompt

    @property
    def is_scoring(self) -> bool:
        """Whether likelihoods of its prompt's tokens are still to be told."""
        return self.request.scores_prompt and self.num_scored_tokens < len(self.request.prompt_ids)

    @property
    def num_waiting_tokens(self) -> int:
        """Known tokens that are not computed yet."""
        return self.num_tokens - self.num_computed_tokens

    def start(self, lease: PageLease) -> None:
        """Leave the queue with pages for the whole capacity; again after a preemption."""
        self._take(lease)
        self.num_starts += 1
        self.phase = SequencePhase.PREFILLING
        if self.window is None and _has_penalty(self.request.sampling):
            self.window = TokenWindow(self.request.prompt_ids)
        if self.constraint is None and self.request.constraint is not None:
            self.constraint = self.request.constraint.copy()  # the request may be run again, by another worker

    def move(self, lease: PageLease) -> None:
        """Go on in other room, which holds at least what the old one held."""
        self._take(lease)

    def read_tokens(self, start: int, num: int) -> NDArray[np.int32]:
        """Return a view of `num` known tokens from position `start` on, int32."""
        return self._token_ids[start : start + num]

    @property
    def state_out(self) -> int:
        """Where the next step leaves its recurrent state; `NO_STATE` for a model without recurrent operators."""
        if not self.state_ids:
            return NO_STATE
        first, second = self.state_ids
        return second if first == self.state_in else first

    def mark_computed(self, num: int) -> None:
        """Note that the next `num` tokens lie in the pages now, and that the state is the one after them."""
        self.num_computed_tokens += num
        self.state_in = self.state_out

    def append(self, token_id: TokenId) -> StopCause | None:
        """Take a sampled token in, and say whether and why the sequence ends with it.

        A token that ends the sequence does not become part of the answer. The client's are looked at first and are not
        counted; the model's own are. A token that completes what a constraint asks for ends it too, as a part of it.

        Raises:
            GrammarDeadEndError: the constraint forbids the token.
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
        if self.constraint is not None and not self.constraint.accept(token_id):
            return StopCause.END_OF_SEQUENCE
        if self.num_generated >= self.request.max_new_tokens:
            return StopCause.MAX_TOKENS
        return StopCause.CONTEXT_FULL if self.num_tokens >= self.capacity_tokens else None

    def replace_page(self, index: int, page_id: int) -> None:
        """Use another page that holds the same tokens."""
        self.page_ids[index] = page_id
        self.page_table[index] = page_id

    def pause(self) -> None:
        """Give up pages and states and wait again; tokens, window and counts stay."""
        self._take(PageLease())
        self.phase = SequencePhase.QUEUED

    def finish(self) -> None:
        """End here, without pages and states."""
        self._take(PageLease())
        self.phase = SequencePhase.FINISHED

    def _take(self, lease: PageLease) -> None:
        self.page_ids = list(lease.page_ids)
        self.page_table: NDArray[np.int32] = np.array(lease.page_ids, np.int32)
        self.state_ids = lease.state_ids
        self.borrowed = lease.snapshot
        self.state_in = NO_STATE
        if lease.snapshot is not None and lease.snapshot.state_id is not None:
            self.state_in = lease.snapshot.state_id
        self.node = lease.node
        self.num_known_tokens = 0
        if lease.node is not None and lease.node.parent is not None:
            self.num_known_tokens = (lease.node.depth + 1) * lease.node.num_tokens
        self.num_computed_tokens = lease.num_cached_tokens
        self.branch_points: list[int] = []
        self.leader: Sequence | None = None
        self.num_shared_tokens = 0


def _has_penalty(sampling: SamplingParams) -> bool:
    return bool(
        sampling.frequency_penalty or sampling.presence_penalty or sampling.repetition_penalty != 1.0  # neutral
    )
