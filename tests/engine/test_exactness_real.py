"""Two hundred requests on real models and a hybrid: preempted, evicted, brought back, swapped, each as if alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from memra_kernels import native

from memra.engine.engine import Engine, EngineLimits
from memra.engine.executor import Executor
from memra.engine.host_shares import HostShares
from memra.engine.host_store import FileStore
from memra.engine.loaded_model import LoadedModel
from memra.engine.native_sampler import NativeTokenSampler
from memra.messages.sampling import SamplingParams
from memra.messages.work import RequestFailed, SubmitPrompt, TokensGenerated
from memra.types import Lane, ModelName, RequestId
from tests.engine.agent_models import open_gguf_model, open_hybrid

pytestmark = [pytest.mark.models, pytest.mark.slow, pytest.mark.timeout(900)]

NUM_REQUESTS, NUM_PAGES, CONTEXT_TOKENS = 200, 24, 512
END = 3


@dataclass(frozen=True)
class Arrival:
    """A request, the tick in which it comes, and the tick in which its client leaves."""

    request: SubmitPrompt
    tick: int
    leaves_at: int | None


@pytest.fixture
def executors(smollm2_path: Path, qwen_path: Path, tmp_path: Path) -> Iterator[dict[str, Executor]]:
    try:
        native.library()
    except native.NativeUnavailableError as error:
        pytest.skip(str(error))
    opened = {
        "smollm2": open_gguf_model(smollm2_path, num_pages=NUM_PAGES),
        "smollm2 again": open_gguf_model(smollm2_path, num_pages=NUM_PAGES),
        "qwen": open_gguf_model(qwen_path, num_pages=NUM_PAGES),
        "hybrid": open_hybrid(tmp_path, num_pages=NUM_PAGES, num_states=60),
    }
    yield opened
    for executor in opened.values():
        executor.close()


def _load(name: str, executor: Executor, *, instance: int = 0, max_rows: int = 6) -> LoadedModel:
    return LoadedModel(
        ModelName(name),
        executor,
        context_tokens=CONTEXT_TOKENS,
        max_rows=max_rows,
        prefill_chunk_tokens=96,
        make_sampler=NativeTokenSampler,
        instance=instance,
    )


def _draw(swap_tick: int) -> list[Arrival]:
    random = np.random.default_rng(11)
    beginnings = [random.integers(10, 500, size=300).tolist() for _ in range(4)]
    arrivals = []
    for number in range(NUM_REQUESTS):
        name = str(random.choice(["smollm2", "qwen", "hybrid"]))
        tick = int(random.integers(0, 2 * swap_tick))
        prompt = [*beginnings[random.integers(4)][: random.integers(20, 300)], END]
        prompt += random.integers(10, 500, size=random.integers(1, 30)).tolist()
        request = SubmitPrompt(
            RequestId(f"r{number}"),
            ModelName(name),
            tuple(prompt),
            int(random.integers(1, 30)),
            SamplingParams(
                temperature=float(random.choice([0.0, 0.9])),
                top_p=0.9,
                frequency_penalty=float(random.choice([0.0, 0.4])),
                seed=number,
            ),
            eos_ids=frozenset({END}),
            lane=Lane(str(random.choice(list(Lane)))),
            instance=int(name == "smollm2" and tick >= swap_tick),
            namespace=str(random.choice(["", "", "t:a", "t:b\x1fsalt"])),
        )
        leaves_at = tick + int(random.integers(0, 40)) if random.random() < 0.2 else None
        arrivals.append(Arrival(request, tick, leaves_at))
    return arrivals


def _play(engine: Engine, arrivals: list[Arrival], executors: dict[str, Executor], swap_tick: int) -> dict[str, list]:
    answers: dict[str, list] = {arrival.request.request_id: [] for arrival in arrivals}
    ended: set[str] = set()
    is_swapped = False
    tick = 0
    while engine.has_work or tick <= 2 * swap_tick:
        if tick == swap_tick:
            engine.add_model(_load("smollm2", executors["smollm2 again"], instance=1))
        for arrival in arrivals:
            if arrival.tick == tick:
                engine.submit(arrival.request)
            if arrival.leaves_at == tick:
                engine.abort(arrival.request.request_id)
                ended.add(arrival.request.request_id)
        for event in engine.step().events:
            assert not isinstance(event, RequestFailed)
            if isinstance(event, TokensGenerated):
                answers[event.request_id] += event.token_ids
                ended |= {event.request_id} if event.stop is not None else set()
        old = {arrival.request.request_id for arrival in arrivals if _is_old(arrival)}
        if tick > swap_tick and not is_swapped and old <= ended:
            engine.remove_model(ModelName("smollm2"), 0)
            is_swapped = True
        if tick % 16 == 0:
            engine.check_integrity()
        tick += 1
    assert is_swapped
    return answers


def _is_old(arrival: Arrival) -> bool:
    return arrival.request.model == "smollm2" and arrival.request.instance == 0


def _ask_alone(executor: Executor, request: SubmitPrompt) -> list[int]:
    engine = Engine()
    engine.add_model(_load(request.model, executor, instance=request.instance, max_rows=1))
    engine.submit(request)
    tokens: list[int] = []
    while engine.has_work:
        tokens += [
            token for event in engine.step().events if isinstance(event, TokensGenerated) for token in event.token_ids
        ]
    engine.remove_model(request.model, request.instance)
    return tokens


def test_two_hundred_requests_get_what_each_gets_alone(executors: dict[str, Executor], tmp_path: Path):
    swap_tick = 150
    store = FileStore(48 << 20, directory=tmp_path, is_verified=True)
    engine = Engine(limits=EngineLimits(prefix_cache_bytes=10 << 20), host=HostShares(store, tenant_percent=60))
    for name in ("smollm2", "qwen", "hybrid"):
        engine.add_model(_load(name, executors[name]))
    arrivals = _draw(swap_tick)
    answers = _play(engine, arrivals, executors, swap_tick)
    report = engine.report()
    assert report.num_preempted > 0
    assert report.prefix.num_promotions > 0
    assert report.prefix.num_hit_tokens > 1000
    for key in (("qwen", 0), ("hybrid", 0), ("smollm2", 1)):
        engine.remove_model(ModelName(key[0]), key[1])
    for arrival in arrivals:
        name = arrival.request.model
        alone = _ask_alone(executors[name], arrival.request)
        got = answers[arrival.request.request_id]
        assert got == (alone if arrival.leaves_at is None else alone[: len(got)]), arrival.request.request_id
    store.close()
