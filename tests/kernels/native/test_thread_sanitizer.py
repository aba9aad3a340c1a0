"""The thread pool under ThreadSanitizer: no data race in thousands of steps on more threads than cores."""

import shutil
import subprocess
from pathlib import Path

import pytest
from memra_kernels import build_native

pytestmark = pytest.mark.slow


def test_the_pool_has_no_race(tmp_path: Path):
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler with ThreadSanitizer")
    package = Path(build_native.__file__).parent
    program = tmp_path / "pool_stress"
    sources = [Path(__file__).with_name("pool_stress.cpp"), package / "runtime" / "pool.cpp"]
    # The sanitizer does not model fences and gcc says so; the flag that they order is a sequentially consistent atomic.
    flags = ["-std=c++20", "-O2", "-g", "-fsanitize=thread", "-pthread", "-Wno-tsan", f"-I{package}"]
    built = subprocess.run([compiler, *flags, *sources, "-o", program], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([program, "4", "2000"], capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, "sound\n", "")
