"""The tree of known prefixes: one root a namespace, one node a page of tokens, and no way from one root to another.

Knows tokens and structure only: the prefix cache decides what is kept, and holds the pages and states behind the nodes.
A node is full (as many tokens as a page) and may have children, or partial and a leaf. No node's tokens begin with all
of a sibling's, so a longer page replaces the shorter one that it goes on from.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from memra.engine.host_store import BlobHandle
from memra.errors import IntegrityError

TOKEN_BYTES = 4
"""Tokens are compared as the bytes of int32."""


@dataclass(slots=True, eq=False)
class Snapshot:
    """A recurrent state inside a node.

    Attributes:
        node: where it belongs.
        offset: tokens of the node that it has seen, at least 1.
        state_id: in the executor; None when it lies in the host store.
        blob: in the host store; None when it does not.
    """

    node: "PrefixNode"
    offset: int
    state_id: int | None
    last_used: int
    blob: BlobHandle | None = None


@dataclass(slots=True, eq=False)
class PrefixNode:
    """A page of tokens that follows all the pages above it.

    Attributes:
        tokens: int32, as bytes.
        parent: None for a root, which has no tokens and no page.
        depth: pages above it.
        page_id: in the executor; None when it lies in the host store, and for a root.
        blob: in the host store; None when it does not.
        num_resident: children that have a page in the executor.
        num_chances: evictions that it is spared, because a conversation is expected to go on here.
    """

    namespace: str
    tokens: bytes = b""
    parent: "PrefixNode | None" = None
    depth: int = 0
    page_id: int | None = None
    last_used: int = 0
    blob: BlobHandle | None = None
    children: dict[bytes, list["PrefixNode"]] = field(default_factory=dict)
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    num_resident: int = 0
    num_chances: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens of this page."""
        return len(self.tokens) // TOKEN_BYTES

    def siblings_of(self, tokens: bytes) -> list["PrefixNode"]:
        """Return the children that begin with the same token."""
        return self.children.get(tokens[:TOKEN_BYTES], [])


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """How far a prompt is known.

    Attributes:
        path: full nodes from the first page on.
        tail: the node whose first `num_tail_tokens` follow the path, or None.
        num_tokens: of path and tail together.
    """

    path: tuple[PrefixNode, ...]
    tail: PrefixNode | None
    num_tail_tokens: int
    num_tokens: int


class PrefixTree:
    """All namespaces of one model."""

    def __init__(self, page_tokens: int) -> None:
        """Start without namespaces.

        Args:
            page_tokens: tokens per page.
        """
        self.page_tokens = page_tokens
        self._page_bytes = page_tokens * TOKEN_BYTES
        self._roots: dict[str, PrefixNode] = {}

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces that hold something."""
        return tuple(self._roots)

    def root(self, namespace: str) -> PrefixNode:
        """Return the root of a namespace; it is made when there is none."""
        return self._roots.setdefault(namespace, PrefixNode(namespace))

    def match(self, namespace: str, tokens: bytes) -> PrefixMatch:
        """Return the longest known prefix of a sequence of tokens (int32, as bytes)."""
        path: list[PrefixNode] = []
        node = self._roots.get(namespace)
        tail, num_tail_tokens = None, 0
        while node is not None:
            start = len(path) * self._page_bytes
            page = tokens[start : start + self._page_bytes]
            node, tail, num_tail_tokens = self._descend(node, page)
            if node is not None:
                path.append(node)
        return PrefixMatch(tuple(path), tail, num_tail_tokens, len(path) * self.page_tokens + num_tail_tokens)

    def _descend(self, node: PrefixNode, page: bytes) -> tuple[PrefixNode | None, PrefixNode | None, int]:
        """Return the child that is this whole page; else the one that shares most of its beginning, and how much."""
        tail, num_shared = None, 0
        for child in node.siblings_of(page):
            if child.tokens == page and len(page) == self._page_bytes:
                return child, None, 0
            shared = count_shared_tokens(child.tokens, page)
            if shared > num_shared:
                tail, num_shared = child, shared
        return None, tail, num_shared

    def add(self, parent: PrefixNode, tokens: bytes) -> PrefixNode:
        """Add a page below a full node or a root; the caller has looked that no sibling covers it."""
        depth = 0 if parent.parent is None else parent.depth + 1
        node = PrefixNode(parent.namespace, tokens, parent, depth)
        parent.children.setdefault(tokens[:TOKEN_BYTES], []).append(node)
        return node

    def remove(self, node: PrefixNode) -> None:
        """Take out a node without children; a namespace goes with its last node."""
        parent = node.parent
        assert parent is not None, "a root is never removed by itself"  # noqa: S101
        siblings = parent.children[node.tokens[:TOKEN_BYTES]]
        siblings.remove(node)
        if not siblings:
            del parent.children[node.tokens[:TOKEN_BYTES]]
        node.parent = None
        if parent.parent is None and not parent.children:
            self._roots.pop(parent.namespace, None)

    def walk(self, namespace: str | None = None) -> Iterator[PrefixNode]:
        """Yield every node, parents first; roots are not among them."""
        names = self.namespaces if namespace is None else (namespace,)
        waiting = [self._roots[name] for name in names if name in self._roots]
        while waiting:
            node = waiting.pop()
            if node.parent is not None:
                yield node
            waiting += [child for siblings in node.children.values() for child in siblings]

    def check_integrity(self) -> None:
        """Compare the structure with its rules.

        Raises:
            IntegrityError: a node breaks one; it is named by namespace and depth.
        """
        for node in self.walk():
            complaint = self._find_fault(node)
            if complaint is not None:
                raise IntegrityError(f"prefix node at page {node.depth} of namespace {node.namespace!r} {complaint}")

    def _find_fault(self, node: PrefixNode) -> str | None:
        children = [child for siblings in node.children.values() for child in siblings]
        parent = node.parent
        assert parent is not None, "only roots have none, and they are not walked"  # noqa: S101
        covers = [other for other in parent.siblings_of(node.tokens) if other.tokens.startswith(node.tokens)]
        num_resident = sum(child.page_id is not None for child in children)
        faults = {
            "belongs to another namespace than its parent": node.namespace != parent.namespace,
            f"has {node.num_tokens} tokens": not 0 < len(node.tokens) <= self._page_bytes,
            "is partial and has children": bool(children) and len(node.tokens) < self._page_bytes,
            f"counts {node.num_resident} resident children": node.num_resident != num_resident,
            "has neither page nor blob, or both": (node.page_id is None) == (node.blob is None),
            "is resident below one that is not": node.page_id is not None
            and parent.parent is not None
            and parent.page_id is None,
            "has a snapshot outside of its tokens": not all(0 < one <= node.num_tokens for one in node.snapshots),
            "is covered by a sibling": covers != [node],
        }
        return next((fault for fault, is_there in faults.items() if is_there), None)


def count_shared_tokens(first: bytes, second: bytes) -> int:
    """Return how many leading tokens two sequences (int32, as bytes) share."""
    length = min(len(first), len(second))
    if first[:length] == second[:length]:
        return length // TOKEN_BYTES
    left, right = (np.frombuffer(tokens, np.int32, count=length // TOKEN_BYTES) for tokens in (first, second))
    return int(np.argmax(left != right))
