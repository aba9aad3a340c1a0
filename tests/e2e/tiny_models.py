"""Random models with a vocabulary of bytes and a chat template, served as files: everything is real but the sense."""

from pathlib import Path

import numpy as np

from memra.chat.byte_alphabet import BYTE_OF_CHAR
from tests.e2e.server_process import Server, Start
from tests.loading.gguf_bytes import boolean, integers, of_model, string, strings, u32
from tests.models.tiny_models import ArrayTensor, TinyModel, make_modern_bert, make_qwen2

WORDS = ("th", "in", "er", "an")
"""Beside the bytes; a vocabulary without merges is none."""

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
TEMPLATE = """{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}{% endfor %}
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}{% for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}"""
EOS, _, END = range(256, 259)
CONTEXT_TOKENS = 640


def make_chat_model() -> TinyModel:
    """Return a model that chats."""
    return make_qwen2(tied=False, context_length=CONTEXT_TOKENS)


def write_models(folder: Path) -> dict[str, Path]:
    """Write a model that chats, one that embeds and one that ranks; return their files by name."""
    chat = make_chat_model()
    embed = make_modern_bert(pooling_type=1)
    rank = make_modern_bert(**{"pooling_type": 4, "classifier.pooling_type": 2})
    rng = np.random.default_rng(5)
    for name, rows in (("cls", 32), ("cls.output", 1)):
        rank.tensors[f"{name}.weight"] = ArrayTensor(f"{name}.weight", _normal(rng, rows, 32))
    return {
        name: write_model(model, folder / f"{name}.gguf")
        for name, model in (("tiny", chat), ("vec", embed), ("rank", rank))
    }


def write_model(model: TinyModel, path: Path, *, template: str = TEMPLATE) -> Path:
    """Write a model with that vocabulary; return its file."""
    vocab = (*BYTE_OF_CHAR, *SPECIALS, *WORDS)
    width = model.tensors["output_norm.weight"].shape[0]
    for seed, name in enumerate(("token_embd.weight", "output.weight")):
        if name in model.tensors:
            model.tensors[name] = ArrayTensor(name, _normal(np.random.default_rng(seed), len(vocab), width))
    file = of_model(model)
    file.keys |= {
        "tokenizer.ggml.model": string("gpt2"),
        "tokenizer.ggml.pre": string("qwen2"),
        "tokenizer.ggml.tokens": strings(list(vocab)),
        "tokenizer.ggml.token_type": integers([1] * 256 + [3] * 3 + [4] * 2 + [1] * len(WORDS)),
        "tokenizer.ggml.merges": strings([" ".join(word) for word in WORDS]),
        "tokenizer.ggml.bos_token_id": u32(EOS),
        "tokenizer.ggml.eos_token_id": u32(END),
        "tokenizer.ggml.cls_token_id": u32(EOS),
        "tokenizer.ggml.seperator_token_id": u32(END),
        "tokenizer.ggml.padding_token_id": u32(EOS),
        "tokenizer.ggml.add_bos_token": boolean(False),
        "tokenizer.chat_template": string(template),
    }
    del file.keys["tokenizer.ggml.scores"]
    path.write_bytes(file.build())
    return path


def _normal(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    return rng.normal(size=(rows, columns)).astype(np.float32) * 0.5


def serve_tiny_models(start: Start, folder: Path, **environ: str) -> Server:
    """Start a server of them."""
    files = write_models(folder)
    models = [word for name, path in files.items() for word in ("-m", f"{name}={path}")]
    return start(*models, environ={"MEMRA_KV_MB": "16", "MEMRA_COMPAT": "openai", **environ})
