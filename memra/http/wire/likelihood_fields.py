"""The fields with which a request asks how likely tokens were, changes that, or wants several answers.

Refuses to know the engine; whether a model has the tokens is checked where its vocabulary is known. The two generation
routes spell log probabilities differently, so each has a function here. Called by `memra.http.wire`.
"""

from typing import Any

from memra.http.wire.refusal import refuse

MAX_CHAT_LOGPROBS = 20
MAX_COMPLETION_LOGPROBS = 5
"""OpenAI's bounds for the most likely tokens beside each generated one."""

MAX_BIAS = 100.0
MAX_BIASED_TOKENS = 1024
MAX_CHOICES = 8


def read_choices(n: int | None) -> int:
    """Return how many answers are wanted to a prompt.

    Raises:
        InvalidRequestError: none, or too many.
    """
    if n is not None and not 1 <= n <= MAX_CHOICES:
        refuse("n", f"from 1 to {MAX_CHOICES}")
    return n or 1


def read_logit_bias(bias: dict[str, float] | None) -> tuple[tuple[int, float], ...]:
    """Return tokens and what is added to their logits, by id; an empty object is none.

    Raises:
        InvalidRequestError: too many, a key that is no token id in plain digits, or a value out of range.
    """
    if not bias:
        return ()
    if len(bias) > MAX_BIASED_TOKENS:
        refuse("logit_bias", f"an object of at most {MAX_BIASED_TOKENS} token ids")
    for key, value in bias.items():
        # One spelling for each id, so that no two keys mean the same token; ten digits hold every 32-bit id.
        if not (key.isascii() and key.isdecimal() and len(key) <= 10 and str(int(key)) == key):  # noqa: PLR2004
            refuse("logit_bias", 'an object of token ids, such as {"50256": -100}')
        if not -MAX_BIAS <= value <= MAX_BIAS:
            refuse("logit_bias", f"an object whose values are from {-MAX_BIAS:g} to {MAX_BIAS:g}")
    return tuple(sorted((int(key), float(value)) for key, value in bias.items()))


def read_chat_logprobs(logprobs: Any, top_logprobs: Any) -> int | None:
    """Return how many likely tokens are wanted beside each generated one; None for no log probabilities at all.

    Raises:
        InvalidRequestError: a value is of another kind or out of range, or only `top_logprobs` is given.
    """
    if logprobs is not None and not isinstance(logprobs, bool):
        refuse("logprobs", "true or false")
    if top_logprobs is None:
        return 0 if logprobs else None
    if not _is_count(top_logprobs, MAX_CHAT_LOGPROBS):
        refuse("top_logprobs", f"from 0 to {MAX_CHAT_LOGPROBS}")
    if not logprobs:
        refuse("top_logprobs", "left out unless `logprobs` is true")
    return int(top_logprobs)


def read_completion_logprobs(logprobs: Any) -> int | None:
    """Return how many likely tokens are wanted beside each generated one; None for no log probabilities at all.

    Raises:
        InvalidRequestError: no integer, or out of range.
    """
    if logprobs is None or logprobs is False:
        return None
    if not _is_count(logprobs, MAX_COMPLETION_LOGPROBS):
        refuse("logprobs", f"an integer from 0 to {MAX_COMPLETION_LOGPROBS}")
    return int(logprobs)


def _is_count(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
