"""The alphabet of byte-level BPE: one printable character for each of the 256 bytes.

Knows the table and nothing of vocabularies. Called by `token_pieces` and by the tests of byte-level tokenizers.

Source of the table: OpenAI's GPT-2 encoder. A byte that is a printable, non-space Latin-1 character stands for itself,
every other byte for the next free code point from U+0100 upwards.
"""

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))


def _build_table() -> dict[str, int]:
    table = {chr(byte): byte for byte in _PRINTABLE}
    others = (byte for byte in range(256) if byte not in _PRINTABLE)
    return table | {chr(0x100 + index): byte for index, byte in enumerate(others)}


BYTE_OF_CHAR = _build_table()
"""The byte that each character of the alphabet stands for; 256 entries, never changed."""


def bytes_of(text: str) -> bytes:
    """The bytes that a token's text stands for.

    Text with a character outside the alphabet was never byte-encoded and stands for its own UTF-8.
    """
    try:
        return bytes([BYTE_OF_CHAR[char] for char in text])
    except KeyError:
        return text.encode()
