"""What the loop of a running `memra run` spends on a request and on a token, beside a model that works.

More than with a scripted worker: the actors are there, and the model's threads take the processors and their caches
between any two tokens. Knows how load is made; refuses to know how a server is started.
"""

from collections.abc import Callable, Mapping

from memra.cli_bench.front.front_load import FrontLoad
from memra.cli_bench.load_client import LoadClient
from memra.cli_bench.served_bench import ServedTarget
from memra.cli_bench.streams import summarise


def measure_served(
    loads: Mapping[str, FrontLoad],
    *,
    server: ServedTarget,
    client: LoadClient,
    read_loop_s: Callable[[], float | None],
    rounds: int,
) -> Mapping[str, float]:
    """Return microseconds of the loop's thread for one thing of each load, in its best round.

    Args:
        loads: by name.
        server: that is running.
        client: sends the requests.
        read_loop_s: says how much processor time the loop's thread has taken so far.
        rounds: of which the best one counts; one more warms up.

    Returns:
        Nothing where the system does not tell a thread's processor time.

    Raises:
        MeasurementError: a request was refused, or broke off.
    """
    spent: dict[str, list[float]] = {name: [] for name in loads}
    for name, load in loads.items():
        requests = [
            server.target.request(body, api_key=server.api_key, route="chat/completions") for body in load.bodies
        ]
        for _ in range(rounds + 1):
            before = read_loop_s()
            report = summarise(client.drive(server.target, requests))
            after = read_loop_s()
            if before is None or after is None:
                return {}
            spent[name].append((after - before) / load.count(report))
    return {name: min(rounds_s[1:]) * 1e6 for name, rounds_s in spent.items()}
