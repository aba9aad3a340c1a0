"""The sub-command `memra bench`: its options, what they mean, and where the report goes.

Kept light: whatever opens models or measures is imported only when the command runs.
"""

import argparse
import os
from pathlib import Path

from memra.settings import settings_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "-m",
        "--model",
        metavar="NAME=SOURCE",
        action="append",
        dest="arguments",
        help="measure a model; may be given several times. Sources as for `memra run`",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML (MEMRA_CONFIG)")
    parser.add_argument("--rows", type=_numbers, metavar="N,N", help="sequences that decode together: 1,2,4,8,16")
    parser.add_argument("--depths", type=_depths, metavar="N,N", help="tokens before the last one: 0,2048,8192")
    parser.add_argument("--deep-rows", type=_numbers, default=(1,), metavar="N,N", help="rows at those depths: 1")
    parser.add_argument("--prefill", type=_positive, metavar="N", help="length of the measured prompt: 512")
    parser.add_argument("--rounds", type=_positive, metavar="N", help="counted rounds: 3")
    parser.add_argument("--threads", type=_positive, metavar="N", help="threads of every engine: all that may be used")
    parser.add_argument("--executor", metavar="NAME", help="cpu or torch; the fastest that can be used")
    parser.add_argument(
        "--against", action="append", default=[], choices=["torch", "llama-cpp"], help="measure this one in turns too"
    )
    parser.add_argument("--llama-python", metavar="PATH", help="the Python that has llama-cpp-python, if not this one")
    parser.add_argument("--served", action="store_true", help="measure `memra run` against the bare engine too")
    parser.add_argument("--against-url", metavar="URL", help="with --served: drive this OpenAI-compatible server too")
    parser.add_argument("--start", action="store_true", help="time `memra run` to a green /readyz, and its memory")
    parser.add_argument("--busy", action="store_true", help="time a step beside a process that wants a processor too")
    parser.add_argument("--errors", action="store_true", help="measure the distance from torch in float32")
    parser.add_argument(
        "--front",
        action="store_true",
        help="measure the processor time of a request and of a streamed token before the model; a run of its own",
    )
    parser.add_argument("--skip-speed", action="store_true", help="measure only what the other options ask for")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that everything works")
    _add_agent_arguments(parser)
    parser.set_defaults(run=run)


def _add_agent_arguments(parser: argparse.ArgumentParser) -> None:
    agents = parser.add_argument_group("what agents do to a server; each of these is a run of its own")
    agents.add_argument("--replay", type=Path, metavar="FILE", help="play a transcript; -m NAME[=SERVED] picks models")
    agents.add_argument("--url", metavar="URL", help="of the OpenAI-compatible server that --replay talks to")
    agents.add_argument(
        "--model-file",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="count a model's prompt tokens with this file's tokenizer and template",
    )
    agents.add_argument("--cold", action="store_true", help="a salt for every request, so that memra reuses nothing")
    agents.add_argument("--digests", type=Path, metavar="FILE", help="write a digest of every answer")
    agents.add_argument("--expect", type=Path, metavar="FILE", help="compare answers with those that --digests wrote")
    agents.add_argument("--make-session", type=Path, metavar="FILE", help="write a made-up coding session")
    agents.add_argument("--agents", action="store_true", help="interactive agents beside harvest requests, in turns")
    agents.add_argument("--seconds", type=float, metavar="S", help="of each window of --agents: 40")
    agents.add_argument(
        "--soak", type=float, metavar="MINUTES", help="mixed load, then memory, pages and gauges judged"
    )
    agents.add_argument("--scale", type=float, default=1.0, metavar="X", help="of the session's texts: 1")
    agents.add_argument("--seed", type=int, default=1, metavar="N", help="of the session and the soak: 1")
    agents.add_argument("--turns", type=_positive, metavar="N", help="of the session: 30")
    agents.add_argument("--tools-field", action="store_true", help="tools and calls in OpenAI's fields, not in texts")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(_positive(part) for part in text.split(",")))


def _depths(text: str) -> tuple[int, ...]:
    values = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    if min(values) < 0:
        raise argparse.ArgumentTypeError(f"{text} holds a negative depth")
    return values


def run(options: argparse.Namespace) -> int:
    """Measure models on this machine: speed, start, memory, errors; alone, compared, served, and used by agents."""
    if options.make_session is not None or options.replay is not None:
        from memra.cli_bench.agents.replay_command import run_replay, write_session  # noqa: PLC0415  (as below)

        return write_session(options) if options.make_session is not None else run_replay(options)
    if options.agents or options.soak is not None:
        from memra.cli_bench.agents.load_command import run_agents, run_soak  # noqa: PLC0415  (as below)

        return run_agents(options) if options.agents else run_soak(options)
    if options.front:
        from memra.cli_bench.front.front_command import run_front  # noqa: PLC0415  (as below)

        return run_front(options, config=settings_file(options.config, os.environ))
    from memra.cli_bench.run import run_bench  # noqa: PLC0415  (opens models, needed only here)

    return run_bench(options, config=settings_file(options.config, os.environ))
