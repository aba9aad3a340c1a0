"""The example package, installed as a user would install it, passes its own tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "plugins" / "metering_noop"


def test_the_package_installs_and_passes_its_own_tests(tmp_path: Path):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target"]
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source)
    subprocess.run([*pip, str(tmp_path / "site"), str(source)], check=True, timeout=120)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(source / "tests")],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(REPOSITORY)])},
    )
    assert "3 passed" in run.stdout, run.stdout + run.stderr
