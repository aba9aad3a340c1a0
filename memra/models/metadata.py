"""Reading a model file's metadata: every value typed, in range, and named when it is not.

Trade: turns the flat key-value metadata of GGUF into Python values, and refuses by name what no family here runs.
Keys without a dot at the front belong to the architecture: `block_count` is `llama.block_count`. Refuses to know what
the values mean to a family.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real

from memra.errors import CorruptFileError, UnsupportedModelError

_REFUSED_UNLESS: Mapping[str, tuple[tuple[object, ...], str]] = {
    "expert_count": ((0,), "mixture of experts"),
    "attention.causal": ((True,), "attention that is not causal"),
    "pooling_type": ((0,), "pooling (an embedding model)"),
    "embedding_scale": ((0, 1), "an embedding scale of its own"),
    "residual_scale": ((0, 1), "a residual scale"),
    "logit_scale": ((0, 1), "a logit scale"),
    "attention.clamp_kqv": ((0,), "clamped queries, keys and values"),
    "attention.max_alibi_bias": ((0,), "ALiBi positions"),
    "use_parallel_residual": ((False,), "parallel residuals"),
    "rope.scaling.attn_factor": ((0, 1), "a rope attention factor"),
}
"""Keys whose other values change the computation in a way that few families carry out, or none."""


class Metadata:
    """The metadata of one file, read with the architecture as a prefix."""

    def __init__(self, architecture: str, values: Mapping[str, object]) -> None:
        """Keep the values; nothing is read yet."""
        self.architecture = architecture
        self._values = values

    def key(self, name: str) -> str:
        """Full name of an architecture's key."""
        return f"{self.architecture}.{name}"

    def get(self, name: str) -> object | None:
        """Return the raw value, or None when the file has no such key."""
        return self._values.get(self.key(name))

    def get_global(self, key: str) -> object | None:
        """Return the raw value of a key outside the architecture, or None."""
        return self._values.get(key)

    def positive_integer(self, name: str, default: int | None = None) -> int:
        """Read an integer above 0.

        Raises:
            CorruptFileError: it is missing without a default, no integer, or not above 0.
            UnsupportedModelError: it differs from layer to layer.
        """
        value = self._require(name, default)
        if isinstance(value, (list, tuple)):
            msg = f"{self.key(name)} differs from layer to layer, which the {self.architecture} family does not run."
            raise UnsupportedModelError(msg)
        if isinstance(value, bool) or not isinstance(value, Integral) or value <= 0:
            raise self._mistyped(name, value, "an integer above 0")
        return int(value)

    def count(self, name: str) -> int:
        """Read a number of things, taking absence for 0.

        Raises:
            CorruptFileError: it is no integer, or below 0.
        """
        return 0 if self.get(name) in {None, 0} else self.positive_integer(name)

    def positive_number(self, name: str, default: float | None = None) -> float:
        """Read a finite number above 0.

        Raises:
            CorruptFileError: it is missing without a default, no number, or not above 0.
        """
        value = self._require(name, default)
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < float("inf"):
            raise self._mistyped(name, value, "a number above 0")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        """Read a number above 0, taking 0 and absence for None, as files write both.

        Raises:
            CorruptFileError: it is no number, or below 0.
        """
        value = self.get(name)
        return None if value is None or (value == 0 and not isinstance(value, bool)) else self.positive_number(name)

    def layer_integers(self, name: str, num_layers: int) -> tuple[int, ...]:
        """Read an integer above 0 for every layer: files write one for all, or a list.

        Raises:
            CorruptFileError: it is missing, there are fewer than layers, or one is no integer above 0.
        """
        value = self._require(name, None)
        values = value if isinstance(value, (list, tuple)) else (value,) * num_layers
        if len(values) < num_layers:
            raise CorruptFileError(f"{self.key(name)} has {len(values)} entries for {num_layers} layers.")
        found = []
        for entry in values[:num_layers]:
            if isinstance(entry, bool) or not isinstance(entry, Integral) or entry <= 0:
                raise self._mistyped(name, entry, "an integer above 0")
            found.append(int(entry))
        return tuple(found)

    def refuse_unsupported(self, *carried_out: str) -> None:
        """Refuse a file whose metadata asks for something that its family does not compute.

        Args:
            carried_out: keys that the family reads itself.

        Raises:
            UnsupportedModelError: naming the key, its value and what it means.
        """
        for name, (accepted, meaning) in _REFUSED_UNLESS.items():
            value = self.get(name)
            if name not in carried_out and value is not None and value not in accepted:
                raise self.unsupported(name, meaning)

    def unsupported(self, name: str, meaning: str) -> UnsupportedModelError:
        """Build the refusal of a key's value."""
        return UnsupportedModelError(
            f"The file's {self.key(name)} is {self.get(name)!r}: memra does not run {meaning} for {self.architecture}."
        )

    def _require(self, name: str, default: float | None) -> object:
        value = self.get(name)
        if value is None:
            value = default
        if value is None:
            raise CorruptFileError(f"The file lacks the metadata key {self.key(name)}; fetch or convert it again.")
        return value

    def _mistyped(self, name: str, value: object, expected: str) -> CorruptFileError:
        return CorruptFileError(f"The file's {self.key(name)} is {value!r}, which is not {expected}.")


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """The sizes that every decoder here shares.

    Attributes:
        width: elements of the residual row.
        num_heads, num_kv_heads: query heads, and the key-value heads that they share.
        head_dim: elements of a head.
        ffn_width: elements between the two feed-forward products.
        eps: of every norm.
        context_tokens: longest sequence that the model was trained for.
        rotary_dims: leading elements of a head that are rotated.
    """

    num_layers: int
    width: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_width: int
    eps: float
    context_tokens: int
    rotary_dims: int

    @property
    def buffers(self) -> Mapping[str, int]:
        """Width of every activation buffer: the residual `x`, and what comes and goes around it."""
        heads, kv_heads = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        return {
            "x": self.width,
            "normed": self.width,
            "q": heads,
            "k": kv_heads,
            "v": kv_heads,
            "attended": heads,
            "gate": self.ffn_width,
            "up": self.ffn_width,
            "branch": self.width,
        }


def read_decoder_shape(
    metadata: Metadata, *, ffn_width: int | None = None, eps_key: str = "attention.layer_norm_rms_epsilon"
) -> DecoderShape:
    """Read and cross-check the sizes of a decoder.

    Args:
        metadata: of the file.
        ffn_width: for a file that gives none, as those of mixtures of experts.
        eps_key: where the norms' epsilon stands; `attention.layer_norm_epsilon` for norms that centre.

    Raises:
        CorruptFileError: a key is missing, mistyped, or contradicts another one.
        UnsupportedModelError: keys and values have heads of different sizes.
    """
    width = metadata.positive_integer("embedding_length")
    num_heads = metadata.positive_integer("attention.head_count")
    num_kv_heads = metadata.positive_integer("attention.head_count_kv", num_heads)
    head_dim = metadata.positive_integer("attention.key_length", max(width // num_heads, 1))
    rotary_dims = metadata.positive_integer("rope.dimension_count", head_dim)
    if metadata.positive_integer("attention.value_length", head_dim) != head_dim:
        raise metadata.unsupported("attention.value_length", "values of another size than keys")
    if num_heads % num_kv_heads:
        raise CorruptFileError(
            f"{metadata.key('attention.head_count')} is {num_heads}, not a multiple of the {num_kv_heads} "
            "key-value heads."
        )
    if rotary_dims % 2 or rotary_dims > head_dim:
        raise CorruptFileError(
            f"{metadata.key('rope.dimension_count')} is {rotary_dims}, but must be even and at most the head's "
            f"{head_dim} elements."
        )
    return DecoderShape(
        num_layers=metadata.positive_integer("block_count"),
        width=width,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        ffn_width=metadata.positive_integer("feed_forward_length", ffn_width),
        eps=metadata.positive_number(eps_key),
        context_tokens=metadata.positive_integer("context_length"),
        rotary_dims=rotary_dims,
    )


def read_position_scale(metadata: Metadata) -> float:
    """Read the factor on positions: 1 without rope scaling, 1 / factor with linear scaling.

    Raises:
        UnsupportedModelError: the file asks for another kind of scaling.
    """
    kind = metadata.get("rope.scaling.type")
    if kind not in {None, "none", "linear"}:
        raise metadata.unsupported("rope.scaling.type", f"rope scaling of type {kind}")
    if kind == "none":
        return 1.0
    # `rope.scale_linear` is the older name of the factor; a factor without a type is linear.
    name = "rope.scaling.factor" if metadata.get("rope.scaling.factor") is not None else "rope.scale_linear"
    factor = metadata.optional_number(name)
    if kind == "linear" and factor is None:
        raise CorruptFileError(f"The file scales rope linearly, but lacks {metadata.key('rope.scaling.factor')}.")
    return 1.0 if factor is None else 1.0 / factor
