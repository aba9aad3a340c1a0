"""GGUF files made by hand, so that they can be wrong in one place."""

import struct
from dataclasses import dataclass, field

import gguf
import numpy as np

from tests.models.tiny_models import TinyModel

STRING, ARRAY, U32, F32, BOOL = 8, 9, 4, 6, 7


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def u32(value: int) -> bytes:
    return struct.pack("<II", U32, value)


def string(value: str | bytes) -> bytes:
    return struct.pack("<I", STRING) + text(value)


def strings(values: list[str]) -> bytes:
    return struct.pack("<IIQ", ARRAY, STRING, len(values)) + b"".join(map(text, values))


def floats(values: list[float]) -> bytes:
    return struct.pack("<IIQ", ARRAY, F32, len(values)) + struct.pack(f"<{len(values)}f", *values)


def integers(values: list[int]) -> bytes:
    return struct.pack("<IIQ", ARRAY, 5, len(values)) + struct.pack(f"<{len(values)}i", *values)


def boolean(value: bool) -> bytes:  # noqa: FBT001  (a value to be written)
    return struct.pack("<IB", BOOL, value)


def default_keys() -> dict[str | bytes, bytes]:
    return {
        "general.architecture": string("llama"),
        "llama.context_length": u32(128),
        "tokenizer.ggml.model": string("gpt2"),
        "tokenizer.ggml.pre": string("smollm"),
        "tokenizer.ggml.tokens": strings(["<s>", "a", "b", "ab"]),
        "tokenizer.ggml.scores": floats([0.0, -1.0, -2.0, -3.0]),
        "tokenizer.ggml.token_type": integers([3, 1, 1, 1]),
        "tokenizer.ggml.merges": strings(["a b"]),
        "tokenizer.ggml.bos_token_id": u32(0),
        "tokenizer.ggml.add_bos_token": boolean(True),
    }


@dataclass
class Tensor:
    name: str | bytes
    dimensions: tuple[int, ...]
    """Innermost first, as the file has them."""
    kind: int = 0
    offset: int | None = None
    data: bytes = b""


def default_tensors() -> list[Tensor]:
    rng = np.random.default_rng(0)
    norm = rng.standard_normal(32).astype(np.float32)
    matrix = rng.standard_normal((4, 32)).astype(np.float32)
    quantised = gguf.quants.quantize(matrix, gguf.GGMLQuantizationType.Q8_0)
    return [
        Tensor("output_norm.weight", (32,), data=norm.tobytes()),
        Tensor("token_embd.weight", (32, 4), kind=8, data=quantised.tobytes()),
        Tensor("blk.0.attn_q.weight", (32, 4), kind=1, data=matrix.astype(np.float16).tobytes()),
    ]


@dataclass
class GgufBytes:
    keys: dict[str | bytes, bytes] = field(default_factory=default_keys)
    tensors: list[Tensor] = field(default_factory=default_tensors)
    magic: bytes = b"GGUF"
    version: int = 3
    num_keys: int | None = None
    num_tensors: int | None = None
    alignment: int = 32
    further_keys: bytes = b""

    def header(self) -> bytes:
        num_tensors = len(self.tensors) if self.num_tensors is None else self.num_tensors
        num_keys = len(self.keys) if self.num_keys is None else self.num_keys
        parts = [self.magic, struct.pack("<IQQ", self.version, num_tensors, num_keys)]
        parts += [text(key) + value for key, value in self.keys.items()]
        parts.append(self.further_keys)
        offset = 0
        for tensor in self.tensors:
            dimensions = struct.pack(f"<I{len(tensor.dimensions)}Q", len(tensor.dimensions), *tensor.dimensions)
            place = offset if tensor.offset is None else tensor.offset
            parts.append(text(tensor.name) + dimensions + struct.pack("<IQ", tensor.kind, place))
            offset += -(-len(tensor.data) // self.alignment) * self.alignment
        return b"".join(parts)

    def build(self) -> bytes:
        parts = [self._padded(self.header())]
        parts += [self._padded(tensor.data) for tensor in self.tensors]
        return b"".join(parts)

    def _padded(self, data: bytes) -> bytes:
        return data + bytes(-len(data) % self.alignment)


def of_model(model: TinyModel) -> GgufBytes:
    """A whole model with its vocabulary, which could be served."""
    vocab_size = model.tensors["token_embd.weight"].shape[0]
    keys: dict[str | bytes, bytes] = {"general.architecture": string(model.architecture)}
    for key, value in model.metadata.items():
        match value:
            case bool():
                keys[key] = boolean(value)
            case int():
                keys[key] = u32(value)
            case float():
                keys[key] = struct.pack("<If", 6, value)
            case str():
                keys[key] = string(value)
            case _:
                keys[key] = integers(list(value))
    keys |= {
        "tokenizer.ggml.model": string("llama"),
        "tokenizer.ggml.tokens": strings(["<unk>", "<s>", "</s>", *(f"t{i}" for i in range(3, vocab_size))]),
        "tokenizer.ggml.scores": floats([-float(i) for i in range(vocab_size)]),
        "tokenizer.ggml.token_type": integers([2, 3, 3] + [1] * (vocab_size - 3)),
        "tokenizer.chat_template": string("{% for m in messages %}{{ m.content }}{% endfor %}"),
    }
    tensors = [Tensor(name, t.shape[::-1], data=t.data.tobytes()) for name, t in model.tensors.items()]
    return GgufBytes(keys=keys, tensors=tensors)
