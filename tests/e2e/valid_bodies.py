"""A body for every route that takes one, with as many of its fields as go together; all are answered with 200."""

from collections.abc import Mapping
from typing import Any

_FUNCTION = {
    "name": "look_up",
    "description": "Looks a word up.",
    "parameters": {
        "type": "object",
        "properties": {"word": {"type": "string"}, "depth": {"type": "integer", "minimum": 0}},
        "required": ["word"],
    },
}
_TOOLS = [{"type": "function", "function": _FUNCTION}]
_CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"word": "tea"}'}}
_SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "boolean"}}, "required": ["a"]}
_SAMPLING = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.01,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "repetition_penalty": 1.1,
    "seed": 7,
    "logit_bias": {"70": -5, "71": 1.5},
}
_LABELS = {"user": "u", "session_id": "s", "cache_salt": "salt", "timeout_ms": 60000, "max_ctx": 512}
_CONVERSATION = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": [{"type": "text", "text": "Tea? \U0001f375"}]},
    {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "a drink"},
    {"role": "user", "name": "ann", "content": "And now?"},
]

BODIES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    (
        "/v1/chat/completions",
        {"model": "tiny", "messages": _CONVERSATION, "max_tokens": 6, "tools": _TOOLS, "tool_choice": "auto"}
        | {"stop": ["\n\n"], "stop_token_ids": [3], "parallel_tool_calls": False}
        | _SAMPLING
        | _LABELS,
    ),
    (
        "/v1/chat/completions",
        {"model": "tiny", "messages": _CONVERSATION[4:], "max_completion_tokens": 6, "stream": True, "n": 2}
        | {"stream_options": {"include_usage": True}, "logprobs": True, "top_logprobs": 3, "enable_thinking": False}
        | {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": _SCHEMA}}},
    ),
    (
        "/v1/chat/completions",
        {"model": "tiny", "messages": _CONVERSATION[4:], "max_tokens": 6, "regex": "[a-z]{1,9}", "store": False}
        | {"reasoning": {"effort": "none"}, "chat_template_kwargs": {"tone": "dry"}, "metadata": {"k": "v"}},
    ),
    (
        "/v1/chat/completions",
        {"model": "tiny", "messages": _CONVERSATION[4:], "max_tokens": 9, "tools": _TOOLS, "stream": True}
        | {"tool_choice": {"type": "function", "function": {"name": "look_up"}}},
    ),
    (
        "/v1/completions",
        {"model": "tiny", "prompt": ["one", [72, 73], "three"], "max_tokens": 4, "n": 1, "logprobs": 2, "best_of": 1}
        | _SAMPLING,
    ),
    ("/v1/completions", {"model": "tiny", "prompt": "one", "echo": True, "stream": True, "max_tokens": 4} | _LABELS),
    (
        "/v1/completions",
        {"model": "tiny", "prompt_ids": [72, 105], "max_tokens": 4, "grammar": 'start: "a" | "b"', "suffix": None},
    ),
    ("/v1/completions", {"model": "tiny", "prompt": "one", "chat": True, "max_tokens": 4, "include_reasoning": True}),
    (
        "/v1/responses",
        {
            "model": "tiny",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "1"},
            ],
            "instructions": "Be short.",
            "tools": [{"type": "function", **_FUNCTION}],
            "tool_choice": "auto",
            "max_output_tokens": 6,
            "text": {"format": {"type": "text"}},
            "reasoning": {"effort": "low", "summary": "auto"},
            "metadata": {"k": "v"},
            "store": False,
            "truncation": "disabled",
            "prompt_cache_key": "key",
            "temperature": 0.5,
        },
    ),
    (
        "/v1/responses",
        {"model": "tiny", "input": "a", "max_output_tokens": 6, "stream": True, "top_k": 5, "seed": 1}
        | {"text": {"format": {"type": "json_schema", "name": "s", "schema": _SCHEMA}}},
    ),
    (
        "/v1/messages",
        {
            "model": "tiny",
            "max_tokens": 6,
            "system": [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": "a"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": ""},
                        {"type": "text", "text": "b"},
                        {"type": "tool_use", "id": "c", "name": "look_up", "input": {"word": "a"}},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "1"}]},
            ],
            "tools": [{"name": "look_up", "description": "d", "input_schema": _FUNCTION["parameters"]}],
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "stop_sequences": ["x"],
            "metadata": {"user_id": "u"},
            "output_config": {"effort": "low"},
        },
    ),
    (
        "/v1/messages",
        {"model": "tiny", "max_tokens": 6, "messages": [{"role": "user", "content": "a"}], "stream": True, "top_k": 3}
        | {"output_config": {"format": {"type": "json_schema", "schema": _SCHEMA}}, "temperature": 1},
    ),
    (
        "/v1/messages/count_tokens",
        {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "system": "Be short."},
    ),
    ("/v1/embeddings", {"model": "vec", "input": ["one", [72, 73]], "encoding_format": "float", "dimensions": 8}),
    ("/v1/embeddings", {"model": "vec", "input": "one", "encoding_format": "base64", "timeout_ms": 60000}),
    (
        "/v1/rerank",
        {"model": "rank", "query": "tea", "documents": ["a drink", {"text": "a tree"}], "top_n": 2}
        | {"return_documents": True},
    ),
    ("/rerank", {"model": "rank", "query": "tea", "documents": ["a drink"]}),
    ("/v1/tokenize", {"model": "tiny", "messages": _CONVERSATION, "tools": _TOOLS, "add_generation_prompt": True}),
    ("/tokenize", {"model": "tiny", "prompt": "one", "add_special_tokens": True, "parse_special": False}),
    ("/v1/detokenize", {"model": "tiny", "tokens": [72, 105]}),
    ("/detokenize", {"model": "tiny", "tokens": []}),
)
CANCEL = ("/v1/cancel", {"id": "chatcmpl-1", "request_id": None})
"""The one that is answered with 404, since nothing of that id is under way."""
