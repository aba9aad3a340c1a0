"""The variants for 64-bit ARM, cross-compiled and emulated: all give the bits of the plain one, there and here."""

import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from memra_kernels import build_native
from memra_kernels.compilers import Compiler, find_compiler, zig_compiler

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

Digests = dict[str, dict[str, str]]
"""What a variant computed, by variant and case."""


def _cross_compiler(scratch: Path) -> Compiler:
    if shutil.which("aarch64-linux-gnu-g++"):
        return Compiler(("aarch64-linux-gnu-g++",), "cross g++")
    found = zig_compiler(target="aarch64-linux-musl", scratch=scratch)
    if found is None:
        pytest.skip("no C++ compiler for aarch64-linux: neither aarch64-linux-gnu-g++ nor the package ziglang")
    return found


def _program(compiler: Compiler, folder: Path, *, machine: str = "") -> Path:
    objects = build_native.compile_objects(compiler, folder, machine=machine)
    source, program = Path(__file__).with_name("variant_digests.cpp"), folder / "variant_digests"
    package = Path(build_native.__file__).parent
    flags = ("-std=c++20", "-O1", "-static", "-pthread", f"-I{package}")
    compiler.run(*flags, str(source), *map(str, objects), "-o", str(program))
    return program


def _digests(*command: str | Path) -> Digests:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
    digests: Digests = defaultdict(dict)
    for line in done.stdout.splitlines():
        variant, case, digest = line.split()
        digests[variant][case] = digest
    return digests


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Digests]:
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None:
        pytest.skip("no qemu-aarch64 to run programs for ARM with")
    folder = tmp_path_factory.mktemp("arm")
    program = _program(_cross_compiler(folder / "cache"), folder, machine="aarch64")
    return cache(lambda processor: _digests(emulator, "-cpu", processor, program))


def test_every_kernel_gives_the_bits_of_the_plain_variant(emulated: Callable[[str], Digests]):
    found = emulated("max")
    assert len(found["scalar"]) > 100
    assert found["neon_dot"] == found["scalar"]
    assert found["neon_i8mm"] == found["scalar"]


@pytest.mark.parametrize(
    ("processor", "variants"),
    [
        ("cortex-a72", ["scalar"]),
        ("cortex-a76", ["neon_dot", "scalar"]),
        ("max", ["neon_i8mm", "neon_dot", "scalar"]),
    ],
)
def test_a_processor_is_given_what_it_has(emulated: Callable[[str], Digests], processor: str, variants: list[str]):
    assert [name for name in emulated(processor) if name != "baseline"] == variants


def test_arm_and_this_processor_agree(emulated: Callable[[str], Digests], tmp_path: Path):
    here, there = _digests(_program(find_compiler(scratch=tmp_path / "cache"), tmp_path)), emulated("max")
    assert here["scalar"] == there["scalar"]
    assert here["baseline"] == there["baseline"]
