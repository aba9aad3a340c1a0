"""What the device that models run on has left: asked of its driver, or of the system where that device is the CPU.

Refuses to know what memory is used for. May wait for a driver, so it is for a thread; called for whoever administers
the server.
"""

from dataclasses import dataclass

from memra.engine.executor_choice import runs_on_gpu
from memra.engine.host_tier import available_memory
from memra.errors import ConfigurationError
from memra.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class MemoryOffered:
    """What may still be taken.

    Attributes:
        device: `cpu`, or as torch names a GPU.
        free_bytes: None where nobody can say.
        errors: what went wrong while the device was asked.
    """

    device: str
    free_bytes: int | None
    errors: tuple[str, ...] = ()


def look_at_memory(settings: EngineSettings) -> MemoryOffered:
    """Ask the device that these settings choose; what goes wrong is told, not raised."""
    if not runs_on_gpu(settings):
        return _host_memory()
    device = "cuda:0" if settings.device in {"auto", "cuda"} else settings.device
    try:
        import torch  # noqa: PLC0415  (servers on the CPU never import it)

        return MemoryOffered(device, torch.cuda.mem_get_info(device)[0])
    except Exception as error:  # noqa: BLE001  (a driver's, of any kind; it is part of the report)
        return MemoryOffered(device, None, (" ".join(str(error).split()),))


def _host_memory() -> MemoryOffered:
    try:
        return MemoryOffered("cpu", available_memory())
    except ConfigurationError as error:
        return MemoryOffered("cpu", None, (error.message,))
