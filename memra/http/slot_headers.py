"""The `x-ratelimit-*` headers: what a client is told about its lane, with an answer and with a refusal alike.

Refuses to know lanes. Called by `memra.http.generation` and `memra.http.errors`.
"""


def slot_headers(limit: int, remaining: int, *, reset_s: int) -> dict[str, str]:
    """Return the headers.

    Args:
        limit: slots of the lane.
        remaining: slots that are free.
        reset_s: seconds after which one may be free, where none is.
    """
    return {
        "x-ratelimit-limit": str(limit),
        "x-ratelimit-remaining": str(remaining),
        "x-ratelimit-reset": "0" if remaining > 0 else str(reset_s),
    }
