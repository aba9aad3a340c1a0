import os
import sys
from pathlib import Path

import pytest

from memra.cli_bench.process_memory import ProcessMemory, read_process_memory

_STATUS = "Name:\tpython\nVmRSS:\t 60 kB\nRssAnon:\t 30 kB\nRssFile:\t 20 kB\nRssShmem:\t 10 kB\nThreads:\t2\n"


def test_sizes_are_read_in_bytes(tmp_path: Path):
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "status").write_text(_STATUS)
    (folder / "smaps_rollup").write_text("00400000-7ff ---p 00000000 00:00 0  [rollup]\nRss:  60 kB\nPss:  45 kB\n")
    memory = read_process_memory(7, proc=tmp_path)
    assert memory == ProcessMemory(30 * 1024, 20 * 1024, 10 * 1024, 45 * 1024)
    assert memory.resident_bytes == 60 * 1024


def test_a_process_that_is_gone_has_no_sizes(tmp_path: Path):
    assert read_process_memory(8, proc=tmp_path) is None


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_this_process_has_sizes():
    memory = read_process_memory(os.getpid())
    assert memory is not None
    assert 0 < memory.proportional_bytes <= memory.resident_bytes * 2
