"""Builds the native CPU engine: one shared library that holds every instruction-set variant of the kernels.

Run as `python -m memra_kernels.build_native`. Needs a compiler that `compilers` finds, and nothing else. Each variant
is the same source compiled with its own machine flags; which one runs is decided at run time by what the processor
has. This module knows flags and files; it loads nothing.
"""

import hashlib
import os
import platform
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from memra_kernels.compilers import BuildError, Compiler, find_compiler

_ROOT = Path(__file__).resolve().parent
LIBRARY = _ROOT / "_native" / "libmemra_cpu.so"
"""Where the library is built and looked for."""

_SHARED = (
    "runtime/abi.cpp",
    "runtime/arena.cpp",
    "runtime/cpu_features.cpp",
    "runtime/plan.cpp",
    "runtime/pool.cpp",
    "quant_layouts/tiles.cpp",
    "attention/cpu/work_list.cpp",
    "experts/cpu/expert_lists.cpp",
    "sampler/cpu/border.cpp",
    "sampler/cpu/row_passes.cpp",
    "sampler/cpu/sampler_abi.cpp",
    "sampler/cpu/token_choice.cpp",
)
_VARIANT_SOURCE = "runtime/variant.cpp"

# Contraction of a * b + c would differ from variant to variant and with it the bits. gcc 12 warns about its own
# AVX-512 headers (GCC bug 105593).
_FLAGS = ("-std=c++20", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-Wall", "-Wextra")
# The last -O counts. gcc 12 takes over ten minutes for AddressSanitizer's checks of the unrolled scalar kernels with
# -O3 and variables tracked for the debugger, and half a minute with these.
_SANITIZED = ("-g1", "-O1", "-fno-sanitize-address-use-after-scope")
_QUIET = ("-Wno-uninitialized", "-Wno-maybe-uninitialized")

_AVX2 = ("-DMEMRA_VEC_AVX2", "-mavx2", "-mfma", "-mf16c")
_AVX512 = ("-DMEMRA_VEC_AVX512", *_AVX2[1:], "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni")
_X86_VARIANTS: dict[str, tuple[str, ...]] = {
    "avx512amx": (*_AVX512, "-DMEMRA_AMX", "-mamx-tile", "-mamx-int8"),
    "avx512vnni": _AVX512,
    "avxvnni": (*_AVX2, "-mavxvnni"),
    "avx2": _AVX2,
}
_AARCH64_VARIANTS: dict[str, tuple[str, ...]] = {
    "neon_i8mm": ("-DMEMRA_VEC_NEON", "-march=armv8.2-a+dotprod+i8mm"),
    "neon_dot": ("-DMEMRA_VEC_NEON", "-march=armv8.2-a+dotprod"),
}
_VARIANTS = {
    "x86_64": _X86_VARIANTS,
    "AMD64": _X86_VARIANTS,
    "aarch64": _AARCH64_VARIANTS,
    "arm64": _AARCH64_VARIANTS,
}


@dataclass(frozen=True, slots=True)
class _Unit:
    """One call of the compiler.

    Attributes:
        source: relative to this package.
        flags: beyond those that all units share.
        name: of the object file, without a suffix.
    """

    source: str
    flags: tuple[str, ...]
    name: str


def source_digest() -> str:
    """Sixteen hex digits over every C++ file here: a library of another digest is stale."""
    digest = hashlib.sha256()
    for path in sorted((*_ROOT.glob("**/*.h"), *_ROOT.glob("**/*.cpp"))):
        digest.update(path.relative_to(_ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def variant_names(machine: str = "") -> tuple[str, ...]:
    """Names of the variants that a machine's library holds, best first; this one's where `machine` is empty."""
    return (*_VARIANTS.get(machine or platform.machine(), {}), "scalar")


def _units(sanitizer: tuple[str, ...], compiler_version: str = "unknown", machine: str = "") -> list[_Unit]:
    told = (f'-DMEMRA_SOURCE_DIGEST="{source_digest()}"', f'-DMEMRA_COMPILER="{_quotable(compiler_version)}"')
    flags = _VARIANTS.get(machine or platform.machine(), {})
    variants = [
        _Unit(_VARIANT_SOURCE, ("-O3", *_QUIET, f"-DMEMRA_VARIANT={name}", *flags.get(name, ()), *sanitizer), name)
        for name in variant_names(machine)
    ]
    shared = [_Unit(source, ("-O2", *told, *sanitizer), Path(source).stem) for source in _SHARED]
    return variants + shared


def _quotable(text: str) -> str:
    return "".join(c for c in text if c.isalnum() or c in " .,:;+-_()~/")


def compile_objects(
    compiler: Compiler, folder: Path, *, sanitizer: tuple[str, ...] = (), machine: str = ""
) -> list[Path]:
    """Compile everything the library is made of into `folder`, on all processors.

    Raises:
        BuildError: the compiler failed.
    """

    def compiled(unit: _Unit) -> Path:
        target = folder / f"{unit.name}.o"
        compiler.run(*_FLAGS, *unit.flags, "-c", str(_ROOT / unit.source), "-o", str(target))
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compiled, _units(sanitizer, compiler.version, machine)))


def build(*, target: Path = LIBRARY, sanitize: str | None = None, compiler: Compiler | None = None) -> Path:
    """Compile and link the library; replaces `target` only when everything succeeded.

    Args:
        target: path of the library.
        sanitize: `thread` or `address` for a library to hunt bugs with; None for the real one.
        compiler: None takes the one that is found.

    Raises:
        BuildError: no compiler, or it failed.
    """
    sanitizer = (f"-fsanitize={sanitize}", *_SANITIZED) if sanitize else ()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compiler = compiler or find_compiler(scratch=folder / "cache")
        objects = compile_objects(compiler, folder, sanitizer=sanitizer)
        linked = folder / "linked.so"
        compiler.run("-shared", "-pthread", *sanitizer, *map(str, objects), "-o", str(linked))
        target.parent.mkdir(parents=True, exist_ok=True)
        staged = target.with_suffix(".new")
        shutil.copyfile(linked, staged)
        staged.replace(target)
    return target


def main() -> None:
    """Build and say where."""
    try:
        sys.stdout.write(f"built {build()}\n")
    except BuildError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
