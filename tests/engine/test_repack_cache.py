"""The folder of repacked weights: built once, shared, evicted, and never in the way of a start."""

import errno
import fcntl
import logging
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from memra_kernels import native
from numpy.typing import NDArray

from memra.engine.repack_cache import RepackCache
from memra.engine.repack_file import FILE_SUFFIX, FileLayout, Matrix
from memra.errors import CorruptFileError

MATRICES = [Matrix("a", "F32", 16, 64), Matrix("b", "Q8_0", 48, 32)]
UNLIMITED = 1 << 40
FILE_BYTES = 90_000
"""A little more than the size of one file here."""


@pytest.fixture(autouse=True)
def _library() -> None:
    try:
        native.library()
    except native.NativeUnavailableError as error:
        pytest.skip(str(error))


def _cache(folder: Path, identity: str = "model", limit_bytes: int = UNLIMITED) -> RepackCache:
    return RepackCache(folder=folder, limit_bytes=limit_bytes, identity=identity)


def _fill(matrix: Matrix, tiles: NDArray[np.uint8]) -> None:
    tiles[:] = ord(matrix.name)


def _refuse(matrix: Matrix, tiles: NDArray[np.uint8]) -> None:
    pytest.fail(f"{matrix.name} was repacked again")


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _path(folder: Path, identity: str = "model") -> Path:
    return folder / FileLayout.of(identity, MATRICES).file_name


def _age(path: Path, seconds: int) -> None:
    os.utime(path, (1e9 - seconds, 1e9 - seconds))


def test_the_second_load_repacks_nothing_and_maps_the_same_file(tmp_path: Path):
    folder = tmp_path / "made" / "on" / "demand"
    built = _cache(folder).load(MATRICES, _fill)
    found = _cache(folder).load(MATRICES, _refuse)
    assert built is not None
    assert found is not None
    for tiles in (built, found):
        assert {name: set(values.tolist()) for name, values in tiles.items()} == {"a": {97}, "b": {98}}
    assert _files(folder) == [_path(folder).name]


@pytest.mark.parametrize(
    "damage",
    [lambda whole: whole[:-4096], lambda whole: b"x" + whole[1:], lambda whole: whole[:0]],
    ids=["truncated", "foreign", "empty"],
)
def test_a_damaged_file_is_built_again_with_one_line_in_the_log(
    tmp_path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
):
    _cache(tmp_path).load(MATRICES, _fill)
    whole = _path(tmp_path).read_bytes()
    _path(tmp_path).write_bytes(damage(whole))
    assert _cache(tmp_path).load(MATRICES, _fill) is not None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert _path(tmp_path).name in caplog.text
    assert _path(tmp_path).read_bytes() == whole


def test_tiles_of_other_layouts_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _cache(tmp_path).load(MATRICES, _fill)
    monkeypatch.setattr("memra.engine.repack_file.layout_version", lambda: "of another library")
    repacked = []

    def repack(matrix: Matrix, tiles: NDArray[np.uint8]) -> None:
        repacked.append(matrix.name)

    _cache(tmp_path).load(MATRICES, repack)
    assert repacked == ["a", "b"]


def test_the_files_unused_for_the_longest_time_make_room(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    for age, identity in enumerate(("newest", "middle", "oldest")):
        _cache(tmp_path, identity).load(MATRICES, _fill)
        _age(_path(tmp_path, identity), age)
    (tmp_path / "somebody else's").touch()
    _cache(tmp_path, "oldest").load(MATRICES, _refuse)  # used again, so that the one in the middle is the oldest
    size = _path(tmp_path, "newest").stat().st_size
    assert _cache(tmp_path, "new", limit_bytes=3 * size).load(MATRICES, _fill) is not None
    kept = [_path(tmp_path, identity).name for identity in ("newest", "oldest", "new")]
    assert _files(tmp_path) == sorted([*kept, "somebody else's"])
    assert sum("evicted" in record.message for record in caplog.records) == 1


def test_an_evicted_file_lives_on_for_those_who_have_mapped_it(tmp_path: Path):
    held = _cache(tmp_path, "old").load(MATRICES, _fill)
    assert _cache(tmp_path, "new", limit_bytes=FILE_BYTES).load(MATRICES, _fill) is not None
    assert _files(tmp_path) == [_path(tmp_path, "new").name]
    assert held is not None
    assert held["b"].tolist() == [98] * MATRICES[1].num_bytes


def test_a_model_above_the_limit_is_not_kept_and_evicts_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    _cache(tmp_path, "small").load(MATRICES, _fill)
    large = [Matrix("c", "F32", 16, 65536)]
    assert _cache(tmp_path, "large", limit_bytes=4 << 20).load(large, _refuse) is None
    assert _files(tmp_path) == [_path(tmp_path, "small").name]
    assert [record.message for record in caplog.records] == [
        "repacked weights of 5 MiB are not kept: MEMRA_REPACK_CACHE_MB allows 4"
    ]


def test_an_error_of_the_model_leaves_the_folder_as_it_was(tmp_path: Path):
    def poisoned(matrix: Matrix, tiles: NDArray[np.uint8]) -> None:
        if matrix.name == "b":
            raise CorruptFileError("Tensor b holds a NaN.")

    with pytest.raises(CorruptFileError, match="Tensor b"):
        _cache(tmp_path).load(MATRICES, poisoned)
    assert _files(tmp_path) == []


def test_a_folder_that_cannot_be_made_costs_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").touch()
    assert _cache(tmp_path / "file").load(MATRICES, _refuse) is None
    assert _cache(tmp_path / "file" / "below").load(MATRICES, _refuse) is None
    assert len(caplog.records) == 2
    assert all(
        "cannot be used" in record.message and str(tmp_path / "file") in record.message for record in caplog.records
    )


def test_a_full_disk_costs_one_line_and_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert _cache(tmp_path).load(MATRICES, _refuse) is None
    assert "No space left on device" in caplog.text
    assert _files(tmp_path) == []


def test_a_folder_that_can_only_be_read_serves_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _cache(tmp_path).load(MATRICES, _fill)

    def read_only(*arguments: object, **options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "utime", read_only)
    assert _cache(tmp_path).load(MATRICES, _refuse) is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_may_not_be_written_costs_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    tmp_path.chmod(0o500)
    assert _cache(tmp_path).load(MATRICES, _refuse) is None
    assert "Permission denied" in caplog.text


def test_what_dead_processes_left_is_removed_and_what_others_write_is_not(tmp_path: Path):
    abandoned, in_use = tmp_path / "dead.memra-part", tmp_path / "alive.memra-part"
    abandoned.write_bytes(b"half")
    with in_use.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _cache(tmp_path).load(MATRICES, _fill)
        assert _files(tmp_path) == sorted([in_use.name, _path(tmp_path).name])


def test_a_file_taken_for_abandoned_before_it_was_locked_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    flock, taken = fcntl.flock, []

    def unlink_first(descriptor: int, operation: int) -> None:
        if not taken:
            taken.extend(tmp_path.glob("*.memra-part"))
            taken[0].unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", unlink_first)
    assert _cache(tmp_path).load(MATRICES, _fill) is not None
    assert len(taken) == 1
    assert _files(tmp_path) == [_path(tmp_path).name]


def test_of_two_who_build_at_once_the_later_one_shares_the_file_of_the_first(tmp_path: Path):
    first: list[int] = []

    def overtaken(matrix: Matrix, tiles: NDArray[np.uint8]) -> None:
        if not first:
            assert _cache(tmp_path).load(MATRICES, _fill) is not None
            first.append(_path(tmp_path).stat().st_ino)
        _fill(matrix, tiles)

    tiles = _cache(tmp_path).load(MATRICES, overtaken)
    assert tiles is not None
    assert set(tiles["a"].tolist()) == {97}
    assert [path.stat().st_ino for path in tmp_path.glob(f"*{FILE_SUFFIX}")] == first
    assert _files(tmp_path) == [_path(tmp_path).name]
