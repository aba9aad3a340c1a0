"""One model as the engine holds it: an executor, the accounts of its pages, and its limits.

Knows no requests. Whoever loads a model makes one of these and closes the executor after the engine gave it back.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from memra.engine.executor import Executor
from memra.engine.page_pool import PagePool
from memra.engine.pooled_embeddings import PooledEmbeddings
from memra.engine.sampler import Sampler, TokenSampler
from memra.errors import ConfigurationError
from memra.types import ModelName

STATES_PER_SEQUENCE = 2
"""A step reads one state and writes the other: a failed step has destroyed nothing."""


@dataclass(slots=True)
class LoadedModel:
    """A model that is ready to run.

    Attributes:
        name: under which requests ask for it.
        executor: runs it; called by the engine's thread alone.
        identity: tells its weights from all others; what is handed to another server is stamped with it.
        instance: tells models apart that were loaded one after the other under one name.
        context_tokens: the longest sequence that is served, prompt and answer together.
        max_rows: sequences that run at the same time.
        prefill_chunk_tokens: prompt tokens that one tick computes at most, over all sequences together.
        make_sampler: called once with the vocabulary's size, for the sampler that chooses this model's tokens.
        pooled: makes vectors with an embedding model; None for a model that generates.
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
    identity: str = ""
    pooled: PooledEmbeddings | None = None
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
