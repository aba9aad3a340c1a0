"""The order of calls into llama.cpp, on a stand-in for its package; the real one is no dependency of the tests."""

import ctypes
import sys
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memra.cli_bench.llama_worker import LlamaWorker


class FakeLlama:
    """Writes down batches as rows of sequence, position, token and output; a context is its parameters."""

    __version__ = "0.0"

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.status = 0
        self.num_batches = 0

    def llama_log_callback(self, function):
        return function

    def llama_log_set(self, *_: object) -> None: ...

    def llama_backend_init(self) -> None: ...

    def llama_synchronize(self, _: object) -> None: ...

    def llama_model_get_vocab(self, model: object) -> object:
        return model

    def llama_vocab_n_tokens(self, _: object) -> int:
        return 3

    def llama_get_logits_ith(self, _: object, row: int) -> Any:
        return (ctypes.c_float * 3)(row, row + 0.5, -row)

    def llama_print_system_info(self) -> bytes:
        return b"AVX2"

    def llama_model_default_params(self) -> SimpleNamespace:
        return SimpleNamespace()

    def llama_context_default_params(self) -> SimpleNamespace:
        return SimpleNamespace()

    def llama_model_load_from_file(self, path: bytes, _: object) -> str | None:
        return "model" if path == b"model.gguf" else None

    def llama_init_from_model(self, _: object, parameters: SimpleNamespace) -> SimpleNamespace:
        self.calls.append(("context", parameters.n_seq_max, parameters.n_ctx, parameters.n_threads))
        return parameters

    def llama_get_memory(self, context: object) -> object:
        return context

    def llama_memory_clear(self, _: object, data: bool) -> None:  # noqa: FBT001  (as the real one)
        self.calls.append(("clear", data))

    def llama_memory_seq_rm(self, _: object, sequence: int, first: int, last: int) -> None:
        self.calls.append(("cut", sequence, first, last))

    def llama_batch_init(self, size: int, _: int, num_sequences: int) -> SimpleNamespace:
        self.num_batches += 1
        ids = [[0] * num_sequences for _ in range(size)]
        arrays = {name: [0] * size for name in ("token", "pos", "logits", "n_seq_id")}
        return SimpleNamespace(n_tokens=0, seq_id=ids, **arrays)

    def llama_batch_free(self, _: object) -> None:
        self.num_batches -= 1

    def llama_decode(self, _: object, batch: SimpleNamespace) -> int:
        rows = zip((ids[0] for ids in batch.seq_id), batch.pos, batch.token, batch.logits, strict=True)
        self.calls.append([tuple(map(int, row)) for row in rows][: batch.n_tokens])
        return self.status


@pytest.fixture
def llama(monkeypatch) -> FakeLlama:
    fake = FakeLlama()
    monkeypatch.setitem(sys.modules, "llama_cpp", fake)
    return fake


@pytest.fixture
def worker(llama: FakeLlama) -> LlamaWorker:
    worker = LlamaWorker()
    assert worker.load(path="model.gguf", num_threads=3)["backend"] == "llama-cpp-python 0.0"
    return worker


def test_a_prompt_is_cut_into_micro_batches_from_an_empty_cache(worker: LlamaWorker, llama: FakeLlama):
    worker.prefill(token_ids=list(range(600)))
    context, clear, first, second = llama.calls
    assert (context, clear) == (("context", 1, 768, 3), ("clear", True))
    assert [len(first), len(second)] == [512, 88]
    assert first[1] == (0, 1, 1, 0)
    assert second[-1] == (0, 599, 599, 1)


def test_decoding_puts_a_row_of_every_sequence_into_a_batch(worker: LlamaWorker, llama: FakeLlama):
    worker.decode(sequences=[[1, 2, 3, 4], [5, 6, 7, 8]], num_prompt_tokens=2)
    assert llama.calls[0] == ("context", 2, 512, 3)
    assert llama.calls[-2:] == [[(0, 2, 3, 1), (1, 2, 7, 1)], [(0, 3, 4, 1), (1, 3, 8, 1)]]


def test_a_filled_cache_is_cut_back_and_not_filled_again(worker: LlamaWorker, llama: FakeLlama):
    for _ in range(2):
        del llama.calls[:]
        worker.decode(sequences=[[1, 2, 3, 4]], num_prompt_tokens=3)
    assert llama.calls == [("cut", 0, 3, -1), [(0, 3, 4, 1)]]


def test_a_prefill_in_the_same_context_forgets_what_was_filled(worker: LlamaWorker, llama: FakeLlama):
    worker.decode(sequences=[[1, 2, 3, 4]], num_prompt_tokens=3)
    worker.prefill(token_ids=[9, 9])
    del llama.calls[:]
    worker.decode(sequences=[[1, 2, 3, 4]], num_prompt_tokens=3)
    assert llama.calls[0] == ("clear", True)


def test_batches_are_freed_also_when_decoding_fails(worker: LlamaWorker, llama: FakeLlama):
    llama.status = 1
    with pytest.raises(RuntimeError, match="llama_decode returned 1"):
        worker.prefill(token_ids=[1, 2, 3])
    assert llama.num_batches == 0


def test_a_model_that_does_not_load_is_named(llama: FakeLlama):
    with pytest.raises(RuntimeError, match=r"does not load other\.gguf"):
        LlamaWorker().load(path="other.gguf", num_threads=1)


def test_every_step_is_timed(worker: LlamaWorker):
    found = worker.decode(sequences=[[1, 2, 3, 4]], num_prompt_tokens=1)
    assert len(found["step_s"]) == 3
    assert found["elapsed_s"] == sum(found["step_s"])


def test_logits_of_every_token_are_written_row_by_row(worker: LlamaWorker, llama: FakeLlama, tmp_path: Path):
    worker.logits(token_ids=[7, 8], file=str(tmp_path / "logits"))
    assert llama.calls[-2:] == [("clear", True), [(0, 0, 7, 1), (0, 1, 8, 1)]]
    assert array("f", (tmp_path / "logits").read_bytes()).tolist() == [0, 0.5, 0, 1, 1.5, -1]


def test_logits_of_more_than_a_micro_batch_are_refused(worker: LlamaWorker, tmp_path: Path):
    with pytest.raises(ValueError, match="513 tokens"):
        worker.logits(token_ids=[1] * 513, file=str(tmp_path / "logits"))
