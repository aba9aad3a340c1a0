"""The GPU watcher: listens to the kernel log and asks the driver now and then, and writes down what they say.

Two tasks beside the actors, started only where a GPU does the work; what they hear is judged in `gpu_faults`. A source
that is missing switches its half off, and no trouble here ever ends the server. Trio thread only.
"""

import contextlib
import errno
import logging
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from memra.actors.gpu_faults import GpuRecord

log = logging.getLogger(__name__)

_PROBE = ("nvidia-smi", "-q", "-d", "ECC,ROW_REMAPPER")
_JOURNAL = ("journalctl", "-k", "-f", "-n", "0", "-o", "cat")
_KERNEL_LOG = Path("/dev/kmsg")
_RECORD_BYTES = 8192
"""Longest record of /dev/kmsg; a smaller read fails (Linux, Documentation/ABI/testing/dev-kmsg)."""
_PAGE_BYTES = 1 << 20
"""Most that is kept of what a probe prints."""
_REAP_S = 1.0
"""How long a killed process is waited for; one inside a hung driver does not end."""


@dataclass(frozen=True, slots=True)
class GpuSources:
    """Where the watcher listens; the tests have their own.

    Attributes:
        kernel_log: read record by record from its end, where that is allowed.
        journal: the command that is read instead where it is not.
        probe: the command that asks the driver.
        period_s: between two probes, seconds.
        probe_timeout_s: a probe that takes longer is killed, seconds.
    """

    kernel_log: Path = _KERNEL_LOG
    journal: Sequence[str] = _JOURNAL
    probe: Sequence[str] = _PROBE
    period_s: float = 60.0
    probe_timeout_s: float = 10.0


async def watch_gpu(record: GpuRecord, sources: GpuSources) -> None:
    """Watch until cancelled, or until neither half has anything left to listen to."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_listen, record, sources)
        nursery.start_soon(_probe_for_ever, record, sources)


async def _listen(record: GpuRecord, sources: GpuSources) -> None:
    """Hand over every new line of the kernel log."""
    try:
        descriptor = os.open(sources.kernel_log, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        log.info("%s cannot be read (%s); reading the journal instead", sources.kernel_log, error.strerror)
        lines = _journal_lines(sources.journal)
    else:
        lines = _kernel_lines(descriptor)
    try:
        async with contextlib.aclosing(lines):
            async for line in lines:
                record.note_line(line)
    except OSError as error:
        log.warning("the kernel log cannot be read (%s)", error)
    log.warning("the GPU watcher no longer hears the kernel log: Xid errors go unnoticed")


async def _kernel_lines(descriptor: int) -> AsyncGenerator[str, None]:
    """Iterate over the records that come from now on; a read gives one."""
    try:
        with contextlib.suppress(OSError):  # what cannot seek has no past
            os.lseek(descriptor, 0, os.SEEK_END)
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            try:
                text = os.read(descriptor, _RECORD_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue  # records were overwritten before they were read; the next read goes on behind them
                raise
            if not text:
                return
            for line in text.decode(errors="replace").splitlines():
                yield line
    finally:
        os.close(descriptor)


async def _journal_lines(command: Sequence[str]) -> AsyncGenerator[str, None]:
    process = await _start(command)
    try:
        rest = b""
        assert process.stdout is not None  # noqa: S101  (it was asked for)
        async for text in process.stdout:
            *whole, rest = (rest + text).split(b"\n")
            for line in whole:
                yield line.decode(errors="replace")
    finally:
        await _kill(process)


async def _probe_for_ever(record: GpuRecord, sources: GpuSources) -> None:
    while True:
        try:
            await _probe(record, sources)
        except OSError as error:
            log.info("the GPU watcher cannot ask the driver: %s: %s", sources.probe[0], error.strerror)
            record.note_missing()
            return
        await trio.sleep(sources.period_s)


async def _probe(record: GpuRecord, sources: GpuSources) -> None:
    """Ask once; raises `OSError` when there is no tool to ask with."""
    begun = trio.current_time()
    process = await _start(sources.probe)
    try:
        with trio.move_on_after(sources.probe_timeout_s) as limit:
            page = await _read_page(process)
            exit_code = await process.wait()
    finally:
        await _kill(process)
    took_s = trio.current_time() - begun
    if limit.cancelled_caught:
        record.note_hang(took_s=took_s)
    elif exit_code == 0:
        record.note_page(page, took_s=took_s)
    else:
        log.info("%s ended with %d", sources.probe[0], exit_code)
        record.note_failed(took_s=took_s)


async def _read_page(process: trio.Process) -> str:
    page = bytearray()
    assert process.stdout is not None  # noqa: S101  (it was asked for)
    async for text in process.stdout:
        page += text[: _PAGE_BYTES - len(page)]
    return page.decode(errors="replace")


async def _start(command: Sequence[str]) -> trio.Process:
    """Start a command in a group of its own, so that it can be killed with all that it started."""
    return await trio.lowlevel.open_process(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


async def _kill(process: trio.Process) -> None:
    """End a process and its group if it still runs, and wait for it a moment; also while being cancelled."""
    with trio.CancelScope(shield=True, deadline=trio.current_time() + _REAP_S):
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if process.stdout is not None:
            await process.stdout.aclose()
        await process.wait()
