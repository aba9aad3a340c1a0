"""Between the front door and the request's path: what a client wants, and what it is told.

HTTP knows the wire; this module knows the meaning. Every request is validated before it becomes one of these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from memra.messages.sampling import SamplingParams
from memra.types import CacheStatus, Lane, ModelName, RequestId, StopCause, TokenId


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages that the model's template turns into a prompt.

    Attributes:
        messages: OpenAI-shaped, in order; content is text or None; tool calls and results included.
        tools: OpenAI-shaped tool declarations with the client's key order, or None.
        template_options: further variables for the template (`enable_thinking`, ...).
        add_generation_prompt: whether the prompt ends with the opening of the assistant's turn.
        param: the request field that the words came in, for errors.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    template_options: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    param: str = "messages"

    def __repr__(self) -> str:
        """Counts instead of words."""
        return f"ChatPrompt(num_messages={len(self.messages)}, num_tools={len(self.tools or ())})"


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Text that goes to the model as it is.

    Attributes:
        param: the request field that it came in, for errors.
    """

    param: ClassVar[str] = "prompt"

    text: str

    def __repr__(self) -> str:
        """The length instead of the words."""
        return f"TextPrompt(num_chars={len(self.text)})"


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids that bypass the tokenizer.

    Attributes:
        param: the request field that they came in, for errors.
    """

    param: ClassVar[str] = "prompt_ids"

    token_ids: tuple[TokenId, ...]

    def __repr__(self) -> str:
        """The length instead of the tokens."""
        return f"TokenPrompt(num_tokens={len(self.token_ids)})"


Prompt = ChatPrompt | TextPrompt | TokenPrompt


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One validated request for text.

    Attributes:
        max_new_tokens: as asked; None means up to the end of the context.
        stop_strings: the text ends before the earliest of these.
        stop_token_ids: further tokens that end the text; they come before the model's own and are no part of the usage.
        api_key: the bearer token as sent, or None.
        traceparent: W3C trace context, or None.
        has_seed: the client chose the seed; otherwise it is a fresh random one.
        cache_salt: nothing that was computed for one salt is used for another; empty where the client sent none.
        may_reuse_answer: an answer that was computed for an equal request will do.
        is_stream: the answer is read while it is generated.
        timeout_ms: how long the whole answer may take, or, of a stream, its first token; None as long as anybody may.
        affinity: names the conversation that the request goes on with, or None when the client did not say.
    """

    request_id: RequestId
    model: ModelName
    prompt: Prompt
    sampling: SamplingParams
    max_new_tokens: int | None = None
    stop_strings: tuple[str, ...] = ()
    stop_token_ids: frozenset[TokenId] = frozenset()
    lane: Lane = Lane.INTERACTIVE
    api_key: str | None = field(default=None, repr=False)
    traceparent: str | None = None
    has_seed: bool = False
    cache_salt: str = field(default="", repr=False)
    may_reuse_answer: bool = False
    is_stream: bool = False
    timeout_ms: int | None = None
    affinity: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """The prompt is known and the worker has taken it.

    Attributes:
        num_prompt_tokens: length of the rendered prompt.
    """

    num_prompt_tokens: int
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class ReplyDelta:
    """More of the answer.

    Attributes:
        text: complete characters only; may be empty when the tokens so far end inside a character or a stop string.
        token_ids: the tokens behind this and any text still held back.
    """

    text: str
    token_ids: tuple[TokenId, ...] = ()

    def __repr__(self) -> str:
        """Lengths instead of words."""
        return f"ReplyDelta(num_chars={len(self.text)}, num_tokens={len(self.token_ids)})"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request cost.

    Attributes:
        completion_tokens: sampled tokens; an ending end-of-sequence token is one of them, a client's stop token is not.
        elapsed_s: from the request's admission to its last token.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class ReplyFinished:
    """The last part of every answer that did not fail.

    Attributes:
        cache: whether the answer was computed for this request, and whether an equal one may have it.
    """

    stop: StopCause
    usage: Usage
    cache: CacheStatus = CacheStatus.SKIP


ReplyPart = ReplyStarted | ReplyDelta | ReplyFinished
