"""The plugin at memra's door: its hooks, its table, and what it may know."""

import ast
import subprocess
import sys
from pathlib import Path

import memra_metering_ledger
import pluggy
import pytest
from memra_metering_ledger.config import LedgerConfig, PriceTable
from memra_metering_ledger.plugin import LedgerPlugin, plugin

from memra.errors import StartupError
from memra.plugins import hookspecs
from memra.types import ModelName

PRICES = {"tiny": PriceTable(prompt="0.000001", completion="0.000004")}


def test_memra_accepts_every_hook_of_the_plugin():
    manager = pluggy.PluginManager("memra")
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, "metering_ledger")
    manager.check_pending()


def test_it_knows_nothing_of_memra_but_the_door_the_errors_and_the_words():
    allowed = {"memra.plugins", "memra.errors", "memra.types"}
    for path in Path(memra_metering_ledger.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            known = {name for name in names if name and name.split(".")[0] == "memra"}
            assert known <= allowed, f"{path.name}:{node.lineno}"


def test_a_command_line_of_memra_does_not_import_what_is_heavy():
    program = (
        "import sys; from memra_metering_ledger.plugin import plugin; plugin.memra_commands(); "
        "print({'sqlalchemy', 'quart', 'trio'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout == "set()\n"


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (LedgerConfig(currency="dollars"), "currency: 'dollars'"),
        (LedgerConfig(prices={"tiny": PriceTable("1e-6", "1")}), r"prices\.tiny: '1e-6'"),
        (LedgerConfig(prices={"tiny": PriceTable("1", "1", cached_prompt="2")}), r"prices\.tiny: cached_prompt"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_by_name(config, complaint):
    with pytest.raises(ValueError, match=complaint):
        LedgerPlugin().memra_configure(config)


def test_it_keeps_a_server_s_accounts_from_its_start_to_its_end(url):
    made = LedgerPlugin()
    assert made.memra_config_schema() is LedgerConfig
    made.memra_configure(LedgerConfig(database=url, prices=PRICES))
    assert made.memra_admin_blueprints() == []
    metering = made.memra_metering([ModelName("tiny")])
    assert metering.enforces_limits
    assert not metering.is_limited("acme")
    assert [blueprint.name for blueprint in made.memra_admin_blueprints()] == ["metering_ledger"]
    made.memra_shutdown()
    made.memra_shutdown()


def test_a_model_without_a_price_stops_the_start_with_its_name(sqlite_url):
    made = LedgerPlugin()
    made.memra_configure(LedgerConfig(database=sqlite_url, prices=PRICES))
    with pytest.raises(StartupError, match="no price for other"):
        made.memra_metering([ModelName("tiny"), ModelName("other")])


def test_a_ledger_may_only_write_down(sqlite_url):
    made = LedgerPlugin()
    made.memra_configure(LedgerConfig(database=sqlite_url, prices=PRICES, enforce=False))
    assert not made.memra_metering([ModelName("tiny")]).enforces_limits
    made.memra_shutdown()
