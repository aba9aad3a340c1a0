"""Answers as models write them, in every dialect: what the tests cut to pieces."""

# ruff: noqa: RUF001  (the bars in the tokens of DeepSeek and Step are of this kind)

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from memra.chat.tool_dialects.apertus import ApertusDialect
from memra.chat.tool_dialects.contract import ArgumentsPiece, CallBegun, CallEnded, Piece, TextPiece, ToolDialect
from memra.chat.tool_dialects.deepseek import DeepSeekDialect
from memra.chat.tool_dialects.gemma import GemmaDialect
from memra.chat.tool_dialects.generic import GenericDialect
from memra.chat.tool_dialects.gigachat import GigaChatDialect
from memra.chat.tool_dialects.glm import GlmDialect
from memra.chat.tool_dialects.harmony import HarmonyDialect
from memra.chat.tool_dialects.hermes import HermesDialect
from memra.chat.tool_dialects.hunyuan import HunyuanTagDialect
from memra.chat.tool_dialects.invoke_tags import deepseek_dsml, minimax_m2, minimax_m3, muse, step3
from memra.chat.tool_dialects.json_dialects import ARRAY_DIALECTS
from memra.chat.tool_dialects.kimi import KimiDialect
from memra.chat.tool_dialects.lfm2 import Lfm2Dialect
from memra.chat.tool_dialects.llama import LlamaDialect
from memra.chat.tool_dialects.minicpm import MiniCpmDialect
from memra.chat.tool_dialects.mistral import MistralDialect
from memra.chat.tool_dialects.qwen_xml import QwenXmlDialect, SeedDialect
from memra.chat.tool_dialects.reading import joined
from memra.chat.tool_dialects.solar import SolarDialect

Calls = Sequence[tuple[str, dict[str, Any]]]

_PROPERTIES: dict[str, Any] = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "share": {"type": "number"},
    "is_exact": {"type": "boolean"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "options": {"type": "object"},
}

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": _PROPERTIES}}}
    for name in ("get_weather", "search", "now")
]


@dataclass(frozen=True)
class Written:
    """A dialect, and how a model that speaks it writes calls.

    Attributes:
        is_open_plain: the notation says of values without a schema only what text says, and nothing of empty ones.
    """

    dialect: ToolDialect
    write: Callable[[Calls], str]
    markers: tuple[str, ...]
    is_open_plain: bool = False

    def sayable(self, calls: Calls) -> list[tuple[str, dict[str, Any]]]:
        """The calls with no more in them than the notation can say."""
        if not self.is_open_plain:
            return list(calls)
        return [
            (name, {key: _worded(value) if key == "options" else value for key, value in arguments.items()})
            for name, arguments in calls
        ]


def _worded(value: Any) -> Any:
    """The same shape, with words for strings and nothing that is empty inside."""
    match value:
        case dict():
            members = {key: _worded(inner) for key, inner in value.items()}
            return {key: inner for key, inner in members.items() if inner not in (None, {}, [])}
        case list():
            return [inner for inner in map(_worded, value) if inner not in (None, {}, [])]
        case str():
            return "a" + value
        case _:
            return value


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _hermes(calls: Calls) -> str:
    return "\n".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {_as_json(arguments)}}}\n</tool_call>'
        for name, arguments in calls
    )


def _array(
    before: str, after: str, *, name_key: str = "name", arguments_key: str = "arguments", between: str = ", "
) -> Callable[[Calls], str]:
    def write(calls: Calls) -> str:
        objects = [{name_key: name, arguments_key: arguments} for name, arguments in calls]
        return before + between.join(map(_as_json, objects)) + after

    return write


def _bare_value(value: object) -> str:
    return value if isinstance(value, str) else _as_json(value)


def _qwen_xml(calls: Calls, *, outer: str = "tool_call", line_break: str = "\n") -> str:
    blocks = []
    for name, arguments in calls:
        parameters = "".join(
            f"<parameter={key}>{line_break}{_bare_value(value)}{line_break}</parameter>\n"
            for key, value in arguments.items()
        )
        blocks.append(f"<{outer}>\n<function={name}>\n{parameters}</function>\n</{outer}>")
    return "\n".join(blocks)


def _glm(calls: Calls, *, line_break: str = "\n", suffix: str = "", after_name: str = "") -> str:
    def block(name: str, arguments: dict[str, Any]) -> str:
        pairs = "".join(
            f"<arg_key{suffix}>{key}</arg_key{suffix}>{line_break}"
            f"<arg_value{suffix}>{_bare_value(value)}</arg_value{suffix}>{line_break}"
            for key, value in arguments.items()
        )
        return f"<tool_call{suffix}>{name}{after_name}{line_break}{pairs}</tool_call{suffix}>"

    return line_break.join(block(*call) for call in calls)


def _invoke(calls: Calls, *, prefix: str = "", is_typed: bool = False, around: tuple[str, str] = ("", "")) -> str:
    def block(name: str, arguments: dict[str, Any]) -> str:
        parameters = "".join(
            f'<{prefix}parameter name="{key}"'
            + (f' string="{_as_json(isinstance(value, str))}"' if is_typed else "")
            + f">{_bare_value(value)}</{prefix}parameter>\n"
            for key, value in arguments.items()
        )
        return f'{around[0]}<{prefix}invoke name="{name}">\n{parameters}</{prefix}invoke>{around[1]}'

    return "\n".join(block(*call) for call in calls)


_M3 = "]<]minimax[>["


def _minimax_m3(calls: Calls) -> str:
    blocks = [
        f'{_M3}<invoke name="{name}">'
        + "".join(_m3_element(key, value) for key, value in arguments.items())
        + f"{_M3}</invoke>\n"
        for name, arguments in calls
    ]
    return f"{_M3}<tool_call>\n{''.join(blocks)}{_M3}</tool_call>"


def _m3_element(key: str, value: object) -> str:
    match value:
        case dict():
            inside = "".join(_m3_element(*member) for member in value.items())
        case list():
            inside = "".join(_m3_element("item", item) for item in value)
        case _:
            inside = _bare_value(value)
    return f"{_M3}<{key}>{inside}{_M3}</{key}>"


def _minicpm(calls: Calls) -> str:
    def quoted(text: str) -> str:
        return f"<![CDATA[{text}]]>" if any(char in text for char in "<&\n") else text

    return "\n".join(
        f'<function name="{name}">'
        + "".join(f'<param name="{key}">{quoted(_bare_value(value))}</param>' for key, value in arguments.items())
        + "</function>"
        for name, arguments in calls
    )


def _apertus(calls: Calls) -> str:
    objects = [_as_json({name: arguments}) for name, arguments in calls]
    return f"<|tools_prefix|>[{', '.join(objects)}]<|tools_suffix|>"


def _gigachat(calls: Calls, *, opening: str = "<|function_call|>") -> str:
    return "\n".join(opening + _as_json({"name": name, "arguments": arguments}) for name, arguments in calls)


def _solar(calls: Calls) -> str:
    blocks = [
        f"<|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>{name}<|tool_call:args|>{_as_json(arguments)}<|tool_call:end|>"
        for name, arguments in calls
    ]
    return f"<|tool_calls|>{''.join(blocks)}<|calls|>"


def _deepseek_v3(calls: Calls) -> str:
    blocks = [
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{_as_json(arguments)}\n```<｜tool▁call▁end｜>"
        for name, arguments in calls
    ]
    return "<｜tool▁calls▁begin｜>" + "\n".join(blocks) + "<｜tool▁calls▁end｜>"


def _deepseek_v31(calls: Calls) -> str:
    blocks = [
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{_as_json(arguments)}<｜tool▁call▁end｜>"
        for name, arguments in calls
    ]
    return "<｜tool▁calls▁begin｜>" + "".join(blocks) + "<｜tool▁calls▁end｜>"


def _kimi(calls: Calls) -> str:
    blocks = [
        f"<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{_as_json(arguments)}<|tool_call_end|>"
        for index, (name, arguments) in enumerate(calls)
    ]
    return "<|tool_calls_section_begin|>" + "".join(blocks) + "<|tool_calls_section_end|>"


def _mistral(calls: Calls) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{_as_json(arguments)}" for name, arguments in calls)


def _harmony(calls: Calls) -> str:
    return "<|start|>assistant".join(
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{_as_json(arguments)}<|call|>"
        for name, arguments in calls
    )


def _harmony_recipient_first(calls: Calls) -> str:
    return "".join(
        f"<|start|>assistant to=functions.{name}<|channel|>commentary json<|message|>{_as_json(arguments)}<|call|>"
        for name, arguments in calls
    )


def _python(before: str, after: str) -> Callable[[Calls], str]:
    def write(calls: Calls) -> str:
        written = [
            f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})" for name, arguments in calls
        ]
        return f"{before}[{', '.join(written)}]{after}"

    return write


def _gemma_value(value: object) -> str:
    match value:
        case str():
            return f'<|"|>{value}<|"|>'
        case dict():
            return "{" + ",".join(f"{key}:{_gemma_value(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_gemma_value, value)) + "]"
        case None:
            return "None"
        case _:
            return _as_json(value)


def _gemma(calls: Calls) -> str:
    return "".join(f"<|tool_call>call:{name}{_gemma_value(arguments)}<tool_call|>" for name, arguments in calls)


def _within(opening: str, closing: str, write: Callable[[Calls], str]) -> Callable[[Calls], str]:
    return lambda calls: f"{opening}{write(calls)}{closing}"


_ARRAYS = {dialect.name: dialect for dialect in ARRAY_DIALECTS}
_COHERE = {"name_key": "tool_name", "arguments_key": "parameters"}
_DSML = "｜DSML｜"

WRITTEN: dict[str, Written] = {
    "hermes": Written(HermesDialect(), _hermes, ("<tool_call>",)),
    "generic": Written(GenericDialect(), _hermes, ("<tool_call>",)),
    "qwen_xml": Written(QwenXmlDialect(), _qwen_xml, ("<tool_call>", "<function=")),
    "seed": Written(
        SeedDialect(), partial(_qwen_xml, outer="seed:tool_call", line_break=""), ("<seed:tool_call>", "<function=")
    ),
    "glm": Written(GlmDialect(), _glm, ("<tool_call>",)),
    "glm_flat": Written(GlmDialect(), partial(_glm, line_break=""), ("<tool_call>",)),
    "hunyuan3": Written(
        HunyuanTagDialect(":opensource"),
        _within(
            "<tool_calls:opensource>\n",
            "\n</tool_calls:opensource>",
            partial(_glm, suffix=":opensource", after_name="<tool_sep:opensource>"),
        ),
        ("<tool_calls:opensource>",),
    ),
    "minimax_m2": Written(
        minimax_m2(), _within("<minimax:tool_call>\n", "\n</minimax:tool_call>", _invoke), ("<minimax:tool_call>",)
    ),
    "minimax_m3": Written(minimax_m3(), _minimax_m3, (f"{_M3}<tool_call>",), is_open_plain=True),
    "muse": Written(
        muse(),
        _within("<atem:function_calls>\n", "\n</atem:function_calls>", partial(_invoke, prefix="atem:")),
        ("<atem:function_calls>",),
    ),
    "minicpm": Written(MiniCpmDialect(), _minicpm, ('<function name="',)),
    "apertus": Written(ApertusDialect(), _apertus, ("<|tools_prefix|>",)),
    "gigachat": Written(GigaChatDialect(is_role=False), _gigachat, ("<|function_call|>",)),
    "gigachat_role": Written(
        GigaChatDialect(is_role=True),
        partial(_gigachat, opening="function call<|role_sep|>\n"),
        ("function call<|role_sep|>\n",),
    ),
    "solar": Written(SolarDialect(), _solar, ("<|tool_calls|>", "<|tool_call:begin|>")),
    "deepseek_v32": Written(
        deepseek_dsml("function_calls"),
        _within(
            f"<{_DSML}function_calls>\n", f"\n</{_DSML}function_calls>", partial(_invoke, prefix=_DSML, is_typed=True)
        ),
        (f"<{_DSML}function_calls>",),
    ),
    "step3": Written(
        step3(),
        _within(
            "<｜tool_calls_begin｜>\n",
            "\n<｜tool_calls_end｜>",
            partial(
                _invoke,
                prefix="steptml:",
                around=("<｜tool_call_begin｜>function<｜tool_sep｜>", "<｜tool_call_end｜>"),
            ),
        ),
        ("<｜tool_calls_begin｜>",),
    ),
    "granite": Written(_ARRAYS["granite"], _array("<|tool_call|>[", "]"), ("<|tool_call|>",)),
    "phi4": Written(_ARRAYS["phi4"], _array("<|tool_call|>[", "]<|/tool_call|>"), ("<|tool_call|>", "functools")),
    "functools": Written(_ARRAYS["phi4"], _array("functools[", "]"), ("functools",)),
    "nemotron2": Written(_ARRAYS["nemotron2"], _array("<TOOLCALL>[", "]</TOOLCALL>"), ("<TOOLCALL>",)),
    "hunyuan": Written(_ARRAYS["hunyuan"], _array("<tool_calls>[", "]</tool_calls>"), ("<tool_calls>",)),
    "minimax_m1": Written(
        _ARRAYS["hunyuan"], _array("<tool_calls>\n", "\n</tool_calls>", between="\n"), ("<tool_calls>",)
    ),
    "command_r": Written(
        _ARRAYS["command_r"],
        _array("Action:\n```json\n[\n", "\n]\n```", **_COHERE),
        ("Action:\n```json\n", "Action: ```json\n"),
    ),
    "command_a": Written(
        _ARRAYS["command_a"], _array("<|START_ACTION|>[\n", "\n]<|END_ACTION|>", **_COHERE), ("<|START_ACTION|>",)
    ),
    "mistral": Written(MistralDialect(is_array=False), _mistral, ("[TOOL_CALLS]",)),
    "mistral_array": Written(MistralDialect(is_array=True), _array("[TOOL_CALLS][", "]"), ("[TOOL_CALLS]",)),
    "deepseek_v3": Written(
        DeepSeekDialect(is_fenced=True), _deepseek_v3, ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>")
    ),
    "deepseek_v31": Written(
        DeepSeekDialect(is_fenced=False), _deepseek_v31, ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>")
    ),
    "kimi_k2": Written(KimiDialect(), _kimi, ("<|tool_calls_section_begin|>", "<|tool_call_begin|>")),
    "harmony": Written(HarmonyDialect(), _harmony, ("<|start|>assistant", "<|channel|>commentary")),
    "harmony_recipient_first": Written(HarmonyDialect(), _harmony_recipient_first, ("<|start|>assistant",)),
    "llama_json": Written(
        LlamaDialect(is_pythonic=False),
        _array("<|python_tag|>", "", arguments_key="parameters", between="; "),
        ("<|python_tag|>", "<function="),
    ),
    "llama_pythonic": Written(
        LlamaDialect(is_pythonic=True), _python("<|python_start|>", "<|python_end|>"), ("<|python_start|>",)
    ),
    "lfm2": Written(Lfm2Dialect(), _python("<|tool_call_start|>", "<|tool_call_end|>"), ("<|tool_call_start|>",)),
    "gemma4": Written(GemmaDialect(), _gemma, ("<|tool_call>",)),
}


def read(dialect: ToolDialect, pieces: Sequence[str], tools: Sequence[dict[str, Any]] = TOOLS) -> list[Piece]:
    """What a dialect's parser makes of an answer that comes in pieces."""
    parser = dialect.open(tools)
    result = [piece for text in pieces for piece in parser.feed(text)]
    return joined([*result, *parser.finish()])


def text_of(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))


def calls_of(pieces: Sequence[Piece]) -> list[tuple[str, Any]]:
    """The complete calls, their arguments decoded."""
    calls: list[tuple[str, Any]] = []
    name, arguments = "", ""
    for piece in pieces:
        match piece:
            case CallBegun():
                name, arguments = piece.name, ""
            case ArgumentsPiece():
                arguments += piece.text
            case CallEnded():
                calls.append((name, json.loads(arguments)))
    return calls
