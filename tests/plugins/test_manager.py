"""The typed facade: who is asked in which order, whose answer counts, and what a failing plugin costs."""

import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Never

import pytest
import trio
import trio.testing

from memra.errors import AuthenticationError, ForbiddenError, PluginFaultError, SourceError, StartupError, UsageError
from memra.messages.admission import RequestEnded
from memra.messages.identity import Credentials, Identity
from memra.plugins import AdmissionQuestion, Deny, FeedUnavailableError, HandlesClosedError, Limit, ModelCard, hookimpl
from memra.plugins.closed_handles import closed_handles
from memra.plugins.loading import Declared
from memra.plugins.manager import Plugins
from memra.plugins.plugin import Plugin
from memra.types import Lane, ModelName, RequestId

RECORD = RequestEnded(RequestId("r1"), ModelName("m"), "default", Lane.INTERACTIVE, None, None, failed=False)
QUESTION = AdmissionQuestion(
    RequestId("r1"),
    "acme",
    None,
    ModelName("m"),
    "/v1/chat/completions",
    Lane.INTERACTIVE,
    is_stream=False,
    max_tokens=None,
)
CREDENTIALS = Credentials("sk-1")


def plugin(*, loop: str | None = None, **hooks: Any) -> SimpleNamespace:
    """A plugin made of functions."""
    return SimpleNamespace(memra_async=loop, **{name: hookimpl(function) for name, function in hooks.items()})


def plugins(*given: SimpleNamespace, timeout_s: float = 5.0) -> Plugins:
    made = Plugins(timeout_s=timeout_s)
    for number, each in enumerate(given):
        made.register(each, f"plugin{number}")
    return made


async def test_memra_authenticate_takes_the_first_answer_from_threads_and_from_coroutines():
    asked = []

    def unknown(credentials) -> None:
        asked.append(threading.current_thread())

    async def known(credentials) -> Identity:
        await trio.lowlevel.checkpoint()
        return Identity("acme", principal=credentials.api_key)

    def never() -> Never:
        raise AssertionError("asked although somebody knew")

    house = plugins(
        plugin(memra_authenticate=unknown), plugin(memra_authenticate=known), plugin(memra_authenticate=never)
    )
    assert await house.authenticate(CREDENTIALS) == Identity("acme", principal="sk-1")
    assert asked != [threading.main_thread()]
    assert await plugins(plugin(memra_authenticate=unknown)).authenticate(CREDENTIALS) is None
    assert await plugins().authenticate(CREDENTIALS) is None


@pytest.mark.parametrize("kind", [AuthenticationError, ForbiddenError])
async def test_memra_authenticate_refuses_in_the_plugins_words(kind, caplog: pytest.LogCaptureFixture):
    def refuse() -> Never:
        raise kind("This key was revoked.")

    with pytest.raises(kind, match="revoked"):
        await plugins(plugin(memra_authenticate=refuse)).authenticate(CREDENTIALS)
    assert not caplog.records


async def test_memra_authenticate_of_an_asyncio_plugin_runs_on_one_asyncio_loop():
    import asyncio  # noqa: PLC0415  (only here)

    loops = []

    async def known() -> Identity:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return Identity("acme")

    house = plugins(plugin(loop="asyncio", memra_authenticate=known))
    async with house.running():
        for _ in range(3):
            assert await house.authenticate(CREDENTIALS) == Identity("acme")
    assert len(set(loops)) == 1
    assert loops[0].is_closed()
    assert "memra-asyncio" not in {thread.name for thread in threading.enumerate()}


async def test_memra_admit_counts_the_first_denial_and_the_smallest_limit():
    def limit(num: int) -> SimpleNamespace:
        return plugin(memra_admit=lambda: Limit(num))

    nothing = plugin(memra_admit=lambda: None)
    assert await plugins(nothing).admit(QUESTION) is None
    assert await plugins(limit(9), nothing, limit(5), limit(7)).admit(QUESTION) == Limit(5)
    deny = plugin(memra_admit=lambda question: Deny(f"Not {question.tenant}.", status=402, code="no_money"))
    assert await plugins(limit(9), deny, plugin(memra_admit=lambda: Deny("Later."))).admit(QUESTION) == Deny(
        "Not acme.", status=402, code="no_money"
    )


ORDER = [("plugin1", False, True), ("plugin2", False, False), ("plugin3", True, False), ("plugin4", False, False)]


async def test_plugins_are_asked_by_name_between_those_that_say_first_and_last():
    asked: list[str] = []
    house = Plugins()
    for name, first, last in ORDER:
        function = hookimpl(lambda name=name: asked.append(name), tryfirst=first, trylast=last)
        house.register(SimpleNamespace(memra_admit=function), name)
    await house.admit(QUESTION)
    assert asked == ["plugin3", "plugin2", "plugin4", "plugin1"]


async def block_on_trio() -> None:
    await trio.sleep_forever()


async def block_on_asyncio() -> None:
    import asyncio  # noqa: PLC0415  (only here)

    await asyncio.sleep(10)


def fail() -> None:
    raise RuntimeError("out of ink")


def leave() -> None:
    raise SystemExit(3)


async def fail_later() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        raise RuntimeError("out of ink")


@pytest.mark.parametrize(
    ("function", "loop", "words"),
    [
        (fail, None, "memra_admit failed"),
        (leave, None, "memra_admit failed"),
        (fail_later, None, "memra_admit failed"),
        (lambda: "perhaps", None, "must answer Deny, Limit or None"),
        (lambda: Limit(0), None, "Limit of at least 1"),
        (lambda: Deny("No.", status=200), None, "status from 400 to 599"),
        (lambda: threading.Event().wait(10), None, "took longer than 0.05 s"),
        (block_on_trio, None, "took longer than 0.05 s"),
        (block_on_asyncio, "asyncio", "took longer than 0.05 s"),
    ],
)
async def test_memra_admit_that_raises_blocks_or_talks_nonsense_is_a_fault_by_name(
    function, loop, words, caplog: pytest.LogCaptureFixture
):
    house = plugins(plugin(), plugin(loop=loop, memra_admit=function), timeout_s=0.05 if "longer" in words else 5)
    async with house.running():
        with trio.fail_after(5), pytest.raises(PluginFaultError, match="log names it"):
            await house.admit(QUESTION)
    assert "plugin plugin1" in caplog.text
    assert words in caplog.text


@pytest.mark.parametrize(
    "answer",
    [
        "acme",
        Identity(""),
        Identity("a\x1fb"),
        Identity("a\n"),
        Identity("a" * 65),
        Identity("a", principal=b"key"),
        Identity("a", key_class="batch"),
        Identity("a", max_inflight=0),
        3,
    ],
)
async def test_memra_authenticate_that_talks_nonsense_lets_nobody_in(answer, caplog: pytest.LogCaptureFixture):
    with pytest.raises(PluginFaultError):
        await plugins(plugin(memra_authenticate=lambda: answer)).authenticate(CREDENTIALS)
    assert "must answer an Identity" in caplog.text


async def test_a_plugin_that_hangs_does_not_hold_up_another_and_fails_at_once_in_the_end(
    caplog: pytest.LogCaptureFixture,
):
    release = threading.Event()
    hangs = plugin(memra_authenticate=lambda: release.wait(60) and None)
    works = plugins(plugin(memra_admit=lambda: Limit(3)))
    house = plugins(hangs, plugin(memra_admit=lambda: Limit(3)), timeout_s=0.02)
    for _ in range(8):
        with pytest.raises(PluginFaultError):
            await house.authenticate(CREDENTIALS)
    caplog.clear()
    with pytest.raises(PluginFaultError):
        await house.authenticate(CREDENTIALS)
    assert "all its threads hang" in caplog.text
    assert await house.admit(QUESTION) == await works.admit(QUESTION) == Limit(3)
    release.set()


async def test_memra_request_started_and_memra_request_ended_come_in_order_and_disturb_nobody(
    caplog: pytest.LogCaptureFixture,
):
    seen: list[tuple[str, object]] = []

    async def ended(record) -> None:
        await trio.lowlevel.checkpoint()
        seen.append(("ended", record))

    recorder = plugin(
        memra_request_started=lambda question: seen.append(("started", question)), memra_request_ended=ended
    )
    house = plugins(plugin(memra_request_ended=fail), recorder)
    async with house.running():
        for _ in range(3):
            house.request_started(QUESTION)
            house.request_ended(RECORD)
    assert seen == [("started", QUESTION), ("ended", RECORD)] * 3
    assert caplog.text.count("plugin plugin0: memra_request_ended failed") == 3


async def test_an_observer_that_is_behind_loses_the_newest_and_is_named(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
):
    seen: list[int] = []
    begun = trio.Event()

    async def slow(record) -> None:
        begun.set()
        await trio.sleep(0.001)
        seen.append(record.num)

    house = plugins(plugin(memra_request_ended=slow))
    async with house.running():
        house.request_ended(SimpleNamespace(num=0))
        await begun.wait()
        for num in range(1, 1100):
            house.request_ended(SimpleNamespace(num=num))
    assert seen == list(range(1025))
    complaints = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert complaints == ["plugin plugin0: too slow to watch requests, 1 records lost so far"]


async def test_the_end_does_not_wait_for_an_observer_that_hangs(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
):
    async def hang(record) -> None:
        await trio.sleep(4)

    house = plugins(plugin(memra_request_ended=hang))
    before = trio.current_time()
    async with house.running():
        for _ in range(3):
            house.request_ended(RECORD)
    assert trio.current_time() - before <= 2
    assert "plugin plugin0: 2 records were not delivered" in caplog.text


async def test_records_are_delivered_and_plugins_let_go_also_when_the_server_is_cancelled():
    seen: list[object] = []

    def note(record) -> None:
        seen.append(record)

    house = plugins(plugin(memra_request_ended=note, memra_shutdown=lambda: seen.append("end")))
    with trio.CancelScope() as scope:
        async with house.running():
            house.request_ended(RECORD)
            scope.cancel()
            await trio.sleep_forever()
    assert seen == [RECORD, "end"]


async def test_memra_shutdown_is_called_once_for_all_with_one_limit(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
):
    seen: list[str] = []

    async def sleep() -> None:
        await trio.sleep_forever()

    async def quick() -> None:
        seen.append("quick")

    async def fail_at_once() -> None:  # in no thread: the clock would jump while it runs
        fail()

    house = plugins(plugin(memra_shutdown=sleep), plugin(memra_shutdown=quick), plugin(memra_shutdown=fail_at_once))
    before = trio.current_time()
    async with house.running():
        pass
    assert seen == ["quick"]
    assert trio.current_time() - before == pytest.approx(5)
    assert "plugin plugin0: memra_shutdown took longer than 5 s" in caplog.text
    assert "plugin plugin2: memra_shutdown failed" in caplog.text


class Handles:
    """What a plugin may do here: count."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.is_shutting_down = False

    async def purge_tenant(self, tenant: str) -> dict[str, str]:
        await trio.lowlevel.checkpoint()  # only trio can run this
        self.calls.append(tenant)
        if tenant == "nobody":
            raise KeyError(tenant)
        return {"tenant": tenant}

    def shut_down(self) -> None:
        self.calls.append(trio.lowlevel.current_task())


async def test_memra_ready_runs_beside_the_server_on_trio_in_a_thread_and_on_asyncio(caplog: pytest.LogCaptureFixture):
    handles: Any = Handles()
    done = {name: trio.Event() for name in ("trio", "thread", "asyncio")}
    token = trio.lowlevel.current_trio_token()

    async def on_trio(handles) -> None:
        await handles.purge_tenant("a")
        done["trio"].set()
        await trio.sleep_forever()

    def in_thread(handles) -> None:
        trio.from_thread.run(handles.purge_tenant, "b")
        token.run_sync_soon(done["thread"].set)

    async def on_asyncio(handles) -> None:
        assert await handles.purge_tenant("c") == {"tenant": "c"}
        with pytest.raises(KeyError):
            await handles.purge_tenant("nobody")
        assert handles.is_shutting_down is False
        handles.shut_down()
        token.run_sync_soon(done["asyncio"].set)

    house = plugins(
        plugin(memra_ready=on_trio),
        plugin(memra_ready=in_thread),
        plugin(loop="asyncio", memra_ready=on_asyncio),
        plugin(memra_ready=fail),
    )
    async with house.running(), trio.open_nursery() as nursery:
        nursery.start_soon(house.ready, handles)
        with trio.fail_after(5):
            for event in done.values():
                await event.wait()
        nursery.cancel_scope.cancel()
    assert sorted(call for call in handles.calls if isinstance(call, str)) == ["a", "b", "c", "nobody"]
    assert "plugin plugin3: memra_ready failed" in caplog.text


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
async def test_memra_ready_that_fails_ends_nothing_but_itself(loop: str, caplog: pytest.LogCaptureFixture):
    async def fail_later(handles) -> None:
        await handles.purge_tenant("nobody")

    house = plugins(plugin(loop=loop, memra_ready=fail_later))
    async with house.running():
        await house.ready(Handles())
    assert "memra_ready failed" in caplog.text


async def test_an_asyncio_plugin_that_keeps_its_handles_finds_them_closed():
    import asyncio  # noqa: PLC0415  (only here)

    kept: list[Any] = []
    outcomes: list[object] = []

    async def keep(handles) -> None:
        kept.append(handles)

    async def use() -> None:
        try:
            await asyncio.wait_for(kept[0].purge_tenant("a"), 5)
        except HandlesClosedError as error:
            outcomes.append(error)

    house = plugins(plugin(loop="asyncio", memra_ready=keep, memra_shutdown=use))
    async with house.running():
        await house.ready(Handles())
    assert [type(outcome) for outcome in outcomes] == [HandlesClosedError]


async def test_memra_feeds_are_rendered_in_a_thread_and_fail_by_name(caplog: pytest.LogCaptureFixture):
    def unavailable() -> None:
        raise FeedUnavailableError("`hugging_face_id` of m is not declared.")

    renders = {"blue": lambda cards: {"data": [threading.current_thread().name, *cards]}, "odd": lambda cards: cards}
    renders |= {"broken": lambda _: fail(), "unavailable": lambda _: unavailable()}
    house, owner = plugins(), Plugin("painter", "painter", None)
    feeds = {name: (owner, SimpleNamespace(schema=name, render=render)) for name, render in renders.items()}
    house._declared = Declared(feeds=feeds)
    card = ModelCard(ModelName("m"))
    thread, *cards = (await house.render_feed("blue", [card]))["data"]
    assert thread != threading.current_thread().name
    assert cards == [card]
    with pytest.raises(FeedUnavailableError, match="not declared"):
        await house.render_feed("unavailable", [card])
    for schema, words in (("odd", "must answer a mapping"), ("broken", "out of ink")):
        with pytest.raises(PluginFaultError):
            await house.render_feed(schema, [card])
        assert f"plugin painter: memra_feeds: {schema} failed" in caplog.text
        assert words in caplog.text


def test_memra_metering_comes_from_one_plugin_and_two_are_a_clash():
    metering = SimpleNamespace(
        enforces_limits=True,
        **dict.fromkeys(("is_limited", "reserve", "open", "captures", "limits_health", "drain_kill"), print),
    )
    brings = plugin(memra_metering=lambda models: metering if models == ("m",) else None)
    found = plugins(plugin(memra_metering=lambda: None), brings).metering([ModelName("m")])
    assert found is not None
    assert (found.metering, found.plugin.name) == (metering, "plugin1")
    assert plugins(brings).metering([]) is None
    with pytest.raises(UsageError, match="plugin plugin0 and plugin plugin1 both bring an accounting"):
        plugins(brings, brings_too := plugin(memra_metering=lambda: metering)).metering([ModelName("m")])
    assert brings_too
    with pytest.raises(StartupError, match="plugin plugin0: memra_metering failed: RuntimeError: out of ink"):
        plugins(plugin(memra_metering=fail)).metering([])
    with pytest.raises(StartupError, match="this has no enforces_limits"):
        plugins(plugin(memra_metering=lambda: 3)).metering([])


def test_memra_open_source_fetches_what_is_its_kind_and_tells_why_not(tmp_path: Path):
    def fetch(source, cache) -> Path | None:
        return cache if source == "s3:model" else None

    house = plugins(plugin(memra_open_source=fetch))
    assert house.open_source("s3:model", tmp_path) == tmp_path
    assert house.open_source("/m.gguf", tmp_path) is None
    with pytest.raises(SourceError, match="plugin plugin0: memra_open_source failed: RuntimeError: out of ink"):
        plugins(plugin(memra_open_source=fail)).open_source("s3:model", tmp_path)
    with pytest.raises(SourceError, match="path of something that exists"):
        plugins(plugin(memra_open_source=lambda: "/nowhere")).open_source("s3:model", tmp_path)


def test_memra_chat_template_takes_the_first_answer():
    first, second = (plugin(memra_chat_template=lambda template, mark=mark: mark + template) for mark in "12")
    house = plugins(plugin(memra_chat_template=lambda: None), first, second)
    assert house.chat_template(ModelName("m"), "llama", "x") == "1x"
    assert plugins().chat_template(ModelName("m"), "llama", "x") is None
    with pytest.raises(StartupError, match="Jinja"):
        plugins(plugin(memra_chat_template=lambda: 3)).chat_template(ModelName("m"), "llama", None)


@pytest.mark.parametrize("hook", ["memra_blueprints", "memra_admin_blueprints"])
def test_memra_blueprints_and_memra_admin_blueprints_get_the_handles(hook: str):
    handles = closed_handles()
    house = plugins(plugin(**{hook: lambda handles: [handles, "b"]}), plugin(**{hook: lambda: ()}))
    ask = house.blueprints if hook == "memra_blueprints" else house.admin_blueprints
    assert ask(handles) == (("plugin0", handles), ("plugin0", "b"))
    broken = plugins(plugin(**{hook: fail}))
    ask = broken.blueprints if hook == "memra_blueprints" else broken.admin_blueprints
    with pytest.raises(StartupError, match=f"plugin plugin0: {hook} failed"):
        ask(handles)


async def test_closed_handles_refuse_everything_that_the_contract_has():
    handles: Any = closed_handles()
    assert handles.is_shutting_down
    with pytest.raises(HandlesClosedError):
        await handles.trim()
    with pytest.raises(HandlesClosedError):
        handles.shut_down()
    with pytest.raises(AttributeError):
        _ = handles.colour
