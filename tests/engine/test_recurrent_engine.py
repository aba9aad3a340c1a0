"""A recurrent model served by the engine: company, chunks, leavers and faults change no answer."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from memra_kernels import native

from memra.engine.cpu_executor import CpuExecutor
from memra.engine.executor import RowBatch
from memra.messages.sampling import SamplingParams
from tests.engine.recurrent_model import make_recurrent_model
from tests.models.tiny_models import VOCAB_SIZE

Make = Callable[..., Any]

NUM_ROWS, NUM_PAGES = 6, 64


class FaultyExecutor:
    """Fails every step that holds a token, after the native engine has computed it: its states are written."""

    def __init__(self, executor: CpuExecutor, *, bad_token: int) -> None:
        self._executor = executor
        self._bad_token = bad_token

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def run(self, batch: RowBatch) -> Any:
        logits = self._executor.run(batch)
        if self._bad_token in batch.token_ids:
            raise RuntimeError("kernel broke")
        return logits


@pytest.fixture
def executor() -> Iterator[CpuExecutor]:
    try:
        native.library()
    except native.NativeUnavailableError as error:
        pytest.skip(str(error))
    program, tensors = make_recurrent_model()
    opened = CpuExecutor(program, tensors, num_threads=2, num_pages=NUM_PAGES, num_states=2 * NUM_ROWS)
    yield opened
    opened.close()


def _requests(make_request: Make, *, banned: int) -> list[Any]:
    random = np.random.default_rng(4)
    return [
        make_request(
            f"r{index}",
            [token for token in random.integers(0, VOCAB_SIZE, size=random.integers(1, 90)).tolist() if token != banned]
            or [1],
            int(random.integers(1, 20)),
            sampling=SamplingParams(temperature=float(random.choice([0.0, 0.9])), seed=index),
            stop_ids=frozenset({banned}),
        )
        for index in range(20)
    ]


@pytest.mark.parametrize("chunk_tokens", [5, 64])
def test_answers_beside_leavers_and_faults_are_those_given_alone(
    executor: CpuExecutor, watch: Make, make_model: Make, make_request: Make, chunk_tokens: int
):
    banned = 11
    requests = _requests(make_request, banned=banned)
    alone = {}
    for request in requests:
        watched = watch(make_model(executor, context_tokens=200, max_rows=1))
        watched.engine.submit(request)
        watched.finish()
        alone[request.request_id] = watched[request.request_id].token_ids

    model = make_model(
        FaultyExecutor(executor, bad_token=banned),
        context_tokens=200,
        max_rows=NUM_ROWS,
        prefill_chunk_tokens=chunk_tokens,
    )
    watched = watch(model)
    for index, request in enumerate(requests):
        watched.engine.submit(request)
        if index % 5 == 0:
            watched.engine.submit(make_request(f"bad{index}", [3, banned, 4], 5))
            watched.engine.submit(make_request(f"gone{index}", [5] * 40, 50, stop_ids=frozenset({banned})))
        watched.step()
    for index in range(0, len(requests), 5):
        watched.engine.abort(f"gone{index}")
    watched.finish()

    assert {name: watched[name].token_ids for name in alone} == alone
    assert sum(map(len, alone.values())) > 100
    assert all(watched[f"bad{index}"].failed is not None for index in range(0, len(requests), 5))
    assert model.states.num_free == model.states.num_pages
