"""What is found among the installed packages, what is refused, and that all of it is told together."""

import sys
from types import SimpleNamespace

import pytest

from memra.errors import UsageError
from memra.plugins import API_VERSION, hookimpl
from memra.plugins.manager import Plugins

GOOD = """
from memra.plugins import hookimpl
seen = []
@hookimpl
def memra_configure(config):
    seen.append(dict(config))
"""
STRICT = """
from dataclasses import dataclass
from memra.plugins import hookimpl
@dataclass(frozen=True)
class Inner:
    depth: int = 1
@dataclass(frozen=True)
class Config:
    colour: str = "red"
    inner: Inner = Inner()
seen = []
@hookimpl
def memra_config_schema():
    return Config
@hookimpl
def memra_configure(config):
    seen.append(config)
"""
NAMED = """
from memra.plugins import hookimpl, Command
class Thing:
    name = schema = "blue"
    tokens = ()
    knows = open = grammar = render = None
@hookimpl
def memra_commands():
    return [Command("blue", "paints", print, print)]
@hookimpl
def memra_feeds():
    return [Thing()]
@hookimpl
def memra_tool_dialects():
    return [Thing()]
"""


def refusal(**options: object) -> str:
    with pytest.raises(UsageError) as caught:
        Plugins().load(**{"blocked": (), "tables": {}, **options})
    return caught.value.message


def test_memra_configure_is_called_for_an_installed_plugin_with_its_own_table(install):
    install("colours", GOOD)
    install("shapes", GOOD)
    plugins = Plugins()
    plugins.load(blocked=(), tables={"colours": {"tone": "warm"}})
    assert [name for name in plugins.names if name in {"colours", "shapes"}] == ["colours", "shapes"]
    assert sys.modules["colours_dist_module"].seen == [{"tone": "warm"}]
    assert sys.modules["shapes_dist_module"].seen == [{}]


def test_memra_config_schema_makes_the_table_an_instance_with_its_defaults(install):
    install("strict", STRICT)
    Plugins().load(blocked=(), tables={"strict": {"inner": {"depth": 3}}})
    Plugins().load(blocked=(), tables={})
    module = sys.modules["strict_dist_module"]
    assert module.seen == [module.Config(inner=module.Inner(3)), module.Config()]


def test_a_blocked_plugin_is_not_imported_and_its_table_may_stay(install):
    install("colours", "raise RuntimeError('imported')")
    plugins = Plugins()
    plugins.load(blocked=["colours"], tables={"colours": {"tone": "warm"}})
    assert "colours" not in plugins.names


def test_all_that_is_wrong_is_told_together_by_distribution(install):
    install("broken", "raise RuntimeError('no ink')")
    install("leaver", "raise SystemExit(0)")
    install("fussy", GOOD.replace("seen.append(dict(config))", "raise ValueError('no key tone')"))
    install("typo", GOOD.replace("memra_configure", "memra_configurre"))
    install("argument", GOOD.replace("(config)", "(confg)"))
    install("future", f"memra_api = {API_VERSION + 1}")
    install("strict", STRICT)
    install("plain", "colour = 1")
    install("twice", GOOD, distribution="one")
    install("twice", GOOD, distribution="other")
    install("blue1", NAMED)
    install("blue2", NAMED)
    message = refusal(tables={"absent": {}, "strict": {"hue": 1, "inner": {"deep": 2}}, "plain": {"x": 1}})
    for words in (
        "broken (broken-dist 1.0): cannot be imported: no ink",
        "leaver (leaver-dist 1.0): cannot be imported: 0",
        "fussy (fussy-dist 1.0): [plugins.fussy]: no key tone",
        "typo (typo-dist 1.0): unknown hook 'memra_configurre'",
        "argument (argument-dist 1.0): Plugin 'argument' for hook 'memra_configure' hookimpl definition",
        f"future (future-dist 1.0): needs plugin API {API_VERSION + 1}, this memra has {API_VERSION}",
        "strict (strict-dist 1.0): [plugins.strict]: unknown key hue; known are colour, inner; ",
        "unknown key inner.deep; known are depth",
        "plain (plain-dist 1.0): [plugins.plain]: this plugin has no settings",
        "plugin twice (one 1.0): there are 2 plugins of this name",
        "plugin twice (other 1.0): there are 2 plugins of this name",
        "plugin blue2 (blue2-dist 1.0): memra_commands: 'blue' is taken by plugin blue1 (blue1-dist 1.0)",
        "blue2 (blue2-dist 1.0): memra_feeds: 'blue' is taken by plugin blue1",
        "blue2 (blue2-dist 1.0): memra_tool_dialects: 'blue' is taken by plugin blue1",
        "absent: configured, but not installed",
    ):
        assert words in message
    assert "\n" not in message


@pytest.mark.parametrize("hook", ["memra_commands", "memra_feeds", "memra_tool_dialects"])
def test_memra_commands_memra_feeds_and_memra_tool_dialects_cannot_take_memras_own_names(install, hook: str):
    install("blue", NAMED)
    message = refusal(taken={hook: {"blue"}})
    assert message == f"plugin blue (blue-dist 1.0): {hook}: 'blue' is taken by memra itself; block one"


def test_what_plugins_add_by_name_is_kept(install):
    install("blue", NAMED)
    plugins = Plugins()
    plugins.load(blocked=(), tables={})
    assert "blue" in plugins.feed_schemas
    assert [dialect.name for dialect in plugins.tool_dialects if dialect.name == "blue"] == ["blue"]


@pytest.mark.parametrize(
    ("hook", "answer", "words"),
    [
        ("memra_commands", "'run'", "must answer a list"),
        ("memra_commands", "[3]", "answered int, and must answer a list of Commands"),
        ("memra_feeds", "[3]", "must answer Feeds; this has no schema, render"),
        ("memra_tool_dialects", "[3]", "must answer ToolDialects"),
        ("memra_telemetry_exporters", "[3]", "must answer SpanExporters"),
        ("memra_feeds", "1 / 0", "division by zero"),
    ],
)
def test_nonsense_at_start_stops_it_and_names_the_plugin(install, hook: str, answer: str, words: str):
    install("odd", f"from memra.plugins import hookimpl\n@hookimpl\ndef {hook}():\n    return {answer}\n")
    message = refusal()
    assert f"plugin odd (odd-dist 1.0): {hook} failed" in message
    assert words in message


async def later() -> None: ...


def generate():
    yield


def wrap():
    return (yield)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"memra_request_endet": hookimpl(lambda: None)}, "unknown hook 'memra_request_endet'"),
        ({"memra_request_ended": hookimpl(lambda recrod: recrod)}, "recrod"),
        ({"memra_api": API_VERSION + 1}, f"needs plugin API {API_VERSION + 1}"),
        ({"memra_api": "1"}, "memra_api is '1', and must be a whole number"),
        ({"memra_async": "curio"}, "memra_async is 'curio'"),
        ({"memra_admit": hookimpl(wrap, wrapper=True)}, "memra_admit is a hook wrapper"),
        ({"memra_admit": hookimpl(generate)}, "memra_admit is a generator function"),
        ({"memra_feeds": hookimpl(later)}, "memra_feeds is a coroutine function, and must be a plain one"),
    ],
)
def test_a_plugin_that_could_not_work_is_refused_and_not_kept(attributes, words):
    plugins = Plugins()
    with pytest.raises(UsageError, match="plugin bad") as caught:
        plugins.register(SimpleNamespace(**attributes), "bad")
    assert words in caught.value.message
    assert "bad" not in plugins.names
    plugins.register(SimpleNamespace(), "bad")
    with pytest.raises(UsageError, match="already registered"):
        plugins.register(SimpleNamespace(), "bad")
    assert plugins.names == ("bad",)
