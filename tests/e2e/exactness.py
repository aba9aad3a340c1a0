"""Random requests at the same time, and each of them again alone: the same tokens, whatever the company.

`ask_together` takes whatever else is to happen meanwhile (a hot swap, memory that runs short) as a function that is
told how many answers are there.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace

from memra.cli_bench.agents.chat_stream import BUSY, STAY, Endpoint, StreamedAnswer, stream_request
from memra.cli_bench.agents.random_load import LoadMix, RandomLoad, RandomRequest

NATIVE = {"MEMRA_COMPAT": "native"}
"""For the server: its own shape of completions tells token ids."""
_RETRY_S = 0.2


def draw_requests(mix: LoadMix, count: int, *, seed: str) -> list[RandomRequest]:
    load = RandomLoad(mix, seed=seed)
    return [load.draw() for _ in range(count)]


def ask_together(
    url: str,
    requests: Sequence[RandomRequest],
    *,
    num_clients: int = 16,
    meanwhile: Callable[[int], None] = lambda _: None,
) -> list[StreamedAnswer]:
    """Answers in the order of the requests."""
    endpoint = Endpoint.parse(url)
    with ThreadPoolExecutor(num_clients) as pool:
        asked = [pool.submit(_ask, endpoint, request) for request in requests]
        for number, _ in enumerate(as_completed(asked), 1):
            meanwhile(number)
        return [future.result() for future in asked]


def ask_alone(url: str, requests: Sequence[RandomRequest]) -> list[StreamedAnswer]:
    """One after the other, each to its end, each under a salt of its own: as on a server that was just started."""
    endpoint = Endpoint.parse(url)
    alone = [replace(request, salt=f"alone.{request.number}", lane="interactive", leaving=STAY) for request in requests]
    return [_ask(endpoint, request) for request in alone]


def assert_same_tokens(
    requests: Sequence[RandomRequest], together: Sequence[StreamedAnswer], alone: Sequence[StreamedAnswer]
) -> None:
    """Whole answers are equal; what a client that left has seen is how the whole answer begins."""
    for request, beside, reference in zip(requests, together, alone, strict=True):
        assert not reference.is_failed, f"request {request.number} alone: {reference.describe_failure()}"
        assert not beside.is_failed, f"request {request.number}: {beside.describe_failure()}"
        expected = reference.token_ids[: len(beside.token_ids)] if beside.has_left else reference.token_ids
        assert beside.token_ids == expected, f"request {request.number} on {request.model}, lane {request.lane}"


def _ask(endpoint: Endpoint, request: RandomRequest) -> StreamedAnswer:
    while True:
        body = {**request.completion_body(), "stream": True}
        answer = stream_request(endpoint, "/completions", body, headers=request.headers, leaving=request.leaving)
        if answer.status != BUSY:
            return answer
        time.sleep(min(answer.retry_after_s or _RETRY_S, _RETRY_S))
