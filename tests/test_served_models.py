"""From settings to opened models."""

import pytest

from memra.engine.executor_choice import ExecutorChoice, ExecutorKind, KvType
from memra.served_models import open_models
from memra.settings import EngineSettings, ModelSettings, Settings
from tests.loading.model_directory import write_directory
from tests.loading.sentencepiece_bytes import model

CHOICE = ExecutorChoice(ExecutorKind.TORCH, num_threads=1, kv_type=KvType.F32)


@pytest.mark.parametrize(("quant", "shown"), [("none", "F32"), ("q8_0", "Q8_0")])
def test_weights_are_made_smaller_where_the_user_says_so(tmp_path, monkeypatch, quant, shown):
    for name, size in {"HIDDEN": 64, "FFN": 96}.items():
        monkeypatch.setattr(f"tests.loading.model_directory.{name}", size)
    path = write_directory(tmp_path, "llama", head_dim=4)
    (path / "tokenizer.json").unlink()
    (path / "tokenizer.model").write_bytes(model())
    settings = Settings(models=ModelSettings(arguments=(f"tiny={path}",)), engine=EngineSettings(quant=quant))
    (served,) = open_models(settings, CHOICE)
    assert f"llama, {shown}," in served.describe()
    assert served.checkpoint.tensors["blk.0.attn_q.weight"].quant_type == shown
    assert served.checkpoint.tensors["blk.0.attn_norm.weight"].quant_type == "F32"
    served.checkpoint.close()
