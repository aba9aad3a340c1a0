"""The operator vocabulary: what a model family may ask of an executor.

An operator is a frozen value that names its buffers and weights. A buffer is a float32 activation of one step,
`[T, width]`, where `T` is the number of rows (tokens) of the step, whatever sequences they belong to. A weight is named
as in the model file, and its shape is stated by the program, so that a file that lies is refused before anything runs.
Executors give every operator its meaning: the torch references in `memra_kernels` are the definition, and each
operator's formula is written there.
"""

from dataclasses import dataclass
from enum import StrEnum


class RopeStyle(StrEnum):
    """Which elements of a head are rotated together."""

    INTERLEAVED = "interleaved"
    """Neighbours `(2i, 2i + 1)`: llama files in GGUF."""
    HALVES = "halves"
    """`(i, i + rotary_dims / 2)`: GPT-NeoX, qwen2, gemma3."""


class Activation(StrEnum):
    """The function on the gate of a gated product."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True, slots=True)
class Embed:
    """`out[t] = weight[token_ids[t]] * scale`; weight `[V, C]`."""

    weight: str
    out: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """Root-mean-square norm over groups of `group_width` elements; weight `[group_width]`.

    A whole row is one group for a layer norm; one head is a group for q/k norms.
    """

    x: str
    out: str
    weight: str
    group_width: int
    eps: float


@dataclass(frozen=True, slots=True)
class Linear:
    """`out = x @ weight.T + bias`; weight `[N, K]` of any quant type, bias `[N]` or None."""

    x: str
    out: str
    weight: str
    bias: str | None = None


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding, in place, on `num_heads` heads of `head_dim`.

    Attributes:
        rotary_dims: leading elements of each head that are rotated.
        base: theta of the angles, `base ** (-2i / rotary_dims)`.
        position_scale: positions are multiplied by this (linear scaling: 1 / factor).
        frequency_factors: weight `[rotary_dims / 2]` that divides the frequencies (llama-3 scaling in GGUF), or None.
    """

    x: str
    num_heads: int
    head_dim: int
    rotary_dims: int
    style: RopeStyle
    base: float
    position_scale: float = 1.0
    frequency_factors: str | None = None


@dataclass(frozen=True, slots=True)
class Attention:
    """Append `k`, `v` to the layer's cache, then attend causally: `out = softmax(scale * q @ K.T) @ V`.

    Query head `h` reads key-value head `h * num_kv_heads // num_heads`.

    Attributes:
        layer: index into the program's `kv_layers`.
        window: a query at position p sees positions p - window + 1 to p; None sees all.
        softcap: scores become `softcap * tanh(score / softcap)`; None is off.
    """

    q: str
    k: str
    v: str
    out: str
    layer: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    softcap: float | None = None


@dataclass(frozen=True, slots=True)
class GatedProduct:
    """`out = activation(gate) * up`."""

    gate: str
    up: str
    out: str
    activation: Activation


@dataclass(frozen=True, slots=True)
class Add:
    """`out = x + y`; `out` may be `x`."""

    x: str
    y: str
    out: str


@dataclass(frozen=True, slots=True)
class Head:
    """Logits of the rows that the step asks for: `softcap * tanh(x @ weight.T * scale / softcap)`; weight `[V, C]`."""

    x: str
    weight: str
    scale: float = 1.0
    softcap: float | None = None


Operator = Embed | RmsNorm | Linear | Rope | Attention | GatedProduct | Add | Head
