"""A server that streams chat answers from a script: what it is asked decides what it says."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]


def chunk(text: str) -> Mapping[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}


def usage(prompt_tokens: int, cached_tokens: int | None = None) -> Mapping[str, Any]:
    details = {} if cached_tokens is None else {"prompt_tokens_details": {"cached_tokens": cached_tokens}}
    return {"choices": [], "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": 2, **details}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "ChatServer"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.note(self.path, body, dict(self.headers))
        status, headers, content = self.server.reply(self.path, body)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        content = json.dumps(self.server.gauges).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: Any) -> None:
        pass


class ChatServer(ThreadingHTTPServer):
    """`answer` maps a body to events; `refusals` are statuses for the next requests, with a Retry-After of 0.01."""

    daemon_threads = False
    finishes = True

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.refusals: list[int] = []
        self.other: dict[str, Mapping[str, Any]] = {}
        self.gauges: dict[str, Any] = {"active_sessions": 0, "queued_requests": 0, "kv_pages_free": 4}
        self.gauges |= {"kv_pages_total": 4, "step_p99_ms": 5.0}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def note(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> None:
        with self._lock:
            if path.startswith("/v1/"):
                self.asked.append(body)
                self.headers.append(headers)

    def reply(self, path: str, body: Mapping[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        with self._lock:
            refusal = self.refusals.pop(0) if self.refusals and path.startswith("/v1/") else None
        if refusal is not None:
            return refusal, {"Retry-After": "0.01"}, b'{"error": {"message": "later"}}'
        if not path.startswith("/v1/"):
            found = self.other.get(path)
            return (404, {}, b"{}") if found is None else (200, {}, json.dumps(found).encode())
        finish = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        values = [*self.answer(body), *([finish] if self.finishes else [])]
        events = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in values)
        return 200, {"Content-Type": "text/event-stream"}, b": a comment\n\n" + events + b"data: [DONE]\n\n"


@contextmanager
def chat_server(answer: Answer) -> Iterator[ChatServer]:
    server = ChatServer(answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
