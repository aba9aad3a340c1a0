"""The body of `POST /v1/embeddings`, and what it means.

Refuses to know tokenizers. Called by `memra.http.routes.embeddings`.
"""

from typing import Any, Literal

import msgspec

from memra.errors import InvalidRequestError
from memra.http.request_headers import Caller
from memra.http.wire.refusal import refuse, refuse_unsupported
from memra.http.wire.sampling_fields import read_count, read_token_ids
from memra.messages.generation import TextPrompt, TokenPrompt
from memra.messages.texts import TextsRequest
from memra.types import ModelName, ModelTask, RequestId

MAX_INPUTS = 2048
"""Texts of one request, as in OpenAI's API."""


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """The whole body; a list of integers is one text's ids, a list of lists several."""

    model: str
    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    timeout_ms: int | None = None
    truncate_prompt_tokens: Any = None


DECODER = msgspec.json.Decoder(EmbeddingRequest)


def read_embedding_request(body: EmbeddingRequest, *, request_id: RequestId, caller: Caller) -> TextsRequest:
    """Check a body and say what it asks for.

    Raises:
        InvalidRequestError: a field is malformed, out of range or not supported; names it.
    """
    if body.truncate_prompt_tokens is not None:
        refuse_unsupported("truncate_prompt_tokens", "send texts that fit")
    if body.dimensions is not None and body.dimensions < 1:
        refuse("dimensions", "at least 1")
    return TextsRequest(
        request_id=request_id,
        model=ModelName(body.model),
        task=ModelTask.EMBED,
        texts=_texts(body.input),
        param="input",
        lane=caller.lane,
        identity=caller.identity,
        traceparent=caller.traceparent,
        timeout_ms=read_count("timeout_ms", body.timeout_ms),
    )


def _texts(given: str | list[str | int | list[int]]) -> tuple[TextPrompt | TokenPrompt, ...]:
    inputs: list[str | int | list[int]] = [given] if isinstance(given, str) else given
    if not inputs:
        raise InvalidRequestError("`input` must hold at least one text.", param="input")
    numbers = [part for part in inputs if isinstance(part, int)]
    if numbers:
        if len(numbers) < len(inputs):
            refuse("input", "one text's token ids, or a list of texts; not both")
        return (TokenPrompt(read_token_ids("input", numbers)),)
    if len(inputs) > MAX_INPUTS:
        refuse("input", f"at most {MAX_INPUTS} texts")
    return tuple(_text(part, index) for index, part in enumerate(inputs))


def _text(part: str | int | list[int], index: int) -> TextPrompt | TokenPrompt:
    if not part or isinstance(part, int):
        raise InvalidRequestError(f"`input[{index}]` must not be empty.", param="input")
    if isinstance(part, str):
        return TextPrompt(part)
    return TokenPrompt(read_token_ids("input", part))
