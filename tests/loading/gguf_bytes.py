"""GGUF files made by hand, so that they can be wrong in one place."""

import struct
from dataclasses import dataclass, field

import gguf
import numpy as np

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
