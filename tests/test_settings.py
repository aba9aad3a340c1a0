"""Where a setting comes from, what is refused, and that its documentation is true."""

from dataclasses import fields
from pathlib import Path

import pytest

from memra.errors import ConfigurationError
from memra.settings import ROOMS, Settings, read_settings, unknown_variables

REPOSITORY = Path(__file__).parents[1]


def test_with_nothing_given_every_setting_has_its_default():
    assert read_settings({}, environ={}) == Settings()


def test_the_command_line_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path):
    file = tmp_path / "memra.toml"
    file.write_text('[http]\naddress = "file:1"\nkeep_alive_s = 7\n[gate]\ncontext_tokens = 64\n')
    environ = {"MEMRA_ADDR": "env:1", "MEMRA_CTX": "128"}
    read = read_settings({"http": {"address": "line:1"}}, environ=environ, file=file)
    assert (read.http.address, read.gate.context_tokens, read.http.keep_alive_s) == ("line:1", 128, 7.0)


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        ({"MEMRA_PREFILL_TICK": "many"}, "MEMRA_PREFILL_TICK: 'many' is not a whole number"),
        ({"MEMRA_PREFILL_TICK": "0"}, "MEMRA_PREFILL_TICK: 0 must be at least 1"),
        ({"MEMRA_STREAM_TTFT_MS_MAX": "999"}, "MEMRA_STREAM_TTFT_MS_MAX: 999 must be 0 or at least 1000"),
        ({"MEMRA_DRAIN_S": "soon"}, "MEMRA_DRAIN_S: 'soon' is not a number"),
        ({"MEMRA_DRAIN_S": "nan"}, "MEMRA_DRAIN_S: nan must be at least 0"),
        ({"MEMRA_HOST_LOOP": "curio"}, "MEMRA_HOST_LOOP: 'curio' must be one of trio, asyncio"),
        ({"MEMRA_DEVICE": "tpu"}, "MEMRA_DEVICE: 'tpu' must be auto, cpu, cuda or cuda:N"),
        ({"MEMRA_REPACK_CACHE_MB": "0"}, "MEMRA_REPACK_CACHE_MB: 0 must be at least 1"),
        ({"MEMRA_REPACK_CACHE_MB": "1G"}, "MEMRA_REPACK_CACHE_MB: '1G' is not a whole number"),
        ({"MEMRA_ALLOW_OPEN_BIND": "maybe"}, "MEMRA_ALLOW_OPEN_BIND: 'maybe' is not 0 or 1"),
    ],
)
def test_a_bad_value_is_refused_by_its_place(environ, complaint):
    with pytest.raises(ConfigurationError) as caught:
        read_settings({}, environ=environ)
    assert caught.value.message == complaint


def test_steps_are_read_from_a_list_and_from_a_table(tmp_path: Path):
    file = tmp_path / "memra.toml"
    file.write_text('[faults]\npanic_after = "3, 40"\n[lifecycle]\ngpu_watch = false\n')
    assert read_settings({}, environ={}, file=file).faults.panic_after == (3, 40)
    assert not read_settings({}, environ={}, file=file).lifecycle.gpu_watch
    assert read_settings({}, environ={"MEMRA_PANIC_AFTER": "7"}).faults.panic_after == (7,)
    file.write_text("[faults]\npanic_after = [3, 40]\n")
    with pytest.raises(ConfigurationError, match="must be text such as 20,40"):
        read_settings({}, environ={}, file=file)
    with pytest.raises(ConfigurationError, match="MEMRA_PANIC_AFTER: 'soon' is not valid"):
        read_settings({}, environ={"MEMRA_PANIC_AFTER": "soon"})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[http]\ncolour = 1\n", "[http] has no setting 'colour'"),
        ("[htpp]\n", "[htpp] is not a table of memra"),
        ("[engine]\nmax_rows = 1.5\n", "[engine] max_rows: 1.5 is not of type int"),
        ("[http\n", "not valid TOML"),
    ],
)
def test_a_bad_file_is_refused_by_its_line_or_key(tmp_path: Path, text, complaint):
    file = tmp_path / "memra.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_settings({}, environ={}, file=file)
    assert complaint in caught.value.message


def test_a_missing_file_is_refused_by_name(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"absent\.toml: no such file"):
        read_settings({}, environ={}, file=tmp_path / "absent.toml")


def test_models_and_plugins_keep_the_users_own_names(tmp_path: Path):
    file = tmp_path / "memra.toml"
    file.write_text('[models]\n"a/b" = "/m.gguf"\n[plugins.x]\ny = 1\n')
    read = read_settings({}, environ={}, file=file)
    assert read.models.table == {"a/b": "/m.gguf"}
    assert read.plugins.table == {"x": {"y": 1}}


def test_settings_of_the_plugin_room_stand_beside_the_plugins_tables(tmp_path: Path):
    file = tmp_path / "memra.toml"
    file.write_text('[plugins]\nblocked = ["a"]\ntimeout_s = 2\n[plugins.x]\ny = 1\n')
    read = read_settings({}, environ={}, file=file).plugins
    assert (read.blocked, read.timeout_s, read.table) == (("a",), 2.0, {"x": {"y": 1}})
    file.write_text("[plugins]\ncolour = 1\n")
    with pytest.raises(ConfigurationError, match=r"\[plugins\] has no setting 'colour'; known are blocked, timeout_s"):
        read_settings({}, environ={}, file=file)


def test_a_folder_may_begin_with_a_tilde(tmp_path: Path):
    file = tmp_path / "memra.toml"
    file.write_text('[engine]\nrepack_cache = "~/tiles"\n')
    read = read_settings({}, environ={}, file=file)
    assert read.engine.repack_cache == Path.home() / "tiles"
    assert Settings().engine.repack_cache is None


def test_a_misspelt_variable_is_noticed():
    environ = {"MEMRA_ADRR": "x", "MEMRA_ADDR": "y", "MEMRA_CONFIG": "z", "HOME": "/"}
    assert unknown_variables(environ) == ("MEMRA_ADRR",)


def test_a_secret_is_not_in_the_repr():
    assert "hush" not in repr(read_settings({}, environ={"MEMRA_API_KEY": "hush"}))


def test_the_reference_page_is_made_from_the_settings():
    page = REPOSITORY / "docs" / "reference" / "settings.md"
    assert page.read_text(encoding="utf-8") == settings_page(), "run: python tests/test_settings.py"


def settings_page() -> str:
    """The text of docs/reference/settings.md."""
    lines = [
        "# Settings",
        "",
        "The command line wins over the environment, the environment over the file given by `--config` (or",
        "`MEMRA_CONFIG`), the file over the default. In the file, a setting stands in the table of its room: `[http]`,",
        "then `address = ...`. `[models]` maps names to sources, `[models.NAME]` is one with options, and",
        "`[plugins.NAME]` goes to that plugin.",
        "This page is made from the rooms in `memra/settings`.",
    ]
    for room, kind in ROOMS.items():
        lines += ["", f"## [{room}]", "", kind.__doc__.partition("\n")[0], ""]
        lines += ["| in the file | in the environment | default | meaning |", "|---|---|---|---|"]
        lines += [_row(place) for place in fields(kind)]
    return "\n".join(lines) + "\n"


def _row(place) -> str:
    default = {None: "unset", (): "none", "": "unset"}.get(
        place.default if place.default.__hash__ else None, place.default
    )
    if place.default_factory is dict:
        default = "none"
    variable = place.metadata["env"]
    return f"| `{place.name}` | {f'`{variable}`' if variable else ''} | {default} | {place.metadata['doc']} |"


if __name__ == "__main__":
    (REPOSITORY / "docs" / "reference" / "settings.md").write_text(settings_page(), encoding="utf-8")
