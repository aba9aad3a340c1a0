"""`tokenizer.model`, SentencePiece's own file, read without its library.

Trade: the few fields of its protocol buffer that a tokenizer needs (`sentencepiece_model.proto`: pieces are field 1 of
the model, `TrainerSpec` is 2, `NormalizerSpec` is 3). Refuses to know how text is tokenised and which other files lie
beside this one. Called by `tokenizer_files`.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from memra.errors import CorruptFileError, SourceError, UnsupportedModelError
from memra.messages.vocabulary import TokenizerKind, TokenType

MAX_BYTES: Final = 1 << 26
"""Ten times the largest known."""
MAX_PIECES: Final = 1 << 22
_MAX_VARINT_BYTES: Final = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types of protocol buffers."""
_KINDS: Final = {1: TokenizerKind.UNIGRAM, 2: TokenizerKind.SENTENCEPIECE_BPE}
_Value = int | bytes


@dataclass(slots=True)
class SentencePieceModel:
    """What the file says.

    Attributes:
        kind: BPE by score, or unigram.
        tokens, scores, token_types: by id; types as `TokenType` numbers them.
        unknown_id, bos_id, eos_id, padding_id: None where the model has none.
        add_space_prefix, remove_extra_whitespaces: of the normaliser.
        precompiled_charsmap: the normaliser's table, or None.
    """

    kind: TokenizerKind = TokenizerKind.UNIGRAM
    tokens: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    token_types: list[int] = field(default_factory=list)
    unknown_id: int | None = 0
    bos_id: int | None = 1
    eos_id: int | None = 2
    padding_id: int | None = None
    add_space_prefix: bool = True
    remove_extra_whitespaces: bool = True
    precompiled_charsmap: bytes | None = None


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Read a `tokenizer.model`.

    Raises:
        SourceError: the file cannot be read.
        CorruptFileError: it is no SentencePiece model.
        UnsupportedModelError: words or characters instead of pieces, or a normaliser that memra's BPE does not have.
    """
    try:
        content = path.read_bytes() if path.stat().st_size <= MAX_BYTES else b""
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        model = _parsed(content)
    except (ValueError, struct.error) as error:
        raise CorruptFileError(f"{path}: is no SentencePiece model ({error}): fetch it again") from None
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{path}: {error.message}") from None
    if model.kind is TokenizerKind.SENTENCEPIECE_BPE and model.precompiled_charsmap:
        raise UnsupportedModelError(f"{path}: replaces characters before its BPE: use a model with tokenizer.json")
    if model.kind is TokenizerKind.UNIGRAM and TokenType.BYTE in model.token_types:
        raise UnsupportedModelError(f"{path}: is a unigram model with bytes: use a model with tokenizer.json")
    return model


def _parsed(content: bytes) -> SentencePieceModel:
    model = SentencePieceModel()
    for number, value in _fields(content):
        match number, value:
            case 1, bytes():
                _add_piece(model, value)
            case 2, bytes():
                _read_trainer(model, value)
            case 3, bytes():
                _read_normaliser(model, value)
    if not model.tokens:
        raise ValueError("it has no pieces")
    for name in ("unknown_id", "bos_id", "eos_id", "padding_id"):
        token_id = getattr(model, name)
        if token_id is not None and not 0 <= token_id < len(model.tokens):
            setattr(model, name, None)  # -1 stands for none
    return model


def _add_piece(model: SentencePieceModel, content: bytes) -> None:
    text, score, kind = "", 0.0, int(TokenType.NORMAL)
    for number, value in _fields(content):
        match number, value:
            case 1, bytes():
                text = value.decode("utf-8")
            case 2, bytes():
                (score,) = struct.unpack("<f", value)
            case 3, int():
                kind = int(TokenType(value))
    if len(model.tokens) >= MAX_PIECES:
        raise ValueError("it has too many pieces")
    model.tokens.append(text)
    model.scores.append(score)
    model.token_types.append(kind)


def _read_trainer(model: SentencePieceModel, content: bytes) -> None:
    for number, value in _fields(content):
        match number, value:
            case 3, int():
                if value not in _KINDS:
                    raise UnsupportedModelError("is neither a BPE nor a unigram model: use another model")
                model.kind = _KINDS[value]
            case 40, int():
                model.unknown_id = _signed(value)
            case 41, int():
                model.bos_id = _signed(value)
            case 42, int():
                model.eos_id = _signed(value)
            case 43, int():
                model.padding_id = _signed(value)


def _read_normaliser(model: SentencePieceModel, content: bytes) -> None:
    for number, value in _fields(content):
        match number, value:
            case 2, bytes():
                model.precompiled_charsmap = value or None
            case 3, int():
                model.add_space_prefix = bool(value)
            case 4, int():
                model.remove_extra_whitespaces = bool(value)


def _signed(value: int) -> int:
    """An int32 out of a varint, which holds negative numbers as 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _fields(content: bytes) -> Iterator[tuple[int, _Value]]:
    """Number and value of each field of a message; fixed widths come as bytes."""
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, at = _varint(content, at)
            yield tag >> 3, value
            continue
        if wire_type == _BYTES:
            length, at = _varint(content, at)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"a field has the wire type {wire_type}")
        if length > len(content) - at:
            raise ValueError("a field leads past the end")
        yield tag >> 3, content[at : at + length]
        at += length


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if at + index >= len(content):
            raise ValueError("it ends early")
        byte = content[at + index]
        value |= (byte & 127) << (7 * index)
        if byte < 128:  # noqa: PLR2004  (the highest bit says that more follows)
            return value, at + index + 1
    raise ValueError("a number has no end")
