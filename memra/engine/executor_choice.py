"""Which executor runs the models here: decided once, from the settings and from what the machine has.

Asking costs nothing: torch is not imported, and no weight is read. Called by the composition root.
"""

import logging
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from memra_kernels.native import NativeUnavailableError, usable_variants

from memra.engine.processors import find_processors
from memra.errors import ConfigurationError
from memra.settings import EngineSettings

log = logging.getLogger(__name__)

_NVIDIA_DEVICE = Path("/dev/nvidiactl")


class ExecutorKind(StrEnum):
    """The executors that memra has."""

    CPU = "cpu"
    TORCH = "torch"


@dataclass(frozen=True, slots=True)
class ExecutorChoice:
    """What runs the models.

    Attributes:
        kind: the executor.
        num_threads: of a step on the native engine.
        kv_element_bytes: size of one key or value in the cache.
    """

    kind: ExecutorKind
    num_threads: int
    kv_element_bytes: int


def choose_executor(settings: EngineSettings) -> ExecutorChoice:
    """Choose, and say in one line when the fast path is not available.

    Raises:
        ConfigurationError: the native engine is demanded, but cannot run, or a GPU is demanded of it.
    """
    kind = _choose_kind(settings)
    num_threads = settings.num_threads or find_processors().num_usable
    element_bytes = 2 if kind is ExecutorKind.CPU or settings.dtype == "bfloat16" else 4
    return ExecutorChoice(kind, num_threads, element_bytes)


def _choose_kind(settings: EngineSettings) -> ExecutorKind:
    wants_gpu = settings.device.startswith("cuda") or (settings.device == "auto" and _NVIDIA_DEVICE.exists())
    if settings.executor == "torch" or (settings.executor == "auto" and wants_gpu):
        return ExecutorKind.TORCH
    if settings.device.startswith("cuda"):
        raise ConfigurationError(f"MEMRA_EXECUTOR=cpu runs on the CPU, not on {settings.device}; set MEMRA_DEVICE=cpu")
    obstacle = find_native_obstacle()
    if obstacle is None:
        return ExecutorKind.CPU
    if settings.executor == "cpu":
        raise ConfigurationError(f"MEMRA_EXECUTOR=cpu: {obstacle}")
    log.warning("%s; running on torch, which is much slower", obstacle)
    return ExecutorKind.TORCH


def find_native_obstacle() -> str | None:
    """Return why the native engine cannot run on this machine, or None when it can."""
    try:
        usable_variants()
    except NativeUnavailableError as error:
        return str(error)
    return None
