from pathlib import Path

from memra.cli_doctor import memory
from memra.cli_doctor.memory import Memory, ReadTest, find_memory, last_level_cache_bytes


def test_memory_is_read_in_bytes(tmp_path: Path):
    path = tmp_path / "meminfo"
    assert find_memory(meminfo=path) == Memory(0, 0)
    path.write_text("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\n", encoding="utf-8")
    assert find_memory(meminfo=path) == Memory(1_024_000, 409_600)


def test_the_largest_cache_is_the_last_level(tmp_path: Path):
    assert last_level_cache_bytes(caches=tmp_path) == 0
    for index, size in enumerate(("32K", "2048K", "480M")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(f"{size}\n", encoding="utf-8")
    assert last_level_cache_bytes(caches=tmp_path) == 480 << 20


def test_a_read_test_takes_at_most_a_quarter_of_what_is_available(monkeypatch):
    monkeypatch.setattr(memory, "find_memory", lambda: Memory(1 << 26, 1 << 24))
    test = ReadTest(2)
    assert test.num_bytes == 1 << 22
    assert sum(part.nbytes for part in test._parts) == test.num_bytes
    assert test.measure() > 0
