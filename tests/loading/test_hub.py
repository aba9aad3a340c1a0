import inspect
from pathlib import Path

import pytest

from memra.errors import SourceError
from memra.loading.hub import fetch_hub_source
from memra.loading.source_grammar import parse_source

GGUF = ["README.md", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-m-f16.gguf", "config.json"]
SHARDED = ["big-Q4-00001-of-00002.gguf", "big-Q4-00002-of-00002.gguf", "BF16/big-BF16.gguf"]
DIRECTORY = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "original/consolidated.safetensors",
    "pytorch_model.bin",
]


class FakeHub:
    """A repository in memory; fails, or stops after some files, on request."""

    def __init__(self, names: list[str], *, fails_after: int | None = None) -> None:
        self.names = names
        self.fails_after = fails_after
        self.fetched: list[str] = []
        self.num_listings = 0

    def list_repo_files(self, repo_id: str) -> list[str]:
        assert repo_id == "o/r"
        self.num_listings += 1
        return list(self.names)

    def hf_hub_download(self, repo_id: str, filename: str, *, local_dir: Path) -> str:
        assert repo_id == "o/r"
        if len(self.fetched) == self.fails_after:
            raise ConnectionError("connection lost\nsecond line")
        self.fetched.append(filename)
        path = Path(local_dir, filename)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(filename.encode())
        return str(path)


@pytest.fixture
def fetch(tmp_path):
    def fetch(text: str, hub: FakeHub) -> Path:
        return fetch_hub_source(parse_source(text), cache_dir=tmp_path, progress=False, client=hub)

    return fetch


def test_a_part_of_the_name_chooses_a_file_whatever_its_case(tmp_path, fetch):
    hub = FakeHub(GGUF)
    path = fetch("hf:o/r:q4_k", hub)
    assert path == tmp_path / "hf" / "o--r" / "m-Q4_K_M.gguf"
    assert path.read_bytes() == b"m-Q4_K_M.gguf"
    assert hub.fetched == ["m-Q4_K_M.gguf"]


def test_what_is_here_is_not_asked_for_again(fetch):
    hub = FakeHub(GGUF)
    path = fetch("hf:o/r:q4_k", hub)
    assert fetch("hf:o/r:q4_k", hub) == path
    assert hub.num_listings == 1


def test_several_fitting_files_are_listed_without_projectors(fetch):
    with pytest.raises(SourceError, match=r"hf:o/r: several GGUF files fit: m-Q4_K_M\.gguf, m-Q8_0\.gguf:") as caught:
        fetch("hf:o/r", FakeHub(GGUF))
    assert "mmproj" not in caught.value.message


def test_an_exact_name_wins_over_names_that_contain_it(fetch):
    hub = FakeHub(["m.gguf", "big-m.gguf"])
    assert fetch("hf:o/r:m.gguf", hub).name == "m.gguf"


def test_nothing_fitting_lists_what_there_is(fetch):
    with pytest.raises(SourceError, match=r"nothing in the repository fits; it has m-Q4_K_M\.gguf, m-Q8_0\.gguf"):
        fetch("hf:o/r:q6", FakeHub(GGUF))
    with pytest.raises(SourceError, match="no GGUF file and no complete safetensors model"):
        fetch("hf:o/r", FakeHub(["README.md"]))


def test_all_shards_come_with_the_first(fetch):
    hub = FakeHub(SHARDED)
    assert fetch("hf:o/r:q4", hub).name == "big-Q4-00001-of-00002.gguf"
    assert hub.fetched == SHARDED[:2]


def test_a_bare_repository_resolves_to_its_only_gguf(fetch):
    assert fetch("hf:o/r", FakeHub(["a.gguf", "mmproj-a.gguf", "config.json"])).name == "a.gguf"


def test_a_bare_repository_resolves_to_a_safetensors_directory(tmp_path, fetch):
    hub = FakeHub(DIRECTORY)
    assert fetch("hf:o/r", hub) == tmp_path / "hf" / "o--r"
    assert set(hub.fetched) == set(DIRECTORY[:6])
    assert fetch("hf:o/r", hub) == tmp_path / "hf" / "o--r"
    assert hub.num_listings == 1


@pytest.mark.parametrize(("names", "text", "num_needed"), [(SHARDED, "hf:o/r:q4", 2), (DIRECTORY, "hf:o/r", 6)])
def test_a_download_that_stopped_is_taken_up_again(tmp_path, fetch, names, text, num_needed):
    for fails_after in range(len(names)):
        stopped = FakeHub(names, fails_after=fails_after)
        if fails_after == num_needed:
            fetch(text, stopped)
            break
        with pytest.raises(SourceError, match=r"\(connection lost\)"):
            fetch(text, stopped)
    whole = FakeHub(names)
    fetch(text, whole)
    assert whole.num_listings == 0
    here = [path for path in tmp_path.rglob("*") if path.is_file() and path.name in names]
    assert len(here) == num_needed


def test_a_stopped_download_is_never_taken_for_a_whole_model(fetch):
    for fails_after in range(6):
        with pytest.raises(SourceError, match="connection lost"):
            fetch("hf:o/r", FakeHub(DIRECTORY, fails_after=fails_after))
    second = FakeHub(DIRECTORY)
    fetch("hf:o/r", second)
    assert second.num_listings == 1


def test_an_unreachable_hub_is_told_with_the_remedy(fetch):
    class Unreachable(FakeHub):
        def list_repo_files(self, repo_id: str) -> list[str]:
            raise OSError(f"Repository Not Found: {repo_id}")

    with pytest.raises(SourceError, match=r"hf:o/r.*Repository Not Found.*HF_TOKEN"):
        fetch("hf:o/r", Unreachable([]))


def test_names_that_lead_outside_are_never_asked_for(fetch):
    with pytest.raises(SourceError, match="no GGUF file"):
        fetch("hf:o/r", FakeHub(["../evil.gguf", "/evil.gguf"]))


def test_the_real_client_takes_the_calls_that_the_fake_takes():
    huggingface_hub = pytest.importorskip("huggingface_hub")
    api = huggingface_hub.HfApi
    inspect.signature(api.list_repo_files).bind(None, "o/r")
    inspect.signature(api.hf_hub_download).bind(None, "o/r", "m.gguf", local_dir=Path())
