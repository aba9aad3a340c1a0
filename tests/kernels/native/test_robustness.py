"""The native executor under rough handling: long runs, forks, signals, garbage, damaged files, neighbours."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from memra_kernels import native
from memra_kernels.native import NativeError
from numpy.typing import NDArray

from memra.engine.cpu_executor import CpuExecutor
from memra.errors import CorruptFileError
from memra.loading.checkpoint import StoredTensor
from tests.kernels.native.one_attention import OneAttention, Part, Shape, tokens_of
from tests.kernels.native.quantised_model import VOCAB_SIZE, make_program, make_tensors, rows_of, stored_matrix
from tests.kernels.native.stored_blocks import block_shape

PROMPT = list(range(100))
PAGES = [2, 0]
Open = Callable[..., CpuExecutor]


@pytest.fixture
def open_executor() -> Iterator[Open]:
    with ExitStack() as stack:

        def open_one(*, num_threads: int = 2, num_pages: int = 4) -> CpuExecutor:
            tensors = make_tensors()
            executor = CpuExecutor(make_program(tensors), tensors, num_threads=num_threads, num_pages=num_pages)
            stack.callback(executor.close)
            return executor

        yield open_one


def logits_of(executor: CpuExecutor) -> NDArray[np.float32]:
    """Those of a prompt and two tokens after it."""
    parts = [executor.run(rows_of(PROMPT, PAGES)).copy()]
    parts += [executor.run(rows_of([token], PAGES, 100 + token)).copy() for token in range(2)]
    return np.concatenate(parts)


def thread_ids() -> set[str]:
    return {task.name for task in Path("/proc/self/task").iterdir()}


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_ten_thousand_steps_take_no_memory_and_no_thread(open_executor: Open):
    executor = open_executor()
    batches = [rows_of([5], PAGES, 100), rows_of([7, 8, 9], PAGES, 101), rows_of(list(range(12)), [1, 3], 60)]
    executor.run(rows_of(PROMPT, PAGES))
    executor.run(rows_of(PROMPT, [1, 3]))
    wanted = [executor.run(batch).copy() for batch in batches]
    for step in range(1000):
        executor.run(batches[step % 3])
    memory, threads = resident_bytes(), thread_ids()
    for step in range(10_000):
        logits = executor.run(batches[step % 3])
        if step % 100 == 0:
            assert np.array_equal(logits, wanted[step % 3])
            assert thread_ids() == threads
    assert resident_bytes() - memory < 1 << 20  # a hundred bytes a step would be as much


def test_opening_and_closing_gives_memory_and_threads_back(open_executor: Open):
    logits_of(open_executor())  # what the first one leaves in allocators
    memory, threads = resident_bytes(), thread_ids()
    for _ in range(20):
        executor = open_executor(num_threads=4)
        logits_of(executor)
        executor.close()
        executor.close()
        assert thread_ids() == threads
    assert resident_bytes() - memory < 4 << 20  # one executor takes about that


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_amid_steps_is_refused_and_may_close(open_executor: Open):
    executor = open_executor(num_threads=4)
    wanted = logits_of(executor)
    for _ in range(20):
        logits_of(executor)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:  # workers of the last step may still be inside it in the parent
            _say_what_a_step_says(executor, writer)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            words = pipe.read()
        assert np.array_equal(logits_of(executor), wanted)
        assert "build it after forking" in words
        assert os.waitpid(child, 0)[1] == 0


def _say_what_a_step_says(executor: CpuExecutor, writer: int) -> None:
    status = 1
    try:
        logits_of(executor)
    except NativeError as error:
        os.write(writer, str(error).encode())
        executor.close()
        status = 0
    finally:
        os._exit(status)


def test_workers_leave_signals_to_the_interpreter(open_executor: Open):
    before = thread_ids()
    open_executor(num_threads=3)
    workers = thread_ids() - before
    assert len(workers) == 2
    for worker in workers:
        status = Path(f"/proc/self/task/{worker}/status").read_text()
        blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
        assert all(blocked >> (number - 1) & 1 for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM))


def test_a_signal_amid_steps_runs_its_handler_in_python(open_executor: Open):
    executor = open_executor(num_threads=4)
    wanted, handled = logits_of(executor), threading.Semaphore(0)
    is_stepping, handlers = threading.Event(), set()

    def handle(*_: object) -> None:
        handlers.add(threading.current_thread())
        handled.release()

    def send() -> int:
        is_stepping.wait()
        for number in range(100):
            os.kill(os.getpid(), signal.SIGUSR1)
            if not handled.acquire(timeout=30):
                return number
        return 100

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(send)
            while not sent.done():
                is_stepping.set()
                assert np.array_equal(logits_of(executor), wanted)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert sent.result() == 100
    assert handlers == {threading.main_thread()}


def test_an_interrupt_amid_steps_leaves_the_executor_usable(open_executor: Open):
    before = thread_ids()
    executor = open_executor(num_threads=4)
    wanted = logits_of(executor)
    for _ in range(20):
        is_stepping = threading.Event()

        def interrupt(is_stepping: threading.Event = is_stepping) -> None:
            is_stepping.wait()
            os.kill(os.getpid(), signal.SIGINT)

        sender = threading.Thread(target=interrupt)
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            _step_for_ever(executor, is_stepping)
        sender.join()
        assert np.array_equal(logits_of(executor), wanted)
    executor.close()
    assert thread_ids() == before


def _step_for_ever(executor: CpuExecutor, is_stepping: threading.Event) -> None:
    while True:
        executor.run(rows_of([5], PAGES, 102))
        is_stepping.set()


_EXTREMES = (-(2**31), -(2**16), -1, 4, 64, 128, 2**16, 2**31 - 65, 2**31 - 1)


@pytest.mark.parametrize("field", ["token_ids", "positions", "sequences", "page_tables", "output_rows"])
def test_garbage_is_refused_and_writes_nothing(open_executor: Open, field: str):
    executor, rng = open_executor(), np.random.default_rng(8)
    wanted = logits_of(executor)
    pages = executor.export_pages([0, 1, 2, 3])
    bound = 4 if field in {"sequences", "page_tables"} else 128
    impossible = [value for value in _EXTREMES if not 0 <= value < bound]
    for _ in range(300):
        batch = rows_of(rng.integers(0, VOCAB_SIZE, 70).tolist(), [1, 3], int(rng.integers(0, 50)))
        garbage = getattr(batch, field).copy()
        place = rng.integers(0, garbage.size, rng.integers(1, 4))
        garbage.reshape(-1)[place] = rng.choice(impossible, place.size)
        with pytest.raises(NativeError):
            executor.run(replace(batch, **{field: garbage}))
    assert executor.export_pages([0, 1, 2, 3]) == pages
    assert np.array_equal(logits_of(executor), wanted)


@pytest.mark.parametrize("field", ["positions", "sequences"])
def test_arrays_of_other_lengths_are_refused(open_executor: Open, field: str):
    executor = open_executor()
    wanted, batch = logits_of(executor), rows_of(PROMPT, PAGES)
    for length in (0, 1, 99):
        with pytest.raises(NativeError, match="as many"):
            executor.run(replace(batch, **{field: getattr(batch, field)[:length]}))
    assert np.array_equal(logits_of(executor), wanted)


def test_no_page_outside_the_cache_is_exported(open_executor: Open):
    executor = open_executor()
    for page in (-1, 4, 2**31 - 1):
        with pytest.raises(NativeError, match="does not exist"):
            executor.export_pages([page])


def test_two_attention_plans_on_one_pool_keep_their_bits():
    pool = native.ThreadPool(4)
    variant, tokens = native.usable_variants()[0], tokens_of(300)
    plans = [
        OneAttention(pool, shape, variant) for shape in (Shape(9, 3, 64, kv_type="q8_0"), Shape(8, 2, 128, softcap=5.0))
    ]
    table = list(range(5))
    wanted = [plan.run([Part(tokens, 0, table)]) for plan in plans]
    for _ in range(20):
        for plan, answer in zip(plans, wanted, strict=True):
            assert np.array_equal(plan.run([Part(tokens[-9:], 291, table)]), answer[-9:])
    plans[0].plan.close()
    assert np.array_equal(plans[1].run([Part(tokens, 0, table)]), wanted[1])
    plans[1].plan.close()
    pool.close()


def test_executors_of_two_python_threads_keep_their_bits(open_executor: Open):
    executors = [open_executor(num_threads=3) for _ in range(2)]
    wanted = logits_of(executors[0])

    def run_many(executor: CpuExecutor) -> int:
        return sum(np.array_equal(logits_of(executor), wanted) for _ in range(100))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run_many, executors)) == [100, 100]


def open_with(changed: dict[str, StoredTensor | None]) -> None:
    """Open an executor on tensors of which some were exchanged, or left out (None); it must be refused."""
    tensors = make_tensors()
    program = make_program(tensors | {name: tensor for name, tensor in changed.items() if tensor})
    kept = {name: tensor for name, tensor in (tensors | changed).items() if tensor}
    CpuExecutor(program, kept, num_threads=2, num_pages=1).close()


# A matrix of a quantised step, one of an added step, the head, and the table that no matrix step reads.
MATRICES = ["blk.1.ffn_down.weight", "blk.0.attn_output.weight", "output.weight", "token_embd.weight"]
# Where a block keeps the float that is broken (ggml-common.h): bytes, and the type of what is there.
SCALES = {"Q4_0": 0, "Q8_0": 0, "Q4_1": 2, "Q4_K": 0, "Q5_K": 2, "Q6_K": 208, "F16": 0, "F32": 0}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("quant_type", SCALES)
@pytest.mark.parametrize("name", MATRICES)
def test_a_scale_that_is_no_number_is_refused_by_name(name: str, quant_type: str, bad: float):
    rows, columns = make_tensors()[name].shape
    good = stored_matrix(name, quant_type, rows, columns)
    open_with({name: good})
    elements, size = block_shape(quant_type)
    blocks = good.data.copy().reshape(rows, columns // elements, size)
    number = np.array([bad], np.float32 if quant_type == "F32" else np.float16).view(np.uint8)
    blocks[rows - 1, -1, SCALES[quant_type] : SCALES[quant_type] + number.size] = number
    with pytest.raises(CorruptFileError, match=rf"{name} \({quant_type}\).*NaN or infinite"):
        open_with({name: replace(good, data=blocks.reshape(-1))})


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["blk.0.attn_norm.weight", "output_norm.weight", "blk.1.attn_k.bias"])
def test_a_vector_with_a_value_that_is_no_number_is_refused_by_name(name: str, bad: float):
    tensor = make_tensors()[name]
    values = tensor.data.view(np.float32).copy()
    values[-1] = bad
    with pytest.raises(CorruptFileError, match=f"{name}.*NaN or infinite"):
        open_with({name: replace(tensor, data=values.view(np.uint8))})


@pytest.mark.parametrize("change", ["short", "long", "empty"])
@pytest.mark.parametrize("name", [*MATRICES, "blk.0.ffn_norm.weight", "blk.0.attn_q.bias"])
def test_data_of_the_wrong_size_is_refused_by_name(name: str, change: str):
    tensor = make_tensors()[name]
    data = {"short": tensor.data[:-2], "long": np.append(tensor.data, tensor.data[-2:]), "empty": tensor.data[:0]}
    with pytest.raises(CorruptFileError, match=f"{name}"):
        open_with({name: replace(tensor, data=data[change])})


@pytest.mark.parametrize("name", sorted(make_tensors()))
def test_a_missing_tensor_is_refused_by_name(name: str):
    tensors = make_tensors()
    program = make_program(tensors)
    del tensors[name]
    with pytest.raises(CorruptFileError, match=f"no tensor {name}"):
        CpuExecutor(program, tensors, num_threads=1, num_pages=1)


def test_a_refused_file_leaves_no_thread():
    before = thread_ids()
    tensor = make_tensors()["output.weight"]
    with pytest.raises(CorruptFileError):
        open_with({"output.weight": replace(tensor, data=tensor.data[:-2])})
    assert thread_ids() == before


@pytest.mark.parametrize(
    "operation",
    [
        {"kind": "norm", "group_width": 0},
        {"kind": "norm", "group_width": 48},
        {"kind": "scale_rows", "num_heads": 0},
        {"kind": "scale_rows", "y": -1, "num_heads": 1},
        {"kind": "scale_by_position", "stride": 0},
        {"kind": "slice", "num_heads": 2, "stride": 32, "offset": 16, "head_dim": 32},
        {"kind": "slice", "num_heads": 3, "stride": 8, "head_dim": 32},
        {"kind": "rope", "num_heads": 4, "head_dim": 16, "half_dims": 16},
        {"kind": "rope", "num_heads": 5, "head_dim": 16, "half_dims": 8},
        {"kind": "join", "num_heads": 4, "head_dim": 16, "stride": 16},
        {"kind": "add", "y": -1},
        {"kind": "activate", "x": -1},
        {"kind": "gate", "out": -1},
    ],
    ids=str,
)
def test_a_row_operation_that_does_not_fit_its_buffers_is_refused(operation: dict[str, object]):
    pool = native.ThreadPool(1)
    plan = native.Plan(pool, variant="scalar", max_rows=1)
    x, y, out = (plan.buffer(64) for _ in range(3))
    with pytest.raises(NativeError, match=r"a row operation (does not fit its|lacks a) buffer"):
        plan.row(native.RowOp(**{"x": x, "y": y, "out": out} | operation))  # type: ignore[arg-type]
    plan.close()
    pool.close()
