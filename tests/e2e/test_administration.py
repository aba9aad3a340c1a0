"""The real server, administered over its own listener: tenants are purged, prefixes move, requests are looked at."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from memra.gate.keyring import parse_keyring
from tests.e2e.server_process import Server, Start, run_to_end

pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]

TOKEN = "e2e-" + "0123456789abcdef"
KEYS = {"acme": "mk-acme-1", "blue": "mk-blue-1"}
RING = ",".join(f"{tenant}:{sha256(key.encode()).hexdigest()}" for tenant, key in KEYS.items())
TEXT = "The river runs past the mill, and the mill stands by the bridge. " * 20
DEVICE_KEYS = {
    "device",
    "reclaimed_bytes",
    "still_owned_bytes",
    "pool_reserved_bytes",
    "pool_cached_bytes",
    "driver_free_bytes",
    "synchronization_errors",
}


@dataclass
class Administered:
    """A server, and the ways in: its own door by tenant, and the admin listener."""

    server: Server
    admin_url: str
    audit: Path

    def ask(self, tenant: str, question: str = "What stands by the bridge?", **fields: Any) -> Any:
        body = {
            "model": "small",
            "messages": [{"role": "system", "content": TEXT}, {"role": "user", "content": question}],
            "temperature": 0,
            "max_tokens": 8,
            **fields,
        }
        headers = {"Authorization": f"Bearer {KEYS[tenant]}"}
        answer = httpx.post(f"{self.server.url}/v1/chat/completions", json=body, headers=headers, timeout=120)
        return answer.raise_for_status().json()

    def cached(self, tenant: str, question: str = "What stands by the bridge?") -> int:
        return self.ask(tenant, question)["usage"]["prompt_tokens_details"]["cached_tokens"]

    def order(self, method: str, path: str, body: Any = None, *, token: str = TOKEN) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.request(method, f"{self.admin_url}{path}", json=body, headers=headers, timeout=60)

    def report(self, method: str, path: str, body: Any = None) -> Any:
        return self.order(method, path, body).raise_for_status().json()

    def task(self, task_id: str) -> Any:
        while True:
            task = self.report("GET", f"/admin/tasks/{task_id}")["task"]
            if task["ended_unix"] is not None:
                return task


Begin = Callable[..., Administered]


@pytest.fixture
def begin(start: Start, tmp_path: Path, smollm2_path: Path) -> Begin:
    """Start a server with two tenants and an admin listener."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "token").chmod(0o600)

    def begin_one(*, keys: str = RING, source: Path = smollm2_path, **environ: str) -> Administered:
        own = {
            "MEMRA_API_KEYS": keys,
            "MEMRA_METRICS_TOKEN": "scraper",
            "MEMRA_ADMIN_ADDR": "127.0.0.1:0",
            "MEMRA_ADMIN_TOKEN_FILE": str(tmp_path / "token"),
            "MEMRA_ADMIN_AUDIT_FILE": str(tmp_path / "audit"),
        }
        server = start("-m", f"small={source}", environ=own | environ)
        admin_url = next(line for line in server.said if line.startswith("administration is at")).split()[-1]
        return Administered(server, admin_url, tmp_path / "audit")

    return begin_one


@pytest.fixture
def stream() -> Iterator[Callable[[Administered, str], Iterator[str]]]:
    """Keep a long answer running for a tenant, until the test is over; returns the lines of it that are to come."""
    opened: list[Any] = []

    def keep(house: Administered, tenant: str) -> Iterator[str]:
        client = httpx.Client(timeout=120)
        body = {
            "model": "small",
            "messages": [{"role": "system", "content": TEXT}, {"role": "user", "content": "Go on."}],
            "max_tokens": 4000,
            "stream": True,
            "logit_bias": {"0": -100, "2": -100},  # what would end the answer
        }
        headers = {"Authorization": f"Bearer {KEYS[tenant]}"}
        sent = client.build_request("POST", f"{house.server.url}/v1/chat/completions", json=body, headers=headers)
        answer = client.send(sent, stream=True)
        assert answer.status_code == 200, answer.read()
        lines = answer.iter_lines()
        opened.extend((client, lines))  # lines that nobody holds close their connection
        for line in lines:
            if '"content"' in line:
                break
        return lines

    yield keep
    for each in opened:
        each.close()


def test_a_purge_forgets_one_tenant_in_every_tier_and_no_other(begin: Begin, tmp_path: Path, stream):
    house = begin(MEMRA_KV_HOST_MB="64", MEMRA_KV_HOST_DIR=str(tmp_path), MEMRA_RESPONSE_CACHE_MB="4")
    for tenant in KEYS:
        assert house.cached(tenant) == 0, "nobody is told what another tenant sent"
    entries = house.server.metrics()["prefix_cache_entries"]
    assert house.server.metrics()["response_cache_entries"] == 2
    lines = stream(house, "acme")
    running = house.report("POST", "/admin/tenants/acme/purge")
    assert set(running) == {
        "tenant",
        "host_namespaces",
        "host_entries",
        "host_bytes",
        "device_entries",
        "device_pinned_left",
    }
    assert running["tenant"] == "acme"
    assert running["device_pinned_left"] > 0
    assert house.server.metrics()["response_cache_entries"] == 1
    [line] = house.report("GET", "/admin/requests")["requests"]
    assert house.report("POST", f"/admin/requests/{line['id']}/cancel") == {"id": line["id"], "cancelled": True}
    assert any("cancelled" in line for line in lines)
    house.server.wait_for_metrics(active_sessions=0)
    second = house.report("POST", "/admin/tenants/acme/purge")
    assert second["device_pinned_left"] == 0
    assert running["device_entries"] + second["device_entries"] > 0
    third = house.report("POST", "/admin/tenants/acme/purge")
    assert (third["device_entries"], third["host_entries"], third["host_namespaces"]) == (0, 0, 0)
    assert 0 < house.server.metrics()["prefix_cache_entries"] < entries
    metrics = house.server.metrics()
    assert metrics["prefix_host_purges"] == 3
    assert metrics["prefix_host_purged_entries"] == sum(report["host_entries"] for report in (running, second, third))
    assert house.cached("blue", "Where is the mill?") > 0
    assert house.cached("acme", "Where is the mill?") == 0


def test_a_trim_leaves_what_runs_alone_and_says_what_came_back(begin: Begin, stream):
    house = begin()
    house.ask("blue", "Something else?")
    house.ask("acme")
    lines = stream(house, "acme")
    report = house.report("POST", "/admin/trim")
    assert set(report) == {"reuse_entries", "spec_reuse_entries", "dspark_reuse_entries", "prefix_entries", "devices"}
    [device] = report["devices"]
    assert set(device) == DEVICE_KEYS
    assert report["prefix_entries"] > 0
    assert device["reclaimed_bytes"] > 0
    assert device["still_owned_bytes"] > 0, "of the running request"
    assert device["pool_reserved_bytes"] > device["pool_cached_bytes"] > 0
    assert device["driver_free_bytes"] > 0
    assert device["synchronization_errors"] == []
    assert any('"content"' in line for line in lines), "it goes on"
    assert house.cached("blue") == 0


def test_what_runs_is_listed_without_a_word_of_it(begin: Begin, stream):
    house = begin()
    stream(house, "acme")
    answer = house.order("GET", "/admin/requests")
    [line] = answer.json()["requests"]
    assert (line["tenant"], line["lane"], line["model"], line["phase"]) == ("acme", "interactive", "small", "decode")
    assert line["principal"].startswith("sha256-")
    assert line["prompt_tokens"] > 100
    assert line["completion_tokens"] > 0
    assert "river" not in answer.text


def test_while_the_server_drains_one_can_look_at_what_still_runs_and_end_it(begin: Begin, stream):
    house = begin()
    lines = stream(house, "acme")
    house.server.process.send_signal(signal.SIGTERM)
    house.server.wait_for("draining for at most")
    [line] = house.report("GET", "/admin/requests")["requests"]
    assert house.order("POST", f"/admin/requests/{line['id']}/cancel").status_code == 200
    assert any("request_cancelled" in line for line in lines)
    assert house.server.process.wait(timeout=10) == 0, "it need not wait for the whole answer"


def test_models_come_and_go_as_tasks(begin: Begin, smollm2_path: Path):
    house = begin()
    accepted = house.order("POST", "/admin/models/load", {"name": "second", "source": str(smollm2_path)})
    assert accepted.status_code == 202
    task = house.task(accepted.json()["task"]["id"])
    assert (task["state"], task["result"]["state"]) == ("done", "loaded")
    assert {model["name"] for model in house.report("GET", "/admin/models")["models"]} == {"small", "second"}
    assert house.ask("acme", model="second")["model"] == "second"
    assert house.report("POST", "/admin/models/unload", {"name": "second"}) == {"name": "second", "unloaded": True}
    failed = house.report("POST", "/admin/models/load", {"name": "third", "source": "/nowhere.gguf"})
    assert house.task(failed["task"]["id"])["state"] == "failed"
    assert house.order("POST", "/admin/models/unload", {"name": "nobody"}).status_code == 404
    assert house.ask("acme")["choices"]


def handoff_environ(folder: Path) -> dict[str, str]:
    return {
        "MEMRA_KV_HOST_HANDOFF": str(folder / "handoff"),
        "MEMRA_KV_HOST_MB": "64",
        "MEMRA_KV_HOST_DIR": str(folder),
    }


def test_a_warm_prompt_is_warm_and_bit_identical_behind_export_and_import(begin: Begin, tmp_path: Path, stream):
    first = begin(**handoff_environ(tmp_path))
    answer = first.ask("acme", logprobs=True)
    lines = stream(first, "blue")
    refused = first.order("POST", "/admin/kv-host/export")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "handoff_refused")
    exported = first.report("POST", "/admin/kv-host/export", {"force": True})
    assert set(exported) == {"path", "demoted_from_device", "entries", "bytes", "skipped_over_cap", "ms"}
    assert exported["entries"] > 0
    assert any('"content"' in line for line in lines)
    kept = (tmp_path / "handoff").read_bytes()
    first.server.process.kill()
    first.server.process.wait()
    (tmp_path / "handoff").unlink()

    second = begin(**handoff_environ(tmp_path))
    assert second.order("POST", "/admin/kv-host/import").json()["error"]["code"] == "handoff_refused"
    (tmp_path / "handoff").write_bytes(kept)
    imported = second.report("POST", "/admin/kv-host/import")
    assert set(imported) == {"path", "header_entries", "header_bytes", "age_secs", "refused_models"}
    assert (imported["header_entries"], imported["refused_models"]) == (exported["entries"], [])
    second.server.wait_for_metrics(prefix_host_entries=exported["entries"])
    again = second.ask("acme", logprobs=True)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == again["usage"]["prompt_tokens"] - 1
    assert again["choices"] == answer["choices"]


def test_a_damaged_entry_is_skipped_and_a_file_from_other_weights_refused(
    begin: Begin, tmp_path: Path, smollm2_path: Path
):
    first = begin(**handoff_environ(tmp_path))
    first.ask("acme")
    exported = first.report("POST", "/admin/kv-host/export")
    kept = (tmp_path / "handoff").read_bytes()
    first.server.process.kill()
    first.server.process.wait()

    damaged = bytearray(kept)
    damaged[-100] ^= 1
    (tmp_path / "handoff").unlink()
    second = begin(**handoff_environ(tmp_path))
    (tmp_path / "handoff").write_bytes(damaged)
    second.report("POST", "/admin/kv-host/import")
    second.server.wait_for_metrics(
        prefix_host_handoff_imported_entries=exported["entries"] - 1,
        prefix_host_handoff_skips=1,
        prefix_host_entries=exported["entries"] - 1,
    )
    assert second.ask("acme")["choices"]
    second.server.end()

    other = tmp_path / "other.gguf"
    os.link(smollm2_path, other) if smollm2_path.stat().st_dev == tmp_path.stat().st_dev else other.write_bytes(
        smollm2_path.read_bytes()
    )
    (tmp_path / "handoff").unlink(missing_ok=True)
    third = begin(source=other, **handoff_environ(tmp_path))
    (tmp_path / "handoff").write_bytes(kept)
    imported = third.report("POST", "/admin/kv-host/import")
    assert imported["refused_models"] == ["small"]
    third.server.wait_for_metrics(prefix_host_handoff_skips=exported["entries"])
    assert third.cached("acme") == 0


def test_keys_are_made_and_revoked_while_the_server_runs(begin: Begin, tmp_path: Path):
    ring = tmp_path / "keys.toml"
    ring.write_text("")
    ring.chmod(0o600)
    house = begin(keys=str(ring))
    made = house.report("POST", "/admin/keys", {"tenant": "green", "rate_limit": 2})
    assert set(made) == {"key", "prefix", "tenant", "lane", "rate_limit"}
    assert [entry.prefix for entry in parse_keyring(ring.read_text()).entries] == [made["prefix"]]
    assert made["key"] not in ring.read_text()
    KEYS["green"] = made["key"]
    assert house.ask("green")["choices"]
    assert house.report("POST", "/admin/keys/revoke", {"prefix": made["prefix"]}) == {
        "prefix": made["prefix"],
        "revoked": True,
    }
    with pytest.raises(httpx.HTTPStatusError, match="403"):
        house.ask("green")
    assert made["key"] not in house.audit.read_text()


def test_the_listener_wants_its_token_and_keeps_its_books(begin: Begin):
    house = begin()
    assert house.order("POST", "/admin/trim", token="wr" + "ong").status_code == 403
    assert house.order("POST", "/admin/trim").status_code == 200
    assert httpx.post(f"{house.server.url}/admin/trim").status_code == 404, "the public door has no such route"
    lines = [json.loads(line) for line in house.audit.read_text().splitlines()]
    assert [line["authorization"] for line in lines] == ["denied", "authorized"]


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"MEMRA_ADMIN_ADDR": "127.0.0.1:0"}, "MEMRA_ADMIN_TOKEN_FILE must be"),
        ({"MEMRA_ADMIN_ADDR": "127.0.0.1:0", "MEMRA_ADMIN_TOKEN_FILE": "{open}"}, "MEMRA_ADMIN_AUDIT_FILE must be"),
        (
            {
                "MEMRA_ADMIN_ADDR": "127.0.0.1:0",
                "MEMRA_ADMIN_TOKEN_FILE": "{open}",
                "MEMRA_ADMIN_AUDIT_FILE": "{folder}/audit",
            },
            "chmod 600",
        ),
        (
            {
                "MEMRA_ADMIN_ADDR": "0.0.0.0:0",
                "MEMRA_ADMIN_TOKEN_FILE": "{private}",
                "MEMRA_ADMIN_AUDIT_FILE": "{folder}/audit",
            },
            "not loopback",
        ),
    ],
)
def test_what_would_be_open_to_others_does_not_start(tmp_path: Path, smollm2_path: Path, environ, words):
    places = {"open": str(tmp_path / "open"), "private": str(tmp_path / "private"), "folder": str(tmp_path)}
    for name, mode in (("open", 0o644), ("private", 0o600)):
        (tmp_path / name).write_text(TOKEN)
        (tmp_path / name).chmod(mode)
    given = {name: value.format(**places) for name, value in environ.items()}
    ended = run_to_end("run", "--address", "127.0.0.1:0", "-m", f"small={smollm2_path}", environ=given)
    assert ended.returncode == 1
    assert words in ended.stderr
