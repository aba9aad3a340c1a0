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
from memra.cli_bench.bench_request import BenchModel, Engines, Sections, ServerOptions
from memra.cli_bench.cases import BenchPlan
from memra.cli_bench.executors import require_executor
from memra.cli_bench.model_bench import REFERENCE, ModelBench
from memra.cli_bench.model_report import ModelReport
from memra.cli_bench.progress import Progress
from memra.cli_bench.report_json import to_json
from memra.cli_bench.report_text import render_machine, render_model
from memra.cli_bench.served_bench import ServedPlan
from memra.cli_bench.subjects import LLAMA_CPP
from memra.engine.executor_choice import choose_executor
from memra.engine.model_building import PAGE_TOKENS
from memra.engine.processors import find_processors
from memra.errors import UsageError
from memra.identity import system_fingerprint
from memra.served_models import ServedModel, open_models, plan_models
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
    _refuse_metadata_overrides(settings)
    engines, sections, plan = choose_engines(options), choose_sections(options), make_plan(options)
    progress = Progress()
    reports: list[ModelReport] = []
    sys.stdout.write(render_machine(engines.num_threads, __version__))
    server_choice = choose_executor(replace(settings.engine, executor=engines.executors[0]))
    for model in open_models(settings, server_choice):
        bench = ModelBench(
            _describe(model),
            plan,
            engines=engines,
            sections=sections,
            server=_server_options(settings, config),
        )
        try:
            reports.append(bench.run(progress))
        finally:
            progress.finish()
            model.checkpoint.close()
        sys.stdout.write(render_model(reports[-1]))
        sys.stdout.flush()
        if options.json is not None:  # after every model: what the next one ends with must not lose this one
            _write_json(options.json, reports, engines)
    return 0


def _refuse_metadata_overrides(settings: Settings) -> None:
    """Other engines, and workers that are given a path, would measure another model."""
    for entry in plan_models(settings.models):
        if entry.overrides:
            raise UsageError(
                f"model {entry.name}: memra bench measures files as they are: leave out meta.{entry.overrides[0].key}"
            )


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


def choose_sections(options: argparse.Namespace) -> Sections:
    """Find what is asked for.

    Raises:
        UsageError: nothing would be measured, or an option needs another, with the remedy.
    """
    if options.against_url is not None and not options.served:
        raise UsageError("--against-url needs --served")
    served = (_QUICK_SERVED if options.quick else ServedPlan()) if options.served else None
    sections = Sections(
        speed=not options.skip_speed,
        start=options.start,
        busy=options.busy,
        errors=options.errors,
        served=served,
        other_url=options.against_url,
        other_key=os.environ.get("OPENAI_API_KEY"),
    )
    if not (sections.needs_engines or sections.start):
        raise UsageError("--skip-speed leaves nothing to measure; add --start, --busy, --errors or --served")
    if sections.errors:
        require_executor(REFERENCE)
    return sections


def _server_options(settings: Settings, config: Path | None) -> ServerOptions:
    return ServerOptions(
        arguments=() if config is None else ("--config", str(config)),
        api_key=settings.gate.api_key,
        chunk_tokens=settings.engine.prefill_chunk_tokens,
        max_rows=settings.engine.max_rows,
    )


def _describe(model: ServedModel) -> BenchModel:
    program, choice = model.plan.program, model.plan.choice
    return BenchModel(
        name=model.name,
        path=model.checkpoint.path,
        context_tokens=program.context_tokens,
        vocab_size=program.vocab_size,
        description=model.describe().partition(": ")[2],
        file_bytes=model.checkpoint.size_bytes,
        cache_bytes_per_token=choice.cache_bytes_per_token(program),
        page_tokens=PAGE_TOKENS,
    )


def _write_json(path: Path, reports: list[ModelReport], engines: Engines) -> None:
    facts = [report.facts[name] for report in reports for name in engines.executors if name in report.facts]
    backends = tuple(sorted({fact.backend for fact in facts}))
    content = to_json(reports, num_threads=engines.num_threads, fingerprint=system_fingerprint(backends))
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
