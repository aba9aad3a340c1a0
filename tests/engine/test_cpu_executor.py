"""The native executor on tiny random models: near the torch oracle, and every refusal."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from memra_kernels import native

from memra.engine.cpu_executor import CpuExecutor
from memra.engine.reference_executor import ReferenceExecutor
from memra.errors import ConfigurationError, CorruptFileError, UnsupportedModelError
from tests.engine.reference_driver import Run, make_batch, prefill, run_rows
from tests.engine.sink_model import make_sink_model
from tests.models.tiny_models import VOCAB_SIZE, TinyModel, make_gemma3, make_llama, make_qwen2

Build = Callable[..., CpuExecutor]

FAMILIES: dict[str, Callable[..., TinyModel]] = {"qwen2": make_qwen2, "gemma3": make_gemma3}
"""Those whose heads fill a vector."""


@pytest.fixture(autouse=True)
def _library() -> None:
    try:
        native.library()
    except native.NativeUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def build() -> Iterator[Build]:
    opened: list[CpuExecutor] = []

    def open_model(model: TinyModel, **settings: object) -> CpuExecutor:
        settings = {"num_threads": 2, "num_pages": 40} | settings
        executor = CpuExecutor(model.build_program(), model.tensors, **settings)  # type: ignore[arg-type]
        opened.append(executor)
        return executor

    yield open_model
    for executor in opened:
        executor.close()


def _tokens(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB_SIZE, length).tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_oracle(family: str, build: Build):
    model = FAMILIES[family]()
    oracle = ReferenceExecutor(model.build_program(), model.tensors, device="cpu", dtype="float32", num_pages=8)
    run = Run(_tokens(300), [0, 1, 2, 3, 4])
    wanted = run_rows(oracle, [run])[0]
    got = run_rows(build(model), [run])[0]
    # Tiny models have float weights, so that only float16 keys and values stand between the two.
    assert np.abs(got - wanted).max() < 5e-3 * np.abs(wanted).max()
    oracle.close()


# Relative to the largest logit: 3.4e-4 and 5.4e-3 as measured.
KV_BOUNDS = {"f16": 2e-3, "q8_0": 2e-2}


@pytest.mark.parametrize("kv_type", KV_BOUNDS)
def test_sinks_and_narrow_values_are_those_of_the_oracle(kv_type: str, build: Build):
    model = make_sink_model()
    oracle = ReferenceExecutor(model.build_program(), model.tensors, device="cpu", dtype="float32", num_pages=8)
    run = Run(_tokens(300), [0, 1, 2, 3, 4])
    wanted = run_rows(oracle, [run])[0]
    executor = build(model, kv_type=kv_type)
    got = run_rows(executor, [run])[0]
    assert np.abs(got - wanted).max() < KV_BOUNDS[kv_type] * np.abs(wanted).max()
    # The sinks matter: with other ones the answer is another.
    name = "blk.0.attn_sinks.weight"
    model.tensors[name] = replace(model.tensors[name], values=model.tensors[name].values + np.float32(3))
    assert np.abs(run_rows(build(model, kv_type=kv_type), [run])[0] - got).max() > 0.1 * np.abs(wanted).max()
    oracle.close()


def test_the_backend_names_how_keys_and_values_are_kept(build: Build):
    plain, int8 = build(make_qwen2()), build(make_qwen2(), kv_type="q8_0")
    assert plain.backend == f"cpu-{plain.variant}"
    assert int8.backend == f"cpu-{plain.variant}-q8_0kv"
    # Heads of 16: two bytes an element against sixteen bytes and one scale.
    assert len(plain.export_pages([0])) * 18 == len(int8.export_pages([0])) * 32


def test_an_unknown_way_to_keep_keys_and_values_is_refused(build: Build):
    with pytest.raises(ConfigurationError, match="f16 or q8_0, not as q4_0"):
        build(make_qwen2(), kv_type="q4_0")


@pytest.mark.parametrize("kv_type", KV_BOUNDS)
def test_a_copy_of_a_page_serves_a_sequence_that_shares_its_first_tokens(kv_type: str, build: Build):
    model, tokens = make_qwen2(), _tokens(100)
    executor = build(model, kv_type=kv_type)
    prefill(executor, Run(tokens, [0, 1]), 100)
    other = [*tokens[:80], *_tokens(40, seed=9)]
    alone = prefill(executor, Run(other, [2, 3]), 120)
    executor.import_page(5, executor.export_pages([1]))
    np.testing.assert_array_equal(run_rows(executor, [Run(other[80:], [0, 5], 80)])[0], alone[80:])
    assert executor.export_pages([5]) == executor.export_pages([3])
    with pytest.raises(ValueError, match="a page has"):
        executor.import_page(5, b"")


@pytest.mark.parametrize("kv_type", KV_BOUNDS)
@pytest.mark.parametrize("family", [*FAMILIES, "sinks"])
def test_no_cut_and_no_variant_changes_a_bit(family: str, kv_type: str, build: Build):
    model, tokens, pages = (FAMILIES | {"sinks": make_sink_model})[family](), _tokens(300), [3, 1, 4, 15, 9]
    executor = build(model, kv_type=kv_type)
    logits = prefill(executor, Run(tokens, pages), 300)
    exported = executor.export_pages(pages)
    assert np.isfinite(logits).all()
    for number, cut in enumerate((1, 7, 64)):
        other = [20 + 5 * number + page for page in range(5)]
        np.testing.assert_array_equal(prefill(executor, Run(tokens, other), cut), logits)
        assert executor.export_pages(other) == exported
    for variant in native.usable_variants():
        other_executor = build(model, kv_type=kv_type, variant=variant, num_threads=3)
        np.testing.assert_array_equal(prefill(other_executor, Run(tokens, pages), 300), logits)
        assert other_executor.export_pages(pages) == exported


def test_a_batch_beyond_the_native_size_is_run_in_parts(build: Build):
    executor = build(make_qwen2())
    runs = [Run(_tokens(300, seed), list(range(5 * seed, 5 * seed + 5))) for seed in range(3)]
    alone = [prefill(executor, run, 300) for run in runs]
    outputs = [0, 299, 511, 512, 899]
    together = executor.run(make_batch(runs, outputs=outputs))
    np.testing.assert_array_equal(together, np.concatenate(alone)[outputs])
    assert executor.run(make_batch([])).shape == (0, VOCAB_SIZE)


def test_only_rows_that_are_asked_for_get_logits(build: Build):
    executor = build(make_qwen2())
    run = Run(_tokens(20), [0])
    wanted = run_rows(executor, [run])[0]
    np.testing.assert_array_equal(executor.run(make_batch([run], outputs=[3, 19])), wanted[[3, 19]])
    assert executor.run(make_batch([run], outputs=[])).shape == (0, VOCAB_SIZE)


def test_a_number_of_threads_that_makes_no_sense_is_refused(build: Build):
    with pytest.raises(ConfigurationError, match="threads"):
        build(make_qwen2(), num_threads=0)


def test_a_head_that_fills_no_vector_is_refused(build: Build):
    with pytest.raises(UnsupportedModelError, match="multiples of 16 up to 512, not 8"):
        build(make_llama())


def test_a_missing_a_misshapen_and_a_poisoned_tensor_are_named(build: Build):
    model, name = make_qwen2(), "blk.0.ffn_down.weight"
    program, tensors = model.build_program(), dict(model.tensors)

    def build_with(changed: dict[str, object]) -> None:
        CpuExecutor(program, changed, num_threads=1, num_pages=1)  # type: ignore[arg-type]

    with pytest.raises(CorruptFileError, match=f"no tensor {name}"):
        build_with({key: tensor for key, tensor in tensors.items() if key != name})
    with pytest.raises(CorruptFileError, match=f"{name} has shape"):
        build_with(tensors | {name: tensors["output_norm.weight"]})
    poisoned = np.frombuffer(tensors[name].data.tobytes(), np.float32).copy()
    poisoned[5] = np.nan
    with pytest.raises(CorruptFileError, match=f"{name} .*NaN"):
        build_with(tensors | {name: replace(tensors[name], values=poisoned.reshape(tensors[name].shape))})


def test_a_closed_executor_says_so(build: Build):
    executor = build(make_qwen2())
    executor.close()
    executor.close()
    with pytest.raises(native.NativeError, match="closed"):
        executor.run(make_batch([Run([1], [0])]))
