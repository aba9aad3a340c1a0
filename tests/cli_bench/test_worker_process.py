import os
import sys
from pathlib import Path

import pytest

from memra.cli_bench import worker_loop
from memra.cli_bench.worker_process import WorkerProcess, thread_environment
from memra.errors import MeasurementError

_OPERATIONS = """
import os

def add(*, a, b):
    print("a chatty library writes on stdout")
    os.write(1, b"and its C code too")
    return {"sum": a + b}

def die():
    os.write(2, b"last words")
    os._exit(3)

def crash():
    os.kill(os.getpid(), 11)

def fail():
    raise ValueError("not this one")

def threads():
    return {"value": os.environ["OMP_NUM_THREADS"]}

def operations():
    return {"add": add, "die": die, "crash": crash, "fail": fail, "threads": threads}
"""


@pytest.fixture
def worker(tmp_path: Path):
    script = tmp_path / "operations.py"
    script.write_text(_OPERATIONS, encoding="utf-8")
    command = [sys.executable, worker_loop.__file__, str(script)]
    with WorkerProcess(command, environ=thread_environment(3), label="tiny") as process:
        yield process


def test_operations_are_answered_in_turn_whatever_else_is_printed(worker: WorkerProcess):
    assert worker.call("add", a=1, b=2) == {"sum": 3}
    assert worker.call("add", a=5, b=2) == {"sum": 7}


def test_threads_are_told_by_the_environment(worker: WorkerProcess):
    assert worker.call("threads") == {"value": "3"}


def test_every_worker_knows_its_own_memory(worker: WorkerProcess):
    assert worker.call("memory")["peak_bytes"] > 1 << 20


def test_an_error_is_told_and_the_worker_goes_on(worker: WorkerProcess):
    with pytest.raises(MeasurementError, match="tiny: fail: ValueError: not this one"):
        worker.call("fail")
    assert worker.call("add", a=1, b=1) == {"sum": 2}


def test_a_worker_that_dies_is_named_with_its_last_words(worker: WorkerProcess):
    with pytest.raises(MeasurementError, match="tiny: ended with 3: last words"):
        worker.call("die")
    with pytest.raises(MeasurementError, match="tiny: ended with 3"):
        worker.call("add", a=1, b=1)


def test_a_worker_that_crashes_is_named_with_its_signal(worker: WorkerProcess):
    with pytest.raises(MeasurementError, match="tiny: was ended by SIGSEGV"):
        worker.call("crash")


def test_a_program_that_does_not_exist_is_named(tmp_path: Path):
    with pytest.raises(MeasurementError, match=r"tiny: .*no-python cannot be started"):
        WorkerProcess([str(tmp_path / "no-python")], environ=os.environ, label="tiny")


def test_closing_ends_the_process(worker: WorkerProcess):
    worker.close()
    assert worker._process.poll() == 0
    worker.close()
