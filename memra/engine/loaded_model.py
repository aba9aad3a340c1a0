"""One model as the engine holds it: an executor, the accounts of its pages, and its limits.

Knows no requests. Whoever loads a model makes one of these and closes the executor after the engine gave it back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from memra.engine.executor import Executor
from memra.engine.page_pool import PagePool
from memra.engine.sampler import Sampler, TokenSampler
from memra.errors import ConfigurationError
from memra.types import ModelName, TokenId

STATES_PER_SEQUENCE = 2
"""A step reads one state and writes the other: a failed step has destroyed nothing."""


@dataclass(frozen=True, slots=True)
class PageLease:
    """The pages and states of one sequence, held until they are returned.

    Attributes:
        page_ids: in order of position; page `i` holds the tokens from `i * page_tokens` on.
        num_cached_tokens: leading prompt tokens whose keys and values lie in these pages already; always fewer than
            the prompt has, because the last prompt token must run to give logits.
        state_ids: two states of a model with recurrent operators, used in turns; empty for others.
    """

    page_ids: tuple[int, ...] = ()
    num_cached_tokens: int = 0
    state_ids: tuple[int, ...] = ()


@dataclass(slots=True)
class LoadedModel:
    """A model that is ready to run.

    Attributes:
        name: under which requests ask for it.
        executor: runs it; called by the engine's thread alone.
        instance: tells models apart that were loaded one after the other under one name.
        context_tokens: the longest sequence that is served, prompt and answer together.
        max_rows: sequences that run at the same time.
        prefill_chunk_tokens: prompt tokens that one tick computes at most, over all sequences together.
        make_sampler: called once with the vocabulary's size, for the sampler that chooses this model's tokens.
        pool: the executor's pages.
        states: the executor's recurrent states; empty for a model without recurrent operators.
    """

    name: ModelName
    executor: Executor
    context_tokens: int
    max_rows: int = 16
    prefill_chunk_tokens: int = 256
    make_sampler: Callable[[int], TokenSampler] = Sampler
    instance: int = 0
    pool: PagePool = field(init=False)
    states: PagePool = field(init=False)

    def __post_init__(self) -> None:
        """Refuse limits under which nothing could run.

        Raises:
            ConfigurationError: a limit is below one.
        """
        for limit in ("context_tokens", "max_rows", "prefill_chunk_tokens"):
            if getattr(self, limit) < 1:
                raise ConfigurationError(f"{limit} of model {self.name} must be at least 1, not {getattr(self, limit)}")
        self.pool = PagePool(self.executor.num_pages)
        self.states = PagePool(self.executor.num_states, noun="state")

    def count_pages(self, num_tokens: int) -> int:
        """Return the number of whole pages that hold `num_tokens`."""
        return -(-num_tokens // self.executor.page_tokens)

    def lease_pages(self, prompt_ids: Sequence[TokenId], capacity_tokens: int) -> PageLease | None:
        """Reserve room for a whole sequence, so that it never runs out of pages or states halfway.

        Args:
            prompt_ids: the prompt, for which pages may be found that hold its beginning already.
            capacity_tokens: the most tokens that the sequence can come to.

        Returns:
            None, with nothing taken, when there is no room at the moment.
        """
        del prompt_ids  # no prefix is kept between sequences
        page_ids = self.pool.allocate(self.count_pages(capacity_tokens))
        if page_ids is None:
            return None
        state_ids = self.states.allocate(STATES_PER_SEQUENCE) if self.states.num_pages else ()
        if state_ids is None:
            self.pool.release(page_ids)
            return None
        return PageLease(page_ids, state_ids=state_ids)

    def return_pages(self, lease: PageLease) -> None:
        """Let go of a sequence's pages and states."""
        self.pool.release(lease.page_ids)
        self.states.release(lease.state_ids)
