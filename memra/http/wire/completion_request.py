"""The body of `POST /v1/completions`, and what it means.

Refuses to know tokenizers. Called by `memra.http.routes.completions`.
"""

from typing import Any

import msgspec

from memra.errors import InvalidRequestError
from memra.http.request_headers import Caller
from memra.http.wire.generation_fields import (
    GenerationFields,
    check_labels,
    check_unsupported,
    read_affinity,
    read_stop_strings,
)
from memra.http.wire.refusal import refuse, refuse_unsupported
from memra.http.wire.sampling_fields import read_count, read_sampling, read_stop_token_ids, read_token_ids
from memra.http.wire.thinking_fields import read_thinking, refuse_thinking
from memra.messages.generation import ChatPrompt, GenerationRequest, Prompt, TextPrompt, TokenPrompt
from memra.types import ModelName, RequestId


class CompletionRequest(GenerationFields, kw_only=True):
    """The whole body."""

    prompt: str | None = None
    prompt_ids: list[int] | None = None
    chat: bool | None = None
    best_of: int | None = None
    echo: bool | None = None
    suffix: Any = None


DECODER = msgspec.json.Decoder(CompletionRequest)


def read_completion_request(body: CompletionRequest, *, request_id: RequestId, caller: Caller) -> GenerationRequest:
    """Check a body and say what it asks for.

    Raises:
        InvalidRequestError: a field is malformed, out of range or not supported; names it.
    """
    check_unsupported(body)
    _check_unsupported_here(body)
    check_labels(body)
    return GenerationRequest(
        request_id=request_id,
        model=ModelName(body.model),
        prompt=_prompt(body),
        sampling=read_sampling(body),
        max_new_tokens=read_count("max_tokens", body.max_tokens),
        stop_strings=read_stop_strings(body.stop),
        stop_token_ids=read_stop_token_ids(body.stop_token_ids),
        lane=caller.lane,
        api_key=caller.api_key,
        traceparent=caller.traceparent,
        has_seed=body.seed is not None,
        is_stream=bool(body.stream),
        timeout_ms=read_count("timeout_ms", body.timeout_ms),
        affinity=read_affinity(body, caller),
        cache_salt=body.cache_salt or "",
    )


def _check_unsupported_here(body: CompletionRequest) -> None:
    if body.logprobs is not None:
        refuse_unsupported("logprobs")
    if body.best_of not in (None, 1):
        refuse("best_of", "1: this server gives one choice per request")
    if body.echo:
        refuse_unsupported("echo")
    if body.suffix:
        refuse_unsupported("suffix")


def _prompt(body: CompletionRequest) -> Prompt:
    if not (body.prompt or body.prompt_ids):
        raise InvalidRequestError("`prompt` must not be empty, unless `prompt_ids` is given.", param="prompt")
    if body.prompt and body.chat and not body.prompt_ids:
        message = {"role": "user", "content": body.prompt}
        return ChatPrompt((message,), template_options=read_thinking(body, {}), param="prompt")
    refuse_thinking(body)
    if body.prompt_ids:
        return TokenPrompt(read_token_ids("prompt_ids", body.prompt_ids))
    return TextPrompt(body.prompt or "")
