"""Tokenizers that come as a `tokenizer.json`: the file says everything, so it is run as it is.

Knows that format's decoders well enough to tell which bytes each token stands for; refuses to know GGUF. Called by
`tokenizer`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from memra.chat.byte_alphabet import bytes_of
from memra.chat.text_encoder import run_library
from memra.chat.token_pieces import byte_token_value, spaced_bytes
from memra.errors import CorruptFileError
from memra.messages.vocabulary import TokenType
from memra.types import TokenId

_WORDPIECE_CONTINUES = "##"
# Any short text that no normaliser swallows shows what the post-processor puts around it.
_PROBE = "a"


class JsonEncoder:
    """Turns text into token ids as the file says; immutable, and shared between threads."""

    def __init__(self, source: str) -> None:
        """Read the file's text twice: once with its special tokens, once with their names as words.

        Raises:
            CorruptFileError: the text is no valid `tokenizer.json`.
        """
        self._special = _read(source)
        self._plain = _read(source)
        self._plain.encode_special_tokens = True

    def encode(self, text: str, *, parse_special: bool) -> list[TokenId]:
        """The tokens of a text, without those that the file puts around every text."""
        return run_library(self._special if parse_special else self._plain, text)

    def surrounding_ids(self) -> tuple[tuple[TokenId, ...], tuple[TokenId, ...]]:
        """The tokens that the file's post-processor puts before and after every text."""
        bare = self._plain.encode(_PROBE, add_special_tokens=False).ids
        full = self._plain.encode(_PROBE, add_special_tokens=True).ids
        for start in range(len(full) - len(bare) + 1):
            if full[start : start + len(bare)] == bare:
                return tuple(full[:start]), tuple(full[start + len(bare) :])
        return (), ()

    def tokens(self) -> tuple[str, ...]:
        """The text of every token by id; an id without a token has no text."""
        texts = self._special.get_vocab(with_added_tokens=True)
        by_id = {token_id: text for text, token_id in texts.items()}
        return tuple(by_id.get(token_id, "") for token_id in range(max(by_id, default=-1) + 1))


def _read(source: str) -> Tokenizer:
    try:
        library = Tokenizer.from_str(source)
    except Exception as error:  # the library raises nothing more specific
        raise CorruptFileError(f"the tokenizer.json cannot be read ({error}): fetch the model again") from error
    library.no_truncation()
    library.no_padding()
    return library


@dataclass(frozen=True, slots=True)
class JsonTraits:
    """What a `tokenizer.json` says beside its algorithm.

    Attributes:
        types: a type for each of its added tokens, by id.
        adds_space_prefix: text that begins is given a space, which its decoder takes away again.
        decode: the bytes of a token's text.
    """

    types: dict[TokenId, TokenType]
    adds_space_prefix: bool
    decode: Callable[[str], bytes]


def read_traits(source: str) -> JsonTraits:
    """Read the traits off a file that `JsonEncoder` has accepted."""
    content = json.loads(source)
    types = {
        added["id"]: TokenType.CONTROL if added.get("special") else TokenType.USER_DEFINED
        for added in content.get("added_tokens") or ()
    }
    parts = _parts(content, "decoder")
    return JsonTraits(
        types=types, adds_space_prefix=_adds_space_prefix(content, parts), decode=_decoder(parts, content)
    )


def _adds_space_prefix(content: dict[str, Any], decoders: list[dict[str, Any]]) -> bool:
    spaces = [part for part in _parts(content, "pre_tokenizer") if part["type"] == "Metaspace"]
    schemes = {part.get("prepend_scheme", "always") for part in spaces}
    strips = any(part["type"] == "Strip" and part.get("start") for part in decoders)
    return strips or bool(schemes & {"always", "first"}) or any(part["type"] == "WordPiece" for part in decoders)


def _decoder(decoders: list[dict[str, Any]], content: dict[str, Any]) -> Callable[[str], bytes]:
    kinds = {part["type"] for part in decoders + _parts(content, "pre_tokenizer")}
    if "ByteLevel" in kinds:
        return bytes_of
    if "WordPiece" in kinds:
        return _word_bytes
    return _spaced_or_byte


def _parts(content: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The steps of one stage, whether the file has none, one or a sequence of them."""
    part = content.get(name)
    if part is None:
        return []
    steps = part.get("decoders") or part.get("pretokenizers") or [part]
    return list(steps)


def _spaced_or_byte(text: str) -> bytes:
    return byte_token_value(text) or spaced_bytes(text)


def _word_bytes(text: str) -> bytes:
    continues = text.startswith(_WORDPIECE_CONTINUES)
    return text[len(_WORDPIECE_CONTINUES) :].encode() if continues else f" {text}".encode()
