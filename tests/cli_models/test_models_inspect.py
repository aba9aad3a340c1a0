"""`memra models inspect`: what it finds, how it says so, and its exit codes."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memra.cli import main
from memra.cli_models.facts import Inspection, Verdict
from memra.cli_models.inspection import inspect_model
from memra.cli_models.screen import render
from memra.errors import SourceError, UnsupportedModelError
from memra.served_models import open_models
from memra.settings import EngineSettings, ModelSettings, Settings
from tests.loading.gguf_bytes import GgufBytes, boolean, default_keys, default_tensors, of_model, string, u32
from tests.loading.model_directory import write_directory
from tests.models.tiny_models import ArrayTensor, make_gemma3, make_llama, make_modern_bert

REPOSITORY = Path(__file__).parents[2]
TORCH = Settings(engine=EngineSettings(executor="torch", device="cpu"))
Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _on_torch(monkeypatch) -> None:
    """The tiny models' heads are too small for the native kernels."""
    monkeypatch.setenv("MEMRA_EXECUTOR", "torch")
    monkeypatch.setenv("MEMRA_DEVICE", "cpu")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: GgufBytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(content.build())
        return path

    return write


def _template(source: str) -> dict[str | bytes, bytes]:
    return {"tokenizer.chat_template": string(source)}


def _llama(**keys: bytes) -> GgufBytes:
    content = of_model(make_llama())
    content.keys |= {key.replace("__", "."): value for key, value in keys.items()}
    return content


def _run(capsys, *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["models", "inspect", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_supported_model_is_told_in_full(write, capsys):
    path = write(_llama(general__name=string("Tiny")))
    code, found = _run(capsys, str(path), "--context", "100")
    model = make_llama()
    program = model.build_program()
    assert code == 0
    assert (found["verdict"], found["obstacle"]) == ("supported", None)
    assert (found["architecture"], found["name"], found["path"]) == ("llama", "Tiny", str(path))
    assert found["num_parameters"] == sum(tensor.values.size for tensor in model.tensors.values())
    assert found["size_bytes"] == path.stat().st_size
    num_bytes = sum(tensor.values.nbytes for tensor in model.tensors.values())
    assert found["quant_types"] == [
        {"quant_type": "F32", "num_tensors": len(model.tensors), "num_bytes": num_bytes},
    ]
    assert found["context_tokens"] == program.context_tokens
    assert found["vocabulary"] == {"kind": "llama", "pre": None, "num_tokens": 97}
    per_token = 2 * 2 * 2 * 8 * 4  # keys and values, layers, heads, elements, float32
    assert found["memory"] == {
        "executor": "torch, float32",
        "context_tokens": 100,
        "weight_bytes": num_bytes,
        "kv_bytes_per_token": per_token,
        "state_bytes": 0,
        "kv_bytes": 100 * per_token,
        "total_bytes": num_bytes + 100 * per_token,
    }


def test_people_get_aligned_lines_a_table_and_a_verdict(write, capsys):
    assert main(["models", "inspect", str(write(_llama()))]) == 0
    lines = capsys.readouterr().out.splitlines()
    labels = ("architecture", "parameters", "file size", "context", "vocabulary", "template", "memory", "supported")
    for label in labels:
        (line,) = [line for line in lines if line.startswith(label)]
        assert line[13] == " " != line[14]
    assert lines[-1] == "supported     yes"
    header = next(line for line in lines if line.startswith("type"))
    (row,) = [line for line in lines if line.startswith("F32")]
    assert len(header) == len(row)
    assert all(len(line) <= 120 for line in lines)


def test_without_a_context_the_models_own_counts(write):
    found = inspect_model(str(write(_llama())), TORCH)
    assert found.memory is not None
    assert found.memory.context_tokens == found.context_tokens == make_llama().build_program().context_tokens


def test_a_context_beyond_the_models_is_a_usage_error(write, capsys):
    assert main(["models", "inspect", str(write(_llama())), "--context", "1000000"]) == 2
    assert "give no more" in capsys.readouterr().err
    for wrong in ("0", "-1", "many"):
        with pytest.raises(SystemExit) as ended:
            main(["models", "inspect", "x", "--context", wrong])
        assert ended.value.code == 2


@pytest.mark.parametrize(
    ("source", "tools", "thinking"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", False, []),
        ("{{ tools | tojson if tools }}{{ messages[0].content }}", True, []),
        ("{% if enable_thinking %}<think>{% endif %}{{ messages[0].content }}", False, ["enable_thinking"]),
        ("{{ reasoning_effort }}{{ mood }}{{ messages[0].content }}", False, ["reasoning_effort"]),
    ],
)
def test_the_template_says_what_it_can_do(write, capsys, source, tools, thinking):
    content = _llama()
    content.keys |= _template(source)
    _, found = _run(capsys, str(write(content)))
    assert found["template"] == {"is_own": True, "supports_tools": tools, "thinking": thinking}


def test_a_model_without_a_template_speaks_chatml(write, capsys):
    content = _llama()
    del content.keys["tokenizer.chat_template"]
    path = write(content)
    assert _run(capsys, str(path))[1]["template"]["is_own"] is False
    main(["models", "inspect", str(path)])
    assert "plain ChatML" in capsys.readouterr().out


def _start_error(path: Path) -> str:
    settings = Settings(models=ModelSettings(arguments=(f"m={path}",)), engine=TORCH.engine)
    with pytest.raises(UnsupportedModelError) as caught:
        open_models(settings, _choice())
    return caught.value.message.removeprefix("model m: ")


def _choice() -> Any:
    from memra.engine.executor_choice import choose_executor  # noqa: PLC0415  (only the comparison needs it)

    return choose_executor(TORCH.engine)


@pytest.mark.parametrize(
    "keys",
    [
        {"general__architecture": string("mamba")},
        {"llama__attention__max_alibi_bias": u32(8)},
        {"tokenizer__ggml__model": string("rwkv")},
        {"tokenizer__ggml__model": string("gpt2"), "tokenizer__ggml__pre": string("martian")},
        {"tokenizer__chat_template": string("{% if %}")},
    ],
    ids=["architecture", "positions", "tokenizer", "pre-tokenizer", "template"],
)
def test_what_memra_does_not_run_ends_in_the_error_of_a_start(write, capsys, keys):
    path = write(_llama(**keys))
    code, found = _run(capsys, str(path))
    assert code == 3
    assert found["verdict"] == "unsupported"
    assert found["obstacle"] == _start_error(path)
    assert found["num_parameters"] > 0
    assert main(["models", "inspect", str(path)]) == 3
    assert capsys.readouterr().out.splitlines()[-1] == f"supported     no: {found['obstacle']}"


def test_an_embedding_models_pooling_and_width_are_told(write, capsys):
    path = write(of_model(make_modern_bert(pooling_type=2)))
    code, found = _run(capsys, str(path))
    assert (code, found["obstacle"]) == (0, None)
    assert found["pooling"] == {"pooling": "cls", "width": 32}
    main(["models", "inspect", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert "embeddings    32 numbers, cls pooling" in lines
    assert not any(line.startswith("template") for line in lines)


def test_a_rerankers_scores_are_told(write, capsys):
    model = make_modern_bert(**{"pooling_type": 4, "classifier.pooling_type": 2})
    values = np.ones((1, 32), np.float32)
    model.tensors["cls.output.weight"] = ArrayTensor("cls.output.weight", values)
    path = write(of_model(model))
    _, found = _run(capsys, str(path))
    assert found["pooling"] == {"pooling": "rank", "width": 1}
    assert found["obstacle"] is None
    main(["models", "inspect", str(path)])
    assert "scores        1 for each text" in capsys.readouterr().out


def test_a_type_that_cannot_be_read_is_named(write, capsys):
    content = _llama()
    tensor = next(tensor for tensor in content.tensors if tensor.name == "output_norm.weight")
    tensor.kind = 26  # I32
    code, found = _run(capsys, str(write(content)))
    assert code == 3
    assert "output_norm.weight" in found["obstacle"]
    assert "I32" in found["obstacle"]


def test_heads_that_the_native_engine_does_not_run_are_refused_with_the_remedy(write, capsys, monkeypatch):
    pytest.importorskip("memra_kernels.native")
    monkeypatch.setenv("MEMRA_EXECUTOR", "cpu")
    code, found = _run(capsys, str(write(_llama())))
    assert code == 3
    assert "heads" in found["obstacle"]
    assert "MEMRA_EXECUTOR=torch" in found["obstacle"]


def test_the_native_engine_keeps_matrices_as_stored(write, capsys, monkeypatch):
    monkeypatch.setenv("MEMRA_EXECUTOR", "cpu")
    model = make_gemma3()
    code, found = _run(capsys, str(write(of_model(model))))
    assert code == 0
    embedding = model.tensors["token_embd.weight"].data.nbytes  # read from the file, beside its copy for the head
    weights = sum(tensor.data.nbytes for tensor in model.tensors.values()) + embedding
    assert found["memory"]["weight_bytes"] == weights
    assert found["memory"]["kv_bytes_per_token"] == 2 * 7 * 1 * 16 * 2


def test_a_damaged_file_is_code_one(write, capsys, tmp_path):
    content = _llama()
    content.tensors = [tensor for tensor in content.tensors if tensor.name != "output_norm.weight"]
    code, found = _run(capsys, str(write(content)))
    assert code == 1
    assert found["verdict"] == "damaged"
    assert "output_norm.weight" in found["obstacle"]
    (tmp_path / "no.gguf").write_bytes(b"nothing of the kind")
    assert main(["models", "inspect", str(tmp_path / "no.gguf")]) == 1
    assert "no GGUF file" in capsys.readouterr().err
    assert main(["models", "inspect", str(tmp_path / "missing.gguf")]) == 1
    assert "missing.gguf" in capsys.readouterr().err
    with pytest.raises(SourceError):
        inspect_model("pypi:no-version/x", TORCH)


def test_a_model_that_cannot_even_be_opened_is_still_code_three(write, capsys):
    path = write(_llama(general__type=string("adapter")))
    code, found = _run(capsys, str(path))
    assert (code, found["verdict"]) == (3, "unsupported")
    assert "adapter" in found["obstacle"]
    assert main(["models", "inspect", str(path)]) == 3
    assert capsys.readouterr().out.startswith("supported     no: ")


def test_a_directory_is_inspected_as_a_file_is(tmp_path, capsys):
    _, found = _run(capsys, str(write_directory(tmp_path, "llama")))
    assert found["architecture"] == "llama"
    assert found["vocabulary"]["kind"] == "tokenizer.json"


def test_overrides_count(write, capsys):
    path = write(_llama())
    _, found = _run(capsys, f"{path},meta.llama.context_length=int:32")
    assert found["context_tokens"] == found["memory"]["context_tokens"] == 32


def test_a_vocabulary_alone_has_no_table(capsys, tmp_path):
    path = tmp_path / "v.gguf"
    path.write_bytes(GgufBytes(keys=default_keys() | {"x": boolean(True)}, tensors=[]).build())
    found = inspect_model(str(path), TORCH)
    assert isinstance(found, Inspection)
    assert found.verdict is Verdict.DAMAGED
    assert "type " not in render(found)
    assert "not known" in render(found)


def test_quant_types_are_listed_by_size(write):
    found = inspect_model(str(write(GgufBytes())), TORCH)
    sizes = {8: "Q8_0", 1: "F16", 0: "F32"}
    expected = sorted(((len(tensor.data), sizes[tensor.kind]) for tensor in default_tensors()), reverse=True)
    assert [(share.num_bytes, share.quant_type) for share in found.quant_types] == expected


def test_no_torch_is_imported_whatever_would_run_the_model(write):
    path = write(_llama())
    check = (
        f"import sys, memra.cli; code = memra.cli.main(['models', 'inspect', {str(path)!r}]);"
        "assert code == 0 and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", check], check=True, cwd=REPOSITORY, timeout=60, capture_output=True)


@pytest.mark.models
def test_the_default_model_is_supported(smollm2_path, capsys):
    code, found = _run(capsys, str(smollm2_path))
    assert code == 0
    assert (found["architecture"], found["context_tokens"], found["num_parameters"]) == ("llama", 8192, 134_515_008)
    assert found["vocabulary"] == {"kind": "gpt2", "pre": "smollm", "num_tokens": 49152}
    assert [share["quant_type"] for share in found["quant_types"]] == ["Q4_1", "Q8_0", "F32"]


@pytest.mark.models
def test_a_real_vocabulary_without_a_model_is_told_and_refused(llama_cpp_models_dir, capsys):
    code, found = _run(capsys, str(llama_cpp_models_dir / "ggml-vocab-bert-bge.gguf"))
    assert code in {1, 3}
    assert (found["architecture"], found["num_parameters"]) == ("bert", 0)
    assert found["vocabulary"] == {"kind": "bert", "pre": None, "num_tokens": 30522}
