from pathlib import Path

import pytest

from memra.engine.processors import Processors, find_processors, processor_name


def _groups(tmp_path: Path, membership: str, files: dict[str, str]) -> Processors:
    (tmp_path / "membership").write_text(membership, encoding="utf-8")
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return find_processors(cgroups=tmp_path / "cgroup", membership=tmp_path / "membership")


def test_without_control_groups_there_is_no_quota(tmp_path: Path):
    found = _groups(tmp_path, "", {})
    assert found.quota is None
    assert 1 <= found.num_usable <= found.num_affine <= found.num_present


def test_the_tightest_quota_on_the_way_up_counts(tmp_path: Path):
    files = {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "150000 100000\n", "cpu.max": "400000 100000\n"}
    assert _groups(tmp_path, "0::/a/b\n", files).quota == pytest.approx(1.5)


def test_a_container_sees_its_quota_at_the_root(tmp_path: Path):
    assert _groups(tmp_path, "0::/\n", {"cpu.max": "50000 100000\n"}).quota == pytest.approx(0.5)


def test_the_first_version_of_the_interface_is_read_too(tmp_path: Path):
    files = {"cpu,cpuacct/box/cpu.cfs_quota_us": "200000\n", "cpu,cpuacct/box/cpu.cfs_period_us": "100000\n"}
    assert _groups(tmp_path, "4:cpu,cpuacct:/box\n3:memory:/box\n", files).quota == pytest.approx(2.0)


def test_minus_one_is_no_limit(tmp_path: Path):
    files = {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}
    assert _groups(tmp_path, "4:cpu:/\n", files).quota is None


@pytest.mark.parametrize(
    ("affine", "quota", "usable"), [(8, None, 8), (8, 2.0, 2), (8, 1.5, 2), (8, 0.2, 1), (2, 16.0, 2)]
)
def test_usable_is_the_tighter_of_affinity_and_quota(affine: int, quota: float | None, usable: int):
    assert Processors(16, affine, quota).num_usable == usable


def test_the_processor_is_named_or_unknown(tmp_path: Path):
    path = tmp_path / "cpuinfo"
    assert processor_name(cpuinfo=path) == "unknown"
    path.write_text("flags: x\nmodel name\t:  Some   CPU @ 2GHz\n", encoding="utf-8")
    assert processor_name(cpuinfo=path) == "Some CPU @ 2GHz"
