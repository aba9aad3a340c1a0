"""`memra ledger`: an operator's acts on the command line. Declares words; `desk` and its neighbours do the work.

Imports nothing heavy before a command runs, since every command line of memra loads this.
"""

import argparse
import getpass
import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from memra.plugins import Command
from memra_metering_ledger.config import DATABASE_VARIABLE, LedgerConfig, PriceTable, database_url

if TYPE_CHECKING:
    from memra_metering_ledger.database import Database
    from memra_metering_ledger.desk import Desk

Act = Callable[["Database", "Desk", argparse.Namespace], int]


def ledger_command(config: Callable[[], LedgerConfig]) -> Command:
    """Return the command.

    Args:
        config: tells the plugin's table when the command runs.
    """

    def run(arguments: argparse.Namespace) -> int:
        return _run(arguments, config())

    return Command("ledger", "accounts of tenants: prices, credits, caps, usage", _add_arguments, run)


def _run(arguments: argparse.Namespace, config: LedgerConfig) -> int:
    from memra_metering_ledger.database import Database  # noqa: PLC0415  (SQLAlchemy is heavy)
    from memra_metering_ledger.desk import Desk  # noqa: PLC0415  (as above)

    database = Database(arguments.database or database_url(config.database))
    try:
        database.prepare(config.currency)
        act: Act = arguments.ledger_act
        return act(database, Desk(database, actor=f"command line: {_user()}"), arguments)
    finally:
        database.close()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "unknown"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--database", metavar="URL", help=f"sqlite:////path or postgresql://...; else {DATABASE_VARIABLE}, memra.toml"
    )
    acts = parser.add_subparsers(metavar="ACT", required=True)
    _add(acts, "init", "make the tables", _init)
    _add(acts, "prices", "show what models cost now", _prices)
    _add_price(acts)
    _add_transfer(acts, "credit", "add to a tenant's balance; enrols it if need be", _credit)
    _add_transfer(acts, "debit", "take from a tenant's balance; needs --reason", _debit)
    enrol = _add(acts, "enrol", "open an account without money", _enrol, tenant=True)
    enrol.add_argument("--overdraft", metavar="AMOUNT", help="how far below zero it may go; 0 unless said")
    _add(acts, "balance", "show a tenant's account", _balance, tenant=True)
    admission = _add(acts, "admission", "let a tenant in, or keep it out", _admission, tenant=True)
    admission.add_argument("mode", choices=("open", "blocked"))
    cap = _add(acts, "cap", "say what a key may spend at most", _cap, tenant=True)
    cap.add_argument("key", help="as the server names it: its public beginning")
    cap.add_argument("amount", help="as 12.50, or none")
    usage = _add(acts, "usage", "show what a tenant used", _usage, tenant=True)
    usage.add_argument("--csv", action="store_true", help="a line for each model and key")
    usage.add_argument("--from", dest="since", metavar="DATE", help="YYYY-MM-DD, in UTC")
    usage.add_argument("--until", metavar="DATE", help="as --from; not part of it")
    audit = _add(acts, "audit", "show who changed what, newest first", _audit)
    audit.add_argument("--limit", type=int, default=100)
    _add(acts, "check", "see whether the books agree with themselves", _check)


def _add(
    acts: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str, act: Act, *, tenant: bool = False
) -> argparse.ArgumentParser:
    parser = acts.add_parser(name, help=text, description=text)
    parser.set_defaults(ledger_act=act)
    if tenant:
        parser.add_argument("tenant")
    return parser


def _add_price(acts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    price = _add(acts, "price", "set what a model costs, in exact decimals: money for one token", _price)
    price.add_argument("model")
    price.add_argument("--prompt", required=True, metavar="PRICE", help="of a prompt token that is computed")
    price.add_argument("--cached-prompt", metavar="PRICE", help="of one that is reused; as --prompt unless said")
    price.add_argument("--completion", required=True, metavar="PRICE", help="of a generated token")
    price.add_argument("--request", default="0", metavar="PRICE", help="of a request, whatever its size")


def _add_transfer(acts: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str, act: Act) -> None:
    transfer = _add(acts, name, text, act, tenant=True)
    transfer.add_argument("amount", help="as 12.50")
    transfer.add_argument("--reason", default="")
    transfer.add_argument(
        "--idempotency-key", metavar="KEY", help="moves nothing when it was used; a new one unless said"
    )


def _init(database: "Database", _desk: "Desk", _arguments: argparse.Namespace) -> int:
    print(f"ledger {database.address} is ready")  # noqa: T201  (a command's answer)
    return 0


def _price(_database: "Database", desk: "Desk", arguments: argparse.Namespace) -> int:
    table = PriceTable(arguments.prompt, arguments.completion, arguments.cached_prompt, arguments.request)
    return _show({"changed": desk.set_prices({arguments.model: table})})


def _prices(_database: "Database", desk: "Desk", _arguments: argparse.Namespace) -> int:
    return _show(desk.list_prices())


def _credit(_database: "Database", desk: "Desk", arguments: argparse.Namespace) -> int:
    return _transfer(desk, arguments, is_debit=False)


def _debit(_database: "Database", desk: "Desk", arguments: argparse.Namespace) -> int:
    return _transfer(desk, arguments, is_debit=True)


def _transfer(desk: "Desk", arguments: argparse.Namespace, *, is_debit: bool) -> int:
    from memra_metering_ledger.desk import Transfer  # noqa: PLC0415  (SQLAlchemy is heavy)
    from memra_metering_ledger.money import decimal_of_nanos  # noqa: PLC0415  (as above)

    key = arguments.idempotency_key or uuid.uuid4().hex
    order = Transfer(arguments.tenant, _amount(arguments.amount), key, arguments.reason, is_debit)
    balance = desk.transfer(order)
    return _show({"tenant": order.tenant, "balance": decimal_of_nanos(balance), "idempotency_key": key})


def _enrol(_database: "Database", desk: "Desk", arguments: argparse.Namespace) -> int:
    desk.enrol(arguments.tenant, overdraft=None if arguments.overdraft is None else _amount(arguments.overdraft))
    return _show({"tenant": arguments.tenant})


def _balance(_database: "Database", desk: "Desk", arguments: argparse.Namespace) -> int:
    from memra_metering_ledger.money import decimal_of_nanos  # noqa: PLC0415  (as above)

    account = desk.find_account(arguments.tenant)
    if account is None:
        return _show({"tenant": arguments.tenant, "enrolled": False})
    purses = ("balance", "held", "settled", "credited", "overdraft")
    amounts = {name: decimal_of_nanos(getattr(account, name)) for name in purses}
    return _show({"tenant": account.tenant, "enrolled": True, "admission": account.admission} | amounts)


def _admission(_database: "Database", desk: "Desk", arguments: argparse.Namespace) -> int:
    desk.set_admission(arguments.tenant, arguments.mode)
    return _show({"tenant": arguments.tenant, "admission": arguments.mode})


def _cap(_database: "Database", desk: "Desk", arguments: argparse.Namespace) -> int:
    desk.set_cap(arguments.tenant, arguments.key, None if arguments.amount == "none" else _amount(arguments.amount))
    return _show({"tenant": arguments.tenant, "key": arguments.key, "cap": arguments.amount})


def _usage(database: "Database", _desk: "Desk", arguments: argparse.Namespace) -> int:
    from memra_metering_ledger.usage import Period, tenant_usage  # noqa: PLC0415  (SQLAlchemy is heavy)

    period = Period(_day_ms(arguments.since), _day_ms(arguments.until))
    with database.read() as connection:
        usage = tenant_usage(connection, arguments.tenant, period)
    if not arguments.csv:
        return _show(usage.report())
    print(usage.csv(), end="")  # noqa: T201  (a command's answer)
    return 0


def _audit(_database: "Database", desk: "Desk", arguments: argparse.Namespace) -> int:
    return _show(desk.list_audit(arguments.limit))


def _check(database: "Database", _desk: "Desk", _arguments: argparse.Namespace) -> int:
    from memra_metering_ledger.integrity import find_contradictions  # noqa: PLC0415  (SQLAlchemy is heavy)

    with database.read() as connection:
        found = find_contradictions(connection)
    _show({"contradictions": found})
    return 1 if found else 0


def _amount(text: str) -> int:
    from memra_metering_ledger.errors import LedgerRequestError  # noqa: PLC0415  (as above)
    from memra_metering_ledger.money import nanos  # noqa: PLC0415  (as above)

    try:
        return nanos(text)
    except ValueError as error:
        raise LedgerRequestError(f"amount: {error}", code="invalid_amount") from error


def _day_ms(text: str | None) -> int | None:
    from memra_metering_ledger.errors import LedgerRequestError  # noqa: PLC0415  (as above)

    if text is None:
        return None
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise LedgerRequestError(f"{text!r} is no day such as 2026-01-31", code="invalid_period") from error
    return round(day.timestamp()) * 1000


def _show(answer: object) -> int:
    print(json.dumps(answer, indent=2))  # noqa: T201  (a command's answer)
    return 0
