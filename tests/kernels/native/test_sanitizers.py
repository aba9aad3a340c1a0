"""The whole engine under AddressSanitizer and ThreadSanitizer: no bad access and no data race in prompts and tokens.

Each sanitizer's library is built once, in one or two minutes. Nothing is suppressed: what the pool orders by a fence is
atomic besides.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from memra_kernels import build_native, native

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

_REPOSITORY = Path(__file__).parents[3]
_RUNTIMES = {"address": "libasan.so", "thread": "libtsan.so"}
# Leaks: the interpreter keeps memory until the end; `test_robustness.py` watches for those of the engine.
_OPTIONS = {
    "address": {"ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1"},
    "thread": {"TSAN_OPTIONS": "halt_on_error=0:exitcode=66:report_signal_unsafe=0"},
}


@dataclass(frozen=True)
class Sanitized:
    """A library and what must be loaded before it."""

    name: str
    library: Path
    runtime: Path

    def run(self, variant: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | _OPTIONS[self.name] | {"OPENBLAS_NUM_THREADS": "1", "LD_PRELOAD": str(self.runtime)}
        environment["PYTHONPATH"] = f"{_REPOSITORY}:{_REPOSITORY / 'kernels'}"
        program = Path(__file__).with_name("sanitized_run.py")
        # The sanitizers' shadow memory does not fit every randomised layout of the address space.
        fixed_layout = ["setarch", platform.machine(), "-R"] if shutil.which("setarch") else []
        command = [*fixed_layout, sys.executable, str(program), str(self.library), variant, "60"]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=400, cwd=_REPOSITORY
        )


@pytest.fixture(scope="module", params=sorted(_RUNTIMES))
def sanitized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sanitized]:
    name = request.param
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        pytest.skip("no C++ compiler")
    answer = [compiler, f"-print-file-name={_RUNTIMES[name]}"]
    runtime = Path(subprocess.run(answer, capture_output=True, text=True, check=True).stdout.strip())
    if not runtime.is_absolute() or not runtime.exists():
        pytest.skip(f"{compiler} has no {_RUNTIMES[name]}")
    library = tmp_path_factory.mktemp(name) / "libmemra_cpu.so"
    yield Sanitized(name, build_native.build(target=library, sanitize=name), runtime.resolve())
    library.unlink()


@pytest.mark.parametrize("place", [0, -1], ids=["best", "scalar"])
def test_prompts_and_tokens_run_clean(sanitized: Sanitized, place: int):
    done = sanitized.run(native.usable_variants()[place])
    assert (done.returncode, done.stdout, done.stderr) == (0, "sound\n", "")
