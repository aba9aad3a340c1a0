"""The driver's words as NVIDIA's drivers write them, shortened."""

import pytest

from memra.actors.gpu_faults import FATAL_XIDS, NUM_STARTUP_HANGS, GpuRecord, find_fault, read_xid
from memra.messages.lifecycle import GpuProbeState

OFF_THE_BUS = (
    "3,1201,5310862171,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)
ILLEGAL_ADDRESS = "NVRM: Xid (PCI:0000:3b:00): 31, pid=2051, name=python, Ch 00000008, intr 00000000. MMU Fault"
OLD_DRIVER = "[ 1234.5] NVRM: Xid (0000:01:00): 13, Graphics Exception: ESR 0x404490=0x80000002"

PAGE = """
==============NVSMI LOG==============

Timestamp                                 : Mon Nov 30 00:36:03 2026
Driver Version                            : 550.54.15
CUDA Version                              : 12.4

Attached GPUs                             : 2
GPU 00000000:3B:00.0
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    ECC Errors
        Volatile
            SRAM Correctable              : 4
            SRAM Uncorrectable Parity     : 0
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 2
            DRAM Uncorrectable            : 0
        Aggregate
            SRAM Correctable              : 4
            SRAM Uncorrectable Parity     : 3
            DRAM Uncorrectable            : 7
            SRAM Threshold Exceeded       : No
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 1
        Pending                           : No
        Remapping Failure Occurred        : No
        Bank Remap Availability Histogram
            Max                           : 2560 bank(s)

GPU 00000000:5E:00.0
    ECC Errors
        Volatile
            DRAM Uncorrectable            : N/A
    Remapped Rows                         : N/A
"""
TURING = """
GPU 00000000:01:00.0
    Ecc Errors
        Volatile
            Single Bit
                Device Memory             : 5
                Total                     : 5
            Double Bit
                Device Memory             : 0
                Total                     : 0
"""


@pytest.mark.parametrize(
    ("line", "xid"),
    [
        (OFF_THE_BUS, (79, "0000:3b:00")),
        (ILLEGAL_ADDRESS, (31, "0000:3b:00")),
        (OLD_DRIVER, (13, "0000:01:00")),
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15", None),
        ("usb 1-1: new device; Xid 79", None),
        ("", None),
    ],
)
def test_an_xid_is_read_from_a_line(line: str, xid: tuple[int, str] | None):
    assert read_xid(line) == xid


def test_a_page_without_faults_shows_none():
    assert find_fault(PAGE) is None
    assert find_fault(TURING) is None
    assert find_fault("") is None
    assert find_fault("No devices were found\n") is None


@pytest.mark.parametrize(
    ("page", "before", "after", "fault"),
    [
        (
            PAGE,
            "DRAM Uncorrectable            : 0",
            "DRAM Uncorrectable            : 1",
            "3B:00.0: DRAM Uncorrectable is 1",
        ),
        (PAGE, "SEC-DED    : 0", "SEC-DED    : 2", "SRAM Uncorrectable SEC-DED is 2"),
        (PAGE, "Occurred        : No", "Occurred        : Yes", "3B:00.0: Remapping Failure Occurred is Yes"),
        (
            PAGE,
            "DRAM Uncorrectable            : N/A",
            "DRAM Uncorrectable            : 9",
            "5E:00.0: DRAM Uncorrectable is 9",
        ),
        (TURING, "Memory             : 0", "Memory             : 1", "01:00.0: Device Memory is 1"),
    ],
)
def test_a_fault_is_named_with_its_gpu(page: str, before: str, after: str, fault: str):
    assert page.count(before) == 1
    assert fault in (find_fault(page.replace(before, after)) or "")


@pytest.mark.parametrize("code", sorted(FATAL_XIDS))
def test_a_fatal_xid_latches(code: int):
    record = GpuRecord()
    record.note_line(f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=7, name=python")
    assert record.read().fault == f"GPU 0000:3b:00 reported Xid {code}"
    assert record.read().xid_warnings == 0


def test_fatal_xids_are_those_that_end_a_gpu():
    assert {48, 64, 79, 94, 95, 119, 120} == FATAL_XIDS


def test_other_xids_are_counted_and_the_first_fault_stays():
    record = GpuRecord()
    for line in (ILLEGAL_ADDRESS, OLD_DRIVER, "something else"):
        record.note_line(line)
    assert (record.read().fault, record.read().xid_warnings) == (None, 2)
    record.note_line(OFF_THE_BUS)
    record.note_page(PAGE.replace("Occurred        : No", "Occurred        : Yes"), took_s=0.1)
    record.note_page(PAGE, took_s=0.1)
    assert record.read().fault == "GPU 0000:3b:00 reported Xid 79"
    assert record.read().probe_state is GpuProbeState.OK


def test_a_hang_is_a_fault_once_the_driver_has_answered():
    record = GpuRecord(clock=lambda: 5.0)
    record.note_page(PAGE, took_s=0.25)
    assert (record.read().probe_took_ms, record.read().probe_age_ms) == (250, 0)
    record.note_hang(took_s=10.0)
    assert record.read().probe_state is GpuProbeState.HUNG
    assert record.read().fault == "the GPU's driver did not answer within 10 s"


def test_six_hangs_are_tolerated_before_the_first_answer():
    record = GpuRecord()
    for _ in range(NUM_STARTUP_HANGS):
        record.note_hang(took_s=10.0)
    assert (record.read().fault, record.read().num_probe_hangs) == (None, 6)
    record.note_hang(took_s=10.0)
    assert record.read().fault is not None


def test_a_tool_that_fails_or_is_missing_is_no_fault():
    record = GpuRecord()
    assert record.read().probe_state is GpuProbeState.OFF
    record.note_failed(took_s=0.1)
    assert (record.read().fault, record.read().probe_state) == (None, GpuProbeState.FAILED)
    record.note_missing()
    assert (record.read().fault, record.read().probe_state) == (None, GpuProbeState.MISSING)
