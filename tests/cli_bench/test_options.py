import argparse
import sys

import pytest

from memra.cli_bench import command, executors
from memra.cli_bench.executors import require_executor
from memra.cli_bench.run import choose_engines, choose_sections, make_plan
from memra.errors import UsageError


def _parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(arguments)


def test_the_defaults_are_those_of_the_page():
    plan = make_plan(_parse())
    assert (plan.rows, plan.depths, plan.deep_rows) == ((1, 2, 4, 8, 16), (0, 2048, 8192), (1,))
    assert (plan.prefill_tokens, plan.decode_tokens, plan.rounds) == (512, 64, 3)


def test_quick_is_short_and_gives_way_to_what_is_said():
    plan = make_plan(_parse("--quick", "--rows", "2,2,3", "--depths", "0,512", "--rounds", "2"))
    assert (plan.rows, plan.depths, plan.rounds) == ((2, 3), (0, 512), 2)
    assert plan.decode_tokens < 64


@pytest.mark.parametrize("arguments", [("--rows", "0"), ("--rows", "a"), ("--depths=-1",), ("--against", "x")])
def test_nonsense_is_refused(arguments: tuple[str, ...], capsys):
    with pytest.raises(SystemExit):
        _parse(*arguments)
    assert arguments[0].partition("=")[0] in capsys.readouterr().err


def test_an_executor_is_measured_once_although_it_is_named_twice():
    engines = choose_engines(_parse("--executor", "torch", "--against", "torch", "--threads", "3"))
    assert (engines.executors, engines.llama_python, engines.num_threads) == (("torch",), None, 3)


def test_llama_cpp_needs_a_python_that_has_it(monkeypatch):
    monkeypatch.setattr("memra.cli_bench.run.find_spec", lambda _: None)
    with pytest.raises(UsageError, match="--llama-python"):
        choose_engines(_parse("--executor", "torch", "--against", "llama-cpp"))
    named = choose_engines(_parse("--executor", "torch", "--against", "llama-cpp", "--llama-python", "/a/python"))
    assert named.llama_python == "/a/python"


def test_llama_cpp_in_this_python_needs_no_name(monkeypatch):
    monkeypatch.setattr("memra.cli_bench.run.find_spec", lambda _: object())
    assert choose_engines(_parse("--executor", "torch", "--against", "llama-cpp")).llama_python == sys.executable


def test_an_unknown_executor_is_refused_with_those_known():
    with pytest.raises(UsageError, match=r"'tpu'.*cpu, torch"):
        require_executor("tpu")


def test_the_fastest_usable_executor_is_chosen_and_an_obstacle_is_told(monkeypatch):
    monkeypatch.setattr(executors, "find_native_obstacle", lambda: "not built")
    assert require_executor(None).name == "torch"
    with pytest.raises(UsageError, match="executor cpu: not built"):
        require_executor("cpu")


def test_every_section_is_asked_for_by_name_and_speed_is_not():
    plain = choose_sections(_parse())
    assert (plain.speed, plain.start, plain.busy, plain.errors, plain.served) == (True, False, False, False, None)
    full = choose_sections(_parse("--start", "--busy", "--errors", "--served", "--against-url", "http://h/v1"))
    assert (full.speed, full.start, full.busy, full.errors, full.other_url) == (True, True, True, True, "http://h/v1")
    assert full.served is not None


def test_a_part_can_be_measured_without_the_speed():
    sections = choose_sections(_parse("--skip-speed", "--start"))
    assert not sections.speed
    assert not sections.needs_engines
    assert choose_sections(_parse("--skip-speed", "--busy")).needs_engines


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(("--skip-speed",), "leaves nothing to measure"), (("--against-url", "http://h"), "needs --served")],
)
def test_options_that_need_another_say_which(arguments: tuple[str, ...], complaint: str):
    with pytest.raises(UsageError, match=complaint):
        choose_sections(_parse(*arguments))


def test_errors_need_the_reference(monkeypatch):
    monkeypatch.setattr(executors, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="torch is not installed"):
        choose_sections(_parse("--errors"))
