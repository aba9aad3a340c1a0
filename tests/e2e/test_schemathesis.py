"""The real server tried by schemathesis, which believes nothing but the server's own document.

Each route gets its bounds, what lies just outside of them, and random bodies between. Left out is the check that
whatever the schemas allow is accepted: that fields exclude each other, and that prompts fit, no schema says.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server_process import Server, Start
from tests.e2e.tiny_models import serve_tiny_models

RUN_LIMIT_S = 1500.0
MODELS = {"EmbeddingRequest": "vec", "RerankRequest": "rank"}
"""Which model a body names; the others name the one that chats. Without it few requests would come to one."""


def test_a_few_bodies_for_every_route_are_answered_as_documented(start: Start, tmp_path: Path):
    _try(serve_tiny_models(start, tmp_path), tmp_path, "--phases", "fuzzing", "--max-examples", "3")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_bound_and_many_bodies_are_answered_as_documented(start: Start, tmp_path: Path):
    _try(serve_tiny_models(start, tmp_path), tmp_path, "--phases", "coverage,fuzzing", "--max-examples", "60")


def _try(server: Server, folder: Path, *options: str) -> None:
    """Run schemathesis; a finding fails the test with its report."""
    file = folder / "openapi.json"
    file.write_text(json.dumps(_with_models(httpx.get(f"{server.url}/openapi.json").json())))
    checks = ("--checks", "all", "--exclude-checks", "positive_data_acceptance")
    stable = ("--seed", "1", "--generation-deterministic", "--no-color")
    limits = ("--request-timeout", "60", "--suppress-health-check", "all")
    run = subprocess.run(
        [sys.executable, "-c", _RUN, "run", str(file), "--url", server.url, *checks, *stable, *limits, *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=RUN_LIMIT_S,
        cwd=folder,
    )
    assert run.returncode == 0, f"{run.stdout[-6000:]}\n{run.stderr[-2000:]}"
    assert server.stop() == 0
    said = server.output()
    assert "ERROR" not in said, said
    assert "Traceback" not in said, said


_RUN = "from schemathesis.cli import schemathesis; schemathesis()"


def _with_models(document: dict[str, Any]) -> dict[str, Any]:
    for name, schema in document["components"]["schemas"].items():
        if name.endswith(("Request", "Body")) and "model" in schema["properties"]:
            schema["properties"]["model"]["enum"] = [MODELS.get(name, "tiny")]
    return document
