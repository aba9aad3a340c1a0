"""The child's side of a measuring process: JSON lines in, JSON lines out, one operation at a time.

Each measured engine has a process of its own, so that its libraries, threads and memory do not meet another's. Standard
library only, because another Python than memra's may run this file: as a script it takes the path of a file that
defines `operations()`. `worker_process` is the other end.
"""

import json
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Operations = Mapping[str, Callable[..., Mapping[str, Any]]]


def serve(operations: Operations) -> None:
    """Answer requests until stdin ends.

    A request is `{"op": NAME, ...arguments}`; a reply is the operation's result, or `{"error": TEXT}`. Whatever else
    is printed on stdout goes to stderr, so that a chatty library cannot break the protocol. Every worker also knows
    the operation `memory`.
    """
    known: Operations = {"memory": read_memory, **operations}
    with os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1) as replies:
        os.dup2(2, 1)
        for line in sys.stdin:
            replies.write(json.dumps(_answer(known, json.loads(line))) + "\n")


def _answer(operations: Operations, request: dict[str, Any]) -> Mapping[str, Any]:
    name = request.pop("op")
    try:
        return operations[name](**request)
    except Exception as error:  # noqa: BLE001  (whatever a library raises is told to the other end)
        return {"error": f"{name}: {type(error).__name__}: {error}"}


def read_memory(status: str = "/proc/self/status") -> Mapping[str, Any]:
    """Most memory that was ever resident, bytes: `VmHWM` of /proc/self/status, which counts mapped files too."""
    for line in Path(status).read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return {"peak_bytes": int(line.split()[1]) * 1024}
    return {"peak_bytes": None}


def _main() -> None:
    # The folder of this script leads the path and holds modules that are not for the measured engine to import.
    del sys.path[0]
    serve(runpy.run_path(sys.argv[1])["operations"]())


if __name__ == "__main__":
    _main()
