"""`memra bench --replay` and `--make-session`: options to transcripts, targets, reports and exit codes.

Refuses to know how anything is measured. Called by `memra.cli_bench.command`, which keeps its imports away from
`memra --help`.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memra.cli_bench.agents.chat_stream import Endpoint
from memra.cli_bench.agents.coding_session import NUM_TURNS, SessionPlan, make_session
from memra.cli_bench.agents.prompt_tokens import FileTokens, PromptTokens, find_server_tokens
from memra.cli_bench.agents.replay import Replay, ReplayTarget, TurnResult, differing_turns
from memra.cli_bench.agents.replay_report import digests_json, render, to_json
from memra.cli_bench.agents.transcript import Turn, read_transcript, write_transcript
from memra.cli_bench.progress import Progress
from memra.errors import UsageError

_FAILED = 1


def write_session(options: argparse.Namespace) -> int:
    """Write a made-up coding session to a file; models of `-m` are named in it, the main agent's first.

    Raises:
        UsageError: more than two models are named.
    """
    names = [argument.partition("=")[0] for argument in options.arguments or ()]
    if len(names) > 2:  # noqa: PLR2004  (a main and another)
        raise UsageError("--make-session: name at most two models, the main agent's first")
    main, other = [*names, "main", "other"][:2] if len(names) != 1 else (names[0], "other")
    turns = make_session(
        SessionPlan(
            main_model=main,
            other_model=other,
            seed=options.seed,
            scale=options.scale,
            num_turns=options.turns or NUM_TURNS,
            has_tools_field=options.tools_field,
        )
    )
    write_transcript(turns, options.make_session)
    sys.stdout.write(f"{options.make_session}: {len(turns)} turns\n")
    return 0


def run_replay(options: argparse.Namespace) -> int:
    """Play a transcript and report; 1 where a turn failed or an answer is not the expected one.

    Raises:
        MemraError: a file cannot be read, an option is missing, or the server is not there.
    """
    if options.url is None:
        raise UsageError("--replay needs --url http://HOST:PORT/v1")
    expected = None if options.expect is None else _read_digests(options.expect)
    turns, names = _choose_models(read_transcript(options.replay), options.arguments or ())
    endpoint = Endpoint.parse(options.url, api_key=os.environ.get("OPENAI_API_KEY"))
    target = ReplayTarget(endpoint, names, _find_tokens(options, endpoint, turns), is_cold=options.cold)
    progress = Progress()
    progress.expect(len(turns))
    results = Replay(turns, target).run(progress.step)
    progress.finish()
    sys.stdout.write(render(results, is_cold=options.cold))
    if options.json is not None:
        _write(options.json, to_json(results, url=options.url))
    if options.digests is not None:
        _write(options.digests, digests_json(results))
    is_equal = expected is None or _say_differences(results, expected)
    return 0 if is_equal and not any(result.answer.is_failed for result in results) else _FAILED


def _choose_models(turns: Sequence[Turn], arguments: Sequence[str]) -> tuple[list[Turn], Mapping[str, str]]:
    """Turns of the models that `-m NAME[=SERVED]` names, all without it, and what the server calls them."""
    pairs = [argument.partition("=") for argument in arguments]
    names = {name: served or name for name, _, served in pairs}
    known = dict.fromkeys(turn.model for turn in turns)
    for name in names:
        if name not in known:
            raise UsageError(f"-m {name}: the transcript names {', '.join(known)} only")
    chosen = [turn for turn in turns if not names or turn.model in names]
    present = {turn.name for turn in chosen}
    for turn in chosen:
        for other in (*turn.after, *turn.answers_needed):
            if other not in present:
                raise UsageError(f"turn {turn.name} waits for {other}, whose model -m leaves out")
    return chosen, names


def _find_tokens(options: argparse.Namespace, endpoint: Endpoint, turns: Sequence[Turn]) -> Mapping[str, PromptTokens]:
    found: dict[str, PromptTokens] = {}
    models = dict.fromkeys(turn.model for turn in turns)
    for argument in options.model_file:
        name, _, path = argument.partition("=")
        if not path or name not in models:
            raise UsageError(f"--model-file {argument}: give NAME=PATH with one of {', '.join(models)}")
        found[name] = FileTokens(Path(path))
    if set(models) - set(found):
        server = find_server_tokens(endpoint)
        if server is not None:
            found = {**dict.fromkeys(models, server), **found}
            if not server.is_exact:
                sys.stderr.write("the server has no /apply-template: new tokens are counted on the plain messages\n")
    return found


def _read_digests(path: Path) -> Mapping[str, str]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["turns"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"--expect {path}: is no file that --digests wrote: {error}") from error


def _say_differences(results: Sequence[TurnResult], expected: Mapping[str, str]) -> bool:
    different = differing_turns(results, expected)
    if different:
        sys.stdout.write(f"{len(different)} answers are not those expected: {', '.join(different)}\n")
    else:
        sys.stdout.write("every answer is the expected one, byte for byte\n")
    return not different


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
