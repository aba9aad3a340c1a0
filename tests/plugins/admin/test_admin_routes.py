"""memra's own admin routes over handles that a test holds: orders in, reports out, refusals with their codes."""

import re
from pathlib import Path
from typing import Any

import pytest
import trio
from quart_trio import QuartTrio

from memra.errors import ConfigurationError, HandoffError, ModelLoadError, OverloadedError, UnknownModelError
from memra.http.admin_app import build_admin_app
from memra.messages.identity import KeyClass
from memra.plugins import admin
from memra.plugins.admin import tasks
from memra.plugins.handles import HandlesClosedError, NewKey, RunningRequest
from memra.types import Lane, ModelName, RequestId


class Silence:
    async def write(self, **_: object) -> None:
        """Take a line of the audit."""


class FakeHandles:
    """Answers what it is told to, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.error: Exception | None = None
        self.loaded = trio.Event()
        self.num_keys = 1
        self.is_there = True

    def note(self, *words: object) -> None:
        self.asked.append(words)
        if self.error is not None:
            raise self.error

    async def trim(self):
        self.note("trim")
        return {"prefix_entries": 3}

    async def purge_tenant(self, tenant):
        self.note("purge", tenant)
        return {"tenant": tenant}

    async def export_prefixes(self, *, force=False):
        self.note("export", force)
        return {"entries": 1}

    async def import_prefixes(self):
        self.note("import")
        return {"header_entries": 1}

    async def list_models(self):
        self.note("models")
        return [{"name": "a"}]

    async def load_model(self, name, source=None):
        self.note("load", name, source)
        await self.loaded.wait()
        return {"name": name}

    async def unload_model(self, name):
        self.note("unload", name)
        return True

    async def reload_metadata(self):
        self.note("metadata")
        return {"models": 2}

    async def list_requests(self):
        self.note("requests")
        return (RunningRequest(RequestId("r1"), "acme", None, Lane.JUDGE, ModelName("a"), "decode", 7, 3, 0.5),)

    async def cancel_request(self, request_id):
        self.note("cancel", request_id)
        return self.is_there

    async def create_key(self, tenant, *, key_class, rate_limit=None):
        self.note("create", tenant, key_class, rate_limit)
        return NewKey("mk-acme-secret", "mk-acme-se", tenant, key_class, rate_limit)

    async def revoke_key(self, prefix):
        self.note("revoke", prefix)
        return self.num_keys


@pytest.fixture
def handles() -> FakeHandles:
    return FakeHandles()


@pytest.fixture
def app(handles: FakeHandles) -> QuartTrio:
    blueprints = [("admin", blueprint) for blueprint in admin.memra_admin_blueprints(handles)]
    return build_admin_app(lambda _: True, Silence(), blueprints)


@pytest.fixture
def call(app: QuartTrio):
    async def send(method: str, path: str, body: Any = None, *, data: bytes | None = None) -> tuple[int, Any]:
        sent = {"data": data} if data is not None else {"json": body} if body is not None else {}
        answer = await app.test_client().open(path, method=method, headers={"Authorization": "Bearer x"}, **sent)
        return answer.status_code, await answer.get_json()

    return send


@pytest.mark.parametrize(
    ("order", "asked", "answer"),
    [
        (("POST", "/admin/trim"), ("trim",), {"prefix_entries": 3}),
        (("POST", "/admin/tenants/acme/purge"), ("purge", "acme"), {"tenant": "acme"}),
        (("POST", "/admin/kv-host/export"), ("export", False), {"entries": 1}),
        (("POST", "/admin/kv-host/export", {"force": True}), ("export", True), {"entries": 1}),
        (("POST", "/admin/kv-host/import"), ("import",), {"header_entries": 1}),
        (("GET", "/admin/models"), ("models",), {"models": [{"name": "a"}]}),
        (("POST", "/admin/models/unload", {"name": "a"}), ("unload", "a"), {"name": "a", "unloaded": True}),
        (("POST", "/admin/reload-metadata"), ("metadata",), {"models": 2}),
        (("POST", "/admin/requests/r1/cancel"), ("cancel", "r1"), {"id": "r1", "cancelled": True}),
        (("POST", "/admin/keys/revoke", {"prefix": "mk-a"}), ("revoke", "mk-a"), {"prefix": "mk-a", "revoked": True}),
    ],
)
async def test_a_route_asks_the_handles_and_shows_the_report(call, handles, order, asked, answer):
    assert await call(*order) == (200, answer)
    assert handles.asked == [asked]


async def test_what_runs_is_shown_without_prompts(call):
    expected = {
        "id": "r1",
        "tenant": "acme",
        "principal": None,
        "lane": "judge",
        "model": "a",
        "phase": "decode",
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "age_s": 0.5,
    }
    assert await call("GET", "/admin/requests") == (200, {"requests": [expected]})


async def test_a_key_is_made_and_shown_once(call, handles):
    status, made = await call("POST", "/admin/keys", {"tenant": "acme", "lane": "batch", "rate_limit": 2})
    assert (status, made) == (
        200,
        {"key": "mk-acme-secret", "prefix": "mk-acme-se", "tenant": "acme", "lane": "batch", "rate_limit": 2},
    )
    assert handles.asked == [("create", "acme", KeyClass.BATCH, 2)]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/admin/keys", {"tenant": "a b"}, "invalid_tenant"),
        ("/admin/keys", {"tenant": ""}, "invalid_tenant"),
        ("/admin/keys", {"tenant": "a", "lane": "fast"}, "invalid_lane"),
        ("/admin/keys", {"tenant": "a", "rate_limit": 0}, "invalid_rate_limit"),
        ("/admin/keys", {}, "invalid_body"),
        ("/admin/keys", {"tenant": "a", "lanes": "batch"}, "invalid_body"),
        ("/admin/keys/revoke", {"prefix": ""}, "invalid_prefix"),
        ("/admin/keys/revoke", {"prefix": "x" * 257}, "invalid_prefix"),
        ("/admin/keys/revoke", {"prefix": "ü"}, "invalid_prefix"),
        ("/admin/models/load", {"source": "x"}, "invalid_body"),
        ("/admin/models/unload", [], "invalid_body"),
        ("/admin/kv-host/export", {"force": "yes"}, "invalid_body"),
    ],
)
async def test_an_order_that_makes_no_sense_is_refused_and_not_carried_out(call, handles, path, body, code):
    status, answer = await call("POST", path, body)
    assert (status, answer["error"]["code"]) == (400, code)
    assert handles.asked == []


async def test_what_is_no_json_is_refused(call):
    status, answer = await call("POST", "/admin/models/unload", data=b"{")
    assert (status, answer["error"]["code"]) == (400, "invalid_body")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (HandlesClosedError("over"), 503, "draining"),
        (HandoffError("requests are worked on"), 409, "handoff_refused"),
        (UnknownModelError("no such"), 404, "model_not_found"),
        (ConfigurationError("there is none"), 409, "not_configured"),
        (OverloadedError("busy"), 503, "overloaded"),
    ],
)
async def test_what_the_handles_refuse_has_a_status_and_a_code(call, handles, error, status, code):
    handles.error = error
    for path in ("/admin/trim", "/admin/kv-host/export", "/admin/reload-metadata"):
        answered, answer = await call("POST", path)
        assert (answered, answer["error"]["code"], answer["error"]["type"]) == (status, code, "admin_error")


async def test_a_key_that_is_not_there_or_not_alone_is_not_revoked(call, handles):
    for num_keys, expected in ((0, (404, "key_not_found")), (2, (409, "ambiguous_prefix"))):
        handles.num_keys = num_keys
        status, answer = await call("POST", "/admin/keys/revoke", {"prefix": "mk-a"})
        assert (status, answer["error"]["code"]) == expected


async def test_a_request_that_is_not_there_cannot_be_ended(call, handles):
    handles.is_there = False
    status, answer = await call("POST", "/admin/requests/r9/cancel")
    assert (status, answer["error"]["code"]) == (404, "request_not_found")


async def ended(call, task_id: str) -> dict[str, Any]:
    with trio.fail_after(5):
        while True:
            _, answer = await call("GET", f"/admin/tasks/{task_id}")
            if answer["task"]["ended_unix"] is not None:
                return answer["task"]
            await trio.lowlevel.checkpoint()


async def test_a_load_is_a_task_that_can_be_looked_at(call, handles):
    status, answer = await call("POST", "/admin/models/load", {"name": "b", "source": "b.gguf"})
    task = answer["task"]
    assert (status, task["state"], task["kind"], task["subject"]) == (202, "running", "load", "b")
    assert (await call("GET", "/admin/tasks"))[1]["tasks"][0]["state"] == "running"
    handles.loaded.set()
    done = await ended(call, task["id"])
    assert (done["state"], done["result"], done["error"]) == ("done", {"name": "b"}, None)
    assert handles.asked == [("load", "b", "b.gguf")]
    status, answer = await call("POST", f"/admin/tasks/{task['id']}/cancel")
    assert (status, answer["error"]["code"]) == (409, "task_ended")


async def test_a_load_that_fails_says_why(call, handles, caplog):
    for error, reason in (
        (ModelLoadError("its file is damaged"), "its file is damaged"),
        (HandlesClosedError("the server has ended"), "the server has ended"),
        (RuntimeError("a secret"), "it failed; the server's log names the cause"),
    ):
        handles.error = error
        _, answer = await call("POST", "/admin/models/load", {"name": "b"})
        failed = await ended(call, answer["task"]["id"])
        assert (failed["state"], failed["error"]) == ("failed", reason)
    assert "a secret" in caplog.text


async def test_a_task_can_be_taken_back(call):
    _, answer = await call("POST", "/admin/models/load", {"name": "b"})
    task_id = answer["task"]["id"]
    status, answer = await call("POST", f"/admin/tasks/{task_id}/cancel")
    assert (status, answer["task"]["state"]) == (200, "cancelled")
    assert (await ended(call, task_id))["state"] == "cancelled"


async def test_no_task_is_found_where_there_is_none(call):
    for method, path in (("GET", "/admin/tasks/task-9"), ("POST", "/admin/tasks/task-9/cancel")):
        status, answer = await call(method, path)
        assert (status, answer["error"]["code"]) == (404, "task_not_found")


async def test_old_tasks_are_forgotten_and_running_ones_are_not(call, handles, monkeypatch):
    monkeypatch.setattr(tasks, "MAX_ENDED", 2)
    _, running = await call("POST", "/admin/models/load", {"name": "slow"})
    handles.error = ModelLoadError("no")
    for _ in range(4):
        await call("POST", "/admin/models/load", {"name": "b"})
        with trio.fail_after(5):
            while (await call("GET", "/admin/tasks"))[1]["tasks"][-1]["ended_unix"] is None:
                await trio.lowlevel.checkpoint()
    _, listed = await call("GET", "/admin/tasks")
    assert [task["id"] for task in listed["tasks"]] == [running["task"]["id"], "task-4", "task-5"]
    handles.loaded.set()
    await ended(call, running["task"]["id"])


def test_every_route_is_described(app):
    page = Path(__file__).parents[3] / "docs" / "how-to" / "administer.md"
    described = set(re.findall(r"`(GET|POST) (/admin/[^`]*)`", page.read_text(encoding="utf-8")))
    brought = {
        (method, re.sub(r"<(\w+)>", "{}", rule.rule)) for rule in app.url_map.iter_rules() for method in rule.methods
    }
    assert {(method, re.sub(r"\{\w+\}", "{}", path)) for method, path in described} == {
        (method, path) for method, path in brought if method in {"GET", "POST"}
    }
