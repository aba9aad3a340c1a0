"""`memra bench --agents` and `--soak`: options to a server with two models, a run, a report and an exit code.

Refuses to know how anything is measured. Called by `memra.cli_bench.command`, which keeps its imports away from
`memra --help`.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from memra.cli_bench.agents.agents_bench import AgentsBench
from memra.cli_bench.agents.busy_agents import AgentsPlan
from memra.cli_bench.agents.chat_stream import Endpoint
from memra.cli_bench.agents.load_report import agents_json, render_agents, render_soak, soak_json
from memra.cli_bench.agents.random_load import LoadMix, RandomLoad
from memra.cli_bench.agents.soak import Soak, SoakLimits
from memra.cli_bench.progress import Progress
from memra.cli_bench.server_process import ServerProcess
from memra.cli_bench.worker_process import thread_environment
from memra.engine.processors import find_processors
from memra.errors import UsageError

_FAILED = 1
_ROUNDS = 3
_QUICK = AgentsPlan(warm_up_s=2.0, window_s=6.0)
_MINUTE_S = 60.0
_KV_VARIABLE, _KV_MB = "MEMRA_KV_MB", "256"
"""Little for a soak, unless the environment says otherwise: memory that fills up looks like memory that leaks."""


def run_agents(options: argparse.Namespace) -> int:
    """Measure agents beside a harvest; 1 where something could not be measured.

    Raises:
        MemraError: a model is missing, or the server does not start.
    """
    plan = _QUICK if options.quick else AgentsPlan()
    if options.seconds is not None:
        plan = replace(plan, window_s=options.seconds)
    models = _two_models(options, "--agents")
    progress = Progress()
    with _start(options, models, {"MEMRA_LANE_MAX_HARVEST": str(plan.num_harvest)}) as server:
        server.wait_until_ready()
        bench = AgentsBench(
            Endpoint.parse(server.url),
            plan,
            models=(models[0][0], models[1][0]),
            rounds=options.rounds or (1 if options.quick else _ROUNDS),
        )
        progress.expect(bench.num_steps)
        report = bench.run(progress.step)
    progress.finish()
    sys.stdout.write(render_agents(report, plan))
    _write(options.json, agents_json(report, plan))
    return _FAILED if report.notes else 0


def run_soak(options: argparse.Namespace) -> int:
    """Load a server for minutes; 1 where a limit was broken.

    Raises:
        MemraError: a model is missing, or the server does not start or does not answer for itself.
    """
    models = _two_models(options, "--soak")
    load = RandomLoad(LoadMix([name for name, _ in models]), seed=f"soak {options.seed}")
    progress = Progress()
    with _start(options, models, {_KV_VARIABLE: os.environ.get(_KV_VARIABLE, _KV_MB)}) as server:
        server.wait_until_ready()
        seconds = options.soak * _MINUTE_S
        limits = SoakLimits.for_run(seconds)
        soak = Soak(Endpoint.parse(server.url), load, read_memory=server.read_memory, limits=limits)
        report = soak.run(seconds, progress.note)
    progress.finish()
    sys.stdout.write(render_soak(report))
    _write(options.json, soak_json(report))
    return 0 if report.is_good else _FAILED


def _two_models(options: argparse.Namespace, option: str) -> Sequence[tuple[str, str]]:
    models = [argument.partition("=")[::2] for argument in options.arguments or ()]
    if len(models) != 2 or not all(source for _, source in models):  # noqa: PLR2004  (two is what is measured)
        raise UsageError(f"{option} needs two models: -m NAME=SOURCE -m NAME=SOURCE, the agents' first")
    return models


def _start(options: argparse.Namespace, models: Sequence[tuple[str, str]], own: Mapping[str, str]) -> ServerProcess:
    environ = {**thread_environment(options.threads or find_processors().num_usable), **own}
    (name, source), *others = models
    arguments = [word for other, path in others for word in ("-m", f"{other}={path}")]
    return ServerProcess(name, Path(source), environ=environ, arguments=tuple(arguments))


def _write(path: Path | None, content: Mapping[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
