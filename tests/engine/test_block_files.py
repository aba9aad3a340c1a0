"""Bytes come out of block files as they went in, past the page cache or through it."""

import os
from pathlib import Path

import numpy as np
import pytest

from memra.engine import block_files
from memra.engine.block_files import ALIGNMENT, BUFFER_BYTES, BlockReader, BlockWriter, open_descriptor
from memra.errors import HandoffError


@pytest.fixture(params=[False, True])
def is_direct(request: pytest.FixtureRequest, tmp_path: Path) -> bool:
    if request.param:
        try:
            BlockWriter(tmp_path / "trial", is_direct=True).finish(b"trial")
        except (HandoffError, OSError) as error:
            pytest.skip(str(error))
    return request.param


@pytest.mark.parametrize(
    "sizes",
    [[10], [ALIGNMENT], [3, ALIGNMENT * 2 - 3], [BUFFER_BYTES], [5, BUFFER_BYTES * 2, 7], [BUFFER_BYTES - 1, 2]],
)
def test_what_is_written_is_read_again(tmp_path: Path, is_direct, sizes):
    pieces = [np.random.default_rng(size).bytes(size) for size in sizes]
    writer = BlockWriter(tmp_path / "file", is_direct=is_direct)
    for piece in pieces:
        writer.write(piece)
    writer.finish(b"head")
    expected = b"head" + b"".join(pieces)[4:]
    assert (tmp_path / "file").read_bytes() == expected
    reader = BlockReader(open_descriptor(tmp_path / "file", os.O_RDONLY, is_direct=is_direct), len(expected))
    with reader:
        found = b"".join(iter(lambda: reader.read(999_983), b""))
        assert found == expected
        reader.seek(len(expected) - 2)
        assert reader.read(10) == expected[-2:]
        reader.seek(-1, os.SEEK_CUR)
        assert (reader.tell(), reader.read(10), reader.read(10)) == (len(expected) - 1, expected[-1:], b"")


def test_a_file_is_its_owners_alone_and_replaces_one_of_the_same_name(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"kept")
    (tmp_path / "file").symlink_to(victim)
    BlockWriter(tmp_path / "file", is_direct=False).finish(b"new")
    assert (victim.read_bytes(), (tmp_path / "file").stat().st_mode & 0o777) == (b"kept", 0o600)


def test_a_file_system_without_direct_access_is_an_error_that_names_the_setting(tmp_path: Path, monkeypatch):
    def refuse(path: Path, flags: int, mode: int) -> int:
        assert flags & os.O_DIRECT
        raise OSError(block_files.errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(block_files.os, "open", refuse)
    with pytest.raises(HandoffError, match=r"MEMRA_KV_HOST_HANDOFF_IO=direct: .* no O_DIRECT"):
        BlockWriter(tmp_path / "file", is_direct=True)
    assert list(tmp_path.iterdir()) == []
