"""The gemma4 family: text models of Gemma 4, dense (E2B, E4B, 12B, 31B) and with experts (26B-A4B).

Norms before and after each branch, and five or six local layers to a global one, which has larger heads, turns only
a part of them, and may take its values from its keys. The last layers may read the keys and values of the last layer
of their kind that has its own. Small models add a vector of the token's own to every layer; layers are scaled as a
whole. Tensor names and metadata keys are GGUF's; the computation is that of `Gemma4ForCausalLM` in transformers.
Refuses to know where the file came from and what computes the program.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memra.errors import CorruptFileError
from memra.layers.operators import Activation, Rope, RopeStyle
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.metadata import Metadata, read_position_scale
from memra.models.mixtures import MIXTURE_KEY, Mixture, read_softmax_mixture
from memra.models.sliding_windows import read_local_layers, read_window


@dataclass(frozen=True, slots=True)
class _Heads:
    """What local or global layers have in common.

    Attributes:
        suffix: ends the names of the buffers of this kind.
        rope: of q.
        window: of local layers.
    """

    suffix: str
    head_dim: int
    rope: Rope
    window: int | None


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What all layers have in common; `per_layer_width` is 0 where tokens bring no vectors of their own."""

    num_layers: int
    width: int
    num_heads: int
    eps: float
    per_layer_width: int


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer; `stem` begins the names of its tensors, `source` is the layer whose keys and values it reads."""

    index: int
    stem: str
    heads: _Heads
    num_kv_heads: int
    ffn_width: int
    source: int | None


def build_gemma4(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a gemma4 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported(MIXTURE_KEY)
    sizes = _read_sizes(metadata)
    layers = _read_layers(metadata, sizes)
    mixture = read_softmax_mixture(metadata, normalise=True) if metadata.optional_number(MIXTURE_KEY) else None
    program = ProgramComposer(metadata.architecture, tensor_shapes, _buffers(sizes, mixture))
    program.embed("token_embd.weight", "x", scale=math.sqrt(sizes.width))
    if sizes.per_layer_width:
        _embed_per_layer(program, sizes, vocab_size=tensor_shapes["token_embd.weight"][0])
    cache_layers: dict[int, int] = {}
    for layer in layers:
        _add_attention(program, layer, sizes, cache_layers)
        _add_feed_forward(program, layer, sizes, mixture)
        if sizes.per_layer_width:
            _add_token_vector(program, layer, sizes)
        if program.has_tensor(f"{layer.stem}.layer_output_scale.weight"):
            program.scale("x", weight=f"{layer.stem}.layer_output_scale.weight")
    program.norm("x", "normed", "output_norm.weight", eps=sizes.eps)
    softcap = metadata.optional_number("final_logit_softcapping")
    program.head("normed", embedding="token_embd.weight", softcap=softcap)
    return program.finish(metadata.positive_integer("context_length"))


def _embed_per_layer(program: ProgramComposer, sizes: _Sizes, *, vocab_size: int) -> None:
    """Fill `token_vectors` with a vector for each layer: `(norm(projection of x / sqrt(C)) + own) / sqrt(2)`.

    Dividing the norm's input by `sqrt(C)` is multiplying its epsilon by C.
    """
    total = sizes.num_layers * sizes.per_layer_width
    program.buffer("token_vectors", total)
    program.buffer("projected", total)
    program.need("per_layer_token_embd.weight", (vocab_size, total))
    program.embed("per_layer_token_embd.weight", "token_vectors", scale=math.sqrt(sizes.per_layer_width / 2.0))
    program.linear("x", "projected", "per_layer_model_proj")
    program.norm(
        "projected",
        "projected",
        "per_layer_proj_norm.weight",
        eps=sizes.eps * sizes.width,
        group_width=sizes.per_layer_width,
        scale=math.sqrt(0.5),
    )
    program.add("token_vectors", "projected")


def _add_attention(program: ProgramComposer, layer: _Layer, sizes: _Sizes, cache_layers: dict[int, int]) -> None:
    """Attend; `cache_layers` remembers which cache a layer with keys of its own has filled."""
    stem, heads = layer.stem, layer.heads
    q = program.buffer(f"q{heads.suffix}", sizes.num_heads * heads.head_dim)
    attended = program.buffer(f"attended{heads.suffix}", sizes.num_heads * heads.head_dim)
    program.norm("x", "normed", f"{stem}.attn_norm.weight", eps=sizes.eps)
    program.linear("normed", q, f"{stem}.attn_q")
    if layer.source is None:
        _project_keys_and_values(program, layer, sizes)
    else:  # converters may leave in what such a layer never reads
        for part in ("attn_k.", "attn_v.", "attn_k_norm."):
            program.leave_unused(f"{stem}.{part}", "the layer reads the keys and values of an earlier one")
    program.norm(q, q, f"{stem}.attn_q_norm.weight", eps=sizes.eps, group_width=heads.head_dim)
    program.rope(replace(heads.rope, x=q))
    cache_layers[layer.index] = program.attention(
        num_heads=sizes.num_heads,
        num_kv_heads=layer.num_kv_heads,
        head_dim=heads.head_dim,
        scale=1.0,  # the norms on q and k have learned it
        window=heads.window,
        shared_layer=None if layer.source is None else cache_layers[layer.source],
        suffix=heads.suffix,
    )
    program.linear(attended, "branch", f"{stem}.attn_output")
    program.norm("branch", "branch", f"{stem}.post_attention_norm.weight", eps=sizes.eps)
    program.add("x", "branch")


def _project_keys_and_values(program: ProgramComposer, layer: _Layer, sizes: _Sizes) -> None:
    """Fill k and v; a global layer without a matrix for values takes the keys before their norm."""
    stem, heads, eps = layer.stem, layer.heads, sizes.eps
    k = program.buffer(f"k{heads.suffix}", layer.num_kv_heads * heads.head_dim)
    v = program.buffer(f"v{heads.suffix}", layer.num_kv_heads * heads.head_dim)
    has_values = heads.window is not None or program.has_tensor(f"{stem}.attn_v.weight")
    program.linear("normed", k, f"{stem}.attn_k")
    if has_values:
        program.linear("normed", v, f"{stem}.attn_v")
    program.norm(v if has_values else k, v, None, eps=eps, group_width=heads.head_dim)
    program.norm(k, k, f"{stem}.attn_k_norm.weight", eps=eps, group_width=heads.head_dim)
    program.rope(replace(heads.rope, x=k, num_heads=layer.num_kv_heads))


def _add_feed_forward(program: ProgramComposer, layer: _Layer, sizes: _Sizes, mixture: Mixture | None) -> None:
    stem, eps = layer.stem, sizes.eps
    gate = program.buffer(f"gate_{layer.ffn_width}", layer.ffn_width)
    up = program.buffer(f"up_{layer.ffn_width}", layer.ffn_width)
    program.norm("x", "normed", f"{stem}.ffn_norm.weight", eps=eps)
    program.linear("normed", gate, f"{stem}.ffn_gate")
    program.linear("normed", up, f"{stem}.ffn_up")
    program.gated_product(Activation.GELU_TANH, gate=gate, up=up, out=gate)
    program.linear(gate, "branch", f"{stem}.ffn_down")
    if mixture is not None:
        _add_experts(program, layer, sizes, mixture)
    program.norm("branch", "branch", f"{stem}.post_ffw_norm.weight", eps=eps)
    program.add("x", "branch")


def _add_experts(program: ProgramComposer, layer: _Layer, sizes: _Sizes, mixture: Mixture) -> None:
    """Add a mixture of experts to the dense block's `branch`, each normed; the router has a norm of its own."""
    stem, eps = layer.stem, sizes.eps
    program.norm("branch", "branch", f"{stem}.post_ffw_norm_1.weight", eps=eps)
    program.norm("x", "normed", f"{stem}.ffn_gate_inp.scale", eps=eps, scale=sizes.width**-0.5)
    program.linear("normed", "router", f"{stem}.ffn_gate_inp")
    program.norm("x", "normed", f"{stem}.pre_ffw_norm_2.weight", eps=eps)
    program.experts(
        "normed",
        "router",
        "mixed",
        routing=mixture.routing,
        stem=f"{stem}.ffn",
        width=mixture.width,
        activation=Activation.GELU_TANH,
        expert_scale=f"{stem}.ffn_down_exps.scale",
    )
    program.norm("mixed", "mixed", f"{stem}.post_ffw_norm_2.weight", eps=eps)
    program.add("branch", "mixed")


def _add_token_vector(program: ProgramComposer, layer: _Layer, sizes: _Sizes) -> None:
    """Add the token's own vector for this layer, gated by the hidden row."""
    gate = program.buffer("token_gate", sizes.per_layer_width)
    vector = program.buffer("token_vector", sizes.per_layer_width)
    program.slice("token_vectors", vector, offset=layer.index * sizes.per_layer_width)
    program.linear("x", gate, f"{layer.stem}.inp_gate")
    program.gated_product(Activation.GELU_TANH, gate=gate, up=vector, out=gate)
    program.linear(gate, "branch", f"{layer.stem}.proj")
    program.norm("branch", "branch", f"{layer.stem}.post_norm.weight", eps=sizes.eps)
    program.add("x", "branch")


def _read_sizes(metadata: Metadata) -> _Sizes:
    per_layer = "embedding_length_per_layer_input"
    return _Sizes(
        num_layers=metadata.positive_integer("block_count"),
        width=metadata.positive_integer("embedding_length"),
        num_heads=metadata.positive_integer("attention.head_count"),
        eps=metadata.positive_number("attention.layer_norm_rms_epsilon"),
        per_layer_width=metadata.positive_integer(per_layer) if metadata.optional_number(per_layer) else 0,
    )


def _buffers(sizes: _Sizes, mixture: Mixture | None) -> dict[str, int]:
    """Buffers that do not depend on the layer."""
    buffers = {"x": sizes.width, "normed": sizes.width, "branch": sizes.width}
    return buffers if mixture is None else buffers | {"router": mixture.routing.num_experts, "mixed": sizes.width}


def _read_layers(metadata: Metadata, sizes: _Sizes) -> list[_Layer]:
    """Describe every layer."""
    is_local = read_local_layers(metadata, sizes.num_layers, period=None)
    kinds = _read_heads(metadata, sizes, window=read_window(metadata))
    num_kv_heads = metadata.layer_integers("attention.head_count_kv", sizes.num_layers)
    ffn_widths = metadata.layer_integers("feed_forward_length", sizes.num_layers)
    sources = _read_sources(metadata, is_local)
    layers = []
    for index in range(sizes.num_layers):
        source = sources[index]
        kv_heads = num_kv_heads[index if source is None else source]
        if sizes.num_heads % kv_heads:
            raise CorruptFileError(
                f"{metadata.key('attention.head_count')} is {sizes.num_heads}, not a multiple of the {kv_heads} "
                f"key-value heads of layer {index}."
            )
        layers.append(_Layer(index, f"blk.{index}", kinds[is_local[index]], kv_heads, ffn_widths[index], source))
    return layers


def _read_sources(metadata: Metadata, is_local: Sequence[bool]) -> list[int | None]:
    """Tell for every layer whose keys and values it reads: None is its own.

    The last `attention.shared_kv_layers` layers read those of the last layer of their kind before them.
    """
    name = "attention.shared_kv_layers"
    num_shared = metadata.positive_integer(name) if metadata.optional_number(name) else 0
    first_shared = len(is_local) - num_shared
    last = {kind: index for index, kind in enumerate(is_local[: max(first_shared, 0)])}
    if not set(is_local) <= last.keys():
        raise CorruptFileError(f"{metadata.key(name)} is {num_shared}, which leaves no layer to read keys from.")
    return [None if index < first_shared else last[kind] for index, kind in enumerate(is_local)]


def _read_heads(metadata: Metadata, sizes: _Sizes, *, window: int | None) -> dict[bool, _Heads]:
    """Describe local layers (under True) and global ones; only these divide and scale their frequencies."""
    if window is None:
        raise CorruptFileError(f"The file lacks {metadata.key('attention.sliding_window')}; convert it again.")
    kinds = {}
    for is_local, ending in ((False, ""), (True, "_swa")):
        head_dim = metadata.positive_integer(f"attention.key_length{ending}")
        if metadata.positive_integer(f"attention.value_length{ending}", head_dim) != head_dim:
            raise metadata.unsupported(f"attention.value_length{ending}", "values of another size than keys")
        rotary_dims = metadata.positive_integer(f"rope.dimension_count{ending}", head_dim)
        if rotary_dims % 2 or rotary_dims > head_dim:
            raise CorruptFileError(
                f"{metadata.key(f'rope.dimension_count{ending}')} is {rotary_dims}, but must be even and at most the "
                f"head's {head_dim} elements."
            )
        rope = Rope(
            x="q",
            num_heads=sizes.num_heads,
            head_dim=head_dim,
            rotary_dims=rotary_dims,
            style=RopeStyle.HALVES,
            base=metadata.positive_number(f"rope.freq_base{ending}"),
            position_scale=1.0 if is_local else read_position_scale(metadata),
            frequency_factors=None if is_local else "rope_freqs.weight",
        )
        kinds[is_local] = _Heads("_local" if is_local else "", head_dim, rope, window if is_local else None)
    return kinds
