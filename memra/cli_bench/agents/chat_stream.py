"""One streamed request to an OpenAI-compatible server, timed event by event, and left early where that is asked.

Speaks HTTP with the standard library alone and reads all three shapes: chat chunks, completion chunks, and memra's
native events with token ids. Refuses to know what is asked and why. Called by the replay, the benchmarks and the soak.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from memra.errors import MeasurementError

OK = 200
BUSY = 429
_LIMIT_S = 600.0
_ERROR_CHARS = 300


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server and the path before `/chat/completions`.

    Attributes:
        path: `/v1` where the URL has none.
        api_key: that opens it.
    """

    scheme: str
    host: str
    port: int
    path: str
    api_key: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str, *, api_key: str | None = None) -> "Endpoint":
        """Read `http[s]://host[:port][/v1]`.

        Raises:
            MeasurementError: it is something else.
        """
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise MeasurementError(f"{url}: is no address of a server; give http://HOST:PORT/v1")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return cls(parts.scheme, parts.hostname, port, parts.path.rstrip("/") or "/v1", api_key)

    def connect(self, *, timeout_s: float = _LIMIT_S) -> HTTPConnection:
        """Return a connection that opens itself when it is used; whoever asked for it closes it."""
        kind = HTTPSConnection if self.scheme == "https" else HTTPConnection
        return kind(self.host, self.port, timeout=timeout_s)

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        key = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return {"Content-Type": "application/json", **key}

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        """Ask one thing that is not streamed; `path` counts from the server's root.

        Raises:
            MeasurementError: the server does not answer.
        """
        connection = self.connect()
        content = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, content, self.headers)
            reply = connection.getresponse()
            return reply.status, reply.read()
        except (OSError, HTTPException) as error:
            raise MeasurementError(f"{self.host}:{self.port} does not answer {path}: {error}") from error
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class Leaving:
    """When the client leaves, whatever comes first; by default it stays.

    Attributes:
        after_events: events with text that it reads before.
        after_s: seconds since the request was sent.
    """

    after_events: int | None = None
    after_s: float | None = None


STAY = Leaving()


@dataclass(slots=True)
class StreamedAnswer:
    """What came.

    Attributes:
        status: of HTTP; 0 when no answer came.
        text: what is shown; `reasoning` is what the server sends apart from it.
        token_ids: where the server tells them.
        times: seconds since the request was sent, of every event with text or a token.
        total_s: seconds until the stream ended or was left.
        usage: the server's, as sent.
        timings: llama-server's, as sent.
        finish: OpenAI's finish reason; None where none came.
        error: in the server's words, or the connection's.
        retry_after_s: from the header of a refusal.
        has_left: whether the client left early.
        is_complete: whether the stream came to its own end.
    """

    status: int = 0
    text: str = ""
    reasoning: str = ""
    token_ids: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    total_s: float = 0.0
    usage: Mapping[str, Any] | None = None
    timings: Mapping[str, Any] | None = None
    finish: str | None = None
    error: str | None = None
    retry_after_s: float | None = None
    has_left: bool = False
    is_complete: bool = False

    @property
    def gaps_s(self) -> list[float]:
        """Seconds between one event and the next."""
        return [after - before for before, after in pairwise(self.times)]

    @property
    def is_failed(self) -> bool:
        """Whether something else came than a whole answer, or one that the client left."""
        return not (self.has_left or (self.is_complete and self.error is None))

    def describe_failure(self) -> str:
        """What is wrong, in a line."""
        if self.status == 0:
            return f"no answer: {self.error}"
        return f"status {self.status}: {self.error or 'the stream broke off'}"


def stream_chat(
    endpoint: Endpoint, body: Mapping[str, Any], *, headers: Mapping[str, str] | None = None, leaving: Leaving = STAY
) -> StreamedAnswer:
    """Have a chat answered; the body is made to stream and to ask for its usage. Never raises: see `is_failed`."""
    streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
    return stream_request(endpoint, "/chat/completions", streamed, headers=headers, leaving=leaving)


def stream_request(
    endpoint: Endpoint,
    path: str,
    body: Mapping[str, Any],
    *,
    headers: Mapping[str, str] | None = None,
    leaving: Leaving = STAY,
) -> StreamedAnswer:
    """Send a streaming request and read its answer, or the part of it that the client waits for.

    Args:
        endpoint: the server.
        path: behind the endpoint's own.
        body: as it is sent.
        headers: beside the endpoint's.
        leaving: when to close the connection.
    """
    answer = StreamedAnswer()
    limit_s = _LIMIT_S if leaving.after_s is None else max(leaving.after_s, 1e-3)
    connection = endpoint.connect(timeout_s=limit_s)
    sent_at = time.perf_counter()
    try:
        content = json.dumps(body).encode()
        connection.request("POST", endpoint.path + path, content, {**endpoint.headers, **(headers or {})})
        _read(connection.getresponse(), answer, sent_at=sent_at, leaving=leaving)
    except TimeoutError as error:
        answer.has_left = leaving.after_s is not None
        answer.error = None if answer.has_left else str(error)
    except (OSError, HTTPException, ValueError) as error:
        answer.error = f"{type(error).__name__}: {error}"
    finally:
        connection.close()
        answer.total_s = time.perf_counter() - sent_at
    return answer


def _read(reply: HTTPResponse, answer: StreamedAnswer, *, sent_at: float, leaving: Leaving) -> None:
    answer.status = reply.status
    if reply.status != OK:
        answer.error = reply.read().decode("utf-8", "replace")[:_ERROR_CHARS]
        waited = reply.headers.get("Retry-After")
        answer.retry_after_s = float(waited) if waited and waited.replace(".", "", 1).isdigit() else None
        return
    event = ""
    for line in reply:
        now = time.perf_counter() - sent_at
        if line.startswith(b"event:"):
            event = line[6:].strip().decode()
        elif line.startswith(b"data:") and _take(line[5:].strip(), event, answer, now):
            answer.is_complete = True
            return
        if _is_over(answer, now, leaving):
            answer.has_left = True
            return


def _is_over(answer: StreamedAnswer, now: float, leaving: Leaving) -> bool:
    has_enough = leaving.after_events is not None and len(answer.times) >= leaving.after_events
    return has_enough or (leaving.after_s is not None and now >= leaving.after_s)


def _take(data: bytes, event: str, answer: StreamedAnswer, now: float) -> bool:
    """Note what an event says; tells whether it is the stream's last."""
    if data == b"[DONE]":
        if answer.finish is None and answer.error is None:
            answer.error = "the stream ended without a finish reason: it was cut off"
        return True
    value = json.loads(data)
    if event == "error" or value.get("error"):
        answer.error = json.dumps(value)[:_ERROR_CHARS]
        return event == "error"
    if event == "done":
        answer.usage = value
        return True
    answer.usage = value.get("usage") or answer.usage
    answer.timings = value.get("timings") or answer.timings
    answer.finish = _choice(value).get("finish_reason") or answer.finish
    text, reasoning = _texts(value)
    answer.text += text
    answer.reasoning += reasoning
    if value.get("id") is not None and "choices" not in value:
        answer.token_ids.append(value["id"])
        answer.times.append(now)
    elif text or reasoning:
        answer.times.append(now)
    return False


def _choice(value: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = value.get("choices") or [{}]
    return dict(choices[0])


def _texts(value: Mapping[str, Any]) -> tuple[str, str]:
    """The shown text and the reasoning of one event."""
    if "choices" not in value:
        return value.get("text") or "", ""
    choice = _choice(value)
    delta = choice.get("delta") or {}
    return delta.get("content") or choice.get("text") or "", delta.get("reasoning_content") or ""
