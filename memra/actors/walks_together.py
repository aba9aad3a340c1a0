"""The answers of one request on their way in: all are sized before the first is computed, and their account is one.

Trade: the order in which `request_walk`s go on, and their sums. Refuses to know stations, and how replies are read.
Called by the bridge.
"""

from collections.abc import Sequence
from functools import partial

from memra.actors.account import Account
from memra.actors.account_items import Item
from memra.actors.contract import Reply
from memra.actors.request_walk import RequestWalk
from memra.messages.generation import Usage


async def walk_in(walks: Sequence[RequestWalk], account: Account) -> list[Reply]:
    """Bring all answers of a request to the worker, and return their replies; whoever calls this leaves all walks.

    All are prepared before the first one is computed, so that their account knows the worst case of them together, and
    one prompt that is refused costs nobody anything.

    Raises:
        RequestError: one of them is refused, or the account does not cover them.
    """
    for walk in walks:
        await walk.prepare()
    worst = [walk.worst_case for walk in walks]
    item = Item(
        sum(each.prompt_tokens for each in worst),
        sum(each.completion_bound for each in worst),
        sum(each.context_tokens for each in worst),
    )
    await walks[0].in_time(partial(account.hold, [item]))
    return [await walk.proceed(account) for walk in walks]


def usage_of(walks: Sequence[RequestWalk]) -> Usage | None:
    """Return what all answers of a request spent so far; None while the worker has none of them."""
    spent = [usage for walk in walks if (usage := walk.usage) is not None]
    if len(spent) <= 1:
        return spent[0] if spent else None
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in spent),
        completion_tokens=sum(usage.completion_tokens for usage in spent),
        cached_tokens=sum(usage.cached_tokens for usage in spent),
        elapsed_s=max(usage.elapsed_s for usage in spent),
        reasoning_tokens=sum(usage.reasoning_tokens for usage in spent),
    )
