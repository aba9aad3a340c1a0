"""A whole run of `memra bench`: options to plan, models opened and measured one after the other, text and JSON written.

Called by `command`, which keeps the imports of this module away from `memra --help`.
"""

import argparse
import json
import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from memra import __version__
from memra.cli_bench.cases import BenchPlan
from memra.cli_bench.executors import require_executor
from memra.cli_bench.model_bench import (
    BenchModel,
    Engines,
    ModelBench,
    ModelReport,
    ServedOptions,
    ServerLimits,
)
from memra.cli_bench.progress import Progress
from memra.cli_bench.report_json import to_json
from memra.cli_bench.report_text import render_machine, render_model
from memra.cli_bench.served_bench import ServedPlan
from memra.cli_bench.subjects import LLAMA_CPP
from memra.engine.executor_choice import choose_executor
from memra.engine.processors import find_processors
from memra.errors import UsageError
from memra.identity import system_fingerprint
from memra.served_models import ServedModel, open_models
from memra.settings import Settings, read_settings

_ROWS, _DEPTHS, _PREFILL, _ROUNDS, _TOKENS = (1, 2, 4, 8, 16), (0, 2048, 8192), 512, 3, 64
_QUICK_ROWS, _QUICK_DEPTHS, _QUICK_PREFILL, _QUICK_ROUNDS, _QUICK_TOKENS = (1, 4), (0,), 128, 1, 16
_QUICK_SERVED = ServedPlan(num_clients=(1, 4), max_new_tokens=_QUICK_TOKENS, pairs=1)


def run_bench(options: argparse.Namespace, *, config: Path | None) -> int:
    """Measure what the options ask for, and return the exit code.

    Raises:
        MemraError: a model cannot be opened, an option cannot be met, or an engine does not load.
    """
    overrides = {"models": {"arguments": tuple(options.arguments)}} if options.arguments else {}
    settings = read_settings(overrides, file=config)
    engines, served, plan = choose_engines(options), _served_options(options, settings, config), make_plan(options)
    progress = Progress()
    reports: list[ModelReport] = []
    sys.stdout.write(render_machine(engines.num_threads, __version__))
    server_choice = choose_executor(replace(settings.engine, executor=engines.executors[0]))
    for model in open_models(settings, server_choice):
        bench = ModelBench(
            _describe(model),
            plan,
            engines=engines,
            served=served,
            limits=ServerLimits(settings.engine.prefill_chunk_tokens, settings.engine.max_rows),
        )
        try:
            reports.append(bench.run(progress))
        finally:
            progress.finish()
            model.checkpoint.close()
        sys.stdout.write(render_model(reports[-1]))
        sys.stdout.flush()
    if options.json is not None:
        _write_json(options.json, reports, engines)
    return 0


def make_plan(options: argparse.Namespace) -> BenchPlan:
    """Fill in what the user left open."""
    quick = options.quick
    return BenchPlan(
        rows=options.rows or (_QUICK_ROWS if quick else _ROWS),
        depths=options.depths if options.depths is not None else (_QUICK_DEPTHS if quick else _DEPTHS),
        deep_rows=options.deep_rows,
        prefill_tokens=options.prefill or (_QUICK_PREFILL if quick else _PREFILL),
        decode_tokens=_QUICK_TOKENS if quick else _TOKENS,
        rounds=options.rounds or (_QUICK_ROUNDS if quick else _ROUNDS),
    )


def choose_engines(options: argparse.Namespace) -> Engines:
    """Find everyone who is asked for.

    Raises:
        UsageError: one of them cannot be used here, with the remedy.
    """
    executors = [require_executor(options.executor).name]
    if "torch" in options.against:
        executors.append(require_executor("torch").name)
    llama_python = None
    if LLAMA_CPP in options.against:
        llama_python = options.llama_python or sys.executable
        if options.llama_python is None and find_spec("llama_cpp") is None:
            raise UsageError(
                "--against llama-cpp: llama-cpp-python is not installed here; name the Python that has it with "
                "--llama-python PATH"
            )
    return Engines(
        executors=tuple(dict.fromkeys(executors)),
        llama_python=llama_python,
        num_threads=options.threads or find_processors().num_usable,
    )


def _served_options(options: argparse.Namespace, settings: Settings, config: Path | None) -> ServedOptions:
    if options.against_url is not None and not options.served:
        raise UsageError("--against-url needs --served")
    if not options.served:
        return ServedOptions()
    plan = _QUICK_SERVED if options.quick else ServedPlan()
    return ServedOptions(
        plan,
        arguments=() if config is None else ("--config", str(config)),
        api_key=settings.gate.api_key,
        other_url=options.against_url,
        other_key=os.environ.get("OPENAI_API_KEY"),
    )


def _describe(model: ServedModel) -> BenchModel:
    return BenchModel(
        name=model.name,
        path=model.checkpoint.path,
        context_tokens=model.plan.program.context_tokens,
        vocab_size=model.plan.program.vocab_size,
        description=model.describe().partition(": ")[2],
    )


def _write_json(path: Path, reports: list[ModelReport], engines: Engines) -> None:
    backends = tuple(sorted({report.facts[name].backend for report in reports for name in engines.executors}))
    content = to_json(reports, num_threads=engines.num_threads, fingerprint=system_fingerprint(backends))
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
