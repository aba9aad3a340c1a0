import numpy as np
import pytest

from memra.cli_bench.cases import make_token_ids
from memra.cli_bench.step_driver import StepDriver
from memra.engine.executor import RowBatch
from tests.models.tiny_models import VOCAB_SIZE, make_llama

CAPACITIES = [100, 70]


class CountingExecutor:
    """Counts the rows that the inner executor runs."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self.page_tokens = inner.page_tokens
        self.num_rows = 0

    def run(self, batch: RowBatch):
        self.num_rows += len(batch.token_ids)
        return self.inner.run(batch)


@pytest.fixture(scope="module")
def inner():
    from memra.engine.reference_executor import ReferenceExecutor  # noqa: PLC0415  (imports torch)

    model = make_llama()
    num_pages = StepDriver.count_pages(CAPACITIES, 16)
    executor = ReferenceExecutor(
        model.build_program(), model.tensors, device="cpu", dtype="float32", num_pages=num_pages, page_tokens=16
    )
    yield executor
    executor.close()


@pytest.fixture
def executor(inner) -> CountingExecutor:
    return CountingExecutor(inner)


@pytest.fixture
def driver(executor: CountingExecutor) -> StepDriver:
    return StepDriver(executor, capacities=CAPACITIES, chunk_tokens=24)


def _ids(sequence: int, num_tokens: int) -> list[int]:
    return make_token_ids(sequence, num_tokens, vocab_size=VOCAB_SIZE)


def test_decoding_gives_the_logits_of_a_prefill(driver: StepDriver, executor: CountingExecutor):
    sequences = [_ids(0, 60), _ids(1, 60)]
    for index, token_ids in enumerate(sequences):
        driver.fill(index, token_ids, num_prompt_tokens=50)
    batches = driver.plan_decode(sequences, first=50)
    assert len(batches) == 10
    logits = [executor.run(batch).copy() for batch in batches][-1]
    for index, token_ids in enumerate(sequences):
        assert np.array_equal(driver.prefill(token_ids, sequence=index)[0], logits[index])


def test_a_cache_is_filled_once_and_extended(driver: StepDriver, executor: CountingExecutor):
    driver.fill(0, _ids(0, 60), num_prompt_tokens=50)
    driver.fill(0, _ids(0, 60), num_prompt_tokens=50)
    assert executor.num_rows == 50
    driver.fill(0, _ids(0, 90), num_prompt_tokens=80)
    assert executor.num_rows == 80
    driver.fill(0, _ids(0, 30), num_prompt_tokens=20)
    assert executor.num_rows == 80


def test_other_tokens_are_computed_from_where_they_differ(driver: StepDriver, executor: CountingExecutor):
    driver.fill(0, _ids(0, 60), num_prompt_tokens=50)
    changed = _ids(0, 60)
    changed[45] = (changed[45] + 1) % VOCAB_SIZE
    driver.fill(0, changed, num_prompt_tokens=50)
    assert executor.num_rows == 55


def test_a_prefill_is_computed_in_full_every_time(driver: StepDriver, executor: CountingExecutor):
    first = driver.prefill(_ids(0, 40)).copy()
    assert np.array_equal(driver.prefill(_ids(0, 40)), first)
    assert executor.num_rows == 80


def test_what_was_forgotten_is_computed_again(driver: StepDriver, executor: CountingExecutor):
    driver.fill(0, _ids(0, 20), num_prompt_tokens=20)
    driver.forget()
    driver.fill(0, _ids(0, 20), num_prompt_tokens=20)
    assert executor.num_rows == 40


def test_all_logits_are_those_of_prefills_of_every_length(driver: StepDriver):
    logits = driver.all_logits(_ids(0, 30)).copy()
    assert logits.shape == (30, VOCAB_SIZE)
    for length in (1, 24, 25, 30):
        assert np.array_equal(driver.prefill(_ids(0, length))[0], logits[length - 1])
