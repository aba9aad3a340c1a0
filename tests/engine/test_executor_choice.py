"""Which executor runs the models, on which machine and by which setting."""

from pathlib import Path

import pytest

from memra.engine import executor_choice
from memra.engine.executor_choice import ExecutorKind, KvType, choose_executor, runs_on_gpu
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


@pytest.mark.parametrize(
    ("settings", "has_gpu", "is_on_gpu"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"device": "cpu"}, True, False),
        ({"device": "cuda:1"}, False, True),
        ({"executor": "torch"}, False, False),
        ({"executor": "torch"}, True, True),
        ({"executor": "cpu"}, True, False),
    ],
)
def test_a_gpu_is_worth_watching_where_it_does_the_work(machine, settings, has_gpu, is_on_gpu):
    machine(has_gpu=has_gpu)
    assert runs_on_gpu(EngineSettings(**settings)) is is_on_gpu


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


def test_keys_and_values_are_as_large_as_the_executor_keeps_them(machine):
    machine()
    settings = [
        EngineSettings(executor="cpu"),
        EngineSettings(executor="torch"),
        EngineSettings(executor="torch", dtype="bfloat16"),
        EngineSettings(executor="cpu", kv_type="q8_0"),
    ]
    types = [choose_executor(each).kv_type for each in settings]
    assert types == [KvType.F16, KvType.F32, KvType.BF16, KvType.Q8_0]
    assert [kv_type.row_bytes(64) for kv_type in types] == [128, 256, 128, 68]
    assert KvType.Q8_0.row_bytes(80) == 80 + 3 * 2


@pytest.mark.parametrize("settings", [{"executor": "torch"}, {"executor": "auto"}])
def test_torch_refuses_a_cache_that_it_does_not_have(machine, settings):
    machine(obstacle="the native CPU engine is not built")
    with pytest.raises(ConfigurationError) as caught:
        choose_executor(EngineSettings(kv_type="q8_0", **settings))
    assert "MEMRA_KV_TYPE=q8_0" in caught.value.message
    assert "MEMRA_EXECUTOR=cpu" in caught.value.message
