"""The admin listener: nobody without the token, nothing without a line in the audit, and one shape for refusals."""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from quart import Blueprint, Response, request

from memra.errors import AddressError, ConfigurationError, DeniedError, UsageError
from memra.http.address import bind, bind_loopback
from memra.http.admin_app import MAX_BODY_BYTES, build_admin_app
from memra.http.admin_audit import AuditFile
from memra.http.serve import serve
from memra.settings import HttpSettings

TOKEN = "a-token-of-the-" + "admin"
RIGHT = {"Authorization": f"Bearer {TOKEN}"}

Open = Callable[..., Awaitable[httpx.AsyncClient]]


def routes(seen: list[str]) -> Blueprint:
    blueprint = Blueprint("things", __name__)

    @blueprint.post("/admin/things/<name>")
    async def thing(name: str) -> Response:
        seen.append(name)
        if name == "broken":
            raise RuntimeError("the secret cause")
        if name == "denied":
            raise DeniedError("Not now.", status=409, code="not_now", param="name")
        return Response(await request.get_data())

    return blueprint


@pytest.fixture
def seen() -> list[str]:
    return []


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return tmp_path / "audit"


@pytest.fixture
async def client(nursery: trio.Nursery, seen: list[str], audit: Path):
    app = build_admin_app(lambda token: token == TOKEN, AuditFile(audit), [("things (1.0)", routes(seen))])
    running = partial(serve, app, bind("127.0.0.1:0"), settings=HttpSettings(), shutdown=trio.Event())
    address = await nursery.start(running)
    async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as opened:
        yield opened


def lines(audit: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in audit.read_text().splitlines()]


def refusal(answer: httpx.Response) -> tuple[int, str]:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "admin_error"
    return answer.status_code, error["code"]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, (401, "admin_auth_required")),
        ({"Authorization": "Basic abc"}, (401, "admin_auth_required")),
        ({"Authorization": "Bearer"}, (401, "admin_auth_required")),
        ({"x-api-key": TOKEN}, (401, "admin_auth_required")),
        ({"Authorization": f"Bearer {TOKEN}x"}, (403, "admin_auth_forbidden")),
        ({"Authorization": "Bearer wrong"}, (403, "admin_auth_forbidden")),
    ],
)
async def test_nobody_comes_in_without_the_token(client, seen, audit, headers, expected):
    for path in ("/admin/things/a", "/admin/nothing", "/"):
        assert refusal(await client.post(path, headers=headers, content=b"x" * 70_000)) == expected
    assert seen == []
    assert [line["authorization"] for line in lines(audit)] == ["denied"] * 3


async def test_every_call_leaves_a_line_that_names_the_route_and_no_tenant(client, seen, audit):
    assert (await client.post("/admin/things/acme", headers=RIGHT)).status_code == 200
    assert (await client.get("/elsewhere/acme", headers=RIGHT)).status_code == 404
    first, second = lines(audit)
    assert set(first) == {"format", "unix_ms", "method", "path", "authorization"}
    assert (first["format"], first["method"]) == ("memra.admin-audit.v1", "POST")
    assert (first["path"], first["authorization"]) == ("/admin/things/<name>", "authorized")
    assert (second["method"], second["path"]) == ("GET", "(none)")
    assert "acme" not in audit.read_text()
    assert audit.stat().st_mode & 0o777 == 0o600


async def test_the_line_is_on_the_disk_before_anything_is_done(client, seen, audit, monkeypatch):
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", lambda _: synced.append(len(seen)))
    await client.post("/admin/things/a", headers=RIGHT)
    assert synced == [0]
    assert seen == ["a"]


async def test_without_an_audit_nothing_is_done(client, seen, audit):
    audit.mkdir()
    assert refusal(await client.post("/admin/things/a", headers=RIGHT)) == (500, "admin_audit_unavailable")
    assert seen == []


async def test_refusals_have_one_shape(client, seen):
    assert refusal(await client.get("/admin/nothing", headers=RIGHT)) == (404, "admin_not_found")
    wrong_method = await client.get("/admin/things/a", headers=RIGHT)
    assert refusal(wrong_method) == (405, "admin_method_not_allowed")
    assert "POST" in wrong_method.headers["Allow"]
    assert refusal(await client.post("/admin/things/denied", headers=RIGHT)) == (409, "not_now")
    broken = await client.post("/admin/things/broken", headers=RIGHT)
    assert refusal(broken) == (500, "admin_fault")
    assert "secret" not in broken.text
    large = await client.post("/admin/things/a", headers=RIGHT, content=b"x" * (MAX_BODY_BYTES + 1))
    assert refusal(large) == (413, "admin_body_too_large")


def test_two_plugins_with_one_route_are_a_clash(audit):
    with pytest.raises(UsageError, match="already plugin first's"):
        build_admin_app(lambda _: True, AuditFile(audit), [("first", routes([])), ("second", renamed(routes([])))])


def renamed(blueprint: Blueprint) -> Blueprint:
    blueprint.name = "others"
    return blueprint


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_it_listens_nowhere_but_on_loopback(address):
    with pytest.raises(AddressError, match="not loopback"):
        bind_loopback(address)


def test_it_listens_on_loopback():
    bind_loopback("127.0.0.1:0").close()
    bind_loopback("localhost:0").close()


def test_an_audit_file_that_cannot_be_written_stops_the_start(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path, tmp_path / "no" / "folder", tmp_path / "link"):
        with pytest.raises(ConfigurationError, match=str(path)):
            AuditFile(path).check()
