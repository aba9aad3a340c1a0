"""What is sent to a server, and what its cost is divided by. Refuses to know servers and clocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memra.cli_bench.front.chat_body import make_chat, make_question
from memra.cli_bench.streams import StreamReport

NUM_CLIENTS = (1, 8)
ONE_REQUEST = "a request"
_NUM_REQUESTS = 8


@dataclass(frozen=True, slots=True)
class FrontLoad:
    """Requests that are sent together.

    Attributes:
        bodies: of chat requests.
        is_about_tokens: the cost is that of a token, as the usage counts them; otherwise that of a request.
    """

    bodies: Sequence[Mapping[str, Any]]
    is_about_tokens: bool

    def count(self, report: StreamReport) -> int:
        """Return what the cost of a round is divided by."""
        return report.num_tokens if self.is_about_tokens else len(self.bodies)


def make_loads(model: str, *, with_tools: bool, num_tokens: int) -> Mapping[str, FrontLoad]:
    """Return the loads by name: the long chat for one token, and streams of so many tokens, alone and together."""
    chat = make_chat(model, with_tools=with_tools, max_tokens=1)
    streams = {
        token_case(num): FrontLoad(
            [make_question(model, number, max_tokens=num_tokens) for number in range(num)], is_about_tokens=True
        )
        for num in NUM_CLIENTS
    }
    return {ONE_REQUEST: FrontLoad([chat] * _NUM_REQUESTS, is_about_tokens=False), **streams}


def token_case(num_clients: int) -> str:
    """Return the name of the load of so many streams."""
    return "a token, 1 client" if num_clients == 1 else f"a token, {num_clients} clients"
