"""What embeddings, rankings, tokens and cancellations are answered with, as schemas.

Only described here: the modules of `memra.http.wire` and the routes write the bytes, and tests hold what they write
against these schemas. Read by `memra.http.openapi.operations`.
"""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType


class TextsUsage(Struct):
    """How many tokens the texts had."""

    prompt_tokens: int
    total_tokens: int


class Embedding(Struct):
    """The vector of one text: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingList(Struct):
    """One vector a text, of norm 1, in the order of the texts."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: TextsUsage


class RankedText(Struct):
    """A document's words."""

    text: str


class Ranking(Struct):
    """How well one document answers the query."""

    index: int
    relevance_score: float
    document: RankedText | UnsetType = UNSET


class RankingList(Struct):
    """The documents, best first."""

    id: str
    object: Literal["list"]
    model: str
    results: list[Ranking]
    usage: TextsUsage


class Tokens(Struct):
    """A text's token ids, how many there are, and how many the model takes."""

    tokens: list[int]
    count: int
    max_model_len: int


class Detokenized(Struct):
    """The text of token ids, under the three names that clients look for."""

    prompt: str
    content: str
    text: str


class Cancelled(Struct):
    """The request was ended."""

    id: str
    cancelled: bool
