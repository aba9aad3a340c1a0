"""Clients that people bring, unmodified and each in an environment of its own, against the real server.

What each does stands in `clients/`; these scripts use a client as its own documentation does.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests import assets
from tests.e2e.client_environments import folder_with_node_modules, python_with
from tests.e2e.server_process import Server, Start

pytestmark = [pytest.mark.models, pytest.mark.slow, pytest.mark.timeout(1200)]

CLIENTS = Path(__file__).parent / "clients"
KEY = "a-key-of-the-tests"
CHECKS_LIMIT_S = 600

PYTHON_CLIENTS = {
    "with_litellm.py": ("litellm==1.110.2",),
    "with_langchain.py": ("langchain-openai==1.7.4",),
    "with_llama_index.py": ("llama-index-llms-openai-like==0.8.1",),
    "with_instructor.py": ("instructor==1.17.0",),
    "with_pydantic_ai.py": ("pydantic-ai-slim[openai]==2.68.0",),
}
NODE_PACKAGES = ("openai@6.49.0", "zod@4.6.7")


@pytest.fixture(scope="module")
def server(start: Start, smollm2_path: Path, qwen_path: Path) -> Server:
    """Both models behind one key, which also chooses OpenAI's shape for text completions."""
    return start("-m", f"small={smollm2_path}", "-m", f"coder={qwen_path}", environ={"MEMRA_API_KEY": KEY})


def environment(fetch: Callable[[], Path]) -> Path:
    return assets.available(fetch, otherwise=pytest.fail if assets.must_be_available() else pytest.skip)


def check(command: Sequence[str | Path], *, cwd: Path, extra: Mapping[str, str]) -> None:
    """Run a script of checks; of this process's variables it sees only where programs and the home are."""
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | extra
    told = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=CHECKS_LIMIT_S, env=environ, cwd=cwd
    )
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize("script", PYTHON_CLIENTS)
def test_a_python_client_is_answered_as_it_expects(server: Server, tmp_path: Path, script: str):
    python = environment(lambda: python_with(Path(script).stem, *PYTHON_CLIENTS[script]))
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # its list of prices would be fetched at every start
    check([python, CLIENTS / script, server.url, KEY], cwd=tmp_path, extra=offline)


def test_the_openai_package_on_node_is_answered_as_it_expects(server: Server, tmp_path: Path):
    folder = environment(lambda: folder_with_node_modules("node", *NODE_PACKAGES))
    script = shutil.copy(CLIENTS / "openai_node.test.mjs", folder)  # packages are looked for beside a script
    check(["node", "--test", script], cwd=tmp_path, extra={"MEMRA_URL": server.url, "MEMRA_KEY": KEY})
