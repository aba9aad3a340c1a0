"""The fields that chat and completion requests share: sampling, limits, stops and labels.

Refuses to know messages and prompts. Unknown fields are ignored; known ones that are not supported are refused by name,
because an answer that silently ignores them would look right and be wrong.
"""

import math
import re
import secrets
from typing import Any, NoReturn

import msgspec

from memra.errors import InvalidRequestError
from memra.messages.sampling import SamplingParams

MAX_SEED = 2**64 - 1
MAX_STOPS = 16
MAX_STOP_BYTES = 1024
MAX_STOPS_BYTES = 4096
MAX_STOP_TOKENS = 16
MAX_LABEL_BYTES = 256
MAX_SALT_BYTES = 64

_SALT = re.compile(r"[A-Za-z0-9\-_.+/=]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class StreamOptions(msgspec.Struct):
    """`stream_options` of a request."""

    include_usage: bool | None = None


class GenerationFields(msgspec.Struct, kw_only=True):
    """What every generation request may hold; an explicit null means the default."""

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    session_id: str | None = None
    cache_salt: str | None = None
    n: int | None = None
    logit_bias: Any = None
    logprobs: Any = None
    top_logprobs: Any = None
    response_format: Any = None

    @property
    def wants_usage_chunk(self) -> bool:
        """Whether the client asked for the usage in a chunk of its own."""
        return bool(self.stream_options and self.stream_options.include_usage)


def refuse(param: str, rule: str) -> NoReturn:
    """Refuse a field's value: "`param` must be ..."."""
    raise InvalidRequestError(f"`{param}` must be {rule}.", param=param)


def refuse_unsupported(param: str, remedy: str = "leave it out") -> NoReturn:
    """Refuse a field that this server does not support."""
    raise InvalidRequestError(f"`{param}` is not supported by this server; {remedy}.", param=param)


def check_labels(fields: GenerationFields) -> None:
    """Check what a request says beside its text; the values only name things.

    Raises:
        InvalidRequestError: a label is too long, or holds characters that it may not hold.
    """
    for param, label in (("user", fields.user), ("session_id", fields.session_id)):
        if label and (len(label.encode()) > MAX_LABEL_BYTES or _CONTROL.search(label)):
            refuse(param, f"at most {MAX_LABEL_BYTES} bytes without control characters")
    salt = fields.cache_salt
    if salt and (len(salt) > MAX_SALT_BYTES or not _SALT.fullmatch(salt)):
        refuse("cache_salt", f"at most {MAX_SALT_BYTES} of the characters A-Z a-z 0-9 - _ . + / =")


def check_unsupported(fields: GenerationFields) -> None:
    """Refuse by name what would change the answer and is not supported.

    Raises:
        InvalidRequestError: such a field is present.
    """
    if fields.n not in (None, 1):
        refuse("n", "1: this server gives one choice per request")
    if fields.logit_bias is not None:
        refuse_unsupported("logit_bias")
    if fields.top_logprobs is not None:
        refuse_unsupported("top_logprobs")
    if fields.response_format not in (None, {"type": "text"}):
        refuse_unsupported("response_format", 'only {"type": "text"} is')


def read_max_tokens(param: str, value: int | None) -> int | None:
    """Return the limit as asked; None is as far as the context goes.

    Raises:
        InvalidRequestError: negative.
    """
    if value is not None and value < 0:
        refuse(param, "0 or more")
    return value


def read_sampling(fields: GenerationFields) -> SamplingParams:
    """Return the sampling settings; a request without a seed gets a fresh random one.

    Raises:
        InvalidRequestError: a value is out of range.
    """
    return SamplingParams(
        temperature=_finite("temperature", fields.temperature, default=1.0),
        top_k=_top_k(fields.top_k),
        top_p=_top_p(fields.top_p),
        min_p=_min_p(fields.min_p),
        frequency_penalty=_finite("frequency_penalty", fields.frequency_penalty, default=0.0),
        presence_penalty=_finite("presence_penalty", fields.presence_penalty, default=0.0),
        repetition_penalty=_repetition_penalty(fields.repetition_penalty),
        seed=_seed(fields.seed),
    )


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
    """Return the stop tokens; whether the model has them is checked where the vocabulary is known.

    Raises:
        InvalidRequestError: too many, or negative.
    """
    if token_ids and (len(token_ids) > MAX_STOP_TOKENS or min(token_ids) < 0):
        refuse("stop_token_ids", f"at most {MAX_STOP_TOKENS} token ids from 0 up")
    return frozenset(token_ids or ())


def _finite(param: str, value: float | None, *, default: float) -> float:
    number = default if value is None else value
    if not math.isfinite(number):
        refuse(param, "a finite number")
    return number


def _top_k(value: int | None) -> int:
    if value is not None and value < 0:
        refuse("top_k", "0 (off) or more")
    return value or 0


def _top_p(value: float | None) -> float:
    number = 1.0 if value is None else value
    if not 0.0 < number <= 1.0:
        refuse("top_p", "above 0 and at most 1")
    return number


def _min_p(value: float | None) -> float:
    number = value or 0.0
    if not 0.0 <= number <= 1.0:
        refuse("min_p", "from 0 to 1")
    return number


def _repetition_penalty(value: float | None) -> float:
    number = 1.0 if value is None else value
    if not (number > 0.0 and math.isfinite(number)):
        refuse("repetition_penalty", "a finite number above 0")
    return number


def _seed(value: int | None) -> int:
    if value is None:
        return secrets.randbits(64)
    if not 0 <= value <= MAX_SEED:
        refuse("seed", f"from 0 to {MAX_SEED}")
    return value
