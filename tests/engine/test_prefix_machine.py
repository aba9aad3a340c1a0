"""Pools, tree and host store under any order of events: the books agree after every step, and so does every answer."""

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from memra.engine.engine import Engine, EngineLimits
from memra.engine.host_shares import HostShares
from memra.engine.loaded_model import LoadedModel
from memra.messages.sampling import SamplingParams
from memra.messages.work import RequestFailed, SubmitPrompt, TokensGenerated
from memra.types import Lane, ModelName, RequestId
from tests.engine.conftest import FakeExecutor, MemoryStore

BASE = np.random.default_rng(1).integers(0, 12, size=64).tolist()
END = 11


class EngineMachine(RuleBasedStateMachine):
    """Prompts with shared beginnings come, branch and leave while memory is short."""

    def __init__(self) -> None:
        super().__init__()
        self.num = 0
        self.instance = 0
        self.live: dict[str, SubmitPrompt] = {}
        self.answers: dict[str, list[int]] = {}

    @initialize(
        num_states=st.sampled_from([0, 16, 40]),
        cache_bytes=st.sampled_from([300, 3000, 9000, 100_000]),
        host_bytes=st.sampled_from([0, 2500, 50_000]),
    )
    def start(self, num_states: int, cache_bytes: int, host_bytes: int) -> None:
        self.num_states = num_states
        self.store = MemoryStore(host_bytes)
        host = HostShares(self.store, tenant_percent=60) if host_bytes else None
        self.engine = Engine(limits=EngineLimits(prefix_cache_bytes=cache_bytes), host=host)
        self.models: dict[int, Any] = {}
        self._add_model()

    def _add_model(self) -> None:
        executor = FakeExecutor(page_tokens=4, num_pages=24, num_states=self.num_states, salt=self.instance)
        model = LoadedModel(
            ModelName("m"), executor, context_tokens=48, max_rows=4, prefill_chunk_tokens=9, instance=self.instance
        )
        self.models[self.instance] = model
        self.engine.add_model(model)

    @rule(
        shared=st.integers(0, 30),
        own=st.lists(st.integers(0, END), max_size=6),
        num_new=st.integers(0, 12),
        lane=st.sampled_from(list(Lane)),
        namespace=st.sampled_from(["", "t:a", "t:a\x1fs", "t:b"]),
        temperature=st.sampled_from([0.0, 0.9]),
    )
    def submit(  # noqa: PLR0913, PLR0917  (one argument each draw)
        self, shared: int, own: list[int], num_new: int, lane: Lane, namespace: str, temperature: float
    ) -> None:
        self.num += 1
        request = SubmitPrompt(
            RequestId(f"r{self.num}"),
            ModelName("m"),
            tuple(BASE[:shared] + own) or (1,),
            num_new,
            SamplingParams(temperature=temperature, seed=self.num % 3, presence_penalty=0.5 * (self.num % 2)),
            eos_ids=frozenset({END}),
            lane=lane,
            instance=self.instance,
            namespace=namespace,
            affinity=None if self.num % 3 else "agent",
        )
        self.live[request.request_id] = request
        self.answers[request.request_id] = []
        self.engine.submit(request)

    @rule(num=st.integers(1, 8))
    def step(self, num: int) -> None:
        for _ in range(num):
            for event in self.engine.step().events:
                self._note(event)
            self.engine.check_integrity()

    @rule(which=st.integers(0, 30))
    def abort(self, which: int) -> None:
        if self.live:
            name = list(self.live)[which % len(self.live)]
            del self.live[name]
            self.engine.abort(RequestId(name))

    @rule(namespace=st.sampled_from([None, "", "t:a"]))
    def trim(self, namespace: str | None) -> None:
        for runner in self.engine._runners.values():
            runner.prefixes.trim(None if namespace is None else [namespace])

    @rule()
    def swap(self) -> None:
        """A new instance takes the place of the old one, whose requests fail."""
        self.engine.remove_model(ModelName("m"), self.instance)
        old = self.models.pop(self.instance)
        assert old.pool.num_free == old.pool.num_pages
        assert old.states.num_free == old.states.num_pages
        self.instance += 1
        self._add_model()

    @rule(share=st.sampled_from([0.2, 0.7]))
    def lose_blobs(self, share: float) -> None:
        blobs = sorted(self.store.blobs)
        self.store.lost |= set(blobs[: int(share * len(blobs))])

    @invariant()
    def books_agree(self) -> None:
        if self.models if hasattr(self, "models") else None:
            self.engine.check_integrity()

    def _note(self, event: Any) -> None:
        if isinstance(event, RequestFailed):
            assert event.overloaded, event.detail
            self.live.pop(event.request_id)
        elif isinstance(event, TokensGenerated):
            self.answers[event.request_id] += event.token_ids
            if event.stop is not None:
                self._compare(self.live.pop(event.request_id))

    def _compare(self, request: SubmitPrompt) -> None:
        engine = Engine()
        executor = FakeExecutor(page_tokens=4, num_pages=24, num_states=self.num_states, salt=request.instance)
        engine.add_model(
            LoadedModel(ModelName("m"), executor, context_tokens=48, max_rows=1, instance=request.instance)
        )
        engine.submit(request)
        alone: list[int] = []
        while engine.has_work:
            for event in engine.step().events:
                if isinstance(event, TokensGenerated):
                    alone += event.token_ids
        assert self.answers[request.request_id] == alone

    def teardown(self) -> None:
        if not hasattr(self, "models"):
            return
        for _ in range(500):
            if not self.engine.has_work:
                break
            self.step(num=1)
        assert not self.engine.has_work
        assert not self.live
        self.engine.close()
        for model in self.models.values():
            assert model.pool.num_free == model.pool.num_pages
            assert model.states.num_free == model.states.num_pages
        assert not self.store.blobs


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(derandomize=True, deadline=None, max_examples=120, stateful_step_count=40)
