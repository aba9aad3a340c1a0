import shutil
import socket

import pytest

from memra.cli_bench.load_client import CompiledClient, Target, ThreadClient, make_load_client
from memra.cli_bench.streams import Stream, summarise
from memra.errors import MeasurementError
from tests.cli_bench.sse_server import WORDS, sse_server


@pytest.fixture(scope="module", params=["compiled", "Python threads"])
def client(request, tmp_path_factory):
    if request.param == "Python threads":
        return ThreadClient()
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    return make_load_client(tmp_path_factory.mktemp("client"))


@pytest.fixture
def server():
    with sse_server() as server:
        yield server


def _drive(client, server, num_requests: int = 3) -> list[Stream]:
    target = Target.parse(server.url)
    requests = [target.request({"prompt": f"number {at}"}, api_key="secret") for at in range(num_requests)]
    return client.drive(target, requests)


@pytest.mark.parametrize("chunk_bytes", [1, 7, 100_000])
def test_streams_are_read_whatever_the_framing(client, server, chunk_bytes: int):
    server.chunk_bytes = chunk_bytes
    streams = _drive(client, server)
    assert [stream.status for stream in streams] == [200] * 3
    assert all(stream.is_done for stream in streams)
    assert [stream.num_tokens for stream in streams] == [7] * 3
    assert [len(stream.times) for stream in streams] == [len(WORDS) + 1] * 3
    for stream in streams:
        assert list(stream.times) == sorted(stream.times)


def test_requests_arrive_whole_and_with_their_key(client, server):
    _drive(client, server)
    assert sorted(body["prompt"] for body in server.bodies) == ["number 0", "number 1", "number 2"]
    assert {(body["path"], body["authorization"]) for body in server.bodies} == {("/v1/completions", "Bearer secret")}


def test_events_count_as_tokens_where_there_is_no_usage(client, server):
    server.tells_usage = False
    assert summarise(_drive(client, server)).num_tokens == 3 * len(WORDS)


def test_a_refusal_is_no_figure(client, server):
    server.status = 429
    with pytest.raises(MeasurementError, match="status 429"):
        summarise(_drive(client, server))


def test_a_stream_that_breaks_off_is_no_figure(client, server):
    server.ends = False
    with pytest.raises(MeasurementError, match="not finished"):
        summarise(_drive(client, server))


def test_a_server_that_is_not_there_is_named(client):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        target = Target.parse(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(MeasurementError, match=str(target.port)):
            client.drive(target, [target.request({}, api_key=None)])


def test_without_a_compiler_python_takes_over(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert isinstance(make_load_client(tmp_path), ThreadClient)


def test_a_compiler_that_fails_is_no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "false")
    assert not isinstance(make_load_client(tmp_path), CompiledClient)


def test_only_plain_http_is_spoken():
    with pytest.raises(MeasurementError, match=r"https://host/v1: .*plain HTTP"):
        Target.parse("https://host/v1")
    assert Target.parse("http://host:8000") == Target("host", 8000, "/v1")
    assert Target.parse("http://host/api/") == Target("host", 80, "/api")
