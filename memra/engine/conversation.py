"""Where a conversation may branch, and which conversation a prompt goes on with: read from its tokens alone.

A turn ends with a token that ends turns; history that is edited, regenerated or stripped of its thinking differs from
what was computed only after such a token. Pure functions; called by `sequence_memory` when a sequence is admitted.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

TURN_SPACING_TOKENS = 256
"""Turn ends nearer than this to the branch point before are passed over, the last two excepted."""
INTERVAL_TOKENS = 1024
"""Within a long turn a state is kept this often: its middle is then recomputed from at most so far back."""
_LAST_TURNS = 2
"""A regenerated or edited turn branches at one of these."""
_EDGE_TOKENS = 8
_LEADING_TURNS = 2
"""The system prompt and the first message tell conversations apart."""


def find_turn_ends(prompt_ids: NDArray[np.int32], end_ids: frozenset[int]) -> NDArray[np.int64]:
    """Return the positions after tokens that end turns, ascending; the prompt's own end is not among them."""
    if not end_ids:
        return np.empty(0, np.int64)
    ends = np.flatnonzero(np.isin(prompt_ids, np.fromiter(end_ids, np.int32, len(end_ids)))) + 1
    return ends[ends < prompt_ids.size]


def choose_branch_points(prompt_ids: NDArray[np.int32], end_ids: frozenset[int]) -> set[int]:
    """Return the positions at which a recurrent state is worth keeping.

    Args:
        prompt_ids: int32, one dimension.
        end_ids: tokens that end a turn.
    """
    ends = find_turn_ends(prompt_ids, end_ids).tolist()
    points = set(range(INTERVAL_TOKENS, prompt_ids.size, INTERVAL_TOKENS)) | set(ends[-_LAST_TURNS:])
    last = 0
    for end in ends:
        if end - last >= TURN_SPACING_TOKENS:
            points.add(end)
            last = end
    return points


def fingerprint(prompt_ids: NDArray[np.int32], end_ids: frozenset[int]) -> str | None:
    """Return a name for the conversation of a prompt that brings at least one finished exchange; None for others.

    Two prompts have one name when the edges of their first turns are equal: the first and last eight tokens each.
    """
    ends = find_turn_ends(prompt_ids, end_ids).tolist()
    if len(ends) <= _LEADING_TURNS:
        return None
    digest = hashlib.blake2b(digest_size=16)
    for start, end in zip([0, *ends], ends[:_LEADING_TURNS], strict=False):
        turn = prompt_ids[start:end]
        digest.update(turn[:_EDGE_TOKENS].tobytes() + b"|" + turn[-_EDGE_TOKENS:].tobytes())
    return digest.hexdigest()
