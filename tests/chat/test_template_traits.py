"""What templates can do, as their sources and trials show it."""

from pathlib import Path

import pytest

from memra.chat.chatml import CHATML_TEMPLATE
from memra.chat.template import ChatTemplate
from memra.chat.template_messages import EmptyContent, MessageStyle, plain_messages
from memra.chat.template_traits import TemplateTraits
from memra.messages.generation import ChatPrompt

TURNS = "{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}"


def _traits(source: str) -> TemplateTraits:
    return ChatTemplate(source, bos_text="<s>", eos_text="</s>").traits


@pytest.mark.parametrize(
    ("source", "supported"),
    [
        (TURNS, False),
        (CHATML_TEMPLATE, False),
        ("{{ tools|tojson }}" + TURNS, True),
        ("{% if tools %}You may not call tools.{% endif %}" + TURNS, False),
        ("{% if messages[0].role == 'system' %}{{ tools|tojson }}{% endif %}" + TURNS, True),
        ("{{ tools|tojson }}{{ raise_exception('never') }}", False),
        ("{% for tool in tools %}{{ tool.function.name }}{% endfor %}", True),
    ],
)
def test_tools_are_supported_when_a_declared_name_reaches_the_prompt(source: str, *, supported: bool):
    assert _traits(source).supports_tools is supported


def _calls(arguments: str, guard: str = "true") -> str:
    calls = "{% for c in m.tool_calls %}{{ c.function.name }}" + arguments + "{% endfor %}"
    return "{% for m in messages %}{% if m.tool_calls and " + guard + " %}" + calls + "{% endif %}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "style"),
    [
        (TURNS, MessageStyle()),
        ("{{ raise_exception('never') }}", MessageStyle()),
        (_calls("{{ c.function.arguments|tojson }}"), MessageStyle()),
        (_calls("{% for k, v in c.function.arguments|items %}{{ k }}={{ v }}{% endfor %}"), MessageStyle()),
        (_calls("{{ c.function.arguments }}"), MessageStyle(arguments_as_text=True)),
        (_calls("{{ '```' + c.function.arguments }}"), MessageStyle(arguments_as_text=True)),
        (
            _calls("{{ m.content + '' }}{{ c.function.arguments|tojson }}"),
            MessageStyle(empty_content=EmptyContent.EMPTY),
        ),
        (
            _calls("{{ c.function.arguments|tojson }}", guard="m.content is none"),
            MessageStyle(empty_content=EmptyContent.NULL),
        ),
        ("{% for m in messages %}{{ m.role + m.content }}{% endfor %}", MessageStyle(empty_content=EmptyContent.EMPTY)),
    ],
)
def test_messages_take_the_style_in_which_tool_calls_reach_the_prompt(source: str, style: MessageStyle):
    assert _traits(source).style == style


def test_variables_are_those_that_a_request_may_set():
    source = TURNS + "{{ bos_token }}{{ strftime_now('%d') }}{% if enable_thinking %}{{ namespace() }}{% endif %}"
    assert _traits(source).variables == {"bos_token", "enable_thinking"}


def test_a_template_without_end_does_not_hold_up_the_start():
    source = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{{ tools }}"
    assert _traits(source).supports_tools is False


@pytest.mark.models
def test_the_shipped_templates_that_declare_tools_are_recognised(llama_cpp_models_dir: Path):
    without = set()
    for path in (llama_cpp_models_dir / "templates").glob("*.jinja"):
        if not _traits(path.read_bytes().decode()).supports_tools:
            without.add(path.stem)
    assert without == {
        "HuggingFaceTB-SmolLM3-3B",  # declares them under names of its own
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        "deepseek-ai-DeepSeek-V3.1",
        "fireworks-ai-llama-3-firefunction-v2",  # declares them under names of its own
        "google-gemma-2-2b-it",
        "llama-cpp-deepseek-r1",  # fails on every tool in transformers too
        "llama-cpp-rwkv-world",
        "microsoft-Phi-3.5-mini-instruct",
    }


@pytest.mark.parametrize("wants_short", [False, True])
def test_ids_of_calls_are_shortened_where_a_template_takes_no_others(*, wants_short: bool):
    check = "{% if c.id | length != 9 %}{{ raise_exception('length 9!') }}{% endif %}" if wants_short else ""
    source = (
        "{% for m in messages %}{{ m.content }}{{ m.tool_call_id }} {% for c in m.tool_calls or () %}"
        + check
        + "{{ c.id }} {{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}{{ tools }}"
    )
    assert _traits(source).style.has_short_ids is wants_short
    long_id = "call_0123456789abcdef01234567"
    call = {"id": long_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": long_id, "content": "ok"}]
    assistant, result = plain_messages(turns, style=_traits(source).style)
    short_id = assistant["tool_calls"][0]["id"]
    assert result["tool_call_id"] == short_id
    assert (short_id == long_id) is not wants_short
    assert len(short_id) == 9 or not wants_short


READS_FIRST = "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}"
REFUSES_SECOND = (
    "{% for m in messages[1:] %}{% if m.role == 'system' %}{{ raise_exception('late') }}{% endif %}{% endfor %}"
)


@pytest.mark.parametrize(
    ("source", "reads_one"),
    [
        (TURNS, False),
        (CHATML_TEMPLATE, False),
        (READS_FIRST, True),
        (READS_FIRST + REFUSES_SECOND, True),
        ("{{ messages[-1].content }}", False),
        ("{{ raise_exception('never') }}", False),
    ],
)
def test_a_template_that_loses_a_second_system_turn_is_recognised(source: str, *, reads_one: bool):
    assert _traits(source).style.has_one_system is reads_one


@pytest.mark.parametrize(
    ("source", "reads_none"),
    [
        (TURNS, False),
        (CHATML_TEMPLATE, False),
        (TURNS + REFUSES_SECOND, True),
        ("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}", True),
        ("{{ raise_exception('never') }}", False),
    ],
)
def test_a_template_that_loses_a_late_system_turn_is_recognised(source: str, *, reads_none: bool):
    assert _traits(source).style.has_no_late_system is reads_none


@pytest.mark.models
@pytest.mark.parametrize("name", ["Qwen3.5-4B", "openai-gpt-oss-120b", "mistralai-Mistral-Nemo-Instruct-2407"])
def test_two_system_turns_reach_a_model_whose_template_takes_one(llama_cpp_models_dir: Path, name: str):
    source = (llama_cpp_models_dir / "templates" / f"{name}.jinja").read_bytes().decode()
    template = ChatTemplate(source, bos_text="<s>", eos_text="</s>")
    turns = [{"role": "system", "content": text} for text in ("First words.", "Second words.")]
    told = template.render(ChatPrompt((*turns, {"role": "user", "content": "Hello."})))
    assert "First words.\n\nSecond words." in told
    late = template.render(ChatPrompt((turns[0], {"role": "user", "content": "Hello."}, turns[1])))
    assert "Hello.\n\nSecond words." in late
