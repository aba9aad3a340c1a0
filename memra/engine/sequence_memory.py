"""The pages and states of running sequences: room is given, what was computed is remembered, room is taken back.

Trade: between the scheduler, which knows who may run, and the accounts of pages, states and known prefixes. A sequence
gets room for all that it can ever need, so that it never runs out halfway, less what is known of its beginning already.
Refuses to know lanes and queues. One for each model, in the worker's thread.
"""

import logging
from bisect import insort
from collections import OrderedDict
from dataclasses import dataclass

from memra.engine.conversation import choose_branch_points, fingerprint
from memra.engine.host_shares import HostShares
from memra.engine.loaded_model import STATES_PER_SEQUENCE, LoadedModel
from memra.engine.prefix_budget import PrefixBudget
from memra.engine.prefix_cache import PrefixCache
from memra.engine.prefix_tree import PrefixMatch, PrefixNode, Snapshot
from memra.engine.sequence import NO_STATE, PageLease, Sequence

log = logging.getLogger(__name__)

_DECODE_INTERVAL_TOKENS = 256
"""Tokens of an answer after which its state is kept, for a client that interrupts it and goes on with a part of it."""
_MAX_CONVERSATIONS = 256
"""Conversations whose last prompt is spared one eviction; those that were heard of longest ago are forgotten."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What a sequence can go on from: pages to share, a page to copy, a state to read."""

    path: tuple[PrefixNode, ...] = ()
    tail: PrefixNode | None = None
    num_tokens: int = 0
    snapshot: Snapshot | None = None


class SequenceMemory:
    """Room for the sequences of one model."""

    def __init__(self, model: LoadedModel, *, budget: PrefixBudget, host: HostShares) -> None:
        """Start with all room free.

        Args:
            model: owns pools and executor.
            budget: for remembered prefixes, shared by all models.
            host: where evicted prefixes go, shared by all models.
        """
        self._model = model
        self._page_tokens = model.executor.page_tokens
        self.prefixes = PrefixCache(model.executor, pages=model.pool, states=model.states, budget=budget, host=host)
        # Looked at in every step.
        self._is_on, self._is_recurrent = self.prefixes.is_on, self.prefixes.is_recurrent
        self._budget = budget
        self._conversations: OrderedDict[tuple[str, str], PrefixNode] = OrderedDict()

    def lease(self, sequence: Sequence) -> PageLease | None:
        """Reserve room for a whole sequence.

        Returns:
            None, with nothing taken, when there is no room at the moment, remembered prefixes evicted.
        """
        known, match = self._find_known(sequence)
        lease = self._lease_beside(sequence, known)
        if lease is None:
            return None
        if sequence.num_starts == 0 and self.prefixes.is_on:
            self.prefixes.counts.note_match(num_known=match.num_tokens, num_used=lease.num_cached_tokens)
            self._note_conversation(sequence, match)
        return lease

    def count_remembering(self, sequences: list[Sequence]) -> int:
        """Return the pages that only keep prefixes, beside the sequences that run: they are given up for others."""
        # Sequences share pages through the prefix cache alone, so what two of them hold is remembered too.
        shared = {
            page for sequence in sequences for page in sequence.page_ids if self._model.pool.count_holders(page) > 1
        }
        return self.prefixes.holdings.num_pages - len(shared)

    def plan_branch_points(self, sequence: Sequence) -> None:
        """Choose where the sequence's state will be kept; for a sequence that was just started."""
        if not (self.prefixes.is_on and self.prefixes.is_recurrent):
            return
        prompt = sequence.read_tokens(0, sequence.num_tokens)
        points = choose_branch_points(prompt, sequence.request.eos_ids)
        # Others have gone this way before, and it is known now that ways part here.
        points.add(self.prefixes.match(sequence.request.namespace, prompt.tobytes()).num_tokens)
        ahead = (point for point in points if sequence.num_computed_tokens < point < sequence.num_tokens)
        sequence.branch_points = sorted(ahead)

    def add_branch_point(self, sequence: Sequence, position: int) -> None:
        """Keep the sequence's state at a position too; one that lies behind is ignored."""
        is_ahead = sequence.num_computed_tokens < position < sequence.num_tokens
        if self.prefixes.is_recurrent and is_ahead and position not in sequence.branch_points:
            insort(sequence.branch_points, position)

    def catch_up(self, sequence: Sequence) -> PageLease | None:
        """Return a lease with which a sequence that waited for another goes on from what that one has computed.

        Its old room is given back, so that what is shared is held once; None, and the old room kept, when nothing was
        gained.
        """
        known, _ = self._find_known(sequence)
        if known.num_tokens <= sequence.num_computed_tokens:
            return None
        known = self._bring_back(known)
        if known.num_tokens <= sequence.num_computed_tokens:
            return None
        self._hold(known)
        lease = self._lease_held(sequence, known)
        if lease is None:
            return None
        self.prefixes.counts.num_hit_tokens += known.num_tokens - sequence.num_computed_tokens
        self._return_room(sequence)
        return lease

    def accept(self, sequence: Sequence, num_rows: int) -> None:
        """Note that a step has computed the next rows of a sequence, and remember them."""
        if sequence.borrowed is not None:
            self._return_borrowed(sequence)
        sequence.mark_computed(num_rows)
        is_prompt_end = sequence.num_computed_tokens == len(sequence.request.prompt_ids)
        is_page_full = sequence.num_computed_tokens - sequence.num_known_tokens >= self._page_tokens
        if self._is_on and (is_prompt_end or is_page_full or self._is_recurrent):
            self._remember(sequence, is_prompt_end=is_prompt_end)

    def _remember(self, sequence: Sequence, *, is_prompt_end: bool) -> None:
        is_branch_point = bool(sequence.branch_points) and sequence.branch_points[0] <= sequence.num_computed_tokens
        if is_branch_point:
            del sequence.branch_points[0]
        if self._is_recurrent and (is_prompt_end or is_branch_point or _is_interval(sequence)):
            self._keep_state(sequence)
        else:
            self._publish(sequence, whole=is_prompt_end)
        if is_prompt_end:
            self._anchor(sequence)

    def release(self, sequence: Sequence) -> None:
        """Take the room of a sequence that ends or pauses back, and remember what it computed.

        A sequence without room is left alone.
        """
        if not sequence.page_ids:
            return
        last = sequence.node
        if self.prefixes.is_on and sequence.num_computed_tokens:
            last = self._publish(sequence, whole=True)
            if sequence.borrowed is None and sequence.state_in != NO_STATE and last is not None:
                offset = sequence.num_computed_tokens - last.depth * self._page_tokens
                self.prefixes.add_snapshot(last, offset=offset, state_id=sequence.state_in)
        self._return_room(sequence)
        for node in {id(node): node for node in (sequence.node, last) if node is not None}.values():
            self.prefixes.touch(node)
        if self.prefixes.is_on:
            self._touch_snapshots(last)
            self._budget.shrink()

    def check_integrity(self, sequences: list[Sequence]) -> None:
        """Compare the pools with the sequences that run and with what is remembered.

        Raises:
            IntegrityError: they disagree.
        """
        self.prefixes.holdings.check_integrity()
        self._model.pool.check_integrity(
            [*(sequence.page_ids for sequence in sequences), self.prefixes.holdings.held_pages()]
        )
        borrowed = [[sequence.state_in] for sequence in sequences if sequence.borrowed is not None]
        own = [sequence.state_ids for sequence in sequences]
        self._model.states.check_integrity([*own, *borrowed, self.prefixes.holdings.held_states()])

    def close(self) -> None:
        """Forget all prefixes; every sequence has been released."""
        self._conversations.clear()
        self.prefixes.close()

    def _find_known(self, sequence: Sequence) -> tuple[_Known, PrefixMatch]:
        """Return what the sequence can go on from, and how far it is known at all."""
        tokens = sequence.read_tokens(0, sequence.num_tokens - 1).tobytes()
        match = self.prefixes.match(sequence.request.namespace, tokens)
        if sequence.is_scoring:
            return _Known(), match  # what is not computed has no logits
        if not self.prefixes.is_recurrent:
            return _Known(match.path, match.tail, match.num_tokens), match
        snapshot = self.prefixes.find_snapshot(match)
        if snapshot is None:
            return _Known(), match
        node = snapshot.node
        num_tokens = node.depth * self._page_tokens + snapshot.offset
        is_whole = snapshot.offset == self._page_tokens
        path = match.path[: node.depth + 1] if is_whole else match.path[: node.depth]
        return _Known(path, None if is_whole else node, num_tokens, snapshot), match

    def _lease_beside(self, sequence: Sequence, known: _Known) -> PageLease | None:
        known = self._bring_back(known)
        self._hold(known)
        lease = self._lease_held(sequence, known)
        if lease is None and known.tail is not None:
            # A page to copy from is held beside the sequence's own, which may need every page that there is.
            known = self._cut(known, len(known.path))
            self._hold(known)
            lease = self._lease_held(sequence, known)
        return lease

    def _bring_back(self, known: _Known) -> _Known:
        """Bring what lies in the host store back into the executor, as far as there is room."""
        held: list[int] = []
        try:
            for index, node in enumerate(known.path):
                if node.page_id is None and not self.prefixes.promote(node):
                    return self._cut(known, index)
                assert node.page_id is not None  # noqa: S101  (it was promoted)
                self._model.pool.retain((node.page_id,))
                held.append(node.page_id)
            snapshot = known.snapshot
            if snapshot is not None and snapshot.state_id is None and not self.prefixes.promote_snapshot(snapshot):
                return self._cut(known, 0)
            if known.tail is not None and known.tail.page_id is None and not self.prefixes.promote(known.tail):
                return self._cut(known, len(known.path))
            return known
        finally:
            self._model.pool.release(held)

    def _cut(self, known: _Known, num_pages: int) -> _Known:
        """Go on from fewer pages; a recurrent model from none, for its snapshot lies further on."""
        if known.snapshot is not None:
            return _Known()
        return _Known(known.path[:num_pages], None, num_pages * self._page_tokens)

    def _hold(self, known: _Known) -> None:
        """Become a holder of everything known, so that making room evicts none of it."""
        self._model.pool.retain(_page_of(node) for node in known.path)
        if known.tail is not None:
            self._model.pool.retain((_page_of(known.tail),))
        if known.snapshot is not None:
            self._model.states.retain((_state_of(known.snapshot),))

    def _lease_held(self, sequence: Sequence, known: _Known) -> PageLease | None:
        """Make a lease of what is held and of fresh pages; gives all back when there is no room."""
        shared = tuple(_page_of(node) for node in known.path)
        fresh = self.prefixes.allocate_pages(self._model.count_pages(sequence.capacity_tokens) - len(shared))
        num_states = STATES_PER_SEQUENCE if self._model.states.num_pages else 0
        states = None if fresh is None else self.prefixes.allocate_states(num_states)
        if fresh is not None and states is not None and known.tail is not None:
            data = self.prefixes.holdings.fetch_page(known.tail)
            assert data is not None, "the page is resident and held"  # noqa: S101
            self._model.executor.import_page(fresh[0], data)
        if known.tail is not None:
            self._model.pool.release((_page_of(known.tail),))
            self.prefixes.touch(known.tail)
        if fresh is None or states is None:
            self._model.pool.release((*shared, *(fresh or ())))
            if known.snapshot is not None:
                self._model.states.release((_state_of(known.snapshot),))
            return None
        node = None
        if self.prefixes.is_on:
            node = known.path[-1] if known.path else self.prefixes.root(sequence.request.namespace)
        return PageLease((*shared, *fresh), known.num_tokens, states, known.snapshot, node)

    def _publish(self, sequence: Sequence, *, whole: bool) -> PrefixNode | None:
        """Remember the computed tokens page by page; the last, partial one too where `whole`."""
        end = sequence.num_computed_tokens
        node = sequence.node
        if node is not None and node.parent is None:
            node = self.prefixes.root(sequence.request.namespace)  # the old one may have gone with its last page
        while node is not None and sequence.num_known_tokens < end:
            start = sequence.num_known_tokens
            num = min(self._page_tokens, end - start)
            if num < self._page_tokens and not whole:
                break
            index = start // self._page_tokens
            tokens = sequence.read_tokens(start, num).tobytes()
            node = self.prefixes.enter(node, tokens, sequence.page_ids[index])
            if num < self._page_tokens:
                break
            self._share(sequence, index, node)
            sequence.node, sequence.num_known_tokens = node, start + num
        self._budget.shrink()
        return node

    def _share(self, sequence: Sequence, index: int, node: PrefixNode) -> None:
        """Use the page that is remembered, and let go of an own one of the same contents."""
        own, known = sequence.page_ids[index], _page_of(node)
        if own != known:
            self._model.pool.retain((known,))
            self._model.pool.release((own,))
            sequence.replace_page(index, known)

    def _keep_state(self, sequence: Sequence) -> None:
        """Leave the state after the computed tokens to the prefix cache, and go on from it with another of its own."""
        node = self._publish(sequence, whole=True)
        if node is None or node.parent is None or sequence.borrowed is not None:
            return
        offset = sequence.num_computed_tokens - node.depth * self._page_tokens
        if offset in node.snapshots:
            return
        fresh = self.prefixes.allocate_states(1)
        if fresh is None:
            return
        state = sequence.state_in
        snapshot = self.prefixes.add_snapshot(node, offset=offset, state_id=state)
        sequence.borrowed = snapshot
        sequence.state_ids = (*(other for other in sequence.state_ids if other != state), *fresh)
        self._budget.shrink()

    def _return_borrowed(self, sequence: Sequence) -> None:
        borrowed, sequence.borrowed = sequence.borrowed, None
        if borrowed is not None:
            # Its page may have gone since, and the snapshot with it: the state is known by who reads it.
            self._model.states.release((sequence.state_in,))
            self.prefixes.touch_snapshot(borrowed)

    def _return_room(self, sequence: Sequence) -> None:
        self._model.pool.release(sequence.page_ids)
        self._model.states.release(sequence.state_ids)
        self._return_borrowed(sequence)

    def _touch_snapshots(self, node: PrefixNode | None) -> None:
        if node is not None:
            for snapshot in node.snapshots.values():
                self.prefixes.touch_snapshot(snapshot)

    def _note_conversation(self, sequence: Sequence, match: PrefixMatch) -> None:
        """Find out which conversation the sequence goes on with, and say when it does not go on where that one stood.

        The name only nominates: what is gone on from is what the tokens share.
        """
        prompt = sequence.read_tokens(0, sequence.num_tokens)
        name = sequence.request.affinity or fingerprint(prompt, sequence.request.eos_ids)
        if name is None:
            return
        sequence.conversation = (sequence.request.namespace, name)
        checkpoint = self._conversations.get(sequence.conversation)
        if checkpoint is None or checkpoint.parent is None:
            return
        num_kept = (checkpoint.depth + 1) * self._page_tokens
        if match.num_tokens < num_kept:
            log.info(
                "request %s: history diverged at %d of checkpoint %d",
                sequence.request_id,
                match.num_tokens,
                num_kept,
            )

    def _anchor(self, sequence: Sequence) -> None:
        """Spare the way to the end of a conversation's last prompt one eviction: its next turn begins there."""
        if sequence.conversation is None or sequence.node is None or sequence.node.parent is None:
            return
        self._conversations.pop(sequence.conversation, None)
        self._conversations[sequence.conversation] = sequence.node
        sequence.node.num_chances = 1
        if len(self._conversations) > _MAX_CONVERSATIONS:
            self._conversations.popitem(last=False)


def _page_of(node: PrefixNode) -> int:
    assert node.page_id is not None, "only resident nodes are shared"  # noqa: S101
    return node.page_id


def _state_of(snapshot: Snapshot) -> int:
    assert snapshot.state_id is not None, "only resident states are shared"  # noqa: S101
    return snapshot.state_id


def _is_interval(sequence: Sequence) -> bool:
    num_answered = sequence.num_computed_tokens - len(sequence.request.prompt_ids)
    return num_answered > 0 and num_answered % _DECODE_INTERVAL_TOKENS == 0
