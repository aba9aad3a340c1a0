"""Every pre-tokenizer rule, and vocabularies without published ids, against what llama.cpp makes of the same texts.

The digests were taken from llama-cpp-python 0.3.36. The vocabulary of Llama 3 (of Gemma 4 for its own rules) was
written under each name of `tokenizer.ggml.pre`, and every text of `make_texts` tokenised as it is, and again with
special tokens parsed and added. Left out are rules for which llama.cpp's expressions are not those of the models' own
files, where digits meet spaces or small letters meet capitals; other tests hold those.
"""

import hashlib
import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from memra.chat.pre_tokenizers import find_rule, rule_names
from memra.chat.tokenizer import build_tokenizer
from memra.loading.gguf_file import open_gguf
from memra.loading.gguf_vocabulary import read_vocabulary
from memra.messages.vocabulary import TokenizerKind, Vocabulary

pytestmark = pytest.mark.models

PIECES = (
    *("It's", "we'LL", " don't", "I'M", "HelloWorld", "fooBar", "FOO", "camelCaseWord", "x_y", "<tag>", "&amp;"),
    *("1234567", "12", "3.14", "1,000,000", "$5", "\u20ac", "a/b", "//", "!!", "...", "()", "();", "\u2026", "=="),
    *(" ", "  ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "<|eot_id|>", "https://a.b/c?d=e"),
    *(
        "\u00e9",
        "na\u00efve",
        "\u00dcn\u00efcode",
        "\u00df\u1e9e",
        "\u0391\u03b8\u03ae\u03bd\u03b1",
        "\u043f\u0440\u0438",
    ),
    *("\u6211\u60f3\u5728", "\u65e5\u672c\u8a9e", "\u30ab\u30bf\u30ab\u30ca", "\ud55c\uad6d\uc5b4", "\u3001", "\u3002"),
    *("\u05e2\u05d1\u05e8", "\u0627\u0644\u0639\u0631", "\U0001f680", "\U0001f468\u200d\U0001f469", "\u00b2\u00b3"),
)
NUM_TEXTS = 400
NOT_AS_THEIR_MODELS = {"afmoe", "cohere2moe", "kimi-k2", "tiny_aya", "youtu"}
NAMES_OF_DIGEST: dict[str, tuple[str, ...]] = {
    "55f0d1bb4d7ce76b": (
        "a.x-4.0",
        "exaone4",
        "gigachat",
        "gpt-2",
        "granite-docling",
        "jais",
        "jina-de",
        "jina-es",
        "jina-v1-en",
        "jina-v2-code",
        "jina-v2-de",
        "jina-v2-es",
        "mellum",
        "modern-bert",
        "mpt",
        "olmo",
        "phi-2",
        "roberta-bpe",
        "trillion",
    ),
    "9246b87088653fb6": (
        "bailingmoe",
        "bailingmoe2",
        "deepseek-r1-qwen",
        "f2llmv2",
        "grok-2",
        "hunyuan",
        "kormo",
        "llada-moe",
        "megrez",
        "qwen2",
        "qwen35",
        "solar-open",
        "stablelm2",
    ),
    "f8992ee6ca5e7155": ("bloom", "gpt3-finnish", "poro-chat"),
    "faedaa37f106d673": ("chameleon",),
    "e2de3f70165c8e30": ("chatglm-bpe", "dbrx", "glm4", "glm5", "smaug-bpe"),
    "651d20f84cf8b6f5": ("codeshell", "command-r", "exaone", "mellum2", "minerva-7b", "refact", "smollm", "starcoder"),
    "324729b2b8f32ed5": ("deepseek-coder",),
    "67aa735ea1fd4d48": ("deepseek-llm",),
    "be5dca5b7fcf2ea0": ("deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"),
    "cf95616073e4357e": ("default", "falcon"),
    "aaa88266b3873f40": ("exaone-moe",),
    "9241d25ed8d7b283": (
        "falcon-h1",
        "falcon3",
        "jina-v5-nano",
        "lfm2",
        "llama-bpe",
        "llama-v3",
        "llama3",
        "midm-2.0",
        "pixtral",
    ),
    "0aafa6e9b394ee44": ("gpt-4o", "granite-embed-multi-97m", "kanana2", "llama4", "minimax-m2", "talkie"),
    "44009d2fa2442192": ("jais-2",),
    "2accaed2e39f0d1c": ("laguna",),
    "3c3a78aa44d2dfb4": ("minicpm5",),
    "7b70429553c15afa": ("seed-coder",),
    "735d48acf52060ac": ("spark2_5",),
    "98976c2d49a4a78a": ("superbpe",),
    "1a2b1d606b604bad": ("tekken",),
    "f6b71c4d71547d4f": ("ufakzeka",),
    "da323b2aa396e2a0": ("viking",),
}
GEMMA_NAMES_OF_DIGEST: dict[str, tuple[str, ...]] = {
    "00b367a58f038af6": ("gemma4", "granite-embed-multi-311m"),
    "86e74445c8521921": ("sarvam-moe",),
}
DIGEST_OF_FILE = {
    "aquila": "2a4256e46e307c24",
    "baichuan": "6d862870e6814f09",
    "gpt-neox": "bb7221db72e53a4c",
    "nomic-bert-moe": "9d48a258690670fb",
}


def make_texts() -> list[str]:
    """Pieces next to each other in ever other orders."""
    state, texts = 1, []
    for index in range(NUM_TEXTS):
        pieces = []
        for _ in range(1 + index % 9):
            state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)  # Knuth's MMIX generator
            pieces.append(PIECES[(state >> 33) % len(PIECES)])
        texts.append("".join(pieces))
    return texts


def digest(vocabulary: Vocabulary) -> str:
    tokenizer = build_tokenizer(vocabulary)
    ids = [
        [tokenizer.encode(text, add_special=special, parse_special=special) for special in (False, True)]
        for text in make_texts()
    ]
    return hashlib.sha256(json.dumps(ids, separators=(",", ":")).encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def _vocabulary(path: Path) -> Vocabulary:
    """A file's tokens and merges, and nothing that it says about the tokens around a text."""
    return replace(open_gguf(path).vocabulary, add_bos=None, add_eos=None, eot_id=None, padding_id=None)


def test_every_rule_has_a_digest_or_a_reason():
    digested = {name for names in NAMES_OF_DIGEST.values() for name in names}
    assert digested | NOT_AS_THEIR_MODELS == set(rule_names())


@pytest.mark.slow
@pytest.mark.parametrize("expected", NAMES_OF_DIGEST, ids=lambda expected: NAMES_OF_DIGEST[expected][0])
def test_a_rule_cuts_as_llama_cpp_does(expected: str, llama_cpp_models_dir: Path):
    vocabulary = _vocabulary(llama_cpp_models_dir / "ggml-vocab-llama-bpe.gguf")
    for name in {find_rule(name): name for name in NAMES_OF_DIGEST[expected]}.values():
        assert digest(replace(vocabulary, pre=name)) == expected, name


@pytest.mark.slow
@pytest.mark.parametrize("expected", GEMMA_NAMES_OF_DIGEST, ids=lambda expected: GEMMA_NAMES_OF_DIGEST[expected][0])
def test_merges_of_gemmas_kind_are_read_in_a_file_that_calls_itself_gpt2(expected: str, llama_cpp_models_dir: Path):
    metadata = open_gguf(llama_cpp_models_dir / "ggml-vocab-gemma-4.gguf").metadata
    keys = ("tokens", "token_type", "merges", "bos_token_id", "eos_token_id")
    kept = {f"tokenizer.ggml.{key}": metadata[f"tokenizer.ggml.{key}"] for key in keys}
    for name in GEMMA_NAMES_OF_DIGEST[expected]:
        named = {**kept, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": name}
        vocabulary = read_vocabulary(named, path=Path("model.gguf"))
        assert vocabulary.kind is TokenizerKind.GEMMA4_BPE
        assert digest(vocabulary) == expected, name


@pytest.mark.slow
@pytest.mark.parametrize("name", DIGEST_OF_FILE)
def test_a_vocabulary_without_published_ids_reads_as_in_llama_cpp(name: str, llama_cpp_models_dir: Path):
    assert digest(open_gguf(llama_cpp_models_dir / f"ggml-vocab-{name}.gguf").vocabulary) == DIGEST_OF_FILE[name]
