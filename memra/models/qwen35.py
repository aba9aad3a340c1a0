"""The qwen35 and qwen35moe families: text models of Qwen 3.5, dense and with experts.

Qwen3-Next's two kinds of layers with a matrix each for beta and alpha. Tensor names and metadata keys are GGUF's.
llama.cpp's converter takes the value heads in another order, so that head h reads key head `h % num_key_heads`;
directories keep the order in which neighbours share a key head, and say so in `memra.delta_value_heads`. Refuses to
know where the file came from and what computes the program.
"""

from collections.abc import Mapping
from functools import partial

from memra.errors import CorruptFileError
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.delta_hybrid import compose_hybrid, read_delta_shape
from memra.models.metadata import Metadata, read_decoder_shape
from memra.models.mixtures import MIXTURE_KEY, add_dense, add_mixture, read_softmax_mixture

_ORDER_KEY = "memra.delta_value_heads"
_ORDERS = ("tiled", "grouped")


def build_qwen35(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a qwen35 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor")
    shape = read_decoder_shape(metadata)
    delta = read_delta_shape(metadata, is_tiled=_is_tiled(metadata))
    program = ProgramComposer(metadata.architecture, tensor_shapes, {**shape.buffers, **delta.buffers(shape)})
    return compose_hybrid(
        program,
        metadata,
        shape,
        delta,
        add_beta_and_alpha=partial(_add_beta_and_alpha, program),
        add_feed_forward=partial(add_dense, program),
    )


def build_qwen35moe(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a qwen35moe file: experts and a shared one in place of the dense feed-forward part.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported(MIXTURE_KEY, "rope.scaling.attn_factor")
    mixture = read_softmax_mixture(metadata, normalise=True, has_shared_expert=True)
    shape = read_decoder_shape(metadata, ffn_width=mixture.width)
    delta = read_delta_shape(metadata, is_tiled=_is_tiled(metadata))
    buffers = {**mixture.buffers(shape.buffers), **delta.buffers(shape)}
    program = ProgramComposer(metadata.architecture, tensor_shapes, buffers)
    return compose_hybrid(
        program,
        metadata,
        shape,
        delta,
        add_beta_and_alpha=partial(_add_beta_and_alpha, program),
        add_feed_forward=partial(add_mixture, program, mixture=mixture),
    )


def _is_tiled(metadata: Metadata) -> bool:
    order = metadata.get_global(_ORDER_KEY) or "tiled"
    if order not in _ORDERS:
        raise CorruptFileError(f"The file's {_ORDER_KEY} is {order!r}, which is none of {[*_ORDERS]}.")
    return order == "tiled"


def _add_beta_and_alpha(program: ProgramComposer, layer: str) -> None:
    program.linear("normed", "b", f"{layer}.ssm_beta")
    program.linear("normed", "a", f"{layer}.ssm_alpha")
