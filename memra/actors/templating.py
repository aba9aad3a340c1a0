"""Templating: the thread in which prompts become tokens, away from the loop because it may take many milliseconds.

There are two of it: one for prompts whose answers a grammar binds, which may take seconds to compile, and one for all
others.

It accepts `RenderPrompt` (asked; answered with `PromptRendered`), `RenderTexts` (with `TextsRendered`), `TokenizeText`
(with `TextTokenized`) and `DetokenizeIds` (with the text). A prompt whose client leaves while it waits is taken
out of the mailbox by `ask`; at most the one that is being rendered just then is rendered for nobody. A `RequestError`
of the renderer goes to the asker as it is; any other error becomes an `EngineFaultError`, and the log gets its type and
place but not its text, which may quote a prompt.
"""

import logging
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from memra.actors.base import ActorSystem, UnknownMessageError
from memra.actors.thread_actor import ThreadActor
from memra.errors import EngineFaultError, RequestError
from memra.messages.models import ModelInstance
from memra.messages.prompt import PromptRendered, RenderPrompt
from memra.messages.texts import (
    DetokenizeIds,
    DetokenizeRequest,
    RenderTexts,
    TextsRendered,
    TextTokenized,
    TokenizeRequest,
    TokenizeText,
)
from memra.telemetry import names
from memra.telemetry.spans import stage_span

log = logging.getLogger(__name__)

Result = TypeVar("Result")
_Asked = RenderPrompt | RenderTexts | TokenizeRequest | DetokenizeRequest
"""What names its request and its model."""


class Renderer(Protocol):
    """One model's way from words to tokens; called from the threads of both templating actors."""

    def render(self, message: RenderPrompt, /) -> PromptRendered:
        """Turn a prompt into token ids, and make the reader of its answer.

        Raises:
            RequestError: the prompt cannot be rendered, in words for the client.
        """
        ...

    def render_texts(self, message: RenderTexts, /) -> TextsRendered:
        """Turn texts into token ids of which vectors or scores are made; raises as `render`."""
        ...

    def tokenize(self, message: TokenizeText, /) -> TextTokenized:
        """Turn a prompt into token ids that nothing is done with; raises as `render`."""
        ...

    def detokenize(self, message: DetokenizeIds, /) -> str:
        """Turn token ids into text; raises as `render`."""
        ...


class Templating(ThreadActor):
    """See the module."""

    def __init__(self, system: ActorSystem, *, renderers: Mapping[ModelInstance, Renderer]) -> None:
        """Take one renderer for every loaded model; the table may change while the actor lives."""
        super().__init__(system)
        self._renderers = renderers

    def handle(self, message: Any) -> PromptRendered | TextsRendered | TextTokenized | str:
        """Handle one message; see the module for those accepted."""
        match message:
            case RenderPrompt():
                with stage_span(names.SPAN_RENDER, message.traceparent):
                    return self._contained(message, message.instance, lambda renderer: renderer.render(message))
            case RenderTexts():
                with stage_span(names.SPAN_RENDER, message.traceparent):
                    return self._contained(message, message.instance, lambda renderer: renderer.render_texts(message))
            case TokenizeText(wanted, instance):
                return self._contained(wanted, instance, lambda renderer: renderer.tokenize(message))
            case DetokenizeIds(wanted, instance):
                return self._contained(wanted, instance, lambda renderer: renderer.detokenize(message))
            case _:
                raise UnknownMessageError(self, message)

    def _contained(self, asked: _Asked, instance: int, work: Callable[[Renderer], Result]) -> Result:
        try:
            return work(self._renderers[ModelInstance(asked.model, instance)])
        except RequestError:
            raise
        except Exception as error:  # noqa: BLE001  (a fault in a template must not end the thread)
            place = traceback.extract_tb(error.__traceback__)[-1]
            log.error(  # noqa: TRY400  (the text of the error may quote the prompt)
                "request %s could not be rendered: %s at %s:%s",
                asked.request_id,
                type(error).__name__,
                place.filename,
                place.lineno,
            )
            raise EngineFaultError("The prompt could not be turned into tokens; the server's log says more.") from None
