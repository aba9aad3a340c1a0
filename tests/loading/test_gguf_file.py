import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from memra.errors import CorruptFileError, SourceError, UnsupportedModelError
from memra.loading.gguf_file import open_gguf
from tests.loading.gguf_bytes import GgufBytes, Tensor, boolean, default_keys, default_tensors, string, strings, u32


@pytest.fixture
def write(tmp_path):
    def write(content: GgufBytes | bytes, name: str = "model.gguf") -> Path:
        path = tmp_path / name
        path.write_bytes(content.build() if isinstance(content, GgufBytes) else content)
        return path

    return write


def test_a_file_opens_with_everything_it_says(write):
    path = write(GgufBytes())
    with open_gguf(path) as checkpoint:
        assert checkpoint.architecture == "llama"
        assert checkpoint.metadata["llama.context_length"] == 128
        assert checkpoint.path == path
        assert checkpoint.size_bytes == path.stat().st_size
        assert not checkpoint.is_directory
        assert checkpoint.vocabulary.tokens == ("<s>", "a", "b", "ab")
        assert checkpoint.metadata["tokenizer.ggml.token_type"] == (3, 1, 1, 1)
        assert checkpoint.metadata["tokenizer.ggml.add_bos_token"] is True
        assert list(checkpoint.tensors) == [tensor.name for tensor in default_tensors()]
        matrix = checkpoint.tensors["token_embd.weight"]
        assert (matrix.shape, matrix.quant_type) == ((4, 32), "Q8_0")
        assert matrix.data.tobytes() == default_tensors()[1].data
        assert not matrix.data.flags.writeable


def test_version_2_and_another_alignment_open_as_well(write):
    keys = {**default_keys(), "general.alignment": u32(64)}
    for version in (2, 3):
        checkpoint = open_gguf(write(GgufBytes(keys=keys, version=version, alignment=64)))
        assert checkpoint.tensors["token_embd.weight"].data.tobytes() == default_tensors()[1].data


def test_the_reader_agrees_with_the_gguf_package(write):
    path = write(GgufBytes())
    checkpoint = open_gguf(path)
    reader = gguf.GGUFReader(path)
    for tensor in reader.tensors:
        ours = checkpoint.tensors[tensor.name]
        assert ours.shape == tuple(int(size) for size in reversed(tensor.shape))
        assert ours.quant_type == tensor.tensor_type.name
        assert ours.data.tobytes() == tensor.data.tobytes()
    for key, value in checkpoint.metadata.items():
        theirs = reader.fields[key].contents()
        assert value == (tuple(theirs) if isinstance(theirs, list) else theirs)


@pytest.mark.parametrize(
    ("number", "code", "values"),
    [
        (0, "B", (0, 255)),
        (1, "b", (-128, 127)),
        (2, "H", (0, 65535)),
        (3, "h", (-32768, 32767)),
        (4, "I", (0, (1 << 32) - 1)),
        (5, "i", (-(1 << 31), (1 << 31) - 1)),
        (6, "f", (-0.5, 3.0)),
        (7, "?", (True, False)),
        (10, "Q", (0, (1 << 64) - 1)),
        (11, "q", (-(1 << 63), (1 << 63) - 1)),
        (12, "d", (0.1, -1e300)),
    ],
)
def test_numbers_of_every_type_are_read_alone_and_in_arrays(write, number, code, values):
    single = struct.pack(f"<I{code}", number, values[0])
    array = struct.pack(f"<IIQ{len(values)}{code}", 9, number, len(values), *values)
    empty = struct.pack("<IIQ", 9, number, 0)
    metadata = open_gguf(write(_with_keys(single=single, array=array, empty=empty))).metadata
    assert (metadata["single"], metadata["array"], metadata["empty"]) == (values[0], values, ())
    assert type(metadata["single"]) is type(values[0])
    assert [type(value) for value in metadata["array"]] == [type(value) for value in values]


def test_values_outlive_the_checkpoint(write):
    checkpoint = open_gguf(write(GgufBytes()))
    tensor = checkpoint.tensors["output_norm.weight"]
    checkpoint.close()
    checkpoint.close()
    assert not checkpoint.tensors
    values = tensor.dequantise()
    assert values.flags.writeable
    assert values.tobytes() == default_tensors()[0].data


def _with_keys(**changes: bytes) -> GgufBytes:
    return GgufBytes(keys={**default_keys(), **{key.replace("__", "."): value for key, value in changes.items()}})


def _with_tensor(**changes: Any) -> GgufBytes:
    tensors = default_tensors()
    for name, value in changes.items():
        setattr(tensors[1], name, value)
    return GgufBytes(tensors=tensors)


def _duplicated_key() -> GgufBytes:
    keys = default_keys()
    again = struct.pack("<Q", 20) + b"general.architecture" + string("llama")
    return GgufBytes(num_keys=len(keys) + 1, further_keys=again)


CORRUPT = {
    "an empty file": (b"", "is empty"),
    "another format": (b"PK\x03\x04" + bytes(64), "no GGUF"),
    "half a magic": (b"GG", "inside the magic"),
    "version 1": (GgufBytes(version=1), "version 1"),
    "version 99": (GgufBytes(version=99), "version 99"),
    "a big-endian file": (b"GGUF" + struct.pack(">IQQ", 3, 1, 1), "big-endian"),
    "2**60 tensors": (GgufBytes(num_tensors=1 << 60), "tensors"),
    "2**60 keys": (GgufBytes(num_keys=1 << 60), "keys"),
    "more tensors than bytes": (GgufBytes(num_tensors=100_000), "claims 100000 tensors"),
    "more keys than bytes": (GgufBytes(num_keys=50_000), "claims 50000 keys"),
    "more strings than bytes": (_with_keys(a=struct.pack("<IIQ", 9, 8, 100_000)), "claims 100000 strings"),
    "an array of 2**60 strings": (_with_keys(a=struct.pack("<IIQ", 9, 8, 1 << 60)), "strings"),
    "an array of 2**60 numbers": (_with_keys(a=struct.pack("<IIQ", 9, 4, 1 << 60)), "entries"),
    "an array of arrays": (_with_keys(a=struct.pack("<IIQ", 9, 9, 1)), "an array of arrays"),
    "an unknown value type": (_with_keys(a=struct.pack("<I", 77)), "unknown type 77"),
    "a string past the end": (_with_keys(a=struct.pack("<IQ", 8, 1 << 40)), "the value of 'a'"),
    "a string in an array past the end": (_with_keys(a=struct.pack("<IIQQ", 9, 8, 1, 1 << 40)), "entry 0"),
    "a long key": (GgufBytes(further_keys=struct.pack("<Q", 1 << 17), num_keys=11), "length"),
    "a value not in UTF-8": (_with_keys(a=string(b"\xff\xfe")), "UTF-8"),
    "a token not in UTF-8": (_with_keys(a=struct.pack("<IIQQ", 9, 8, 1, 1) + b"\xff"), "UTF-8"),
    "a key not in UTF-8": (GgufBytes(keys={**default_keys(), b"\xff": u32(1)}), "UTF-8"),
    "a key twice": (_duplicated_key(), "twice"),
    "a tensor name not in UTF-8": (_with_tensor(name=b"\xff\xff"), "UTF-8"),
    "a tensor twice": (_with_tensor(name="output_norm.weight"), "twice"),
    "no dimensions": (_with_tensor(dimensions=()), "0 dimensions"),
    "too many dimensions": (_with_tensor(dimensions=(32, 1, 1, 1, 4)), "5 dimensions"),
    "2**31 dimensions": (_with_tensor(dimensions=(1,) * 40), "40 dimensions"),
    "an empty dimension": (_with_tensor(dimensions=(32, 0)), "impossible shape"),
    "a huge dimension": (_with_tensor(dimensions=(32, 1 << 60)), "impossible shape"),
    "a huge product": (_with_tensor(dimensions=(1 << 39, 1 << 39, 1 << 39)), "lies at"),
    "rows that blocks do not fill": (_with_tensor(dimensions=(31, 4)), "do not fill"),
    "an offset past the end": (_with_tensor(offset=1 << 40), "lies at"),
    "an offset off the grid": (_with_tensor(offset=7), "multiple of 32"),
    "overlapping tensors": (_with_tensor(offset=0), "overlap"),
    "more data than the file": (_with_tensor(dimensions=(32, 1000)), "lies at"),
    "an alignment of 0": (_with_keys(general__alignment=u32(0)), "power of two"),
    "an alignment of 3": (_with_keys(general__alignment=u32(3)), "power of two"),
    "an alignment in words": (_with_keys(general__alignment=string("32")), "power of two"),
    "no architecture": (_with_keys(general__architecture=u32(1)), "architecture"),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_a_broken_file_is_refused_by_name_of_file_and_fault(write, name):
    content, reason = CORRUPT[name]
    path = write(content)
    with pytest.raises(CorruptFileError) as caught:
        _ = open_gguf(path).vocabulary
    message = caught.value.message
    assert str(path) in message
    assert reason in message
    assert "fetch" in message or "convert" in message
    assert "\n" not in message


def test_a_file_cut_anywhere_is_refused(write):
    whole = GgufBytes().build()
    for length in range(0, len(whole) - 31, 3):  # the last 31 bytes may be padding
        with pytest.raises(CorruptFileError):
            _ = open_gguf(write(whole[:length])).vocabulary


def test_an_unknown_tensor_type_is_named(write):
    with pytest.raises(UnsupportedModelError, match=r"token_embd.*type number 9999"):
        _ = open_gguf(write(_with_tensor(kind=9999))).vocabulary


def test_an_unknown_tokenizer_is_named(write):
    with pytest.raises(UnsupportedModelError, match="rwkv"):
        _ = open_gguf(write(_with_keys(tokenizer__ggml__model=string("rwkv")))).vocabulary


def test_a_missing_file_is_a_source_error(tmp_path):
    with pytest.raises(SourceError, match=r"nothing\.gguf.*cannot be read"):
        _ = open_gguf(tmp_path / "nothing.gguf").vocabulary
    with pytest.raises(SourceError, match="cannot be read"):
        _ = open_gguf(tmp_path).vocabulary


def _shard(number: int, count: int, tensors: list[Tensor], *, first_keys: bool = True) -> GgufBytes:
    split = {
        "split.no": u32(number),
        "split.count": u32(count),
        "split.tensors.count": u32(3),
    }
    return GgufBytes(keys={**(default_keys() if first_keys else {}), **split}, tensors=tensors)


def test_a_split_model_opens_by_its_first_shard(write):
    tensors = default_tensors()
    first = write(_shard(0, 2, tensors[:1]), "m-00001-of-00002.gguf")
    second = write(_shard(1, 2, tensors[1:], first_keys=False), "m-00002-of-00002.gguf")
    checkpoint = open_gguf(first)
    assert list(checkpoint.tensors) == [tensor.name for tensor in tensors]
    assert checkpoint.tensors["token_embd.weight"].data.tobytes() == tensors[1].data
    assert checkpoint.size_bytes == first.stat().st_size + second.stat().st_size
    with pytest.raises(SourceError, match="first shard"):
        _ = open_gguf(second).vocabulary


def test_a_split_model_with_a_shard_missing_renamed_or_wrong_is_refused(write):
    tensors = default_tensors()
    first = write(_shard(0, 2, tensors[:1]), "m-00001-of-00002.gguf")
    with pytest.raises(SourceError, match="m-00002-of-00002"):
        _ = open_gguf(first).vocabulary
    with pytest.raises(CorruptFileError, match="keep the names"):
        _ = open_gguf(write(_shard(0, 2, tensors[:1]), "renamed.gguf")).vocabulary
    write(_shard(1, 2, tensors[2:], first_keys=False), "m-00002-of-00002.gguf")
    with pytest.raises(CorruptFileError, match="promises 3 tensors"):
        _ = open_gguf(first).vocabulary
    write(_shard(1, 2, tensors[:1], first_keys=False), "m-00002-of-00002.gguf")
    with pytest.raises(CorruptFileError, match="repeats the tensor"):
        _ = open_gguf(first).vocabulary


def test_a_shard_under_the_name_of_another_is_refused(write):
    tensors = default_tensors()
    first = write(_shard(0, 3, tensors[:1]), "m-00001-of-00003.gguf")
    write(_shard(2, 3, tensors[2:], first_keys=False), "m-00002-of-00003.gguf")
    write(_shard(1, 3, tensors[1:2], first_keys=False), "m-00003-of-00003.gguf")
    with pytest.raises(CorruptFileError, match=r"m-00002-of-00003.*shard 2 of 3, not 1 of 3"):
        open_gguf(first)
    write(GgufBytes(keys={}, tensors=tensors[1:2]), "m-00002-of-00003.gguf")
    with pytest.raises(CorruptFileError, match=r"m-00002-of-00003.*shard None of None, not 1 of 3"):
        open_gguf(first)


@pytest.mark.parametrize("count", [-1, 1 << 31, 100_000])
def test_a_number_of_shards_that_no_name_can_count_is_refused(write, count):
    value = struct.pack("<Iq", 11, count)
    with pytest.raises(CorruptFileError, match="no number of shards"):
        open_gguf(write(_with_keys(split__count=value), "m-00001-of-00002.gguf"))


def test_the_first_shard_must_be_named_so(write):
    with pytest.raises(CorruptFileError, match="its name does not"):
        open_gguf(write(_shard(0, 2, default_tensors()[:1]), "m-00002-of-00002.gguf"))


@pytest.mark.parametrize("quant_type", gguf.GGMLQuantizationType, ids=lambda quant_type: quant_type.name)
def test_every_type_of_the_gguf_package_is_known_by_name_and_size(write, quant_type):
    block_size, type_size = gguf.GGML_QUANT_SIZES[quant_type]
    tensor = Tensor("t", (3 * block_size, 2), kind=quant_type.value, data=bytes(range(6))[:1] * (6 * type_size))
    path = write(GgufBytes(tensors=[tensor]))
    found = open_gguf(path).tensors["t"]
    assert (found.quant_type, found.shape, found.data.size) == (quant_type.name, (2, 3 * block_size), 6 * type_size)
    path.write_bytes(path.read_bytes()[: found.offset + 6 * type_size - 1])
    with pytest.raises(CorruptFileError, match="lies at"):
        open_gguf(path)


@pytest.mark.parametrize("kind", ["adapter", "mmproj", "imatrix"])
def test_a_file_that_holds_no_model_is_refused_by_what_it_holds(write, kind):
    with pytest.raises(UnsupportedModelError, match=kind):
        open_gguf(write(_with_keys(general__type=string(kind))))
    assert open_gguf(write(_with_keys(general__type=string("model")))).architecture == "llama"


def test_a_vocabulary_alone_opens(write):
    checkpoint = open_gguf(write(GgufBytes(tensors=[])))
    assert not checkpoint.tensors
    assert len(checkpoint.vocabulary.tokens) == 4


def test_a_tensor_of_a_type_that_gguf_cannot_dequantise_is_refused_by_name(write):
    tensor = Tensor("counts", (4,), kind=gguf.GGMLQuantizationType.I32.value, data=bytes(16))
    checkpoint = open_gguf(write(GgufBytes(tensors=[tensor])))
    with pytest.raises(UnsupportedModelError, match=r"'counts'.*I32"):
        checkpoint.tensors["counts"].dequantise()


def test_an_empty_vocabulary_is_refused(write):
    with pytest.raises(CorruptFileError, match="no tokens"):
        _ = open_gguf(write(_with_keys(tokenizer__ggml__tokens=strings([])))).vocabulary


def test_a_boolean_is_not_taken_for_a_token_id(write):
    with pytest.raises(CorruptFileError, match="bos_token_id"):
        _ = open_gguf(write(_with_keys(tokenizer__ggml__bos_token_id=boolean(True)))).vocabulary


@pytest.mark.models
def test_a_real_model_reads_as_in_the_gguf_package(smollm2_path):
    checkpoint = open_gguf(smollm2_path)
    reader = gguf.GGUFReader(smollm2_path)
    assert checkpoint.tensors.keys() == {tensor.name for tensor in reader.tensors}
    for tensor in reader.tensors:
        ours = checkpoint.tensors[tensor.name]
        assert ours.data.size == tensor.n_bytes
        assert np.array_equal(ours.data, tensor.data.reshape(-1).view(np.uint8))
    assert checkpoint.metadata["tokenizer.ggml.tokens"] == tuple(reader.fields["tokenizer.ggml.tokens"].contents())


@pytest.mark.models
def test_three_real_models_open(smollm2_path, qwen_path, gemma_path):
    found = [open_gguf(path) for path in (smollm2_path, qwen_path, gemma_path)]
    assert [(checkpoint.architecture, len(checkpoint.tensors)) for checkpoint in found] == [
        ("llama", 272),
        ("qwen2", 291),
        ("gemma3", 236),
    ]
    assert [len(checkpoint.vocabulary.tokens) for checkpoint in found] == [49152, 151936, 262144]


@pytest.mark.models
def test_all_vocabulary_files_open(llama_cpp_models_dir):
    paths = sorted(llama_cpp_models_dir.glob("ggml-vocab-*.gguf"))
    assert len(paths) > 10
    for path in paths:
        assert len(open_gguf(path).vocabulary.tokens) > 1000
