"""A server that is restarted goes on from the prompts that its predecessor knew."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server_process import Server, Start

pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]

TEXT = "The river runs past the mill, and the mill stands by the bridge. " * 20


def ask(server: Server, question: str) -> Any:
    body = {
        "model": "small",
        "messages": [{"role": "system", "content": TEXT}, {"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": 12,
    }
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120).raise_for_status().json()


def test_a_successor_reuses_what_the_first_server_computed(start: Start, smollm2_path: Path, tmp_path: Path):
    handoff = tmp_path / "handoff"
    environ = {"MEMRA_KV_HOST_HANDOFF": str(handoff), "MEMRA_KV_HOST_MB": "64", "MEMRA_KV_HOST_DIR": str(tmp_path)}
    first = start("-m", f"small={smollm2_path}", environ=environ)
    answer = ask(first, "What stands by the bridge?")
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    num_entries = first.metrics()["prefix_cache_entries"]
    first.end()
    assert handoff.exists()
    second = start("-m", f"small={smollm2_path}", environ=environ)
    assert not handoff.exists(), "it is read once"
    second.wait_for_metrics(prefix_host_entries=num_entries)
    again = ask(second, "What stands by the bridge?")
    usage = again["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1
    assert again["choices"] == answer["choices"]
    assert second.metrics()["prefix_host_promotions"] > 0


def test_a_file_that_is_no_hand_off_is_gone_and_does_not_stop_the_start(
    start: Start, smollm2_path: Path, tmp_path: Path
):
    handoff = tmp_path / "handoff"
    handoff.write_bytes(b"something else")
    environ = {"MEMRA_KV_HOST_HANDOFF": str(handoff), "MEMRA_KV_HOST_MB": "64", "MEMRA_KV_HOST_DIR": str(tmp_path)}
    server = start("-m", f"small={smollm2_path}", environ=environ)
    assert not handoff.exists()
    assert ask(server, "Hello?")["choices"]
    server.end()
    assert "the hand-off file is not used" in server.output()
