"""The filters of chat templates, each of which counts what it makes.

Trade: Jinja's own filters behind a count, and `transformers`' `tojson`. It refuses to know templates and messages.
Called by `memra.chat.template_environment`.
"""

import functools
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Environment
from jinja2.nodes import EvalContext

from memra.chat.template_limits import CURRENT_METER, GROWING, RenderLimitError, check_growth

_MAX_INDENT = 64
"""Longest indent or separator that `tojson` takes, characters."""

_SEQUENCE_FILTERS = frozenset(
    {"attr", "batch", "count", "d", "default", "dictsort", "first", "groupby", "items", "join", "last", "length"}
    | {"list", "map", "max", "min", "random", "reject", "rejectattr", "reverse", "select", "selectattr", "slice"}
    | {"sort", "sum", "unique"}
)
"""Filters that pass nested values on instead of turning them into text."""


def metered_filters(defaults: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the filters of chat templates, made of Jinja's defaults."""
    own = {"tojson": _to_json, "join": _metered_join(defaults["join"]), "sum": _metered_sum(defaults["sum"])}
    return {name: _metered_filter(name, filter_) for name, filter_ in {**defaults, **own}.items()}


def counted_items(separator: Any, items: Any) -> list[Any]:
    """Return the items of a join, after the text they will make was counted.

    Raises:
        RenderLimitError: the text would be too long.
    """
    counted = list(items)
    meter = CURRENT_METER.get()
    meter.take_chars(len(str(separator)) * len(counted))
    for item in counted:
        meter.take_value(item)
    meter.take_value(counted)
    return counted


def _metered_join(join: Callable[..., Any]) -> Callable[..., Any]:
    """The `join` filter, which takes the evaluation context before the items."""

    @functools.wraps(join)
    def counted(eval_context: EvalContext, value: Any, d: Any = "", attribute: Any = None) -> Any:
        return join(eval_context, counted_items(d, value), d, attribute)

    return counted


def _metered_sum(sum_: Callable[..., Any]) -> Callable[..., Any]:
    """The `sum` filter, which takes the environment first; collections are copied once for each that is added."""

    @functools.wraps(sum_)
    def counted(environment: Environment, iterable: Any, attribute: Any = None, start: Any = 0) -> Any:
        if isinstance(start, int | float):
            return sum_(environment, iterable, attribute, start)
        if attribute is not None:
            raise RenderLimitError("the template adds up an attribute of collections")
        values = list(iterable)
        lengths = itertools.accumulate(len(value) for value in values if isinstance(value, list | tuple))
        CURRENT_METER.get().take_chars(sum(lengths))
        return sum_(environment, values, None, start)

    return counted


def _metered_filter(name: str, filter_: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose subject, options and result are counted; markers of what Jinja passes first are kept."""
    first = 1 if hasattr(filter_, "jinja_pass_arg") else 0
    makes_text = name not in _SEQUENCE_FILTERS
    may_grow = name in GROWING

    @functools.wraps(filter_)
    def counted(*args: Any, **kwargs: Any) -> Any:
        meter = CURRENT_METER.get()
        if makes_text and args[first:] and not isinstance(args[first], str):
            meter.take_value(args[first])
        if may_grow:
            check_growth(meter, name, args[first:], kwargs)
        result = filter_(*args, **kwargs)
        meter.take_result(result)
        return result

    return counted


def _to_json(  # the arguments and their order are the templates'
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """The `tojson` filter without HTML escapes."""
    widths = [indent if isinstance(indent, int) else len(indent or ""), *map(len, separators or ())]
    if max(widths) > _MAX_INDENT:
        raise RenderLimitError(f"the template asks tojson for an indent of more than {_MAX_INDENT} characters")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
