"""Exact money: decimals in text become integers, and no float ever comes near.

A price or a cost is counted in attos (10^-18 of a unit), the finest that a price may be written in; what is held,
charged or credited is counted in nanos (10^-9), which fit 64 bits up to nine milliards of units. A cost that falls
between two nanos is charged the upper one. Refuses to know databases and requests.
"""

import re
from dataclasses import dataclass

ATTOS = 10**18
NANOS = 10**9
ATTOS_IN_NANO = ATTOS // NANOS
NANOS_IN_MICRO = 1_000
MAX_NANOS = 2**63 - 1
"""What a column of 64 bits holds."""

_DECIMAL = re.compile(r"(0|[1-9][0-9]{0,9})(?:\.([0-9]{1,18}))?", re.ASCII)


def attos(text: str) -> int:
    """Read a decimal with at most ten digits before and eighteen behind the point.

    Raises:
        ValueError: it has a sign, an exponent, or more digits.
    """
    found = _DECIMAL.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not a decimal such as '0.0000025', with at most 18 digits behind the point")
    return int(found[1]) * ATTOS + int((found[2] or "").ljust(18, "0"))


def nanos(text: str) -> int:
    """Read an amount of money; as `attos`, with at most nine digits behind the point that are not 0.

    Raises:
        ValueError: it is none, or too much for a ledger.
    """
    amount, rest = divmod(attos(text), ATTOS_IN_NANO)
    if rest or amount > MAX_NANOS:
        raise ValueError(f"{text!r} has more than nine digits behind the point, or is too much for a ledger")
    return amount


def decimal_of_attos(amount: int) -> str:
    """Write attos as a decimal in plain notation, without zeros that say nothing."""
    whole, fraction = divmod(abs(amount), ATTOS)
    digits = f"{fraction:018d}".rstrip("0")
    return f"{'-' if amount < 0 else ''}{whole}{'.' if digits else ''}{digits}"


def decimal_of_nanos(amount: int) -> str:
    """Write nanos as `decimal_of_attos` does."""
    return decimal_of_attos(amount * ATTOS_IN_NANO)


def nanos_up(cost_attos: int) -> int:
    """Round a cost up to whole nanos."""
    return -(-cost_attos // ATTOS_IN_NANO)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of one model, in attos: of a token, and of a request."""

    prompt: int
    cached_prompt: int
    completion: int
    request: int

    def __post_init__(self) -> None:
        """Hold that a reused token costs no more than a computed one; a hold would not cover it otherwise.

        Raises:
            ValueError: it costs more.
        """
        if self.cached_prompt > self.prompt:
            raise ValueError("cached_prompt costs more than prompt; a reused token must not be the dearer one")

    def cost(self, tokens: "Tokens", *, num_requests: int = 1) -> int:
        """Return what tokens of so many requests cost, exactly, in attos."""
        return (
            num_requests * self.request
            + (tokens.prompt - tokens.cached_prompt) * self.prompt
            + tokens.cached_prompt * self.cached_prompt
            + tokens.completion * self.completion
        )

    def worst_case_nanos(self, prompt_tokens: int, completion_bound: int) -> int:
        """Return the most that a request can cost: nothing is reused, and every token that may be generated is."""
        return nanos_up(self.cost(Tokens(prompt=prompt_tokens, cached_prompt=0, completion=completion_bound)))


@dataclass(frozen=True, slots=True)
class Tokens:
    """What is paid for; `cached_prompt` is part of `prompt`."""

    prompt: int
    cached_prompt: int
    completion: int

    @staticmethod
    def clamped(prompt: int, cached_prompt: int, completion: int) -> "Tokens":
        """Make counts that no bill can be negative by: none below 0, and no more reused than there were."""
        prompt = max(prompt, 0)
        return Tokens(prompt=prompt, cached_prompt=min(max(cached_prompt, 0), prompt), completion=max(completion, 0))
