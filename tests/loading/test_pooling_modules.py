"""`modules.json` of sentence-transformers, in GGUF's key."""

import json
from pathlib import Path

import pytest

from memra.errors import CorruptFileError, SourceError, UnsupportedModelError
from memra.loading.huggingface.pooling import pooling_metadata

TRANSFORMER = {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
NORMALISE = {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
DENSE = {"idx": 2, "path": "2_Dense", "type": "sentence_transformers.models.Dense"}


def write_modules(folder: Path, modules: object, pooling: dict[str, object] | None = None) -> Path:
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}, 1),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, 2),
        ({"pooling_mode_lasttoken": True, "include_prompt": True}, 3),
        ({"pooling_mode": "mean", "embedding_dimension": 384}, 1),
        ({"pooling_mode": "cls"}, 2),
        ({"pooling_mode": "lasttoken"}, 3),
    ],
)
def test_the_pooling_becomes_the_number_that_gguf_has_for_it(tmp_path: Path, settings: dict[str, object], number: int):
    folder = write_modules(tmp_path, [TRANSFORMER, POOLING, NORMALISE], settings)
    assert pooling_metadata(folder, "bert") == {"bert.pooling_type": number}


@pytest.mark.parametrize(
    "settings",
    [
        {"pooling_mode_max_tokens": True},
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
        {"pooling_mode": "weightedmean"},
        {"pooling_mode": ["mean", "cls"]},
        {"pooling_mode_mean_tokens": False},
        {},
    ],
)
def test_pooling_that_memra_does_not_have_is_refused_by_name(tmp_path: Path, settings: dict[str, object]):
    folder = write_modules(tmp_path, [TRANSFORMER, POOLING], settings)
    with pytest.raises(UnsupportedModelError, match=r"1_Pooling.*mean, cls or lasttoken"):
        pooling_metadata(folder, "bert")


def test_a_module_with_weights_of_its_own_is_refused_by_name(tmp_path: Path):
    folder = write_modules(tmp_path, [TRANSFORMER, POOLING, DENSE], {"pooling_mode": "mean"})
    with pytest.raises(UnsupportedModelError, match="'Dense'"):
        pooling_metadata(folder, "bert")


def test_a_directory_without_modules_says_nothing(tmp_path: Path):
    assert pooling_metadata(tmp_path, "bert") == {}


@pytest.mark.parametrize("modules", [{}, [3], [{"path": "1_Pooling"}], [POOLING | {"path": "../1_Pooling"}]])
def test_a_damaged_list_of_modules_is_refused_by_name(tmp_path: Path, modules: object):
    with pytest.raises(CorruptFileError, match=r"modules\.json"):
        pooling_metadata(write_modules(tmp_path, modules), "bert")


def test_missing_settings_of_the_pooling_are_named(tmp_path: Path):
    with pytest.raises(SourceError, match="1_Pooling"):
        pooling_metadata(write_modules(tmp_path, [TRANSFORMER, POOLING]), "bert")
