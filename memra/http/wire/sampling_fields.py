"""The fields of a request that are numbers for the engine, and the bounds within which it may do arithmetic with them.

Refuses to know text. The samplers compute in float32 and the engine counts in int64: the bounds are wider than what
makes sense, and so narrow that no product of two values inside them overflows. Called by `memra.http.wire`.
"""

import math
import secrets

from memra.http.wire.grammar_fields import GrammarFields
from memra.http.wire.likelihood_fields import read_logit_bias
from memra.http.wire.refusal import refuse
from memra.messages.sampling import SamplingParams

MAX_INT = 2**31 - 1
"""Largest count and token id: in int32, since indices are kept in it; no context is longer, no vocabulary larger."""

MAX_SEED = 2**64 - 1
MAX_TEMPERATURE = 100.0
MAX_PENALTY = 100.0
"""Of frequency and presence; OpenAI's own bound is 2. Times any window of tokens it stays far within float32."""

MIN_REPETITION_PENALTY = 0.01
MAX_REPETITION_PENALTY = 100.0
_WITH_DEFAULTS = (
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty",
)  # fmt: skip
"""What the owner of a server may lay down for a model, by the names of both the fields and the settings."""


class SamplingFields(GrammarFields, kw_only=True):  # msgspec's structs cannot have two bases with fields
    """How to choose tokens; an explicit null means the default."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    logit_bias: dict[str, float] | None = None


def read_sampling(fields: SamplingFields, *, num_top_logprobs: int | None = None) -> SamplingParams:
    """Return the sampling settings; a request without a seed gets a fresh random one.

    Args:
        fields: as sent.
        num_top_logprobs: already read, since the routes spell it differently.

    Raises:
        InvalidRequestError: a value is out of range.
    """
    return SamplingParams(
        temperature=_temperature(fields.temperature),
        top_k=read_count("top_k", fields.top_k) or 0,
        top_p=_top_p(fields.top_p),
        min_p=_between("min_p", fields.min_p, 0.0, 1.0, default=0.0),
        frequency_penalty=_penalty("frequency_penalty", fields.frequency_penalty),
        presence_penalty=_penalty("presence_penalty", fields.presence_penalty),
        repetition_penalty=_between(
            "repetition_penalty",
            fields.repetition_penalty,
            MIN_REPETITION_PENALTY,
            MAX_REPETITION_PENALTY,
            default=1.0,
        ),
        seed=_seed(fields.seed),
        logit_bias=read_logit_bias(fields.logit_bias),
        num_top_logprobs=num_top_logprobs,
    )


def names_left_open(fields: SamplingFields) -> frozenset[str]:
    """Return the settings that a request does not name, for which the model may have defaults of its own."""
    return frozenset(name for name in _WITH_DEFAULTS if getattr(fields, name) is None)


def read_count(param: str, value: int | None) -> int | None:
    """Return a count as sent, or None where none was.

    Raises:
        InvalidRequestError: negative, or above `MAX_INT`.
    """
    if value is not None and not 0 <= value <= MAX_INT:
        refuse(param, f"from 0 to {MAX_INT}")
    return value


def read_token_ids(param: str, token_ids: list[int] | None) -> tuple[int, ...]:
    """Return token ids as sent; whether the model has them is checked where the vocabulary is known.

    Raises:
        InvalidRequestError: one is negative, or above `MAX_INT`.
    """
    if token_ids and not (min(token_ids) >= 0 and max(token_ids) <= MAX_INT):
        refuse(param, f"token ids from 0 to {MAX_INT}")
    return tuple(token_ids or ())


def _between(param: str, value: float | None, low: float, high: float, *, default: float) -> float:
    number = default if value is None else value
    if not low <= number <= high:
        refuse(param, f"from {low:g} to {high:g}")
    return number


def _temperature(value: float | None) -> float:
    number = 1.0 if value is None else value
    if not (number <= MAX_TEMPERATURE and math.isfinite(number)):
        refuse("temperature", f"a finite number of at most {MAX_TEMPERATURE:g}")
    # Whatever is not above zero means greedy; how far below is nobody's business.
    return max(number, 0.0)


def _top_p(value: float | None) -> float:
    number = 1.0 if value is None else value
    if not 0.0 < number <= 1.0:
        refuse("top_p", "above 0 and at most 1")
    return number


def _penalty(param: str, value: float | None) -> float:
    return _between(param, value, -MAX_PENALTY, MAX_PENALTY, default=0.0)


def _seed(value: int | None) -> int:
    if value is None:
        return secrets.randbits(64)
    if not 0 <= value <= MAX_SEED:
        refuse("seed", f"from 0 to {MAX_SEED}")
    return value
