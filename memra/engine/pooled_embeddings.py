"""Vectors of whole texts: an embedding model's rows, pooled.

Trade: one vector of each list of token ids. The promise of the executors holds on: a vector's bits depend on its own
tokens alone, not on the lists beside it, nor on how the steps were cut. So rows are summed one by one in order of
position, in float64, and a norm is the exact sum of squares.

Refuses to know text, queues and how rows are computed. One thread, the executor's, uses an instance.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memra.engine.embedding_steps import Piece, cut_steps, make_batch
from memra.engine.executor import Executor
from memra.errors import ConfigurationError, ContextLengthError, InvalidRequestError, UnsupportedModelError
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
        vectors = np.zeros((len(sequences), self.width), np.float64)
        steps = cut_steps(
            sequences,
            page_tokens=self._executor.page_tokens,
            num_pages=self._executor.num_pages,
            is_causal=self._program.is_causal,
        )
        for pieces in steps:
            self._add_rows(pieces, [len(sequences[piece.index]) for piece in pieces], vectors)
        if self._pooling is Pooling.MEAN:
            vectors /= np.array([[len(token_ids)] for token_ids in sequences], np.float64).reshape(-1, 1)
        if normalise and self._pooling is not Pooling.RANK:
            vectors /= np.array([_norm(vector) for vector in vectors], np.float64).reshape(-1, 1)
        return vectors.astype(np.float32)

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

    def _add_rows(self, pieces: Sequence[Piece], num_tokens: Sequence[int], vectors: NDArray[np.float64]) -> None:
        """Compute a step, and add the rows that count to their vectors in order of position.

        Args:
            pieces: of the step.
            num_tokens: of each piece's whole sequence.
            vectors: `[S, width]`, of all sequences.
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
            vectors[owner] += row

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
