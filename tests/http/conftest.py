"""A scripted house behind the real server on a real socket."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import numpy as np
import pytest
import trio

from memra.errors import AuthenticationError, UnknownRequestError
from memra.http.address import bind
from memra.http.app import build_app
from memra.http.serve import serve
from memra.messages.admission import RequestAdmitted
from memra.messages.generation import GenerationRequest, ReplyDelta, ReplyFinished, ReplyPart, ReplyStarted, Usage
from memra.messages.identity import Credentials, Identity, KeyClass
from memra.messages.lifecycle import HealthReported
from memra.messages.models import UNKNOWN_TRAITS, ModelTraits
from memra.messages.refusals import RefusedRequest
from memra.messages.texts import DetokenizeRequest, TextsRequest, TextTokenized, TextVectors, TokenizeRequest
from memra.messages.work import WorkerBeat
from memra.settings import HttpSettings
from memra.types import ModelTask, StopCause, WorkerPhase

FINGERPRINT = "memra-test-000000000000"
USAGE = Usage(prompt_tokens=3, completion_tokens=2, cached_tokens=1, elapsed_s=0.25)
HEALTHY = HealthReported(
    is_live=True,
    is_ready=True,
    is_draining=False,
    worker=WorkerBeat(WorkerPhase.IDLE, beat_at=0.0, tick_max_ms=1.4, generation=0),
    beat_age_ms=2.6,
    stall_threshold_ms=120_000.0,
    models=("fake",),
    idle_for_ms=12.3,
    drain_s=30.0,
)

Step = str | ReplyPart | Exception | trio.Event


@dataclass
class FakeListing:
    """What is told of the models, as a test says."""

    feeds: dict[str, Any] = field(default_factory=dict)
    provider: dict[str, Any] = field(default_factory=dict)
    declarations: dict[str, dict[str, Any]] = field(default_factory=dict)
    found: dict[str, ModelTraits] = field(default_factory=dict)

    @property
    def feed_schemas(self) -> tuple[str, ...]:
        return tuple(self.feeds)

    def declared(self, model: str) -> dict[str, Any]:
        return self.declarations.get(model, {})

    def traits(self, model: str) -> ModelTraits:
        return self.found.get(model, UNKNOWN_TRAITS)

    async def render_feed(self, schema: str) -> Any:
        if isinstance(self.feeds[schema], Exception):
            raise self.feeds[schema]
        return self.feeds[schema]


@dataclass
class FakeHouse:
    """Answers every request with the same script: text, parts, errors to raise, events to wait for."""

    script: list[Step] = field(default_factory=lambda: ["Hel", "lo"])
    finish: ReplyFinished | None = field(default_factory=lambda: ReplyFinished(StopCause.END_OF_SEQUENCE, USAGE))
    refusal: Exception | None = None
    has_tenants: bool = False
    valid_key: str | None = None
    health: HealthReported = HEALTHY
    slots_remaining: int = 3
    models: tuple[str, ...] = ("fake", "org/other")
    requests: list[GenerationRequest] = field(default_factory=list)
    opened: trio.Event = field(default_factory=trio.Event)
    freed: trio.Event = field(default_factory=trio.Event)
    num_open: int = 0
    contexts: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, ModelTask] = field(default_factory=dict)
    presented: list[Credentials] = field(default_factory=list)
    key_class: KeyClass = KeyClass.INTERACTIVE
    texts: list[TextsRequest] = field(default_factory=list)
    tokenized: list[TokenizeRequest] = field(default_factory=list)
    cancellable: set[str] = field(default_factory=set)
    listing: FakeListing = field(default_factory=FakeListing)
    cancelling: list[Identity] = field(default_factory=list)
    wants_bodies: bool = False
    refused: list[tuple[RefusedRequest, Exception]] = field(default_factory=list)

    def task(self, model: str) -> ModelTask | None:
        return self.tasks.get(model)

    def embedding_width(self, model: str) -> int | None:
        return 3 if self.tasks.get(model) is ModelTask.EMBED else None

    async def pool_texts(self, request: TextsRequest) -> TextVectors:
        """One vector a text, its scores going up and down: 0, 3, 2, 1."""
        self.texts.append(request)
        if self.refusal is not None:
            raise self.refusal
        width = 3 if request.task is ModelTask.EMBED else 1
        rows = [[index * 3 % 4, 4.0, 3.0][:width] for index in range(len(request.texts))]
        admitted = RequestAdmitted(request.request_id, "default", request.lane, 4, self.slots_remaining)
        return TextVectors(np.array(rows, "<f4").tobytes(), width, 7 * len(rows), admitted)

    async def captures(self, _identity: Identity) -> bool:
        return self.wants_bodies

    async def note_refusal(self, refused: RefusedRequest, error: Exception) -> None:
        self.refused.append((refused, error))

    async def tokenize(self, request: TokenizeRequest) -> TextTokenized:
        self.tokenized.append(request)
        if self.refusal is not None:
            raise self.refusal
        return TextTokenized((5, 6, 7), context_tokens=4096)

    async def detokenize(self, request: DetokenizeRequest) -> str:
        return "".join(map(chr, request.token_ids))

    async def cancel(self, request_id: str, identity: Identity) -> None:
        self.cancelling.append(identity)
        if request_id not in self.cancellable:
            raise UnknownRequestError("There is none.", param="id")

    def context_tokens(self, model: str) -> int | None:
        return self.contexts.get(model)

    async def identify(self, credentials: Credentials) -> Identity:
        """Everybody is the key that he sends."""
        self.presented.append(credentials)
        if self.valid_key not in (None, credentials.api_key):
            raise AuthenticationError("The API key is missing or unknown.")
        return Identity(principal=credentials.api_key, key_class=self.key_class, is_named=self.has_tenants)

    @asynccontextmanager
    async def open_reply(self, request: GenerationRequest) -> AsyncIterator["FakeReply"]:
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal
        self.num_open += 1
        self.opened.set()
        admitted = RequestAdmitted(request.request_id, "default", request.lane, 4, self.slots_remaining)
        try:
            # A house may keep tasks for a reply: the door must leave the context in the task that entered it.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                yield FakeReply(self, admitted)
                nursery.cancel_scope.cancel()
        finally:
            self.num_open -= 1
            self.freed.set()

    async def report_health(self) -> HealthReported:
        return self.health

    async def report_caches(self) -> Mapping[str, Any]:
        return {"response_cache": {"hits": len(self.requests)}, "prefix_cache": None}

    async def report_metrics(self) -> Mapping[str, Any]:
        return {"admitted": len(self.requests)}

    async def report_lanes(self) -> Mapping[str, Any]:
        return {"lanes": {}, "batch_size_last": len(self.requests)}


@dataclass
class FakeReply:
    house: FakeHouse
    admitted: RequestAdmitted

    async def __aiter__(self) -> AsyncIterator[ReplyPart]:
        yield ReplyStarted(USAGE.prompt_tokens, USAGE.cached_tokens)
        for index, step in enumerate(self.house.script):
            if isinstance(step, trio.Event):
                await step.wait()
            elif isinstance(step, Exception):
                raise step
            elif isinstance(step, str):
                yield ReplyDelta(step, (100 + index,))
            else:
                yield step
        if self.house.finish is not None:
            yield self.house.finish


@dataclass
class Server:
    """A running server."""

    address: str
    house: FakeHouse
    shutdown: trio.Event

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    async def connect(self) -> trio.SocketStream:
        host, _, port = self.address.rpartition(":")
        return await trio.open_tcp_stream(host, int(port))

    async def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, trust_env=False) as client:
            return await client.post(path, json=body, headers={k.replace("_", "-"): v for k, v in headers.items()})

    async def get(self, path: str, **headers: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, trust_env=False) as client:
            return await client.get(path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    async def chat(self, **fields: Any) -> httpx.Response:
        return await self.post("/v1/chat/completions", Wire.chat(**fields))


Start = Callable[..., Awaitable[Server]]


@pytest.fixture
def start(nursery: trio.Nursery) -> Start:
    """Starts a server around a house; settings by keyword."""

    async def start_server(house: FakeHouse | None = None, *, has_keys: bool = True, **settings: Any) -> Server:
        house = FakeHouse() if house is None else house
        http = HttpSettings(**settings)
        app = build_app(house, http, fingerprint=FINGERPRINT, has_keys=has_keys)
        shutdown = trio.Event()
        running = partial(serve, app, bind("127.0.0.1:0"), settings=http, shutdown=shutdown)
        return Server(await nursery.start(running), house, shutdown)

    return start_server


@pytest.fixture
def fake_house() -> type[FakeHouse]:
    return FakeHouse


class Wire:
    """What tests write to and read from a connection."""

    @staticmethod
    def chat(**fields: Any) -> dict[str, Any]:
        return {"model": "fake", "messages": [{"role": "user", "content": "hi"}], **fields}

    @staticmethod
    def post(body: Any, *, path: str = "/v1/chat/completions", headers: str = "") -> bytes:
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        return (head + headers + "\r\n").encode() + data

    @staticmethod
    def events(text: str) -> list[Any]:
        """The data of every event of a stream; `[DONE]` as it is, comments left out."""
        blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
        data = [block.split("data: ", 1)[1] for block in blocks]
        return [item if item == "[DONE]" else json.loads(item) for item in data]

    @staticmethod
    async def read_until(stream: trio.SocketStream, mark: bytes) -> bytes:
        data = b""
        while mark not in data:
            more = await stream.receive_some(65536)
            assert more, f"the connection ended before {mark!r}: {data!r}"
            data += more
        return data

    @staticmethod
    async def read_to_end(stream: trio.SocketStream) -> bytes:
        data = b""
        while more := await stream.receive_some(65536):
            data += more
        return data


@pytest.fixture
def wire() -> type[Wire]:
    return Wire
