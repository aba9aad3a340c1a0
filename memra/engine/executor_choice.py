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
from memra.layers.program import Program
from memra.settings import EngineSettings

log = logging.getLogger(__name__)

_NVIDIA_DEVICE = Path("/dev/nvidiactl")


class ExecutorKind(StrEnum):
    """The executors that memra has."""

    CPU = "cpu"
    TORCH = "torch"


class KvType(StrEnum):
    """How an executor keeps keys and values."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"
    """int8 with one float16 scale per 32 dimensions."""

    def row_bytes(self, dim: int) -> int:
        """Bytes of one head's key, or value, of `dim` elements."""
        if self is KvType.Q8_0:
            return dim + 2 * -(-dim // 32)
        return dim * (4 if self is KvType.F32 else 2)


@dataclass(frozen=True, slots=True)
class ExecutorChoice:
    """What runs the models.

    Attributes:
        kind: the executor.
        num_threads: of a step on the native engine.
        kv_type: how it keeps keys and values.
    """

    kind: ExecutorKind
    num_threads: int
    kv_type: KvType

    def cache_bytes_per_token(self, program: Program) -> int:
        """Bytes that the keys and values of one token take in all layers."""
        return sum(
            layer.num_kv_heads * (self.kv_type.row_bytes(layer.head_dim) + self.kv_type.row_bytes(layer.value_dim))
            for layer in program.kv_layers
        )


def choose_executor(settings: EngineSettings) -> ExecutorChoice:
    """Choose, and say in one line when the fast path is not available.

    Raises:
        ConfigurationError: the native engine is demanded, but cannot run, or a GPU is demanded of it, or keys and
            values are to be kept as the executor cannot.
    """
    kind = _choose_kind(settings)
    num_threads = settings.num_threads or find_processors().num_usable
    return ExecutorChoice(kind, num_threads, _choose_kv_type(kind, settings))


def _choose_kv_type(kind: ExecutorKind, settings: EngineSettings) -> KvType:
    if kind is ExecutorKind.CPU:
        return KvType(settings.kv_type)
    if settings.kv_type != KvType.F16:
        raise ConfigurationError(
            f"MEMRA_KV_TYPE={settings.kv_type}: models run on torch here, which keeps keys and values in MEMRA_DTYPE; "
            "unset it, or set MEMRA_EXECUTOR=cpu where the native engine is built"
        )
    return KvType.BF16 if settings.dtype == "bfloat16" else KvType.F32


def runs_on_gpu(settings: EngineSettings) -> bool:
    """Whether the executor that is chosen will compute on a GPU."""
    return settings.executor != "cpu" and _wants_gpu(settings)


def _wants_gpu(settings: EngineSettings) -> bool:
    return settings.device.startswith("cuda") or (settings.device == "auto" and _NVIDIA_DEVICE.exists())


def _choose_kind(settings: EngineSettings) -> ExecutorKind:
    wants_gpu = _wants_gpu(settings)
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
