"""The format of a cache file: where tiles lie, and what is believed."""

import os
from pathlib import Path

import numpy as np
import pytest
from memra_kernels import native

from memra.engine import repack_file
from memra.engine.repack_file import FILE_SUFFIX, FileLayout, Matrix, TileWriter, open_tiles

MATRICES = [
    Matrix("table", "Q8_0", 64, 32, has_tiles=False),
    Matrix("a", "Q4_K", 40, 512),
    Matrix("b", "F32", 17, 3),
]


@pytest.fixture(autouse=True)
def _library() -> None:
    try:
        native.library()
    except native.NativeUnavailableError as error:
        pytest.skip(str(error))


def _write(path: Path, layout: FileLayout) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    contents = {name: rng.integers(0, 256, size, np.uint8) for name, (_, size) in layout.places.items()}
    with path.open("wb", buffering=0) as file:
        writer = TileWriter(file.fileno())
        writer.write(layout.header)
        for name, content in contents.items():
            writer.pad(layout.places[name][0])
            writer.write(content)
        writer.pad(layout.num_bytes)
        writer.flush()
    return contents


def test_tiles_come_back_as_they_were_written_each_on_a_page_of_its_own(tmp_path: Path):
    layout = FileLayout.of("model", MATRICES)
    contents = _write(tmp_path / "file", layout)
    tiles = open_tiles(tmp_path / "file", layout)
    assert tiles is not None
    assert list(tiles) == ["a", "b"]
    for name, content in contents.items():
        np.testing.assert_array_equal(tiles[name], content)
        assert tiles[name].ctypes.data % 4096 == 0
        assert not tiles[name].flags.writeable


def test_memory_can_be_read_for_some_way_behind_the_last_tile():
    layout = FileLayout.of("model", MATRICES)
    first, size = layout.places["b"]
    assert layout.num_bytes >= first + size + repack_file.TAIL_BYTES


def test_pieces_larger_and_smaller_than_a_huge_page_are_written_in_order(tmp_path: Path):
    pieces = [os.urandom(size) for size in (3, (2 << 20) - 3, (5 << 20) + 1, 7)]
    with (tmp_path / "file").open("wb", buffering=0) as file:
        writer = TileWriter(file.fileno())
        for piece in pieces:
            writer.write(piece)
        writer.flush()
    assert (tmp_path / "file").read_bytes() == b"".join(pieces)


def test_whatever_may_change_the_tiles_changes_the_name(monkeypatch: pytest.MonkeyPatch):
    names = {
        FileLayout.of(identity, matrices).file_name
        for identity in ("model", "other")
        for matrices in (
            MATRICES,
            MATRICES[1:],
            MATRICES[::-1],
            [*MATRICES[:2], Matrix("b", "F32", 3, 17)],
            [*MATRICES[:2], Matrix("b", "F16", 17, 3)],
            [*MATRICES[:2], Matrix("c", "F32", 17, 3)],
        )
    }
    monkeypatch.setattr(repack_file, "layout_version", lambda: "of another library")
    names.add(FileLayout.of("model", MATRICES).file_name)
    assert len(names) == 13
    assert all(name.endswith(FILE_SUFFIX) for name in names)


def test_a_file_that_is_absent_foreign_or_of_another_size_is_not_believed(tmp_path: Path):
    layout, path = FileLayout.of("model", MATRICES), tmp_path / "file"
    assert open_tiles(path, layout) is None
    _write(path, layout)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[len(layout.header) // 2] ^= 1
    for content in (b"", whole[:-1], whole + b"\0", bytes(damaged), bytes(len(whole))):
        path.write_bytes(content)
        assert open_tiles(path, layout) is None
    path.write_bytes(whole)
    assert open_tiles(path, FileLayout.of("another model", MATRICES)) is None
    assert open_tiles(path, layout) is not None
