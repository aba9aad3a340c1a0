"""Finds a C++ compiler that can build the native engine: the system's, else the one that the package index has.

The package `ziglang` is a wheel with clang and libc++ inside; `python -m ziglang c++` calls it. Knows compilers and how
they are asked; refuses to know what is compiled. Called by `build_native`, and by `build_backend` before anything else
is installed, so only the standard library is imported.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

REMEDY = "install g++ 12 (or clang++ 15) or newer, or the Python package ziglang"

# The oldest compilers that know all variants' flags and the library of C++20. Linking asks for the linker as well.
_PROBE = """
#include <bit>
#include <string>
#if defined(__clang__) ? __clang_major__ < 15 : __GNUC__ < 12
#error too old
#endif
std::string probe(unsigned x) { return std::to_string(std::countr_zero(x)); }
"""
# CPython 3.11's own Linux wheels need no older one (PEP 600), and an older target runs on every newer system.
_ZIG_GLIBC = "2.17"
# Without these zig compiles for the processor at hand, with checks that trap, and keeps 15 MB for a debugger.
_ZIG_FLAGS = ("-mcpu=baseline", "-fno-sanitize=undefined", "-s")


class BuildError(RuntimeError):
    """The compiler is missing or refused the source; the message holds its own words."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler that takes the options of g++.

    Attributes:
        command: the program and what is always said to it.
        version: its name and version, for people.
        environment: variables of its process besides our own.
        spellings: beginnings of options that it spells in its own way.
    """

    command: tuple[str, ...]
    version: str
    environment: Mapping[str, str] = field(default_factory=dict)
    spellings: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str) -> None:
        """Call it.

        Raises:
            BuildError: it failed.
        """
        done = _call((*self.command, *map(self._spelled, arguments)), environment=self.environment)
        if done.returncode:
            raise BuildError(f"{self.version} failed:\n{done.stderr[-4000:]}")

    def _spelled(self, argument: str) -> str:
        for common, own in self.spellings.items():
            if argument.startswith(common):
                return own + argument.removeprefix(common)
        return argument


def find_compiler(*, scratch: Path | None = None) -> Compiler:
    """Return the compiler that `CXX` names, else the system's, else that of the package ziglang.

    Args:
        scratch: as for `zig_compiler`.

    Raises:
        BuildError: there is none.
    """
    compiler = system_compiler()
    if compiler is None and "CXX" in os.environ:
        raise BuildError(f"CXX={os.environ['CXX']} does not build C++20: {REMEDY}, or unset CXX")
    compiler = compiler or zig_compiler(scratch=scratch)
    if compiler is None:
        raise BuildError(f"no C++ compiler found: {REMEDY}")
    return compiler


def system_compiler() -> Compiler | None:
    """Return the first usable one of `CXX`, or, where that is not set, of `c++`, `g++` and `clang++`."""
    named = os.environ.get("CXX")
    candidates = (named,) if named is not None else ("c++", "g++", "clang++")
    return next((found for name in candidates if (found := _probed(tuple(shlex.split(name))))), None)


def zig_compiler(*, target: str = "", scratch: Path | None = None) -> Compiler | None:
    """Return the compiler of the package ziglang, or None where it is not installed.

    Args:
        target: to compile for, as in `aarch64-linux-musl`; this machine where empty.
        scratch: folder for its cache (100 MB), in which it builds its C++ library in about a minute; None leaves the
            place to it, as does a set `ZIG_GLOBAL_CACHE_DIR`.
    """
    if find_spec("ziglang") is None:
        return None
    command = (sys.executable, "-m", "ziglang")
    version = _call((*command, "version"), environment={}).stdout.strip()
    target = target or _zig_target()
    return Compiler(
        (*command, "c++", *(("-target", target) if target else ()), *_ZIG_FLAGS),
        f"zig {version}",
        environment=_zig_environment(scratch),
        spellings={"-march=armv8.2-a": "-mcpu=generic"},  # it takes names of processors alone
    )


def _zig_target() -> str:
    is_glibc = sys.platform == "linux" and platform.libc_ver()[0] == "glibc"
    return f"{platform.machine()}-linux-gnu.{_ZIG_GLIBC}" if is_glibc else ""


def _zig_environment(scratch: Path | None) -> dict[str, str]:
    if scratch is None or "ZIG_GLOBAL_CACHE_DIR" in os.environ:
        return {}
    return {"ZIG_GLOBAL_CACHE_DIR": str(scratch), "ZIG_LOCAL_CACHE_DIR": str(scratch)}


def _probed(command: tuple[str, ...]) -> Compiler | None:
    if not command or shutil.which(command[0]) is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "probe.cpp", Path(folder) / "probe.so"
        source.write_text(_PROBE, encoding="utf-8")
        done = _call((*command, "-std=c++20", "-fPIC", "-shared", str(source), "-o", str(target)), environment={})
    if done.returncode:
        return None
    version = _call((*command, "--version"), environment={}).stdout.partition("\n")[0].strip()
    return Compiler(command, version)


def _call(command: tuple[str, ...], *, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own arguments and the user's own compiler
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )
