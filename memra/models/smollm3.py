"""The smollm3 family: llama whose every fourth layer knows no positions.

SmolLM3 (Hugging Face, 2025), after arXiv 2501.18795. Tensor names and metadata keys are GGUF's. Refuses to know where
the file came from and what computes the program.
"""

from collections.abc import Mapping

from memra.errors import CorruptFileError
from memra.layers.program import Program
from memra.models.llama import Relation, compose_llama
from memra.models.metadata import Metadata

_NOPE_INTERVAL = 4
"""Fixed for the family in llama.cpp, and the default of SmolLM3Config in transformers."""


def build_smollm3(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a smollm3 file.

    Which layers rotate stands in `attention.rope_pattern` where the file has it: true for those that do.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor")
    pattern = metadata.get("attention.rope_pattern")
    if pattern is None:
        return compose_llama(metadata, tensor_shapes, Relation(rotates=lambda index: (index + 1) % _NOPE_INTERVAL != 0))
    num_layers = metadata.positive_integer("block_count")
    if not isinstance(pattern, (list, tuple)) or len(pattern) != num_layers:
        raise CorruptFileError(f"The file's {metadata.key('rope.pattern')} is not a list of {num_layers} flags.")
    return compose_llama(metadata, tensor_shapes, Relation(rotates=lambda index: bool(pattern[index])))
