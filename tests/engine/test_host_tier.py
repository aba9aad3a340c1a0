"""Which store the settings give on which machine, and how large it may be."""

from pathlib import Path

import pytest

from memra.engine import host_tier
from memra.engine.host_store import FileStore, PinnedStore
from memra.engine.host_tier import available_memory, free_disk, is_in_memory, open_host_store
from memra.errors import ConfigurationError
from memra.settings import HostTierSettings

MIB = 1 << 20


@pytest.mark.parametrize("is_gpu", [False, True])
def test_the_tier_is_off_unless_it_has_room(is_gpu):
    assert open_host_store(HostTierSettings(), is_gpu=is_gpu) is None


def test_beside_the_native_engine_blobs_lie_in_a_file(tmp_path: Path):
    store = open_host_store(HostTierSettings(memory_mb=1, directory=tmp_path, verify=True), is_gpu=False)
    assert isinstance(store, FileStore)
    assert store.limit_bytes == MIB
    store.close()


def test_beside_a_gpu_blobs_lie_in_pinned_memory_which_is_taken_when_it_is_needed():
    store = open_host_store(HostTierSettings(memory_mb=64), is_gpu=True)
    assert isinstance(store, PinnedStore)
    assert store.limit_bytes == 64 * MIB


@pytest.mark.parametrize(("is_gpu", "why"), [(False, "what is free in"), (True, "60 % of the available memory")])
def test_more_than_the_machine_has_is_cut_with_a_line(is_gpu, why, monkeypatch, caplog):
    monkeypatch.setattr(host_tier, "available_memory" if is_gpu else "free_disk", lambda *_: 1000 * MIB)
    store = open_host_store(HostTierSettings(memory_mb=5000), is_gpu=is_gpu)
    assert store is not None
    assert store.limit_bytes == (576 * MIB if is_gpu else 1000 * MIB)  # 600 MiB in whole pieces of 64
    assert f"MEMRA_KV_HOST_MB: 5000 is more than {why}" in caplog.text
    store.close()


def test_a_folder_in_memory_is_pointed_out(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(host_tier, "is_in_memory", lambda _: True)
    store = open_host_store(HostTierSettings(memory_mb=1, directory=tmp_path), is_gpu=False)
    assert store is not None
    assert "lies in memory" in caplog.text
    store.close()


def test_the_kind_of_file_system_is_read_from_the_mounts(tmp_path, monkeypatch):
    device = tmp_path.stat().st_dev
    name = f"{host_tier.os.major(device)}:{host_tier.os.minor(device)}"
    mounts = tmp_path / "mounts"
    monkeypatch.setattr(host_tier, "_MOUNTS", mounts)
    mounts.write_text(f"22 1 {name} / /tmp rw shared:1 - tmpfs tmpfs rw\n")
    assert is_in_memory(tmp_path)
    mounts.write_text(f"22 1 {name} / /tmp rw - ext4 /dev/a rw\n23 1 99:99 / /b rw - tmpfs tmpfs rw\n")
    assert not is_in_memory(tmp_path)
    mounts.unlink()
    assert not is_in_memory(tmp_path)


def test_memory_and_disk_are_asked_of_the_system(tmp_path, monkeypatch):
    assert available_memory() > MIB
    assert free_disk(tmp_path) > 0
    with pytest.raises(ConfigurationError, match="MEMRA_KV_HOST_DIR"):
        free_disk(tmp_path / "absent")
    monkeypatch.setattr(host_tier, "_MEMINFO", tmp_path / "absent")
    with pytest.raises(ConfigurationError, match="does not say what is available"):
        available_memory()
