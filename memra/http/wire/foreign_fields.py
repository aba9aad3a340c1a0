"""Fields that other servers honour and this one does not: each is refused by name where it asks for something.

An answer without what such a field asks for would look right and be wrong. Refuses to know what is honoured. Fields
that no server would change an answer for are not here: they are ignored. Called by `chat_request` and
`completion_request`.
"""

from collections.abc import Mapping
from typing import Any

from memra.http.wire.ending_fields import EndingFields
from memra.http.wire.refusal import refuse_unsupported

_LEAVE_OUT = "leave it out"

_REMEDIES: Mapping[str, str] = {
    "allowed_token_ids": "use `grammar`, or `logit_bias`",
    "audio": _LEAVE_OUT,
    "bad_words": "use `logit_bias`",
    "chat_template": "messages are written by the model's own template",
    "documents": "put their text into a message",
    "functions": "use `tools`",
    "prompt_embeds": _LEAVE_OUT,
    "prompt_logprobs": "use `echo` with `logprobs` on /v1/completions",
    "return_token_ids": "/v1/completions has them in this server's own shape, MEMRA_COMPAT=native",
    "truncate_prompt_tokens": "send a shorter prompt",
    "use_beam_search": _LEAVE_OUT,
    "web_search_options": _LEAVE_OUT,
}
"""What to do instead; null, false and what is empty ask for nothing."""

_TEXT = "text"


class ForeignFields(EndingFields, kw_only=True):
    """Any value, since only that there is one matters."""

    allowed_token_ids: Any = None
    audio: Any = None
    bad_words: Any = None
    chat_template: Any = None
    documents: Any = None
    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    prompt_embeds: Any = None
    prompt_logprobs: Any = None
    return_token_ids: Any = None
    truncate_prompt_tokens: Any = None
    use_beam_search: Any = None
    web_search_options: Any = None


def refuse_foreign(fields: ForeignFields) -> None:
    """Refuse by name what would change the answer and is not supported.

    Raises:
        InvalidRequestError: such a field asks for something.
    """
    for name, remedy in _REMEDIES.items():
        value = getattr(fields, name)
        # A number asks for something even where it is 0, but for `false`.
        if value or (value is not None and isinstance(value, (int, float)) and not isinstance(value, bool)):
            refuse_unsupported(name, remedy)
    if fields.function_call not in (None, "none", "auto"):
        refuse_unsupported("function_call", "use `tool_choice`")
    if fields.modalities not in (None, [], [_TEXT]):
        refuse_unsupported("modalities", "this server answers in text")
