"""The executors that can be measured, by name: the one place that knows which there are.

Imported in a worker's process only for what it builds; asking which can be used imports no torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from memra.engine.executor import Executor, WeightTensors
from memra.engine.executor_choice import find_native_obstacle
from memra.engine.model_building import PAGE_TOKENS
from memra.errors import UsageError
from memra.layers.program import Program


@dataclass(frozen=True, slots=True)
class ExecutorSize:
    """How large an executor is built."""

    num_threads: int
    num_pages: int


@dataclass(frozen=True, slots=True)
class ExecutorKind:
    """One way to run a program.

    Attributes:
        name: as the command line spells it.
        module: what has to be imported, apart from the time that loading takes.
        find_obstacle: says why it cannot be used here, or None.
        build: loads the weights.
    """

    name: str
    module: str
    find_obstacle: Callable[[], str | None]
    build: Callable[[Program, WeightTensors, ExecutorSize], Executor]


def executors() -> Mapping[str, ExecutorKind]:
    """Every executor that memra has, the fastest first."""
    kinds = (
        ExecutorKind("cpu", "memra.engine.cpu_executor", find_native_obstacle, _build_cpu),
        ExecutorKind("torch", "memra.engine.reference_executor", _find_torch_obstacle, _build_torch),
    )
    return {kind.name: kind for kind in kinds}


def require_executor(name: str | None) -> ExecutorKind:
    """Return the executor of this name, or the fastest that can be used.

    Raises:
        UsageError: there is none, with the reasons.
    """
    kinds = executors()
    if name is not None and name not in kinds:
        raise UsageError(f"there is no executor {name!r}; known are {', '.join(kinds)}")
    wanted = list(kinds.values()) if name is None else [kinds[name]]
    obstacles = {kind.name: kind.find_obstacle() for kind in wanted}
    for kind in wanted:
        if obstacles[kind.name] is None:
            return kind
    raise UsageError("; ".join(f"executor {kind}: {obstacle}" for kind, obstacle in obstacles.items()))


def _find_torch_obstacle() -> str | None:
    return None if find_spec("torch") else "torch is not installed; install memra again"


def _build_cpu(program: Program, tensors: WeightTensors, size: ExecutorSize) -> Executor:
    from memra.engine.cpu_executor import CpuExecutor  # noqa: PLC0415  (loads the library)

    return CpuExecutor(program, tensors, num_threads=size.num_threads, num_pages=size.num_pages)


def _build_torch(program: Program, tensors: WeightTensors, size: ExecutorSize) -> Executor:
    """Threads come from the environment, which is set before torch is imported."""
    from memra.engine.reference_executor import ReferenceExecutor  # noqa: PLC0415  (imports torch)

    return ReferenceExecutor(
        program, tensors, device="cpu", dtype="float32", num_pages=size.num_pages, page_tokens=PAGE_TOKENS
    )
