"""What every script of this folder starts from: where the server is, what is asked of it, and how checks are run.

The scripts run outside the test suite, each in an environment that holds one client and what it depends on, so nothing
here may import more than the standard library. Started by `tests.e2e.test_other_clients`.
"""

import asyncio
import inspect
import sys
import traceback
from collections.abc import Callable, Coroutine
from typing import Final

URL: Final = sys.argv[1]
KEY: Final = sys.argv[2]
CHAT_MODEL: Final = "small"
TOOL_MODEL: Final = "coder"
MODELS: Final = (CHAT_MODEL, TOOL_MODEL)

GREETING: Final = "Name three rivers in Europe."
WEATHER_QUESTION: Final = "What is the weather in Paris? Call the function."
WEATHER_DESCRIPTION: Final = "Get the current weather of a city."
PERSON_QUESTION: Final = "Ada Lovelace is 36 years old. Who is she?"
SAID_BY_TOOL: Final = "19 degrees, sunny"

Check = Callable[[], object] | Callable[[], Coroutine[object, object, object]]


def raised(kind: type[Exception], ask: Callable[[], object]) -> Exception:
    """Return what asking raises, which must be of that kind; there is no pytest where these scripts run."""
    try:
        ask()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def run(*checks: Check) -> None:
    """Run each check, tell what failed, and exit with 1 where one did."""
    num_failed = 0
    for check in checks:
        try:
            outcome = check()
            if inspect.iscoroutine(outcome):
                asyncio.run(outcome)
        except Exception:  # noqa: BLE001 - a check may fail in whatever way its client fails; the next one still runs
            num_failed += 1
            sys.stdout.write(f"FAILED {check.__name__}\n{traceback.format_exc()}\n")
        else:
            sys.stdout.write(f"passed {check.__name__}\n")
    sys.exit(num_failed > 0)
