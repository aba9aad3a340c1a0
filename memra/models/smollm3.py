"""The smollm3 family: llama whose every fourth layer knows no positions.

SmolLM3 (Hugging Face, 2025), after arXiv 2501.18795. Tensor names and metadata keys are GGUF's. Refuses to know where
the file came from and what computes the program.
"""

from dataclasses import replace

from memra.errors import CorruptFileError
from memra.layers.program import Program
from memra.models.decoders import TensorShapes, compose_decoder
from memra.models.llama import CARRIED_OUT, read_llama_layout
from memra.models.metadata import Metadata, read_decoder_shape

_NOPE_INTERVAL = 4
"""Fixed for the family in llama.cpp, and the default of SmolLM3Config in transformers."""
_PATTERN_KEY = "attention.rope_pattern"


def build_smollm3(metadata: Metadata, tensor_shapes: TensorShapes) -> Program:
    """Build the program of a smollm3 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported(*CARRIED_OUT)
    shape = read_decoder_shape(metadata)
    layout = read_llama_layout(metadata, tensor_shapes, shape)
    is_rotated = _read_pattern(metadata, shape.num_layers)
    rotation = layout.rotation
    layout = replace(layout, rotation=lambda index: rotation(index) if is_rotated[index] else None)
    return compose_decoder(metadata, tensor_shapes, shape, layout)


def _read_pattern(metadata: Metadata, num_layers: int) -> list[bool]:
    """Read which layers rotate; files need not say so."""
    pattern = metadata.get(_PATTERN_KEY)
    if pattern is None:
        return [(index + 1) % _NOPE_INTERVAL != 0 for index in range(num_layers)]
    if not isinstance(pattern, (list, tuple)) or len(pattern) != num_layers:
        raise CorruptFileError(f"The file's {metadata.key(_PATTERN_KEY)} is not a list of {num_layers} flags.")
    return [bool(flag) for flag in pattern]
