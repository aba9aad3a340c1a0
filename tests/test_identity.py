"""The fingerprint: well-formed, stable, and different where bits may differ."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import memra.identity
from memra.identity import system_fingerprint


def test_the_fingerprint_is_stable_and_well_formed():
    first = system_fingerprint(("torch-cpu-float32",))
    assert first == system_fingerprint(("torch-cpu-float32",))
    assert re.fullmatch(r"memra-\d+\.\d+\.\d+-[0-9a-f]{12}", first)


def test_another_backend_has_another_fingerprint():
    assert system_fingerprint(("torch-cpu-float32",)) != system_fingerprint(("torch-cpu-bfloat16",))


def test_other_weights_have_another_fingerprint():
    found = {system_fingerprint(("cpu-avx2",), quant=quant) for quant in ("none", "q8_0", "q4_k")}
    assert len(found) == 3
    assert system_fingerprint(("cpu-avx2",), quant="none") == system_fingerprint(("cpu-avx2",))


def test_another_source_has_another_fingerprint(monkeypatch: pytest.MonkeyPatch):
    first = system_fingerprint(())
    sources = [*memra.identity._source_files()]
    monkeypatch.setattr(memra.identity, "_source_files", lambda: [*sources, ("memra/new.py", b"")])
    assert system_fingerprint(()) != first


def test_the_build_is_told_in_one_line():
    assert re.fullmatch(r"memra \d+\.\d+\.\d+ \(sources [0-9a-f]{12}\)", memra.identity.build_line())


def test_a_build_whose_sources_cannot_be_read_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memra.identity, "_source_files", lambda: iter(()))
    assert re.search(r"sources [0-9a-f]{12}; its sources cannot be read", memra.identity.build_line())


def test_an_id_of_half_the_sources_is_none(monkeypatch: pytest.MonkeyPatch):
    def broken(num_read: int) -> Iterator[tuple[str, bytes]]:
        yield from [("memra/a.py", b"a"), ("memra/b.py", b"b")][:num_read]
        raise PermissionError(13, "no")

    ids = set()
    for num_read in (0, 1, 2):
        monkeypatch.setattr(memra.identity, "_source_files", lambda num_read=num_read: broken(num_read))
        ids.add(system_fingerprint(()))
    assert len(ids) == 1


def test_a_moved_file_is_another_build(monkeypatch: pytest.MonkeyPatch):
    ids = set()
    for name in ("memra/a.py", "memra/b.py"):
        monkeypatch.setattr(memra.identity, "_source_files", lambda name=name: iter([(name, b"same")]))
        ids.add(system_fingerprint(()))
    assert len(ids) == 2


def test_unreadable_sources_give_a_warning_and_a_well_formed_id(monkeypatch, caplog):
    def unreadable(_: Path) -> bytes:
        raise PermissionError(13, "no")

    monkeypatch.setattr(Path, "read_bytes", unreadable)
    assert re.fullmatch(r"memra-\d+\.\d+\.\d+-[0-9a-f]{12}", system_fingerprint(()))
    assert "cannot be read" in caplog.text
