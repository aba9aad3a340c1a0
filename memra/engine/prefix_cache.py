"""What one model remembers of sequences that ran: pages and recurrent states of known prefixes, in a tree.

Trade: finds how much of a prompt is known, takes in what was computed, and gives up what was used longest ago, to the
host store where there is one. Sequences share a node's page by holding it in the pool; a node whose page somebody
holds is never given up. Refuses to know queues, lanes and rows; called by `sequence_memory`, in the worker's thread.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from memra.engine.executor import Executor
from memra.engine.host_shares import HostShares
from memra.engine.page_pool import PagePool
from memra.engine.prefix_budget import PrefixBudget
from memra.engine.prefix_holdings import PrefixHoldings
from memra.engine.prefix_tree import PrefixMatch, PrefixNode, Snapshot

LCP_EDGES = (0, 1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Lower bounds, tokens, of the classes in which known prefixes are counted."""


@dataclass(slots=True)
class PrefixCounts:
    """What happened so far.

    Attributes:
        num_hits, num_misses: sequences that found something to go on from, and that did not.
        num_hit_tokens: prompt tokens that were not computed again.
        num_inserts, num_evictions: nodes that came, and that went or were moved to the host store.
        num_promotions: pages and states that came back from the host store.
        lcp_counts: sequences by length of their known prefix, classes begin at `LCP_EDGES`.
    """

    num_hits: int = 0
    num_misses: int = 0
    num_hit_tokens: int = 0
    num_inserts: int = 0
    num_evictions: int = 0
    num_promotions: int = 0
    lcp_counts: list[int] = field(default_factory=lambda: [0] * len(LCP_EDGES))

    def note_match(self, *, num_known: int, num_used: int) -> None:
        """Count a sequence that shares `num_known` tokens with what is remembered and goes on from `num_used`."""
        self.num_hits += num_used > 0
        self.num_misses += num_used == 0
        self.num_hit_tokens += num_used
        self.lcp_counts[bisect_left(LCP_EDGES, num_known + 1) - 1] += 1


class PrefixCache:
    """The prefixes of one model.

    Attributes:
        counts: what happened so far.
        holdings: what its nodes hold.
    """

    def __init__(
        self, executor: Executor, *, pages: PagePool, states: PagePool, budget: PrefixBudget, host: HostShares
    ) -> None:
        """Start with nothing known.

        Args:
            executor: holds the contents of pages and states.
            pages: accounts of its pages; a node holds its page once.
            states: accounts of its recurrent states; a snapshot holds its state once.
            budget: shared by all models; with a limit of 0 nothing is remembered.
            host: where what is evicted goes; shared by all models.
        """
        self.counts = PrefixCounts()
        self._executor = executor
        self._pages = pages
        self._states = states
        self._budget = budget
        self.holdings = PrefixHoldings(executor, pages=pages, states=states, budget=budget, host=host)
        budget.join(self)

    @property
    def is_on(self) -> bool:
        """Whether anything is remembered."""
        return self._budget.limit_bytes > 0

    @property
    def is_recurrent(self) -> bool:
        """Whether a prefix is of use only up to a snapshot."""
        return self._executor.num_states > 0

    def match(self, namespace: str, tokens: bytes) -> PrefixMatch:
        """Return the longest known prefix of tokens (int32, as bytes)."""
        return self.holdings.tree.match(namespace, tokens)

    def find_snapshot(self, match: PrefixMatch) -> Snapshot | None:
        """Return the last snapshot within a match."""
        ends = [(node, node.num_tokens) for node in match.path]
        if match.tail is not None:
            ends.append((match.tail, match.num_tail_tokens))
        for node, limit in reversed(ends):
            offset = max((offset for offset in node.snapshots if offset <= limit), default=None)
            if offset is not None:
                return node.snapshots[offset]
        return None

    def root(self, namespace: str) -> PrefixNode:
        """Return where a namespace begins."""
        return self.holdings.tree.root(namespace)

    def enter(self, parent: PrefixNode, tokens: bytes, page_id: int) -> PrefixNode:
        """Remember a page below a node; returns the node that has it, which may have had it before.

        Args:
            parent: a root, or a full node whose page is resident.
            tokens: int32 as bytes, a page or less.
            page_id: holds them; one more holder is added where the node takes it.
        """
        for child in parent.siblings_of(tokens):
            if child.tokens.startswith(tokens):
                if child.page_id is None and child.tokens == tokens:
                    self.holdings.make_resident(child, page_id)
                self.touch(child)
                return child
            if tokens.startswith(child.tokens):
                self._lengthen(child, tokens, page_id)
                return child
        node = self.holdings.add(parent, tokens)
        self.counts.num_inserts += 1
        self.holdings.hold_page(node, page_id)
        self.touch(node)
        return node

    def add_snapshot(self, node: PrefixNode, *, offset: int, state_id: int) -> Snapshot | None:
        """Remember the state after `offset` tokens of a node; None, and nothing held, when it is known already."""
        if offset in node.snapshots:
            return None
        snapshot = Snapshot(node, offset, None, self._budget.tick())
        node.snapshots[offset] = snapshot
        self.holdings.hold_state(snapshot, state_id)
        return snapshot

    def touch(self, node: PrefixNode) -> None:
        """Note that a prefix up to this node was used; also when somebody lets go of it."""
        now = self._budget.tick()
        used: PrefixNode | None = node
        while used is not None and used.parent is not None:
            used.last_used = now
            used = used.parent
        self.holdings.leaves.push(node)
        self.holdings.host.enlist(node)

    def touch_snapshot(self, snapshot: Snapshot) -> None:
        """Note that a snapshot was used; also when somebody lets go of it."""
        snapshot.last_used = self._budget.tick()
        self.holdings.snapshots.push(snapshot)

    def insert(self, parent: PrefixNode, tokens: bytes, page: bytes, states: Mapping[int, bytes]) -> PrefixNode | None:
        """Remember a page that was computed elsewhere, in the host store.

        Args:
            parent: a root, or a full node.
            tokens: int32 as bytes, a page or less.
            page: what an executor of the same model exported.
            states: exported too, by their offset in the page.

        Returns:
            The node that has it; None when there is no room, or when a longer or shorter page is known in its place.
        """
        for child in parent.siblings_of(tokens):
            if child.tokens == tokens:
                self.touch(child)
                return child
            if child.tokens.startswith(tokens) or tokens.startswith(child.tokens):
                return None
        node = self.holdings.add_demoted(parent, tokens, page)
        if node is None:
            return None
        self.counts.num_inserts += 1
        self.touch(node)
        for offset, data in states.items():
            self.holdings.add_demoted_snapshot(node, offset, data)
        return None if node.parent is None else node

    def promote(self, node: PrefixNode) -> bool:
        """Bring a node's page back from the host store; false when there is no room, or it is lost."""
        page_ids = self.allocate_pages(1)
        if page_ids is None:
            return False
        # Without a blob it is gone: room was made with it.
        data = None if node.blob is None else self.holdings.fetch_page(node)
        if data is not None:
            self._executor.import_page(page_ids[0], data)
            self.holdings.make_resident(node, page_ids[0])
            self.counts.num_promotions += 1
        self._pages.release(page_ids)
        return data is not None

    def promote_snapshot(self, snapshot: Snapshot) -> bool:
        """Bring a state back from the host store; false when there is no room, or it is lost."""
        state_ids = self.allocate_states(1)
        if state_ids is None:
            return False
        data = self.holdings.fetch_state(snapshot)
        if data is None:
            self.holdings.drop_snapshot(snapshot)
        else:
            self._executor.import_state(state_ids[0], data)
            self.holdings.hold_state(snapshot, state_ids[0])
            self.counts.num_promotions += 1
        self._states.release(state_ids)
        return data is not None

    def allocate_pages(self, num: int) -> tuple[int, ...] | None:
        """Take free pages, evicting what is remembered where there are too few.

        Returns:
            None, with nothing evicted, when even that would not be enough.
        """
        num_missing = num - self._pages.num_free
        if num_missing > 0 and self.holdings.count_free_pages() < num_missing:
            return None
        while self._pages.num_free < num and self._evict_leaf():
            pass
        return self._pages.allocate(num)

    def allocate_states(self, num: int) -> tuple[int, ...] | None:
        """Take free states, as `allocate_pages` takes pages."""
        while self._states.num_free < num and self._evict_snapshot():
            pass
        return self._states.allocate(num)

    def oldest_use(self) -> int | None:
        """Return the last use of what `evict_oldest` would give up."""
        candidates = (self.holdings.leaves.peek(), self.holdings.snapshots.peek())
        return min((item.last_used for item in candidates if item is not None), default=None)

    def evict_oldest(self) -> bool:
        """Give up the page or the state that was used longest ago."""
        leaf, snapshot = self.holdings.leaves.peek(), self.holdings.snapshots.peek()
        if snapshot is not None and (leaf is None or snapshot.last_used < leaf.last_used):
            return self._evict_snapshot()
        return self._evict_leaf()

    def trim(self, namespaces: Iterable[str] | None = None) -> int:
        """Forget what nobody holds, in the executor and in the host store; all namespaces unless some are named.

        Returns:
            How many nodes went.
        """
        names = self.holdings.tree.namespaces if namespaces is None else tuple(namespaces)
        num_dropped = 0
        for name in names:
            for node in reversed(list(self.holdings.tree.walk(name))):
                if not node.children and self.holdings.is_free(node):
                    self.holdings.drop(node)
                    num_dropped += 1
        return num_dropped

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces that hold something."""
        return self.holdings.tree.namespaces

    def close(self) -> None:
        """Forget everything: the model goes away; nobody may hold a page any more."""
        self.trim()
        self._budget.leave(self)
        self.holdings.close()

    def _evict_leaf(self) -> bool:
        """Move the page used longest ago to the host store, or forget it; false when all are in use."""
        while (node := self.holdings.leaves.pop()) is not None:
            if node.num_chances:
                node.num_chances -= 1
                node.last_used = self._budget.tick()
                self.holdings.leaves.push(node)
                continue
            self.counts.num_evictions += 1
            if not self.holdings.demote(node):
                self.holdings.drop_below(node)
            return True
        return False

    def _evict_snapshot(self) -> bool:
        snapshot = self.holdings.snapshots.pop()
        if snapshot is None:
            return False
        self.counts.num_evictions += 1
        if not self.holdings.demote_snapshot(snapshot):
            self.holdings.drop_snapshot(snapshot)
        return True

    def _lengthen(self, node: PrefixNode, tokens: bytes, page_id: int) -> None:
        """Let a partial node become the longer page that goes on from it."""
        node.tokens = tokens
        if node.page_id is None:
            self.holdings.make_resident(node, page_id)
        elif node.page_id != page_id:
            self._pages.retain((page_id,))
            self._pages.release((node.page_id,))
            node.page_id = page_id
        self.touch(node)
