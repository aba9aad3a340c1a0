"""What one model remembers of sequences that ran: pages and recurrent states of known prefixes, in a tree.

Trade: finds how much of a prompt is known, takes in what was computed, and gives up what was used longest ago, to the
host store where there is one. Sequences share a node's page by holding it in the pool; a node whose page somebody
holds is never given up. Refuses to know queues, lanes and rows; called by `sequence_memory`, in the worker's thread.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from memra.engine.executor import Executor
from memra.engine.host_shares import Demoted, HostShares
from memra.engine.page_pool import PagePool
from memra.engine.prefix_budget import PrefixBudget
from memra.engine.prefix_tree import PrefixMatch, PrefixNode, PrefixTree, Snapshot
from memra.engine.recency_queue import RecencyQueue
from memra.errors import IntegrityError

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
        num_entries: nodes of the tree.
        page_bytes, state_bytes: size of an exported page and state; 0 where nothing is remembered.
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
        self._host = host.open_tier(self._drop_demoted)
        self._tree = PrefixTree(executor.page_tokens)
        self.page_bytes = len(executor.export_pages([0])) if budget.limit_bytes else 0
        self.state_bytes = len(executor.export_state(0)) if budget.limit_bytes and executor.num_states else 0
        self._leaves = RecencyQueue[PrefixNode](self._can_evict)
        self._snapshots = RecencyQueue[Snapshot](self._can_evict_snapshot)
        self.num_entries = 0
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
        return self._tree.match(namespace, tokens)

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
        return self._tree.root(namespace)

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
                    self._make_resident(child, page_id)
                self.touch(child)
                return child
            if tokens.startswith(child.tokens):
                self._lengthen(child, tokens, page_id)
                return child
        node = self._tree.add(parent, tokens)
        self.num_entries += 1
        self.counts.num_inserts += 1
        self._hold_page(node, page_id)
        self.touch(node)
        return node

    def add_snapshot(self, node: PrefixNode, *, offset: int, state_id: int) -> Snapshot | None:
        """Remember the state after `offset` tokens of a node; None, and nothing held, when it is known already."""
        if offset in node.snapshots:
            return None
        self._states.retain((state_id,))
        snapshot = Snapshot(node, offset, state_id, self._budget.tick())
        node.snapshots[offset] = snapshot
        self._budget.num_bytes += self.state_bytes
        self._snapshots.push(snapshot)
        return snapshot

    def touch(self, node: PrefixNode) -> None:
        """Note that a prefix up to this node was used; also when somebody lets go of it."""
        now = self._budget.tick()
        used: PrefixNode | None = node
        while used is not None and used.parent is not None:
            used.last_used = now
            used = used.parent
        self._leaves.push(node)
        self._host.enlist(node)

    def touch_snapshot(self, snapshot: Snapshot) -> None:
        """Note that a snapshot was used; also when somebody lets go of it."""
        snapshot.last_used = self._budget.tick()
        self._snapshots.push(snapshot)

    def fetch_page(self, node: PrefixNode) -> bytes | None:
        """Return the bytes of a node's page, wherever they lie; None when they are lost, and the node with them."""
        if node.page_id is not None:
            return self._executor.export_pages([node.page_id])
        assert node.blob is not None  # noqa: S101  (a node has a page or a blob)
        data = self._host.get(node.blob)
        if data is None:
            self._drop_below(node)
        return data

    def fetch_state(self, snapshot: Snapshot) -> bytes | None:
        """Return the bytes of a state, wherever they lie; None when they are lost."""
        if snapshot.state_id is not None:
            return self._executor.export_state(snapshot.state_id)
        return None if snapshot.blob is None else self._host.get(snapshot.blob)

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
        is_root = parent.parent is None
        blob = self._host.put(parent.namespace, page) if self._host.is_on else None
        if blob is None:
            return None
        if is_root:
            parent = self._tree.root(parent.namespace)
        elif parent.parent is None:  # room was made with it
            self._host.free(parent.namespace, blob)
            return None
        node = self._tree.add(parent, tokens)
        node.blob = blob
        self.num_entries += 1
        self.counts.num_inserts += 1
        self.touch(node)
        for offset, data in states.items():
            self._insert_snapshot(node, offset, data)
        return None if node.parent is None else node

    def _insert_snapshot(self, node: PrefixNode, offset: int, data: bytes) -> None:
        blob = self._host.put(node.namespace, data) if node.parent is not None else None
        if blob is None:
            return
        if node.parent is None:  # room was made with it
            self._host.free(node.namespace, blob)
            return
        snapshot = Snapshot(node, offset, None, self._budget.tick(), blob)
        node.snapshots[offset] = snapshot
        self._host.enlist(snapshot)

    def promote(self, node: PrefixNode) -> bool:
        """Bring a node's page back from the host store; false when there is no room, or it is lost."""
        page_ids = self.allocate_pages(1)
        if page_ids is None:
            return False
        data = self.fetch_page(node)
        if data is None:
            self._pages.release(page_ids)
            return False
        self._executor.import_page(page_ids[0], data)
        self._make_resident(node, page_ids[0])
        self._pages.release(page_ids)
        self.counts.num_promotions += 1
        return True

    def promote_snapshot(self, snapshot: Snapshot) -> bool:
        """Bring a state back from the host store; false when there is no room, or it is lost."""
        state_ids = self.allocate_states(1)
        if state_ids is None:
            return False
        data = None if snapshot.blob is None else self._host.get(snapshot.blob)
        if data is None or snapshot.blob is None:
            self._states.release(state_ids)
            self._drop_snapshot(snapshot)
            return False
        self._executor.import_state(state_ids[0], data)
        self._host.free(snapshot.node.namespace, snapshot.blob)
        snapshot.blob, snapshot.state_id = None, state_ids[0]
        self._budget.num_bytes += self.state_bytes
        self.counts.num_promotions += 1
        self.touch_snapshot(snapshot)
        return True

    def allocate_pages(self, num: int) -> tuple[int, ...] | None:
        """Take free pages, evicting what is remembered where there are too few; None when even that is not enough."""
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
        candidates = (self._leaves.peek(), self._snapshots.peek())
        return min((item.last_used for item in candidates if item is not None), default=None)

    def evict_oldest(self) -> bool:
        """Give up the page or the state that was used longest ago."""
        leaf, snapshot = self._leaves.peek(), self._snapshots.peek()
        if snapshot is not None and (leaf is None or snapshot.last_used < leaf.last_used):
            return self._evict_snapshot()
        return self._evict_leaf()

    def trim(self, namespaces: Iterable[str] | None = None) -> int:
        """Forget what nobody holds, in the executor and in the host store; all namespaces unless some are named.

        Returns:
            How many nodes went.
        """
        names = self._tree.namespaces if namespaces is None else tuple(namespaces)
        num_dropped = 0
        for name in names:
            for node in reversed(list(self._tree.walk(name))):
                if not node.children and self._is_free(node):
                    self._drop(node)
                    num_dropped += 1
        return num_dropped

    @property
    def num_host_blobs(self) -> int:
        """Pages and states that lie in the host store."""
        return self._host.num_blobs

    def walk(self, namespace: str | None = None) -> Iterator[PrefixNode]:
        """Yield every node, of all namespaces or of one, parents first."""
        return self._tree.walk(namespace)

    def count_bytes(self, node: PrefixNode) -> int:
        """Return the bytes of a node's page and states, wherever they lie."""
        return self.page_bytes + len(node.snapshots) * self.state_bytes

    @property
    def host_bytes(self) -> int:
        """Bytes of this model in the host store."""
        return self._host.num_bytes

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces that hold something."""
        return self._tree.namespaces

    def close(self) -> None:
        """Forget everything: the model goes away; nobody may hold a page any more."""
        self.trim()
        self._budget.leave(self)
        self._host.close()

    def held_pages(self) -> list[int]:
        """Return the pages that the tree holds, for the comparison of books."""
        return [node.page_id for node in self._tree.walk() if node.page_id is not None]

    def held_states(self) -> list[int]:
        """Return the states that the tree holds."""
        return [
            snapshot.state_id
            for node in self._tree.walk()
            for snapshot in node.snapshots.values()
            if snapshot.state_id is not None
        ]

    @property
    def num_bytes(self) -> int:
        """Bytes of the pages and states that the tree holds in the executor; a walk over it."""
        return len(self.held_pages()) * self.page_bytes + len(self.held_states()) * self.state_bytes

    def check_integrity(self) -> None:
        """Compare tree and counts.

        Raises:
            IntegrityError: they disagree.
        """
        self._tree.check_integrity()
        num_nodes = sum(1 for _ in self._tree.walk())
        if num_nodes != self.num_entries:
            raise IntegrityError(f"{num_nodes} prefix nodes are there, but {self.num_entries} are counted")

    def _can_evict(self, node: PrefixNode) -> bool:
        return (
            node.parent is not None
            and node.page_id is not None
            and node.num_resident == 0
            and self._pages.count_holders(node.page_id) == 1
        )

    def _can_evict_snapshot(self, snapshot: Snapshot) -> bool:
        is_known = snapshot.node.snapshots.get(snapshot.offset) is snapshot
        return is_known and snapshot.state_id is not None and self._states.count_holders(snapshot.state_id) == 1

    def _is_free(self, node: PrefixNode) -> bool:
        is_page_free = node.page_id is None or self._pages.count_holders(node.page_id) == 1
        return is_page_free and all(
            snapshot.state_id is None or self._states.count_holders(snapshot.state_id) == 1
            for snapshot in node.snapshots.values()
        )

    def _evict_leaf(self) -> bool:
        """Move the page used longest ago to the host store, or forget it; false when all are in use."""
        while (node := self._leaves.pop()) is not None:
            if node.num_chances:
                node.num_chances -= 1
                node.last_used = self._budget.tick()
                self._leaves.push(node)
                continue
            self.counts.num_evictions += 1
            if not self._demote(node):
                self._drop_below(node)
            return True
        return False

    def _evict_snapshot(self) -> bool:
        snapshot = self._snapshots.pop()
        if snapshot is None:
            return False
        self.counts.num_evictions += 1
        if not self._demote_snapshot(snapshot):
            self._drop_snapshot(snapshot)
        return True

    def _demote(self, node: PrefixNode) -> bool:
        """Move a node's page to the host store; its snapshots follow when they are evicted themselves."""
        assert node.page_id is not None  # noqa: S101  (only such nodes are candidates)
        if not self._host.is_on:
            return False
        blob = self._host.put(node.namespace, self._executor.export_pages([node.page_id]))
        if blob is None:
            return False
        self._let_page_go(node)
        node.blob = blob
        self._host.enlist(node)
        return True

    def _demote_snapshot(self, snapshot: Snapshot) -> bool:
        assert snapshot.state_id is not None  # noqa: S101  (only such snapshots are candidates)
        if not self._host.is_on:
            return False
        namespace = snapshot.node.namespace
        blob = self._host.put(namespace, self._executor.export_state(snapshot.state_id))
        if blob is None:
            return False
        if snapshot.node.snapshots.get(snapshot.offset) is not snapshot:
            self._host.free(namespace, blob)  # room was made by dropping its own node
            return True
        self._states.release((snapshot.state_id,))
        self._budget.num_bytes -= self.state_bytes
        snapshot.state_id, snapshot.blob = None, blob
        self._host.enlist(snapshot)
        return True

    def _drop_demoted(self, item: Demoted) -> None:
        """Forget what lies in the host store, for its room there."""
        if isinstance(item, Snapshot):
            self._drop_snapshot(item)
        else:
            self._drop(item)

    def _drop_below(self, node: PrefixNode) -> None:
        """Forget a node with all that follows it, which lies in the host store."""
        waiting, below = [node], []
        while waiting:
            below.append(waiting.pop())
            waiting += [child for siblings in below[-1].children.values() for child in siblings]
        for one in reversed(below):
            self._drop(one)

    def _drop(self, node: PrefixNode) -> None:
        """Forget a node, which has no children, with its snapshots."""
        for snapshot in list(node.snapshots.values()):
            self._drop_snapshot(snapshot)
        if node.page_id is not None:
            self._let_page_go(node)
        elif node.blob is not None:
            self._host.free(node.namespace, node.blob)
            node.blob = None
        parent = node.parent
        self._tree.remove(node)
        self.num_entries -= 1
        if parent is not None and parent.parent is not None:
            self._host.enlist(parent)

    def _drop_snapshot(self, snapshot: Snapshot) -> None:
        if snapshot.state_id is not None:
            self._states.release((snapshot.state_id,))
            self._budget.num_bytes -= self.state_bytes
        elif snapshot.blob is not None:
            self._host.free(snapshot.node.namespace, snapshot.blob)
        del snapshot.node.snapshots[snapshot.offset]

    def _lengthen(self, node: PrefixNode, tokens: bytes, page_id: int) -> None:
        """Let a partial node become the longer page that goes on from it."""
        node.tokens = tokens
        if node.page_id is None:
            self._make_resident(node, page_id)
        elif node.page_id != page_id:
            self._pages.retain((page_id,))
            self._pages.release((node.page_id,))
            node.page_id = page_id
        self.touch(node)

    def _make_resident(self, node: PrefixNode, page_id: int) -> None:
        if node.blob is not None:
            self._host.free(node.namespace, node.blob)
            node.blob = None
        self._hold_page(node, page_id)

    def _hold_page(self, node: PrefixNode, page_id: int) -> None:
        assert node.parent is not None  # noqa: S101  (a root has no page)
        self._pages.retain((page_id,))
        node.page_id = page_id
        node.parent.num_resident += 1
        self._budget.num_bytes += self.page_bytes

    def _let_page_go(self, node: PrefixNode) -> None:
        assert node.parent is not None  # noqa: S101  (a root has no page)
        assert node.page_id is not None  # noqa: S101
        self._pages.release((node.page_id,))
        node.page_id = None
        self._budget.num_bytes -= self.page_bytes
        node.parent.num_resident -= 1
        if node.parent.num_resident == 0:
            self._leaves.push(node.parent)
