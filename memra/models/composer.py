"""Writing a program down: operators in order, and the weights that they need, checked as they are named.

Trade: bookkeeping for the family files. Every buffer gets its width, every weight its expected shape, and a file that
lacks a tensor, has it in another shape, or holds one that the program never reads is refused at once. Refuses to know
what the operators compute or how a family arranges them.
"""

from collections.abc import Mapping

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.layers.operators import (
    Activation,
    Add,
    Attention,
    Embed,
    GatedProduct,
    Head,
    Linear,
    Operator,
    RmsNorm,
    Rope,
)
from memra.layers.program import KvLayer, Program


class ProgramComposer:
    """Collects one program; used once.

    Args:
        architecture: the family, as the file names it.
        tensor_shapes: shape of every tensor of the file, outermost first.
        buffers: width of every buffer that the operators will name.
    """

    def __init__(
        self, architecture: str, tensor_shapes: Mapping[str, tuple[int, ...]], buffers: Mapping[str, int]
    ) -> None:
        self._architecture = architecture
        self._tensor_shapes = tensor_shapes
        self._buffers = dict(buffers)
        self._weights: dict[str, tuple[int, ...]] = {}
        self._kv_layers: list[KvLayer] = []
        self._operators: list[Operator] = []

    def has_tensor(self, name: str) -> bool:
        """Whether the file holds this tensor."""
        return name in self._tensor_shapes

    def embed(self, weight: str, out: str, *, scale: float = 1.0) -> None:
        """Start from the tokens' rows of `weight`; its number of rows is the vocabulary's size."""
        self._need(weight, (self._rows_of(weight), self._buffers[out]))
        self._operators.append(Embed(weight, out, scale))

    def norm(self, x: str, out: str, weight: str, *, eps: float, group_width: int | None = None) -> None:
        """Normalise each row, or each group of `group_width` elements of it."""
        group_width = self._buffers[x] if group_width is None else group_width
        self._need(weight, (group_width,))
        self._operators.append(RmsNorm(x, out, weight, group_width, eps))

    def linear(self, x: str, out: str, stem: str, *, bias: bool = False) -> None:
        """Multiply by `<stem>.weight`, and add `<stem>.bias` if there is to be one."""
        self._need(f"{stem}.weight", (self._buffers[out], self._buffers[x]))
        if bias:
            self._need(f"{stem}.bias", (self._buffers[out],))
        self._operators.append(Linear(x, out, f"{stem}.weight", f"{stem}.bias" if bias else None))

    def rope(self, rope: Rope) -> None:
        """Rotate a buffer's heads."""
        if rope.frequency_factors is not None:
            self._need(rope.frequency_factors, (rope.rotary_dims // 2,))
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
    ) -> None:
        """Attend from buffer `q` over the layer's `k` and `v` into `attended`; each call is one more layer."""
        layer = len(self._kv_layers)
        self._kv_layers.append(KvLayer(num_kv_heads, head_dim, window))
        self._operators.append(
            Attention("q", "k", "v", "attended", layer, num_heads, num_kv_heads, head_dim, scale, window, softcap)
        )

    def gated_product(self, activation: Activation) -> None:
        """Join the buffers `gate` and `up` into `gate`."""
        self._operators.append(GatedProduct("gate", "up", "gate", activation))

    def add(self, x: str, y: str) -> None:
        """Add buffer `y` to `x`."""
        self._operators.append(Add(x, y, x))

    def head(self, x: str, *, embedding: str, softcap: float | None = None) -> None:
        """End in logits, from `output.weight` or, where the file ties the two, from the embedding."""
        weight = "output.weight" if self.has_tensor("output.weight") else embedding
        self._need(weight, (self._weights[embedding][0], self._buffers[x]))
        self._operators.append(Head(x, weight, softcap=softcap))

    def finish(self, context_tokens: int) -> Program:
        """Return the program, once every tensor of the file has found its place in it.

        Raises:
            UnsupportedModelError: the file holds a tensor that the program does not read.
        """
        unread = sorted(self._tensor_shapes.keys() - self._weights.keys())
        if unread:
            raise UnsupportedModelError(
                f"The file holds the tensor {unread[0]} ({len(unread)} such in all), which the {self._architecture} "
                "family of memra does not use; running without it would be another model."
            )
        head = self._operators[-1]
        if not isinstance(head, Head):
            raise TypeError("a program ends in a head")
        return Program(
            architecture=self._architecture,
            vocab_size=self._weights[head.weight][0],
            context_tokens=context_tokens,
            buffers=self._buffers,
            weights=self._weights,
            kv_layers=tuple(self._kv_layers),
            operators=tuple(self._operators),
        )

    def _rows_of(self, weight: str) -> int:
        shape = self._tensor_shapes.get(weight)
        return shape[0] if shape else 0

    def _need(self, name: str, expected: tuple[int, ...]) -> None:
        shape = self._tensor_shapes.get(name)
        if shape is None:
            raise CorruptFileError(f"The file lacks the tensor {name}; fetch or convert it again.")
        if tuple(shape) != expected or 0 in expected:
            raise CorruptFileError(
                f"The tensor {name} has the shape {tuple(shape)}, but the file's metadata asks for {expected}."
            )
        self._weights[name] = expected
