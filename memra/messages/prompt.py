"""Between the request's path and templating: words go in, token ids and a reader for the answer come out."""

from dataclasses import dataclass, field
from typing import Protocol

from memra.messages.constraint import AnswerGrammar, TokenConstraint
from memra.messages.generation import ChatPrompt, EndRules, Prompt, ToolCallDelta
from memra.types import ModelName, RequestId, TokenId


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """What is certain now of an answer: whole characters, no part of a marker or a stop string.

    Attributes:
        text: for the reader of the answer.
        reasoning: what the model wrote for itself.
        tool_calls: more of its calls, in order.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()

    def __repr__(self) -> str:
        """Lengths instead of words."""
        return (
            f"AnswerPiece(num_chars={len(self.text)}, num_reasoning_chars={len(self.reasoning)}, "
            f"num_call_deltas={len(self.tool_calls)})"
        )


class AnswerReader(Protocol):
    """Turns one answer's tokens back into what they say; owned by the request's task, never shared."""

    def read(self, token_ids: tuple[TokenId, ...]) -> AnswerPiece:
        """Take more tokens and return what is certain now."""
        ...

    def finish(self) -> AnswerPiece:
        """Return what was held back; call once, after the last token."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more will be shown, so that generation may end: a stop string, or enough calls."""
        ...

    @property
    def has_calls(self) -> bool:
        """Whether at least one complete call of a tool was read."""
        ...

    @property
    def is_thinking(self) -> bool:
        """Whether what was read so far ends inside a thought."""
        ...

    @property
    def stop_string(self) -> str | None:
        """The stop string that was found, or None."""
        ...

    @property
    def num_read_bytes(self) -> int:
        """What all tokens so far add to a text."""
        ...

    @property
    def num_held_bytes(self) -> int:
        """What of that, at its end, is not shown yet, or never will be because a stop string begins there."""
        ...

    def token_bytes(self, token_id: TokenId) -> bytes:
        """Return what a token stands for by itself, a control token by its name; changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class RenderPrompt:
    """Turn a prompt into token ids for a model.

    Attributes:
        stop_strings: given to the reader of the answer.
        stop_token_ids: the client's; only compared with the vocabulary.
        biased_ids: tokens of the client's `logit_bias`; only compared with the vocabulary.
        wants_echo: the text of the prompt is wanted too.
        instance: of the model, the one that will run the prompt.
        grammar: what the answer must match, or None.
        ends: when the answer may end, and what of its end shows.
        num_answers: to the prompt, each of which needs a reader.
    """

    request_id: RequestId
    model: ModelName
    prompt: Prompt
    stop_strings: tuple[str, ...] = ()
    stop_token_ids: frozenset[TokenId] = frozenset()
    traceparent: str | None = None
    instance: int = 0
    biased_ids: frozenset[TokenId] = frozenset()
    wants_echo: bool = False
    grammar: AnswerGrammar | None = None
    ends: EndRules = field(default_factory=EndRules)
    num_answers: int = 1

    @property
    def is_bound(self) -> bool:
        """Whether a grammar has to be compiled for the answer, which may take long."""
        return self.grammar is not None or (isinstance(self.prompt, ChatPrompt) and bool(self.prompt.must_call))


@dataclass(frozen=True, slots=True)
class PromptRendered:
    """A prompt that the worker can take.

    Attributes:
        eos_ids: tokens with which this model ends its turn; none where they are to be ignored.
        context_tokens: the model's context, prompt and answer together.
        reader: fresh, for this answer alone.
        further_readers: as fresh, one for every further answer to the prompt.
        echo: the prompt's text where it was wanted, else empty.
        constraint: of the grammar that was asked for, before the answer's first token; None without one.
    """

    prompt_ids: tuple[TokenId, ...]
    eos_ids: frozenset[TokenId]
    context_tokens: int
    reader: AnswerReader
    further_readers: tuple[AnswerReader, ...] = ()
    echo: str = ""
    constraint: TokenConstraint | None = None

    def __repr__(self) -> str:
        """Lengths instead of the prompt."""
        return f"PromptRendered(num_prompt_tokens={len(self.prompt_ids)})"
