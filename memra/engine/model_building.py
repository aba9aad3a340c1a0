"""From a program and its weights to a model that can run: sizes its cache and builds its executor.

Knows settings and sizes; the executors are imported only when one is built, so that planning costs nothing and serving
on the native engine never imports torch.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from memra.engine.executor import Executor, WeightTensors
from memra.engine.executor_choice import ExecutorChoice, ExecutorKind
from memra.engine.loaded_model import STATES_PER_SEQUENCE, LoadedModel
from memra.engine.pooled_embeddings import PooledEmbeddings
from memra.engine.repack_cache import RepackCache
from memra.engine.sampler import Sampler, TokenSampler
from memra.errors import ConfigurationError, UnsupportedModelError
from memra.layers.program import Program
from memra.settings import EngineSettings
from memra.types import ModelName

PAGE_TOKENS = 64
"""Tokens per cache page: small enough that a short answer wastes little, large enough for block reads."""
_MOST_SHORT_TEXTS = 64
"""Texts of an embedding model that have a page of their own in one step, beside one of the longest kind."""
_MIB = 1 << 20
_MOST_KEPT_STATES = 4096
"""Of known prefixes, for models with small states: more turns than this are rarely gone back to."""


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """How a model will run, before its weights are loaded.

    Attributes:
        program: what runs.
        choice: the executor that runs it.
        num_pages: pages of `PAGE_TOKENS` tokens in its cache.
        context_tokens: the longest sequence that is served: what the model was trained for, or all of the cache.
    """

    program: Program
    choice: ExecutorChoice
    num_pages: int
    context_tokens: int


def plan_model(program: Program, choice: ExecutorChoice, *, kv_memory_mb: int) -> ModelPlan:
    """Divide the memory that is set aside for a model's keys and values into pages.

    Args:
        program: the model.
        choice: the executor that will run it.
        kv_memory_mb: MiB for this model.

    Raises:
        ConfigurationError: the memory does not hold a single page.
    """
    per_token = choice.cache_bytes_per_token(program)
    num_pages = kv_memory_mb * _MIB // (per_token * PAGE_TOKENS)
    if program.pooling is not None:  # nothing is kept when a text is done
        num_pages = min(num_pages, -(-program.context_tokens // PAGE_TOKENS) + _MOST_SHORT_TEXTS)
    if num_pages < 1:
        needed_mb = -(-per_token * PAGE_TOKENS // _MIB)
        raise ConfigurationError(f"MEMRA_KV_MB: {kv_memory_mb} MiB hold no page; give at least {needed_mb}")
    return ModelPlan(program, choice, num_pages, min(program.context_tokens, num_pages * PAGE_TOKENS))


def state_bytes_per_sequence(program: Program) -> int:
    """Bytes that the recurrent states of one sequence take, however long it is; they are float32."""
    return 4 * STATES_PER_SEQUENCE * sum(prod(layer.shape) for layer in program.state_layers)


def count_states(program: Program, settings: EngineSettings) -> int:
    """Return how many recurrent states a model needs; 0 for a program without recurrent operators.

    For every row those that it uses in turns and one to go on from, and as many as the memory for known prefixes holds.
    """
    if not program.state_layers:
        return 0
    state_bytes = state_bytes_per_sequence(program) // STATES_PER_SEQUENCE
    num_kept = settings.prefix_cache_mb * _MIB // state_bytes
    return settings.max_rows * (STATES_PER_SEQUENCE + 1) + min(num_kept, _MOST_KEPT_STATES)


def cache_bytes(plan: ModelPlan, settings: EngineSettings) -> int:
    """Bytes that a model's pages of keys and values and its recurrent states take."""
    pages = plan.num_pages * PAGE_TOKENS * plan.choice.cache_bytes_per_token(plan.program)
    states = count_states(plan.program, settings) * state_bytes_per_sequence(plan.program) // STATES_PER_SEQUENCE
    return pages + states


def refuse_unrunnable(program: Program, choice: ExecutorChoice) -> None:
    """Refuse a program that the chosen executor does not run, before its weights are loaded.

    Raises:
        UnsupportedModelError: a shape that the native kernels do not run.
    """
    if choice.kind is ExecutorKind.CPU:
        from memra.engine.cpu_limits import refuse_unrunnable_shapes  # noqa: PLC0415  (loads the native bindings)

        with _torch_remedy():
            refuse_unrunnable_shapes(program)


def build_model(
    name: ModelName, plan: ModelPlan, tensors: WeightTensors, *, settings: EngineSettings, identity: str | None = None
) -> LoadedModel:
    """Load a model's weights onto its device; takes seconds to minutes.

    Args:
        name: under which it is served.
        plan: how it will run.
        tensors: weights by name.
        settings: of the engine.
        identity: tells the files of this model from all others; None keeps its repacked weights in no cache.

    Raises:
        ConfigurationError: the device or the memory cannot be used.
        CorruptFileError: a weight is missing, misshapen or not finite.
        UnsupportedModelError: the chosen executor does not run a shape or a quant type of the model.
    """
    is_native = plan.choice.kind is ExecutorKind.CPU
    num_states = count_states(plan.program, settings)
    executor = (
        _build_on_cpu(plan, tensors, num_states=num_states, cache=_find_cache(settings, identity))
        if is_native
        else _build_on_torch(plan, tensors, settings, num_states=num_states)
    )
    return LoadedModel(
        name=name,
        executor=executor,
        context_tokens=plan.context_tokens,
        max_rows=settings.max_rows,
        prefill_chunk_tokens=settings.prefill_chunk_tokens,
        make_sampler=_native_sampler() if is_native else Sampler,
        identity=identity or "",
        pooled=None if plan.program.pooling is None else _pooled(executor, plan),
    )


def _pooled(executor: Executor, plan: ModelPlan) -> PooledEmbeddings:
    return PooledEmbeddings(executor, plan.program, context_tokens=plan.context_tokens)


def _find_cache(settings: EngineSettings, identity: str | None) -> RepackCache | None:
    if settings.repack_cache is None or identity is None:
        return None
    limit_bytes = settings.repack_cache_mb * _MIB
    return RepackCache(folder=settings.repack_cache, limit_bytes=limit_bytes, identity=identity)


def _build_on_cpu(plan: ModelPlan, tensors: WeightTensors, *, num_states: int, cache: RepackCache | None) -> Executor:
    from memra.engine.cpu_executor import CpuExecutor  # noqa: PLC0415  (loads the native library)

    with _torch_remedy():
        return CpuExecutor(
            plan.program,
            tensors,
            num_threads=plan.choice.num_threads,
            num_pages=plan.num_pages,
            num_states=num_states,
            cache=cache,
            kv_type=plan.choice.kv_type.value,
        )


@contextmanager
def _torch_remedy() -> Iterator[None]:
    """Whatever the native engine does not run, torch may."""
    try:
        yield
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{error.message} Set MEMRA_EXECUTOR=torch to run it on torch, slowly.") from error


def _native_sampler() -> Callable[[int], TokenSampler]:
    from memra.engine.native_sampler import NativeTokenSampler  # noqa: PLC0415  (loads the native library)

    return NativeTokenSampler


def _build_on_torch(plan: ModelPlan, tensors: WeightTensors, settings: EngineSettings, *, num_states: int) -> Executor:
    # Torch's OpenMP threads spin at every barrier by default; beside one other busy process a step then takes ten times
    # as long. Read by the library when it is loaded, so it must be set before torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from memra.engine.reference_executor import ReferenceExecutor  # noqa: PLC0415  (imports torch)

    return ReferenceExecutor(
        plan.program,
        tensors,
        device=settings.device,
        dtype=settings.dtype,
        num_pages=plan.num_pages,
        page_tokens=PAGE_TOKENS,
        num_states=num_states,
    )
