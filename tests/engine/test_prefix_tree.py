from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memra.engine.prefix_tree import PrefixNode, PrefixTree, Snapshot, count_shared_tokens
from memra.engine.recency_queue import RecencyQueue
from memra.errors import IntegrityError

PAGE = 4


def _bytes(tokens: Sequence[int]) -> bytes:
    return np.array(tokens, np.int32).tobytes()


def _enter(tree: PrefixTree, namespace: str, tokens: Sequence[int]) -> list[PrefixNode]:
    node, nodes = tree.root(namespace), []
    for start in range(0, len(tokens), PAGE):
        page = _bytes(tokens[start : start + PAGE])
        found = [child for child in node.siblings_of(page) if child.tokens == page]
        node = found[0] if found else tree.add(node, page)
        node.page_id = 0
        nodes.append(node)
    return nodes


@given(st.lists(st.integers(0, 3), max_size=9), st.lists(st.integers(0, 3), max_size=9))
def test_shared_tokens_are_counted_one_by_one(first: list[int], second: list[int]):
    expected = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    expected = min(len(first), len(second)) if expected is None else expected
    assert count_shared_tokens(_bytes(first), _bytes(second)) == expected


def test_tokens_that_share_bytes_but_not_their_value_are_different():
    assert count_shared_tokens(_bytes([1, 0x0101]), _bytes([1, 0x0201])) == 1


def test_a_match_goes_down_whole_pages_and_ends_inside_one():
    tree = PrefixTree(PAGE)
    nodes = _enter(tree, "", range(10))
    match = tree.match("", _bytes([*range(9), 99]))
    assert (match.path, match.tail, match.num_tail_tokens, match.num_tokens) == (tuple(nodes[:2]), nodes[2], 1, 9)


def test_the_branch_that_shares_most_is_taken():
    tree = PrefixTree(PAGE)
    _enter(tree, "", [1, 2, 3, 4])
    longer = _enter(tree, "", [1, 2, 5, 6])
    match = tree.match("", _bytes([1, 2, 5, 7]))
    assert (match.tail, match.num_tokens) == (longer[0], 3)


def test_what_is_known_in_one_namespace_is_unknown_in_another():
    tree = PrefixTree(PAGE)
    _enter(tree, "a", range(8))
    assert tree.match("b", _bytes(range(8))).num_tokens == 0
    assert tree.namespaces == ("a",)


def test_a_namespace_goes_with_its_last_node():
    tree = PrefixTree(PAGE)
    for node in reversed(_enter(tree, "a", range(8))):
        tree.remove(node)
    assert tree.namespaces == ()
    assert list(tree.walk()) == []


@pytest.mark.parametrize(
    ("complaint", "spoil"),
    [
        ("counts 1 resident children", lambda nodes: setattr(nodes[2], "num_resident", 1)),
        ("has neither page nor blob", lambda nodes: setattr(nodes[1], "blob", 5)),
        ("another namespace", lambda nodes: setattr(nodes[0], "namespace", "b")),
        ("snapshot outside", lambda nodes: nodes[2].snapshots.update({3: Snapshot(nodes[2], 3, 0, 1)})),
        ("has 0 tokens", lambda nodes: setattr(nodes[2], "tokens", b"")),
    ],
)
def test_check_integrity_names_the_broken_rule(complaint: str, spoil: Callable[[list[PrefixNode]], object]):
    tree = PrefixTree(PAGE)
    nodes = _enter(tree, "a", range(10))
    for parent in nodes[:2]:
        parent.num_resident = 1
    tree.root("a").num_resident = 1
    tree.check_integrity()
    spoil(nodes)
    with pytest.raises(IntegrityError, match=complaint):
        tree.check_integrity()


def test_check_integrity_finds_a_page_that_a_sibling_covers():
    tree = PrefixTree(PAGE)
    _enter(tree, "", [1, 2])
    _enter(tree, "", [1, 2, 3])
    tree.root("").num_resident = 2
    with pytest.raises(IntegrityError, match="covered by a sibling"):
        tree.check_integrity()


@dataclass(eq=False)
class Item:
    name: str
    last_used: int = 0
    is_free: bool = True


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["use", "hold", "free", "pop"])), max_size=300))
def test_the_queue_gives_the_free_item_used_longest_ago(actions: list[tuple[str, str]]):
    items = {name: Item(name, index) for index, name in enumerate("abcdef")}
    queue = RecencyQueue[Item](lambda item: item.is_free)
    gone: set[str] = set()
    for item in items.values():
        queue.push(item)
    for now, (name, action) in enumerate(actions, 100):
        item = items[name]
        if action == "use":
            item.last_used = now
            queue.push(item)
            gone.discard(name)
        elif action == "hold":
            item.is_free = False
        elif action == "free":
            item.is_free = True
            queue.push(item)
            gone.discard(name)
        else:
            expected = [one for one in items.values() if one.is_free and one.name not in gone]
            popped = queue.pop()
            assert popped is min(expected, key=lambda one: one.last_used, default=None)
            if popped is not None:
                popped.is_free = False
                gone.add(popped.name)
