"""The chat templates that llama.cpp ships for its own tests, rendered by us and by transformers."""

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from transformers.utils import chat_template_utils

from memra.chat.template import ChatTemplate
from memra.chat.template_messages import MessageStyle
from memra.errors import TemplateError
from memra.messages.generation import ChatPrompt

TEMPLATE_NAMES = (
    "Apertus-8B-Instruct",
    "Apriel-1.6-15b-Thinker-fixed",
    "Bielik-11B-v3.0-Instruct",
    "ByteDance-Seed-OSS",
    "Cohere2MoE",
    "CohereForAI-c4ai-command-r-plus-tool_use",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "GLM-4.6",
    "GLM-4.7-Flash",
    "GigaChat3-10B-A1.8B",
    "GigaChat3.1-10B-A1.8B",
    "HuggingFaceTB-SmolLM3-3B",
    "Kimi-K2-Instruct",
    "Kimi-K2-Thinking",
    "Kimi-K3",
    "LFM2-8B-A1B",
    "LFM2.5-8B-A1B",
    "LFM2.5-Instruct",
    "MiMo-VL",
    "MiniMax-M1",
    "MiniMax-M2",
    "MiniMax-M3",
    "Mistral-Small-3.2-24B-Instruct-2506",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "NVIDIA-Nemotron-Nano-v2",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "Qwen-QwQ-32B",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "Qwen3-Coder",
    "Qwen3.5-4B",
    "Reka-Edge",
    "Spark2.5",
    "StepFun3.5-Flash",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "deepseek-ai-DeepSeek-V3.1",
    "deepseek-ai-DeepSeek-V3.2",
    "deepseek-ai-DeepSeek-V4-Flash-0731",
    "deepseek-ai-DeepSeek-V4",
    "fireworks-ai-llama-3-firefunction-v2",
    "google-gemma-2-2b-it",
    "google-gemma-4-31B-it-interleaved",
    "google-gemma-4-31B-it",
    "ibm-granite-granite-3.3-2B-Instruct",
    "ibm-granite-granite-4.0",
    "ibm-granite-granite-4.1",
    "inclusionai-ling-3.0-flash",
    "llama-cpp-deepseek-r1",
    "llama-cpp-rwkv-world",
    "meetkai-functionary-medium-v3.1",
    "meetkai-functionary-medium-v3.2",
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "meta-llama-Llama-3.3-70B-Instruct",
    "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Ministral-3-14B-Reasoning-2512",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "moonshotai-Kimi-K2",
    "muse-glimmer",
    "openai-gpt-oss-120b",
    "openbmb-MiniCPM5-1B",
    "poolside-Laguna-S-2.1",
    "poolside-Laguna-XS-2.1",
    "poolside-Laguna-XS.2",
    "tencent-Hy3",
    "unsloth-Apriel-1.5",
    "unsloth-mistral-Devstral-Small-2507",
    "upstage-Solar-Open-100B",
)

SYSTEM = {"role": "system", "content": "You are <terse> & kind."}
QUESTION = {"role": "user", "content": 'What is 2 < 3?  It\'s "ärger"-free.\n'}
ANSWER = {"role": "assistant", "content": "True."}
FOLLOW_UP = {"role": "user", "content": "And the weather in Zürich?"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "call00001",
            "type": "function",
            "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "exact": True}},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": '{"celsius": 21.5}'}
THINKING = {"role": "assistant", "content": "Three.", "reasoning_content": "One plus two."}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather in a city <b>today</b> & later; doesn't guess.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "City's name"},
                    "days": {"type": "integer", "minimum": 1, "default": 1},
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                    "exact": {"type": "boolean"},
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "ping", "description": "Says pong.", "parameters": {"type": "object", "properties": {}}},
    },
]

UNION_TOOL = {
    "type": "function",
    "function": {
        "name": "note",
        "description": "Takes text or nothing.",
        "parameters": {"type": "object", "properties": {"text": {"type": ["string", "null"]}}, "required": []},
    },
}
DESCRIBED_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "City's name"}},
            "required": ["city"],
        },
    },
}

CASES: dict[str, dict[str, Any]] = {
    "plain turn": {"messages": [QUESTION]},
    "system turn": {"messages": [SYSTEM, QUESTION]},
    "many turns": {"messages": [SYSTEM, *[QUESTION, ANSWER] * 8, FOLLOW_UP]},
    "no user turn": {"messages": [SYSTEM]},
    "earlier reasoning": {"messages": [QUESTION, THINKING, FOLLOW_UP]},
    "tools": {"messages": [FOLLOW_UP], "tools": TOOLS},
    "tools and system": {"messages": [SYSTEM, FOLLOW_UP], "tools": TOOLS},
    "tool call": {"messages": [SYSTEM, FOLLOW_UP, CALL], "tools": TOOLS},
    "tool result": {"messages": [FOLLOW_UP, CALL, RESULT], "tools": TOOLS},
    "tool rounds": {"messages": [SYSTEM, *[FOLLOW_UP, CALL, RESULT, ANSWER] * 3, QUESTION], "tools": TOOLS},
    "tool result without tools": {"messages": [FOLLOW_UP, CALL, RESULT]},
    "tool with a union type": {"messages": [FOLLOW_UP], "tools": [UNION_TOOL]},
    "tool with every description": {"messages": [SYSTEM, FOLLOW_UP, CALL, RESULT], "tools": [DESCRIBED_TOOL]},
    "declarations as text": {"messages": [FOLLOW_UP], "options": {"functions": "[]", "datetime": "now"}},
    "thinking off": {"messages": [QUESTION], "options": {"enable_thinking": False, "thinking": False}},
    "thinking on": {"messages": [QUESTION], "options": {"enable_thinking": True, "thinking": True}},
    "thinking with effort": {"messages": [SYSTEM, QUESTION], "options": {"reasoning_effort": "high"}},
}


class FrozenTime:
    """Stands in for the class `datetime` in transformers."""

    @staticmethod
    def now() -> datetime:
        return datetime(2025, 3, 9, 14, 5, 6)  # noqa: DTZ001  (local time is what templates ask for)


@pytest.fixture
def frozen_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template_utils, "datetime", FrozenTime)


def _read(models_dir: Path, name: str) -> str:
    return (models_dir / "templates" / f"{name}.jinja").read_bytes().decode()


def _in_style(message: Mapping[str, Any], style: MessageStyle) -> dict[str, Any]:
    """The message with its arguments as the template wants them: the one thing that is ours to decide."""
    if "tool_calls" not in message or not style.arguments_as_text:
        return dict(message)
    calls = [
        {
            **call,
            "function": {
                **call["function"],
                "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False),
            },
        }
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _expected(source: str, case: Mapping[str, Any], *, style: MessageStyle, opens_answer: bool) -> str | Exception:
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [[_in_style(message, style) for message in case["messages"]]],
            tools=case.get("tools"),
            chat_template=source,
            add_generation_prompt=opens_answer,
            bos_token="<s>",  # noqa: S106
            eos_token="</s>",  # noqa: S106
            **case.get("options", {}),
        )
    except Exception as error:  # noqa: BLE001  (whatever the template makes transformers raise)
        return error
    return str(texts[0])


@pytest.mark.models
def test_every_shipped_template_is_compared(llama_cpp_models_dir: Path):
    assert sorted(path.stem for path in (llama_cpp_models_dir / "templates").glob("*.jinja")) == sorted(TEMPLATE_NAMES)


@pytest.mark.models
@pytest.mark.usefixtures("frozen_transformers")
@pytest.mark.parametrize("name", TEMPLATE_NAMES)
def test_prompts_equal_those_of_transformers(name: str, llama_cpp_models_dir: Path):
    source = _read(llama_cpp_models_dir, name)
    template = ChatTemplate(source, bos_text="<s>", eos_text="</s>", clock=FrozenTime.now)
    num_rendered = 0
    for case_name, case in CASES.items():
        for opens_answer in (True, False):
            prompt = ChatPrompt(
                messages=case["messages"],
                tools=case.get("tools"),
                template_options=case.get("options", {}),
                add_generation_prompt=opens_answer,
            )
            expected = _expected(source, case, style=template.traits.style, opens_answer=opens_answer)
            if isinstance(expected, Exception):
                with pytest.raises(TemplateError) as refusal:
                    template.render(prompt)
                # Where recursion ends, and in which words, depends on the stack below.
                words = "recursion" if isinstance(expected, RecursionError) else " ".join(str(expected).split())[:200]
                assert words in str(refusal.value), case_name
            else:
                num_rendered += 1
                assert template.render(prompt) == expected, case_name
    assert num_rendered > 0


@pytest.mark.models
@pytest.mark.usefixtures("frozen_transformers")
@pytest.mark.parametrize("name", TEMPLATE_NAMES)
def test_prompts_that_an_answer_goes_on_with_equal_those_of_transformers(name: str, llama_cpp_models_dir: Path):
    source = _read(llama_cpp_models_dir, name)
    template = ChatTemplate(source, bos_text="<s>", eos_text="</s>", clock=FrozenTime.now)
    begun = {"role": "assistant", "content": "True, and \n the"}
    for tools in (None, TOOLS):
        messages = (QUESTION, begun)
        try:
            texts, _ = chat_template_utils.render_jinja_template(
                [list(messages)],
                tools=tools,
                chat_template=source,
                continue_final_message=True,
                bos_token="<s>",  # noqa: S106
                eos_token="</s>",  # noqa: S106
            )
        except Exception:  # noqa: BLE001  (whatever the template makes transformers raise)
            with pytest.raises(TemplateError):
                template.render(ChatPrompt(messages, tools, goes_on=True))
        else:
            assert template.render(ChatPrompt(messages, tools, goes_on=True)) == texts[0]
            assert texts[0].endswith(begun["content"])
