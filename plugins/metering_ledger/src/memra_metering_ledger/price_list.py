"""What models cost now, and what they did cost: a new price takes the old one's place and leaves it readable."""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Row, insert, select, update

from memra_metering_ledger.config import PriceTable
from memra_metering_ledger.money import Prices, attos, decimal_of_attos
from memra_metering_ledger.tables import facts, prices


@dataclass(frozen=True, slots=True)
class ListedPrice:
    """An entry of the price list, by which holds and bills name it."""

    price_id: str
    model: str
    prices: Prices

    def report(self) -> dict[str, str]:
        """Return it as exact decimals, for people and for JSON."""
        return {"model": self.model} | {
            name: decimal_of_attos(getattr(self.prices, name)) for name in Prices.__dataclass_fields__
        }


def read_prices(table: PriceTable) -> Prices:
    """Read prices as they are written in a configuration.

    Raises:
        ValueError: names what is not an exact decimal.
    """
    return Prices(
        prompt=attos(table.prompt),
        cached_prompt=attos(table.prompt if table.cached_prompt is None else table.cached_prompt),
        completion=attos(table.completion),
        request=attos(table.request),
    )


def current_price(connection: Connection, model: str) -> ListedPrice | None:
    """Return what a model costs now; None where it has no price."""
    mine = (prices.c.model == model) & prices.c.is_current
    row = connection.execute(select(prices).where(mine).order_by(prices.c.since_ms.desc()).limit(1)).one_or_none()
    return None if row is None else _listed(row)


def current_prices(connection: Connection) -> Sequence[ListedPrice]:
    """Return the price list, by name of the model."""
    rows = connection.execute(select(prices).where(prices.c.is_current).order_by(prices.c.model))
    return [_listed(row) for row in rows]


def prices_by_id(connection: Connection, price_ids: Collection[str]) -> dict[str, Prices]:
    """Return prices of bills, old ones too."""
    rows = connection.execute(select(prices).where(prices.c.price_id.in_(price_ids)))
    return {row.price_id: _listed(row).prices for row in rows}


def set_price(connection: Connection, model: str, new: Prices, *, now_ms: int) -> bool:
    """Put a price in the place of a model's old one, one caller after the other; false when it is the same."""
    connection.execute(select(facts).with_for_update())
    old = current_price(connection, model)
    if old and old.prices == new:
        return False
    connection.execute(update(prices).where(prices.c.model == model).values(is_current=False))
    entry = ListedPrice(uuid.uuid4().hex, model, new)
    connection.execute(
        insert(prices).values(price_id=entry.price_id, is_current=True, since_ms=now_ms, **entry.report())
    )
    return True


def _listed(row: Row[tuple[object, ...]]) -> ListedPrice:
    amounts = {name: attos(getattr(row, name)) for name in Prices.__dataclass_fields__}
    return ListedPrice(row.price_id, row.model, Prices(**amounts))
