"""The qwen3next family: Qwen3-Next, gated delta nets and gated attention with many small experts and a shared one.

Tensor names and metadata keys are GGUF's. Beta and alpha come out of one matrix, those of the value heads of a key head
side by side, and value heads keep that order: neighbours share a key head. Refuses to know where the file came from and
what computes the program.
"""

from collections.abc import Mapping
from functools import partial

from memra.errors import UnsupportedModelError
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.delta_hybrid import DeltaShape, compose_hybrid, read_delta_shape
from memra.models.metadata import Metadata, read_decoder_shape
from memra.models.mixtures import MIXTURE_KEY, add_mixture, read_softmax_mixture


def build_qwen3next(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a qwen3next file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run, or is an early conversion.
    """
    metadata.refuse_unsupported(MIXTURE_KEY, "rope.scaling.attn_factor")
    mixture = read_softmax_mixture(metadata, normalise=True, has_shared_expert=True)
    shape = read_decoder_shape(metadata, ffn_width=mixture.width)
    delta = read_delta_shape(metadata, is_tiled=False)
    if "blk.0.ssm_in.weight" in tensor_shapes:
        raise UnsupportedModelError(
            "The file holds blk.0.ssm_in.weight, which early conversions of qwen3next had in place of attn_qkv and "
            "attn_gate: fetch a newer conversion."
        )
    buffers = {**mixture.buffers(shape.buffers), **delta.buffers(shape), "beta_and_alpha": 2 * delta.num_value_heads}
    program = ProgramComposer(metadata.architecture, tensor_shapes, buffers)
    return compose_hybrid(
        program,
        metadata,
        shape,
        delta,
        add_beta_and_alpha=partial(_add_beta_and_alpha, program, delta),
        add_feed_forward=partial(add_mixture, program, mixture=mixture),
    )


def _add_beta_and_alpha(program: ProgramComposer, delta: DeltaShape, layer: str) -> None:
    program.linear("normed", "beta_and_alpha", f"{layer}.ssm_ba")
    groups = delta.num_key_heads
    program.slice("beta_and_alpha", "b", offset=0, num_groups=groups)
    program.slice("beta_and_alpha", "a", offset=delta.num_value_heads // groups, num_groups=groups)
