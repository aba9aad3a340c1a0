"""What a plugin author tests first: that memra takes the plugin, and that one request goes all the way through it."""

import memra_metering_noop
import pytest
import trio

from memra.errors import UsageError
from memra.plugins import Outcome, RequestMeta, UsageCounts
from memra.plugins.manager import Plugins
from memra.plugins.metering_calls import MeteringCalls
from memra.types import Lane, ModelName, RequestId

MODEL = ModelName("small")
META = RequestMeta(RequestId("r1"), "acme", None, MODEL, "/v1/completions", Lane.INTERACTIVE, is_stream=False)


def loaded() -> MeteringCalls:
    plugins = Plugins()
    plugins.register(memra_metering_noop, "metering_noop")
    calls = plugins.metering((MODEL,))
    assert calls is not None
    return calls


def test_memra_accepts_every_hook_of_the_plugin():
    plugins = Plugins()
    plugins.register(memra_metering_noop, "metering_noop")
    assert plugins.names == ("metering_noop",)


def test_the_plugin_loads_from_its_entry_point_and_refuses_every_key():
    plugins = Plugins()
    with pytest.raises(UsageError, match=r"\[plugins.metering_noop\].*colour"):
        plugins.load(blocked=(), tables={"metering_noop": {"colour": "red"}})


def test_a_request_comes_to_every_end():
    calls = loaded()

    async def go() -> None:
        assert calls.enforces_limits
        assert await calls.is_limited("acme")
        assert not await calls.captures("acme")
        assert await calls.limits_health() is None
        worst = await calls.reserve("acme", principal=None, model=MODEL, prompt_tokens=12, completion_bound=200)
        receipt = await calls.open(META, worst)
        calls.record_prompt_usage(receipt, 12, 0)
        calls.record_completion_tokens(receipt, 1)
        usage = UsageCounts(12, 0, 1)
        await calls.complete(receipt, usage, elapsed_s=0.1)
        await calls.complete_deadline_partial(await calls.open(META, None), usage, elapsed_s=0.1)
        await calls.abandon(await calls.open(META, None))
        await calls.reject(await calls.open(META, None), 429, "shed_queue")
        await calls.settle_unbilled(await calls.open(META, None), Outcome.CRASHED, 500, None)
        calls.drain_kill()

    trio.run(go)
