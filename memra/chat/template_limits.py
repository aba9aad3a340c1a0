"""How much work one rendering of a chat template may cost, and how it is counted.

Trade: a budget, and estimates of what an operation would produce, made before it runs. It refuses to know Jinja: the
environment in `memra.chat.template_environment` asks it at every loop turn, call, filter and operator.

A template comes with a model file, so it is foreign code. Its loops are counted turn by turn, and every operation that
can make a small value large is estimated first. What is left is work that grows with the size of existing values,
which the same budget keeps small.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

_STEP_COST = 100
"""Work units of one loop turn or macro call; a character built costs one."""

_NODE_COST = 16
"""Characters that one number, key or bracket of a nested value is taken for when it becomes text."""

_MAX_INT_BITS = 4096
"""Size of the largest whole number a template may compute; transformers has no such limit, no template comes near."""

_UNBOUNDED_FORMAT = re.compile(
    r"%(\([^)]*\))?[-+ #0]*(\d*\.)?(\*|\d{7})"  # a width or precision of seven digits, or taken from an argument
    r"|\{[^{}]*:[^{}]*(\{|\d{7})"
)


class RenderLimitError(Exception):
    """The template asked for more than its limits; the message says which."""


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """What one rendering may cost; far above what templates in use need.

    Attributes:
        max_chars: of the prompt, and of any single text on the way to it. A million tokens are about 4 million
            characters, and templates may hold a few copies.
        max_work: characters built plus 100 for each loop turn, over the whole rendering; room for ten million turns.
        max_s: wall time, seconds.
    """

    max_chars: int = 1 << 24
    max_work: int = 1 << 30
    max_s: float = 10.0


class RenderMeter:
    """The budget of one rendering; used by one thread."""

    def __init__(self, limits: RenderLimits) -> None:
        """Start the clock."""
        self._max_chars = limits.max_chars
        self._work_left = limits.max_work
        self._deadline = time.monotonic() + limits.max_s

    def take_step(self) -> None:
        """Count one loop turn or macro call.

        Raises:
            RenderLimitError: the work or the time is used up.
        """
        self._spend(_STEP_COST)

    def take_chars(self, num_chars: int) -> None:
        """Count a value of that size.

        Raises:
            RenderLimitError: the value is too large, or the work or the time is used up.
        """
        self.check_length(num_chars)
        self._spend(num_chars)

    def check_length(self, num_chars: int) -> None:
        """Refuse a text of that length; its parts are counted elsewhere.

        Raises:
            RenderLimitError: the text is too long.
        """
        if num_chars > self._max_chars:
            raise RenderLimitError(f"the template builds more than {self._max_chars} characters")

    def take_result(self, value: Any) -> None:
        """Count a value that a call or a filter has made; the values inside a collection are counted where they arise.

        Raises:
            RenderLimitError: as `take_chars`.
        """
        if isinstance(value, str):
            self.take_chars(len(value))
        elif isinstance(value, list | tuple | dict | set):
            self.take_chars(_NODE_COST * len(value))

    def take_value(self, value: Any) -> None:
        """Count a value that is about to become text; nested values are measured without building the text.

        Raises:
            RenderLimitError: as `take_chars`.
        """
        self.take_chars(measure_text(value, limit=self._max_chars))

    def _spend(self, work: int) -> None:
        self._work_left -= work
        if self._work_left < 0 or time.monotonic() > self._deadline:
            raise RenderLimitError("the template does not come to an end within its limits of work and time")


CURRENT_METER: ContextVar[RenderMeter] = ContextVar("memra_render_meter")
"""The meter of the rendering that runs in this context; set by whoever renders or compiles."""


def measure_text(value: Any, *, limit: int) -> int:
    """Return about how many characters a value has as text; stops counting soon after `limit`.

    Values that share parts are counted as often as they would be written, so a small value of exponential text is
    found out.
    """
    if isinstance(value, str):
        return len(value)
    size = 0
    pending = [value]
    while pending and size <= limit:
        item = pending.pop()
        size += _NODE_COST
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict):
            pending.extend(item.keys())
            pending.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            pending.extend(item)
    return size


def check_operator(meter: RenderMeter, operator: str, left: Any, right: Any) -> None:
    """Count the result of `left operator right` for `+`, `*`, `**` and `%` before it is computed.

    Raises:
        RenderLimitError: the result would be too large.
    """
    if isinstance(left, int) and isinstance(right, int):
        _check_integers(operator, left, right)
    elif operator == "%" and isinstance(left, str):
        check_format(meter, left, right if isinstance(right, tuple) else (right,))
    elif operator == "*" and isinstance(right, int):
        meter.take_chars(_length(left) * right)
    elif operator == "*" and isinstance(left, int):
        meter.take_chars(_length(right) * left)
    elif operator == "+":
        meter.take_chars(_length(left) + _length(right))


def check_format(meter: RenderMeter, pattern: str, values: Iterable[Any]) -> None:
    """Count the text that a `%` or `str.format` pattern would make of its values.

    Raises:
        RenderLimitError: the result would be too large, or its width cannot be known beforehand.
    """
    if _UNBOUNDED_FORMAT.search(pattern):
        raise RenderLimitError("the template uses a format whose width is not bounded")
    num_fields = max(pattern.count("%"), pattern.count("{"))
    meter.take_chars(len(pattern) + num_fields * max(map(_measure_argument, values), default=0))


def check_growth(meter: RenderMeter, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Count the result of a string method or a filter of a name in `GROWING`; the first of `args` is its subject.

    Raises:
        RenderLimitError: the result would be too large.
    """
    if name == "format":
        check_format(meter, str(args[0]), [*args[1:], *kwargs.values()])
    else:
        meter.take_chars(_ESTIMATES[name](args[0], [*args[1:], *kwargs.values()]))


def _check_integers(operator: str, left: int, right: int) -> None:
    bits = max(left.bit_length(), right.bit_length())
    if operator == "*":
        bits = left.bit_length() + right.bit_length()
    elif operator == "**":
        bits = left.bit_length() * abs(right)
    if bits > _MAX_INT_BITS:
        raise RenderLimitError(f"the template computes a number of more than {_MAX_INT_BITS} bits")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple) else 0


def _measure_argument(value: Any) -> int:
    return measure_text(value, limit=1 << 32)


def _largest(options: Iterable[Any]) -> int:
    """The largest number or text length among a filter's options."""
    return max((item if isinstance(item, int) else _length(item) for item in options), default=0)


def _after_padding(_subject: Any, options: list[Any]) -> int:
    return _largest(options)


def _after_indenting(subject: Any, options: list[Any]) -> int:
    return (str(subject).count("\n") + 1) * _largest(options)


def _after_expanding_tabs(subject: Any, options: list[Any]) -> int:
    return str(subject).count("\t") * _largest(options)


def _after_replacing(subject: Any, options: list[Any]) -> int:
    match options:
        case [str() as old, str() as new, *_]:
            return str(subject).count(old) * len(new)
        case _:
            return 0


def _after_wrapping(subject: Any, options: list[Any]) -> int:
    texts = [option for option in options if isinstance(option, str)]
    return len(str(subject)) * _largest(texts)


def _after_translating(subject: Any, options: list[Any]) -> int:
    tables = [option for option in options if isinstance(option, Mapping)]
    return len(str(subject)) * max((_largest(table.values()) for table in tables), default=0)


_ESTIMATES: Mapping[str, Callable[[Any, list[Any]], int]] = {
    "batch": _after_padding,
    "center": _after_padding,
    "expandtabs": _after_expanding_tabs,
    "indent": _after_indenting,
    "ljust": _after_padding,
    "replace": _after_replacing,
    "rjust": _after_padding,
    "round": _after_padding,
    "slice": _after_padding,
    "translate": _after_translating,
    "wordwrap": _after_wrapping,
    "zfill": _after_padding,
}

GROWING = frozenset({"format", *_ESTIMATES})
"""Names of string methods and filters whose result is estimated before they run."""
