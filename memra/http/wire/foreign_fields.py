"""Fields that other servers honour and this one does not: each is refused by name where it asks for something.

An answer without what such a field asks for would look right and be wrong. Refuses to know what is honoured. Fields
that no server would change an answer for are not here: they are ignored. Called by `chat_request` and
`completion_request`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.http.wire.ending_fields import EndingFields
from memra.http.wire.refusal import refuse_unsupported

_LEAVE_OUT = "leave it out"
_ONLY_TEXT = "answers are text, so leave it out"

REMEDIES: Mapping[str, str] = {
    "allowed_token_ids": "use `grammar`, or `logit_bias`",
    "audio": _ONLY_TEXT,
    "bad_words": "use `logit_bias`",
    "chat_template": "messages are written by the model's own template",
    "documents": "put their text into a message",
    "function_call": "use `tool_choice`",
    "functions": "use `tools`",
    "modalities": _ONLY_TEXT,
    "prompt_embeds": _LEAVE_OUT,
    "prompt_logprobs": "use `echo` with `logprobs` on /v1/completions",
    "return_token_ids": "/v1/completions has them in this server's own shape, MEMRA_COMPAT=native",
    "truncate_prompt_tokens": "send a shorter prompt",
    "use_beam_search": _LEAVE_OUT,
    "web_search_options": _LEAVE_OUT,
}
"""What to do instead, by field."""

_NOTHING: Sequence[Any] = (None, False, "", [])
_OWN_NOTHING: Mapping[str, Sequence[Any]] = {
    "function_call": (None, "none", "auto"),
    "modalities": (None, [], ["text"]),
}


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


def nothing_asked(name: str) -> Sequence[Any]:
    """Return the values with which a field asks for nothing; an empty object asks for the defaults of something."""
    return _OWN_NOTHING.get(name, _NOTHING)


def refuse_foreign(fields: ForeignFields) -> None:
    """Refuse by name what would change the answer and is not supported.

    Raises:
        InvalidRequestError: such a field asks for something.
    """
    for name, remedy in REMEDIES.items():
        value = getattr(fields, name)
        # By type too: 0 is a number of things that are wanted, and equal to False.
        if not any(type(value) is type(nothing) and value == nothing for nothing in nothing_asked(name)):
            refuse_unsupported(name, remedy)
