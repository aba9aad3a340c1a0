"""Cached prefixes on their way from a server to its successor, through one file that is read once.

Trade: entries in, the same entries out, or a reason. A file that is old, foreign, of another layout or cut off in its
header is refused as a whole; a model whose stamp differs loses its entries; a damaged frame loses itself and what
follows on it; a file that ends early keeps what came before. Refuses to know prefix trees, eviction and who asked: the
engine adds and inserts entries, a few a tick. Digests find damage, not malice: whoever can write the file as the
server's own user decides what the server remembers, which is why it is made for its owner alone.
"""

import hashlib
import io
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from memra.engine.block_files import BlockReader, BlockWriter, open_descriptor
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
    encode_header,
    encode_outline,
)
from memra.errors import HandoffError, IntegrityError

MAX_AGE_S = 3600
"""A hand-off bridges a restart; what is older is of another day's conversations."""


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """A recurrent state.

    Attributes:
        offset: after how many of the entry's tokens it was taken.
        data: what the executor exported.
    """

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class HandoffEntry:
    """One page of one prefix, with the states that were taken in it.

    Attributes:
        model: its name.
        namespace: within which it may be reused.
        parent: number of the entry of the page before, as `HandoffWriter.add` returned it and `ReadFrame` gives it;
            None for the first page of a sequence.
        token_ids: of this page alone: as many as a page holds, or fewer at the end of a sequence.
        page: what the executor exported.
        states: in no particular order.
    """

    model: str
    namespace: str
    parent: int | None
    token_ids: tuple[int, ...]
    page: bytes
    states: tuple[StateSnapshot, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Of the page and the states."""
        return len(self.page) + sum(len(state.data) for state in self.states)


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
class ExportReport:
    """What was written; the keys are those of the admin answer.

    Attributes:
        path: of the file.
        demoted_from_device: entries that were moved out of the device for this.
        entries: in the file.
        bytes: of their pages and states.
        skipped_over_cap: entries that were left out for want of room.
        ms: that it took, milliseconds.
    """

    path: str
    demoted_from_device: int
    entries: int
    bytes: int
    skipped_over_cap: int
    ms: float


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


class HandoffWriter:
    """Writes a file under a temporary name, and gives it its own when everything is on the disk.

    A context manager: what is left without `finish` leaves no file. Runs in the worker's thread, and blocks it.
    """

    def __init__(
        self,
        path: Path,
        models: Sequence[ModelStamp],
        *,
        io_mode: str = "buffered",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin a file.

        Args:
            path: its name in the end; one of that name is replaced.
            models: whose entries may be added.
            io_mode: `buffered` or `direct`.
            clock: seconds since 1970.

        Raises:
            HandoffError: it cannot be made, or not in this mode.
        """
        self._path = path
        self._partial = path.with_name(path.name + ".partial")
        self._clock = clock
        self._started_s = time.perf_counter()
        self._header = HandoffHeader(0, tuple(models), 0, 0)
        self._stamps = {stamp.name: stamp for stamp in models}
        self._parents: dict[int, tuple[str, str]] = {}
        head = encode_header(self._header)
        with _as_handoff_error(path):
            self._file = BlockWriter(self._partial, is_direct=io_mode == "direct")
            self._file.write(head)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, entry: HandoffEntry) -> int:
        """Append an entry, parents before their children; return its number.

        Raises:
            IntegrityError: the entry is not of one of the models, or its parent is none of its own.
            HandoffError: the disk is full, or cannot be written.
        """
        self._check(entry)
        offsets = tuple(state.offset for state in entry.states)
        outline = encode_outline(EntryOutline(entry.model, entry.namespace, entry.parent, entry.token_ids, offsets))
        pieces = [OUTLINE_LENGTH.pack(len(outline)) + outline, entry.page, *(state.data for state in entry.states)]
        digest = hashlib.sha256()
        with _as_handoff_error(self._path):
            self._file.write(FRAME_LENGTH.pack(sum(map(len, pieces))))
            for piece in pieces:
                digest.update(piece)
                self._file.write(piece)
            self._file.write(digest.digest())
        number, num_bytes = self._header.num_entries, self._header.num_bytes + entry.num_bytes
        if len(entry.token_ids) == self._stamps[entry.model].page_tokens:
            self._parents[number] = (entry.model, entry.namespace)
        self._header = replace(self._header, num_entries=number + 1, num_bytes=num_bytes)
        return number

    def finish(self, *, demoted_from_device: int = 0, skipped_over_cap: int = 0) -> ExportReport:
        """Make the file whole and give it its name.

        Args:
            demoted_from_device: for the report.
            skipped_over_cap: for the report.

        Raises:
            HandoffError: the disk is full, or cannot be written.
        """
        self._header = replace(self._header, created_unix=int(self._clock()))
        with _as_handoff_error(self._path):
            self._file.finish(encode_header(self._header))
            self._partial.rename(self._path)
            _sync_directory(self._path.parent)
        return ExportReport(
            path=str(self._path),
            demoted_from_device=demoted_from_device,
            entries=self._header.num_entries,
            bytes=self._header.num_bytes,
            skipped_over_cap=skipped_over_cap,
            ms=(time.perf_counter() - self._started_s) * 1e3,
        )

    def close(self) -> None:
        """Drop what is not finished; a second time does nothing."""
        self._file.close()
        with suppress(OSError):
            self._partial.unlink(missing_ok=True)

    def _check(self, entry: HandoffEntry) -> None:
        stamp = self._stamps.get(entry.model)
        offsets = tuple(state.offset for state in entry.states)
        if (
            stamp is None
            or len(entry.page) != stamp.page_bytes
            or any(len(state.data) != stamp.state_bytes for state in entry.states)
            or not _fits(entry.token_ids, offsets, stamp)
        ):
            raise IntegrityError(f"an entry of model {entry.model} is not what the model's stamp says")
        if entry.parent is not None and self._parents.get(entry.parent) != (entry.model, entry.namespace):
            raise IntegrityError(f"entry {entry.parent} is not the parent of one of model {entry.model}")


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
        with _as_handoff_error(path):
            descriptor = open_descriptor(path, os.O_RDONLY | os.O_NONBLOCK, is_direct=io_mode == "direct")
            num_bytes = os.fstat(descriptor).st_size
            raw = BlockReader(descriptor, num_bytes)
        try:
            with _as_handoff_error(path):
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
        if not _fits(outline.token_ids, outline.state_offsets, stamp):
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


def _fits(token_ids: Sequence[int], state_offsets: Sequence[int], stamp: ModelStamp) -> bool:
    """Whether an entry's tokens go into one page, and its states belong to them."""
    num_tokens = len(token_ids)
    if not 1 <= num_tokens <= stamp.page_tokens or (state_offsets and not stamp.state_bytes):
        return False
    return len(set(state_offsets)) == len(state_offsets) and all(offset <= num_tokens for offset in state_offsets)


def _require_own_file(descriptor: int) -> None:
    """Refuse what other users could have put there."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise HandoffError("it is not a regular file; MEMRA_KV_HOST_HANDOFF must name one")
    if found.st_uid != os.geteuid():
        raise HandoffError("it belongs to another user; remove it, or run both servers as one user")


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _as_handoff_error(path: Path) -> Iterator[None]:
    """Say which file it is about, and turn the system's errors into our own."""
    try:
        yield
    except OSError as error:
        raise HandoffError(f"hand-off file {path}: {error.strerror or error}") from error
    except HandoffError as error:
        raise HandoffError(f"hand-off file {path}: {error.message}") from error
