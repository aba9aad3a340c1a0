"""The measuring process with llama.cpp: the operations that `worker_loop` serves, on llama-cpp-python's low-level API.

Loaded by `worker_loop` in whichever Python has that package; it must import nothing of memra. Every case keeps a
context of its own, made for its number of sequences and its depth, as a user of llama.cpp would size it.
"""

import ctypes
import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

_BATCH_TOKENS = 512
"""llama.cpp's own default for the micro-batch: what a prompt is computed in at a time."""
_CONTEXT_MULTIPLE = 256
"""llama.cpp rounds the context of a sequence up to this."""


class _Row(NamedTuple):
    sequence: int
    position: int
    token_id: int
    is_output: bool


class LlamaWorker:
    """One loaded model; every public method is an operation."""

    def __init__(self) -> None:
        """Start empty; `load` comes first."""
        self._api: Any = importlib.import_module("llama_cpp")
        self._keep_silent = self._api.llama_log_callback(lambda *_: None)
        self._model: Any = None
        self._num_threads = 1
        self._contexts: dict[tuple[int, int], Any] = {}
        self._filled: dict[tuple[int, int], int] = {}

    def load(self, *, path: str, num_threads: int) -> Mapping[str, Any]:
        """Load a GGUF file with llama.cpp's defaults."""
        api = self._api
        api.llama_log_set(self._keep_silent, ctypes.c_void_p(0))
        api.llama_backend_init()
        self._num_threads = num_threads
        parameters = api.llama_model_default_params()
        parameters.n_gpu_layers = 0
        started_at = time.perf_counter()
        self._model = api.llama_model_load_from_file(path.encode(), parameters)
        if not self._model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        return {
            "backend": f"llama-cpp-python {api.__version__}",
            "load_s": time.perf_counter() - started_at,
            "system": api.llama_print_system_info().decode(),
        }

    def prefill(self, *, token_ids: Sequence[int]) -> Mapping[str, Any]:
        """Compute one prompt from its beginning, in micro-batches of llama.cpp's default size."""
        key = 1, _round_up(len(token_ids))
        context = self._context(*key)
        self._clear(context, key)
        return {"elapsed_s": sum(self._run(context, _prompt_batches([token_ids])))}

    def logits(self, *, token_ids: Sequence[int], file: str) -> Mapping[str, Any]:
        """Compute one prompt of at most a micro-batch and write every token's logits to a file, float32 `[N, V]`."""
        if len(token_ids) > _BATCH_TOKENS:
            raise ValueError(f"{len(token_ids)} tokens are more than a micro-batch")
        key = 1, _round_up(len(token_ids))
        context = self._context(*key)
        self._clear(context, key)
        self._run(context, [[_Row(0, at, token_id, True) for at, token_id in enumerate(token_ids)]])
        row_bytes = 4 * self._api.llama_vocab_n_tokens(self._api.llama_model_get_vocab(self._model))
        with Path(file).open("wb") as stream:
            stream.writelines(
                ctypes.string_at(self._api.llama_get_logits_ith(context, row), row_bytes)
                for row in range(len(token_ids))
            )
        return {}

    def decode(self, *, sequences: Sequence[Sequence[int]], num_prompt_tokens: int) -> Mapping[str, Any]:
        """Compute what follows the prompts, a token of every sequence a step; the prompts are not timed."""
        key = len(sequences), _round_up(len(sequences[0]))
        context = self._context(*key)
        if self._filled.get(key) == num_prompt_tokens:
            memory = self._api.llama_get_memory(context)
            for sequence in range(len(sequences)):
                self._api.llama_memory_seq_rm(memory, sequence, num_prompt_tokens, -1)
        else:
            self._clear(context, key)
            self._run(context, _prompt_batches([token_ids[:num_prompt_tokens] for token_ids in sequences]))
            self._filled[key] = num_prompt_tokens
        step_s = self._run(context, _decode_batches(sequences, first=num_prompt_tokens))
        return {"elapsed_s": sum(step_s), "step_s": step_s}

    def _clear(self, context: Any, key: tuple[int, int]) -> None:
        self._api.llama_memory_clear(self._api.llama_get_memory(context), True)
        self._filled.pop(key, None)

    def _context(self, num_sequences: int, num_tokens: int) -> Any:
        key = num_sequences, _round_up(num_tokens)
        if key not in self._contexts:
            parameters = self._api.llama_context_default_params()
            parameters.n_ctx = key[0] * key[1]
            parameters.n_seq_max = num_sequences
            parameters.n_batch = parameters.n_ubatch = _BATCH_TOKENS
            parameters.n_threads = parameters.n_threads_batch = self._num_threads
            parameters.no_perf = True
            context = self._api.llama_init_from_model(self._model, parameters)
            if not context:
                raise RuntimeError(f"llama.cpp makes no context for {num_sequences} sequences of {key[1]} tokens")
            self._contexts[key] = context
        return self._contexts[key]

    def _run(self, context: Any, plans: Sequence[Sequence[_Row]]) -> list[float]:
        """Run batches, laid out beforehand so that the clock sees llama.cpp alone; returns the seconds of each."""
        batches = [self._lay_out(rows) for rows in plans]
        statuses, times = [], [time.perf_counter()]
        for batch in batches:
            statuses.append(self._decode(context, batch))
            times.append(time.perf_counter())
        for batch in batches:
            self._api.llama_batch_free(batch)
        if any(statuses):
            raise RuntimeError(f"llama_decode returned {next(filter(None, statuses))}")
        return [after - before for before, after in pairwise(times)]

    def _decode(self, context: Any, batch: Any) -> int:
        status: int = self._api.llama_decode(context, batch)
        self._api.llama_synchronize(context)
        return status

    def _lay_out(self, rows: Sequence[_Row]) -> Any:
        batch = self._api.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for at, row in enumerate(rows):
            batch.token[at], batch.pos[at], batch.logits[at] = row.token_id, row.position, row.is_output
            batch.n_seq_id[at] = 1
            batch.seq_id[at][0] = row.sequence
        return batch


def _prompt_batches(sequences: Sequence[Sequence[int]]) -> list[list[_Row]]:
    """Each prompt by itself, cut into micro-batches; the last row of each gives logits."""
    batches = []
    for index, token_ids in enumerate(sequences):
        for begin in range(0, len(token_ids), _BATCH_TOKENS):
            end = min(begin + _BATCH_TOKENS, len(token_ids))
            batches.append([_Row(index, at, token_ids[at], at == end - 1) for at in range(begin, end)])
    return batches


def _decode_batches(sequences: Sequence[Sequence[int]], *, first: int) -> list[list[_Row]]:
    """One batch a position, a row of every sequence in it, all of which give logits."""
    return [
        [_Row(index, at, token_ids[at], True) for index, token_ids in enumerate(sequences)]
        for at in range(first, len(sequences[0]))
    ]


def _round_up(num_tokens: int) -> int:
    return -(-num_tokens // _CONTEXT_MULTIPLE) * _CONTEXT_MULTIPLE


def operations() -> Mapping[str, Callable[..., Mapping[str, Any]]]:
    """What `worker_loop` serves."""
    worker = LlamaWorker()
    known = (worker.load, worker.prefill, worker.decode, worker.logits)
    return {operation.__name__: operation for operation in known}
