"""Cached prefixes that a server left to its successor, read once: an entry a call, or the reason why it is none.

Trade: a file that is old, foreign, of another layout or cut off in its header is refused as a whole; a model whose
stamp differs loses its entries; a damaged frame loses itself and what follows on it; a file that ends early keeps what
came before. Refuses to know prefix trees: the engine inserts entries, a few a tick. `prefix_handoff` wrote them.
"""

import hashlib
import io
import os
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from memra.engine.block_files import BlockReader, named_errors, open_descriptor
from memra.engine.handoff_format import (
    DIGEST_BYTES,
    FRAME_LENGTH,
    MAX_OUTLINE_BYTES,
    OUTLINE_LENGTH,
    PREAMBLE,
    EntryOutline,
    HandoffHeader,
    ModelStamp,
    decode_body_length,
    decode_header,
    decode_outline,
)
from memra.engine.prefix_handoff import HandoffEntry, StateSnapshot
from memra.errors import HandoffError

MAX_AGE_S = 3600
"""A hand-off bridges a restart; what is older is of another day's conversations."""


class SkipReason(StrEnum):
    """Why a frame gives no entry."""

    DAMAGED = "damaged"
    MODEL_REFUSED = "model_refused"
    PARENT_MISSING = "parent_missing"
    UNFIT = "unfit"
    """Sound, but not what the model's pages are like."""


@dataclass(frozen=True, slots=True)
class ReadFrame:
    """One frame of the file: an entry, or why there is none.

    Attributes:
        number: of the frame; children name it as their parent.
        entry: None when the frame is skipped.
        skipped: None when it is not.
    """

    number: int
    entry: HandoffEntry | None
    skipped: SkipReason | None = None


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What a file says before its entries are read; the keys are those of the admin answer.

    Attributes:
        path: of the file, which is unlinked by now.
        header_entries: frames that should follow.
        header_bytes: of their pages and states.
        age_secs: since it was finished.
        refused_models: those whose entries will be skipped, by name.
    """

    path: str
    header_entries: int
    header_bytes: int
    age_secs: int
    refused_models: tuple[str, ...]


class HandoffReader:
    """Reads a file that is nobody's any more: it is unlinked before the first byte of it is believed.

    So it is consumed once whatever happens, also when an entry of it ends the process.
    """

    def __init__(
        self, path: Path, raw: BlockReader, *, num_bytes: int, models: Iterable[ModelStamp], now: float
    ) -> None:
        """Read the header; callers use `open`, which also opens the file and closes it when this raises.

        Raises:
            HandoffError: the file is refused.
        """
        self._stream = io.BufferedReader(raw)
        self._num_file_bytes = num_bytes
        header = self._read_header()
        age = int(now) - header.created_unix
        if not 0 <= age <= MAX_AGE_S:
            when = f"is {age} s old, and {MAX_AGE_S} are allowed" if age > 0 else f"is from {-age} s in the future"
            raise HandoffError(f"it {when}")
        ours = {stamp.name: stamp for stamp in models}
        self._stamps = {stamp.name: stamp for stamp in header.models if ours.get(stamp.name) == stamp}
        refused = tuple(sorted(stamp.name for stamp in header.models if stamp.name not in self._stamps))
        self._parents: dict[int, tuple[str, str]] = {}
        self._num_frames = 0
        self._is_truncated = False
        self.report = ImportReport(str(path), header.num_entries, header.num_bytes, age, refused)

    @classmethod
    def open(
        cls,
        path: Path,
        models: Iterable[ModelStamp],
        *,
        io_mode: str = "buffered",
        clock: Callable[[], float] = time.time,
    ) -> "HandoffReader":
        """Take a file and read its header; afterwards there is no file of that name, refused or not.

        Args:
            path: of the file.
            models: those that are loaded.
            io_mode: `buffered` or `direct`.
            clock: seconds since 1970.

        Raises:
            HandoffError: the file is refused, or cannot be opened in this mode or removed; it says why.
        """
        with named_errors(path):
            descriptor = open_descriptor(path, os.O_RDONLY | os.O_NONBLOCK, is_direct=io_mode == "direct")
            num_bytes = os.fstat(descriptor).st_size
            raw = BlockReader(descriptor, num_bytes)
        try:
            with named_errors(path):
                _require_own_file(descriptor)
                path.unlink()
                return cls(path, raw, num_bytes=num_bytes, models=models, now=clock())
        except BaseException:
            raw.close()
            raise

    @property
    def num_frames(self) -> int:
        """Frames read so far, skipped ones included."""
        return self._num_frames

    @property
    def is_truncated(self) -> bool:
        """Whether the file ended before its header's last entry; known after `next_entry` returned None."""
        return self._is_truncated

    def next_entry(self) -> ReadFrame | None:
        """Read one frame; None after the last, when the file is closed, too.

        The work and the memory of a call are at most one frame's.
        """
        if self._stream.closed:
            return None
        if self._num_frames < self.report.header_entries:
            try:
                frame = self._read_frame()
            except (OSError, EOFError):
                frame = None
            if frame is not None:
                self._num_frames += 1
                return frame
            self._is_truncated = True
        self.close()
        return None

    def close(self) -> None:
        """Let go of the file, and with it of what was not read; a second time does nothing."""
        self._stream.close()

    def _read_header(self) -> HandoffHeader:
        num_bytes = decode_body_length(self._stream.read(PREAMBLE.size))
        if num_bytes > self._num_left:
            raise HandoffError("the header is cut off")
        return decode_header(self._stream.read(num_bytes), self._stream.read(DIGEST_BYTES))

    @property
    def _num_left(self) -> int:
        return self._num_file_bytes - self._stream.tell()

    def _read_frame(self) -> ReadFrame | None:
        """One frame; None where the rest of the file is too short for one."""
        (length,) = FRAME_LENGTH.unpack(self._read(FRAME_LENGTH.size))
        if length + DIGEST_BYTES > self._num_left:
            return None
        end = self._stream.tell() + length
        try:
            return ReadFrame(self._num_frames, self._read_payload(length))
        except _SkippedFrame as skipped:
            return ReadFrame(self._num_frames, None, skipped.reason)
        finally:
            self._stream.seek(end + DIGEST_BYTES)

    def _read_payload(self, length: int) -> HandoffEntry:
        outline, head = self._read_outline(length)
        stamp = self._require_wanted(outline)
        if length != len(head) + stamp.page_bytes + len(outline.state_offsets) * stamp.state_bytes:
            raise _SkippedFrame(SkipReason.UNFIT)
        page = self._read(stamp.page_bytes)
        states = tuple(StateSnapshot(offset, self._read(stamp.state_bytes)) for offset in outline.state_offsets)
        digest = hashlib.sha256(head)
        for piece in (page, *(state.data for state in states)):
            digest.update(piece)
        if digest.digest() != self._read(DIGEST_BYTES):
            raise _SkippedFrame(SkipReason.DAMAGED)
        if len(outline.token_ids) == stamp.page_tokens:
            self._parents[self._num_frames] = (outline.model, outline.namespace)
        return HandoffEntry(outline.model, outline.namespace, outline.parent, outline.token_ids, page, states)

    def _read_outline(self, length: int) -> tuple[EntryOutline, bytes]:
        """The outline, and the bytes that it was made from with their length in front."""
        prefix = self._read(OUTLINE_LENGTH.size)
        (num_bytes,) = OUTLINE_LENGTH.unpack(prefix)
        if num_bytes > min(length - OUTLINE_LENGTH.size, MAX_OUTLINE_BYTES):
            raise _SkippedFrame(SkipReason.DAMAGED)
        data = self._read(num_bytes)
        try:
            return decode_outline(data), prefix + data
        except HandoffError as error:
            raise _SkippedFrame(SkipReason.DAMAGED) from error

    def _require_wanted(self, outline: EntryOutline) -> ModelStamp:
        """The stamp of an entry's model, if the entry can be used."""
        stamp = self._stamps.get(outline.model)
        if stamp is None:
            raise _SkippedFrame(SkipReason.MODEL_REFUSED)
        if not stamp.fits(outline.token_ids, outline.state_offsets):
            raise _SkippedFrame(SkipReason.UNFIT)
        if outline.parent is not None and self._parents.get(outline.parent) != (outline.model, outline.namespace):
            raise _SkippedFrame(SkipReason.PARENT_MISSING)
        return stamp

    def _read(self, num_bytes: int) -> bytes:
        """Exactly so many bytes, which the file's length allows; EOFError if it became shorter meanwhile."""
        data = self._stream.read(num_bytes)
        if len(data) < num_bytes:
            raise EOFError
        return data


class _SkippedFrame(Exception):  # noqa: N818  (not an error: the next frame goes on)
    def __init__(self, reason: SkipReason) -> None:
        super().__init__(reason)
        self.reason = reason


def _require_own_file(descriptor: int) -> None:
    """Refuse what other users could have put there."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise HandoffError("it is not a regular file; MEMRA_KV_HOST_HANDOFF must name one")
    if found.st_uid != os.geteuid():
        raise HandoffError("it belongs to another user; remove it, or run both servers as one user")
