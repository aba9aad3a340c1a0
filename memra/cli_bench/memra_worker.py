"""The measuring process with one of memra's executors: the operations that `worker_loop` serves.

Run as `python -m memra.cli_bench.memra_worker`. One model a process, so that the process's memory is the model's.
"""

import importlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from memra.chat.chat_format import ChatFormat
from memra.cli_bench.engine_driver import EngineDriver
from memra.cli_bench.executors import ExecutorSize, require_executor
from memra.cli_bench.step_driver import StepDriver
from memra.cli_bench.worker_loop import Operations, serve
from memra.engine.executor import Executor
from memra.engine.loaded_model import LoadedModel
from memra.engine.model_building import PAGE_TOKENS
from memra.errors import UnsupportedModelError
from memra.layers.operators import Embed
from memra.layers.program import Program
from memra.loading.checkpoint import Checkpoint
from memra.loading.model_path import open_checkpoint
from memra.models.registry import build_program, refuse_embedding_model
from memra.types import ModelName, TokenId

_NAME = ModelName("bench")

_Part = TypeVar("_Part")


class MemraWorker:
    """One loaded model, and what can be asked of it; every public method is an operation."""

    def __init__(self) -> None:
        """Start empty; `load` comes first."""
        self._executor: Executor | None = None
        self._steps: StepDriver | None = None
        self._engine: EngineDriver | None = None
        self._used_tokens: dict[int, int] = {}

    def load(  # noqa: PLR0913  (fields of one request)
        self,
        *,
        path: str,
        executor: str,
        num_threads: int,
        capacities: Sequence[int],
        engine_tokens: int,
        chunk_tokens: int,
        max_rows: int,
    ) -> Mapping[str, Any]:
        """Load a model.

        Args:
            path: file or directory.
            executor: a name that `executors()` knows.
            num_threads: of a step.
            capacities: tokens of each sequence that is stepped by hand.
            engine_tokens: tokens that the engine must have room for; it uses the same pages.
            chunk_tokens: the server's prefill chunk.
            max_rows: the server's limit of sequences.
        """
        kind = require_executor(executor)
        importlib.import_module(kind.module)
        num_pages = max(StepDriver.count_pages(capacities, PAGE_TOKENS), -(-engine_tokens // PAGE_TOKENS) + max_rows)
        started_at = time.perf_counter()
        checkpoint = open_checkpoint(Path(path))
        shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
        program = build_program(checkpoint.architecture, checkpoint.metadata, shapes)
        refuse_embedding_model(program)
        require_plain_steps(program)
        self._executor = kind.build(program, checkpoint.tensors, ExecutorSize(num_threads, num_pages))
        load_s = time.perf_counter() - started_at

        context_tokens = min(program.context_tokens, num_pages * PAGE_TOKENS)
        model = LoadedModel(
            name=_NAME,
            executor=self._executor,
            context_tokens=context_tokens,
            max_rows=max_rows,
            prefill_chunk_tokens=chunk_tokens,
        )
        self._steps = StepDriver(self._executor, capacities=capacities, chunk_tokens=chunk_tokens)
        self._engine = EngineDriver(model, ChatFormat.build(checkpoint.vocabulary, context_tokens=context_tokens))
        return {
            "backend": self._executor.backend,
            "load_s": load_s,
            "file_bytes": checkpoint.size_bytes,
            "weight_bytes_per_step": weight_bytes_per_step(program, checkpoint),
            "cache_bytes_per_token": len(self._executor.export_pages([0])) // PAGE_TOKENS,
        }

    def prefill(self, *, token_ids: Sequence[TokenId]) -> Mapping[str, Any]:
        """Compute one prompt from its beginning."""
        steps = _loaded(self._steps)
        started_at = time.perf_counter()
        steps.prefill(token_ids)
        elapsed_s = time.perf_counter() - started_at
        self._note_use(0, len(token_ids))
        return {"elapsed_s": elapsed_s}

    def decode(self, *, sequences: Sequence[Sequence[TokenId]], num_prompt_tokens: int) -> Mapping[str, Any]:
        """Compute what follows the prompts, a token of every sequence a step; the prompts are not timed."""
        steps, executor = _loaded(self._steps), _loaded(self._executor)
        for index, token_ids in enumerate(sequences):
            steps.fill(index, token_ids, num_prompt_tokens=num_prompt_tokens)
            self._note_use(index, len(token_ids))
        batches = steps.plan_decode(sequences, first=num_prompt_tokens)
        times = [time.perf_counter()]
        for batch in batches:
            executor.run(batch)
            times.append(time.perf_counter())
        return {"elapsed_s": times[-1] - times[0], "step_s": [after - before for before, after in pairwise(times)]}

    def logits(self, *, token_ids: Sequence[TokenId], file: str) -> Mapping[str, Any]:
        """Compute one prompt from its beginning and write every token's logits to a file, float32 `[N, V]`."""
        _loaded(self._steps).all_logits(token_ids).tofile(file)
        return {}

    def encode(self, *, text: str) -> Mapping[str, Any]:
        """The model's tokens of a text, those that stand around one included."""
        return {"token_ids": _loaded(self._engine).encode(text)}

    def first_token(self, *, num_tokens: int, start: int) -> Mapping[str, Any]:
        """Time a new prompt to its first token, and then the same prompt again."""
        engine = self._take_engine()
        text = engine.make_text(num_tokens, start=start)
        return {"cold": asdict(engine.time_first_token(text)), "warm": asdict(engine.time_first_token(text))}

    def generate(self, *, texts: Sequence[str], max_new_tokens: int) -> Mapping[str, Any]:
        """Answer several prompts together."""
        return asdict(self._take_engine().generate(texts, max_new_tokens=max_new_tokens))

    def cache_use(self) -> Mapping[str, Any]:
        """Tokens for which the hand-stepped sequences ever used pages."""
        return {"num_tokens": sum(self._used_tokens.values())}

    def _take_engine(self) -> EngineDriver:
        """The engine overwrites pages that the hand-stepped sequences use."""
        _loaded(self._steps).forget()
        return _loaded(self._engine)

    def _note_use(self, sequence: int, num_tokens: int) -> None:
        self._used_tokens[sequence] = max(self._used_tokens.get(sequence, 0), num_tokens)

    def operations(self) -> Operations:
        """All of them by name."""
        known = (
            self.load,
            self.prefill,
            self.decode,
            self.logits,
            self.encode,
            self.first_token,
            self.generate,
            self.cache_use,
        )
        return {operation.__name__: operation for operation in known}


def require_plain_steps(program: Program) -> None:
    """Refuse what the hand-stepped sequences cannot drive: they know pages of keys and values, and logits.

    Raises:
        UnsupportedModelError: the model has recurrent layers, or embeds texts.
    """
    if program.state_layers or program.pooling is not None:
        kind = "recurrent layers" if program.state_layers else "no logits"
        raise UnsupportedModelError(f"{program.architecture} has {kind}; memra bench measures attention models alone")


def weight_bytes_per_step(program: Program, checkpoint: Checkpoint) -> int:
    """Bytes, as the file stores them, of all weights that a step of one row reads.

    Of an embedding table a step reads one row, which is left out; where the head shares the table, it reads all of it.
    """
    names = {
        name
        for operator in program
        if not isinstance(operator, Embed)
        for field in ("weight", "bias")
        if (name := getattr(operator, field, None)) is not None
    }
    return sum(checkpoint.tensors[name].num_bytes for name in names)


def _loaded(part: _Part | None) -> _Part:
    if part is None:
        raise RuntimeError("load comes first")
    return part


if __name__ == "__main__":
    serve(MemraWorker().operations())
