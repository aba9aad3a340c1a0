"""What chats and text completions are answered with, as schemas.

Only described here: `memra.http.wire.chat_answer`, `completion_answer` and `native_answer` write the bytes, and tests
hold what they write against these schemas. Refuses to know routes. Read by `memra.http.openapi.operations`.
"""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from memra.http.openapi.error_shapes import ErrorObject
from memra.types import CacheStatus

FinishReason = Literal["stop", "length", "tool_calls", "error"]


class PromptTokensDetails(Struct):
    """What is known of the prompt's tokens: how many came from the cache."""

    cached_tokens: int


class CompletionTokensDetails(Struct):
    """What is known of the answer's tokens: how many were thoughts."""

    reasoning_tokens: int


class Usage(Struct):
    """What an answer took; `elapsed_s` are seconds from the whole request to the end of its answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails
    elapsed_s: float


class TokenCandidate(Struct):
    """A token and how likely it was; `bytes` are those of its text, which may be part of a character."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLikelihood(TokenCandidate):
    """A generated token and the likeliest in its place."""

    top_logprobs: list[TokenCandidate]


class ChatLogprobs(Struct):
    """How likely the tokens of a choice were; those of thoughts and calls are among them."""

    content: list[TokenLikelihood]


class CalledFunction(Struct):
    """The function that is called; `arguments` is the text of a JSON object."""

    name: str
    arguments: str


class AnsweredCall(Struct):
    """One call of a tool."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class ReasoningDetail(Struct):
    """The thoughts, as OpenRouter's clients read them."""

    type: Literal["reasoning.text"]
    text: str


class AssistantMessage(Struct):
    """The assistant's message; thoughts stand under two names, since clients read one or the other."""

    role: Literal["assistant"]
    content: str | None
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning_details: list[ReasoningDetail] | UnsetType = UNSET
    tool_calls: list[AnsweredCall] | UnsetType = UNSET


class ChatChoice(Struct):
    """One answer to a chat."""

    index: int
    message: AssistantMessage
    finish_reason: FinishReason
    logprobs: ChatLogprobs | UnsetType = UNSET


class ChatCompletion(Struct):
    """An answer to a chat; `error` stands beside one that its deadline cut short."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage
    memra_cache: CacheStatus
    error: ErrorObject | UnsetType = UNSET


class FunctionDelta(Struct):
    """More of a call: its name comes once, its arguments in pieces."""

    arguments: str
    name: str | UnsetType = UNSET


class CallDelta(Struct):
    """More of a call; what names it comes with its first delta alone."""

    index: int
    function: FunctionDelta
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class ChatDelta(Struct):
    """What a chunk adds to a message; the first of a choice carries the role."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CallDelta] | UnsetType = UNSET


class ChatChunkChoice(Struct):
    """More of one answer, or its end."""

    index: int
    delta: ChatDelta
    finish_reason: FinishReason | None
    logprobs: ChatLogprobs | UnsetType = UNSET


class ChatCompletionChunk(Struct):
    """One event of a streamed chat; `choices` is empty in the one that carries the usage alone."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET


class CompletionLogprobs(Struct):
    """How likely the tokens of a choice were, as parallel lists."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class CompletionChoice(Struct):
    """One answer to a prompt."""

    index: int
    text: str
    finish_reason: FinishReason
    logprobs: CompletionLogprobs | UnsetType = UNSET


class Completion(Struct):
    """An answer to a prompt, in OpenAI's shape."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage
    error: ErrorObject | UnsetType = UNSET


class CompletionChunkChoice(Struct):
    """More of one answer, or its end."""

    index: int
    text: str
    finish_reason: FinishReason | None
    logprobs: CompletionLogprobs | UnsetType = UNSET


class CompletionChunk(Struct):
    """One event of a streamed completion in OpenAI's shape."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChunkChoice]
    usage: Usage | UnsetType | None = UNSET


NativeStop = Literal["Eos", "Callback", "MaxNew", "ContextFull", "Deadline"]


class NativeSummary(Struct):
    """How a native completion ended, and what it took; the data of `event: done`."""

    stop_reason: NativeStop
    n_tokens: int
    prompt_tokens: int
    cached_tokens: int
    elapsed_s: float


class NativeCompletion(NativeSummary, kw_only=True):
    """An answer to a prompt, in this server's own shape."""

    model: str
    text: str
    tokens: list[int]
    error: ErrorObject | UnsetType = UNSET


class NativeToken(Struct):
    """One unnamed event of a streamed native completion: a token, or text that has none of its own."""

    model: str
    id: int | None
    text: str
