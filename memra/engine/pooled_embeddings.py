"""Vectors of whole texts: an embedding model's rows, pooled.

Trade: one vector of each list of token ids. The promise of the executors holds on: a vector's bits depend on its own
tokens alone, not on the lists beside it, nor on how the steps were cut. So rows are summed one by one in order of
position, in float64, and a norm is the exact sum of squares.

Refuses to know text, queues and how rows are computed. One thread, the executor's, uses an instance.
"""

import math
from collections.abc import MutableSequence, Sequence

import numpy as np
from numpy.typing import NDArray

from memra.engine.embedding_steps import Piece, cut_steps, make_batch
from memra.engine.executor import Executor
from memra.errors import (
    ConfigurationError,
    ContextLengthError,
    InvalidRequestError,
    RequestError,
    UnsupportedModelError,
)
from memra.layers.program import Pooling, Program
from memra.types import TokenId


class PooledEmbeddings:
    """Makes vectors with one embedding model.

    Every call uses the executor's pages from the first one on, so nobody else may keep anything in them.
    """

    def __init__(self, executor: Executor, program: Program, *, context_tokens: int | None = None) -> None:
        """Keep the model; nothing is computed.

        Args:
            executor: runs `program`; not closed here.
            program: of an embedding model.
            context_tokens: longest sequence that is taken; None is the model's own context.

        Raises:
            UnsupportedModelError: the model gives logits, or has recurrent layers.
            ConfigurationError: the executor's pages do not hold one sequence of the longest kind.
        """
        if program.pooling is None:
            raise UnsupportedModelError(f"A {program.architecture} language model makes no embeddings; take another.")
        if program.state_layers:
            raise UnsupportedModelError("memra makes no embeddings with models that have recurrent layers.")
        self._executor = executor
        self._program = program
        self._pooling = program.pooling
        self._context_tokens = min(context_tokens or program.context_tokens, program.context_tokens)
        needed = -(-self._context_tokens // executor.page_tokens)
        if executor.num_pages < needed:
            raise ConfigurationError(
                f"A context of {self._context_tokens} tokens needs {needed} pages of {executor.page_tokens} tokens, "
                f"not {executor.num_pages}: give the model's cache more memory or take a shorter context."
            )

    @property
    def width(self) -> int:
        """Elements of a vector; of a reranker, the number of its scores."""
        return self._program.output_width

    @property
    def context_tokens(self) -> int:
        """Tokens of the longest sequence that is taken."""
        return self._context_tokens

    @property
    def is_causal(self) -> bool:
        """Whether a sequence may be cut between steps."""
        return self._program.is_causal

    def embed(self, sequences: Sequence[Sequence[TokenId]], *, normalise: bool = True) -> NDArray[np.float32]:
        """Make one vector of each sequence, `[S, width]`, float32, in the order given.

        Args:
            sequences: token ids with everything that the model wants around a text, such as CLS and SEP, or the token
                that ends a text for a model that takes the last row.
            normalise: divide each vector by its L2 norm; a reranker's scores are left as they are.

        Raises:
            ContextLengthError: a sequence is longer than the context.
            InvalidRequestError: a sequence is empty, or holds a token outside of the vocabulary.
        """
        for index, token_ids in enumerate(sequences):
            self._check(index, token_ids)
        totals = list(np.zeros((len(sequences), self.width), np.float64))
        steps = cut_steps(
            sequences,
            page_tokens=self._executor.page_tokens,
            num_pages=self._executor.num_pages,
            is_causal=self._program.is_causal,
        )
        for pieces in steps:
            self.add_rows(pieces, [len(sequences[piece.index]) for piece in pieces], totals)
        vectors = np.zeros((len(sequences), self.width), np.float32)
        for index, token_ids in enumerate(sequences):
            vectors[index] = self._pool(totals[index], len(token_ids), normalise=normalise)
        return vectors

    def find_refusal(self, sequences: Sequence[Sequence[TokenId]]) -> str | None:
        """Say why these cannot be embedded, or None."""
        try:
            for index, token_ids in enumerate(sequences):
                self._check(index, token_ids)
        except RequestError as error:
            return error.message
        return None

    def add_rows(
        self, pieces: Sequence[Piece], num_tokens: Sequence[int], totals: MutableSequence[NDArray[np.float64]]
    ) -> None:
        """Compute a step, and add the rows that count to their sequences' sums in order of position.

        An error leaves the sums as they were.

        Args:
            pieces: of the step; those of one sequence come in order, step after step.
            num_tokens: of each piece's whole sequence.
            totals: `[width]` each, of the sequences that the pieces' indices count.
        """
        begin = 0
        output_rows: list[int] = []
        owners: list[int] = []
        for piece, length in zip(pieces, num_tokens, strict=True):
            rows = self._counted_rows(piece, length)
            output_rows += [begin + row for row in rows]
            owners += [piece.index] * len(rows)
            begin += len(piece.token_ids)
        outputs = self._executor.run(make_batch(pieces, np.array(output_rows, np.int32)))
        for owner, row in zip(owners, outputs, strict=True):
            totals[owner] += row

    def finish(self, total: NDArray[np.float64], num_tokens: int) -> NDArray[np.float32]:
        """Make a vector of norm 1 of a sequence's sum, `[width]`; of a reranker, scores from 0 to 1.

        An encoder's classifier gives logits, of which the logistic function makes scores that can be compared.

        Args:
            total: `[width]`, with every row of the sequence added.
            num_tokens: of the sequence.
        """
        vector = self._pool(total, num_tokens, normalise=True)
        if self._pooling is not Pooling.RANK or self.is_causal:
            return vector
        return np.array([_logistic(logit) for logit in vector.tolist()], np.float32)

    def _pool(self, total: NDArray[np.float64], num_tokens: int, *, normalise: bool) -> NDArray[np.float32]:
        vector = total / num_tokens if self._pooling is Pooling.MEAN else total
        if normalise and self._pooling is not Pooling.RANK:
            vector = vector / _norm(vector)
        return vector.astype(np.float32)

    def _check(self, index: int, token_ids: Sequence[TokenId]) -> None:
        if not token_ids:
            raise InvalidRequestError(f"Sequence {index} is empty; give at least one token.")
        if len(token_ids) > self._context_tokens:
            raise ContextLengthError(
                f"Sequence {index} has {len(token_ids)} tokens, but the model's context holds {self._context_tokens}; "
                "shorten it or cut it into several."
            )
        if min(token_ids) < 0 or max(token_ids) >= self._program.vocab_size:
            raise InvalidRequestError(
                f"Sequence {index} holds a token outside of the vocabulary of {self._program.vocab_size}; "
                "use the model's own tokenizer."
            )

    def _counted_rows(self, piece: Piece, num_tokens: int) -> range:
        """Rows of a piece that its vector is made of, counted from the piece's first."""
        num_rows = len(piece.token_ids)
        if self._pooling is Pooling.MEAN:
            return range(num_rows)
        takes_first = self._pooling is Pooling.CLS or (self._pooling is Pooling.RANK and not self._program.is_causal)
        wanted = (0 if takes_first else num_tokens - 1) - piece.first
        return range(wanted, wanted + 1) if 0 <= wanted < num_rows else range(0)


def _norm(vector: NDArray[np.float64]) -> float:
    """L2 norm, 1 for a vector of zeros; the sum is exact, so that no library's order of adding shows."""
    return math.sqrt(math.fsum((vector * vector).tolist())) or 1.0


def _logistic(logit: float) -> float:
    """`1 / (1 + e^-logit)`, without overflow."""
    power = math.exp(-abs(logit))
    return 1.0 / (1.0 + power) if logit >= 0 else power / (1.0 + power)
