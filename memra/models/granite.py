"""The granite family: llama whose embeddings, branches and logits have scales of their own; dense and of experts.

Granite 3 and the dense models of Granite 4 (IBM), granitemoe after arXiv 2408.13359. Tensor names and metadata keys are
GGUF's. Refuses to know where the file came from and what computes the program.
"""

from collections.abc import Mapping
from dataclasses import replace

from memra.layers.operators import Activation, RouterFunction, Routing
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.llama import Relation, compose_llama
from memra.models.metadata import Metadata

_SCALES = ("embedding_scale", "residual_scale", "logit_scale")


def build_granite(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a granite file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor", *_SCALES)
    return compose_llama(metadata, tensor_shapes, _read_relation(metadata))


def build_granitemoe(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a granitemoe file, with a shared expert or without.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor", "expert_count", *_SCALES)
    routing = Routing(
        num_experts=metadata.positive_integer("expert_count"),
        num_used=metadata.positive_integer("expert_used_count"),
        function=RouterFunction.SOFTMAX_OF_CHOSEN,
    )
    width = metadata.positive_integer("feed_forward_length")
    is_shared = metadata.optional_number("expert_shared_feed_forward_length") is not None
    shared_width = metadata.positive_integer("expert_shared_feed_forward_length") if is_shared else None
    row_width = metadata.positive_integer("embedding_length")

    def feed_forward(program: ProgramComposer, layer: str) -> None:
        program.linear("normed", program.buffer("router", routing.num_experts), f"{layer}.ffn_gate_inp")
        program.experts(
            "normed", "router", "branch", routing=routing, stem=f"{layer}.ffn", width=width, activation=Activation.SILU
        )
        if shared_width is not None:
            for part in ("gate", "up"):
                program.linear("normed", program.buffer(part, shared_width), f"{layer}.ffn_{part}_shexp")
            program.gated_product(Activation.SILU)
            program.linear("gate", program.buffer("shared", row_width), f"{layer}.ffn_down_shexp")
            program.add("branch", "shared")

    return compose_llama(metadata, tensor_shapes, replace(_read_relation(metadata), feed_forward=feed_forward))


def _read_relation(metadata: Metadata) -> Relation:
    """Read the scales. Granite's `rope.scaling.finetuned` says whether there are positions at all."""
    embedding, residual, logit = (metadata.optional_number(name) or 1.0 for name in _SCALES)
    is_rotated = metadata.get("rope.scaling.finetuned") is not False
    return Relation(embedding, residual, 1.0 / logit, rotates=lambda _: is_rotated)
