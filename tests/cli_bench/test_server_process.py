"""The process that stands for `memra run`, driven with a program that speaks as it does."""

import os
import sys
from pathlib import Path

import pytest

from memra.cli_bench import server_process
from memra.cli_bench.server_process import ServerProcess
from memra.errors import MeasurementError

_PROGRAM = """#!{python}
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    num_probes = 0

    def do_GET(self):
        Handler.num_probes += 1
        self.answer(200 if Handler.num_probes > 2 else 503, b"{{}}")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != "Bearer secret" or body["model"] != "tiny" or "-m" not in sys.argv:
            self.answer(401, b"closed")
        else:
            self.answer(200, json.dumps({{"usage": {{"total_tokens": 3 + body["max_tokens"]}}}}).encode())

    def answer(self, status, content):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass

server = HTTPServer(("127.0.0.1", 0), Handler)
print("INFO model tiny is loaded on cpu-avx2 in 1 s", file=sys.stderr)
print("memra is listening on http://127.0.0.1:" + str(server.server_address[1]), flush=True)
if "--end" in sys.argv:
    server.handle_request()
    print("last words", file=sys.stderr, flush=True)
    os._exit(3)
server.serve_forever()
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch):
    program = tmp_path / "memra"
    program.write_text(_PROGRAM.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(server_process.sys, "executable", str(program))
    servers = []

    def start(*arguments: str, api_key: str | None = None) -> ServerProcess:
        servers.append(
            ServerProcess("tiny", Path("/tiny.gguf"), environ=os.environ, arguments=arguments, api_key=api_key)
        )
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def test_a_server_is_ready_when_its_probe_is_green(start):
    server = start()
    assert server.backend == "cpu-avx2"
    first = server.wait_until_ready()
    assert 0 < first <= server.wait_until_ready()


def test_a_prompt_is_answered_with_the_key(start):
    assert start(api_key="secret").complete("Once", max_tokens=5) == 8


def test_a_refusal_is_an_error_that_has_its_status(start):
    with pytest.raises(MeasurementError, match="status 401: b'closed'"):
        start().complete("Once", max_tokens=5)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_its_memory_is_that_of_its_process(start):
    memory = start().read_memory()
    assert memory is not None
    assert memory.anonymous_bytes > 0


def test_a_server_that_ends_instead_is_told_with_its_words(start):
    with pytest.raises(MeasurementError, match=r"(?s)does not answer: .*last words"):
        start("--end").wait_until_ready()
