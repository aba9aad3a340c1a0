"""Minutes of mixed load, after which the server is what it was before; the long form is `memra bench --soak`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.models, pytest.mark.slow, pytest.mark.timeout(600)]

MINUTES = "3"
SMALL_CACHES = {"MEMRA_KV_MB": "64", "MEMRA_PREFIX_CACHE_MB": "48"}
"""Full within the first minute, so that what grows after that is no cache."""


def test_a_soak_keeps_every_limit(smollm2_path: Path, qwen_path: Path):
    models = ["-m", f"small={smollm2_path}", "-m", f"coder={qwen_path}"]
    command = [sys.executable, "-m", "memra", "bench", "--soak", MINUTES, *models]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ | SMALL_CACHES)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-2000:]}"
    assert "BROKEN" not in done.stdout
