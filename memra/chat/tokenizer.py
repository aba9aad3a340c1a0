"""Text to token ids and back, for every kind of vocabulary that memra runs.

Knows which algorithm a vocabulary asks for, which special tokens stand around a text and what each token adds to one;
the algorithms themselves are in their own modules. Refuses to know files, chat templates and requests. Built once a
model by the templating side; a `Tokenizer` never changes, so any number of threads may share it.

Defaults that a file leaves out are those of llama.cpp.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from memra.chat.byte_bpe import build_byte_bpe
from memra.chat.pre_tokenizers import find_rule
from memra.chat.sentencepiece import UnigramNormalizer, build_raw_bpe, build_score_bpe, build_unigram
from memra.chat.text_encoder import Algorithm, TextEncoder, spelled_names
from memra.chat.token_pieces import build_pieces
from memra.chat.token_roles import TokenRoles, assign_roles
from memra.chat.tokenizer_defaults import ResolvedTokens, resolve_tokens
from memra.chat.tokenizer_json import JsonEncoder, read_traits
from memra.chat.wordpiece import build_wordpiece
from memra.errors import CorruptFileError, UnsupportedModelError
from memra.messages.vocabulary import TokenizerKind, TokenType, Vocabulary
from memra.types import TokenId


class Encoder(Protocol):
    """Text to token ids, without the tokens around a text."""

    def encode(self, text: str, *, parse_special: bool) -> list[TokenId]:
        """The tokens of a text."""
        ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tokenizer:
    """One model's words.

    Attributes:
        tokens: the text of every token as the file has it.
        pieces: the bytes that each token adds to a text; control tokens add none here.
        control_ids: tokens that are never shown.
        eos_ids: tokens with which the model ends its turn.
        bos_id, eos_id: begin and end of sequence, None where the model has none.
        prefix_ids, suffix_ids: what `encode` puts around a text when it is asked to.
        adds_space_prefix: a stretch of text at the start, or after a control token, is read with a space in front that
            is not part of it.
    """

    tokens: tuple[str, ...]
    pieces: tuple[bytes, ...]
    control_ids: frozenset[TokenId]
    eos_ids: frozenset[TokenId]
    bos_id: TokenId | None
    eos_id: TokenId | None
    prefix_ids: tuple[TokenId, ...]
    suffix_ids: tuple[TokenId, ...]
    adds_space_prefix: bool
    _encoder: Encoder = field(repr=False)

    @property
    def vocab_size(self) -> int:
        """The number of tokens; a model may compute logits for more ids than these."""
        return len(self.tokens)

    @property
    def bos_text(self) -> str:
        """The begin-of-sequence token as templates write it; empty where there is none."""
        return "" if self.bos_id is None else self.tokens[self.bos_id]

    @property
    def eos_text(self) -> str:
        """The end-of-sequence token as templates write it; empty where there is none."""
        return "" if self.eos_id is None else self.tokens[self.eos_id]

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[TokenId, ...]:
        """The tokens of a text.

        Args:
            text: any text; half surrogate pairs count as U+FFFD.
            add_special: put the tokens around it that the model expects; one that the text itself spells already is
                not put there twice.
            parse_special: read the names of control tokens as those tokens. Without it they are words like any other;
                user-defined tokens are found in both cases.
        """
        ids = tuple(self._encoder.encode(_whole_characters(text), parse_special=parse_special))
        if not add_special:
            return ids
        prefix, suffix = self.prefix_ids, self.suffix_ids
        if prefix and ids[: len(prefix)] == prefix:
            prefix = ()
        if suffix and ids[-len(suffix) :] == suffix:
            suffix = ()
        return prefix + ids + suffix

    def decode(self, ids: Iterable[TokenId], *, show_control: bool = False) -> str:
        """The text of some tokens; bytes that are no UTF-8 become U+FFFD.

        The inverse of `encode` wherever the algorithm loses nothing: the space that it put in front is taken away.

        Args:
            ids: token ids; one outside the vocabulary adds nothing.
            show_control: write control tokens by their names.
        """
        data = b"".join([self.token_bytes(token_id, show_control=show_control) for token_id in ids])
        if self.adds_space_prefix:
            data = data.removeprefix(b" ")
        return data.decode(errors="replace")

    def token_bytes(self, token_id: TokenId, *, show_control: bool = False) -> bytes:
        """The bytes that a token adds to a text: none for control tokens, unless asked, and for ids without a token."""
        if not 0 <= token_id < len(self.pieces):
            return b""
        if show_control and token_id in self.control_ids:
            return self.tokens[token_id].encode()
        return self.pieces[token_id]

    @property
    def named_pieces(self) -> tuple[bytes, ...]:
        """The bytes that each token adds to a text in which control tokens show by their names; made anew."""
        pieces = list(self.pieces)
        for token_id in self.control_ids:
            pieces[token_id] = self.tokens[token_id].encode()
        return tuple(pieces)

    def find_token(self, text: str) -> TokenId | None:
        """The token that the file calls by exactly this text, or None; looks at every token."""
        try:
            return self.tokens.index(text)
        except ValueError:
            return None

    def __repr__(self) -> str:
        return f"Tokenizer(vocab_size={self.vocab_size})"


def build_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """Build the tokenizer that a vocabulary describes.

    Takes up to a few seconds for a quarter of a million tokens, and is done once a model.

    Raises:
        UnsupportedModelError: the pre-tokenizer or the algorithm is none that memra knows.
        CorruptFileError: the vocabulary contradicts itself.
    """
    if vocabulary.kind is TokenizerKind.TOKENIZER_JSON:
        return _build_from_json(vocabulary)
    resolved = resolve_tokens(vocabulary)
    roles = assign_roles(vocabulary, eos_id=resolved.eos_id)
    encoder = TextEncoder(
        _build_algorithm(vocabulary, roles, resolved), vocabulary.tokens, roles.types, greedy_ids=roles.greedy_ids
    )
    return Tokenizer(
        tokens=vocabulary.tokens,
        pieces=_shown_pieces(build_pieces(vocabulary.kind, vocabulary.tokens, roles.types), roles.hidden_ids),
        control_ids=roles.hidden_ids,
        eos_ids=roles.eos_ids,
        bos_id=resolved.bos_id,
        eos_id=resolved.eos_id,
        prefix_ids=resolved.prefix_ids,
        suffix_ids=resolved.suffix_ids,
        adds_space_prefix=resolved.add_space_prefix or vocabulary.kind is TokenizerKind.WORDPIECE,
        _encoder=encoder,
    )


def _build_algorithm(vocabulary: Vocabulary, roles: TokenRoles, resolved: ResolvedTokens) -> Algorithm:
    names = spelled_names(vocabulary.tokens, roles.types)
    match vocabulary.kind:
        case TokenizerKind.BYTE_BPE:
            return build_byte_bpe(names, vocabulary.merges, find_rule(vocabulary.pre))
        case TokenizerKind.GEMMA4_BPE:
            return build_raw_bpe(names, vocabulary.merges, unknown_id=resolved.unknown_id)
        case TokenizerKind.SENTENCEPIECE_BPE:
            return build_score_bpe(
                names,
                vocabulary.scores,
                roles.types,
                unknown_id=resolved.unknown_id,
                add_space_prefix=resolved.add_space_prefix,
            )
        case TokenizerKind.UNIGRAM:
            return build_unigram(
                names,
                vocabulary.scores,
                unknown_id=_required_unknown(resolved),
                normalizer=UnigramNormalizer(
                    charsmap=vocabulary.precompiled_charsmap,
                    add_space_prefix=resolved.add_space_prefix,
                    remove_extra_whitespaces=bool(vocabulary.remove_extra_whitespaces),
                ),
            )
        case TokenizerKind.WORDPIECE:
            lowercase = vocabulary.lowercase is not False
            accents = lowercase if vocabulary.strip_accents is None else vocabulary.strip_accents
            return build_wordpiece(
                names, unknown_id=_required_unknown(resolved), lowercase=lowercase, strip_accents=accents
            )
        case _:
            raise UnsupportedModelError(f"the tokenizer {vocabulary.kind.value!r} is not supported: use another model")


def _required_unknown(resolved: ResolvedTokens) -> TokenId:
    if resolved.unknown_id is None:
        raise CorruptFileError("the tokenizer names no token for unknown text: convert the model again")
    return resolved.unknown_id


def _shown_pieces(pieces: tuple[bytes, ...], hidden_ids: frozenset[TokenId]) -> tuple[bytes, ...]:
    return tuple(b"" if token_id in hidden_ids else piece for token_id, piece in enumerate(pieces))


def _build_from_json(vocabulary: Vocabulary) -> Tokenizer:
    if vocabulary.tokenizer_json is None:
        raise CorruptFileError("the model has no tokenizer.json: fetch it again")
    encoder = JsonEncoder(vocabulary.tokenizer_json)
    traits = read_traits(vocabulary.tokenizer_json)
    tokens = encoder.tokens()
    types = tuple(traits.types.get(token_id, TokenType.NORMAL) for token_id in range(len(tokens)))
    roles = assign_roles(replace(vocabulary, tokens=tokens, token_types=types), eos_id=vocabulary.eos_id)
    pieces = tuple(
        traits.decode(text) if types[token_id] is TokenType.NORMAL else text.encode()
        for token_id, text in enumerate(tokens)
    )
    prefix_ids, suffix_ids = encoder.surrounding_ids()
    return Tokenizer(
        tokens=tokens,
        pieces=_shown_pieces(pieces, roles.hidden_ids),
        control_ids=roles.hidden_ids,
        eos_ids=roles.eos_ids,
        bos_id=vocabulary.bos_id,
        eos_id=vocabulary.eos_id,
        prefix_ids=prefix_ids,
        suffix_ids=suffix_ids,
        adds_space_prefix=traits.adds_space_prefix,
        _encoder=encoder,
    )


def _whole_characters(text: str) -> str:
    """The text with half surrogate pairs, which no UTF-8 has a place for, made into U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
