"""A library that zig built computes what the system compiler's does: every variant and layout, to the bit."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from memra_kernels import build_native
from memra_kernels.compilers import zig_compiler

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def zig_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("zig")
    compiler = zig_compiler(scratch=folder / "cache")
    if compiler is None:
        pytest.skip("the package ziglang is not installed")
    library = build_native.build(target=folder / "libmemra_cpu.so", compiler=compiler)
    yield library
    library.unlink()


def _bits(library: Path) -> tuple[str, list[str]]:
    program = Path(__file__).with_name("bits_of_library.py")
    environment = os.environ | {"PYTHONPATH": f"{_REPOSITORY}:{_REPOSITORY / 'kernels'}"}
    done = subprocess.run(
        [sys.executable, program, library], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert (done.returncode, done.stderr) == (0, "")
    compiler, *digests = done.stdout.splitlines()
    return compiler, digests


def test_zig_and_the_systems_compiler_give_the_same_bits(zig_library: Path):
    compiler, digests = _bits(zig_library)
    system_compiler, wanted = _bits(build_native.LIBRARY)
    assert compiler.startswith("zig ")
    if system_compiler.startswith("zig "):
        pytest.skip("the library in use was built by zig, too: there is nothing to compare")
    assert len(wanted) > 100
    assert digests == wanted
