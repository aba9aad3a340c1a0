"""Recurrent layers and mixtures of experts on both executors: near each other, exact in any cut and company."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from memra_kernels import native

from memra.engine.cpu_executor import CpuExecutor
from memra.engine.executor import Executor
from memra.engine.reference_executor import ReferenceExecutor
from memra.layers.operators import RouterFunction, Routing
from tests.engine.recurrent_model import EXPERTS, USED, make_recurrent_model
from tests.engine.reference_driver import Run, prefill, run_rows
from tests.models.tiny_models import VOCAB_SIZE

Build = Callable[..., Executor]

ROUTINGS = {
    "softmax": Routing(EXPERTS, USED, RouterFunction.SOFTMAX, normalise=True),
    "sigmoid with groups": Routing(
        EXPERTS,
        USED,
        RouterFunction.SIGMOID,
        correction="correction",
        normalise=True,
        scale=2.5,
        num_groups=3,
        num_groups_used=2,
    ),
    "softmax of the chosen": Routing(EXPERTS, 3, RouterFunction.SOFTMAX_OF_CHOSEN),
    "scaled input": Routing(EXPERTS, 1, RouterFunction.SIGMOID, scales_input=True),
}
NUM_STATES = 12
PAGES = [0] * 20
"""One page in all places: without attention layers nobody writes to it."""


@pytest.fixture
def build() -> Iterator[Build]:
    opened: list[Executor] = []

    def open_model(kind: str, routing: Routing | None = None, **settings: object) -> Executor:
        program, tensors = make_recurrent_model(routing)
        if kind == "torch":
            settings = {"device": "cpu", "dtype": "float32"} | settings
            opened.append(ReferenceExecutor(program, tensors, num_pages=len(PAGES), num_states=NUM_STATES, **settings))  # type: ignore[arg-type]
        else:
            settings = {"num_threads": 2} | settings
            opened.append(CpuExecutor(program, tensors, num_pages=len(PAGES), num_states=NUM_STATES, **settings))  # type: ignore[arg-type]
        return opened[-1]

    yield open_model
    for executor in opened:
        executor.close()


@pytest.fixture(autouse=True)
def _library() -> None:
    try:
        native.library()
    except native.NativeUnavailableError as error:
        pytest.skip(str(error))


def _run(length: int, *, seed: int = 0, state: int = 0) -> Run:
    tokens = np.random.default_rng(seed).integers(0, VOCAB_SIZE, length).tolist()
    return Run(tokens, PAGES, state_out=state)


@pytest.mark.parametrize("routing", ROUTINGS)
def test_the_native_executor_is_near_the_oracle(routing: str, build: Build):
    wanted = prefill(build("torch", ROUTINGS[routing]), _run(60), 60)
    got = prefill(build("cpu", ROUTINGS[routing]), _run(60), 60)
    assert np.abs(got - wanted).max() < 2e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("kind", ["cpu", "torch"])
def test_no_cut_changes_a_bit_of_logits_or_state(kind: str, build: Build):
    executor = build(kind)
    logits = prefill(executor, _run(50), 50)
    state = executor.export_state(0)
    for number, cut in enumerate((1, 7, 16), start=1):
        np.testing.assert_array_equal(prefill(executor, _run(50, state=2 * number), cut), logits)
        assert executor.export_state(2 * number) == state


@pytest.mark.parametrize("kind", ["cpu", "torch"])
@pytest.mark.parametrize("routing", ROUTINGS)
def test_company_changes_nothing(kind: str, routing: str, build: Build):
    executor = build(kind, ROUTINGS[routing])
    runs = [_run(length, seed=length, state=index) for index, length in enumerate((20, 1, 33, 8))]
    alone = [run_rows(executor, [run])[0] for run in runs]
    states = [executor.export_state(index) for index in range(4)]
    together = run_rows(executor, [Run(run.tokens, run.pages, state_out=4 + index) for index, run in enumerate(runs)])
    for got, wanted in zip(together, alone, strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert [executor.export_state(4 + index) for index in range(4)] == states


@pytest.mark.parametrize("kind", ["cpu", "torch"])
def test_a_state_is_a_snapshot_from_which_several_sequences_go_on(kind: str, build: Build):
    executor = build(kind)
    whole = _run(40, state=0)
    logits = prefill(executor, whole, 40)
    run_rows(executor, [Run(whole.tokens[:25], PAGES, state_out=1)])
    ends = [Run(whole.tokens[25:], PAGES, 25, state_in=1, state_out=2), Run([5, 6], PAGES, 25, state_in=1, state_out=3)]
    resumed, branched = run_rows(executor, ends)
    np.testing.assert_array_equal(resumed, logits[25:])
    assert executor.export_state(2) == executor.export_state(0)
    other = prefill(executor, Run([*whole.tokens[:25], 5, 6], PAGES, state_out=4), 3)
    np.testing.assert_array_equal(branched, other[25:])


@pytest.mark.parametrize("kind", ["cpu", "torch"])
def test_an_exported_state_goes_on_wherever_it_is_brought_back(kind: str, build: Build):
    executor, other = build(kind), build(kind)
    start = _run(25, state=0)
    prefill(executor, start, 25)
    data = executor.export_state(0)
    other.import_state(7, data)
    assert other.export_state(7) == data
    moved = run_rows(other, [Run([5, 6], PAGES, 25, state_in=7, state_out=3)])
    stayed = run_rows(executor, [Run([5, 6], PAGES, 25, state_in=0, state_out=3)])
    np.testing.assert_array_equal(moved, stayed)
    with pytest.raises(ValueError, match="a state has"):
        other.import_state(7, data[:-4])


@pytest.mark.parametrize("length", [513, 1024, 1100])
def test_a_step_of_more_rows_than_the_native_engine_takes_at_once_is_one_step(length: int, build: Build):
    executor = build("cpu")
    run = _run(length, state=0)
    neighbour = _run(700, seed=3, state=2)
    first, second = run_rows(executor, [neighbour, run])
    state = executor.export_state(0)
    np.testing.assert_array_equal(prefill(executor, Run(run.tokens, PAGES, state_out=4), 100), second)
    assert executor.export_state(4) == state
    np.testing.assert_array_equal(prefill(executor, Run(neighbour.tokens, PAGES, state_out=6), 100), first)


def test_every_variant_and_number_of_threads_gives_the_same_bits(build: Build):
    logits = prefill(build("cpu"), _run(50), 50)
    for variant in native.usable_variants():
        for num_threads in (1, 3):
            other = build("cpu", variant=variant, num_threads=num_threads)
            np.testing.assert_array_equal(prefill(other, _run(50), 13), logits)


def test_a_state_that_is_read_is_never_written(build: Build):
    executor = build("cpu")
    run_rows(executor, [_run(5, state=1)])
    with pytest.raises(native.NativeError, match="a state is written that another sequence uses"):
        run_rows(executor, [Run([1], PAGES, 5, state_in=1, state_out=1)])
    with pytest.raises(native.NativeError, match="state does not exist"):
        run_rows(executor, [Run([1], PAGES, 5, state_in=99, state_out=1)])
