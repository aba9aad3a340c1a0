"""What a tenant used and what it costs, summed up from its receipts: as plain values for JSON, and as CSV.

Costs are made here from sums of tokens and exact prices, since databases would add decimals in text as floats.
"""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, select

from memra.plugins import Outcome
from memra_metering_ledger.money import Prices, Tokens, decimal_of_attos, decimal_of_nanos
from memra_metering_ledger.price_list import prices_by_id
from memra_metering_ledger.tables import facts, receipts

CSV_COLUMNS = (
    "tenant",
    "model",
    "principal",
    "requests",
    "billed_requests",
    "prompt_tokens",
    "cached_prompt_tokens",
    "ordinary_prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "cost",
    "charged",
    "currency",
)
_BILLABLE = tuple(outcome.value for outcome in Outcome if outcome.is_billable)


@dataclass
class Bill:
    """A sum over closed receipts: how many there were, and tokens and money of those that are paid for.

    Attributes:
        cost: attos, exact.
        charged: nanos; every single request's cost rounded up, and never above what was held for it.
        unpriced: paid for, but of a model that had no price.
    """

    requests: int = 0
    billed: int = 0
    unpriced: int = 0
    prompt: int = 0
    cached_prompt: int = 0
    completion: int = 0
    cost: int = 0
    charged: int = 0
    outcomes: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, row: Row[Any], price: Prices | None) -> None:
        """Add a group of receipts of one outcome and one price."""
        self.requests += row.requests
        self.outcomes[row.outcome] += row.requests
        if row.outcome not in _BILLABLE:
            return
        tokens = Tokens(int(row.prompt or 0), int(row.cached_prompt or 0), int(row.completion or 0))
        self.billed += row.requests
        self.prompt += tokens.prompt
        self.cached_prompt += tokens.cached_prompt
        self.completion += tokens.completion
        self.charged += int(row.charged or 0)
        if price is None:
            self.unpriced += row.counted
        else:
            self.cost += price.cost(tokens, num_requests=row.counted)

    def report(self) -> dict[str, Any]:
        """Return it as plain values; money as exact decimals."""
        return {
            "requests": self.requests,
            "billed_requests": self.billed,
            "unpriced_requests": self.unpriced,
            "outcomes": dict(sorted(self.outcomes.items())),
            "usage": self.usage(),
            "cost": decimal_of_attos(self.cost),
            "charged": decimal_of_nanos(self.charged),
        }

    def usage(self) -> dict[str, int]:
        """Return the tokens that are paid for."""
        return {
            "prompt_tokens": self.prompt,
            "cached_prompt_tokens": self.cached_prompt,
            "ordinary_prompt_tokens": self.prompt - self.cached_prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        }


@dataclass(frozen=True, slots=True)
class Period:
    """From one time to another, in milliseconds since 1970; the second one is not part of it. None: without end."""

    from_ms: int | None = None
    until_ms: int | None = None

    def holds(self) -> Iterator[ColumnElement[bool]]:
        """Give the conditions on the time when a request ended."""
        if self.from_ms is not None:
            yield receipts.c.closed_ms >= self.from_ms
        if self.until_ms is not None:
            yield receipts.c.closed_ms < self.until_ms


@dataclass(frozen=True)
class Usage:
    """A tenant's bills, by model and key, and all together."""

    tenant: str
    currency: str
    period: Period
    total: Bill
    parts: dict[tuple[str, str | None], Bill]

    def report(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "tenant": self.tenant,
            "currency": self.currency,
            "from_ms": self.period.from_ms,
            "until_ms": self.period.until_ms,
            **self.total.report(),
            "models": [
                {"model": model, "principal": principal, **bill.report()}
                for (model, principal), bill in sorted(
                    self.parts.items(), key=lambda part: (part[0][0], part[0][1] or "")
                )
            ],
        }

    def csv(self) -> str:
        """Return it as CSV (RFC 4180): a header, and a line for each model and key."""
        out = io.StringIO(newline="")
        lines = csv.DictWriter(out, CSV_COLUMNS, extrasaction="ignore")
        lines.writeheader()
        for part in self.report()["models"]:
            words = {name: _harmless(part[name] or "") for name in ("model", "principal")}
            lines.writerow({"tenant": self.tenant, "currency": self.currency, **part, **part["usage"], **words})
        return out.getvalue()


def _harmless(text: str) -> str:
    """Keep a spreadsheet from running a client's word: a refused request may bring any as its model's name."""
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text


def tenant_usage(connection: Connection, tenant: str, period: Period) -> Usage:
    """Sum up what a tenant's requests used that ended in a period."""
    currency = connection.execute(select(facts.c.value).where(facts.c.name == "currency")).scalar_one()
    groups = _groups(connection, tenant, period)
    known = prices_by_id(connection, {row.price_id for row in groups if row.price_id is not None})
    usage = Usage(tenant, currency, period, Bill(), defaultdict(Bill))
    for row in groups:
        for bill in (usage.total, usage.parts[row.model, row.principal]):
            bill.add(row, known.get(row.price_id))
    return usage


def _groups(connection: Connection, tenant: str, period: Period) -> Sequence[Row[Any]]:
    by = (receipts.c.model, receipts.c.principal, receipts.c.price_id, receipts.c.outcome)
    sums: Iterable[ColumnElement[Any]] = (
        func.sum(receipts.c.prompt_tokens).label("prompt"),
        func.sum(receipts.c.cached_prompt_tokens).label("cached_prompt"),
        func.sum(receipts.c.completion_tokens).label("completion"),
        func.sum(receipts.c.charged).label("charged"),
        func.count().label("requests"),
        func.count(receipts.c.prompt_tokens).label("counted"),
    )
    closed = (receipts.c.tenant == tenant, receipts.c.outcome.is_not(None), *period.holds())
    return connection.execute(select(*by, *sums).where(*closed).group_by(*by)).all()
