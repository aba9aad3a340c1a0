"""Between the front door, the request's path and templating: whole texts that become vectors, scores, ids, or words.

Nothing here is generated. HTTP knows the wire; this module knows the meaning.
"""

from dataclasses import dataclass, field

from memra.messages.admission import RequestAdmitted
from memra.messages.generation import Prompt, TextPrompt, TokenPrompt
from memra.messages.identity import ANYBODY, Identity
from memra.types import Lane, ModelName, ModelTask, RequestId, TokenId


@dataclass(frozen=True, slots=True)
class TextPair:
    """A document and the query that it may answer."""

    query: str
    document: str

    def __repr__(self) -> str:
        """Lengths instead of the words."""
        return f"TextPair(num_chars={len(self.query) + len(self.document)})"


PoolableText = TextPrompt | TokenPrompt | TextPair


@dataclass(frozen=True, slots=True)
class TextsRequest:
    """One validated request for vectors or scores.

    Attributes:
        task: what the model has to do; `TextPair` goes with `RANK` alone, the others with `EMBED`.
        texts: at least one.
        param: request field that the texts came in, for errors.
        identity: whoever sends it, as it was found at the door.
        timeout_ms: how long it may take; None as long as anybody may.
        max_text_tokens: a longer text is refused; set inside the house, from the model's rules.
        route, body: as in `GenerationRequest`.
    """

    request_id: RequestId
    model: ModelName
    task: ModelTask
    texts: tuple[PoolableText, ...]
    param: str
    lane: Lane = Lane.INTERACTIVE
    identity: Identity = ANYBODY
    traceparent: str | None = None
    timeout_ms: int | None = None
    max_text_tokens: int | None = None
    route: str = ""
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TextVectors:
    """The answer to a `TextsRequest`.

    Attributes:
        vectors: little-endian float32 values, text after text; of a ranking model, scores from 0 to 1.
        width: values a text.
        num_tokens: of all texts, with what the model wants around them.
        admitted: the slot that the request held.
    """

    vectors: bytes = field(repr=False)
    width: int
    num_tokens: int
    admitted: RequestAdmitted


@dataclass(frozen=True, slots=True)
class RenderTexts:
    """Turn texts into token ids for a model; answered with `TextsRendered`, or refused with a `RequestError`.

    Attributes:
        param: request field that the texts came in, for errors.
        first: place of the first of these texts in that field.
        instance: of the model, the one that will compute the texts.
    """

    request_id: RequestId
    model: ModelName
    task: ModelTask
    texts: tuple[PoolableText, ...]
    param: str
    first: int = 0
    traceparent: str | None = None
    instance: int = 0


@dataclass(frozen=True, slots=True)
class TextsRendered:
    """Texts that the worker can take.

    Attributes:
        sequences: token ids of each text, with everything that the model wants around one.
    """

    sequences: tuple[tuple[TokenId, ...], ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """Ask for the tokens of a prompt as the model would get it; nothing is computed.

    Attributes:
        add_special: of a text, put the tokens around it that the model expects; a chat has what its template writes.
        parse_special: of a text, read the names of control tokens as those tokens.
    """

    request_id: RequestId
    model: ModelName
    prompt: Prompt
    add_special: bool = False
    parse_special: bool = True


@dataclass(frozen=True, slots=True)
class TokenizeText:
    """The same for templating; answered with `TextTokenized`, or refused with a `RequestError`.

    Attributes:
        instance: of the model.
    """

    wanted: TokenizeRequest
    instance: int = 0


@dataclass(frozen=True, slots=True)
class TextTokenized:
    """The tokens of a prompt.

    Attributes:
        context_tokens: the model's context, prompt and answer together.
    """

    token_ids: tuple[TokenId, ...] = field(repr=False)
    context_tokens: int


@dataclass(frozen=True, slots=True)
class DetokenizeRequest:
    """Ask for the text of some tokens; control tokens are written by their names."""

    request_id: RequestId
    model: ModelName
    token_ids: tuple[TokenId, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class DetokenizeIds:
    """The same for templating; answered with the text, or refused with a `RequestError`.

    Attributes:
        instance: of the model.
    """

    wanted: DetokenizeRequest
    instance: int = 0
