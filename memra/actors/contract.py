"""What the front door may ask of the house: the one interface between HTTP and the actors.

`memra.actors.bridge` implements it over the mailboxes; tests implement it in a few lines.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from memra.messages.admission import RequestAdmitted
from memra.messages.generation import GenerationRequest, ReplyPart
from memra.messages.identity import Credentials, Identity
from memra.messages.lifecycle import HealthReported
from memra.messages.models import ModelTraits
from memra.messages.refusals import RefusedRequest
from memra.messages.texts import DetokenizeRequest, TextsRequest, TextTokenized, TextVectors, TokenizeRequest
from memra.types import ModelName, ModelTask


class Reply(Protocol):
    """One answer while it is generated."""

    @property
    def admitted(self) -> RequestAdmitted:
        """The slot that this answer holds."""
        ...

    def __aiter__(self) -> AsyncIterator[ReplyPart]:
        """Iterate over the parts: one `ReplyStarted`, any number of `ReplyDelta`, one `ReplyFinished`.

        Where several answers were asked for, each has a start and deltas of its own, and all but the last to end have
        one with a `stop`. Deltas that wait together are joined. Raises a `RequestError` where the answer cannot go on.
        """
        ...


class Listing(Protocol):
    """What the outside is told of the models; called from the trio thread."""

    @property
    def feed_schemas(self) -> tuple[str, ...]:
        """What `render_feed` knows."""
        ...

    @property
    def provider(self) -> Mapping[str, Any]:
        """What is declared of whoever runs the server, as plain values; empty where nothing is."""
        ...

    def declared(self, model: ModelName) -> Mapping[str, Any]:
        """What is declared of a model, as plain values by the names of the metadata file."""
        ...

    def traits(self, model: ModelName) -> ModelTraits:
        """What was found in a model, once it was opened."""
        ...

    async def render_feed(self, schema: str) -> Mapping[str, Any]:
        """Have all models written down for one of `feed_schemas`, as plain values.

        Raises:
            InvalidRequestError: the schema demands something that is not declared.
            PluginFaultError: the plugin that writes it failed.
        """
        ...


class House(Protocol):
    """The running server, as the front door sees it; called from the trio thread."""

    @property
    def listing(self) -> Listing:
        """What the outside is told of the models."""
        ...

    @property
    def models(self) -> tuple[ModelName, ...]:
        """The names that are served, in configured order."""
        ...

    def context_tokens(self, model: ModelName) -> int | None:
        """The longest prompt and answer together, as it is offered; None until the model was opened once."""
        ...

    def task(self, model: ModelName) -> ModelTask | None:
        """What a model does with text; None until it was opened once."""
        ...

    def embedding_width(self, model: ModelName) -> int | None:
        """Values of a vector of a model; None for one that makes none, and until it was opened once."""
        ...

    async def identify(self, credentials: Credentials) -> Identity:
        """Say who sends a request, before anything else of it is read; whoever that is goes with the request.

        Raises:
            AuthenticationError: nothing was presented, or nothing that opens this server.
            ForbiddenError: it is known, and opens nothing any more.
        """
        ...

    def open_reply(self, request: GenerationRequest) -> AbstractAsyncContextManager[Reply]:
        """Admit, render and submit a request; leaving the context early frees everything that it holds.

        Entering raises a `RequestError` when the request is refused; nothing is held then.
        """
        ...

    async def pool_texts(self, request: TextsRequest) -> TextVectors:
        """Admit, render and compute texts; being cancelled frees everything that the request holds.

        Raises:
            RequestError: the request is refused, or failed.
        """
        ...

    async def captures(self, identity: Identity) -> bool:
        """Whether the bodies of somebody's requests are to go with them."""
        ...

    async def note_refusal(self, refused: RefusedRequest, error: Exception) -> None:
        """Take notice of a request that the front door refused; never raises."""
        ...

    async def tokenize(self, request: TokenizeRequest) -> TextTokenized:
        """Turn a prompt into token ids; holds no slot, and loads the model if need be.

        Raises:
            RequestError: the model is unknown or cannot be loaded, or the prompt cannot be rendered.
        """
        ...

    async def detokenize(self, request: DetokenizeRequest) -> str:
        """Turn token ids into text; as `tokenize`.

        Raises:
            RequestError: the model is unknown or cannot be loaded, or an id is outside of its vocabulary.
        """
        ...

    async def cancel(self, name: str, identity: Identity) -> None:
        """End requests under way: whoever reads their answers gets a `RequestCancelledError` behind what is there.

        Args:
            name: the id of one, or what the client itself called one or several.
            identity: of the client.

        Raises:
            UnknownRequestError: no such request of this tenant is under way.
        """
        ...

    async def report_health(self) -> HealthReported:
        """Return the state that the probes show; answers at once, also when the worker hangs."""
        ...

    async def report_caches(self) -> Mapping[str, Any]:
        """Return what the caches hold and how often they helped, by cache."""
        ...

    async def report_metrics(self) -> Mapping[str, Any]:
        """Return the counters and gauges under their public JSON keys."""
        ...

    async def report_lanes(self) -> Mapping[str, Any]:
        """Return what was counted of the lanes under its public JSON keys."""
        ...
