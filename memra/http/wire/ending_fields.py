"""The fields that say when an answer ends, and what of its end shows: stop strings and tokens, and the model's own.

Refuses to know tokenizers. The names are OpenAI's where it has one and vLLM's otherwise. Called by `generation_fields`,
`chat_request` and `completion_request`.
"""

from memra.errors import InvalidRequestError
from memra.http.wire.refusal import refuse
from memra.http.wire.sampling_fields import read_count, read_token_ids
from memra.http.wire.thinking_fields import ThinkingFields
from memra.messages.generation import EndRules

MAX_STOPS = 16
MAX_STOP_BYTES = 1024
MAX_STOPS_BYTES = 4096
MAX_STOP_TOKENS = 16


class EndingFields(ThinkingFields, kw_only=True):  # msgspec's structs cannot have two bases with fields
    """Where an answer ends; an explicit null means the default."""

    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None


def read_stop_strings(stop: str | list[str] | None) -> tuple[str, ...]:
    """Return the stop strings; empty ones never match and are dropped.

    Raises:
        InvalidRequestError: too many, or too long.
    """
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    sizes = [len(text.encode()) for text in stops]
    if len(stops) > MAX_STOPS or sum(sizes) > MAX_STOPS_BYTES or max(sizes, default=0) > MAX_STOP_BYTES:
        refuse(
            "stop",
            f"at most {MAX_STOPS} strings of at most {MAX_STOP_BYTES} bytes each and {MAX_STOPS_BYTES} bytes together",
        )
    return tuple(text for text in stops if text)


def read_stop_token_ids(token_ids: list[int] | None) -> frozenset[int]:
    """Return the stop tokens.

    Raises:
        InvalidRequestError: too many, or as `read_token_ids`.
    """
    if token_ids and len(token_ids) > MAX_STOP_TOKENS:
        refuse("stop_token_ids", f"at most {MAX_STOP_TOKENS} token ids")
    return frozenset(read_token_ids("stop_token_ids", token_ids))


def read_ends(fields: EndingFields, *, max_tokens: int | None, bound_by: str | None) -> EndRules:
    """Return when the answer may end.

    Args:
        fields: as sent.
        max_tokens: already read, since the routes spell it differently.
        bound_by: the field that binds the answer to a shape, or None: such an answer ends when its shape is complete.

    Raises:
        InvalidRequestError: a value is out of range, or cannot be had together with another one.
    """
    min_tokens = read_count("min_tokens", fields.min_tokens) or 0
    if max_tokens is not None and min_tokens > max_tokens:
        refuse("min_tokens", "at most `max_tokens`")
    for name, is_asked in (("min_tokens", min_tokens > 0), ("ignore_eos", bool(fields.ignore_eos))):
        if is_asked and bound_by is not None:
            raise InvalidRequestError(
                f"`{name}` cannot be combined with `{bound_by}`, which says where the answer ends; send one of them.",
                param=name,
            )
    return EndRules(
        min_new_tokens=min_tokens,
        ignores_eos=bool(fields.ignore_eos),
        shows_stop_string=bool(fields.include_stop_str_in_output),
        shows_control=fields.skip_special_tokens is False,
    )
