"""What a chat template can do, found out from its source and from trial renderings.

Trade: answers to the few questions that decide how a request is rendered or whether it is refused. Nothing here goes by
a model's name. It refuses to guess: a trait that no trial shows is absent.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import jinja2
from jinja2 import meta

from memra.chat.template_messages import EmptyContent, MessageStyle, plain_messages
from memra.errors import TemplateError

RESERVED_VARIABLES = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
"""Variables that the server sets."""

_TOOL_NAME = "trial_lookup"
_ARGUMENT_NAME = "trial_city"
_CALL_ID = "call00001"  # nine letters and digits: Mistral's templates accept nothing else
_LONG_CALL_ID = "call_0123456789abcdef01234567"  # as this server gives them

_SYSTEM = {"role": "system", "content": "Be brief."}
_SECOND_SYSTEM = {"role": "system", "content": "Be trial_kind."}
_USER = {"role": "user", "content": "Hello."}
_ASSISTANT = {"role": "assistant", "content": "Hello."}
_CALL_TURN: list[dict[str, Any]] = [
    _USER,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": _CALL_ID,
                "type": "function",
                "function": {"name": _TOOL_NAME, "arguments": f'{{"{_ARGUMENT_NAME}": "Rome"}}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": _CALL_ID, "name": _TOOL_NAME, "content": "Done."},
]

Render = Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """What one template can do.

    Attributes:
        supports_tools: a declared tool's name reaches the prompt.
        style: how messages must be shaped for earlier tool calls to reach the prompt, or at least to be accepted.
        variables: what a request may set (`enable_thinking`, `reasoning_effort`, ...), and with it the names that the
            template sets for itself on some paths: the two cannot be told apart.
    """

    supports_tools: bool
    style: MessageStyle
    variables: frozenset[str]

    @classmethod
    def derive(cls, source: str, *, environment: jinja2.Environment, render: Render) -> "TemplateTraits":
        """Find out what a template can do.

        Args:
            source: valid Jinja source.
            environment: the one it was compiled in; its globals are no variables of a request.
            render: turns template variables into text, or raises `TemplateError`.
        """
        variables = meta.find_undeclared_variables(environment.parse(source))
        return cls(
            supports_tools="tools" in variables and _shows_tools(render),
            style=replace(
                _find_id_style(render, _find_style(render)),
                has_one_system=_reads_one_system(render),
                has_no_late_system=_reads_no_late_system(render),
            ),
            variables=frozenset(variables - RESERVED_VARIABLES - environment.globals.keys()),
        )

    @staticmethod
    def takes_system(render: Render) -> bool:
        """Whether a system message reaches the prompt; `render` as for `derive`."""
        return any(_SYSTEM["content"] in text for text in _trials(render, [[_SYSTEM, _USER]], tools=None))


@dataclass(frozen=True, slots=True)
class TrialTurns:
    """Two conversations as a template writes them; text that only the first holds belongs to calls.

    Attributes:
        with_call: a tool is declared, called and answers; empty where the template refuses that.
        without_call: words alone.
    """

    with_call: str
    without_call: str

    @classmethod
    def render(cls, render: Render, *, style: MessageStyle) -> "TrialTurns":
        """Write both.

        Args:
            render: turns template variables into text, or raises `TemplateError`.
            style: of the template.
        """
        tool = _declaration(_TOOL_NAME)
        calls = "".join(_trials(render, [plain_messages(_CALL_TURN, style=style)], tools=[tool]))
        talk = [_USER, _ASSISTANT, _USER]
        return cls(calls, "".join(_trials(render, [talk], tools=None)))


def _shows_tools(render: Render) -> bool:
    tool = _declaration(_TOOL_NAME)
    return any(_TOOL_NAME in text for text in _trials(render, ([_USER], [_SYSTEM, _USER]), tools=[tool]))


def _reads_one_system(render: Render) -> bool:
    """Whether a system turn is read, and a second one below it refused or passed over."""
    reads_one = any(_SYSTEM["content"] in text for text in _trials(render, [[_SYSTEM, _USER]], tools=None))
    two = _trials(render, [[_SYSTEM, _SECOND_SYSTEM, _USER]], tools=None)
    wanted = (_SYSTEM["content"], _SECOND_SYSTEM["content"])
    return reads_one and not any(all(words in text for words in wanted) for text in two)


def _reads_no_late_system(render: Render) -> bool:
    """Whether a user's words are read, and those of a system turn below them refused or passed over at some place."""
    reads_user = any(_USER["content"] in text for text in _trials(render, [[_USER]], tools=None))
    places = ([_USER, _SECOND_SYSTEM], [_USER, _ASSISTANT, _SECOND_SYSTEM, _USER])
    shown = [_SECOND_SYSTEM["content"] in text for text in _trials(render, places, tools=None)]
    return reads_user and not (len(shown) == len(places) and all(shown))


def _find_style(render: Render) -> MessageStyle:
    """The first style in which a tool call's name and arguments reach the prompt, else the first that is accepted."""
    tool = _declaration("trial_other")
    accepted = []
    for arguments_as_text, content in product((False, True), EmptyContent):
        style = MessageStyle(arguments_as_text=arguments_as_text, empty_content=content)
        for text in _trials(render, [plain_messages(_CALL_TURN, style=style)], tools=[tool]):
            if _TOOL_NAME in text and _ARGUMENT_NAME in text and f"{{'{_ARGUMENT_NAME}'" not in text:
                return style
            accepted.append(style)
    return accepted[0] if accepted else MessageStyle()


def _find_id_style(render: Render, style: MessageStyle) -> MessageStyle:
    """The style, with short ids where the template accepts those and refuses long ones."""
    tool = _declaration(_TOOL_NAME)
    short = plain_messages(_CALL_TURN, style=style)
    user, assistant, result = plain_messages(_CALL_TURN, style=style)
    calls = [{**call, "id": _LONG_CALL_ID} for call in assistant["tool_calls"]]
    long = [user, {**assistant, "tool_calls": calls}, {**result, "tool_call_id": _LONG_CALL_ID}]
    wants_short = any(_trials(render, [short], tools=[tool])) and not any(_trials(render, [long], tools=[tool]))
    return replace(style, has_short_ids=wants_short)


def _declaration(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"place": {"type": "string", "description": "A place."}}}
    function = {"name": name, "description": "Looks something up.", "parameters": {**parameters, "required": ["place"]}}
    return {"type": "function", "function": function}


def _trials(
    render: Render, conversations: Iterable[list[dict[str, Any]]], *, tools: list[dict[str, Any]] | None
) -> Iterable[str]:
    """The renderings of those conversations that the template accepts."""
    for messages in conversations:
        try:
            yield render({"messages": messages, "tools": tools, "add_generation_prompt": True})
        except TemplateError:
            continue
