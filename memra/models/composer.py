"""Writing a program down: operators in order, and the weights that they need, checked as they are named.

Trade: bookkeeping for the family files. Every buffer gets its width, every weight its expected shape, and a file that
lacks a tensor, has it in another shape, or holds one that the program never reads is refused at once. Refuses to know
what the operators compute or how a family arranges them.
"""

from collections.abc import Mapping

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.layers.operators import (
    Activate,
    Activation,
    Add,
    AddVector,
    Attention,
    CausalConv,
    Embed,
    Experts,
    GatedDelta,
    GatedProduct,
    Head,
    HiddenOutput,
    Join,
    LayerNorm,
    Linear,
    Operator,
    PositionEmbed,
    RmsNorm,
    Rope,
    Routing,
    Scale,
    ScaleRows,
    Slice,
)
from memra.layers.program import KvLayer, Pooling, Program, StateLayer


class ProgramComposer:
    """Collects one program; used once.

    Args:
        architecture: the family, as the file names it.
        tensor_shapes: shape of every tensor of the file, outermost first.
        buffers: width of every buffer that the operators will name; `buffer` adds more.
    """

    def __init__(
        self, architecture: str, tensor_shapes: Mapping[str, tuple[int, ...]], buffers: Mapping[str, int]
    ) -> None:
        self._architecture = architecture
        self._tensor_shapes = tensor_shapes
        self._buffers = dict(buffers)
        self._weights: dict[str, tuple[int, ...]] = {}
        self._kv_layers: list[KvLayer] = []
        self._state_layers: list[StateLayer] = []
        self._operators: list[Operator] = []
        self._unused: dict[str, str] = {}

    def has_tensor(self, name: str) -> bool:
        """Whether the file holds this tensor."""
        return name in self._tensor_shapes

    def rows_of(self, weight: str) -> int:
        """Rows of a matrix of the file; 0 where the file lacks it."""
        shape = self._tensor_shapes.get(weight)
        return shape[0] if shape else 0

    def buffer(self, name: str, width: int) -> str:
        """Add a buffer, or find it again with the same width; returns its name."""
        if self._buffers.setdefault(name, width) != width:
            raise ValueError(f"buffer {name} is {self._buffers[name]} wide, not {width}")
        return name

    def buffer_like(self, other: str, name: str) -> str:
        """Add a buffer as wide as another one, or find it again; returns its name."""
        return self.buffer(name, self._buffers[other])

    def embed(self, weight: str, out: str, *, scale: float = 1.0) -> None:
        """Start from the tokens' rows of `weight`; its number of rows is the vocabulary's size."""
        self._need(weight, (self.rows_of(weight), self._buffers[out]))
        self._operators.append(Embed(weight, out, scale))

    def position_embed(self, weight: str, out: str, *, offset: int = 0) -> None:
        """Read the row of each token's position."""
        self._need(weight, (self.rows_of(weight), self._buffers[out]))
        self._operators.append(PositionEmbed(weight, out, offset))

    def norm(  # noqa: PLR0913  (the operator has this many settings)
        self, x: str, out: str, weight: str | None, *, eps: float, group_width: int | None = None, scale: float = 1.0
    ) -> None:
        """Normalise each row, or each group of `group_width` elements of it, by its root mean square."""
        group_width = self._buffers[x] if group_width is None else group_width
        if weight is not None:
            self._need(weight, (group_width,))
        self._operators.append(RmsNorm(x, out, weight, group_width, eps, scale))

    def layer_norm(self, x: str, out: str, stem: str, *, eps: float) -> None:
        """Centre and normalise each row by `<stem>.weight`, and `<stem>.bias` where the file has it."""
        width = self._buffers[x]
        self._need(f"{stem}.weight", (width,))
        self._operators.append(LayerNorm(x, out, f"{stem}.weight", self._optional(f"{stem}.bias", (width,)), eps))

    def linear(self, x: str, out: str, stem: str, *, bias: bool | None = False) -> None:
        """Multiply by `<stem>.weight`, and add `<stem>.bias` if there is to be one; None: if the file has one."""
        shape: tuple[int, ...] = (self._buffers[out], self._buffers[x])
        if shape[0] == 1 and self._tensor_shapes.get(f"{stem}.weight") == shape[1:]:
            shape = shape[1:]  # files write a matrix of one row as a vector, too
        self._need(f"{stem}.weight", shape)
        if bias:
            self._need(f"{stem}.bias", (self._buffers[out],))
        bias_name = f"{stem}.bias" if bias else None
        if bias is None:
            bias_name = self._optional(f"{stem}.bias", (self._buffers[out],))
        self._operators.append(Linear(x, out, f"{stem}.weight", bias_name))

    def slice(self, x: str, out: str, *, offset: int, num_groups: int = 1) -> None:
        """Take `out`'s width out of `x`, in `num_groups` equal groups, from `offset` of each group on."""
        stride, width = self._buffers[x] // num_groups, self._buffers[out] // num_groups
        self._operators.append(Slice(x, out, num_groups, stride, offset, width))

    def join(self, x: str, y: str, out: str, *, num_groups: int, repeats: bool = False) -> None:
        """Put the groups of `x` and `y` side by side; `y` may be one group that repeats."""
        self._operators.append(Join(x, y, out, num_groups, repeats))

    def rope(self, rope: Rope) -> None:
        """Rotate a buffer's heads; the file's factors may be those of another layer that rotates more elements."""
        if rope.frequency_factors is not None:
            found = self._tensor_shapes.get(rope.frequency_factors, (0,))
            self._need(rope.frequency_factors, (max(rope.rotary_dims // 2, found[0]),))
        self._operators.append(rope)

    def attention(  # noqa: PLR0913  (the operator has this many settings)
        self,
        *,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: str | None = None,
        chunk: int | None = None,
        causal: bool = True,
        v_head_dim: int | None = None,
        shared_layer: int | None = None,
        suffix: str = "",
    ) -> int:
        """Attend from buffer `q` over the layer's `k` and `v` into `attended`; returns the layer's index.

        Each call is one more layer, but with `shared_layer` it reads that layer's keys and values and adds none. What
        is not causal lies whole in one step, so nobody reads keys and values after their operator: such calls of one
        shape write to one layer, each over the one before. Where layers differ in their heads, `suffix` ends the names
        of the buffers of this one's kind.
        """
        kept = KvLayer(num_kv_heads, head_dim, window if causal else None, v_head_dim)
        layer = len(self._kv_layers) if shared_layer is None else shared_layer
        if not causal and kept in self._kv_layers:
            layer = self._kv_layers.index(kept)
        elif shared_layer is None:
            self._kv_layers.append(kept)
        if sinks is not None:
            self._need(sinks, (num_heads,))
        k, v = (f"k{suffix}", f"v{suffix}") if shared_layer is None else (None, None)
        self._operators.append(
            Attention(
                f"q{suffix}",
                k,
                v,
                f"attended{suffix}",
                layer,
                num_heads,
                num_kv_heads,
                head_dim,
                scale,
                window,
                softcap,
                sinks=sinks,
                chunk=chunk,
                causal=causal,
                v_head_dim=v_head_dim,
            )
        )
        return layer

    def gated_product(
        self,
        activation: Activation,
        *,
        gate: str = "gate",
        up: str = "up",
        out: str = "gate",
        limit: float | None = None,
    ) -> None:
        """Join the buffers `gate` and `up`."""
        self._operators.append(GatedProduct(gate, up, out, activation, limit))

    def activate(self, x: str, activation: Activation) -> None:
        """Apply a function in place."""
        self._operators.append(Activate(x, x, activation))

    def add(self, x: str, y: str, *, scale: float = 1.0) -> None:
        """Add buffer `y`, times `scale`, to `x`."""
        self._operators.append(Add(x, y, x, scale))

    def add_vector(self, x: str, weight: str, *, row: int | None = None) -> None:
        """Add the same vector to every row of `x`: a weight, or one row of a matrix that has any number of them."""
        width = self._buffers[x]
        self._need(weight, (width,) if row is None else (max(self.rows_of(weight), row + 1), width))
        self._operators.append(AddVector(x, x, weight, row))

    def scale(self, x: str, *, factor: float = 1.0, weight: str | None = None) -> None:
        """Multiply `x` by a constant, or by a weight of one element."""
        if weight is not None:
            self._need(weight, (1,))
        self._operators.append(Scale(x, x, factor, weight))

    def scale_rows(self, x: str, gate: str) -> None:
        """Multiply each row of `x`, in as many groups as `gate` is wide, by the sigmoid of each group's gate."""
        self._operators.append(ScaleRows(x, gate, x, self._buffers[gate]))

    def experts(  # noqa: PLR0913  (the operator has this many settings)
        self,
        x: str,
        router: str,
        out: str,
        *,
        routing: Routing,
        stem: str,
        width: int,
        activation: Activation,
        biased: bool = False,
        expert_scale: str | None = None,
        limit: float | None = None,
    ) -> None:
        """Mix the experts `<stem>_gate_exps`, `_up_exps` and `_down_exps`, whose inner width is `width`."""
        count, columns = routing.num_experts, self._buffers[x]
        names = [f"{stem}_{part}_exps" for part in ("gate", "up", "down")]
        shapes = [(count, width, columns), (count, width, columns), (count, self._buffers[out], width)]
        for name, shape in zip(names, shapes, strict=True):
            self._need(f"{name}.weight", shape)
            if biased:
                self._need(f"{name}.bias", shape[:2])
        for vector in (routing.correction, expert_scale):
            if vector is not None:
                self._need(vector, (count,))
        gate, up, down = names
        self._operators.append(
            Experts(
                x,
                router,
                out,
                routing,
                f"{gate}.weight",
                f"{up}.weight",
                f"{down}.weight",
                width,
                activation,
                gate_bias=f"{gate}.bias" if biased else None,
                up_bias=f"{up}.bias" if biased else None,
                down_bias=f"{down}.bias" if biased else None,
                expert_scale=expert_scale,
                limit=limit,
            )
        )

    def causal_conv(
        self, x: str, out: str, weight: str, *, kernel: int, activation: Activation | None = Activation.SILU
    ) -> None:
        """Convolve each channel over its last `kernel` tokens; one more state layer."""
        channels = self._buffers[x]
        self._need(weight, (channels, kernel))
        layer = len(self._state_layers)
        self._state_layers.append(StateLayer((kernel - 1, channels)))
        self._operators.append(CausalConv(x, out, weight, layer, activation=activation))

    def gated_delta(  # noqa: PLR0913  (the operator has this many settings)
        self,
        out: str,
        *,
        a_log: str,
        dt_bias: str,
        num_key_heads: int,
        num_value_heads: int,
        key_dim: int,
        value_dim: int,
        tiled: bool = False,
        q: str = "q",
        k: str = "k",
        v: str = "v",
    ) -> None:
        """Run the delta rule over the buffers `q`, `k`, `v` and those called `a` and `b`; one more state layer."""
        for vector in (a_log, dt_bias):
            self._need(vector, (num_value_heads,))
        layer = len(self._state_layers)
        self._state_layers.append(StateLayer((num_value_heads, value_dim, key_dim)))
        self._operators.append(
            GatedDelta(
                q,
                k,
                v,
                "a",
                "b",
                out,
                a_log,
                dt_bias,
                layer,
                num_key_heads,
                num_value_heads,
                key_dim,
                value_dim,
                scale=key_dim**-0.5,
                tiled=tiled,
            )
        )

    def append(self, operator: Operator) -> None:
        """Add an operator that needs no weight, or whose weights were named by `need`."""
        self._operators.append(operator)

    def need(self, name: str, shape: tuple[int, ...]) -> str:
        """Name a weight and the shape that it must have; returns the name.

        Raises:
            CorruptFileError: the file lacks it, or has it in another shape.
        """
        self._need(name, shape)
        return name

    def leave_unused(self, prefix: str, reason: str) -> None:
        """Say that the tensors under a prefix are known and not read: parts that answer nothing by themselves."""
        self._unused |= {name: reason for name in self._tensor_shapes if name.startswith(prefix)}

    def head(self, x: str, *, embedding: str, softcap: float | None = None, scale: float = 1.0) -> None:
        """End in logits, from `output.weight` or, where the file ties the two, from the embedding."""
        weight = "output.weight" if self.has_tensor("output.weight") else embedding
        self._need(weight, (self._weights[embedding][0], self._buffers[x]))
        self._operators.append(Head(x, weight, scale=scale, softcap=softcap))

    def hidden_output(self, x: str) -> None:
        """End in the rows of `x` themselves."""
        self._operators.append(HiddenOutput(x))

    def finish(self, context_tokens: int, *, pooling: Pooling | None = None) -> Program:
        """Return the program, once every tensor of the file has found its place in it.

        Raises:
            UnsupportedModelError: the file holds a tensor that the program does not read.
        """
        unread = sorted(self._tensor_shapes.keys() - self._weights.keys() - self._unused.keys())
        if unread:
            raise UnsupportedModelError(
                f"The file holds the tensor {unread[0]} ({len(unread)} such in all), which the {self._architecture} "
                "family of memra does not use; running without it would be another model."
            )
        if not isinstance(self._operators[-1], HiddenOutput if pooling else Head):
            raise TypeError("a program ends in a head, that of an embedding model in its rows")
        return Program(
            architecture=self._architecture,
            vocab_size=next(self._weights[op.weight][0] for op in self._operators if isinstance(op, Embed)),
            context_tokens=context_tokens,
            buffers=self._buffers,
            weights=self._weights,
            kv_layers=tuple(self._kv_layers),
            operators=tuple(self._operators),
            state_layers=tuple(self._state_layers),
            pooling=pooling,
            unused=self._unused,
        )

    def _optional(self, name: str, shape: tuple[int, ...]) -> str | None:
        return self.need(name, shape) if self.has_tensor(name) else None

    def _need(self, name: str, expected: tuple[int, ...]) -> None:
        shape = self._tensor_shapes.get(name)
        if shape is None:
            raise CorruptFileError(f"The file lacks the tensor {name}; fetch or convert it again.")
        if tuple(shape) != expected or 0 in expected:
            raise CorruptFileError(
                f"The tensor {name} has the shape {tuple(shape)}, but the file's metadata asks for {expected}."
            )
        self._weights[name] = expected
