"""What a request gets depends on itself alone: everything else is made random here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from memra.engine.engine import EngineLimits
from memra.engine.host_shares import HostShares
from memra.engine.sampler import Sampler
from memra.engine.token_window import TokenWindow
from memra.messages.sampling import SamplingParams
from memra.messages.work import SubmitPrompt
from memra.types import Lane

Make = Callable[..., Any]

NUM_REQUESTS = 200
CONTEXT_TOKENS = 56


@dataclass(frozen=True)
class Arrival:
    """A request, the tick in which it comes, and the tick after which its client leaves."""

    request: SubmitPrompt
    tick: int
    leaves_at: int | None


def _draw_sampling(random: np.random.Generator) -> SamplingParams:
    return SamplingParams(
        temperature=float(random.choice([0.0, 0.7, 1.3])),
        top_k=int(random.choice([0, 5])),
        top_p=float(random.choice([1.0, 0.8])),
        min_p=float(random.choice([0.0, 0.1])),
        frequency_penalty=float(random.choice([0.0, 0.3])),
        repetition_penalty=float(random.choice([1.0, 1.2])),
        seed=int(random.integers(2**63)),
    )


def _draw_arrivals(random: np.random.Generator, make_request: Make, vocab_sizes: dict[str, int]) -> list[Arrival]:
    # Few distinct beginnings, so that stale pages of other requests would often look almost right.
    beginnings = [random.integers(0, 40, size=30).tolist() for _ in range(4)]
    arrivals = []
    for index in range(NUM_REQUESTS):
        model = str(random.choice(list(vocab_sizes)))
        prompt = beginnings[random.integers(4)][: random.integers(1, 31)]
        prompt += random.integers(0, vocab_sizes[model], size=random.integers(8)).tolist()
        stops = frozenset(random.integers(0, vocab_sizes[model], size=2).tolist())
        request = make_request(
            f"r{index}",
            prompt,
            int(random.integers(0, 25)),
            model=model,
            sampling=_draw_sampling(random),
            stop_ids=stops,
            eos_ids=frozenset({int(random.integers(0, vocab_sizes[model]))}),
            lane=Lane(str(random.choice(list(Lane)))),
            namespace=str(random.choice(["", "", "", "other"])),
        )
        tick = int(random.integers(0, 150))
        leaves_at = tick + int(random.integers(0, 40)) if random.random() < 0.3 else None
        arrivals.append(Arrival(request, tick, leaves_at))
    return arrivals


def _generate(executor: Any, request: SubmitPrompt) -> list[int]:
    """The request alone: whole prefixes, no pages, no batches, a fresh sampler and window for every token."""
    token_ids = list(request.prompt_ids)
    while len(token_ids) - len(request.prompt_ids) < request.max_new_tokens and len(token_ids) < CONTEXT_TOKENS:
        token_id = Sampler(executor.vocab_size).sample(
            executor.compute_logits(token_ids),
            request.sampling,
            position=len(token_ids),
            window=TokenWindow(token_ids),
        )
        if token_id in request.stop_ids | request.eos_ids:
            break
        token_ids.append(token_id)
    return token_ids[len(request.prompt_ids) :]


def _play(watched: Any, arrivals: list[Arrival]) -> None:
    tick = 0
    while watched.engine.has_work or any(arrival.tick >= tick for arrival in arrivals):
        for arrival in arrivals:
            if arrival.tick == tick:
                watched.engine.submit(arrival.request)
            if arrival.leaves_at == tick:
                watched.engine.abort(arrival.request.request_id)
        watched.step()
        tick += 1


@dataclass(frozen=True)
class Cache:
    """How much the engine may remember."""

    num_bytes: int
    host_bytes: int = 0


CACHES = {"none": Cache(0), "small": Cache(20_000), "large": Cache(1 << 20), "host": Cache(7000, host_bytes=20_000)}


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("seed", range(6))
def test_two_hundred_random_requests_get_what_each_gets_alone(  # noqa: PLR0913, PLR0917  (fixtures)
    watch: Make,
    make_model: Make,
    make_request: Make,
    fake_executor: Make,
    memory_store: Make,
    seed: int,
    cache: str,
):
    random = np.random.default_rng(seed)
    models = [
        make_model(
            fake_executor(salt=sizes["vocab_size"], **sizes),
            name=name,
            context_tokens=CONTEXT_TOKENS,
            max_rows=int(random.integers(1, 9)),
            prefill_chunk_tokens=int(random.integers(1, 40)),
        )
        for name, sizes in (
            ("x", {"vocab_size": 40, "page_tokens": 4, "num_pages": 40}),
            ("y", {"vocab_size": 64, "page_tokens": 8, "num_pages": 24, "num_states": 24}),
        )
    ]
    arrivals = _draw_arrivals(random, make_request, {"x": 40, "y": 64})
    store = memory_store(CACHES[cache].host_bytes)
    host = HostShares(store, tenant_percent=80) if CACHES[cache].host_bytes else None
    watched = watch(*models, limits=EngineLimits(prefix_cache_bytes=CACHES[cache].num_bytes), host=host)
    _play(watched, arrivals)

    executors = {model.name: model.executor for model in models}
    for arrival in arrivals:
        outcome = watched[arrival.request.request_id]
        expected = _generate(executors[arrival.request.model], arrival.request)
        assert outcome.failed is None
        if outcome.stop is None:
            assert arrival.leaves_at is not None
            assert outcome.token_ids == expected[: len(outcome.token_ids)]
        else:
            assert outcome.token_ids == expected
    report = watched.engine.report()
    assert report.num_pages_free + report.num_pages_cached == report.num_pages_total == 64
    assert report.num_completed > NUM_REQUESTS // 2
    assert report.num_aborted > 5
    assert report.num_completed + report.num_aborted == NUM_REQUESTS
    assert (report.prefix.num_hit_tokens > 0) == (report.num_cached_tokens > 0) == (cache != "none")
    assert (report.prefix.num_promotions > 0) == (cache == "host")
    assert report.num_preempted > 0
    if cache != "none":
        assert all(runner.prefixes.counts.num_hit_tokens > 0 for runner in watched.engine._runners.values())
    watched.engine.close()
    assert all(model.pool.num_free == model.pool.num_pages for model in models)
    assert all(model.states.num_free == model.states.num_pages for model in models)
    assert not store.blobs


@pytest.mark.parametrize("chunk_tokens", [1, 3, 4, 7, 64])
def test_the_cut_of_the_prompt_does_not_show(watch: Make, make_model: Make, make_request: Make, chunk_tokens: int):
    model = make_model(prefill_chunk_tokens=chunk_tokens)
    watched = watch(model)
    request = make_request("a", range(30), 20, sampling=SamplingParams(seed=5, top_p=0.9))
    watched.engine.submit(request)
    watched.finish()
    assert watched["a"].token_ids == _generate(model.executor, request)
    assert max(len(batch.token_ids) for batch in model.executor.batches) == min(chunk_tokens, 30)
