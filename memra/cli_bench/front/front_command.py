"""`memra bench --front`: options to models, a run for each, the report and the file.

Refuses to know how anything is measured. Called by `memra.cli_bench.command`, which keeps its imports away from
`memra --help`.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from memra.chat.chat_format import ChatFormat
from memra.cli_bench.front.front_load import FrontLoad, make_loads
from memra.cli_bench.front.front_report import FrontReport, front_json, render_front
from memra.cli_bench.front.request_parts import measure_parts
from memra.cli_bench.front.scripted_front import measure_front
from memra.cli_bench.front.served_front import measure_served
from memra.cli_bench.load_client import LoadClient, Target, make_load_client
from memra.cli_bench.progress import Progress
from memra.cli_bench.served_bench import SERVED, ServedTarget
from memra.cli_bench.server_process import ServerProcess
from memra.cli_bench.worker_process import thread_environment
from memra.engine.executor_choice import choose_executor
from memra.engine.processors import find_processors
from memra.errors import UsageError
from memra.served_models import ServedModel, open_models
from memra.settings import read_settings

_NUM_TOKENS, _QUICK_TOKENS = 512, 64
"""So many that what a request costs once weighs little on a token."""
_ROUNDS, _QUICK_ROUNDS = 3, 1
_PART_ROUNDS = 20
"""Rounds of the parts for each round of a load: they take milliseconds."""


def run_front(options: argparse.Namespace, *, config: Path | None) -> int:
    """Measure the front of every model that is asked for.

    Raises:
        MemraError: a model cannot be opened or answers no chats, or a server does not start or does not answer.
    """
    overrides = {"models": {"arguments": tuple(options.arguments)}} if options.arguments else {}
    settings = read_settings(overrides, file=config)
    choice = choose_executor(replace(settings.engine, executor=options.executor or settings.engine.executor))
    progress, reports = Progress(), list[FrontReport]()
    with tempfile.TemporaryDirectory(prefix="memra-bench-") as folder:
        client = make_load_client(Path(folder))
        for model in open_models(settings, choice):
            try:
                reports.append(_FrontBench(model, options, client, progress).run(settings.gate.api_key))
            finally:
                progress.finish()
                model.close()
            sys.stdout.write(render_front(reports[-1]))
    if options.json is not None:
        options.json.write_text(json.dumps(front_json(reports), indent=2) + "\n", encoding="utf-8")
    return 0


class _FrontBench:
    """One model's run."""

    def __init__(self, model: ServedModel, options: argparse.Namespace, client: LoadClient, progress: Progress) -> None:
        self._model = model
        self._options = options
        self._client = client
        self._progress = progress
        self._rounds: int = options.rounds or (_QUICK_ROUNDS if options.quick else _ROUNDS)

    def run(self, api_key: str | None) -> FrontReport:
        name, chat_format = self._model.name, self._model.renderer
        if not isinstance(chat_format, ChatFormat):
            raise UsageError(f"--front measures chats, and {name} answers none; choose another model")
        with_tools = chat_format.tool_template.traits.supports_tools
        num_tokens = _QUICK_TOKENS if self._options.quick else _NUM_TOKENS
        loads = make_loads(name, with_tools=with_tools, num_tokens=num_tokens)
        self._progress.step(f"{name}: the parts of a chat")
        chat, *_ = next(iter(loads.values())).bodies
        parts = measure_parts(chat_format, chat, rounds=self._rounds * _PART_ROUNDS)
        self._progress.step(f"{name}: with a scripted worker")
        scripted = measure_front(chat_format, loads, client=self._client, rounds=self._rounds)
        report = FrontReport(
            name, len(chat["messages"]), len(chat.get("tools", ())), parts, self._client.kind, scripted
        )
        if not with_tools:
            report.notes.append("the model's chat template has no place for tools, so none were sent")
        self._progress.step(f"{name}: in memra run")
        report.served = self._measure_served(loads, api_key)
        if not report.served:
            report.notes.append("memra run was not measured: this system does not tell a thread's processor time")
        return report

    def _measure_served(self, loads: Mapping[str, FrontLoad], api_key: str | None) -> Mapping[str, float]:
        environ = thread_environment(self._options.threads or find_processors().num_usable)
        with ServerProcess(self._model.name, self._model.checkpoint.path, environ=environ, api_key=api_key) as server:
            server.wait_until_ready()
            return measure_served(
                loads,
                server=ServedTarget(SERVED, Target.parse(server.url), self._model.name, api_key),
                client=self._client,
                read_loop_s=server.read_loop_s,
                rounds=self._rounds,
            )
