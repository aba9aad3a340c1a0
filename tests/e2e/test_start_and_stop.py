"""What a person sees who starts memra rightly, wrongly, and stops it."""

import json
import signal
import socket
import struct
from pathlib import Path

import gguf
import httpx
import pytest

from memra.engine.executor_choice import find_native_obstacle
from tests.e2e.server_process import Start, run_to_end

CHAT = {"messages": [{"role": "user", "content": "Count from one to fifty."}], "temperature": 0}


def _gguf(path: Path, architecture: str) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_uint32(f"{architecture}.block_count", 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _assert_one_clear_line(result, code: int, *words: str) -> None:
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    complaint = [line for line in result.stderr.splitlines() if line.startswith("memra: ")]
    assert len(complaint) == 1, result.stderr
    for word in words:
        assert word in complaint[0]


def test_an_unknown_architecture_is_refused_by_name(tmp_path: Path):
    path = _gguf(tmp_path / "odd.gguf", "perceptron")
    _assert_one_clear_line(run_to_end("run", "-m", f"odd={path}"), 1, "odd", "perceptron", "llama")


def test_an_empty_file_is_refused_by_name(tmp_path: Path):
    path = tmp_path / "empty.gguf"
    path.touch()
    _assert_one_clear_line(run_to_end("run", "-m", f"void={path}"), 1, "empty.gguf")


def test_a_missing_path_is_refused_by_name(tmp_path: Path):
    _assert_one_clear_line(run_to_end("run", "-m", f"gone={tmp_path}/no.gguf"), 1, "gone", "no.gguf")


def test_a_header_that_lies_is_refused(tmp_path: Path):
    path = tmp_path / "lies.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60))
    _assert_one_clear_line(run_to_end("run", "-m", f"lies={path}"), 1, "lies.gguf")


@pytest.mark.models
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, smollm2_path: Path):
    path = tmp_path / "half.gguf"
    with smollm2_path.open("rb") as whole:
        path.write_bytes(whole.read(40_000_000))
    _assert_one_clear_line(run_to_end("run", "-m", f"half={path}"), 1, "half.gguf")


def test_a_bad_setting_and_a_bad_argument_are_refused():
    _assert_one_clear_line(run_to_end("run", environ={"MEMRA_CTX": "big"}), 1, "MEMRA_CTX")
    assert run_to_end("run", "--colour").returncode == 2
    assert run_to_end("fly").returncode == 2


def test_an_open_address_without_a_key_is_refused():
    result = run_to_end("run", environ={"MEMRA_ADDR": "0.0.0.0:0"})
    # The command line of run_to_end gives no address, so the variable counts.
    _assert_one_clear_line(result, 1, "MEMRA_API_KEY", "MEMRA_ALLOW_OPEN_BIND")


def test_a_port_in_use_is_refused_by_name():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        _assert_one_clear_line(run_to_end("run", "--address", f"127.0.0.1:{port}"), 1, str(port), "in use")


@pytest.mark.models
@pytest.mark.parametrize(("host_loop", "executor"), [("trio", "torch"), ("asyncio", "torch"), ("asyncio", "auto")])
def test_the_same_house_serves_and_drains_on_both_loops(
    start: Start, smollm2_path: Path, host_loop: str, executor: str
):
    server = start("-m", f"small={smollm2_path}", "--host-loop", host_loop, environ={"MEMRA_EXECUTOR": executor})
    said = "".join(server.said)
    assert "small" in said
    assert "llama" in said
    assert httpx.get(f"{server.url}/readyz").status_code == 200
    answer = httpx.post(
        f"{server.url}/v1/chat/completions", json=CHAT | {"model": "small", "max_tokens": 8}, timeout=60
    )
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 8
    assert server.stop() == 0
    assert "Traceback" not in server.output()


@pytest.mark.models
def test_sigterm_lets_a_stream_finish_and_refuses_new_work(start: Start, smollm2_path: Path):
    # On torch, whose answer takes seconds: time enough to look around while it runs.
    server = start("-m", f"small={smollm2_path}", environ={"MEMRA_EXECUTOR": "torch"})
    body = CHAT | {"model": "small", "stream": True, "max_tokens": 60}
    with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=60) as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("data: "))
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("drain")
        assert httpx.get(f"{server.url}/livez").json()["status"] == "draining"
        assert httpx.get(f"{server.url}/readyz").status_code == 503
        refused = httpx.post(f"{server.url}/v1/chat/completions", json=CHAT | {"model": "small"})
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "draining"
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        rest = list(lines)
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] in {"length", "stop"}
    assert server.process.wait(timeout=30) == 0


@pytest.mark.models
def test_a_drain_that_takes_too_long_is_cut(start: Start, smollm2_path: Path):
    server = start("-m", f"small={smollm2_path}", environ={"MEMRA_DRAIN_S": "0.2", "MEMRA_EXECUTOR": "torch"})
    body = CHAT | {"model": "small", "stream": True, "max_tokens": 4000}
    with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=60) as stream:
        lines = stream.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2].removeprefix("data: "))["error"]["code"] == "draining"
    assert server.process.wait(timeout=30) == 0


@pytest.mark.models
@pytest.mark.skipif(find_native_obstacle() is not None, reason="the native engine is not built")
def test_serving_on_the_native_engine_never_imports_torch(start: Start, smollm2_path: Path, tmp_path: Path):
    (tmp_path / "torch.py").write_text("raise AssertionError('torch was imported')")
    server = start("-m", f"small={smollm2_path}", environ={"MEMRA_EXECUTOR": "cpu", "PYTHONPATH": str(tmp_path)})
    answer = httpx.post(
        f"{server.url}/v1/chat/completions", json=CHAT | {"model": "small", "max_tokens": 8}, timeout=60
    )
    assert answer.status_code == 200
    assert server.stop() == 0
    assert "torch was imported" not in server.output()


@pytest.mark.models
@pytest.mark.skipif(find_native_obstacle() is not None, reason="the native engine is not built")
def test_two_servers_share_one_file_of_repacked_weights(start: Start, smollm2_path: Path, tmp_path: Path):
    environ = {"MEMRA_EXECUTOR": "cpu", "MEMRA_REPACK_CACHE": str(tmp_path / "tiles")}
    servers = [start("-m", f"small={smollm2_path}", environ=environ) for _ in range(2)]  # as in a rolling restart
    answers = [
        httpx.post(f"{server.url}/v1/chat/completions", json=CHAT | {"model": "small", "max_tokens": 8}, timeout=60)
        for server in servers
    ]
    texts = [answer.json()["choices"][0]["message"]["content"] for answer in answers]
    assert texts[0] == texts[1] != ""
    (kept,) = (tmp_path / "tiles").iterdir()
    for server in servers:
        assert str(kept) in Path(f"/proc/{server.process.pid}/maps").read_text()
        assert server.stop() == 0
    assert "are kept in" in servers[0].output()
    assert "are kept in" not in servers[1].output()
