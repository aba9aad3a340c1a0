"""What `memra doctor` finds out, as plain values: nothing is printed, and a missing option is a finding, no error.

Imports neither torch nor a plugin: versions come from the packages' metadata. Called by `command`.
"""

import platform
import shutil
import sys
from collections.abc import Iterable
from ctypes import CDLL, byref, c_int
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

from memra import __version__
from memra.cli_doctor.memory import Memory, ReadTest, find_memory
from memra.engine.processors import Processors, find_processors, processor_name
from memra.identity import system_fingerprint
from memra.loading.cache import default_cache_dir
from memra.settings import EngineSettings, Settings


@dataclass(frozen=True, slots=True)
class NativeLibrary:
    """The native CPU engine.

    Attributes:
        path: where it is looked for.
        variants: instruction sets that this processor runs, best first; empty when it cannot be used.
        compiler: name and version of what built it; empty when it cannot be used.
        obstacle: why it cannot be used, with the remedy; None when it can.
    """

    path: str
    variants: tuple[str, ...] = ()
    compiler: str = ""
    obstacle: str | None = None


@dataclass(frozen=True, slots=True)
class Devices:
    """Where models can run.

    Attributes:
        torch: version of the installed package, or None.
        num_cuda: devices that the CUDA driver shows; None without a driver.
        setting: as the server was told.
        choice: what comes of it.
    """

    torch: str | None
    num_cuda: int | None
    setting: str
    choice: str


@dataclass(frozen=True, slots=True)
class Cache:
    """Where fetched models are kept; `free_bytes` of the disk is None where the folder cannot be asked."""

    path: str
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class Plugin:
    """An installed plugin; it was not imported."""

    name: str
    distribution: str
    is_blocked: bool


@dataclass(frozen=True, slots=True)
class Findings:
    """The whole screen.

    Attributes:
        thread_setting: the engine's own setting, or None where it is not set.
        read_bytes_per_s: one pass of numpy over a large buffer with all usable threads.
    """

    version: str
    fingerprint: str
    python: str
    system: str
    processor: str
    processors: Processors
    thread_setting: int | None
    memory: Memory
    read_bytes_per_s: float
    native: NativeLibrary
    devices: Devices
    cache: Cache
    plugins: tuple[Plugin, ...]


def find_all(settings: Settings) -> Findings:
    """Look everywhere; takes a second or two, most of it for the memory."""
    processors = find_processors()
    native, devices = find_native(), find_devices(settings.engine)
    backend = f"cpu-{native.variants[0]}" if native.variants else f"torch-{devices.choice}-{settings.engine.dtype}"
    return Findings(
        version=__version__,
        fingerprint=system_fingerprint((backend,), quant=settings.engine.quant),
        python=f"{platform.python_implementation()} {platform.python_version()} at {sys.executable}",
        system=platform.platform(),
        processor=processor_name(),
        processors=processors,
        thread_setting=settings.engine.num_threads or None,
        memory=find_memory(),
        read_bytes_per_s=ReadTest(processors.num_usable).measure(),
        native=native,
        devices=devices,
        cache=find_cache(settings.models.cache_dir),
        plugins=find_plugins(settings.plugins.blocked),
    )


def find_native() -> NativeLibrary:
    """Try to load the native library."""
    try:
        from memra_kernels import build_native, native  # noqa: PLC0415  (imports numpy)
    except ImportError as error:
        return NativeLibrary(path="", obstacle=f"the package memra_kernels cannot be imported: {error}")
    try:
        return NativeLibrary(
            str(build_native.LIBRARY), tuple(native.usable_variants()), compiler=native.compiler_version()
        )
    except native.NativeUnavailableError as error:
        return NativeLibrary(str(build_native.LIBRARY), obstacle=str(error))


def find_devices(settings: EngineSettings) -> Devices:
    """Ask the CUDA driver and the package's metadata, not torch."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = None
    num_cuda = _count_cuda_devices()
    can_cuda = bool(num_cuda) and torch is not None and "+cpu" not in torch
    choice = settings.device
    if choice == "auto":
        choice = "cuda" if can_cuda else "cpu"
    return Devices(torch=torch, num_cuda=num_cuda, setting=settings.device, choice=choice)


def _count_cuda_devices(library: str = "libcuda.so.1") -> int | None:
    try:
        driver = CDLL(library)
    except OSError:
        return None
    count = c_int(0)
    is_well = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(byref(count)) == 0
    return count.value if is_well else 0


def find_cache(folder: Path | None) -> Cache:
    """The folder that is set, else the user's; it need not exist yet."""
    folder = default_cache_dir() if folder is None else folder
    existing = next((path for path in (folder, *folder.parents) if path.is_dir()), None)
    try:
        return Cache(str(folder), None if existing is None else shutil.disk_usage(existing).free)
    except OSError:
        return Cache(str(folder), None)


def find_plugins(blocked: Iterable[str]) -> tuple[Plugin, ...]:
    """List what is installed, without importing it."""
    blocked = frozenset(blocked)
    points = sorted(entry_points(group="memra"), key=lambda point: point.name)
    return tuple(
        Plugin(
            name=point.name,
            distribution=f"{point.dist.name} {point.dist.version}" if point.dist else "unknown",
            is_blocked=point.name in blocked,
        )
        for point in points
    )
