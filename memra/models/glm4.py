"""The glm4 and glm4moe families: GLM-4-0414, and GLM-4.5 to 4.7 with experts.

GLM-4 norms before and after each branch, keeps gate and up in one matrix and turns neighbours in a part of each head
(halves, where the file was made for pictures too, arXiv 2507.01006). GLM-4.5 is llama's block with rotation by halves
of a part of each head; after some dense layers, experts are chosen by sigmoids with a correction, beside one that every
row goes through (arXiv 2508.06471). Tensor names and metadata keys are GGUF's. Refuses to know where the file came from
and what computes the program.
"""

from memra.layers.operators import RopeStyle, RouterFunction, Routing
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.decoders import (
    FeedForward,
    HeadNorms,
    Layout,
    TensorShapes,
    compose_decoder,
    dense_feed_forward,
    fused_feed_forward,
    plain_rotation,
)
from memra.models.metadata import DecoderShape, Metadata, read_decoder_shape
from memra.models.mixtures import MIXTURE_KEY, add_experts, add_shared_expert

_SIGMOID = 2
"""`expert_gating_func` of llama.cpp; 0 leaves the choice to the family, which is the same."""


def build_glm4(metadata: Metadata, tensor_shapes: TensorShapes) -> Program:
    """Build the program of a glm4 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor")
    shape = read_decoder_shape(metadata)
    layout = Layout(
        rotation=plain_rotation(metadata, shape, tensor_shapes),
        # Positions of text have equal sections: what is left of them is the order of the rows.
        style=RopeStyle.HALVES if _has_sections(metadata) else RopeStyle.INTERLEAVED,
        after_attention="post_attention_norm",
        after_feed_forward="post_ffw_norm",
        feed_forward=fused_feed_forward(shape),
        num_draft_layers=metadata.count("nextn_predict_layers"),
    )
    return compose_decoder(metadata, tensor_shapes, shape, layout)


def build_glm4moe(metadata: Metadata, tensor_shapes: TensorShapes) -> Program:
    """Build the program of a glm4moe file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor", MIXTURE_KEY)
    shape = read_decoder_shape(metadata)
    norms_heads = "blk.0.attn_q_norm.weight" in tensor_shapes  # the largest model alone
    layout = Layout(
        rotation=plain_rotation(metadata, shape, tensor_shapes),
        # GGUF calls the norm before the feed-forward branch by what it follows.
        before_feed_forward="post_attention_norm",
        head_norms=HeadNorms.EACH_HEAD if norms_heads else HeadNorms.NONE,
        feed_forward=_read_feed_forward(metadata, shape),
        num_draft_layers=metadata.count("nextn_predict_layers"),
    )
    return compose_decoder(metadata, tensor_shapes, shape, layout)


def _has_sections(metadata: Metadata) -> bool:
    sections = metadata.get("rope.dimension_sections")
    return isinstance(sections, (list, tuple)) and any(sections)


def _read_feed_forward(metadata: Metadata, shape: DecoderShape) -> FeedForward:
    """Read how many layers are dense, and the experts of the others."""
    if metadata.get("expert_gating_func") not in {None, 0, _SIGMOID}:
        raise metadata.unsupported("expert_gating_func", "a router other than sigmoids")
    num_dense_layers = metadata.count("leading_dense_block_count")
    width = metadata.positive_integer("expert_feed_forward_length")
    shared_width = width * metadata.count("expert_shared_count")
    num_groups = metadata.count("expert_group_count") or 1
    num_experts = metadata.positive_integer("expert_count")
    num_used = metadata.positive_integer("expert_used_count")
    scale = metadata.optional_number("expert_weights_scale") or 1.0
    add_dense = dense_feed_forward(shape)

    def feed_forward(program: ProgramComposer, index: int, x: str) -> None:
        if index < num_dense_layers:
            add_dense(program, index, x)
            return
        layer = f"blk.{index}"
        routing = Routing(
            num_experts,
            num_used,
            RouterFunction.SIGMOID,
            correction=f"{layer}.exp_probs_b.bias",
            normalise=metadata.get("expert_weights_norm") is True,
            scale=scale,
            num_groups=num_groups,
            num_groups_used=metadata.count("expert_group_used_count") or num_groups,
        )
        add_experts(program, layer, x, routing=routing, width=width)
        if shared_width:
            add_shared_expert(program, layer, x, width=shared_width)

    return feed_forward
