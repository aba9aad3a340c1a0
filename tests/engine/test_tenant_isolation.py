"""What one caller's prompts leave behind tells no other caller anything, whatever both of them ask."""

import random
from itertools import product
from typing import Any

import pytest

from memra.engine.engine import Engine, EngineLimits
from memra.engine.host_shares import HostShares, tenant_of
from memra.engine.loaded_model import LoadedModel
from memra.gate.namespaces import namespace_of
from memra.messages.identity import ANYBODY, Identity
from memra.messages.sampling import SamplingParams
from memra.messages.work import PromptStarted, RequestFailed, SubmitPrompt, TokensGenerated
from memra.types import ModelName, RequestId
from tests.engine.conftest import FakeExecutor, MemoryStore

NUM_PAIRS = 1000
TENANTS = [ANYBODY, *(Identity(name, is_named=True) for name in ("default", "a", "a_", "a-b", "b", "t", "A"))]
SALTS = ("", "a", "b", "t", "default", "a_b")
CALLERS = list(product(TENANTS, SALTS))
VOCABULARY = 40


class Street:
    """An engine, and what each of its callers may know: the beginnings of its own prompts and answers."""

    def __init__(self, *, num_states: int, host_bytes: int) -> None:
        self.store = MemoryStore(host_bytes)
        host = HostShares(self.store, tenant_percent=40) if host_bytes else None
        self.engine = Engine(limits=EngineLimits(prefix_cache_bytes=1 << 20), host=host)
        executor = FakeExecutor(vocab_size=VOCABULARY, num_pages=256, num_states=num_states)
        self.engine.add_model(LoadedModel(ModelName("m"), executor, context_tokens=64, max_rows=4))
        self.known: dict[tuple[Identity, str], set[tuple[int, ...]]] = {}
        self.num_asked = self.num_cached = 0

    def ask(self, *asked: tuple[tuple[Identity, str], tuple[int, ...]]) -> None:
        """Ask at the same time, and look at what was found of each prompt."""
        running: dict[str, Any] = {}
        for caller, prompt in asked:
            self.num_asked += 1
            name = f"r{self.num_asked}"
            running[name] = (caller, prompt, list(prompt))
            work = SubmitPrompt(
                RequestId(name),
                ModelName("m"),
                prompt,
                max_new_tokens=3,
                sampling=SamplingParams(temperature=0),
                namespace=namespace_of(*caller),
            )
            self.engine.submit(work)
        while self.engine.has_work:
            for event in self.engine.step().events:
                self._note(event, running[event.request_id])
        self.engine.check_integrity()
        for caller, _, tokens in running.values():
            known = self.known.setdefault(caller, set())
            known.update(tuple(tokens[:end]) for end in range(1, len(tokens) + 1))

    def _note(self, event: Any, request: Any) -> None:
        caller, prompt, tokens = request
        assert not isinstance(event, RequestFailed)
        if isinstance(event, PromptStarted):
            own = self.known.get(caller, set())
            most = max((end for end in range(len(prompt) + 1) if not end or prompt[:end] in own), default=0)
            assert event.num_cached_tokens <= most, f"{caller} was told of somebody else's prompt"
            self.num_cached += event.num_cached_tokens
        elif isinstance(event, TokensGenerated):
            tokens.extend(event.token_ids)


@pytest.mark.parametrize(("num_states", "host_bytes"), [(0, 0), (0, 20_000), (48, 20_000)])
def test_cached_tokens_never_tell_of_anothers_prompt(num_states: int, host_bytes: int):
    street, draw = Street(num_states=num_states, host_bytes=host_bytes), random.Random(7)  # noqa: S311  (the same pairs each time)
    for number in range(NUM_PAIRS):
        if number % 50 == 0:  # memory is short: of many at once nobody would find anything again
            callers = draw.sample(CALLERS, 6)
            bases = [tuple(draw.randrange(VOCABULARY) for _ in range(48)) for _ in range(2)]
        one, other = draw.sample(callers, 2)
        base, num_shared = draw.choice(bases), draw.randrange(8, 48)
        own, others = (base[:num_shared] + tuple(draw.randrange(VOCABULARY) for _ in range(6)) for _ in range(2))
        if draw.random() < 0.5:
            others = own
        if draw.random() < 0.5:
            street.ask((one, own), (other, others))
        else:
            street.ask((one, own))
            street.ask((other, others))
    assert street.num_cached > NUM_PAIRS, "nobody found even its own prompts, so this showed nothing"


def test_a_tenants_namespaces_are_its_own_and_no_others():
    owners = {namespace_of(*caller): caller[0].tenant for caller in CALLERS}
    assert len(owners) == len(CALLERS)
    assert all(tenant_of(namespace) == tenant for namespace, tenant in owners.items())
