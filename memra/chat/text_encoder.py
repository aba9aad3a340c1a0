"""Text to token ids with a control over special tokens that cannot be talked around.

Knows the `tokenizers` library and how added tokens are numbered in it; refuses to know files and chat. The control and
user-defined tokens of a vocabulary are no part of the algorithm's own vocabulary: they stand there under names that no
text can produce, so no merge, no score and no whole-word rule ever spells one. They are found in text before the
algorithm runs, or not at all. Called by `tokenizer`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import Model
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from memra.messages.vocabulary import TokenType
from memra.types import TokenId

UNSPEAKABLE = "\U0010ffff"
"""Begins the names under which special tokens hide in an algorithm's vocabulary: a code point that is no character."""

_NEVER_SPELLED = frozenset({TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED})


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What one kind of tokenizer does with a stretch of text that holds no special token."""

    model: Model
    normalizer: Normalizer | None = None
    pre_tokenizer: PreTokenizer | None = None


def spelled_names(tokens: Sequence[str], types: Sequence[TokenType]) -> list[str]:
    """A distinct name for every token id: its text, or an unspeakable name for a token that no algorithm may spell.

    Where a text occurs twice the later token has it, as in llama.cpp.
    """
    last_id = {text: token_id for token_id, text in enumerate(tokens)}
    return [
        f"{UNSPEAKABLE}{token_id}" if token_type in _NEVER_SPELLED or not text or last_id[text] != token_id else text
        for token_id, (text, token_type) in enumerate(zip(tokens, types, strict=True))
    ]


def run_library(library: Tokenizer, text: str) -> list[TokenId]:
    """The tokens of a text as a library tokenizer sees it, nothing put around it.

    A batch of one: unlike the library's call for a single text it lets other threads run, and keeps no offsets.
    """
    ids: list[TokenId] = library.encode_batch_fast([text], add_special_tokens=False)[0].ids
    return ids


class TextEncoder:
    """Turns text into token ids; immutable, and shared between threads."""

    def __init__(
        self,
        algorithm: Algorithm,
        tokens: Sequence[str],
        types: Sequence[TokenType],
        *,
        greedy_ids: frozenset[TokenId] = frozenset(),
    ) -> None:
        """Build both readings of text: with control tokens and without.

        Args:
            algorithm: made over the `spelled_names` of the same tokens.
            tokens: all token texts.
            types: their types.
            greedy_ids: tokens that swallow the white space after them.
        """
        user_defined = [token_id for token_id, kind in enumerate(types) if kind is TokenType.USER_DEFINED]
        special = [token_id for token_id, kind in enumerate(types) if kind in _NEVER_SPELLED]
        self._plain = _OneReading(algorithm, tokens, user_defined, greedy_ids)
        self._special = _OneReading(algorithm, tokens, special, greedy_ids)

    def encode(self, text: str, *, parse_special: bool) -> list[TokenId]:
        """The tokens of a text; without `parse_special` the names of control tokens are words like any other."""
        return (self._special if parse_special else self._plain).encode(text)


class _OneReading:
    """A library tokenizer and the way back from the ids that it gives to added tokens."""

    def __init__(
        self, algorithm: Algorithm, tokens: Sequence[str], found_ids: list[TokenId], greedy_ids: frozenset[TokenId]
    ) -> None:
        library = Tokenizer(algorithm.model)
        if algorithm.normalizer is not None:
            library.normalizer = algorithm.normalizer
        if algorithm.pre_tokenizer is not None:
            library.pre_tokenizer = algorithm.pre_tokenizer
        found = {tokens[token_id]: token_id for token_id in found_ids if tokens[token_id]}
        library.add_tokens(
            [AddedToken(text, normalized=False, rstrip=token_id in greedy_ids) for text, token_id in found.items()]
        )
        ids = list(range(len(tokens))) + [0] * len(found)
        for library_id, added in library.get_added_tokens_decoder().items():
            ids[library_id] = found[added.content]
        self._library = library
        self._lookup = ids.__getitem__ if found else None

    def encode(self, text: str) -> list[TokenId]:
        ids = run_library(self._library, text)
        return ids if self._lookup is None else list(map(self._lookup, ids))
