"""From a program and its weights to a model that can run: sizes its cache and chooses its executor.

Knows settings and sizes; the executors are imported only when one is built, so that planning costs nothing.
"""

import os
from dataclasses import dataclass

from memra.engine.executor import WeightTensors
from memra.engine.loaded_model import LoadedModel
from memra.errors import ConfigurationError
from memra.layers.program import Program
from memra.settings import EngineSettings
from memra.types import ModelName

PAGE_TOKENS = 64
"""Tokens per cache page: small enough that a short answer wastes little, large enough for block reads."""
_MIB = 1 << 20
_ELEMENT_BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class CachePlan:
    """How much a model's cache holds.

    Attributes:
        num_pages: pages of `PAGE_TOKENS` tokens.
        context_tokens: the longest sequence that is served: what the model was trained for, or all of the cache.
        bytes_per_token: keys and values of all layers.
    """

    num_pages: int
    context_tokens: int
    bytes_per_token: int


def plan_cache(program: Program, settings: EngineSettings) -> CachePlan:
    """Divide the memory that is set aside for a model's keys and values into pages.

    Raises:
        ConfigurationError: the memory does not hold a single page.
    """
    per_token = sum(2 * layer.num_kv_heads * layer.head_dim for layer in program.kv_layers)
    per_token *= _ELEMENT_BYTES[settings.dtype]
    num_pages = settings.kv_memory_mb * _MIB // (per_token * PAGE_TOKENS)
    if num_pages < 1:
        needed_mb = -(-per_token * PAGE_TOKENS // _MIB)
        raise ConfigurationError(f"MEMRA_KV_MB: {settings.kv_memory_mb} MiB hold no page; give at least {needed_mb}")
    return CachePlan(num_pages, min(program.context_tokens, num_pages * PAGE_TOKENS), per_token)


def build_model(name: ModelName, program: Program, tensors: WeightTensors, *, settings: EngineSettings) -> LoadedModel:
    """Load a model's weights onto its device; takes seconds to minutes.

    Raises:
        ConfigurationError: the device or the memory cannot be used.
        CorruptFileError: a weight is missing, misshapen or not finite.
    """
    # Torch's OpenMP threads spin at every barrier by default; beside one other busy process a step then takes ten times
    # as long. Read by the library when it is loaded, so it must be set before torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from memra.engine.reference_executor import ReferenceExecutor  # noqa: PLC0415  (imports torch)

    plan = plan_cache(program, settings)
    executor = ReferenceExecutor(
        program,
        tensors,
        device=settings.device,
        dtype=settings.dtype,
        num_pages=plan.num_pages,
        page_tokens=PAGE_TOKENS,
    )
    return LoadedModel(
        name=name,
        executor=executor,
        context_tokens=plan.context_tokens,
        max_rows=settings.max_rows,
        prefill_chunk_tokens=settings.prefill_chunk_tokens,
    )
