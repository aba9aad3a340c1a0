"""The watcher with real processes and a pipe in place of the kernel log."""

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from memra.actors.gpu_faults import GpuRecord
from memra.actors.gpu_watch import GpuSources, watch_gpu
from memra.messages.lifecycle import GpuProbeState, GpuReported
from tests.actors.test_gpu_faults import ILLEGAL_ADDRESS, OFF_THE_BUS

ABSENT = Path("/nowhere/kmsg")
NO_TOOL = ("/nowhere/tool",)
Until = Callable[[Callable[[GpuReported], bool]], Awaitable[GpuReported]]


class Witness(GpuRecord):
    """A record that says when it was written to."""

    def __init__(self) -> None:
        super().__init__()
        self._written = trio.Event()

    def note_line(self, line: str) -> None:
        super().note_line(line)
        self._written.set()

    def note_missing(self) -> None:
        super().note_missing()
        self._written.set()

    def _note_probe(self, state: GpuProbeState, took_s: float) -> None:
        super()._note_probe(state, took_s)
        self._written.set()

    async def until(self, condition: Callable[[GpuReported], Any]) -> GpuReported:
        with trio.fail_after(10):
            while not condition(self.read()):
                await self._written.wait()
                self._written = trio.Event()
        return self.read()


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program)


async def watched(nursery: trio.Nursery, **changes: Any) -> Witness:
    record = Witness()
    plain = {"kernel_log": ABSENT, "journal": NO_TOOL, "probe": NO_TOOL, "period_s": 0.01, "probe_timeout_s": 10.0}
    nursery.start_soon(watch_gpu, record, GpuSources(**{**plain, **changes}))
    return record


async def test_the_kernel_log_is_heard(tmp_path: Path, nursery: trio.Nursery):
    pipe = tmp_path / "kmsg"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    try:
        record = await watched(nursery, kernel_log=pipe)
        os.write(writer, f"6,1,1,-;{ILLEGAL_ADDRESS}\n".encode())
        await record.until(lambda gpu: gpu.xid_warnings == 1)
        os.write(writer, OFF_THE_BUS.encode() + b"\n")
        gpu = await record.until(lambda gpu: gpu.fault)
        assert gpu.fault == "GPU 0000:3b:00 reported Xid 79"
    finally:
        os.close(writer)
        nursery.cancel_scope.cancel()


async def test_the_journal_is_heard_where_the_kernel_log_cannot_be_read(nursery: trio.Nursery):
    program = f"import sys, time\nprint({ILLEGAL_ADDRESS!r}, {OFF_THE_BUS!r}, sep='\\n', flush=True)\ntime.sleep(1000)"
    record = await watched(nursery, journal=python(program))
    gpu = await record.until(lambda gpu: gpu.fault)
    assert gpu.xid_warnings == 1
    nursery.cancel_scope.cancel()  # ends the process too, or this test would not end


async def test_without_any_source_the_watcher_ends_and_finds_no_fault(caplog: pytest.LogCaptureFixture):
    record = GpuRecord()
    with trio.fail_after(10):
        await watch_gpu(record, GpuSources(kernel_log=ABSENT, journal=NO_TOOL, probe=NO_TOOL))
    assert record.read() == GpuReported(probe_state=GpuProbeState.MISSING)
    assert "no longer hears the kernel log" in caplog.text


async def test_a_probe_that_answers_is_asked_again(nursery: trio.Nursery):
    record = await watched(nursery, probe=python("print('GPU 1')"))
    gpu = await record.until(lambda gpu: gpu.probe_state is GpuProbeState.OK)
    first_ms = gpu.probe_took_ms
    assert first_ms is not None
    await record.until(lambda gpu: gpu.probe_took_ms != first_ms)
    assert record.read().fault is None
    nursery.cancel_scope.cancel()


async def test_a_probe_that_shows_a_fault_latches_it(nursery: trio.Nursery):
    record = await watched(nursery, probe=python("print('GPU 1\\n  Volatile\\n    DRAM Uncorrectable : 2')"))
    gpu = await record.until(lambda gpu: gpu.fault)
    assert gpu.fault == "GPU 1: DRAM Uncorrectable is 2"
    nursery.cancel_scope.cancel()


async def test_a_probe_that_ends_with_an_error_is_no_fault(nursery: trio.Nursery):
    record = await watched(nursery, probe=python("print('Remapping Failure Occurred : Yes'); raise SystemExit(9)"))
    gpu = await record.until(lambda gpu: gpu.probe_state is GpuProbeState.FAILED)
    assert gpu.fault is None
    nursery.cancel_scope.cancel()


async def test_a_probe_that_hangs_is_killed_with_its_children_and_six_are_tolerated(
    tmp_path: Path, nursery: trio.Nursery
):
    script = tmp_path / "hanging"
    pids = tmp_path / "pids"
    script.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! >> {pids}\nwait\n")
    script.chmod(0o755)
    record = await watched(nursery, probe=(str(script),), probe_timeout_s=0.2)
    gpu = await record.until(lambda gpu: gpu.num_probe_hangs == 6)
    assert gpu.fault is None
    gpu = await record.until(lambda gpu: gpu.num_probe_hangs == 7)
    assert gpu.fault == "the GPU's driver did not answer within 0 s"
    killed = pids.read_text().split()[:7]  # another probe may have begun
    with trio.fail_after(5):
        while any(map(_runs, killed)):  # a killed process takes a moment to go
            await trio.lowlevel.checkpoint()


def _runs(pid: str) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
