"""Which families there are, by the name that a file gives itself."""

from collections.abc import Callable, Mapping

from memra.errors import UnsupportedModelError
from memra.layers.program import Pooling, Program
from memra.models.bert import build_bert
from memra.models.deepseek2 import build_deepseek2
from memra.models.exaone4 import build_exaone4
from memra.models.gemma2 import build_gemma2
from memra.models.gemma3 import build_gemma3
from memra.models.gemma4 import build_gemma4
from memra.models.gemma_embedding import build_gemma_embedding
from memra.models.glm4 import build_glm4, build_glm4moe
from memra.models.gpt_oss import build_gpt_oss
from memra.models.granite import build_granite
from memra.models.hunyuan_dense import build_hunyuan_dense
from memra.models.llama import build_llama
from memra.models.llama4 import build_llama4
from memra.models.metadata import Metadata
from memra.models.minimax_m2 import build_minimax_m2
from memra.models.mistral3 import build_mistral3
from memra.models.modern_bert import build_modern_bert
from memra.models.nomic_bert import build_nomic_bert
from memra.models.olmo2 import build_olmo2
from memra.models.phi3 import build_phi3
from memra.models.qwen2 import build_qwen2, build_qwen2moe
from memra.models.qwen3 import build_qwen3, build_qwen3moe
from memra.models.qwen3next import build_qwen3next
from memra.models.qwen35 import build_qwen35, build_qwen35moe
from memra.models.seed_oss import build_seed_oss
from memra.models.smollm3 import build_smollm3
from memra.models.step35 import build_step35
from memra.types import ModelTask

_Shapes = Mapping[str, tuple[int, ...]]

FAMILIES: Mapping[str, Callable[[Metadata, _Shapes], Program]] = {
    "bert": build_bert,
    "deepseek2": build_deepseek2,
    "exaone4": build_exaone4,
    "gemma-embedding": build_gemma_embedding,
    "gemma2": build_gemma2,
    "gemma3": build_gemma3,
    "gemma4": build_gemma4,
    "glm4": build_glm4,
    "glm4moe": build_glm4moe,
    "gpt-oss": build_gpt_oss,
    "granite": build_granite,
    "granitemoe": build_granite,
    "hunyuan-dense": build_hunyuan_dense,
    "llama": build_llama,
    "llama4": build_llama4,
    "minimax-m2": build_minimax_m2,
    "mistral3": build_mistral3,
    "modern-bert": build_modern_bert,
    "nomic-bert": build_nomic_bert,
    "olmo2": build_olmo2,
    "phi3": build_phi3,
    "qwen2": build_qwen2,
    "qwen2moe": build_qwen2moe,
    "qwen3": build_qwen3,
    "qwen35": build_qwen35,
    "qwen35moe": build_qwen35moe,
    "qwen3moe": build_qwen3moe,
    "qwen3next": build_qwen3next,
    "seed_oss": build_seed_oss,
    "smollm3": build_smollm3,
    "step35": build_step35,
}
"""Builder of every architecture, by its name in `general.architecture`."""


def build_program(architecture: str, metadata: Mapping[str, object], tensor_shapes: _Shapes) -> Program:
    """Build the program of a model file.

    Args:
        architecture: the file's `general.architecture`.
        metadata: the file's key-value pairs under their GGUF names.
        tensor_shapes: shape of every tensor, outermost first.

    Raises:
        UnsupportedModelError: the family is unknown, or the file needs something that it does not run.
        CorruptFileError: a key or tensor is missing, mistyped or of the wrong shape.
    """
    build = FAMILIES.get(architecture)
    if build is None:
        raise UnsupportedModelError(
            f"memra does not run the architecture {architecture!r}; it knows {', '.join(sorted(FAMILIES))}."
        )
    return build(Metadata(architecture, metadata), tensor_shapes)


def task_of(program: Program) -> ModelTask:
    """Return what a program's model does with text."""
    if program.pooling is None:
        return ModelTask.GENERATE
    return ModelTask.RANK if program.pooling is Pooling.RANK else ModelTask.EMBED


def refuse_embedding_model(program: Program) -> None:
    """Refuse a program that gives no logits where tokens are to be generated.

    Raises:
        UnsupportedModelError: says what the model is made for.
    """
    task = task_of(program)
    if task is ModelTask.RANK:
        raise UnsupportedModelError(f"This {program.architecture} model ranks documents: name a language model.")
    if task is ModelTask.EMBED:
        raise UnsupportedModelError(
            f"This {program.architecture} model makes embeddings ({program.pooling} pooling, {program.output_width} "
            "numbers a text): name a language model."
        )
