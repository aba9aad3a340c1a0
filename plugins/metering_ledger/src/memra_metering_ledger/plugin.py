"""The plugin that memra finds: which hooks the ledger answers. What is heavy is imported when it is needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memra.plugins import Command, Metering, hookimpl
from memra.types import ModelName
from memra_metering_ledger.config import LedgerConfig, database_url

if TYPE_CHECKING:
    from memra_metering_ledger.database import Database
    from memra_metering_ledger.metering import LedgerMetering


@dataclass(frozen=True)
class OpenLedger:
    """A ledger that a server stands on."""

    database: "Database"
    metering: "LedgerMetering"
    currency: str


class LedgerPlugin:
    """Accounting for one server."""

    def __init__(self) -> None:
        """Wait to be configured."""
        self._config = LedgerConfig()
        self._ledger: OpenLedger | None = None

    @hookimpl
    def memra_config_schema(self) -> type:
        """Declare `[plugins.metering_ledger]`."""
        return LedgerConfig

    @hookimpl
    def memra_configure(self, config: LedgerConfig) -> None:
        """Take the table, and refuse prices that are no exact decimals.

        Raises:
            ValueError: names the price, or the currency.
        """
        from memra_metering_ledger.price_list import read_prices  # noqa: PLC0415  (SQLAlchemy is heavy)

        if not (len(config.currency) == 3 and config.currency.isalpha() and config.currency.isupper()):  # noqa: PLR2004  (ISO 4217)
            raise ValueError(f"currency: {config.currency!r} is no code of three capital letters")
        for model, table in config.prices.items():
            try:
                read_prices(table)
            except ValueError as error:
                raise ValueError(f"prices.{model}: {error}") from error
        self._config = config

    @hookimpl
    def memra_commands(self) -> Sequence[Command]:
        """Add `memra ledger`."""
        from memra_metering_ledger.commands import ledger_command  # noqa: PLC0415  (only a command line needs it)

        return [ledger_command(lambda: self._config)]

    @hookimpl
    def memra_metering(self, models: Sequence[ModelName]) -> Metering:
        """Open the ledger, write the configured prices into it, and release what dead servers held."""
        from memra_metering_ledger.database import Database  # noqa: PLC0415  (SQLAlchemy is heavy)
        from memra_metering_ledger.desk import Desk  # noqa: PLC0415  (as above)
        from memra_metering_ledger.metering import LedgerMetering  # noqa: PLC0415  (as above)

        database = Database(database_url(self._config.database))
        database.prepare(self._config.currency)
        Desk(database, actor="configuration").set_prices(self._config.prices)
        metering = LedgerMetering(database, enforce=self._config.enforce)
        metering.start(models)
        self._ledger = OpenLedger(database, metering, self._config.currency)
        return metering

    @hookimpl
    def memra_admin_blueprints(self) -> Sequence[Any]:
        """Add the tenants' money to the admin listener."""
        from memra_metering_ledger.admin import ledger_blueprint  # noqa: PLC0415  (not without a listener)

        if self._ledger is None:
            return []
        return [ledger_blueprint(self._ledger.database, self._ledger.metering, self._ledger.currency)]

    @hookimpl
    def memra_shutdown(self) -> None:
        """Close what is open as crashed, and let the database go."""
        if self._ledger:
            self._ledger.metering.stop()
            self._ledger = None


plugin = LedgerPlugin()
