"""What runs and waits now, one line a request: admission's list of guests beside what the worker last said of each.

A pure function; the bridge calls it. It knows ids, names and counts, and no word of a prompt.
"""

from collections.abc import Mapping, Sequence

from memra.messages.admission import GuestListed
from memra.messages.replies import ReplyProgress
from memra.plugins.handles import RunningRequest
from memra.types import RequestId

_PHASES = ("admitted", "queued", "prefill", "decode")
"""In the order in which a request goes through them."""


def running_requests(
    guests: Sequence[GuestListed], progress: Mapping[RequestId, ReplyProgress]
) -> tuple[RunningRequest, ...]:
    """Return the requests in the order in which they came in.

    Several answers to one request are one line: their tokens are added up, and the phase is that of the furthest.
    """
    parts: dict[RequestId, list[GuestListed]] = {}
    for guest in guests:
        parts.setdefault(guest.part_of or guest.request_id, []).append(guest)
    return tuple(_line(parts[guest.request_id], progress) for guest in guests if guest.part_of is None)


def _line(parts: Sequence[GuestListed], progress: Mapping[RequestId, ReplyProgress]) -> RunningRequest:
    whole = parts[0]
    states = [progress.get(part.request_id, ReplyProgress()) for part in parts]
    return RunningRequest(
        request_id=whole.request_id,
        tenant=whole.tenant,
        principal=whole.principal,
        lane=whole.lane,
        model=whole.model,
        phase=max((_phase(part, state) for part, state in zip(parts, states, strict=True)), key=_PHASES.index),
        prompt_tokens=whole.prompt_tokens,
        completion_tokens=sum(state.completion_tokens for state in states),
        age_s=round(whole.age_s, 3),
    )


def _phase(guest: GuestListed, state: ReplyProgress) -> str:
    if state.completion_tokens:
        return "decode"
    if state.is_started:
        return "prefill"
    return "admitted" if guest.prompt_tokens is None else "queued"
