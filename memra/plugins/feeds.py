"""Model feeds: what a plugin is told of every model, and how it writes that down for a marketplace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from memra.types import ModelName, ModelTask


class FeedUnavailableError(Exception):
    """A feed cannot be written as things stand: 400 with param `schema`; the message says what is not declared."""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One served model: what was found in it, and what its owner declared.

    Attributes:
        task: None until the model was opened once.
        context_tokens: prompt and answer together, as offered; None until it was opened once.
        has_tools: the template takes tools.
        can_reason: the answer's thoughts are told apart.
        quantization: found in the weights, one of int4, int8, fp4, mxfp4, nvfp4, fp6, fp8, mxfp8, fp16, bf16, fp32;
            None where none of these words would be true.
        tokenizer: family of the tokenizer, or None.
        architecture: as the file names it, or None.
        created: unix seconds of the server's start.
        declared: the model's table of the metadata file, checked; empty without one.
        provider: the file's table of whoever runs the server, checked; the same on all cards.
    """

    name: ModelName
    task: ModelTask | None = None
    context_tokens: int | None = None
    embedding_width: int | None = None
    has_tools: bool = False
    can_reason: bool = False
    quantization: str | None = None
    tokenizer: str | None = None
    architecture: str | None = None
    created: int = 0
    declared: Mapping[str, Any] = field(default_factory=dict)
    provider: Mapping[str, Any] = field(default_factory=dict)


class Feed(Protocol):
    """One schema of `GET /models?schema=NAME`."""

    @property
    def schema(self) -> str:
        """The name."""
        ...

    def render(self, cards: Sequence[ModelCard]) -> Mapping[str, Any]:
        """Return the answer as plain values, in the order of the cards; runs in a worker thread, within the time limit.

        Raises:
            FeedUnavailableError: something that the schema demands is not declared.
        """
        ...


class FileFeed(Feed, Protocol):
    """A feed whose marketplace takes files as well: `memra feeds NAME --out DIR` writes them."""

    def files(self, cards: Sequence[ModelCard]) -> Mapping[str, str]:
        """Return texts by their relative paths, with `/` between folders.

        Raises:
            FeedUnavailableError: something that the files have to hold is not declared.
        """
        ...
