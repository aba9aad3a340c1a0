"""The plugin door: what is found, what is refused, and who is disturbed by a plugin that fails."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from memra.errors import UsageError
from memra.messages.admission import RequestEnded
from memra.plugins import API_VERSION, hookimpl
from memra.plugins.manager import Plugins
from memra.types import Lane, ModelName, RequestId

RECORD = RequestEnded(RequestId("r1"), ModelName("m"), "default", Lane.INTERACTIVE, None, None, failed=False)


class Recorder:
    def __init__(self) -> None:
        self.records: list[RequestEnded] = []

    @hookimpl
    def memra_request_ended(self, record: RequestEnded) -> None:
        self.records.append(record)


class Raiser:
    @hookimpl
    def memra_request_ended(self) -> None:
        raise RuntimeError("out of ink")


class Misspelt:
    @hookimpl
    def memra_request_endet(self) -> None: ...


class WrongArgument:
    @hookimpl
    def memra_request_ended(self, recrod) -> None: ...


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a package with an entry point on the path, as pip would."""
    monkeypatch.syspath_prepend(tmp_path)

    def put(name: str, source: str) -> None:
        (tmp_path / f"{name}_module.py").write_text(source)
        info = tmp_path / f"{name}_dist-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-dist\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[memra]\n{name} = {name}_module\n")

    yield put
    for module in [name for name in sys.modules if name.endswith("_module")]:
        del sys.modules[module]


GOOD = """
from memra.plugins import hookimpl
seen = []
@hookimpl
def memra_configure(config):
    seen.append(dict(config))
@hookimpl
def memra_request_ended(record):
    seen.append(record.request_id)
"""


def test_an_installed_plugin_is_found_configured_and_called(install):
    install("colours", GOOD)
    plugins = Plugins()
    plugins.load(blocked=(), tables={"colours": {"tone": "warm"}})
    plugins.request_ended(RECORD)
    assert "colours" in plugins.names
    assert sys.modules["colours_module"].seen == [{"tone": "warm"}, "r1"]


def test_a_plugin_gets_only_its_own_table(install):
    install("colours", GOOD)
    install("shapes", GOOD)
    Plugins().load(blocked=(), tables={"colours": {"tone": "warm"}})
    assert sys.modules["shapes_module"].seen == [{}]


def test_a_blocked_plugin_is_not_imported(install):
    install("colours", "raise RuntimeError('imported')")
    plugins = Plugins()
    plugins.load(blocked=["colours"], tables={})
    assert "colours" not in plugins.names


def test_all_bad_plugins_are_reported_together_by_distribution(install):
    install("broken", "raise RuntimeError('no ink')")
    install("fussy", GOOD.replace("seen.append(dict(config))", "raise ValueError('no key tone')"))
    install("typo", GOOD.replace("memra_request_ended", "memra_request_endet"))
    with pytest.raises(UsageError) as caught:
        Plugins().load(blocked=(), tables={"absent": {}})
    message = caught.value.message
    assert "broken (broken-dist 1.0): cannot be imported: no ink" in message
    assert "fussy (fussy-dist 1.0): [plugins.fussy]: no key tone" in message
    assert "memra_request_endet" in message
    assert "absent: configured, but not installed" in message


@pytest.mark.parametrize("plugin", [Misspelt(), WrongArgument()])
def test_a_misspelt_hook_or_argument_is_refused(plugin):
    plugins = Plugins()
    with pytest.raises(UsageError, match="plugin bad"):
        plugins.register(plugin, "bad")
    assert "bad" not in plugins.names


def test_a_plugin_from_the_future_is_refused():
    with pytest.raises(UsageError, match=f"needs plugin API {API_VERSION + 1}"):
        Plugins().register(SimpleNamespace(memra_api=API_VERSION + 1), "future")


def test_an_observer_that_raises_is_named_and_disturbs_nobody(caplog: pytest.LogCaptureFixture):
    plugins = Plugins()
    recorder = Recorder()
    plugins.register(recorder, "recorder")
    plugins.register(Raiser(), "raiser")
    plugins.request_ended(RECORD)
    assert recorder.records == [RECORD]
    assert "plugin raiser" in caplog.text
