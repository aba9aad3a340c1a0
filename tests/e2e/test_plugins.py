"""Packages that this repository has never seen, installed by pip, at work in the real server."""

import json
import re
import shlex
import time
from pathlib import Path

import httpx
import pytest

from tests.e2e.plugin_environment import REPOSITORY, PluginEnvironment
from tests.e2e.server_process import Server, Start

TUTORIAL = REPOSITORY / "docs" / "plugins.md"
_WRITE_LIMIT_S = 20.0
PROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "{name}-package"
version = "3.1"
[project.entry-points.memra]
{name} = "{name}"
[tool.setuptools]
py-modules = ["{name}"]
"""


def write_package(folder: Path, name: str, source: str) -> Path:
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT.format(name=name))
    (folder / f"{name}.py").write_text(source)
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> PluginEnvironment:
    return PluginEnvironment(tmp_path_factory.mktemp("environment"))


def complete(server: Server, **fields: object) -> httpx.Response:
    body = {"model": "small", "prompt": "Hello", "max_tokens": 7, "temperature": 0} | fields
    return httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)


def wait_for_lines(file: Path, num_lines: int) -> list[str]:
    """Read a file that a plugin writes beside the requests."""
    ends_at = time.monotonic() + _WRITE_LIMIT_S
    while time.monotonic() < ends_at:
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) >= num_lines:
            return lines
    pytest.fail(f"{file} holds {lines}")


def tutorial_files() -> dict[str, str]:
    """The files that the tutorial has its reader write, by name."""
    text = TUTORIAL.read_text().partition("## In ten minutes")[2].partition("\n## ")[0]
    return dict(re.findall(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL))


def tutorial_commands() -> list[str]:
    text = TUTORIAL.read_text().partition("## In ten minutes")[2].partition("\n## ")[0]
    return [
        line
        for block in re.findall(r"^```sh\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
        for line in block.replace("\\\n", "").splitlines()
    ]


@pytest.mark.models
def test_the_tutorial_does_what_it_says(
    start: Start, environment: PluginEnvironment, tmp_path: Path, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, text in tutorial_files().items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    install, listing, serve, ask, look = tutorial_commands()
    assert shlex.split(install)[:2] == ["pip", "install"]
    environment.install(tmp_path / shlex.split(install)[2])
    listed = environment.run(*shlex.split(listing)[1:], cwd=tmp_path).stdout
    assert re.search(r"^tally +memra-tally 1.0 +loaded +memra_commands$", listed, flags=re.MULTILINE)
    variable, *words = shlex.split(look)
    settings = dict([variable.split("=")])
    early = environment.run(*words[1:], cwd=tmp_path, **settings)
    assert (early.returncode, early.stderr) == (
        2,
        f"memra: {tmp_path}/tally.json: nothing was counted yet; send a request first\n",
    )
    body = json.loads(shlex.split(ask)[-1])
    assert shlex.split(serve)[1:3] == ["run", "--config"]
    server = start(
        *("--config", str(tmp_path / shlex.split(serve)[3])),
        *("-m", f"{body['model']}={smollm2_path}"),
        environ=environment.environ,
        python=environment.python,
    )
    path = shlex.split(ask)[1].removeprefix("http://127.0.0.1:8080")
    answer = httpx.post(f"{server.url}{path}", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    assert server.stop() == 0
    assert environment.run(*words[1:], cwd=tmp_path, **settings).stdout == f"{body['model']} 7\n"


STRANGER = '''
"""Everything that a plugin may do to requests, by its table."""
import asyncio, json, threading, time
from dataclasses import dataclass
from pathlib import Path
from memra.plugins import Deny, LimitsHealth, hookimpl

memra_async = "asyncio"

@dataclass(frozen=True)
class Config:
    notes: Path
    template: str | None = None
    observer: str = "well"
    keeps_accounts: bool = False
    denies: str | None = None

config = None

@hookimpl
def memra_config_schema():
    return Config

@hookimpl
def memra_configure(config):
    globals()["config"] = config
    if config.observer == "thread":
        threading.Thread(target=threading.Event().wait, name="stranger").start()

def note(*words):
    with config.notes.open("a") as file:
        print(*words, file=file)

@hookimpl
def memra_chat_template(model, template):
    return config.template

@hookimpl
def memra_open_source(source, cache):
    kind, _, path = source.partition(":")
    return Path(path) if kind == "shelf" else None

class Feed:
    schema = "stranger"
    def render(self, cards):
        if config.observer == "raises":
            raise RuntimeError("out of paper")
        return {"names": [card.name for card in cards]}

@hookimpl
def memra_feeds():
    return [Feed()]

@hookimpl
async def memra_admit(question):
    await asyncio.sleep(0)
    if question.tenant == config.denies:
        return Deny(f"No {question.route} for {question.tenant}.", status=451, code="not_today")

class Accounts:
    """Metering, permit and receipt in one; what is asked for says how it fails."""
    enforces_limits, wants_capture = True, False
    bound = 0

    async def is_limited(self, tenant):
        return True

    async def reserve(self, tenant, *, principal, model, prompt_tokens, completion_bound):
        permit = Accounts()
        permit.bound = completion_bound
        await permit.fail(raises=1, hangs=2)
        return "a permit" if completion_bound == 3 else permit

    def open(self, meta, permit):
        return permit or Accounts()

    def captures(self, tenant):
        return False

    def limits_health(self):
        return LimitsHealth(0, 0, source_available=True)

    def drain_kill(self):
        note("drained")

    arm_capture = capture_completion_delta = refund = lambda *_: None
    record_prompt_usage = record_completion_tokens = lambda *_: None

    async def complete(self, usage, *, elapsed_s):
        await self.fail(raises=4, hangs=5)
        note("paid", usage.prompt_tokens, usage.completion_tokens)

    complete_deadline_partial = complete

    async def abandon(self):
        note("abandoned")

    async def reject(self, status, code):
        note("rejected", status, code)

    async def settle_unbilled(self, outcome, status, code):
        note(outcome, status, code)

    async def fail(self, *, raises, hangs):
        if self.bound == raises:
            raise RuntimeError("out of ink")
        if self.bound == hangs:
            await asyncio.sleep(10)

@hookimpl
def memra_metering(models):
    return Accounts() if config.keeps_accounts else None

@hookimpl
async def memra_request_ended(record):
    if config.observer == "hangs":
        await asyncio.sleep(10)
    if config.observer == "raises":
        raise RuntimeError("out of ink")
    await asyncio.sleep(0)
    if config.observer != "silent":
        note("ended", record.model, record.usage.completion_tokens)

def route(name, path, handles, method):
    from quart import Blueprint
    blueprint = Blueprint(name, __name__)
    @blueprint.route(path, methods=[method])
    async def view():
        return {"requests": len(await handles.list_requests()), "models": len(await handles.list_models())}
    return [blueprint]

@hookimpl
def memra_blueprints(handles):
    return route("stranger", "/stranger", handles, "GET")

@hookimpl
def memra_admin_blueprints(handles):
    return route("stranger_admin", "/admin/stranger", handles, "POST")

@hookimpl
async def memra_ready(handles):
    note("ready", (await handles.list_models())[0]["name"])
    await handles.wait_shutdown()

@hookimpl
async def memra_shutdown():
    await asyncio.sleep(0)
    note("shutdown")
'''


@pytest.fixture
def begin(start: Start, environment: PluginEnvironment, tmp_path: Path, smollm2_path: Path):
    """Start a server with the stranger in it."""
    if not (tmp_path.parent / "stranger").exists():
        environment.install(write_package(tmp_path.parent / "stranger", "stranger", STRANGER))

    def begin_one(*lines: str, timeout_s: float = 5, **variables: str) -> tuple[Server, Path]:
        notes, settings = tmp_path / "notes.txt", tmp_path / "memra.toml"
        table = [f"[plugins]\ntimeout_s = {timeout_s}", "[plugins.stranger]", f'notes = "{notes}"', *lines]
        settings.write_text("\n".join(table))
        arguments = ("--config", str(settings), "-m", f"small=shelf:{smollm2_path}")
        environ = environment.environ | {"MEMRA_PLUGINS_BLOCK": "tally,clinger"} | variables
        return start(*arguments, environ=environ, python=environment.python), notes

    return begin_one


@pytest.mark.models
def test_a_stranger_keeps_the_accounts_and_what_fails_in_them_costs_one_request_alone(begin):
    server, notes = begin("keeps_accounts = true", 'observer = "silent"', timeout_s=0.3)
    told: list[tuple[int, str | None]] = []
    for max_tokens in (1, 2, 3, 4, 5, 7):
        reply = complete(server, max_tokens=max_tokens)
        told.append((reply.status_code, None if reply.status_code == 200 else reply.json()["error"]["code"]))
    unavailable, unwritten = (503, "tenant_budget_unavailable"), (500, "request_ledger_unavailable")
    assert told == [unavailable, unavailable, unavailable, unwritten, unwritten, (200, None)]
    assert notes.read_text().splitlines()[1:] == ["paid 1 7"], "an answer is on the books when it is there"
    assert server.metrics()["limits_source_available"] is True
    assert complete(server, model="nobody").status_code == 400
    assert notes.read_text().splitlines()[-1] == "rejected 400 model_not_found"
    assert server.stop() == 0
    said = server.output()
    for words in ("reserve failed", "reserve took longer than 0.3 s", "complete failed", "complete took longer"):
        assert f"plugin stranger: memra_metering: {words}" in said


@pytest.mark.models
def test_a_stranger_denies_a_tenant_in_its_own_words(begin):
    server, _ = begin('denies = "default"')
    for stream in (False, True):
        reply = complete(server, stream=stream)
        assert reply.status_code == 451
        told = reply.json()["error"]
        assert (told["message"], told["code"]) == ("No /v1/completions for default.", "not_today")
    assert server.metrics()["admitted"] == 0


@pytest.mark.models
@pytest.mark.parametrize("host_loop", ["trio", "asyncio"])
def test_a_stranger_brings_a_source_a_template_and_an_observer_and_hears_the_end(begin, host_loop: str):
    template = "'{% for message in messages %}one two three four five {% endfor %}'"
    server, notes = begin(f"template = {template}", f'[lifecycle]\nhost_loop = "{host_loop}"')
    body = {"model": "small", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).json()
    assert answer["usage"]["prompt_tokens"] < 12, "a template of the model's own has more"
    assert wait_for_lines(notes, 2) == ["ready small", "ended small 3"]
    assert server.stop() == 0
    assert notes.read_text().splitlines() == ["ready small", "ended small 3", "shutdown"]


@pytest.mark.models
@pytest.mark.parametrize(
    ("observer", "words"), [("raises", "memra_request_ended failed"), ("hangs", "took longer than 0.2 s")]
)
def test_an_observer_that_raises_or_hangs_costs_nobody_anything_and_is_named(begin, observer: str, words: str):
    server, notes = begin(f'observer = "{observer}"', timeout_s=0.2)
    statuses = [complete(server).status_code for _ in range(3)]
    assert statuses == [200, 200, 200]
    assert words in server.wait_for("plugin stranger: memra_request_ended")
    assert server.stop() == 0
    assert notes.read_text().splitlines() == ["ready small", "shutdown"]


@pytest.mark.models
def test_a_thread_that_a_plugin_leaves_running_cannot_keep_the_process(begin):
    server, _ = begin('observer = "thread"')
    assert server.stop() == 0
    assert "the thread stranger still runs" in server.output()


@pytest.mark.models
def test_a_stranger_adds_routes_to_both_doors(begin, tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("stranger-" * 3)
    token.chmod(0o600)
    server, _ = begin(
        MEMRA_ADMIN_ADDR="127.0.0.1:0",
        MEMRA_ADMIN_TOKEN_FILE=str(token),
        MEMRA_ADMIN_AUDIT_FILE=str(tmp_path / "audit"),
    )
    admin_url = next(line for line in server.said if line.startswith("administration is at")).split()[-1]
    expected = {"requests": 0, "models": 1}
    assert httpx.get(f"{server.url}/stranger").json() == expected
    assert httpx.post(f"{server.url}/admin/stranger").status_code == 404
    assert httpx.post(f"{admin_url}/admin/stranger").status_code == 401
    headers = {"Authorization": f"Bearer {token.read_text()}"}
    assert httpx.post(f"{admin_url}/admin/stranger", headers=headers).json() == expected
    assert '"/admin/stranger"' in (tmp_path / "audit").read_text()


@pytest.mark.models
@pytest.mark.parametrize(("observer", "status"), [("well", 200), ("raises", 503)])
def test_a_stranger_adds_a_feed_and_one_that_fails_costs_its_reader_alone(begin, observer: str, status: int):
    server, _ = begin(f'observer = "{observer}"')
    answer = httpx.get(f"{server.url}/models?schema=stranger", timeout=30)
    assert answer.status_code == status
    if status == 200:
        assert answer.json() == {"names": ["small"]}
    else:
        assert answer.json()["error"]["code"] == "plugin_fault"
        server.wait_for("plugin stranger: memra_feeds: stranger failed")
    assert httpx.get(f"{server.url}/models", timeout=30).status_code == 200


CLINGER = '''
"""Keeps its handles, and goes on whatever it is told."""
import os, trio
from memra.plugins import hookimpl

kept = []

def cling(handles):
    kept.append(handles)
    while True:
        try:
            trio.from_thread.run(handles.list_requests)
        except BaseException as error:
            print("clinger heard", type(error).__name__, flush=True)
            if type(error).__name__ not in ("Cancelled", "HandlesClosedError", "RunFinishedError"):
                raise
            import threading
            threading.Event().wait()

async def cling_within_trio(handles):
    kept.append(handles)
    with trio.CancelScope(shield=True):
        while True:
            try:
                await handles.list_requests()
                await trio.sleep(0.01)
            except Exception as error:
                print("clinger heard", type(error).__name__, flush=True)
                await trio.sleep_forever()

memra_ready = hookimpl(cling if os.environ["CLINGS"] == "thread" else cling_within_trio, specname="memra_ready")
'''


@pytest.mark.models
@pytest.mark.parametrize("how", ["thread", pytest.param("task", marks=pytest.mark.slow)])
def test_a_plugin_that_keeps_its_handles_cannot_keep_the_process(
    start: Start, environment: PluginEnvironment, tmp_path: Path, smollm2_path: Path, how: str
):
    if not (tmp_path.parent / "clinger").exists():
        environment.install(write_package(tmp_path.parent / "clinger", "clinger", CLINGER))
    own = {"MEMRA_PLUGINS_BLOCK": "tally,stranger", "MEMRA_DRAIN_S": "0.5", "CLINGS": how}
    server = start("-m", f"small={smollm2_path}", environ=environment.environ | own, python=environment.python)
    assert complete(server).status_code == 200
    assert server.stop() == 0
    assert "clinger heard" in server.output()
