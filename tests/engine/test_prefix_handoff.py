"""The hand-off file: what goes in comes out once, and what is wrong with a file costs no more than it must."""

import errno
import hashlib
import os
import struct
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from memra.engine import block_files, handoff_format, handoff_reader, prefix_handoff
from memra.engine.block_files import BlockWriter
from memra.engine.handoff_format import (
    MAGIC,
    MAX_OUTLINE_BYTES,
    EntryOutline,
    HandoffHeader,
    ModelStamp,
    encode_header,
    encode_outline,
)
from memra.engine.handoff_reader import HandoffReader, ReadFrame, SkipReason
from memra.engine.prefix_handoff import ExportReport, HandoffEntry, HandoffWriter, StateSnapshot
from memra.errors import HandoffError, IntegrityError

NOW = 1_800_000_000.5
PLAIN = ModelStamp("plain", "sha256:1", "native-cpu", page_tokens=4, page_bytes=300)
HYBRID = ModelStamp("hybrid/é", "sha256:2\udcff", "native-cpu", page_tokens=4, page_bytes=100, state_bytes=50)
MODELS = (PLAIN, HYBRID)


def _entry(
    seed: int, parent: int | None = None, *, model: ModelStamp = PLAIN, num_tokens: int = 4, **fields: Any
) -> HandoffEntry:
    generator = np.random.default_rng(seed)
    offsets = (num_tokens, 1) if model.state_bytes and num_tokens > 1 else ()
    return HandoffEntry(
        **{
            "model": model.name,
            "namespace": "salt",
            "parent": parent,
            "token_ids": tuple(generator.integers(0, 2**32, num_tokens).tolist()),
            "page": generator.bytes(model.page_bytes),
            "states": tuple(StateSnapshot(offset, generator.bytes(model.state_bytes)) for offset in offsets),
            **fields,
        }
    )


ENTRIES = [
    _entry(0),
    _entry(1, 0),
    _entry(2, model=HYBRID, namespace=""),
    _entry(3, 1, num_tokens=2),
    _entry(4, 2, model=HYBRID, namespace="", num_tokens=3),
    _entry(5, namespace="t:a\x1fb"),
]


def _write(path: Path, entries: Iterable[HandoffEntry] = tuple(ENTRIES), models=MODELS, **options: Any) -> ExportReport:
    with HandoffWriter(path, models, clock=lambda: NOW, **options) as writer:
        for entry in entries:
            writer.add(entry)
        return writer.finish(demoted_from_device=2, skipped_over_cap=1)


def _open(path: Path, models=MODELS, now: float = NOW, **options: Any) -> HandoffReader:
    return HandoffReader.open(path, models, clock=lambda: now, **options)


def _read(reader: HandoffReader) -> list[ReadFrame]:
    return list(iter(reader.next_entry, None))


def _entries(frames: list[ReadFrame]) -> list[HandoffEntry | SkipReason]:
    assert [frame.number for frame in frames] == list(range(len(frames)))
    return [frame.entry or SkipReason(frame.skipped or "") for frame in frames]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "handoff"


@pytest.fixture
def direct(tmp_path: Path) -> None:
    try:
        BlockWriter(tmp_path / "trial", is_direct=True).finish(b"trial")
    except (HandoffError, OSError) as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "handoff"
    _write(path)
    return path.read_bytes()


HEADER_BYTES = len(encode_header(HandoffHeader(0, MODELS, 0, 0)))


def test_every_entry_comes_back_as_it_was(path: Path):
    report = _write(path)
    num_bytes = sum(entry.num_bytes for entry in ENTRIES)
    assert asdict(replace(report, ms=0)) == {
        "path": str(path),
        "demoted_from_device": 2,
        "entries": 6,
        "bytes": num_bytes,
        "skipped_over_cap": 1,
        "ms": 0,
    }
    assert report.ms > 0
    reader = _open(path, now=NOW + 7)
    assert asdict(reader.report) == {
        "path": str(path),
        "header_entries": 6,
        "header_bytes": num_bytes,
        "age_secs": 7,
        "refused_models": (),
    }
    assert _entries(_read(reader)) == ENTRIES
    assert (reader.next_entry(), reader.num_frames, reader.is_truncated) == (None, 6, False)


def test_a_file_is_consumed_by_opening_it(path: Path):
    _write(path)
    reader = _open(path)
    assert list(path.parent.iterdir()) == []
    assert _entries(_read(reader)) == ENTRIES
    with pytest.raises(HandoffError, match="No such file"):
        _open(path)


def test_a_reader_may_be_closed_in_the_middle(path: Path):
    _write(path)
    reader = _open(path)
    reader.next_entry()
    reader.close()
    reader.close()
    assert reader.next_entry() is None


@pytest.mark.parametrize("num_bytes", [300, 3 << 20])
@pytest.mark.usefixtures("direct")
def test_both_ways_of_writing_give_the_same_file_and_both_ways_read_it(path: Path, num_bytes):
    stamp = replace(PLAIN, page_bytes=num_bytes)
    entries = [_entry(seed, model=stamp) for seed in range(5)]
    files = []
    for mode in ("buffered", "direct"):
        _write(path, entries, [stamp], io_mode=mode)
        files.append(path.read_bytes())
        assert _entries(_read(_open(path, [stamp], io_mode=mode))) == entries
    assert files[0] == files[1]


@pytest.mark.parametrize("mode", ["write", "read"])
def test_direct_access_never_falls_back(path: Path, monkeypatch, mode):
    real = os.open

    def refuse(name: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(name, flags, mode)

    _write(path)
    monkeypatch.setattr(block_files.os, "open", refuse)
    with pytest.raises(HandoffError, match="set it to buffered"):
        _write(path, io_mode="direct") if mode == "write" else _open(path, io_mode="direct")
    assert list(path.parent.iterdir()) == [path], "a file that was not opened is not consumed"


def _with_header(sound: bytes, header: bytes) -> bytes:
    return header + sound[HEADER_BYTES:]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda s: s[:0], "cut off"),
        (lambda s: s[: HEADER_BYTES - 1], "cut off"),
        (lambda s: b"#" + s[1:], "not a hand-off file"),
        (lambda s: MAGIC + struct.pack("<I", 2) + s[20:], "version 2"),
        (lambda s: MAGIC + struct.pack("<II", 1, 2 << 20) + s[24:], "too long"),
        (lambda s: s[:30] + b"#" + s[31:], "digest"),
        (lambda s: _with_header(s, encode_header(HandoffHeader(int(NOW) - 3601, MODELS, 6, 0))), "3601 s old"),
        (lambda s: _with_header(s, encode_header(HandoffHeader(int(NOW) + 1, MODELS, 6, 0))), "in the future"),
        (lambda s: _with_header(s, encode_header(HandoffHeader(int(NOW), (PLAIN, PLAIN), 6, 0))), "twice"),
        (lambda s: _with_true_digests(s[:20] + struct.pack("<I", HEADER_BYTES - 55) + s[24:]), "1 bytes are left over"),
    ],
)
def test_a_file_that_is_refused_is_refused_whole_and_consumed(path: Path, sound: bytes, change, why):
    path.write_bytes(change(sound))
    with pytest.raises(HandoffError, match=why) as caught:
        _open(path)
    assert caught.value.message.startswith(f"hand-off file {path}: ")
    assert list(path.parent.iterdir()) == []


def test_a_header_of_too_many_models_is_neither_written_nor_read(path: Path, monkeypatch):
    _write(path)
    monkeypatch.setattr(handoff_format, "MAX_MODELS", 1)
    with pytest.raises(HandoffError, match="counts 2 models"):
        _open(path)
    with pytest.raises(HandoffError, match="2 models are too many"):
        _write(path)


def test_a_file_of_an_hour_ago_is_still_read(path: Path):
    _write(path)
    assert _open(path, now=NOW + 3600).report.age_secs == 3600


@pytest.mark.parametrize(
    "other",
    [
        (replace(HYBRID, identity="x"), PLAIN),
        (replace(HYBRID, backend="torch"), PLAIN),
        (replace(HYBRID, page_bytes=101), PLAIN),
        (replace(HYBRID, state_bytes=51), PLAIN),
        (replace(HYBRID, page_tokens=8), PLAIN),
        (PLAIN,),
    ],
)
def test_a_model_that_is_not_the_same_loses_its_entries_alone(path: Path, other):
    _write(path)
    reader = _open(path, other)
    assert reader.report.refused_models == ("hybrid/é",)
    refused = SkipReason.MODEL_REFUSED
    expected = [refused if entry.model == HYBRID.name else entry for entry in ENTRIES]
    assert _entries(_read(reader)) == expected
    assert not reader.is_truncated


def _frame_starts(sound: bytes) -> list[int]:
    starts, place = [], HEADER_BYTES
    while place < len(sound):
        starts.append(place)
        place += 8 + int.from_bytes(sound[place : place + 8], "little") + 32
    return starts


@pytest.mark.parametrize("where", ["outline", "page", "digest"])
def test_a_damaged_frame_loses_itself_and_what_follows_on_it(path: Path, sound: bytes, where):
    start, end = _frame_starts(sound)[0:2]
    place = {"outline": start + 12 + 4 + 5 + 4 + 4 + 8 + 4, "page": start + 200, "digest": end - 1}[where]
    path.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
    reader = _open(path)
    missing = SkipReason.PARENT_MISSING
    assert _entries(_read(reader)) == [SkipReason.DAMAGED, missing, ENTRIES[2], missing, ENTRIES[4], ENTRIES[5]]
    assert not reader.is_truncated


def _raw_outline(outline: EntryOutline, *, namespace: str) -> bytes:
    empty = encode_outline(replace(outline, namespace=""))
    place = 4 + len(outline.model)
    return empty[:place] + struct.pack("<I", len(namespace)) + namespace.encode() + empty[place + 4 :]


def _frame(payload: bytes) -> bytes:
    return struct.pack("<Q", len(payload)) + payload + hashlib.sha256(payload).digest()


def _payload(outline: bytes, data: bytes) -> bytes:
    return struct.pack("<I", len(outline)) + outline + data


PAGE = bytes(PLAIN.page_bytes)
ROOT = EntryOutline("plain", "", None, (1, 2, 3, 4))
PART = replace(ROOT, token_ids=(1, 2, 3))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", SkipReason.DAMAGED),
        (b"\0\0\0", SkipReason.DAMAGED),
        (struct.pack("<I", 1), SkipReason.DAMAGED),
        (struct.pack("<I", MAX_OUTLINE_BYTES), SkipReason.DAMAGED),
        (_payload(encode_outline(ROOT) + b"#", PAGE), SkipReason.DAMAGED),
        (_payload(_raw_outline(ROOT, namespace="n" * MAX_OUTLINE_BYTES), PAGE), SkipReason.DAMAGED),
        (_payload(encode_outline(ROOT), PAGE + b"#"), SkipReason.UNFIT),
        (_payload(encode_outline(ROOT), PAGE[1:]), SkipReason.UNFIT),
        (_payload(encode_outline(replace(ROOT, token_ids=())), PAGE), SkipReason.UNFIT),
        (_payload(encode_outline(replace(ROOT, token_ids=(1,) * 5)), PAGE), SkipReason.UNFIT),
        (_payload(encode_outline(replace(ROOT, state_offsets=(1,))), PAGE), SkipReason.UNFIT),
        (_payload(encode_outline(replace(ROOT, parent=0)), PAGE), SkipReason.PARENT_MISSING),
        (_payload(encode_outline(replace(ROOT, parent=1)), PAGE), SkipReason.PARENT_MISSING),
        (_payload(encode_outline(replace(ROOT, model="x")), PAGE), SkipReason.MODEL_REFUSED),
    ],
)
def test_a_frame_that_no_writer_makes_is_skipped_and_the_next_is_read(path: Path, payload, reason):
    frames = [_payload(encode_outline(PART), PAGE), payload, _payload(encode_outline(ROOT), PAGE)]
    path.write_bytes(encode_header(HandoffHeader(int(NOW), (PLAIN,), 3, 0)) + b"".join(map(_frame, frames)))
    reader = _open(path)
    before, skipped, after = _entries(_read(reader))
    assert skipped is reason
    assert isinstance(before, HandoffEntry)
    assert isinstance(after, HandoffEntry)
    assert (before.token_ids, after.token_ids, reader.is_truncated) == ((1, 2, 3), (1, 2, 3, 4), False)


def test_an_outline_that_no_reader_takes_is_not_written():
    with pytest.raises(HandoffError, match="outline of"):
        encode_outline(replace(ROOT, namespace="n" * MAX_OUTLINE_BYTES))


def test_a_damaged_state_is_found(path: Path, sound: bytes):
    place = _frame_starts(sound)[3] - 33
    path.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
    assert _entries(_read(_open(path)))[2] is SkipReason.DAMAGED


def test_wherever_the_file_ends_what_came_before_stays(path: Path, sound: bytes):
    ends = [*_frame_starts(sound), len(sound)]
    for size in range(HEADER_BYTES, len(sound) + 1, 3):
        path.write_bytes(sound[:size])
        reader = _open(path)
        num_whole = sum(end <= size for end in ends[1:])
        assert _entries(_read(reader)) == ENTRIES[:num_whole]
        assert reader.is_truncated == (num_whole < len(ENTRIES))


def test_a_file_that_becomes_shorter_while_it_is_read_ends_the_import(path: Path):
    stamp = replace(PLAIN, page_bytes=5 << 20)
    _write(path, [_entry(0, model=stamp), _entry(1, model=stamp)], [stamp])
    descriptor = os.open(path, os.O_WRONLY)
    reader = _open(path, [stamp])
    os.ftruncate(descriptor, 1 << 20)
    os.close(descriptor)
    assert _read(reader) == []
    assert reader.is_truncated


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_is_refused_and_left(path: Path, make: Callable[[Path], None]):
    make(path)
    with pytest.raises(HandoffError, match="not a regular file"):
        _open(path)
    assert path.exists()


def test_another_users_file_is_refused(path: Path, monkeypatch):
    _write(path)
    monkeypatch.setattr(handoff_reader.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(HandoffError, match="another user"):
        _open(path)


def test_a_file_that_cannot_be_removed_is_not_read(path: Path, monkeypatch):
    _write(path)

    def refuse(self: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(HandoffError, match="Permission denied"):
        _open(path)


def test_what_is_not_finished_leaves_the_old_file(path: Path):
    path.write_bytes(b"old")
    with HandoffWriter(path, MODELS) as writer:
        writer.add(ENTRIES[0])
    assert (list(path.parent.iterdir()), path.read_bytes()) == ([path], b"old")


def test_the_name_is_on_the_disk_too_before_the_export_is_reported(path: Path, monkeypatch):
    synced = []
    monkeypatch.setattr(prefix_handoff.os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    _write(path)
    assert synced == [path.parent.stat().st_ino]


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_full_disk_is_one_error_and_leaves_nothing(path: Path, monkeypatch, call):
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(block_files.os, call, fail)
    with pytest.raises(HandoffError, match="handoff: No space left on device"):
        _write(path)
    assert list(path.parent.iterdir()) == []


def test_a_folder_that_is_not_there_is_one_error(tmp_path: Path):
    with pytest.raises(HandoffError, match="No such file or directory"):
        HandoffWriter(tmp_path / "absent" / "handoff", MODELS)


@pytest.mark.parametrize(
    "entry",
    [
        _entry(9, model=replace(PLAIN, name="other")),
        _entry(9, page=b"short"),
        _entry(9, token_ids=()),
        _entry(9, num_tokens=5),
        _entry(9, states=(StateSnapshot(1, b""),)),
        _entry(9, model=HYBRID, states=(StateSnapshot(5, bytes(50)),)),
        _entry(9, model=HYBRID, states=(StateSnapshot(1, bytes(50)),) * 2),
        _entry(9, model=HYBRID, states=(StateSnapshot(1, bytes(49)),)),
        _entry(9, 7),
        _entry(9, -1),
        _entry(9, 0, namespace="other"),
        _entry(9, 0, model=HYBRID),
        _entry(9, 1),
    ],
)
def test_an_entry_that_its_model_cannot_have_is_a_bug_of_the_caller(path: Path, entry):
    with HandoffWriter(path, MODELS) as writer:
        writer.add(ENTRIES[0])
        writer.add(_entry(1, 0, num_tokens=3))
        with pytest.raises(IntegrityError):
            writer.add(entry)


def _with_true_digests(data: bytes) -> bytes:
    """What somebody would write who knows the format."""
    if len(data) < 24:
        return data
    end = 24 + int.from_bytes(data[20:24], "little")
    out = bytearray(data)
    out[end : end + 32] = hashlib.sha256(data[24:end]).digest()[: max(0, len(data) - end)]
    place = end + 32
    while place + 8 <= len(out):
        end = place + 8 + int.from_bytes(out[place : place + 8], "little")
        if end + 32 > len(out):
            break
        out[end : end + 32] = hashlib.sha256(out[place + 8 : end]).digest()
        place = end + 32
    return bytes(out)


NUMBERS = [0, 1, 2, 3, 255, 4096, 2**16, 2**20, 2**24, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1]
EDIT = st.tuples(
    st.integers(0, 10_000),
    st.integers(0, 12),
    st.binary(max_size=12)
    | st.sampled_from(NUMBERS).map(lambda n: n.to_bytes(8, "little"))
    | st.sampled_from(NUMBERS).map(lambda n: (n & 0xFFFFFFFF).to_bytes(4, "little")),
    st.booleans(),
)


def _mutate(sound: bytes, edits: list[tuple[int, int, bytes, bool]]) -> bytes:
    data = sound
    for offset, size, replacement, keeps_length in edits:
        place = offset % (len(data) + 1)
        data = data[:place] + replacement + data[place + (len(replacement) if keeps_length else size) :]
    return data


MARGIN_BYTES = 128 << 10
"""What a reader and the test itself take whatever the file says."""


def test_a_large_entry_is_read_without_a_second_copy(path: Path):
    stamp = replace(PLAIN, page_bytes=6 << 20)
    entry = _entry(0, model=stamp)
    _write(path, [entry], [stamp])
    reader = _open(path, [stamp])
    tracemalloc.start()
    frame = reader.next_entry()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert frame is not None
    assert frame.entry == entry
    assert peak <= entry.num_bytes + MARGIN_BYTES


@settings(
    max_examples=2000,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(edits=st.lists(EDIT, min_size=1, max_size=4), is_forged=st.booleans())
@example(edits=[(20, 4, (2**20).to_bytes(4, "little"), True)], is_forged=False)
@example(edits=[(HEADER_BYTES, 8, (2**40).to_bytes(8, "little"), True)], is_forged=False)
@example(edits=[(HEADER_BYTES + 8, 4, (2**31).to_bytes(4, "little"), True)], is_forged=True)
@example(edits=[(HEADER_BYTES - 48, 8, (2**63).to_bytes(8, "little"), True)], is_forged=True)
def test_no_file_raises_anything_else_or_takes_more_memory_than_it_has(tmp_path, sound, edits, is_forged):
    data = _mutate(sound, edits)
    path = tmp_path / "fuzzed"
    path.write_bytes(_with_true_digests(data) if is_forged else data)
    tracemalloc.start()
    try:
        with suppress(HandoffError), closing(_open(path)) as reader:
            for _ in range(len(data) // 40 + 1):
                if reader.next_entry() is None:
                    break
            assert reader.next_entry() is None
        assert tracemalloc.get_traced_memory()[1] <= len(data) + MARGIN_BYTES
    finally:
        tracemalloc.stop()
    assert not path.exists()
