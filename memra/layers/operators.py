"""The operator vocabulary: what a model family may ask of an executor.

An operator is a frozen value that names its buffers and weights. A buffer is a float32 activation of one step,
`[T, width]`, where `T` is the number of rows (tokens) of the step, whatever sequences they belong to. A weight is named
as in the model file, and its shape is stated by the program, so that a file that lies is refused before anything runs.
Executors give every operator its meaning: the torch references in `memra_kernels` are the definition, and each
operator's formula is written there.

Most operators are row-local: a row's output depends on that row alone. `Attention`, `CausalConv` and `GatedDelta` also
look at earlier tokens of the row's own sequence, through its cache pages or its state.
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
    """An elementwise function: the gate's in a gated product."""

    SILU = "silu"
    """`x * sigmoid(x)`."""
    GELU_TANH = "gelu_tanh"
    """The tanh form of GELU."""
    GELU = "gelu"
    """`x * (1 + erf(x / sqrt(2))) / 2`."""
    SIGMOID = "sigmoid"
    """`1 / (1 + exp(-x))`: gated attention."""
    TANH = "tanh"
    """Classifiers of encoders."""
    SWIGLU_CLAMPED = "swiglu_clamped"
    """Of a product only: `g * sigmoid(1.702 * g) * (u + 1)` with `g = min(gate, 7)` and `u = clip(up, -7, 7)`."""


@dataclass(frozen=True, slots=True)
class Embed:
    """`out[t] = weight[token_ids[t]] * scale`; weight `[V, C]`."""

    weight: str
    out: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class PositionEmbed:
    """`out[t] = weight[positions[t] + offset]`; weight `[P, C]`, learned positions."""

    weight: str
    out: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """`x / sqrt(mean(x ** 2) + eps) * weight` over groups of `group_width` elements.

    A whole row is one group for a layer norm; one head is a group for q/k norms. Without a weight (None) it is the
    constant `scale`: an L2 norm over groups of n is `scale = n ** -0.5` with `eps / n`.

    Attributes:
        weight: `[group_width]`, or None.
        scale: a further constant factor.
    """

    x: str
    out: str
    weight: str | None
    group_width: int
    eps: float
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """`(x - mean) / sqrt(variance + eps) * weight + bias` over the row; weight and bias `[width]`, bias or None."""

    x: str
    out: str
    weight: str
    bias: str | None
    eps: float


@dataclass(frozen=True, slots=True)
class Linear:
    """`out = x @ weight.T + bias`; weight `[N, K]` of any quant type, bias `[N]` or None."""

    x: str
    out: str
    weight: str
    bias: str | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """Columns taken out of groups: `out[:, g * width + i] = x[:, g * stride + offset + i]`.

    A fused `qkv` is one group (`stride` = its width); a matrix that gives every head its query and its gate side by
    side has a group a head.
    """

    x: str
    out: str
    num_groups: int
    stride: int
    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class Join:
    """Groups put side by side: group g of `out` is group g of `x`, then group g of `y`.

    Attributes:
        num_groups: groups of a row.
        repeats: `y` is one group, which follows every group of `x`.
    """

    x: str
    y: str
    out: str
    num_groups: int
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding, in place, on `num_heads` heads of `head_dim`.

    Pair i of the rotated elements turns by `position * base ** (-2i / rotary_dims) * position_scale / factors[i]`, or
    by `position * frequencies[i]` where a family computes these itself (yarn).

    Attributes:
        rotary_dims: elements of each head that are rotated.
        base: theta of the angles.
        position_scale: positions are multiplied by this (linear scaling: 1 / factor).
        frequency_factors: weight that divides the frequencies (llama-3 scaling in GGUF), `[rotary_dims / 2]` or longer,
            of which the first are read; or None.
        frequencies: radians per position, `[rotary_dims / 2]`, in place of all of the above; None computes them.
        magnitude: cosines and sines are multiplied by this (yarn's attention factor).
        offset: first rotated element of a head.
    """

    x: str
    num_heads: int
    head_dim: int
    rotary_dims: int
    style: RopeStyle
    base: float
    position_scale: float = 1.0
    frequency_factors: str | None = None
    frequencies: tuple[float, ...] | None = None
    magnitude: float = 1.0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Attention:
    """Append `k`, `v` to the layer's cache, then attend: `out = softmax(scale * q @ K.T) @ V`.

    Query head `h` reads key-value head `h * num_kv_heads // num_heads`.

    Attributes:
        k, v: what is appended; None reads a layer that an earlier operator has filled (shared keys and values).
        layer: index into the program's `kv_layers`.
        window: a query at position p sees positions p - window + 1 to p; None sees all. Of an encoder: it sees
            p - window // 2 to p + window // 2.
        softcap: scores become `softcap * tanh(score / softcap)`; None is off.
        sinks: weight `[num_heads]`: a score that takes part in the softmax and has no value; None is off.
        chunk: a query at position p sees positions from `p // chunk * chunk` on; None is off.
        causal: False lets every token see its whole sequence, which must then lie in one step.
        v_head_dim: elements of a value head; None is `head_dim`.
    """

    q: str
    k: str | None
    v: str | None
    out: str
    layer: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: str | None = None
    chunk: int | None = None
    causal: bool = True
    v_head_dim: int | None = None

    @property
    def value_dim(self) -> int:
        """Width of a value head."""
        return self.head_dim if self.v_head_dim is None else self.v_head_dim


@dataclass(frozen=True, slots=True)
class GatedProduct:
    """`out = activation(gate) * up`.

    Attributes:
        limit: `out = min(activation(gate), limit) * clip(up, -limit, limit)`; None is off. Not of a clamped activation.
    """

    gate: str
    up: str
    out: str
    activation: Activation
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Activate:
    """`out = activation(x)`; `out` may be `x`."""

    x: str
    out: str
    activation: Activation


@dataclass(frozen=True, slots=True)
class Add:
    """`out = x + y * scale`; `out` may be `x`."""

    x: str
    y: str
    out: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class AddVector:
    """`out = x + weight`, the same for every row; weight `[width]`. `out` may be `x`.

    Attributes:
        row: the weight is `[R, width]`, and this row of it is added (token types of encoders); None for a vector.
    """

    x: str
    out: str
    weight: str
    row: int | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """`out = x * factor * weight[0]`; weight `[1]` or None. `out` may be `x`."""

    x: str
    out: str
    factor: float = 1.0
    weight: str | None = None


@dataclass(frozen=True, slots=True)
class ScaleRows:
    """`out[t, g] = x[t, g] * sigmoid(gate[t, g])` for `num_groups` equal groups of x, each with an element of the gate.

    One group is a shared expert's gate, a group a head is gated attention. `out` may be `x`.
    """

    x: str
    gate: str
    out: str
    num_groups: int = 1


@dataclass(frozen=True, slots=True)
class ScaleByPosition:
    """`out = x * (1 + slope * ln(1 + floor((position + offset) / interval)))`: queries that grow with the distance.

    `out` may be `x`. The factor is 1 at positions below `interval - offset`.
    """

    x: str
    out: str
    slope: float
    interval: int
    offset: int = 0


class RouterFunction(StrEnum):
    """How a router's logits become scores."""

    SOFTMAX = "softmax"
    """Over all experts, before the choice."""
    SIGMOID = "sigmoid"
    """Each expert alone."""
    SOFTMAX_OF_CHOSEN = "softmax_of_chosen"
    """The highest logits are chosen, then softmax over them."""


@dataclass(frozen=True, slots=True)
class Routing:
    """How a row chooses its experts.

    The `num_used` highest of `score + correction` are chosen, ties going to the lower index; weights are the scores
    without the correction, in the order of descending choice value.

    Attributes:
        num_experts: E.
        num_used: experts of a row.
        function: from logits to scores.
        correction: weight `[E]` that takes part in the choice alone, or None.
        normalise: weights are divided by their sum.
        scale: weights are multiplied by this, after `normalise`.
        num_groups, num_groups_used: experts come in `num_groups` equal groups, and only those of the
            `num_groups_used` best groups may be chosen; a group's rank is the sum of its two best choice values where
            there is a correction, else its best one. 1 and 1 is no grouping.
        scales_input: the expert's input is multiplied by the weight instead of its output (llama 4).
    """

    num_experts: int
    num_used: int
    function: RouterFunction
    correction: str | None = None
    normalise: bool = False
    scale: float = 1.0
    num_groups: int = 1
    num_groups_used: int = 1
    scales_input: bool = False


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of gated feed-forward experts.

    `out[t] = sum of weight_e * down_e(activation(gate_e x, up_e x))` over the chosen e, in the order of the choice.
    A row's bits do not depend on who else chose an expert.

    Attributes:
        router: buffer of logits, `[T, E]`.
        gate, up: weights `[E, F, C]`.
        down: weight `[E, C, F]`.
        gate_bias, up_bias: weights `[E, F]` or None.
        down_bias: weight `[E, C]` or None.
        expert_scale: weight `[E]` that multiplies an expert's output, or None.
        limit: that of `GatedProduct`.
    """

    x: str
    router: str
    out: str
    routing: Routing
    gate: str
    up: str
    down: str
    width: int
    activation: Activation
    gate_bias: str | None = None
    up_bias: str | None = None
    down_bias: str | None = None
    expert_scale: str | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class CausalConv:
    """Depthwise convolution over a sequence's last K tokens: `out[t, c] = act(sum_j w[c, j] * x[t - K + 1 + j, c])`.

    Inputs before the sequence's beginning are 0; the last K - 1 inputs are kept in the state. Products are added from
    the oldest token to the newest.

    Attributes:
        weight: `[C, K]`.
        bias: `[C]`, or None.
        layer: index into the program's `state_layers`.
        activation: applied to the sum, or None.
    """

    x: str
    out: str
    weight: str
    layer: int
    bias: str | None = None
    activation: Activation | None = Activation.SILU


@dataclass(frozen=True, slots=True)
class GatedDelta:
    """The gated delta rule, token by token, on a state S `[value_dim, key_dim]` per value head, kept in float32.

    With `decay = exp(a_log[h] * softplus(a[t, h] + dt_bias[h]))` and `beta = sigmoid(b[t, h])`:
    `S = S * decay`; `S = S + beta * (v - S k) k^T`; `out = S q * scale`. Value head h reads key head
    `h % num_key_heads` where `tiled`, else `h * num_key_heads // num_value_heads`.

    Attributes:
        q, k: `[T, num_key_heads * key_dim]`, normalised by operators before this one.
        v, out: `[T, num_value_heads * value_dim]`.
        a, b: `[T, num_value_heads]`.
        a_log: weight `[num_value_heads]`, negative: `-exp(A_log)`.
        dt_bias: weight `[num_value_heads]`.
        layer: index into the program's `state_layers`.
    """

    q: str
    k: str
    v: str
    a: str
    b: str
    out: str
    a_log: str
    dt_bias: str
    layer: int
    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    scale: float
    tiled: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """Logits of the rows that the step asks for: `softcap * tanh(x @ weight.T * scale / softcap)`; weight `[V, C]`."""

    x: str
    weight: str
    scale: float = 1.0
    softcap: float | None = None


@dataclass(frozen=True, slots=True)
class HiddenOutput:
    """The rows that the step asks for, as they are: the end of an embedding model or a classifier."""

    x: str


RowOperator = (
    Embed
    | PositionEmbed
    | RmsNorm
    | LayerNorm
    | Linear
    | Slice
    | Join
    | Rope
    | GatedProduct
    | Activate
    | Add
    | AddVector
    | Scale
    | ScaleRows
    | ScaleByPosition
    | Experts
)
"""Operators whose output row depends on the same row of their inputs alone."""
SequenceOperator = Attention | CausalConv | GatedDelta
"""Operators that also look at other tokens of the row's sequence."""
Operator = RowOperator | SequenceOperator | Head | HiddenOutput
