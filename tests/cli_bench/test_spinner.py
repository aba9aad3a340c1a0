import os
import subprocess
import sys
from pathlib import Path

import pytest

from memra.cli_bench import spinner
from memra.cli_bench.spinner import Spinner
from memra.errors import MeasurementError


def test_it_runs_from_entering_to_leaving():
    with Spinner() as busy:
        os.kill(busy.pid, 0)
        assert busy._process.poll() is None
    assert busy._process.poll() == -9
    busy.close()


def test_it_ends_when_something_fails_beside_it():
    with pytest.raises(ZeroDivisionError), Spinner() as busy:
        _ = 1 / 0
    assert busy._process.poll() == -9


def test_it_ends_with_the_process_that_started_it():
    """The spinner holds the other end of the pipe: `run` returns when both are gone, and fails after its time."""
    start = (
        "import os, subprocess, sys\n"
        "command = [sys.executable, '-m', 'memra.cli_bench.spinner', str(os.getpid()), '0']\n"
        "child = subprocess.Popen(command)\n"
        "os._exit(0)\n"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    subprocess.run(
        [sys.executable, "-c", start],
        check=True,
        capture_output=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": path},
        cwd=Path(__file__).parents[2],
    )


def test_one_that_does_not_start_is_an_error(monkeypatch):
    monkeypatch.setattr(spinner.sys, "executable", "/bin/false")
    with pytest.raises(MeasurementError, match="did not start"):
        Spinner()
