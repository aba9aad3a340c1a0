"""The doctor's findings as one screen of text; knows words and widths only."""

from memra.cli_doctor.findings import Devices, Findings, NativeLibrary, Plugin
from memra.engine.processors import Processors

_GIB = 1 << 30
_GB = 1e9


def render(found: Findings) -> str:
    """Lines of `label  finding`, ending in a newline."""
    native_path, native_state = _native(found.native)
    lines = [
        ("memra", f"{found.version} ({found.fingerprint})"),
        ("Python", found.python),
        ("system", found.system),
        ("processor", found.processor),
        ("threads", _threads(found.processors, found.thread_setting)),
        ("memory", f"{found.memory.available_bytes / _GIB:.1f} of {found.memory.total_bytes / _GIB:.1f} GiB available"),
        ("read speed", f"{found.read_bytes_per_s / _GB:.1f} GB/s with all usable threads (numpy, a lower bound)"),
        ("native CPU", native_state),
        ("", native_path),
        ("torch", found.devices.torch or "not installed"),
        ("CUDA", _cuda(found.devices)),
        ("device", f"{found.devices.choice} (setting: {found.devices.setting})"),
        ("cache", found.cache.path),
        (
            "",
            "free space unknown" if found.cache.free_bytes is None else f"{found.cache.free_bytes / _GIB:.1f} GiB free",
        ),
        ("plugins", ", ".join(map(_plugin, found.plugins)) or "none"),
    ]
    return "".join(f"{label:<12}{text}\n" for label, text in lines if text)


def _threads(processors: Processors, setting: int | None) -> str:
    quota = "no quota" if processors.quota is None else f"a quota of {processors.quota:g}"
    told = "not set" if setting is None else str(setting)
    return (
        f"{processors.num_usable} usable: {processors.num_present} processors, {processors.num_affine} allowed, "
        f"{quota} (setting: {told})"
    )


def _native(native: NativeLibrary) -> tuple[str, str]:
    if native.obstacle is not None:
        return native.path, f"not usable: {native.obstacle}"
    return native.path, f"{native.variants[0]} chosen of {', '.join(native.variants)}; built by {native.compiler}"


def _cuda(devices: Devices) -> str:
    return "no driver" if devices.num_cuda is None else f"{devices.num_cuda} devices"


def _plugin(plugin: Plugin) -> str:
    return f"{plugin.name} ({plugin.distribution}{', blocked' if plugin.is_blocked else ''})"
