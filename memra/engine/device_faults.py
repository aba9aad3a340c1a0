"""Tells a device that is gone from a request that is at fault.

After some errors of a GPU nothing works on it any more until the process has a new context: whatever is asked of it
next fails too. Such an error must not be blamed on a sequence. Knows the drivers' words; not executors or sequences.
Called where a failure is about to be blamed.
"""

import re

from memra.errors import MemraError


class DeviceLostError(MemraError):
    """The device, or this process's hold on it, is gone: the worker must end, and its sequences are not to blame."""


_STICKY = re.compile(
    r"illegal memory access|illegal instruction|misaligned address|device-side assert|unspecified launch failure"
    r"|launch timed out|hardware stack error|invalid program counter|uncorrectable (ecc|nvlink) error"
    r"|device is lost|gpu is lost|device lost|fallen off the bus|context is destroyed|no cuda-capable device"
    r"|cuda_error_(illegal_address|launch_failed|ecc_uncorrectable|context_is_destroyed|device_unavailable)",
    re.IGNORECASE,
)
"""Errors that the CUDA driver reports again for every later call ("CUDA Driver API", error codes that leave the process
in an inconsistent state), in the words of cudaGetErrorString and of the driver."""


def raise_if_device_is_lost(failure: BaseException) -> None:
    """Raise when a failure says that the device is gone; want of memory does not.

    Raises:
        DeviceLostError: nothing more can be computed in this process's context.
    """
    if isinstance(failure, DeviceLostError):
        raise failure
    if _STICKY.search(str(failure)):
        raise DeviceLostError(f"{type(failure).__name__}: {failure}") from failure
