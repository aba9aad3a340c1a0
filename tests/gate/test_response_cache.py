"""The table of stored answers: what it costs, who goes first, and when an answer is too old."""

import tracemalloc
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memra.gate.answer_key import AnswerKey
from memra.gate.response_cache import ResponseCache, StoredAnswer
from memra.messages.generation import ReplyDelta, ReplyFinished, ReplyStarted, ToolCallDelta, Usage
from memra.types import CacheStatus, StopCause

USAGE = Usage(prompt_tokens=3, completion_tokens=4, cached_tokens=1, elapsed_s=0.5)
COMPLETE = {
    StopCause.END_OF_SEQUENCE: True,
    StopCause.STOP_STRING: True,
    StopCause.STOP_TOKEN: True,
    StopCause.MAX_TOKENS: True,
    StopCause.CONTEXT_FULL: True,
    StopCause.TOOL_CALLS: True,
    StopCause.DEADLINE: False,
}
"""Whether a recompute would end there too; whoever adds a cause decides."""


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def key(name: str, weights: str = "w", tenant: str = "t") -> AnswerKey:
    return AnswerKey(weights, tenant, name.encode())


def answer(text: str = "hello", stop: StopCause = StopCause.END_OF_SEQUENCE) -> StoredAnswer:
    stored = StoredAnswer.of([ReplyDelta(text, (1, 2))], ReplyFinished(stop, USAGE))
    assert stored is not None
    return stored


def test_an_answer_comes_back_as_it_was_computed():
    deltas = [ReplyDelta("hé", (1, 2**31 - 1)), ReplyDelta("", (3,)), ReplyDelta("😀", ())]
    stored = StoredAnswer.of(deltas, ReplyFinished(StopCause.MAX_TOKENS, USAGE, CacheStatus.MISS))
    assert stored is not None
    started, delta, finished = stored.parts(USAGE)
    assert started == ReplyStarted(3, 1)
    assert delta == ReplyDelta("hé😀", (1, 2**31 - 1, 3))
    assert finished == ReplyFinished(StopCause.MAX_TOKENS, USAGE, CacheStatus.HIT)


def test_thoughts_and_calls_come_back_whole():
    deltas = [
        ReplyDelta("", (1,), "I must "),
        ReplyDelta("", (2,), "ask.", (ToolCallDelta(0, call_id="call_a", name="ask"),)),
        ReplyDelta("", (3,), "", (ToolCallDelta(0, '{"a":'), ToolCallDelta(1, call_id="call_b", name="tell"))),
        ReplyDelta("", (4,), "", (ToolCallDelta(0, "1}"), ToolCallDelta(1, "{}"))),
    ]
    stored = StoredAnswer.of(deltas, ReplyFinished(StopCause.TOOL_CALLS, USAGE))
    assert stored is not None
    calls = (ToolCallDelta(0, '{"a":1}', "call_a", "ask"), ToolCallDelta(1, "{}", "call_b", "tell"))
    assert stored.parts(USAGE)[1] == ReplyDelta("", (1, 2, 3, 4), "I must ask.", calls)
    assert stored.num_bytes > answer("").num_bytes + len("I must ask.") + 2 * len("call_a")
    assert "ask" not in repr(stored)


def test_the_stop_string_is_kept():
    stored = StoredAnswer.of([], ReplyFinished(StopCause.STOP_STRING, USAGE, stop_string="END"))
    assert stored is not None
    finished = ReplyFinished(StopCause.STOP_STRING, USAGE, CacheStatus.HIT, stop_string="END")
    assert stored.parts(USAGE)[-1] == finished


def test_an_empty_answer_has_no_delta():
    stored = StoredAnswer.of([], ReplyFinished(StopCause.END_OF_SEQUENCE, USAGE))
    assert stored is not None
    assert len(stored.parts(USAGE)) == 2


@pytest.mark.parametrize("stop", StopCause)
def test_every_way_to_end_is_decided(stop: StopCause):
    assert (StoredAnswer.of([], ReplyFinished(stop, USAGE)) is not None) is COMPLETE[stop]


def test_the_parts_of_an_answer_hold_nothing_that_is_not_stored():
    # A field that is added to a part must be stored as well: a hit would lack it.
    # Requests for log probabilities or for several choices are given no stored answer.
    assert ReplyDelta.__slots__ == ("text", "token_ids", "reasoning", "tool_calls", "logprobs", "choice", "stop")
    assert ReplyFinished.__slots__ == ("stop", "usage", "cache", "choice", "stop_string")
    assert ReplyStarted.__slots__ == ("num_prompt_tokens", "num_cached_tokens")


def test_the_words_are_not_in_the_repr():
    assert "hello" not in repr(answer("hello"))


def test_an_answer_grows_old_and_is_forgotten_when_it_is_asked_for():
    clock = Clock()
    cache = ResponseCache(10_000, ttl_s=60.0, clock=clock)
    cache.put(key("a"), answer())
    clock.now += 59.9
    assert cache.get(key("a")) == answer()
    clock.now += 0.1  # being asked for has not made it younger
    assert cache.num_entries == 1
    assert cache.get(key("a")) is None
    assert (cache.num_entries, cache.num_bytes) == (0, 0)


def test_a_new_answer_replaces_an_old_one_and_starts_its_time_anew():
    clock = Clock()
    cache = ResponseCache(10_000, ttl_s=60.0, clock=clock)
    cache.put(key("a"), answer("old"))
    clock.now += 59.0
    cache.put(key("a"), answer("new"))
    clock.now += 59.0
    assert cache.get(key("a")) == answer("new")
    cache.check_integrity()


def test_an_answer_larger_than_the_budget_drives_nobody_out():
    cache = ResponseCache(4000, ttl_s=60.0)
    cache.put(key("a"), answer())
    cache.put(key("b"), answer("x" * 4000))
    assert cache.get(key("b")) is None
    assert cache.get(key("a")) is not None


def test_only_the_answers_of_the_named_weights_are_forgotten():
    cache = ResponseCache(100_000, ttl_s=60.0)
    for weights in ("old", "new"):
        for name in "abc":
            cache.put(key(name, weights), answer())
    cache.forget("old")
    assert [cache.get(key(name, "old")) for name in "abc"] == [None] * 3
    assert all(cache.get(key(name, "new")) for name in "abc")
    cache.check_integrity()


def test_only_the_answers_of_the_named_tenant_are_forgotten():
    cache = ResponseCache(100_000, ttl_s=60.0)
    for tenant in ("gone", "kept"):
        for name in "abc":
            cache.put(key(name, tenant=tenant), answer())
    cache.forget_tenant("gone")
    assert [cache.get(key(name, tenant="gone")) for name in "abc"] == [None] * 3
    assert all(cache.get(key(name, tenant="kept")) for name in "abc")
    cache.check_integrity()


def test_the_answer_that_was_not_asked_for_the_longest_goes_first():
    cache = ResponseCache(3 * answer().num_bytes, ttl_s=60.0)
    for name in "abc":
        cache.put(key(name), answer())
    cache.get(key("a"))
    cache.put(key("d"), answer())
    assert [name for name in "abcd" if cache.get(key(name))] == ["a", "c", "d"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcdef"), st.integers(0, 1500)),
        st.tuples(st.just("get"), st.sampled_from("abcdef"), st.just(0)),
        st.tuples(st.just("wait"), st.just(""), st.integers(1, 40)),
        st.tuples(st.just("forget"), st.sampled_from("xy"), st.just(0)),
    ),
    min_size=20,
    max_size=60,
)


def weights_of(name: str) -> str:
    return "x" if name in "abc" else "y"


@given(STEPS)
def test_the_cache_is_a_list_in_order_of_use_within_its_budget(steps: list[tuple[str, str, int]]):
    limit, ttl = 4000, 60.0  # three small answers
    clock = Clock()
    cache = ResponseCache(limit, ttl_s=ttl, clock=clock)
    model: OrderedDict[str, tuple[StoredAnswer, float]] = OrderedDict()
    for action, name, number in steps:
        if action == "put":
            stored = answer("x" * number)
            cache.put(key(name, weights_of(name)), stored)
            model.pop(name, None)
            while model and sum(old.num_bytes for old, _ in model.values()) + stored.num_bytes > limit:
                model.popitem(last=False)
            model[name] = (stored, clock.now)
        elif action == "get":
            if name in model and clock.now - model[name][1] >= ttl:
                del model[name]
            expected = model[name][0] if name in model else None
            if expected is not None:
                model.move_to_end(name)
            assert cache.get(key(name, weights_of(name))) == expected
        elif action == "wait":
            clock.now += number
        else:
            cache.forget(name)
            model = OrderedDict((kept, entry) for kept, entry in model.items() if weights_of(kept) != name)
        cache.check_integrity()
        assert cache.num_entries == len(model)
        assert cache.num_bytes == sum(old.num_bytes for old, _ in model.values()) <= limit


def test_the_bytes_that_are_counted_are_no_fewer_than_those_that_are_used():
    cache = ResponseCache(1 << 30, ttl_s=60.0)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(2000):
            usage = Usage(1000 + number, 2000 + number, 3000 + number, number / 7)
            delta = ReplyDelta(f"{number} é" * 20, tuple(range(number, number + 50)))
            stored = StoredAnswer.of([delta], ReplyFinished(StopCause.MAX_TOKENS, usage))
            assert stored is not None
            cache.put(AnswerKey("w", "t", number.to_bytes(32, "big")), stored)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert cache.num_entries == 2000
    assert used <= cache.num_bytes <= 2 * used
