"""The sandbox in which chat templates run: the language of `transformers`' templates, with every piece of work counted.

Trade: Jinja2's immutable sandbox with the same options, extensions, filters and globals that `transformers` 5 gives to
chat templates, so that the same source renders the same text; plus the counting of `memra.chat.template_limits`. It
refuses to know messages, tools and tokens.

Differences from `transformers`, both on purpose: the limits, and no `lipsum` (random filler text, at any length).
"""

import functools
from collections.abc import Callable
from datetime import datetime
from types import BuiltinMethodType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro, markup_join, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from memra.chat.template_filters import counted_items, metered_filters
from memra.chat.template_limits import (
    CURRENT_METER,
    GROWING,
    check_format,
    check_growth,
    check_operator,
)

_DICT_ATTRIBUTES = frozenset(dir(dict))
"""Names that Jinja finds as attributes of a dictionary before it looks for a key."""


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """One per template; shared by threads once the template is compiled.

    Args:
        clock: the local time for `strftime_now`.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, *, clock: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, loopcontrols],
            finalize=_count_output,
        )
        self.concat = _join_buffer  # type: ignore[method-assign]
        self.filters = metered_filters(self.filters) | {_STEP: _take_step, _JOIN: _join_operands, _COPY: _count_copy}
        self.globals |= {
            "dict": _DictFactory(),
            "namespace": _TemplateNamespace,
            "raise_exception": _raise_exception,
            "strftime_now": lambda format: clock().strftime(format),  # noqa: A006  (the templates' name for it)
        }
        del self.globals["lipsum"]

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Look up `obj.attribute`; what templates ask most, a key of a dictionary, without Jinja's failed attempt."""
        if type(obj) is dict and attribute in obj and attribute not in _DICT_ATTRIBUTES:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator whose result can be larger than its operands."""
        if operator == "+" and type(left) is type(right) is str:
            CURRENT_METER.get().take_chars(len(left) + len(right))
            return left + right
        check_operator(CURRENT_METER.get(), operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call something on behalf of the template."""
        meter = CURRENT_METER.get()
        if isinstance(obj, BuiltinMethodType) and isinstance(obj.__self__, str):
            if obj.__name__ == "join" and args:
                args = (counted_items(obj.__self__, args[0]), *args[1:])
            elif obj.__name__ in GROWING:
                check_growth(meter, obj.__name__, (obj.__self__, *args), kwargs)
        result = super().call(context, obj, *args, **kwargs)
        meter.take_result(result)
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return a safe stand-in for `str.format`, or None for anything else."""
        safe_format = super().wrap_str_format(value)
        if safe_format is None:
            return None
        pattern: str = value.__self__

        @functools.wraps(safe_format)
        def counted_format(*args: Any, **kwargs: Any) -> str:
            check_format(CURRENT_METER.get(), pattern, [*args, *kwargs.values()])
            return safe_format(*args, **kwargs)

        return counted_format

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        """Jinja's hook for another code generator: the counting calls are put into the tree first."""
        return super()._generate(_CountingCalls().visit(source), *args, **kwargs)


class _CountingCalls(NodeTransformer):
    """Puts the counting into a parsed template.

    It is written as filters, because Jinja compiles a filter to a plain call.
    """

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  (named after the node)
        return self._count_body(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._count_body(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        return self._count_body(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(_JOIN, node.nodes, lineno=node.lineno)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(_COPY, [node], lineno=node.lineno) if isinstance(node.arg, nodes.Slice) else node

    def _count_body(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:
        self.generic_visit(node)
        step = _filter(_STEP, [nodes.Const(None)], lineno=node.lineno)
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        return node


_STEP, _JOIN, _COPY = "count a step", "join operands", "count a copy"


def _filter(name: str, args: list[nodes.Expr], *, lineno: int) -> nodes.Filter:
    return nodes.Filter(args[0], name, args[1:], [], None, None, lineno=lineno)


@jinja2.pass_context  # what needs the context is not computed by the compiler
def _take_step(_context: Context, _nothing: None) -> None:
    """Count a loop turn or a macro call."""
    CURRENT_METER.get().take_step()


@jinja2.pass_eval_context
def _join_operands(eval_context: EvalContext, *values: Any) -> str:
    """What `~` does, counted."""
    meter = CURRENT_METER.get()
    for value in values:
        meter.take_value(value)
    return markup_join(values) if eval_context.autoescape else str_join(values)


def _count_copy(value: Any) -> Any:
    """Count what a slice has copied."""
    CURRENT_METER.get().take_result(value)
    return value


class _GenerationTag(Extension):
    """`{% generation %}`, with which training marks the assistant's words: for rendering, only its body counts.

    The body is a call block, as in `transformers`: what it sets stays inside.
    """

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: Parser) -> nodes.CallBlock:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body_text"), [], [], body, lineno=lineno)

    def _body_text(self, caller: Macro) -> str:
        return caller()


class _DictFactory:
    """`dict` for templates: makes dictionaries, and shows nothing of the class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args, **kwargs)


class _TemplateNamespace(Namespace):
    """`namespace` for templates: takes no name that could reach into Python."""

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        values = dict(*args, **kwargs)
        for name in values:
            _check_attribute_name(name)
        super().__init__(values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute_name(name)
        super().__setitem__(name, value)


def _check_attribute_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace attribute may not begin with an underscore: {name!r}")


def _raise_exception(message: Any) -> None:
    raise jinja2.TemplateError(message)


def _count_output(value: Any) -> Any:
    """Count nested values before the output turns them into text; text itself is counted where it is collected."""
    if isinstance(value, dict | list | tuple):
        CURRENT_METER.get().take_value(value)
    return value


def _join_buffer(pieces: Any) -> str:
    """Join what a macro, a call block or a `set` block has collected."""
    texts = list(pieces)
    CURRENT_METER.get().take_chars(sum(map(len, texts)))
    return "".join(texts)
