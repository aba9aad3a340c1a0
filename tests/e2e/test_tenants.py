"""Keys and tenants as a deployment has them: a keyring file, a real model, and the commands that change the file."""

import time
from pathlib import Path

import httpx
import pytest

from tests.e2e.server_process import Server, Start, run_to_end

pytestmark = [pytest.mark.models, pytest.mark.timeout(600)]

PROMPT = "The quick brown fox jumps over the lazy dog, and the dog does not mind. " * 8
PATIENCE_S = 30.0


def keys(*arguments: str, file: Path) -> str:
    done = run_to_end("keys", *arguments, "--keys", str(file))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "keys.toml"


@pytest.fixture(scope="module")
def acme(ring: Path) -> str:
    return keys("gen", "acme", file=ring)


@pytest.fixture(scope="module")
def bulk(ring: Path) -> str:
    return keys("gen", "bulk", "--lane", "batch", file=ring)


@pytest.fixture(scope="module")
def server(start: Start, smollm2_path: Path, ring: Path, acme: str, bulk: str) -> Server:
    assert acme != bulk
    return start("-m", f"small={smollm2_path}", environ={"MEMRA_API_KEYS": str(ring), "MEMRA_API_KEY": "single"})


def ask(server: Server, key: str | None, **fields: object) -> httpx.Response:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    lane = fields.pop("lane", None)
    if lane is not None:
        headers["x-lane"] = str(lane)
    body = {"model": "small", "prompt": PROMPT, "max_tokens": 1, "temperature": 0, **fields}
    return httpx.post(f"{server.url}/v1/completions", json=body, headers=headers, timeout=300)


def cached(reply: httpx.Response) -> int:
    return int(reply.raise_for_status().json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_a_tenant_finds_its_own_prompts_and_nobody_elses(server: Server, acme: str, bulk: str):
    assert cached(ask(server, acme)) == 0
    assert cached(ask(server, acme)) > 100
    for other in (bulk, "single"):
        assert cached(ask(server, other)) == 0
    assert cached(ask(server, acme, cache_salt="end-user")) == 0
    assert cached(ask(server, acme)) > 100


def test_who_may_come_in_and_in_which_lane(server: Server, acme: str, bulk: str):
    assert [ask(server, key).status_code for key in (None, "guess", acme[:-1], acme)] == [401, 401, 401, 200]
    assert [ask(server, bulk, lane=lane).status_code for lane in (None, "judge", "interactive")] == [200, 200, 403]
    for key, status in ((acme, 204), ("guess", 401)):
        headers = {"Authorization": f"Bearer {key}"}
        assert httpx.get(f"{server.url}/v1/auth/check", headers=headers, timeout=30).status_code == status


def test_new_and_revoked_keys_count_without_a_restart(server: Server, ring: Path):
    key = keys("gen", "guest", "--rate-limit", "1", file=ring)
    assert wait_for(server, key, 204)
    assert ask(server, key).headers["x-ratelimit-limit"] == "1"
    prefix = next(line.split()[0] for line in keys("list", file=ring).splitlines() if " guest " in line)
    keys("revoke", prefix, file=ring)
    assert wait_for(server, key, 403)


def wait_for(server: Server, key: str, status: int) -> bool:
    """Ask until the server has looked at the file again, which it does within 2 s."""
    until = time.monotonic() + PATIENCE_S
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:
        while time.monotonic() < until:
            if client.get("/v1/auth/check").status_code == status:
                return True
    return False


def test_each_admission_is_a_line_of_the_log_without_the_key(server: Server, acme: str):
    answer = ask(server, acme, lane="judge").json()
    line = server.wait_for(f"[meter] admit id={answer['id']}", within_s=30)
    assert "tenant=acme lane=judge model=small" in line
    assert acme not in line


def test_a_keyring_that_cannot_be_used_stops_the_start(tmp_path: Path):
    file = tmp_path / "keys.toml"
    keys("gen", "acme", file=file)
    file.chmod(0o644)
    for value, complaint in ((str(file), "has mode 0644"), (str(tmp_path / "none"), "there is no file")):
        ended = run_to_end("run", environ={"MEMRA_API_KEYS": value})
        assert ended.returncode == 1
        assert complaint in ended.stderr
