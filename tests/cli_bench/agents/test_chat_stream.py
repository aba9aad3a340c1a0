import socket

import pytest

from memra.cli_bench.agents.chat_stream import Endpoint, Leaving, stream_chat, stream_request
from memra.errors import MeasurementError
from tests.cli_bench.agents.chat_server import Answer, chat_server, chunk, usage

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def _role_then(*texts: str) -> Answer:
    return lambda _: [chunk(""), *map(chunk, texts), usage(7, 3)]


def test_a_chat_is_read_to_its_end():
    with chat_server(_role_then("a", "b", "c")) as server:
        answer = stream_chat(Endpoint.parse(server.url, api_key="secret"), BODY, headers={"x-lane": "judge"})
    assert (answer.status, answer.text, answer.is_complete, answer.is_failed) == (200, "abc", True, False)
    assert len(answer.times) == 3
    assert len(answer.gaps_s) == 2
    assert answer.usage is not None
    assert answer.usage["prompt_tokens"] == 7
    assert server.asked == [{**BODY, "stream": True, "stream_options": {"include_usage": True}}]
    assert (server.headers[0]["Authorization"], server.headers[0]["x-lane"]) == ("Bearer secret", "judge")


def test_a_client_leaves_after_so_many_events():
    with chat_server(_role_then("a", "b", "c")) as server:
        answer = stream_chat(Endpoint.parse(server.url), BODY, leaving=Leaving(after_events=2))
    assert (answer.text, answer.has_left, answer.is_complete, answer.is_failed) == ("ab", True, False, False)


def test_a_client_leaves_a_server_that_does_not_answer():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = Endpoint.parse(f"http://127.0.0.1:{silent.getsockname()[1]}")
        answer = stream_chat(endpoint, BODY, leaving=Leaving(after_s=0.02))
    assert (answer.has_left, answer.status, answer.is_failed) == (True, 0, False)
    assert answer.total_s >= 0.02


def test_a_refusal_tells_when_to_come_back():
    with chat_server(_role_then("a")) as server:
        server.refusals = [429]
        answer = stream_chat(Endpoint.parse(server.url), BODY)
    assert (answer.status, answer.retry_after_s, answer.is_failed) == (429, 0.01, True)
    assert "later" in answer.describe_failure()


def test_a_stream_without_its_end_is_a_failure():
    with chat_server(lambda _: [chunk("a"), {"error": {"message": "broken"}}]) as server:
        answer = stream_chat(Endpoint.parse(server.url), BODY)
    assert answer.is_failed
    assert "broken" in answer.describe_failure()


def test_an_answer_without_a_finish_reason_was_cut_off():
    with chat_server(_role_then("a")) as server:
        server.finishes = False
        answer = stream_chat(Endpoint.parse(server.url), BODY)
    assert answer.is_failed
    assert "cut off" in answer.describe_failure()


def test_native_events_tell_token_ids():
    events = [{"model": "m", "id": 5, "text": ""}, {"model": "m", "id": 6, "text": "ab"}, {"id": None, "text": "c"}]
    with chat_server(lambda _: events) as server:
        answer = stream_request(Endpoint.parse(server.url), "/completions", {"prompt": "x"})
    assert (answer.token_ids, answer.text) == ([5, 6], "abc")


def test_reasoning_and_timings_are_kept_apart():
    events = [
        {"choices": [{"delta": {"reasoning_content": "hm"}}]},
        chunk("a"),
        {"choices": [], "timings": {"cache_n": 2}},
    ]
    with chat_server(lambda _: events) as server:
        answer = stream_chat(Endpoint.parse(server.url), BODY)
    assert (answer.reasoning, answer.text, answer.timings) == ("hm", "a", {"cache_n": 2})


def test_nobody_there_is_an_answer_of_its_own():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        endpoint = Endpoint.parse(f"http://127.0.0.1:{taken.getsockname()[1]}")
        assert "no answer" in stream_chat(endpoint, BODY).describe_failure()
        with pytest.raises(MeasurementError, match="does not answer"):
            endpoint.call("GET", "/metrics")


def test_an_address_is_read_with_its_defaults():
    assert Endpoint.parse("http://host") == Endpoint("http", "host", 80, "/v1")
    assert Endpoint.parse("https://host/api/") == Endpoint("https", "host", 443, "/api")
    with pytest.raises(MeasurementError, match="host:80"):
        Endpoint.parse("host:80")
