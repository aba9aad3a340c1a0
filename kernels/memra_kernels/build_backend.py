"""What pip calls to build memra: setuptools, with a C++ compiler from the package index where the system has none.

A thin wrapper of `setuptools.build_meta` (PEP 517 and 660). Knows which packages a build needs; the build itself is
setup.py's. Runs in pip's build environment, where only setuptools is installed.
"""

import os
import platform

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

from memra_kernels.compilers import system_compiler

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ZIG = "ziglang==0.17.*"
"""The release whose bits were compared with those of g++."""
_ZIG_MACHINES = {"x86_64", "AMD64", "aarch64", "arm64"}


def get_requires_for_build_wheel(config_settings: dict[str, str | list[str] | None] | None = None) -> list[str]:
    """Return what `build_wheel` needs besides setuptools (PEP 517)."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compiler_packages()]


def get_requires_for_build_editable(config_settings: dict[str, str | list[str] | None] | None = None) -> list[str]:
    """Return what `build_editable` needs besides setuptools (PEP 660)."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compiler_packages()]


def _compiler_packages() -> list[str]:
    # Who names a compiler gets that one or none: `CXX=false` is the way to install without any.
    if "CXX" in os.environ or platform.machine() not in _ZIG_MACHINES or system_compiler() is not None:
        return []
    return [ZIG]
