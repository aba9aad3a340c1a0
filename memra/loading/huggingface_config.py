"""`config.json` of a safetensors directory, said in GGUF's keys, so that one program per family serves both formats.

Called by `safetensors_directory`. Knows the configuration keys of the architectures in `FAMILIES`, old and new spelling
(transformers 4 and 5), and refuses every other architecture by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memra.errors import CorruptFileError, UnsupportedModelError


@dataclass(frozen=True, slots=True)
class Family:
    """What differs between architectures in this format.

    Attributes:
        gguf_name: the architecture in GGUF's terms.
        activation: the only value of `hidden_act` that the family's program computes.
        norms_store_offset: norm weights are stored as `w` where `1 + w` is applied; GGUF stores `1 + w`.
        post_norms: the residual branches are normed on their way out as well.
        ties_embeddings: the head is the embedding matrix unless the configuration says otherwise.
    """

    gguf_name: str
    activation: str
    norms_store_offset: bool = False
    post_norms: bool = False
    ties_embeddings: bool = False


FAMILIES: Final[Mapping[str, Family]] = {
    "LlamaForCausalLM": Family("llama", "silu"),
    "Qwen2ForCausalLM": Family("qwen2", "silu"),
    "Gemma3ForCausalLM": Family(
        "gemma3", "gelu_pytorch_tanh", norms_store_offset=True, post_norms=True, ties_embeddings=True
    ),
}
"""By the first entry of `architectures` in config.json."""

ROPE_STYLE_KEY: Final = "memra.rope_style"
"""Metadata key without a counterpart in GGUF: `halves` where q and k keep the order of this format."""

_GEMMA3_LOCAL_ROPE_BASE: Final = 10_000.0
"""Gemma3TextConfig's default in transformers, and fixed in llama.cpp."""
_GEMMA3_SLIDING_WINDOW_PATTERN: Final = 6
_DEFAULT_ROPE_BASE: Final = 10_000.0
_SHOWN_CHARS: Final = 80
_TOO_LARGE: Final = 1e300
_MAX_LAYERS: Final = 1 << 12
"""Thirty times the deepest models known."""
_MAX_HEAD_DIM: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Parameters of the frequency scaling that came with Llama 3.1; GGUF stores the resulting factors as a tensor."""

    base: float
    rotary_dims: int
    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context_tokens: int


class Configuration:
    """config.json with its types checked at the moment a value is asked for."""

    def __init__(self, values: Mapping[str, object], path: Path) -> None:
        """Keep the values; `path` is for messages."""
        self.values = values
        self.path = path

    def integer(self, key: str, default: int | None = None, *, limit: int = (1 << 31) - 1) -> int:
        """A positive integer up to `limit`: a damaged number must not fill the memory.

        Raises:
            CorruptFileError: it is missing without a default, or something else.
        """
        value = self._lookup(key, default)
        if type(value) is not int or not 1 <= value <= limit:
            raise CorruptFileError(
                f"{self.path}: {key!r} is {_shown(value)}, not a positive integer up to {limit}: fetch the file again"
            )
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number.

        Raises:
            CorruptFileError: it is missing without a default, or something else.
        """
        value = self._lookup(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _TOO_LARGE:
            raise CorruptFileError(
                f"{self.path}: {key!r} is {_shown(value)}, not a positive number: fetch the file again"
            )
        return float(value)

    def mapping(self, key: str) -> "Configuration | None":
        """A nested object, or None where the key is absent or null."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise CorruptFileError(f"{self.path}: {key!r} is no JSON object: fetch the file again")
        return Configuration(value, self.path)

    def has(self, key: str) -> bool:
        """True where the key has a value other than null."""
        return self.values.get(key) is not None

    def _lookup(self, key: str, default: float | None) -> object:
        value = self.values.get(key)
        return default if value is None else value


def _shown(value: object) -> str:
    """A value for a message, shortened."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


def family_of(config: Configuration) -> Family:
    """The architecture that the configuration names.

    Raises:
        UnsupportedModelError: memra does not run it.
    """
    names = config.values.get("architectures")
    name = names[0] if isinstance(names, list) and names else config.values.get("model_type")
    family = FAMILIES.get(name) if isinstance(name, str) else None
    if family is None:
        raise UnsupportedModelError(
            f"{config.path}: the architecture {name!r} is not supported; supported are {', '.join(FAMILIES)}"
        )
    activation = config.values.get("hidden_act") or config.values.get("hidden_activation") or family.activation
    if activation != family.activation:
        raise UnsupportedModelError(f"{config.path}: the activation {activation!r} is not supported for {name}")
    if config.values.get("use_sliding_window") is True:
        raise UnsupportedModelError(f"{config.path}: 'use_sliding_window' is not supported for {name}")
    return family


def gguf_metadata(config: Configuration, family: Family) -> dict[str, object]:
    """The configuration in GGUF's keys, plus `memra.rope_style`."""
    prefix = family.gguf_name
    num_heads = config.integer("num_attention_heads")
    head_dim = head_width(config)
    metadata: dict[str, object] = {
        "general.architecture": prefix,
        ROPE_STYLE_KEY: "halves",
        f"{prefix}.block_count": config.integer("num_hidden_layers", limit=_MAX_LAYERS),
        f"{prefix}.context_length": config.integer("max_position_embeddings"),
        f"{prefix}.embedding_length": config.integer("hidden_size"),
        f"{prefix}.feed_forward_length": config.integer("intermediate_size"),
        f"{prefix}.vocab_size": config.integer("vocab_size"),
        f"{prefix}.attention.head_count": num_heads,
        f"{prefix}.attention.head_count_kv": config.integer("num_key_value_heads", num_heads),
        f"{prefix}.attention.key_length": head_dim,
        f"{prefix}.attention.value_length": head_dim,
        f"{prefix}.attention.layer_norm_rms_epsilon": config.number("rms_norm_eps", 1e-6),
        f"{prefix}.rope.dimension_count": head_dim,
        f"{prefix}.rope.freq_base": _rope_base(config),
    }
    if (factor := _linear_factor(config)) is not None:
        metadata[f"{prefix}.rope.scaling.type"] = "linear"
        metadata[f"{prefix}.rope.scaling.factor"] = factor
    if prefix == "gemma3":
        metadata.update(_gemma3_metadata(config))
    return metadata


def head_width(config: Configuration) -> int:
    """Elements of one attention head."""
    default = config.integer("hidden_size") // config.integer("num_attention_heads")
    return config.integer("head_dim", default, limit=_MAX_HEAD_DIM)


def llama3_scaling(config: Configuration) -> Llama3Scaling | None:
    """The Llama 3.1 frequency scaling, or None where the configuration does not ask for it."""
    rope = _rope_parameters(config, "full_attention")
    if rope is None or _rope_type(rope) != "llama3":
        return None
    return Llama3Scaling(
        base=_rope_base(config),
        rotary_dims=head_width(config),
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_context_tokens=rope.integer("original_max_position_embeddings"),
    )


def _gemma3_metadata(config: Configuration) -> dict[str, object]:
    metadata: dict[str, object] = {
        "gemma3.attention.scale": config.number("query_pre_attn_scalar", 256.0) ** -0.5,
        "gemma3.attention.sliding_window": config.integer("sliding_window", 4096),
        "gemma3.attention.sliding_window_pattern": _sliding_layers(config),
        "gemma3.rope.freq_base_swa": _local_rope_base(config),
    }
    if config.values.get("use_bidirectional_attention") is True:
        raise UnsupportedModelError(f"{config.path}: bidirectional attention is not supported: use a causal model")
    for key in ("final_logit_softcapping", "attn_logit_softcapping"):
        if config.has(key):
            metadata[f"gemma3.{key}"] = config.number(key)
    return metadata


def _sliding_layers(config: Configuration) -> tuple[bool, ...]:
    """One entry per layer, True where attention is confined to the window; GGUF's array form of the pattern."""
    num_layers = config.integer("num_hidden_layers", limit=_MAX_LAYERS)
    layer_types = config.values.get("layer_types")
    if layer_types is None:
        period = config.integer("sliding_window_pattern", _GEMMA3_SLIDING_WINDOW_PATTERN)
        return tuple((layer + 1) % period != 0 for layer in range(num_layers))
    if not isinstance(layer_types, list) or len(layer_types) != num_layers:
        raise CorruptFileError(f"{config.path}: 'layer_types' does not list {num_layers} layers: fetch the file again")
    return tuple(kind == "sliding_attention" for kind in layer_types)


def _rope_parameters(config: Configuration, layer_type: str) -> Configuration | None:
    """The rotation's settings: nested in transformers 5, by layer type if need be; `rope_scaling` in 4."""
    parameters = config.mapping("rope_parameters")
    if parameters is None:
        return config.mapping("rope_scaling")
    return parameters.mapping(layer_type) or parameters


def _rope_type(rope: Configuration) -> str:
    """`default`, `linear` or `llama3`.

    Raises:
        UnsupportedModelError: any other kind of scaling.
    """
    kind = rope.values.get("rope_type") or rope.values.get("type") or "default"
    if kind not in ("default", "linear", "llama3"):  # a damaged file may hold what no set takes
        raise UnsupportedModelError(
            f"{rope.path}: the rope scaling {_shown(kind)} is not supported: use a GGUF file or another model"
        )
    return str(kind)


def _rope_base(config: Configuration) -> float:
    default = 1e6 if config.values.get("model_type") == "gemma3_text" else _DEFAULT_ROPE_BASE
    rope = _rope_parameters(config, "full_attention")
    if rope is not None and rope.has("rope_theta"):
        return rope.number("rope_theta")
    return config.number("rope_theta", default)


def _local_rope_base(config: Configuration) -> float:
    parameters = config.mapping("rope_parameters")
    local = parameters.mapping("sliding_attention") if parameters is not None else None
    if local is not None:
        return local.number("rope_theta", _GEMMA3_LOCAL_ROPE_BASE)
    return config.number("rope_local_base_freq", _GEMMA3_LOCAL_ROPE_BASE)


def _linear_factor(config: Configuration) -> float | None:
    rope = _rope_parameters(config, "full_attention")
    return rope.number("factor") if rope is not None and _rope_type(rope) == "linear" else None
