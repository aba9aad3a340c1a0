from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from memra.cli_bench.agents.chat_stream import Endpoint, StreamedAnswer
from memra.cli_bench.agents.replay import Replay, ReplayTarget, TurnResult, differing_turns, digest_of
from memra.cli_bench.agents.replay_report import digests_json, estimate_recomputed, render, sum_up, to_json
from memra.cli_bench.agents.transcript import Turn
from tests.cli_bench.agents.chat_server import ChatServer, chat_server, chunk, usage


class Characters:
    """A character a token."""

    is_exact = True

    def of_chat(self, body: Mapping[str, Any]) -> Sequence[int]:
        return self.of_text("".join(f"<{message['content']}>" for message in body["messages"]))

    def of_text(self, text: str) -> Sequence[int]:
        return [ord(character) for character in text]


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _turn(name: str, *contents: Any, model: str = "m", **fields: Any) -> Turn:
    body = {"model": model, "messages": [_user(content) for content in contents]}
    return Turn(name, fields.pop("agent", "main"), body, **fields)


def _echo(body: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Say the last message backwards; two thirds of the prompt are said to be cached."""
    prompt = sum(len(message["content"]) + 2 for message in body["messages"])
    return [*map(chunk, reversed(body["messages"][-1]["content"])), usage(prompt, 2 * prompt // 3)]


@pytest.fixture
def server():
    with chat_server(_echo) as server:
        yield server


def _play(server: ChatServer, *turns: Turn, **options: Any) -> list[TurnResult]:
    target = ReplayTarget(Endpoint.parse(server.url), {}, {"m": Characters()}, **options)
    return Replay(turns, target).run(lambda _: None)


def test_answers_are_inserted_and_turns_are_in_order(server):
    answer = {"before": "(", "answer_of": "1", "then": ")"}
    results = _play(server, _turn("1", "abc"), _turn("2", "abc", answer, "de"))
    assert [message["content"] for message in server.asked[1]["messages"]] == ["abc", "(cba)", "de"]
    assert [result.answer.text for result in results] == ["cba", "ed"]


def test_what_is_new_lies_behind_the_longest_known_beginning(server):
    answer = {"answer_of": "1"}
    first, again, longer, other = _play(
        server, _turn("1", "abc"), _turn("2", "abc"), _turn("3", "abc", answer, "de"), _turn("4", "abd")
    )
    assert (first.num_prompt, first.num_cached, first.num_recomputed, first.num_new) == (5, 3, 2, 5)
    assert again.num_new == 1  # the logits of the last token are always needed
    assert longer.num_new == len("<abc><cba><de>") - len("<abc>")
    assert other.num_new == len("d>")


def test_the_answer_itself_counts_as_known(server):
    results = _play(server, _turn("1", "abc"), _turn("2", "abc>cb"))
    assert results[1].num_new == len("<abc>cb>") - len("<abc>cb")


def test_a_model_knows_nothing_of_anothers_prompts(server):
    target = ReplayTarget(Endpoint.parse(server.url), {"n": "served"}, {"m": Characters(), "n": Characters()})
    turns = [_turn("1", "abc"), _turn("2", "abc", model="n")]
    results = Replay(turns, target).run(lambda _: None)
    assert [result.num_new for result in results] == [5, 5]
    assert [body["model"] for body in server.asked] == ["m", "served"]


def test_agents_wait_for_each_other_where_they_say_so(server):
    turns = [
        _turn("a1", "a"),
        _turn("b1", "b", {"answer_of": "a1"}, agent="b"),
        _turn("a2", "c", after=("b1",)),
        _turn("b2", "d", agent="b", after=("a2",)),
    ]
    _play(server, *turns)
    assert [body["messages"][0]["content"] for body in server.asked] == ["a", "b", "c", "d"]


def test_a_client_that_leaves_has_no_digest(server):
    whole, left = _play(server, _turn("1", "abcdef"), _turn("2", "abcdef", cancel_after_tokens=2))
    assert (left.answer.text, left.digest) == ("fe", None)
    assert whole.digest is not None


def test_a_turn_whose_answer_is_missing_is_not_sent(server):
    server.refusals = [500]
    results = _play(server, _turn("1", "abc"), _turn("2", {"answer_of": "1"}), _turn("3", "x"))
    assert [result.answer.is_failed for result in results] == [True, True, False]
    assert "turn 1 has no answer" in results[1].answer.describe_failure()
    assert "turn 2 failed" in render(results)


def test_cold_requests_have_salts_of_their_own(server):
    results = _play(server, _turn("1", "abc"), _turn("2", "abc"), is_cold=True)
    salts = [body["cache_salt"] for body in server.asked]
    assert len(set(salts)) == 2
    assert [result.num_new for result in results] == [None, None]
    assert "cold" in render(results, is_cold=True)


def test_equal_answers_have_equal_digests_and_another_is_named(server):
    turns = [_turn("1", "abc"), _turn("2", "def")]
    first, second = _play(server, *turns), _play(server, *turns)
    expected = digests_json(first)["turns"]
    assert digest_of(first) == digest_of(second)
    assert differing_turns(second, expected) == []
    server.answer = lambda _: [chunk("cba"), usage(5)]
    assert differing_turns(_play(server, *turns), expected) == ["2"]
    assert differing_turns(second[:1], {}) == ["1"]


def test_totals_are_those_of_whole_answers(server):
    results = _play(server, _turn("1", "abcd"), _turn("2", "abcde", cancel_after_tokens=1), _turn("3", "abcdef"))
    (total,) = sum_up(results)
    assert (total.num_turns, total.num_prompt, total.num_cached, total.num_recomputed) == (2, 14, 9, 5)
    assert total.num_new == 6 + 2
    assert total.ratio == 5 / 8
    assert "0.625" in render(results)
    assert to_json(results, url="u")["models"][0]["recomputed_over_new"] == 5 / 8


def test_what_a_server_does_not_report_is_said_and_estimates_are_marked(server):
    server.answer = lambda _: [chunk("a")]
    results = _play(server, _turn("1", "abc" * 100), _turn("2", "abc" * 100))
    assert [result.num_prompt for result in results] == [302, 302]
    text = render(results)
    assert "not reported" in text
    assert "~302" in text
    assert estimate_recomputed(results)["1"] == pytest.approx(302)
    assert to_json(results, url="u")["models"][0]["recomputed_tokens"] is None


def test_the_estimate_is_at_the_best_speed_that_new_tokens_came_at():
    def result(name: str, *, num_new: int, first_s: float) -> TurnResult:
        answer = StreamedAnswer(status=200, times=[first_s], is_complete=True)
        return TurnResult(_turn(name, "x"), answer, num_counted=1000, num_new=num_new)

    slow, fast = result("1", num_new=1000, first_s=10.0), result("2", num_new=1000, first_s=2.0)
    known = result("3", num_new=10, first_s=0.1)
    assert estimate_recomputed([slow, fast, known]) == {"1": 1000.0, "2": 1000.0, "3": pytest.approx(50.0)}


def test_without_a_count_nothing_is_called_new(server):
    target = ReplayTarget(Endpoint.parse(server.url), {}, {})
    results = Replay([_turn("1", "abc")], target).run(lambda _: None)
    assert results[0].num_new is None
    assert "--model-file" in render(results)


def test_llama_servers_timings_are_read(server):
    server.answer = lambda _: [chunk("a"), {"choices": [], "timings": {"cache_n": 30, "prompt_n": 12}}]
    (result,) = _play(server, _turn("1", "abc"))
    assert (result.num_prompt, result.num_cached, result.num_recomputed) == (42, 30, 12)
    assert "counts other prompt tokens" in render([result])
