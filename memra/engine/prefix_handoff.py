"""Cached prefixes on their way from a server to its successor: what an entry is, and the writer of the file.

Trade: entries in, a whole file under its name or none. Refuses to know prefix trees, eviction and who asked: the engine
adds entries. `memra.engine.handoff_reader` is the other end. Digests find damage, not malice: whoever can write the
file as the server's own user decides what the server remembers, which is why it is made for its owner alone.
"""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from memra.engine.block_files import BlockWriter, named_errors
from memra.engine.handoff_format import (
    FRAME_LENGTH,
    OUTLINE_LENGTH,
    EntryOutline,
    HandoffHeader,
    ModelStamp,
    encode_header,
    encode_outline,
)
from memra.errors import IntegrityError


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
        with named_errors(path):
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
        with named_errors(self._path):
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
        with named_errors(self._path):
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
            or not stamp.fits(entry.token_ids, offsets)
        ):
            raise IntegrityError(f"an entry of model {entry.model} is not what the model's stamp says")
        if entry.parent is not None and self._parents.get(entry.parent) != (entry.model, entry.namespace):
            raise IntegrityError(f"entry {entry.parent} is not the parent of one of model {entry.model}")


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
