"""Which dialect a template speaks."""

# ruff: noqa: RUF001  (the bars in the tokens of DeepSeek and Step are of this kind)

import itertools
from pathlib import Path

import pytest

from memra.chat.template import ChatTemplate
from memra.chat.tool_dialects.contract import CallBegun
from memra.chat.tool_dialects.registry import DIALECTS, GENERIC, find_dialect
from tests.chat.tool_dialects.written_answers import WRITTEN, Written

_EXCERPTS = {
    "hermes": '<tools> ... <tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
    "qwen_xml": "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\n",
    "seed": "<seed:tool_call>\n<function=name>\n<parameter=x>value</parameter>",
    "glm": "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value>",
    "hunyuan3": "<tool_calls><tool_call>name<tool_sep>\n<arg_key>a</arg_key>",
    "hunyuan3:opensource": "{%- set HYTK = ':opensource' %}'<tool_calls{}>'.format(HYTK) '<tool_sep{}>' '<arg_key{}>'",
    "hunyuan": '<tool_calls>[{"name": ..., "arguments": ...}]</tool_calls>',
    "minimax_m2": '<minimax:tool_call>\n<invoke name="tool-name">',
    "minimax_m3": "{%- set ns_token = ']<]minimax[>[' -%} ns_token ~ '<tool_call>' ns_token + '<invoke name=\"'",
    "muse": '<atem:function_calls>\n<atem:invoke name="$FUNCTION_NAME">',
    "minicpm": '<function name="function-name"><param name="param-name">param-value</param></function>',
    "apertus": "tool_calls_token = '<|tools_prefix|>'",
    "gigachat": "'<|function_call|>' + call | tojson",
    "gigachat_role": "{'role': 'function call'} ... role_name + '<|role_sep|>\\n'",
    "solar": "<|tool_call:begin|><tool-call-id><|tool_call:name|><tool-name><|tool_call:args|><args-json-object>",
    "deepseek_function_calls": "set dsml_token = '｜DSML｜' ... '<' + dsml_token + 'function_calls>'",
    "deepseek_tool_calls": "set dsml_token = '｜DSML｜' ... '<' + dsml_token + 'tool_calls>'",
    "deepseek_v3": "'<｜tool▁call▁begin｜>' + tc['type'] + '<｜tool▁sep｜>' + name + '\\n```json\\n'",
    "deepseek_v31": "'<｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>' + arguments + '<｜tool▁call▁end｜>'",
    "step3": '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="a">',
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>{{id}}<|tool_call_argument_begin|>",
    "mistral": "[TOOL_CALLS]' + name + '[ARGS]' + arguments",
    "mistral_array": "'[TOOL_CALLS][' + tool_calls + ']'",
    "harmony": "<|start|>assistant<|channel|>commentary to=functions.x <|constrain|>json<|message|>",
    "llama_json": 'in the format {"name": function name, "parameters": dictionary of argument name and its value}.',
    "llama_pythonic": "format of [func_name1(params_name1=params_value1), func_name2(params)]",
    "lfm2": "List of tools: <|tool_list_start|>[",
    "gemma4": "'<|tool_call>call:' + function['name'] + '{'",
    "granite": "respond only with <|tool_call|> followed by a JSON list of tools used.",
    "phi4": "'<|system|>' + content + '<|tool|>' + tools + '<|/tool|>'",
    "nemotron2": '<TOOLCALL>[{"name": "func_name1", "arguments": {}}]</TOOLCALL>',
    "command_r": "'\\nAction:\\n```json\\n[\\n'",
    "command_a": "Action: write <|START_ACTION|> followed by a list of JSON-formatted tool calls",
}


@pytest.mark.parametrize(("name", "excerpt"), _EXCERPTS.items())
def test_a_template_is_recognised_by_how_it_writes_calls(name: str, excerpt: str) -> None:
    assert find_dialect(excerpt).name == name


def test_every_dialect_is_found_by_some_template_and_names_are_unique() -> None:
    assert sorted(_EXCERPTS) == sorted(dialect.name for dialect in DIALECTS)


def test_a_template_without_a_known_way_to_call_gets_the_generic_dialect() -> None:
    assert find_dialect("{% for message in messages %}{{ message.content }}{% endfor %}") is GENERIC


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN.keys())
def test_no_marker_of_a_dialect_is_a_part_of_another_one(written: Written) -> None:
    """What the search for the earliest marker relies on."""
    markers = written.dialect.open([])._markers  # type: ignore[attr-defined]
    assert set(written.markers) <= set(markers)
    assert not any(one in other for one, other in itertools.permutations(markers, 2))


_UNREAD = {
    "Kimi-K3": "its calls are numbered, inside channels",
    "meetkai-functionary-medium-v3.2": "its recipients have no marker",
    "Kimi-K2-Instruct": "the template changes a list, which its sandbox refuses",
    "Kimi-K2-Thinking": "the template changes a list, which its sandbox refuses",
    "LFM2-8B-A1B": "the template leaves earlier calls out",
    "LFM2.5-Instruct": "the template leaves earlier calls out",
    "ibm-granite-granite-3.3-2B-Instruct": "the template leaves earlier calls out",
    "meta-llama-Llama-3.1-8B-Instruct": "a bare object is a call where it is a whole answer, and no turn is one",
    "meta-llama-Llama-3.2-3B-Instruct": "as Llama 3.1",
    "meta-llama-Llama-3.3-70B-Instruct": "as Llama 3.1",
}
"""Templates in whose trial turns no call is found, and why."""


def test_a_call_that_a_shipped_template_writes_is_one_in_its_dialect(llama_cpp_models_dir: Path) -> None:
    unread = set()
    for path in (llama_cpp_models_dir / "templates").glob("*.jinja"):
        template = ChatTemplate(path.read_bytes().decode(), bos_text="<s>", eos_text="</s>")
        if template.traits.supports_tools and not _calls_in(template):
            unread.add(path.stem)
    assert unread == set(_UNREAD)


def _calls_in(template: ChatTemplate) -> list[str]:
    """The tools that a template's dialect finds called in a turn that the template wrote itself."""
    tools = [{"type": "function", "function": {"name": "trial_lookup"}}]
    parser = find_dialect(template.source).open(tools)
    turn = template.trial_turns().with_call.rpartition("Hello.")[2]
    pieces = [*parser.feed(turn), *parser.finish()]
    return [piece.name for piece in pieces if isinstance(piece, CallBegun)]
