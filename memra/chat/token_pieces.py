"""The bytes that each token adds to a text: the table behind every way back from tokens to words.

Knows how each kind of tokenizer writes spaces and bytes into its token texts. Called by `tokenizer` and
`tokenizer_json`.
"""

import re
from collections.abc import Callable, Sequence

from memra.chat.byte_alphabet import bytes_of
from memra.messages.vocabulary import TokenizerKind, TokenType

WORD_START = "\u2581"
"""SentencePiece's visible space, in front of every word."""

_BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")


def spaced_bytes(text: str) -> bytes:
    """The bytes of a SentencePiece token: its visible spaces are spaces."""
    return text.replace(WORD_START, " ").encode()


def byte_token_value(text: str) -> bytes | None:
    """The one byte that a token such as `<0x0A>` stands for, or None for any other token."""
    match = _BYTE_TOKEN.fullmatch(text)
    return None if match is None else bytes([int(match[1], 16)])


_DECODERS: dict[TokenizerKind, Callable[[str], bytes]] = {
    TokenizerKind.BYTE_BPE: bytes_of,
    TokenizerKind.SENTENCEPIECE_BPE: spaced_bytes,
    TokenizerKind.UNIGRAM: spaced_bytes,
    TokenizerKind.WORDPIECE: spaced_bytes,
    TokenizerKind.GEMMA4_BPE: spaced_bytes,
}


def build_pieces(kind: TokenizerKind, tokens: Sequence[str], types: Sequence[TokenType]) -> tuple[bytes, ...]:
    """The bytes of every token, control tokens by their names; unused tokens have none."""
    decode = _DECODERS[kind]
    return tuple(_piece(decode, text, token_type) for text, token_type in zip(tokens, types, strict=True))


def _piece(decode: Callable[[str], bytes], text: str, token_type: TokenType) -> bytes:
    if token_type is TokenType.NORMAL:
        return decode(text)
    if token_type is TokenType.UNUSED:
        return b""
    if token_type is TokenType.BYTE:
        return byte_token_value(text) or decode(text)
    return text.encode()
