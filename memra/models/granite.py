"""The granite family: llama whose embeddings, branches and logits have scales of their own; dense and of experts.

Granite 3 and the dense models of Granite 4 (IBM), after arXiv 2408.13359. Tensor names and metadata keys are GGUF's.
Refuses to know where the file came from and what computes the program.
"""

from dataclasses import replace

from memra.layers.operators import RouterFunction, Routing
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.decoders import FeedForward, Layout, TensorShapes, compose_decoder
from memra.models.llama import CARRIED_OUT, read_llama_layout
from memra.models.metadata import DecoderShape, Metadata, read_decoder_shape
from memra.models.mixtures import MIXTURE_KEY, add_experts, add_shared_expert

_SCALES = ("embedding_scale", "residual_scale", "logit_scale")


def build_granite(metadata: Metadata, tensor_shapes: TensorShapes) -> Program:
    """Build the program of a granite file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported(*CARRIED_OUT, *_SCALES)
    shape = read_decoder_shape(metadata)
    return compose_decoder(metadata, tensor_shapes, shape, _read_layout(metadata, tensor_shapes, shape))


def build_granitemoe(metadata: Metadata, tensor_shapes: TensorShapes) -> Program:
    """Build the program of a granitemoe file, with a shared expert or without.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported(*CARRIED_OUT, MIXTURE_KEY, *_SCALES)
    shape = read_decoder_shape(metadata)
    layout = replace(_read_layout(metadata, tensor_shapes, shape), feed_forward=_read_mixture(metadata, shape))
    return compose_decoder(metadata, tensor_shapes, shape, layout)


def _read_layout(metadata: Metadata, tensor_shapes: TensorShapes, shape: DecoderShape) -> Layout:
    """Read the scales. Granite's `rope.scaling.finetuned` says whether there are positions at all."""
    embedding, residual, logit = (metadata.optional_number(name) or 1.0 for name in _SCALES)
    layout = replace(
        read_llama_layout(metadata, tensor_shapes, shape),
        embedding_scale=embedding,
        residual_scale=residual,
        logit_scale=1.0 / logit,
    )
    return replace(layout, rotation=lambda _: None) if metadata.get("rope.scaling.finetuned") is False else layout


def _read_mixture(metadata: Metadata, shape: DecoderShape) -> FeedForward:
    """Read the experts, whose inner width is `feed_forward_length`, and the one that every row passes."""
    routing = Routing(
        num_experts=metadata.positive_integer("expert_count"),
        num_used=metadata.positive_integer("expert_used_count"),
        function=RouterFunction.SOFTMAX_OF_CHOSEN,
    )
    shared_width = None
    if metadata.optional_number("expert_shared_feed_forward_length") is not None:
        shared_width = metadata.positive_integer("expert_shared_feed_forward_length")

    def feed_forward(program: ProgramComposer, index: int, x: str) -> None:
        add_experts(program, f"blk.{index}", x, routing=routing, width=shape.ffn_width)
        if shared_width is not None:
            add_shared_expert(program, f"blk.{index}", x, width=shared_width)

    return feed_forward
