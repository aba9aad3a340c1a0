from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from memra.cli_bench.process_memory import ProcessMemory
from memra.cli_bench.start_bench import COLD, REPACKED, SERVER, StartBench, StartMemory
from memra.errors import MeasurementError

READY = ProcessMemory(100, 50, 0, 120)
ANSWERED = ProcessMemory(200, 60, 5, 250)


class FakeServer:
    def __init__(self, log: list[str], *, is_fast: bool) -> None:
        self.log = log
        self.elapsed_s = 0.25 if is_fast else 1.0
        self.has_answered = False

    def wait_until_ready(self) -> float:
        self.log.append("ready")
        return self.elapsed_s

    def complete(self, prompt: str, *, max_tokens: int) -> int:
        assert prompt
        assert max_tokens > 0
        self.has_answered = True
        return 65

    def read_memory(self) -> ProcessMemory | None:
        return ANSWERED if self.has_answered else READY


class FakeStart:
    """Servers with a repack cache start four times as fast."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.error: str | None = None

    @contextmanager
    def __call__(self, environ: Mapping[str, str]) -> Iterator[FakeServer]:
        if self.error is not None:
            raise MeasurementError(self.error)
        is_fast = "MEMRA_REPACK_CACHE" in environ
        self.log.append("cached" if is_fast else "plain")
        assert environ["HOME"] == "/"
        yield FakeServer(self.log, is_fast=is_fast)
        self.log.append("ended")


def test_plain_and_repacked_starts_take_turns():
    start, said = FakeStart(), []
    environ = {"HOME": "/", "MEMRA_REPACK_CACHE": "/cache"}
    bench = StartBench(start, environ=environ, rounds=2, page_tokens=64)
    report = bench.run(said.append)
    assert start.log == ["plain", "ready", "ended", "cached", "ready", "ended"] * 3
    assert len(said) == bench.num_steps
    assert report.seconds.values == {(SERVER, COLD): [1.0, 1.0], (SERVER, REPACKED): [0.25, 0.25]}


def test_without_a_cache_there_are_plain_starts_alone():
    start = FakeStart()
    report = StartBench(start, environ={"HOME": "/"}, rounds=1, page_tokens=64).run(lambda _: None)
    assert report.seconds.cases == [COLD]
    assert "cached" not in start.log


def test_memory_is_read_when_ready_and_when_answered_and_whole_pages_are_taken_off():
    report = StartBench(FakeStart(), environ={"HOME": "/"}, rounds=1, page_tokens=64).run(lambda _: None)
    assert report.memory[COLD] == StartMemory(READY, ANSWERED, 128)
    assert report.memory[COLD].beyond_bytes(file_bytes=100, cache_bytes_per_token=1) == 265 - 100 - 128


def test_a_server_that_does_not_start_is_noted_once():
    start = FakeStart()
    start.error = "memra run ended with 1: no such file"
    report = StartBench(start, environ={"HOME": "/"}, rounds=3, page_tokens=64).run(lambda _: None)
    assert report.notes == ["start: memra run ended with 1: no such file"]
    assert report.seconds.spread(SERVER, COLD) is None
