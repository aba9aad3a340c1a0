"""Between the front door and the request's path: what a client wants, and what it is told.

HTTP knows the wire; this module knows the meaning. Every request is validated before it becomes one of these.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from memra.messages.constraint import AnswerGrammar
from memra.messages.identity import ANYBODY, Identity
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
        is_plain_answer: the answer is read as text alone, thoughts and calls as the model writes them.
        is_single_call: the answer ends with its first complete call.
        must_call: the answer consists of calls of these tools and nothing else; all of them declared. Empty where the
            model may choose.
        goes_on: the answer goes on with the last message, a text of the assistant's, and does not repeat it.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    template_options: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    param: str = "messages"
    is_plain_answer: bool = False
    is_single_call: bool = False
    must_call: tuple[str, ...] = ()
    goes_on: bool = False

    @property
    def begun_text(self) -> str | None:
        """The answer's first words, where the last message holds them; None where the answer begins afresh."""
        return (self.messages[-1].get("content") or "") if self.goes_on else None

    def __repr__(self) -> str:
        """Counts instead of words."""
        return f"ChatPrompt(num_messages={len(self.messages)}, num_tools={len(self.tools or ())})"


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Text that goes to the model as it is.

    Attributes:
        param: the request field that it came in, for errors.
        adds_special: the tokens that the model expects around a text are put there.
    """

    param: ClassVar[str] = "prompt"

    text: str
    adds_special: bool = True

    def __repr__(self) -> str:
        """The length instead of the words."""
        return f"TextPrompt(num_chars={len(self.text)})"


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids that bypass the tokenizer.

    Attributes:
        param: the request field that they came in, for errors.
    """

    token_ids: tuple[TokenId, ...]
    param: str = "prompt_ids"

    def __repr__(self) -> str:
        """The length instead of the tokens."""
        return f"TokenPrompt(num_tokens={len(self.token_ids)})"


Prompt = ChatPrompt | TextPrompt | TokenPrompt


@dataclass(frozen=True, slots=True)
class EndRules:
    """When an answer may end, and what of its end shows.

    Attributes:
        min_new_tokens: before so many tokens neither an ending token nor a stop string ends the answer.
        ignores_eos: the model's own ending tokens are tokens like any other.
        shows_stop_string: the text ends behind the stop string that was found, instead of before it.
        shows_control: control tokens show by their names.
    """

    min_new_tokens: int = 0
    ignores_eos: bool = False
    shows_stop_string: bool = False
    shows_control: bool = False


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One validated request for text.

    Attributes:
        max_new_tokens: as asked; None means up to the end of the context.
        stop_strings: the text ends before the earliest of these.
        stop_token_ids: further tokens that end the text; they come before the model's own and are no part of the usage.
        identity: whoever sends it, as it was found at the door.
        traceparent: W3C trace context, or None.
        has_seed: the client chose the seed; otherwise it is a fresh random one.
        cache_salt: nothing that was computed for one salt is used for another; empty where the client sent none.
        may_reuse_answer: an answer that was computed for an equal request will do.
        is_stream: the answer is read while it is generated.
        timeout_ms: how long the whole answer may take, or, of a stream, its first token; None as long as anybody may.
        affinity: names the conversation that the request goes on with, or None when the client did not say.
        max_context_tokens: context that the client wants for prompt and answer together, or None.
        wants_echo: the answer's text begins with the prompt's.
        num_choices: answers to every prompt; the seed of the next one is greater by one.
        further_prompts: answered beside `prompt`, all under this one request.
        part_of: the request, admitted before, under whose slot this one runs; set where a request is taken apart.
        choice: number of the answer among those to the same prompt; that prompt is counted with the first.
        grammar: what the answer must match, or None.
        ends: when the answer may end, and what of its end shows.
        scores_prompt: how likely the prompt's own tokens were is wanted too; only with log probabilities and an echo.
        client_id: a name by which the client may cancel the request before it knows ours; it need not be unique.
        left_open: names of sampling settings that the client did not send.
        max_prompt_tokens: a longer prompt is refused; set inside the house, from the model's rules.
        max_answer_tokens: bounds the answer whatever the client asks for; set as the last.
        route: path of the API that it came by.
        body: as sent, where whoever keeps accounts wants it; None otherwise.
    """

    request_id: RequestId
    model: ModelName
    prompt: Prompt
    sampling: SamplingParams
    max_new_tokens: int | None = None
    stop_strings: tuple[str, ...] = ()
    stop_token_ids: frozenset[TokenId] = frozenset()
    lane: Lane = Lane.INTERACTIVE
    identity: Identity = ANYBODY
    traceparent: str | None = None
    has_seed: bool = False
    cache_salt: str = field(default="", repr=False)
    may_reuse_answer: bool = False
    is_stream: bool = False
    timeout_ms: int | None = None
    affinity: str | None = field(default=None, repr=False)
    max_context_tokens: int | None = None
    wants_echo: bool = False
    num_choices: int = 1
    further_prompts: tuple[Prompt, ...] = ()
    part_of: RequestId | None = None
    choice: int = 0
    grammar: AnswerGrammar | None = None
    ends: EndRules = field(default_factory=EndRules)
    scores_prompt: bool = False
    client_id: str | None = field(default=None, repr=False)
    left_open: frozenset[str] = frozenset()
    max_prompt_tokens: int | None = None
    max_answer_tokens: int | None = None
    route: str = ""
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """The prompt is known and the worker has taken it.

    Attributes:
        num_prompt_tokens: length of the rendered prompt.
    """

    num_prompt_tokens: int
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a generated token was, and what else was likely in its place.

    The log probabilities are natural ones, of the model's own distribution: `log softmax` of its logits as they came,
    before bias, penalties, masks and temperature. So they do not depend on how the token was chosen.

    Attributes:
        logprob: None of a sequence's first token, which nothing comes before.
        top: the most likely tokens with theirs, best first, the lower id first among equals.
        text_bytes: what the token stands for, control tokens by their names; empty below the reader of the answer.
        top_bytes: the same of the tokens of `top`.
        shown_bytes: what of `text_bytes` stands in the text; None is all.
    """

    token_id: TokenId
    logprob: float | None
    top: tuple[tuple[TokenId, float], ...] = ()
    text_bytes: bytes = field(default=b"", repr=False)
    top_bytes: tuple[bytes, ...] = field(default=(), repr=False)
    shown_bytes: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of one call of a tool.

    Attributes:
        index: of the call in its answer, from 0.
        arguments: the next piece of its JSON.
        call_id: with the first delta of a call alone; unique.
        name: of the tool, with the first delta of a call alone.
    """

    index: int
    arguments: str = ""
    call_id: str | None = None
    name: str | None = None

    def __repr__(self) -> str:
        """The length instead of the arguments."""
        return f"ToolCallDelta(index={self.index}, name={self.name!r}, num_chars={len(self.arguments)})"


def join_calls(deltas: Iterable[ToolCallDelta]) -> tuple[ToolCallDelta, ...]:
    """Return one delta a call that says the same as all of these, in the order in which the calls began."""
    calls: dict[int, list[ToolCallDelta]] = {}
    for delta in deltas:
        calls.setdefault(delta.index, []).append(delta)
    return tuple(
        ToolCallDelta(index, "".join(delta.arguments for delta in parts), parts[0].call_id, parts[0].name)
        for index, parts in calls.items()
    )


@dataclass(frozen=True, slots=True)
class ReplyDelta:
    """More of the answer.

    Attributes:
        text: complete characters only; may be empty when the tokens so far end inside a character or a stop string.
        token_ids: the tokens behind this and any text still held back.
        reasoning: what the model wrote for itself; it comes before the text.
        tool_calls: more of its calls, at most one delta a call.
        logprobs: of the tokens whose text is shown by now, where the request asked for them.
        choice: of several answers under one request, the one that goes on.
        stop: why this one is complete, where another one is not yet; the last to end has `ReplyFinished`.
    """

    text: str
    token_ids: tuple[TokenId, ...] = ()
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    choice: int = 0
    stop: StopCause | None = None

    @classmethod
    def join(cls, deltas: Iterable[Self], *, choice: int = 0) -> Self:
        """Return in one what these deltas of a choice say one after the other; that it ended is left out."""
        parts = list(deltas)
        return cls(
            "".join(part.text for part in parts),
            tuple(token_id for part in parts for token_id in part.token_ids),
            reasoning="".join(part.reasoning for part in parts),
            tool_calls=join_calls(call for part in parts for call in part.tool_calls),
            logprobs=tuple(entry for part in parts for entry in part.logprobs),
            choice=choice,
        )

    def __repr__(self) -> str:
        """Lengths instead of words."""
        return (
            f"ReplyDelta(num_chars={len(self.text)}, num_tokens={len(self.token_ids)}, "
            f"num_reasoning_chars={len(self.reasoning)}, num_calls={len(self.tool_calls)})"
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request cost.

    Attributes:
        completion_tokens: sampled tokens; an ending end-of-sequence token is one of them, a client's stop token is not.
        elapsed_s: from the request's admission to its last token.
        reasoning_tokens: those of the completion that were read as thoughts, the marks around them included.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    elapsed_s: float
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ReplyFinished:
    """The last part of every answer that did not fail.

    Attributes:
        usage: of all choices together; a prompt counts once, however often it is answered.
        cache: whether the answer was computed for this request, and whether an equal one may have it.
        choice: the one that was complete last.
        stop_string: the one that ended the answer, where one did and it is known which.
    """

    stop: StopCause
    usage: Usage
    cache: CacheStatus = CacheStatus.SKIP
    choice: int = 0
    stop_string: str | None = None


ReplyPart = ReplyStarted | ReplyDelta | ReplyFinished
