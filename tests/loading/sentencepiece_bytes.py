"""SentencePiece models made by hand, field by field of its protocol buffer."""

import struct
from collections.abc import Sequence


def varint(value: int) -> bytes:
    value %= 1 << 64
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def chunk(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def piece(text: str, score: float, kind: int = 1) -> bytes:
    body = chunk(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score)
    return chunk(1, body + (number(3, kind) if kind != 1 else b""))


PIECES = (
    ("<unk>", 0.0, 2),
    ("<s>", 0.0, 3),
    ("</s>", 0.0, 3),
    ("<0x0A>", 0.0, 6),
    ("\u2581", -3.0, 1),
    ("a", -4.0, 1),
    ("b", -5.0, 1),
    ("ab", -1.0, 1),
    ("\u2581ab", -2.0, 1),
)


def model(
    pieces: Sequence[tuple[str, float, int]] = PIECES, *, trainer: bytes | None = None, normaliser: bytes = b""
) -> bytes:
    trainer = number(3, 2) + number(43, -1) if trainer is None else trainer
    return b"".join(piece(*entry) for entry in pieces) + chunk(2, trainer) + chunk(3, normaliser)
