"""A server as the ledger sees one: a process that sends requests through the seam, and says what it answered.

    server_process.py URL TENANT PREFIX FIRST END THREADS [MODE]

Each request of a number is reserved, opened, counted and ended; then one line goes out, which stands for the last bytes
of an answer: `answered ID` or `refused ID`. MODE `all` answers each with all that was held; `mixed` lets some clients
leave, and has some refused.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from memra_metering_ledger.config import LedgerConfig, PriceTable
from memra_metering_ledger.plugin import LedgerPlugin

from memra.plugins import Metering, MeteringRefusal, RequestMeta, UsageCounts
from memra.types import Lane, ModelName, RequestId

MODEL = ModelName("tiny")
PRICE = PriceTable(prompt="0.000001", cached_prompt="0.00000025", completion="0.000004", request="0.00001")


def usage_of(number: int) -> UsageCounts:
    """Return what the answer to a request used."""
    return UsageCounts(10 + number % 50, number % 7, 1 + number % 20)


def serve(metering: Metering, tenant: str, request_id: str, number: int, *, is_mixed: bool) -> str:
    """Send one request through, and return what became of it."""
    usage = usage_of(number)
    meta = RequestMeta(
        request_id=RequestId(request_id),
        tenant=tenant,
        principal="key",
        model=MODEL,
        route="/v1/completions",
        lane=Lane.INTERACTIVE,
        is_stream=True,
    )
    bound = 40 if is_mixed else usage.completion_tokens
    try:
        permit = metering.reserve(
            tenant, principal="key", model=MODEL, prompt_tokens=usage.prompt_tokens, completion_bound=bound
        )
    except MeteringRefusal:
        metering.open(meta, None).reject(402, "insufficient_balance")
        return "refused"
    if is_mixed and number % 13 == 0:
        permit.refund()
        metering.open(meta, None).reject(429, "shed_queue")
        return "refused"
    receipt = metering.open(meta, permit)
    receipt.record_prompt_usage(usage.prompt_tokens, usage.cached_prompt_tokens if is_mixed else 0)
    for _ in range(usage.completion_tokens):
        receipt.record_completion_tokens(1)
    if is_mixed and number % 11 == 0:
        receipt.abandon()
        return "left"
    cached = usage.cached_prompt_tokens if is_mixed else 0
    receipt.complete(UsageCounts(usage.prompt_tokens, cached, usage.completion_tokens), elapsed_s=0.1)
    return "answered"


def main() -> None:
    """Serve what the command line says."""
    url, tenant, prefix, first, end, threads, mode = sys.argv[1:]
    plugin = LedgerPlugin()
    plugin.memra_configure(LedgerConfig(database=url, prices={MODEL: PRICE}))
    metering = plugin.memra_metering([MODEL])

    def one(number: int) -> None:
        request_id = f"{prefix}{number}"
        end = serve(metering, tenant, request_id, number, is_mixed=mode == "mixed")
        sys.stdout.write(f"{end} {request_id}\n")
        sys.stdout.flush()

    with ThreadPoolExecutor(int(threads)) as pool:
        list(pool.map(one, range(int(first), int(end))))
    plugin.memra_shutdown()


if __name__ == "__main__":
    main()
