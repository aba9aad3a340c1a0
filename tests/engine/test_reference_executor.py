"""The torch executor on tiny random models: equality of bits in any cut and company, and every refusal."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from memra.engine.executor import Executor
from memra.engine.reference_executor import ReferenceExecutor
from memra.errors import ConfigurationError, CorruptFileError
from tests.engine.reference_driver import Run, make_batch, prefill, run_rows
from tests.engine.sink_model import make_sink_model
from tests.models.tiny_models import FAMILIES, VOCAB_SIZE, TinyModel, make_gemma3, make_llama

MODELS = FAMILIES | {"sinks": make_sink_model}
CONTEXT = 5 * 64
"""More than one block of keys, sixteen windows of the tiny gemma3, and whole pages."""

Build = Callable[..., ReferenceExecutor]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny products gain nothing from threads, and wait for them on a busy machine."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture
def build() -> Iterator[Build]:
    opened: list[ReferenceExecutor] = []

    def open_model(model: TinyModel, **settings: object) -> ReferenceExecutor:
        settings = {"device": "cpu", "dtype": "float32", "num_pages": 64} | settings
        executor = ReferenceExecutor(model.build_program(), model.tensors, **settings)
        opened.append(executor)
        return executor

    yield open_model
    for executor in opened:
        executor.close()


def _tokens(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB_SIZE, length).tolist()


def _bits(executor: ReferenceExecutor, pages: list[int]) -> bytes:
    return executor.export_pages(pages)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_copy_of_a_page_serves_a_sequence_that_shares_its_first_tokens(dtype: str, build: Build):
    executor = build(MODELS["qwen2"](), dtype=dtype)
    tokens = _tokens(100)
    prefill(executor, Run(tokens, [0, 1]), 100)
    other = [*tokens[:80], *_tokens(30, seed=9)]
    alone = prefill(executor, Run(other, [2, 3]), 110)
    executor.import_page(5, _bits(executor, [1]))
    np.testing.assert_array_equal(run_rows(executor, [Run(other[80:], [0, 5], 80)])[0], alone[80:])
    with pytest.raises(ValueError, match="a page has"):
        executor.import_page(5, b"")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", MODELS)
def test_no_cut_of_a_prompt_changes_a_bit(family: str, dtype: str, build: Build):
    executor = build(MODELS[family](), dtype=dtype)
    tokens, pages = _tokens(CONTEXT), [3, 1, 4, 15, 9]
    logits = prefill(executor, Run(tokens, pages), CONTEXT)
    exported = _bits(executor, pages)
    assert np.isfinite(logits).all()
    for cut in (1, 3, 7, 8, 13, 17, 64):
        other = [20, 30, 21, 33, 22]
        np.testing.assert_array_equal(prefill(executor, Run(tokens, other), cut), logits)
        assert _bits(executor, other) == exported
        executor._cache.keys[0].fill_(float("nan"))  # a cut that skipped a write would read this


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", MODELS)
def test_no_company_in_a_batch_changes_a_bit(family: str, dtype: str, build: Build):
    executor = build(MODELS[family](), dtype=dtype)
    lengths = [1, 5, 19, 20, 21, 64, 65, 255, 256, 257, 300]
    alone, runs = [], []
    for index, length in enumerate(lengths):
        pages = list(range(5 * index, 5 * index + 5))
        prefill(executor, Run(_tokens(length, seed=index), pages), 50)
        runs.append(Run([index], pages, length))
        alone.append(run_rows(executor, [runs[-1]])[0])
    exported = [_bits(executor, list(run.pages)) for run in runs]
    rng = np.random.default_rng(5)
    for size in (*range(1, 9), 11):
        for _ in range(3):
            members = rng.permutation(len(runs))[:size]
            for index, logits in zip(members, run_rows(executor, [runs[i] for i in members]), strict=True):
                np.testing.assert_array_equal(logits, alone[index])
    assert [_bits(executor, list(run.pages)) for run in runs] == exported


@pytest.mark.parametrize("family", MODELS)
def test_prefill_and_decode_rows_in_one_step_do_not_see_each_other(family: str, build: Build):
    executor = build(MODELS[family]())
    prompt, decoded = _tokens(100, seed=1), _tokens(270, seed=2)
    prompt_logits = prefill(executor, Run(prompt, [0, 1]), 100)
    decoded_logits = prefill(executor, Run(decoded, [2, 3, 4, 5, 6]), 270)
    prefill(executor, Run(decoded[:269], [10, 11, 12, 13, 14]), 269)
    decode = Run(decoded[269:], [10, 11, 12, 13, 14], 269)
    other = Run(_tokens(33, seed=3), [20])
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        runs = [[Run(prompt, [8, 9]), decode, other][index] for index in order]
        results = dict(zip(order, run_rows(executor, runs), strict=True))
        np.testing.assert_array_equal(results[0], prompt_logits)
        np.testing.assert_array_equal(results[1], decoded_logits[269:])
    assert _bits(executor, [8]) == _bits(executor, [0])


@pytest.mark.parametrize("page_tokens", [1, 16, 48, 512])
def test_the_size_of_a_page_does_not_break_the_promise(page_tokens: int, build: Build):
    executor = build(make_gemma3(), page_tokens=page_tokens, num_pages=700)
    num_pages = -(-300 // page_tokens)
    first, second = list(range(num_pages)), list(range(num_pages, 2 * num_pages))
    logits = prefill(executor, Run(_tokens(300), first), 300)
    np.testing.assert_array_equal(prefill(executor, Run(_tokens(300), second[::-1]), 29), logits)


def test_what_an_earlier_owner_left_in_a_page_changes_nothing(build: Build):
    executor = build(make_gemma3())
    run = Run(_tokens(70), [0, 1])
    logits = prefill(executor, run, 70)
    for pages in (*executor._cache.keys, *executor._cache.values):
        pages.fill_(float("nan"))
    np.testing.assert_array_equal(prefill(executor, run, 23), logits)


def test_pages_behind_every_window_are_not_read(build: Build):
    model = make_gemma3(**{"attention.sliding_window_pattern": [True] * 7})
    executor = build(model)
    tokens = _tokens(301)
    logits = prefill(executor, Run(tokens, [0, 1, 2, 3, 4]), 301)
    for pages in (*executor._cache.keys, *executor._cache.values):
        pages[:4] = float("nan")
    decode = Run(tokens[300:], [9, 9, 9, 9, 4], 300)
    np.testing.assert_array_equal(run_rows(executor, [decode])[0], logits[300:])


def test_the_number_of_threads_changes_no_bit(build: Build):
    executor = build(make_gemma3())
    run = Run(_tokens(300), [0, 1, 2, 3, 4])
    logits = prefill(executor, run, 300)
    torch.set_num_threads(2)
    np.testing.assert_array_equal(prefill(executor, run, 100), logits)


def test_two_executors_of_one_model_agree(build: Build):
    first, second = build(make_llama()), build(make_llama(), num_pages=7)
    run = Run(_tokens(90), [2, 5])
    np.testing.assert_array_equal(prefill(first, run, 90), prefill(second, run, 8))


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_stays_near_float32(family: str, build: Build):
    run = Run(_tokens(64), [0])
    exact = prefill(build(FAMILIES[family]()), run, 64)
    rounded = prefill(build(FAMILIES[family](), dtype="bfloat16"), run, 64)
    assert not np.array_equal(exact, rounded)
    # Eight bits a product, a few dozen roundings in a row: a few percent of the logits' own spread.
    assert np.sqrt(np.mean((exact - rounded) ** 2)) < 0.06 * exact.std()


def test_only_the_wanted_rows_are_returned_in_order(build: Build):
    executor = build(make_llama())
    run = Run(_tokens(40), [0])
    every = prefill(executor, run, 40)
    np.testing.assert_array_equal(executor.run(make_batch([run], outputs=[0, 17, 39])), every[[0, 17, 39]])


def test_a_step_without_outputs_still_writes_its_pages(build: Build):
    executor = build(make_llama())
    assert executor.run(make_batch([Run(_tokens(64), [0])], outputs=[])).shape == (0, VOCAB_SIZE)
    prefill(executor, Run(_tokens(64), [1]), 64)
    assert _bits(executor, [0]) == _bits(executor, [1])


def test_an_empty_step_returns_no_rows(build: Build):
    assert build(make_llama()).run(make_batch([])).shape == (0, VOCAB_SIZE)


def test_exported_pages_hold_keys_and_values_of_every_layer(build: Build):
    executor = build(make_llama())
    assert len(_bits(executor, [0, 5])) == 2 * 2 * 2 * 64 * 2 * 8 * 4
    assert len(_bits(build(make_llama(), dtype="bfloat16"), [0])) == 2 * 2 * 64 * 2 * 8 * 2
    assert set(_bits(executor, [0])) == {0}
    prefill(executor, Run(_tokens(1), [5]), 1)
    assert _bits(executor, [0, 5]) == _bits(executor, [0]) + _bits(executor, [5])
    row = np.frombuffer(_bits(executor, [5]), dtype=np.float32).reshape(2, 2, 64, 16)
    assert row[:, :, 0].all()
    assert not row[:, :, 1:].any()


def test_the_executor_says_what_it_is(build: Build):
    executor: Executor = build(make_llama(), num_pages=9, page_tokens=32)
    assert (executor.backend, executor.vocab_size) == (f"torch-cpu-float32-{torch.get_num_threads()}t", VOCAB_SIZE)
    assert (executor.num_pages, executor.page_tokens) == (9, 32)


def test_auto_takes_a_device_that_is_there(build: Build):
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert build(make_llama(), device="auto", dtype="bfloat16").backend.startswith(f"torch-{expected}-bfloat16")


def test_closing_frees_weights_and_pages(build: Build):
    executor = build(make_llama())
    executor.close()
    assert not executor._weights
    assert not executor._cache.keys


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:1", "", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(device: str, build: Build):
    with pytest.raises(ConfigurationError, match=f"'{device}'"):
        build(make_llama(), device=device)


def test_an_unknown_dtype_is_refused_with_the_known_ones(build: Build):
    with pytest.raises(ConfigurationError, match="'float16' is not one of float32, bfloat16"):
        build(make_llama(), dtype="float16")


@pytest.mark.parametrize("settings", [{"num_pages": 0}, {"page_tokens": 0}])
def test_a_cache_that_holds_nothing_is_refused(settings: dict[str, int], build: Build):
    with pytest.raises(ConfigurationError, match="holds nothing"):
        build(make_llama(), **settings)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["token_embd.weight", "blk.1.ffn_norm.weight"])
def test_a_weight_that_is_not_finite_is_refused_by_name(name: str, value: float, build: Build):
    model = make_llama()
    values = model.tensors[name].values.copy()
    values.reshape(-1)[-1] = value
    model.tensors[name] = replace(model.tensors[name], values=values)
    with pytest.raises(CorruptFileError, match=f"{name} holds a value that is not finite"):
        build(model)


def test_tensors_that_do_not_fit_the_program_are_refused_by_name():
    model = make_llama()
    program = model.build_program()
    settings = {"device": "cpu", "dtype": "float32", "num_pages": 4}
    name = "blk.0.ffn_up.weight"
    misshapen = model.tensors | {name: replace(model.tensors[name], values=model.tensors[name].values.T)}
    with pytest.raises(CorruptFileError, match=r"blk\.0\.ffn_up\.weight has the shape"):
        ReferenceExecutor(program, misshapen, **settings)
    with pytest.raises(CorruptFileError, match=r"lacks the tensor output_norm\.weight"):
        ReferenceExecutor(program, {k: v for k, v in model.tensors.items() if k != "output_norm.weight"}, **settings)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("token_ids", VOCAB_SIZE, "token id"),
        ("token_ids", -1, "token id"),
        ("positions", 64, "position"),
        ("sequences", 1, "sequence"),
        ("page_tables", 64, "page"),
        ("output_rows", 2, "output row"),
    ],
)
def test_a_batch_that_names_what_does_not_exist_is_refused(field: str, value: int, named: str, build: Build):
    batch = make_batch([Run(_tokens(2), [0])])
    getattr(batch, field).reshape(-1)[-1] = value
    with pytest.raises(ValueError, match=f"a {named} of the batch lies outside"):
        build(make_llama()).run(batch)
