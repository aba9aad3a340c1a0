"""Which executor runs the models, on which machine and by which setting."""

from pathlib import Path

import pytest

from memra.engine import executor_choice
from memra.engine.executor_choice import ExecutorKind, choose_executor
from memra.errors import ConfigurationError
from memra.settings import EngineSettings


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Pretend to be a machine with or without the native library and a GPU."""

    def pretend(*, obstacle: str | None = None, has_gpu: bool = False) -> None:
        device = tmp_path / "nvidiactl"
        if has_gpu:
            device.touch()
        monkeypatch.setattr(executor_choice, "find_native_obstacle", lambda: obstacle)
        monkeypatch.setattr(executor_choice, "_NVIDIA_DEVICE", device)

    return pretend


@pytest.mark.parametrize(
    ("settings", "facts", "kind"),
    [
        ({}, {}, ExecutorKind.CPU),
        ({}, {"has_gpu": True}, ExecutorKind.TORCH),
        ({}, {"obstacle": "not built"}, ExecutorKind.TORCH),
        ({"device": "cpu"}, {"has_gpu": True}, ExecutorKind.CPU),
        ({"device": "cuda:1"}, {}, ExecutorKind.TORCH),
        ({"executor": "torch"}, {}, ExecutorKind.TORCH),
        ({"executor": "cpu"}, {"has_gpu": True}, ExecutorKind.CPU),
    ],
)
def test_the_fastest_executor_that_fits_is_chosen(machine, settings, facts, kind):
    machine(**facts)
    assert choose_executor(EngineSettings(**settings)).kind is kind


def test_a_missing_library_is_said_in_one_line(machine, caplog: pytest.LogCaptureFixture):
    machine(obstacle="the native CPU engine is not built")
    choose_executor(EngineSettings())
    assert [record.message for record in caplog.records] == [
        "the native CPU engine is not built; running on torch, which is much slower"
    ]


@pytest.mark.parametrize(
    ("settings", "obstacle", "words"),
    [
        ({"executor": "cpu"}, "the native CPU engine is not built", "MEMRA_EXECUTOR=cpu: the native CPU engine is not"),
        ({"executor": "cpu", "device": "cuda"}, None, "set MEMRA_DEVICE=cpu"),
    ],
)
def test_what_is_demanded_and_cannot_be_had_is_refused(machine, settings, obstacle, words):
    machine(obstacle=obstacle)
    with pytest.raises(ConfigurationError) as caught:
        choose_executor(EngineSettings(**settings))
    assert words in caught.value.message


def test_the_number_of_threads_is_the_setting_or_what_the_process_may_use(machine, monkeypatch):
    machine()
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    assert choose_executor(EngineSettings(num_threads=5)).num_threads == 5
    assert choose_executor(EngineSettings()).num_threads in {1, 2, 3}  # a container's quota may be smaller


def test_a_cache_element_is_as_large_as_the_executor_keeps_it(machine):
    machine()
    sizes = [
        choose_executor(EngineSettings(executor=executor, dtype=dtype)).kv_element_bytes
        for executor, dtype in (("cpu", "float32"), ("torch", "float32"), ("torch", "bfloat16"))
    ]
    assert sizes == [2, 4, 2]
