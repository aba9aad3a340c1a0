"""Damaged directories end in a clear error or a usable model: never in a crash, a hang, or memory without bound."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def _run(folder: Path, *, number: int, seed: int) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "tests.loading.mutated_directories", str(folder), str(number), str(seed)],
        cwd=REPOSITORY,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    outcome = json.loads(finished.stdout)
    assert outcome["refused"] + outcome["opened"] == number
    assert outcome["refused"] > number // 3
    assert outcome["opened"] > number // 50
    assert outcome["slowest_s"] < 5
    assert outcome["peak_bytes"] < 1 << 30


def test_some_hundred_damaged_directories_end_well(tmp_path):
    _run(tmp_path, number=300, seed=1)


@pytest.mark.slow
def test_five_thousand_damaged_directories_end_well(tmp_path):
    _run(tmp_path, number=5000, seed=2)
