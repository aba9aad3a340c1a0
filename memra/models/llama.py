"""The llama family: Llama 1 to 3, SmolLM2, Mistral, Mixtral and all that share their layout.

Touvron et al., arXiv 2302.13971; grouped queries from arXiv 2307.09288, one window for all layers from Mistral 7B,
arXiv 2310.06825, experts from Mixtral, arXiv 2401.04088. Tensor names and metadata keys are GGUF's. Refuses to know
where the file came from and what computes the program.
"""

from memra.errors import CorruptFileError
from memra.layers.operators import RopeStyle, RouterFunction, Routing
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.decoders import FeedForward, Layout, TensorShapes, compose_decoder, plain_rotation
from memra.models.metadata import DecoderShape, Metadata, read_decoder_shape
from memra.models.mixtures import MIXTURE_KEY, add_experts, add_shared_expert
from memra.models.sliding_windows import read_window

CARRIED_OUT = ("rope.scaling.attn_factor", MIXTURE_KEY)
"""Keys that few families run, and these do."""
_STYLE_KEY = "memra.rope_style"
_SOFTMAX = 1
"""`expert_gating_func` of llama.cpp; 0 leaves the choice to the family, which is the same."""


def build_llama(metadata: Metadata, tensor_shapes: TensorShapes) -> Program:
    """Build the program of a llama file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported(*CARRIED_OUT)
    shape = read_decoder_shape(metadata)
    return compose_decoder(metadata, tensor_shapes, shape, read_llama_layout(metadata, tensor_shapes, shape))


def read_llama_layout(metadata: Metadata, tensor_shapes: TensorShapes, shape: DecoderShape) -> Layout:
    """Read the layout of llama, from which that of its relatives is made.

    Raises:
        CorruptFileError: a key is missing or mistyped.
        UnsupportedModelError: the file asks for something that llama does not have.
    """
    if metadata.get("attention.sliding_window_pattern") is not None:
        raise metadata.unsupported("attention.sliding_window_pattern", "windows in some layers alone")
    window = read_window(metadata)
    return Layout(
        rotation=plain_rotation(metadata, shape, tensor_shapes),
        style=read_rope_style(metadata),
        window=lambda _: window,
        attention_scale=metadata.optional_number("attention.scale"),
        feed_forward=_read_experts(metadata, shape) if metadata.count(MIXTURE_KEY) else None,
    )


def read_rope_style(metadata: Metadata) -> RopeStyle:
    """Read which elements of a head are turned together.

    GGUF converters permute the rows of q and k so that pairs are neighbours; checkpoints in their original order say
    so in `memra.rope_style`.

    Raises:
        CorruptFileError: it is no style.
    """
    style = metadata.get_global(_STYLE_KEY) or RopeStyle.INTERLEAVED
    if style not in set(RopeStyle):
        raise CorruptFileError(f"The file's {_STYLE_KEY} is {style!r}, which is none of {[*map(str, RopeStyle)]}.")
    return RopeStyle(str(style))


def _read_experts(metadata: Metadata, shape: DecoderShape) -> FeedForward:
    """Read the experts, whose inner width is `feed_forward_length`, and the one that every row passes, if any."""
    if metadata.get("expert_gating_func") not in {None, 0, _SOFTMAX}:
        raise metadata.unsupported("expert_gating_func", "a router other than softmax")
    routing = Routing(
        num_experts=metadata.positive_integer(MIXTURE_KEY),
        num_used=metadata.positive_integer("expert_used_count"),
        function=RouterFunction.SOFTMAX_OF_CHOSEN,
        scale=metadata.optional_number("expert_weights_scale") or 1.0,
    )
    shared_width = metadata.count("expert_shared_feed_forward_length")

    def feed_forward(program: ProgramComposer, index: int, x: str) -> None:
        add_experts(program, f"blk.{index}", x, routing=routing, width=shape.ffn_width)
        if shared_width:
            add_shared_expert(program, f"blk.{index}", x, width=shared_width)

    return feed_forward
