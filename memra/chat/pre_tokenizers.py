"""How byte-level BPE cuts text into words before it merges: one rule for each name in `tokenizer.ggml.pre`.

Knows regular expressions in Oniguruma's syntax, which is what the `tokenizers` library runs; refuses to know
vocabularies. Called by `byte_bpe`.

The patterns are those of the models' own `tokenizer.json`; which name means which pattern, and which rules skip merges
or begin with a beginning-of-sequence token, follows llama.cpp.
"""

from dataclasses import dataclass

from memra.errors import UnsupportedModelError


@dataclass(frozen=True, slots=True)
class PreTokenizerRule:
    """One way to cut text into words.

    Attributes:
        patterns: applied in order, each to the pieces that the one before left; matches and the gaps between them are
            the words.
        ignore_merges: a word that is a token as a whole is taken as it is.
        add_bos: text begins with the beginning-of-sequence token unless the file says otherwise.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


# Cased letters of the alphabets that DeepSeek's first tokenizer names, code point by code point.
_CASED_LETTERS = (
    "A-Za-z"
    "\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
    "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)

_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s+(?!\S)|\s+"
_LINE_ENDS = r"\s*[\r\n]+"
_UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_ASCII_PUNCTUATION = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
# Grouping digits from the right looks ahead to the end of the number at each step. Blocks of 510 digits, counted from
# the right as in AFMoE's own file, keep the groups the same and the cost of a huge number bounded.
_DIGIT_BLOCKS = r"\p{Nd}{1,510}(?=(?:\p{Nd}{510})*(?!\p{Nd}))"
_HAN_AND_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"

_GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_SPACES}"
_SENTENCE_MARKS = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"


def _words_and_numbers(digits: str, *, contraction: str = rf"{_CONTRACTION}|", spaces: str = _SPACES) -> str:
    """The pattern that Llama 3 and Qwen 2 share, but for how many digits make a number."""
    marks = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
    return rf"{contraction}[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}|{marks}|{_LINE_ENDS}|{spaces}"


def _cased_words(digits: str, *, upper: str = _UPPER, lower: str = _LOWER, contraction: str = "", marks: str) -> str:
    """The pattern of o200k and its relatives: a word is capitals, then small letters."""
    lead = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{lead}[{upper}]*[{lower}]+{contraction}|{lead}[{upper}]+[{lower}]*{contraction}"
        rf"|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+{marks}|{_LINE_ENDS}|{_SPACES}"
    )


_LLAMA3 = _words_and_numbers("{1,3}")
_QWEN2 = _words_and_numbers("")
_O200K = _cased_words("{1,3}", contraction=f"{_CONTRACTION}?", marks=r"[\r\n/]*")
_NO_HAN = r"&&[^\p{Han}]"
_DEEPSEEK3_WORDS = rf"{_ASCII_PUNCTUATION}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+"
_DEEPSEEK3 = (r"\p{N}{1,3}", _HAN_AND_KANA, rf"{_DEEPSEEK3_WORDS}[\r\n]*|{_LINE_ENDS}|{_SPACES}")
_CASCADE = "|".join(rf"\s{{{count}}}(?!\S)" for count in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2"))
_LETTERS_WITH_MARKS = r"\p{L}\p{M}*(?: \p{L}\p{M}*)*"
_ASIAN_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)

_RULES: dict[str, PreTokenizerRule] = {
    "default": PreTokenizerRule((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt-2": PreTokenizerRule((_GPT2,)),
    "starcoder": PreTokenizerRule((r"\p{N}", _GPT2)),
    "falcon": PreTokenizerRule((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    "llama-bpe": PreTokenizerRule((_LLAMA3,), ignore_merges=True, add_bos=True),
    "dbrx": PreTokenizerRule((_LLAMA3,)),
    "glm4": PreTokenizerRule((_LLAMA3,), ignore_merges=True),
    "minicpm5": PreTokenizerRule((r"\p{N}{1,3}", _words_and_numbers("+")), ignore_merges=True),
    "jais-2": PreTokenizerRule((_words_and_numbers("{1,3}", spaces=rf"{_CASCADE}|\s{{1}}"),)),
    "qwen2": PreTokenizerRule((_QWEN2,)),
    "qwen35": PreTokenizerRule(
        (
            (
                rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
                rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_LINE_ENDS}|{_SPACES}"
            ),
        )
    ),
    "laguna": PreTokenizerRule((r"[^\n]+|[\n]+", _QWEN2)),
    "ufakzeka": PreTokenizerRule((_words_and_numbers("", contraction=""),)),
    "seed-coder": PreTokenizerRule(
        (
            (
                rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1}}"
                rf"| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_LINE_ENDS}|{_SPACES}"
            ),
        )
    ),
    "bailingmoe": PreTokenizerRule(
        (
            (
                r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
                rf"| ?[^\s\p{{L}}\p{{N}}]++[\r\n]*|\s*[\r\n]|{_SPACES}"
            ),
        )
    ),
    "exaone-moe": PreTokenizerRule(
        (
            (
                rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?(?:{_LETTERS_WITH_MARKS})+|\p{{N}}"
                rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?|\s*[\r\n]|{_SPACES}"
            ),
        )
    ),
    "deepseek-llm": PreTokenizerRule(
        (
            "[\r\n]",
            rf"\s?[{_CASED_LETTERS}]+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
            r"\s+$",
            "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
            r"\p{N}+",
        )
    ),
    "deepseek-coder": PreTokenizerRule(
        ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}")
    ),
    "deepseek-v3": PreTokenizerRule(_DEEPSEEK3),
    "spark2_5": PreTokenizerRule((r"\p{N}{1,3}", _HAN_AND_KANA, rf"{_DEEPSEEK3_WORDS}|[\r\n]|{_SPACES}", r"\p{N}")),
    "afmoe": PreTokenizerRule(
        (
            _DIGIT_BLOCKS,
            r"\p{Nd}{1,3}(?=(?:\p{Nd}{3})*(?!\p{Nd}))",
            _ASIAN_SCRIPTS,
            rf"{_DEEPSEEK3_WORDS}[\r\n]*|{_LINE_ENDS}|{_SPACES}",
        )
    ),
    "youtu": PreTokenizerRule(
        (
            (
                "[\uac00-\ud7a3\u3131-\u318e]+"
                "|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
                rf"|[\u3105-\u312f]+|{_HAN_AND_KANA}"
            ),
            _cased_words("", contraction=f"{_CONTRACTION}?", marks=r"[\r\n/]*"),
        ),
        ignore_merges=True,
    ),
    "bloom": PreTokenizerRule((_SENTENCE_MARKS,)),
    "viking": PreTokenizerRule((_SENTENCE_MARKS, r"\p{N}")),
    "tekken": PreTokenizerRule((_cased_words("", marks=r"[\r\n/]*"),), ignore_merges=True, add_bos=True),
    "gpt-4o": PreTokenizerRule((_O200K,)),
    "granite-embed-multi-97m": PreTokenizerRule((_O200K,), ignore_merges=True),
    "tiny_aya": PreTokenizerRule((_DIGIT_BLOCKS, r"\d{1,3}(?=(?:\d{3})*\b)", _O200K)),
    "kimi-k2": PreTokenizerRule(
        (
            r"[\p{Han}]+|"
            + _cased_words(
                "{1,3}",
                upper=_UPPER + _NO_HAN,
                lower=_LOWER + _NO_HAN,
                contraction=f"{_CONTRACTION}?",
                marks=r"[\r\n]*",
            ),
        )
    ),
    "superbpe": PreTokenizerRule((r"\p{N}+", _DIGIT_BLOCKS, r"(?=(\d{3})+(?!\d))")),
    "chameleon": PreTokenizerRule(
        (
            "<sentinel:[0-9]+>",
            "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            "([\\t\\n]|    |  )",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`{-~]",
            _GPT2,
        ),
        add_bos=True,
    ),
}

_ALIASES: dict[str, tuple[str, ...]] = {
    "gpt-2": (
        *("phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum", "modern-bert"),
        *("mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4", "jina-v1-en", "jina-v2-code", "roberta-bpe"),
    ),
    "starcoder": ("refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"),
    "llama-bpe": ("llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"),
    "dbrx": ("smaug-bpe", "chatglm-bpe"),
    "glm4": ("glm5",),
    "qwen2": (*("deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"),),
    "bailingmoe": ("bailingmoe2", "llada-moe"),
    "deepseek-v3": ("hunyuan-dense", "joyai-llm", "hy_v4"),
    "bloom": ("poro-chat", "gpt3-finnish"),
    "gpt-4o": ("llama4", "kanana2", "talkie", "minimax-m2"),
    "tiny_aya": ("cohere2moe",),
}

_RULE_OF_NAME = _RULES | {alias: _RULES[name] for name, aliases in _ALIASES.items() for alias in aliases}


def find_rule(pre: str) -> PreTokenizerRule:
    """The rule that a file names.

    Raises:
        UnsupportedModelError: no rule of that name is known; half a pre-tokenizer would give wrong tokens silently.
    """
    rule = _RULE_OF_NAME.get(pre)
    if rule is None:
        raise UnsupportedModelError(f"the pre-tokenizer {pre!r} is not supported: use another model")
    return rule


def rule_names() -> tuple[str, ...]:
    """Every name that `find_rule` knows, sorted."""
    return tuple(sorted(_RULE_OF_NAME))
