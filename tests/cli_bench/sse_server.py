"""A server that streams completions as OpenAI's does, in chunked transfer, from a script."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ["Once", " upon", ' \\"a\\"', " data: ", "time"]
"""Among them words that a careless reader takes for something else."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append({**body, "path": self.path, "authorization": self.headers["Authorization"]})
        self.send_response(self.server.status)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        stream = b"".join(self._events())
        for at in range(0, len(stream), self.server.chunk_bytes):
            part = stream[at : at + self.server.chunk_bytes]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def _events(self) -> Iterator[bytes]:
        for word in WORDS:
            yield self._event({"choices": [{"index": 0, "text": word, "finish_reason": None}], "usage": None})
        yield self._event({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}], "usage": None})
        if self.server.tells_usage:
            yield self._event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 7}})
        if self.server.ends:
            yield b"data: [DONE]\n\n"

    @staticmethod
    def _event(value: Any) -> bytes:
        return b": a comment\n\ndata: " + json.dumps(value).encode() + b"\n\n"

    def log_message(self, *arguments: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    chunk_bytes = 7
    status = 200
    tells_usage = True
    ends = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


@contextmanager
def sse_server() -> Iterator[_Server]:
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
