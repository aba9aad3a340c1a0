"""The whole front of the server under load, with a worker that costs nothing: processor time of the loop's thread.

The application and the server are those of `memra run`, in this process and on a real socket; the clients are a process
of their own where there is a compiler, and otherwise threads, whose time is not counted either. Knows how load is made;
refuses to know what a request consists of.
"""

import time
from collections.abc import Mapping
from functools import partial
from typing import cast

import trio

from memra.actors.contract import House
from memra.actors.replies import ReplyTable
from memra.chat.chat_format import ChatFormat
from memra.cli_bench.front.front_load import FrontLoad
from memra.cli_bench.front.scripted_house import ScriptedHouse, ScriptedWorker
from memra.cli_bench.load_client import LoadClient, Target
from memra.cli_bench.streams import summarise
from memra.errors import MeasurementError
from memra.http.address import bind
from memra.http.app import build_app
from memra.http.serve import serve
from memra.settings import HttpSettings

STEP_S = 0.004
"""Pause between two steps: as fast as the smallest models decode eight rows, so that no two tokens are joined."""
_WORDS = "The harbour lay still under the first light, and nobody had counted the boats. "


def measure_front(
    chat_format: ChatFormat,
    loads: Mapping[str, FrontLoad],
    *,
    client: LoadClient,
    rounds: int,
    step_s: float = STEP_S,
) -> Mapping[str, float]:
    """Return microseconds of the loop's thread for one thing of each load, in its best round.

    Args:
        chat_format: the model's own.
        loads: by name.
        client: sends the requests.
        rounds: of which the best one counts; one more warms up.
        step_s: pause between two steps of the worker.

    Raises:
        MeasurementError: a request was refused, or broke off.
    """
    return trio.run(partial(_measure, chat_format, loads, client=client, rounds=rounds, step_s=step_s))


async def _measure(
    chat_format: ChatFormat,
    loads: Mapping[str, FrontLoad],
    *,
    client: LoadClient,
    rounds: int,
    step_s: float,
) -> Mapping[str, float]:
    table, shutdown, settings = ReplyTable(), trio.Event(), HttpSettings()
    script = chat_format.tokenizer.encode(_WORDS, add_special=False, parse_special=False)
    costs: dict[str, float] = {}
    failure: MeasurementError | None = None
    with ScriptedWorker(table.deliver, script, step_s=step_s) as worker:
        house = cast("House", ScriptedHouse(chat_format, table, worker))
        app = build_app(house, settings, fingerprint="memra-bench", has_keys=False)
        async with trio.open_nursery() as nursery:
            running = partial(serve, app, bind("127.0.0.1:0"), settings=settings, shutdown=shutdown)
            target = Target.parse(f"http://{await nursery.start(running)}")
            try:
                for name, load in loads.items():
                    costs[name] = await _least_us(load, target, client, rounds=rounds)
            except MeasurementError as error:
                failure = error  # raised outside of the nursery, which would wrap it
            shutdown.set()
    if failure is not None:
        raise failure
    return costs


async def _least_us(load: FrontLoad, target: Target, client: LoadClient, *, rounds: int) -> float:
    requests = [target.request(body, api_key=None, route="chat/completions") for body in load.bodies]
    spent_us: list[float] = []
    for _ in range(rounds + 1):
        started_ns = time.thread_time_ns()
        streams = await trio.to_thread.run_sync(client.drive, target, requests)
        ended_ns = time.thread_time_ns()
        spent_us.append((ended_ns - started_ns) / load.count(summarise(streams)) / 1e3)
    return min(spent_us[1:])
