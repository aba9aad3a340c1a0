"""What an operator may write into `[plugins.metering_ledger]`; where a ledger lies when nothing is written."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

DATABASE_VARIABLE = "MEMRA_LEDGER_DATABASE"
"""Goes before the file: an address with a password does not belong into one."""


@dataclass(frozen=True)
class PriceTable:
    """Prices of one model, as exact decimals in text, in whole units of the currency.

    Attributes:
        prompt: of one prompt token that was computed.
        completion: of one generated token.
        cached_prompt: of one prompt token that was reused; as `prompt` where it is not said.
        request: of a request, whatever its size.
    """

    prompt: str
    completion: str
    cached_prompt: str | None = None
    request: str = "0"


@dataclass(frozen=True)
class LedgerConfig:
    """The plugin's table.

    Attributes:
        database: `sqlite:////path` or `postgresql://user@host/name`; a file in the user's data directory by default.
        currency: three letters; fixed when the ledger is made.
        enforce: whether requests are refused where there is no money for them; otherwise they are only written down.
        prices: by name of the model; written to the ledger at every start. Others may be set with `memra ledger price`.
    """

    database: str | None = None
    currency: str = "USD"
    enforce: bool = True
    prices: Mapping[str, PriceTable] = field(default_factory=dict)


def database_url(configured: str | None) -> str:
    """Return where the ledger lies: as the environment says, as configured, or in the user's data directory."""
    from platformdirs import user_data_path  # noqa: PLC0415  (not needed where an address is given)

    chosen = os.environ.get(DATABASE_VARIABLE) or configured
    return chosen or f"sqlite:///{user_data_path('memra') / 'ledger.sqlite3'}"
