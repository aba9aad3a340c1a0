"""The fields that chat and completion requests share, and what those ask for that mean the same in both.

Refuses to know messages and prompts: the two say what their prompt is, and read what each spells its own way. Every
field declared here or in the modules beside it is honoured, or refused by name where its value asks for what is not
done, because an answer that silently ignores it would look right and be wrong. Labels (`user`, `session_id`,
`cache_salt`) say what may be reused, which no answer shows. Other fields are ignored, `store`, `metadata` and
`service_tier` among them: they ask for nothing that an answer shows.
"""

import re
from typing import Any

import msgspec

from memra.http.request_headers import MAX_LABEL_BYTES, Caller, is_label
from memra.http.wire.ending_fields import read_stop_strings, read_stop_token_ids
from memra.http.wire.foreign_fields import ForeignFields
from memra.http.wire.likelihood_fields import read_choices
from memra.http.wire.refusal import refuse
from memra.http.wire.sampling_fields import names_left_open, read_count, read_sampling
from memra.messages.generation import GenerationRequest, Prompt
from memra.types import ModelName, RequestId

MAX_SALT_BYTES = 64

_SALT = re.compile(r"[A-Za-z0-9\-_.+/=]*")


class StreamOptions(msgspec.Struct):
    """`stream_options` of a request."""

    include_usage: bool | None = None


class GenerationFields(ForeignFields, kw_only=True):
    """What every generation request may hold; an explicit null means the default."""

    model: str
    max_ctx: int | None = None
    timeout_ms: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    session_id: str | None = None
    cache_salt: str | None = None
    n: int | None = None
    logprobs: Any = None
    top_logprobs: Any = None
    return_tokens_as_token_ids: bool | None = None
    echo: bool | None = None
    add_special_tokens: bool | None = None
    parallel_tool_calls: bool | None = None

    @property
    def wants_usage_chunk(self) -> bool:
        """Whether the client asked for the usage in a chunk of its own."""
        return bool(self.stream_options and self.stream_options.include_usage)


def read_generation(
    fields: GenerationFields, *, request_id: RequestId, caller: Caller, prompt: Prompt, num_top_logprobs: int | None
) -> GenerationRequest:
    """Check the fields that all requests spell alike, and say what they ask for.

    Raises:
        InvalidRequestError: a field is malformed, out of range or not supported; names it.
    """
    _check_labels(fields)
    return GenerationRequest(
        request_id=request_id,
        model=ModelName(fields.model),
        prompt=prompt,
        sampling=read_sampling(fields, num_top_logprobs=num_top_logprobs),
        stop_strings=read_stop_strings(fields.stop),
        stop_token_ids=read_stop_token_ids(fields.stop_token_ids),
        lane=caller.lane,
        identity=caller.identity,
        traceparent=caller.traceparent,
        has_seed=fields.seed is not None,
        is_stream=bool(fields.stream),
        timeout_ms=read_count("timeout_ms", fields.timeout_ms),
        affinity=_affinity(fields, caller),
        cache_salt=fields.cache_salt or "",
        max_context_tokens=read_count("max_ctx", fields.max_ctx),
        num_choices=read_choices(fields.n),
        client_id=caller.client_id,
        left_open=names_left_open(fields),
    )


def _check_labels(fields: GenerationFields) -> None:
    """Check what only names things."""
    for param, label in (("user", fields.user), ("session_id", fields.session_id)):
        if label and not is_label(label):
            refuse(param, f"at most {MAX_LABEL_BYTES} bytes without control characters")
    salt = fields.cache_salt
    if salt and (len(salt) > MAX_SALT_BYTES or not _SALT.fullmatch(salt)):
        refuse("cache_salt", f"at most {MAX_SALT_BYTES} of the characters A-Z a-z 0-9 - _ . + / =")


def _affinity(fields: GenerationFields, caller: Caller) -> str | None:
    """Return the name of the conversation: `session_id`, else `user`, else the header; blank ones name nothing."""
    for label in (fields.session_id, fields.user):
        if label and label.strip():
            return label.strip()
    return caller.conversation
