"""What the engine remembers of sequences that ran: what is found again, what is given up, and what is never mixed."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memra.engine.engine import EngineLimits
from memra.engine.host_shares import HostShares
from memra.errors import HandoffError
from memra.messages.sampling import SamplingParams
from memra.settings import HostTierSettings
from memra.types import Lane

Make = Callable[..., Any]

LARGE = EngineLimits(prefix_cache_bytes=1 << 20)
END = 39
"""The token that ends turns."""


def _generate(executor: Any, prompt_ids: Iterable[int], num_tokens: int) -> list[int]:
    token_ids = list(prompt_ids)
    for _ in range(num_tokens):
        token_ids.append(int(executor.compute_logits(token_ids).argmax()))
    return token_ids[-num_tokens:]


class Talk:
    """Requests one after the other; what each computed and what it got."""

    def __init__(self, watched: Any, make_request: Make) -> None:
        self.watched = watched
        self._make_request = make_request
        self._num = 0

    def ask(self, prompt_ids: Iterable[int], num_tokens: int = 4, **fields: Any) -> list[int]:
        self._num += 1
        prompt = tuple(prompt_ids)
        self.watched.engine.submit(self._make_request(f"t{self._num}", prompt, num_tokens, **fields))
        self.watched.finish()
        executor = self.watched.model.executor
        assert self.watched[f"t{self._num}"].token_ids == _generate(executor, prompt, num_tokens)
        return list(prompt) + self.watched[f"t{self._num}"].token_ids

    @property
    def num_computed(self) -> int:
        """Rows that the executor was given since the last look."""
        batches = self.watched.model.executor.batches
        num = sum(len(batch.token_ids) for batch in batches)
        batches.clear()
        return num


@pytest.fixture
def talk(watch: Make, make_model: Make, make_request: Make, fake_executor: Make) -> Callable[..., Talk]:
    def open_talk(
        *, num_states: int = 0, limits: EngineLimits = LARGE, host: HostShares | None = None, **sizes: int
    ) -> Talk:
        executor = fake_executor(num_states=num_states, num_pages=sizes.pop("num_pages", 64))
        model = make_model(executor, context_tokens=200, **sizes)
        watched = watch(model, limits=limits, host=host)
        watched.model = model
        return Talk(watched, make_request)

    return open_talk


def test_the_same_prompt_again_computes_its_last_token_alone(talk: Callable[..., Talk]):
    talk = talk()
    talk.ask(range(21))
    assert talk.num_computed == 21 + 3
    talk.ask(range(21))
    assert talk.num_computed == 1 + 3
    assert talk.watched.engine.report().num_cached_tokens == 20


def test_a_conversation_goes_on_from_its_answer(talk: Callable[..., Talk]):
    talk = talk()
    history = talk.ask(range(21), 6)
    assert talk.num_computed == 21 + 5
    talk.ask([*history, 7, 8, 9])
    # The last token of the answer was never computed.
    assert talk.num_computed == 1 + 3 + 3


def test_an_answer_that_is_stripped_from_history_costs_what_is_new_alone(talk: Callable[..., Talk]):
    talk = talk()
    talk.ask(range(21), 10)
    assert talk.num_computed == 21 + 9
    talk.ask([*range(21), 33, 34])
    assert talk.num_computed == 2 + 3


def test_branches_of_a_conversation_live_side_by_side(talk: Callable[..., Talk]):
    talk = talk()
    branches = [[*range(18), 30 + number, 5, 6] for number in range(3)]
    for branch in branches:
        talk.ask(branch)
    assert talk.num_computed == (21 + 3) + 2 * (3 + 3)
    for branch in branches:
        talk.ask(branch)
    assert talk.num_computed == 3 * (1 + 3)


def test_no_reuse_crosses_a_namespace(talk: Callable[..., Talk]):
    talk = talk()
    talk.ask(range(21), namespace="a")
    assert talk.num_computed == 21 + 3
    talk.ask(range(21), namespace="b")
    assert talk.num_computed == 21 + 3
    talk.ask(range(21), namespace="b")
    assert talk.num_computed == 1 + 3


def test_nothing_is_remembered_without_a_budget(talk: Callable[..., Talk]):
    talk = talk(limits=EngineLimits(prefix_cache_bytes=0))
    talk.ask(range(21))
    talk.ask(range(21))
    assert talk.num_computed == 2 * (21 + 3)
    assert talk.watched.engine.report().num_pages_cached == 0


@pytest.mark.parametrize("num_states", [0, 40])
def test_prompts_with_one_beginning_that_come_together_compute_it_once(
    talk: Callable[..., Talk], make_request: Make, num_states: int
):
    talk = talk(prefill_chunk_tokens=16, num_states=num_states, num_pages=200)
    prompts = {f"r{number}": (*range(32), 30 + number, number) for number in range(6)}
    for name, prompt in prompts.items():
        talk.watched.engine.submit(make_request(name, prompt, 3))
    talk.watched.finish()
    assert talk.num_computed == 32 + 6 * (2 + 2)
    for name, prompt in prompts.items():
        assert talk.watched[name].token_ids == _generate(talk.watched.model.executor, prompt, 3)
    assert talk.watched.engine.report().num_cached_tokens == 5 * 32


def test_a_follower_goes_on_alone_when_its_leader_leaves(talk: Callable[..., Talk], make_request: Make):
    talk = talk(prefill_chunk_tokens=8)
    for name in ("leader", "follower"):
        talk.watched.engine.submit(make_request(name, range(33), 3))
    talk.watched.step()
    assert talk.watched["follower"].num_started == 0
    talk.watched.engine.abort("leader")
    talk.watched.finish()
    assert talk.num_computed == 33 + 2
    assert talk.watched["follower"].token_ids == _generate(talk.watched.model.executor, range(33), 3)


def test_an_interrupted_answer_is_gone_on_from_where_it_stopped(talk: Callable[..., Talk], make_request: Make):
    talk = talk()
    talk.watched.engine.submit(make_request("cut", range(21), 50))
    for _ in range(8):
        talk.watched.step()
    talk.watched.engine.abort("cut")
    assert talk.num_computed == 21 + 7
    talk.ask([*range(21), *talk.watched["cut"].token_ids, 1])
    assert talk.num_computed == 2 + 3


def test_a_recurrent_conversation_branches_where_turns_end(talk: Callable[..., Talk]):
    talk = talk(num_states=60)
    first = [*range(10), END, *range(20, 30)]
    answer = talk.ask(first, 6, eos_ids=frozenset({END}))
    talk.num_computed  # noqa: B018  (forgets what was computed so far)
    talk.ask([*answer, 5, END, 6, 7], eos_ids=frozenset({END}))
    assert talk.num_computed == 1 + 4 + 3, "gone on from the answer's end"
    talk.ask([*first, 31, 32], eos_ids=frozenset({END}))
    assert talk.num_computed == 2 + 3, "the answer was stripped: gone on from the prompt's end"
    talk.ask([*first[:11], 33, 34], eos_ids=frozenset({END}))
    assert talk.num_computed == 2 + 3, "the second turn was edited: gone on from the first one's end"
    talk.ask(first, 6, eos_ids=frozenset({END}))
    assert talk.num_computed == 10 + 5, "the answer is asked for again: its last token must run"


def test_a_recurrent_model_learns_where_ways_part(talk: Callable[..., Talk]):
    talk = talk(num_states=60)
    for number in range(3):
        talk.ask([*range(18), 30 + number, 5, 6])
        num_expected = 21 if number < 2 else 3
        assert talk.num_computed == num_expected + 3


@pytest.mark.parametrize("num_states", [0, 60])
def test_what_was_used_longest_ago_goes_first(talk: Callable[..., Talk], num_states: int):
    page_bytes, state_bytes = 2 * 4 * 8, 8 * 257 if num_states else 0
    room = 9 * page_bytes + 6 * state_bytes
    talk = talk(num_states=num_states, limits=EngineLimits(prefix_cache_bytes=room))
    for first in (0, 1, 0, 2, 3):
        talk.ask([first] * 9, 2)
        assert talk.watched.engine.report().prefix.num_bytes <= room
    talk.num_computed  # noqa: B018  (forgets what was computed so far)
    talk.ask([0] * 9 + [4, 5], 2)
    assert talk.num_computed == 2 + 1
    talk.ask([1] * 9 + [4, 5], 2)
    assert talk.num_computed == 11 + 1
    assert talk.watched.engine.report().prefix.num_evictions > 0


def test_prefixes_give_way_to_running_sequences(talk: Callable[..., Talk]):
    talk = talk(num_pages=16)
    talk.ask(range(30), 2)
    talk.ask([*range(30, 20, -1)] * 5, 10)
    assert talk.watched.engine.report().num_pages_free + talk.watched.engine.report().num_pages_cached == 16


@pytest.mark.parametrize("num_states", [0, 60])
def test_a_sequence_may_need_every_page_and_still_begin_with_a_known_prefix(talk: Callable[..., Talk], num_states: int):
    talk = talk(num_pages=10, num_states=num_states)
    talk.ask(range(18), 2)
    talk.ask([*range(18), 31, 32], 20)
    assert talk.watched.engine.report().num_completed == 2


def test_a_conversation_is_spared_longer_than_others(talk: Callable[..., Talk]):
    page_bytes = 2 * 4 * 8
    talk = talk(limits=EngineLimits(prefix_cache_bytes=14 * page_bytes))
    talk.ask([7] * 17, 1, affinity="agent")
    talk.num_computed  # noqa: B018  (forgets what was computed so far)
    for first in range(4):
        talk.ask([first] * 17, 1)
    talk.num_computed  # noqa: B018
    talk.ask([7] * 17, 1, affinity="agent")
    assert talk.num_computed == 1
    talk.ask([0] * 17, 1)
    assert talk.num_computed == 17


@pytest.mark.parametrize("num_states", [0, 60])
def test_what_comes_back_from_the_host_store_is_what_went(
    talk: Callable[..., Talk], memory_store: Make, num_states: int
):
    store = memory_store(1 << 20)
    limit = 5 * 2 * 4 * 8 + (3 * 8 * 257 if num_states else 0)
    limits = EngineLimits(prefix_cache_bytes=limit)
    talk = talk(num_states=num_states, limits=limits, host=HostShares(store, tenant_percent=100))
    for first in range(4):
        talk.ask([first] * 17, 2)
    assert store.blobs
    talk.num_computed  # noqa: B018  (forgets what was computed so far)
    for first in range(4):
        talk.ask([first] * 17 + [20, 21], 2)
    assert talk.num_computed == 4 * (2 + 1)
    assert talk.watched.engine.report().prefix.num_promotions > 0
    talk.watched.engine.close()
    assert store.is_closed


def test_a_lost_blob_costs_time_and_nothing_else(talk: Callable[..., Talk], memory_store: Make):
    store = memory_store(1 << 20)
    limits = EngineLimits(prefix_cache_bytes=5 * 2 * 4 * 8)
    talk = talk(limits=limits, host=HostShares(store, tenant_percent=100))
    for first in range(3):
        talk.ask([first] * 17, 2)
    store.lost = set(store.blobs)
    for first in range(3):
        talk.ask([first] * 17, 2)


def test_a_tenant_gives_up_its_own_before_anothers(talk: Callable[..., Talk], memory_store: Make):
    page_bytes = 2 * 4 * 8
    store = memory_store(20 * page_bytes)
    host = HostShares(store, tenant_percent=50)
    talk = talk(limits=EngineLimits(prefix_cache_bytes=page_bytes), host=host)
    talk.ask([1] * 17, 1, namespace="t:small\x1fsalt")
    for first in range(2, 12):
        talk.ask([first] * 17, 1, namespace="t:large")
    assert host.tenant_bytes["large"] <= 10 * page_bytes
    assert host.tenant_bytes["small"] >= 3 * page_bytes
    talk.num_computed  # noqa: B018  (forgets what was computed so far)
    talk.ask([1] * 17, 1, namespace="t:small\x1fsalt")
    assert talk.num_computed == 1


def test_harvest_gives_way_and_goes_on_from_the_same_token(talk: Callable[..., Talk], make_request: Make):
    talk = talk(num_pages=12)
    sampling = SamplingParams(temperature=0.9, seed=5, frequency_penalty=0.4)
    engine = talk.watched.engine
    engine.submit(make_request("harvest", range(10), 20, lane=Lane.HARVEST, sampling=sampling))
    for _ in range(6):
        talk.watched.step()
    engine.submit(make_request("urgent", range(20, 30), 20))
    talk.watched.step()
    assert talk.watched["urgent"].num_started == 1
    assert engine.report().num_preempted == 1
    assert engine.report().num_queued == 1
    talk.watched.finish()
    alone = talk.watched["harvest"].token_ids
    engine.submit(make_request("alone", range(10), 20, sampling=sampling, namespace="elsewhere"))
    talk.watched.finish()
    assert talk.watched["alone"].token_ids == alone
    assert talk.watched["harvest"].num_started == 1


def test_nobody_gives_way_where_it_would_not_help(talk: Callable[..., Talk], make_request: Make):
    talk = talk(num_pages=12)
    talk.watched.engine.submit(make_request("first", range(10), 20))
    talk.watched.engine.submit(make_request("harvest", range(10), 6, lane=Lane.HARVEST))
    talk.watched.step()
    talk.watched.engine.submit(make_request("large", range(20), 20))
    talk.watched.step()
    assert talk.watched.engine.report().num_preempted == 0
    talk.watched.finish()


def test_trimming_forgets_what_nobody_holds(talk: Callable[..., Talk], make_request: Make):
    talk = talk()
    talk.ask(range(21), namespace="a")
    talk.watched.engine.submit(make_request("running", range(9), 20))
    talk.watched.step()
    (runner,) = talk.watched.engine._runners.values()
    assert runner.prefixes.trim(["a"]) == 6
    assert runner.prefixes.trim() == 0
    talk.watched.finish()
    assert runner.prefixes.trim() > 0
    assert talk.watched.model.pool.num_free == 64


def test_turn_ends_are_found_in_the_prompt_alone(talk: Callable[..., Talk]):
    from memra.engine.conversation import choose_branch_points, fingerprint  # noqa: PLC0415

    prompt = np.array([1] * 300 + [END] + [2] * 5 + [END] + [3] * 2000 + [END] + [4] * 3 + [END, 5], np.int32)
    ends = frozenset({END})
    assert choose_branch_points(prompt, ends) == {301, 1024, 2048, 2308, 2312}
    assert fingerprint(prompt, ends) == fingerprint(prompt[:2310], ends) is not None
    assert fingerprint(prompt[:400], ends) is None
    other = prompt.copy()
    other[0] = 9
    assert fingerprint(other, ends) != fingerprint(prompt, ends)
    assert choose_branch_points(prompt[:10], frozenset()) == set()


@pytest.fixture
def handoff(tmp_path: Path) -> HostTierSettings:
    return HostTierSettings(memory_mb=1, handoff=tmp_path / "handoff")


@pytest.mark.parametrize("num_states", [0, 60])
@pytest.mark.parametrize("host_bytes", [0, 1 << 20])
def test_a_successor_goes_on_from_what_was_handed_to_it(
    talk: Callable[..., Talk], memory_store: Make, handoff: HostTierSettings, num_states: int, host_bytes: int
):
    room = 1 << 20 if not host_bytes else 6 * 2 * 4 * 8
    limits = EngineLimits(prefix_cache_bytes=room, host_tier=handoff)
    host = HostShares(memory_store(host_bytes), tenant_percent=100) if host_bytes else None
    first = talk(num_states=num_states, limits=limits, host=host)
    for token in range(3):
        first.ask([token] * 17, 2, namespace="n")
    report = first.watched.engine.export_prefixes()
    assert report.entries == 3 * 5 if num_states == 0 or not host_bytes else report.entries > 5
    second = talk(num_states=num_states, limits=limits, host=HostShares(memory_store(1 << 20), tenant_percent=100))
    assert second.watched.engine.import_prefixes().header_entries == report.entries
    assert not handoff.handoff.exists()
    second.watched.finish()
    assert second.watched.engine.report().prefix.host_entries >= report.entries
    for token in range(3):
        second.ask([token] * 17 + [21, 22], 2, namespace="n")
    assert second.num_computed <= 3 * (2 + 1)
    with pytest.raises(HandoffError, match="No such file"):
        second.watched.engine.import_prefixes()
    second.watched.engine.close()


def test_a_purge_while_a_file_is_read_leaves_out_what_is_to_come(
    talk: Callable[..., Talk], memory_store: Make, handoff: HostTierSettings
):
    limits = EngineLimits(prefix_cache_bytes=1 << 20, host_tier=handoff)
    first = talk(limits=limits)
    for namespace in ("t:a\x1fsalt", "t:b\x1fsalt", "t:a\x1flater"):
        first.ask(range(17), 2, namespace=namespace)
    report = first.watched.engine.export_prefixes()
    second = talk(limits=limits, host=HostShares(memory_store(1 << 20), tenant_percent=100))
    engine = second.watched.engine
    engine.import_prefixes()
    second.watched.step()
    engine.purge_tenant("a")
    second.watched.finish()
    [runner] = engine._runners.values()
    assert set(runner.prefixes.namespaces) == {"t:b\x1fsalt"}
    moved = engine.report().prefix.moved
    assert (moved.num_purges, moved.num_exports) == (1, 0)
    assert moved.num_imported + moved.num_import_skips == report.entries
    assert 0 < moved.num_import_skips < report.entries
    assert moved.num_imported_bytes > 0
    assert first.watched.engine.report().prefix.moved.num_exports == 1
    engine.close()


def test_an_export_is_refused_under_traffic_unless_forced(
    talk: Callable[..., Talk], make_request: Make, handoff: HostTierSettings
):
    talk = talk(limits=EngineLimits(prefix_cache_bytes=1 << 20, host_tier=handoff))
    talk.watched.engine.submit(make_request("running", range(9), 20))
    talk.watched.step()
    with pytest.raises(HandoffError, match="drain the server first"):
        talk.watched.engine.export_prefixes()
    assert talk.watched.engine.export_prefixes(force=True).entries == 3


def test_a_hand_off_needs_a_file_and_a_host_store(talk: Callable[..., Talk], memory_store: Make):
    talk = talk(host=HostShares(memory_store(100)))
    with pytest.raises(HandoffError, match="MEMRA_KV_HOST_HANDOFF"):
        talk.watched.engine.export_prefixes()
    with pytest.raises(HandoffError, match="MEMRA_KV_HOST_HANDOFF"):
        talk.watched.engine.import_prefixes()


def test_without_a_host_store_nothing_is_imported(talk: Callable[..., Talk], handoff: HostTierSettings):
    talk = talk(limits=EngineLimits(prefix_cache_bytes=1 << 20, host_tier=handoff))
    with pytest.raises(HandoffError, match="MEMRA_KV_HOST_MB"):
        talk.watched.engine.import_prefixes()


def test_purging_a_tenant_takes_all_its_salts_and_nobody_elses(
    talk: Callable[..., Talk], make_request: Make, memory_store: Make
):
    store = memory_store(1 << 20)
    limits = EngineLimits(prefix_cache_bytes=20 * 2 * 4 * 8)
    talk = talk(limits=limits, host=HostShares(store, tenant_percent=100))
    engine = talk.watched.engine
    for namespace in ("t:a", "t:a\x1fsalt", "t:b", "", "t:a\x1fother"):
        for token in range(2):
            talk.ask([token] * 17, 2, namespace=namespace)
    engine.submit(make_request("running", range(9), 20, namespace="t:a"))
    talk.watched.step()
    purged = engine.purge_tenant("a")
    assert (purged.namespaces, purged.device_pinned_left) == (3, 3)
    assert purged.host_entries > 0
    assert purged.device_entries > 0
    talk.watched.finish()
    (runner,) = engine._runners.values()
    assert set(runner.prefixes.namespaces) == {"t:a", "t:b", ""}
    assert engine.purge_tenant("a").device_pinned_left == 0
    assert set(runner.prefixes.namespaces) == {"t:b", ""}
    trimmed = engine.trim()
    assert trimmed.still_owned_bytes == 0
    assert trimmed.reclaimed_bytes > 0
    assert not store.blobs


def test_a_sequence_that_must_wait_takes_nothing_from_what_is_remembered(talk: Callable[..., Talk], make_request: Make):
    talk = talk(num_pages=16)
    talk.ask(range(17), 2)
    engine = talk.watched.engine
    engine.submit(make_request("running", [30] * 9, 20))
    talk.watched.step()
    engine.submit(make_request("large", [31] * 20, 40))
    for _ in range(5):
        talk.watched.step()
    assert engine.report().num_queued == 1
    assert engine.report().prefix.num_evictions == 0
    talk.watched.finish()
    assert engine.report().num_completed == 3
