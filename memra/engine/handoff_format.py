"""The hand-off file, byte by byte: a header that says which models its entries are of, then one frame for each entry.

Trade: values to bytes and back. What is read may be anybody's: every length is held against the bytes that are there
before it is used. Refuses to know files and prefix trees; `memra.engine.prefix_handoff` calls it. All numbers are
little-endian, a string is a u32 length and UTF-8, a digest is SHA-256.

    header   magic (16 bytes) | u32 version | u32 body length | body | digest of the body
    body     u64 created, Unix seconds | u32 models | for each model: name, identity, backend (strings), u32 tokens
             and u64 bytes of a page, u64 bytes of a state | u64 entries | u64 bytes of pages and states
    frame    u64 payload length | payload | digest of the payload
    payload  u32 outline length | outline | one page | states, as the outline counts them
    outline  model, namespace (strings) | u64 number of the parent's frame, or 2**64 - 1 | u32 tokens | a u32 for each |
             u32 states | a u32 offset for each
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from memra.errors import HandoffError

MAGIC = b"memra-kv-handoff"
LAYOUT_VERSION = 1
MAX_HEADER_BYTES = 1 << 20
MAX_OUTLINE_BYTES = 1 << 16
"""A page's tokens and a namespace; salts have at most 64 bytes."""
MAX_MODELS = 4096
DIGEST_BYTES = hashlib.sha256().digest_size

PREAMBLE = struct.Struct("<16sII")
"""Magic, version, length of the header's body."""
FRAME_LENGTH = struct.Struct("<Q")
OUTLINE_LENGTH = struct.Struct("<I")

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_NO_PARENT = 2**64 - 1
_ERRORS = "surrogatepass"  # an identity may hold a path, and a path any byte


@dataclass(frozen=True, slots=True)
class ModelStamp:
    """What must be equal for one model's cache to be another's.

    Attributes:
        name: under which it is served.
        identity: tells its weights from all others.
        backend: of its executor; bits differ between them.
        page_tokens: tokens of a whole page.
        page_bytes: size of an exported page.
        state_bytes: size of an exported recurrent state; 0 for a model without.
    """

    name: str
    identity: str
    backend: str
    page_tokens: int
    page_bytes: int
    state_bytes: int = 0

    def fits(self, token_ids: Sequence[int], state_offsets: Sequence[int]) -> bool:
        """Whether an entry's tokens go into one page, and its states belong to them."""
        num_tokens = len(token_ids)
        if not 1 <= num_tokens <= self.page_tokens or (state_offsets and not self.state_bytes):
            return False
        return len(set(state_offsets)) == len(state_offsets) and all(offset <= num_tokens for offset in state_offsets)


@dataclass(frozen=True, slots=True)
class HandoffHeader:
    """What the file says about itself.

    Attributes:
        created_unix: when it was finished, seconds.
        models: of its entries.
        num_entries: frames that follow.
        num_bytes: of their pages and states.
    """

    created_unix: int
    models: tuple[ModelStamp, ...]
    num_entries: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class EntryOutline:
    """An entry without its bytes.

    Attributes:
        model: its name.
        namespace: within which it may be reused.
        parent: number of the frame that holds the page before this one; None for the first page of a sequence.
        token_ids: of this page alone.
        state_offsets: for each state, after how many of these tokens it was taken.
    """

    model: str
    namespace: str
    parent: int | None
    token_ids: tuple[int, ...]
    state_offsets: tuple[int, ...] = ()


def encode_header(header: HandoffHeader) -> bytes:
    """Return the bytes before the first frame; their number depends on the models alone.

    Raises:
        HandoffError: there are more models than a header holds.
    """
    stamps = b"".join(
        _string(stamp.name)
        + _string(stamp.identity)
        + _string(stamp.backend)
        + struct.pack("<IQQ", stamp.page_tokens, stamp.page_bytes, stamp.state_bytes)
        for stamp in header.models
    )
    body = _U64.pack(header.created_unix) + _U32.pack(len(header.models)) + stamps
    body += struct.pack("<QQ", header.num_entries, header.num_bytes)
    if len(body) > MAX_HEADER_BYTES or len(header.models) > MAX_MODELS:
        raise HandoffError(f"{len(header.models)} models are too many for one hand-off file; serve fewer")
    return PREAMBLE.pack(MAGIC, LAYOUT_VERSION, len(body)) + body + hashlib.sha256(body).digest()


def decode_body_length(preamble: bytes) -> int:
    """Return the length of the header's body.

    Raises:
        HandoffError: it is no hand-off file, one of another version, or cut off.
    """
    if len(preamble) < PREAMBLE.size:
        raise HandoffError("the header is cut off")
    magic, version, num_bytes = PREAMBLE.unpack(preamble)
    if magic != MAGIC:
        raise HandoffError("it is not a hand-off file of memra")
    if version != LAYOUT_VERSION:
        raise HandoffError(f"its layout has version {version}, and this server reads version {LAYOUT_VERSION}")
    if num_bytes > MAX_HEADER_BYTES:
        raise HandoffError(f"a header of {num_bytes} bytes is too long")
    return int(num_bytes)


def decode_header(body: bytes, digest: bytes) -> HandoffHeader:
    """Read the header's body.

    Raises:
        HandoffError: it is corrupt.
    """
    if hashlib.sha256(body).digest() != digest:
        raise HandoffError("the header's digest is wrong, or it is cut off")
    cursor = _Cursor(body)
    created, num_models = cursor.u64(), cursor.u32()
    if num_models > MAX_MODELS:
        raise HandoffError(f"the header counts {num_models} models")
    models = tuple(_decode_stamp(cursor) for _ in range(num_models))
    header = HandoffHeader(created, models, cursor.u64(), cursor.u64())
    cursor.finish()
    if len({stamp.name for stamp in models}) != num_models:
        raise HandoffError("the header names a model twice")
    return header


def encode_outline(outline: EntryOutline) -> bytes:
    """Return an outline's bytes.

    Raises:
        HandoffError: they are more than a reader takes.
    """
    parent = _NO_PARENT if outline.parent is None else outline.parent
    data = _string(outline.model) + _string(outline.namespace) + _U64.pack(parent)
    data += _numbers(outline.token_ids) + _numbers(outline.state_offsets)
    if len(data) > MAX_OUTLINE_BYTES:
        raise HandoffError(f"an entry of model {outline.model} has an outline of {len(data)} bytes")
    return data


def decode_outline(data: bytes) -> EntryOutline:
    """Read an outline.

    Raises:
        HandoffError: it is corrupt.
    """
    cursor = _Cursor(data)
    model, namespace, parent = cursor.string(), cursor.string(), cursor.u64()
    outline = EntryOutline(
        model, namespace, None if parent == _NO_PARENT else parent, cursor.numbers(), cursor.numbers()
    )
    cursor.finish()
    return outline


def _decode_stamp(cursor: "_Cursor") -> ModelStamp:
    return ModelStamp(
        name=cursor.string(),
        identity=cursor.string(),
        backend=cursor.string(),
        page_tokens=cursor.u32(),
        page_bytes=cursor.u64(),
        state_bytes=cursor.u64(),
    )


def _string(text: str) -> bytes:
    data = text.encode(errors=_ERRORS)
    return _U32.pack(len(data)) + data


def _numbers(values: Sequence[int]) -> bytes:
    return struct.pack(f"<I{len(values)}I", len(values), *values)


class _Cursor:
    """Takes values off the front of some bytes, and never more than there are."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def take(self, num_bytes: int) -> bytes:
        end = self._place + num_bytes
        if end > len(self._data):
            raise HandoffError("a value is longer than what is left")
        piece = self._data[self._place : end]
        self._place = end
        return piece

    def u32(self) -> int:
        return int.from_bytes(self.take(_U32.size), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(_U64.size), "little")

    def string(self) -> str:
        try:
            return self.take(self.u32()).decode(errors=_ERRORS)
        except UnicodeDecodeError as error:
            raise HandoffError("a string is not UTF-8") from error

    def numbers(self) -> tuple[int, ...]:
        num = self.u32()
        return struct.unpack(f"<{num}I", self.take(num * _U32.size))

    def finish(self) -> None:
        if self._place != len(self._data):
            raise HandoffError(f"{len(self._data) - self._place} bytes are left over")
