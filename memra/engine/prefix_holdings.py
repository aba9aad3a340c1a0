"""What the nodes of one model's prefix tree hold: pages and states in the executor, or blobs in the host store.

Trade: keeps the accounts of pools, budget and host store in step with the tree, whatever becomes of a node. Refuses to
know which node is wanted and which is in the way: that is the prefix cache's, its only caller.
"""

from collections.abc import Iterator

from memra.engine.executor import Executor
from memra.engine.host_shares import Demoted, HostShares
from memra.engine.page_pool import PagePool
from memra.engine.prefix_budget import PrefixBudget
from memra.engine.prefix_tree import PrefixNode, PrefixTree, Snapshot
from memra.engine.recency_queue import RecencyQueue
from memra.errors import IntegrityError


class PrefixHoldings:
    """The nodes' pages and states.

    Attributes:
        tree: the nodes.
        host: the model's part of the host store.
        leaves, snapshots: what may be given up by the executor, least recently used first.
        num_nodes: of the tree.
        num_pages: that nodes hold in the executor.
        page_bytes, state_bytes: size of an exported page and state; 0 where nothing is remembered.
    """

    def __init__(
        self, executor: Executor, *, pages: PagePool, states: PagePool, budget: PrefixBudget, host: HostShares
    ) -> None:
        """Start with nothing; see `PrefixCache` for the arguments."""
        self.tree = PrefixTree(executor.page_tokens)
        self.host = host.open_tier(self._drop_demoted)
        self.leaves = RecencyQueue[PrefixNode](self._can_evict)
        self.snapshots = RecencyQueue[Snapshot](self._can_evict_snapshot)
        self.num_nodes = 0
        self.num_pages = 0
        self._executor = executor
        self._pages = pages
        self._states = states
        self._budget = budget
        is_on = budget.limit_bytes > 0
        self.page_bytes = len(executor.export_pages([0])) if is_on else 0
        self.state_bytes = len(executor.export_state(0)) if is_on and executor.num_states else 0

    def add(self, parent: PrefixNode, tokens: bytes) -> PrefixNode:
        """Add a node that holds nothing yet."""
        self.num_nodes += 1
        return self.tree.add(parent, tokens)

    def hold_page(self, node: PrefixNode, page_id: int) -> None:
        """Let a node hold a page, which gets one more holder."""
        assert node.parent is not None  # noqa: S101  (a root has no page)
        self._pages.retain((page_id,))
        node.page_id = page_id
        node.parent.num_resident += 1
        self.num_pages += 1
        self._budget.num_bytes += self.page_bytes

    def hold_state(self, snapshot: Snapshot, state_id: int) -> None:
        """Let a snapshot hold a state, which gets one more holder, in place of its blob."""
        self._states.retain((state_id,))
        if snapshot.blob is not None:
            self.host.free(snapshot.node.namespace, snapshot.blob)
            snapshot.blob = None
        snapshot.state_id = state_id
        self._budget.num_bytes += self.state_bytes
        self.snapshots.push(snapshot)

    def add_demoted(self, parent: PrefixNode, tokens: bytes, page: bytes) -> PrefixNode | None:
        """Add a node whose page lies in the host store; None when there is no room."""
        is_root = parent.parent is None
        blob = self.host.put(parent.namespace, page) if self.host.is_on else None
        if blob is None:
            return None
        if is_root:
            parent = self.tree.root(parent.namespace)
        elif parent.parent is None:  # room was made with it
            self.host.free(parent.namespace, blob)
            return None
        node = self.add(parent, tokens)
        node.blob = blob
        return node

    def add_demoted_snapshot(self, node: PrefixNode, offset: int, state: bytes) -> None:
        """Add a snapshot whose state lies in the host store, where there is room."""
        blob = self.host.put(node.namespace, state) if node.parent is not None else None
        if blob is None:
            return
        if node.parent is None:  # room was made with it
            self.host.free(node.namespace, blob)
            return
        snapshot = node.snapshots[offset] = Snapshot(node, offset, None, self._budget.tick(), blob)
        self.host.enlist(snapshot)

    def held_pages(self) -> list[int]:
        """Return the pages that nodes hold; a walk over the tree."""
        return [node.page_id for node in self.tree.walk() if node.page_id is not None]

    def count_free_pages(self) -> int:
        """Return the pages that nobody else holds; a walk over the tree."""
        return sum(self._pages.count_holders(page_id) == 1 for page_id in self.held_pages())

    def held_states(self) -> list[int]:
        """Return the states that snapshots hold; a walk over the tree."""
        return [
            snapshot.state_id
            for node in self.tree.walk()
            for snapshot in node.snapshots.values()
            if snapshot.state_id is not None
        ]

    def walk(self, namespace: str | None = None) -> Iterator[PrefixNode]:
        """Yield every node, of all namespaces or of one, parents first."""
        return self.tree.walk(namespace)

    def count_bytes(self, node: PrefixNode) -> int:
        """Return the bytes of a node's page and states, wherever they lie."""
        return self.page_bytes + len(node.snapshots) * self.state_bytes

    def close(self) -> None:
        """Leave the host store; nothing is held any more."""
        self.host.close()

    def check_integrity(self) -> None:
        """Compare tree and counts.

        Raises:
            IntegrityError: they disagree.
        """
        self.tree.check_integrity()
        num_nodes = sum(1 for _ in self.tree.walk())
        if num_nodes != self.num_nodes:
            raise IntegrityError(f"{num_nodes} prefix nodes are there, but {self.num_nodes} are counted")
        num_pages = len(self.held_pages())
        if num_pages != self.num_pages:
            raise IntegrityError(f"prefix nodes hold {num_pages} pages, but {self.num_pages} are counted")

    def let_page_go(self, node: PrefixNode) -> None:
        """Take a page from its node; the caller gives it a blob or drops it."""
        assert node.parent is not None  # noqa: S101  (a root has no page)
        assert node.page_id is not None  # noqa: S101
        self._pages.release((node.page_id,))
        node.page_id = None
        self._budget.num_bytes -= self.page_bytes
        node.parent.num_resident -= 1
        self.num_pages -= 1
        if node.parent.num_resident == 0:
            self.leaves.push(node.parent)

    def make_resident(self, node: PrefixNode, page_id: int) -> None:
        """Let a node hold a page in place of its blob."""
        if node.blob is not None:
            self.host.free(node.namespace, node.blob)
            node.blob = None
        self.hold_page(node, page_id)

    def fetch_page(self, node: PrefixNode) -> bytes | None:
        """Return the bytes of a node's page, wherever they lie; None when they are lost, and the node with them."""
        if node.page_id is not None:
            return self._executor.export_pages([node.page_id])
        assert node.blob is not None  # noqa: S101  (a node has a page or a blob)
        data = self.host.get(node.blob)
        if data is None:
            self.drop_below(node)
        return data

    def fetch_state(self, snapshot: Snapshot) -> bytes | None:
        """Return the bytes of a state, wherever they lie; None when they are lost."""
        if snapshot.state_id is not None:
            return self._executor.export_state(snapshot.state_id)
        return None if snapshot.blob is None else self.host.get(snapshot.blob)

    def demote(self, node: PrefixNode) -> bool:
        """Move a node's page to the host store; its snapshots follow when they are evicted themselves."""
        assert node.page_id is not None  # noqa: S101  (only such nodes are candidates)
        if not self.host.is_on:
            return False
        blob = self.host.put(node.namespace, self._executor.export_pages([node.page_id]))
        if blob is None:
            return False
        self.let_page_go(node)
        node.blob = blob
        self.host.enlist(node)
        return True

    def demote_snapshot(self, snapshot: Snapshot) -> bool:
        """Move a state to the host store; false, and nothing done, when there is no room."""
        assert snapshot.state_id is not None  # noqa: S101  (only such snapshots are candidates)
        if not self.host.is_on:
            return False
        namespace = snapshot.node.namespace
        blob = self.host.put(namespace, self._executor.export_state(snapshot.state_id))
        if blob is None:
            return False
        if snapshot.node.snapshots.get(snapshot.offset) is not snapshot:
            self.host.free(namespace, blob)  # room was made by dropping its own node
            return True
        self._states.release((snapshot.state_id,))
        self._budget.num_bytes -= self.state_bytes
        snapshot.state_id, snapshot.blob = None, blob
        self.host.enlist(snapshot)
        return True

    def drop_below(self, node: PrefixNode) -> None:
        """Forget a node with all that follows it, which lies in the host store."""
        waiting, below = [node], []
        while waiting:
            below.append(waiting.pop())
            waiting += [child for siblings in below[-1].children.values() for child in siblings]
        for one in reversed(below):
            self.drop(one)

    def drop(self, node: PrefixNode) -> None:
        """Forget a node, which has no children, with its snapshots."""
        for snapshot in list(node.snapshots.values()):
            self.drop_snapshot(snapshot)
        if node.page_id is not None:
            self.let_page_go(node)
        elif node.blob is not None:
            self.host.free(node.namespace, node.blob)
            node.blob = None
        parent = node.parent
        self.tree.remove(node)
        self.num_nodes -= 1
        if parent is not None and parent.parent is not None:
            self.host.enlist(parent)

    def drop_snapshot(self, snapshot: Snapshot) -> None:
        """Forget a state; one that went already, when room was made, is left alone."""
        if snapshot.node.snapshots.get(snapshot.offset) is not snapshot:
            return
        if snapshot.state_id is not None:
            self._states.release((snapshot.state_id,))
            self._budget.num_bytes -= self.state_bytes
        elif snapshot.blob is not None:
            self.host.free(snapshot.node.namespace, snapshot.blob)
        snapshot.state_id = snapshot.blob = None  # whoever found it before may still look at it
        del snapshot.node.snapshots[snapshot.offset]

    def is_free(self, node: PrefixNode) -> bool:
        """Whether nobody else holds a node's page and states."""
        is_page_free = node.page_id is None or self._pages.count_holders(node.page_id) == 1
        return is_page_free and all(
            snapshot.state_id is None or self._states.count_holders(snapshot.state_id) == 1
            for snapshot in node.snapshots.values()
        )

    def _drop_demoted(self, item: Demoted) -> None:
        """Forget what lies in the host store, for its room there."""
        if isinstance(item, Snapshot):
            self.drop_snapshot(item)
        else:
            self.drop(item)

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
