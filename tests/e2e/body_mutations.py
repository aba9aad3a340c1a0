"""Bodies that are nearly right: valid ones with something else in some places, and their bytes damaged.

The n-th body of a seed is always the same. Values are changed first (what stands where, and what is there twice or not
at all), then, for some, how the value is written (no JSON any more, or JSON that is hard to read).
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Body = tuple[str, bytes]
Json = Any

_DEEP = 3000
_STRINGS = (
    "",
    " ",
    "\x00",
    "\n\r\t",
    "a" * 3000,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "e\u0301\u0301",
    "\u202eright to left",
    "\ud800",
    "x\udfff",
    "\ufffd",
    "\ufeff",
    "<|im_end|>",
    "<tool_call>",
    "</think>",
    "{{ 7 * 7 }}",
    "{% for x in y %}",
    "%s%n",
    "../../etc",
    '{"a": 1}',
    "[" * 200,
    "(a+)+$",
    "a{1,99999}",
    "[",
    "start: start",
    "root ::= root",
    "tiny",
    "vec",
    "rank",
    "auto",
    "none",
    "required",
    "assistant",
    "tool",
    "function",
    "json_schema",
)
_NUMBERS = (0, -1, 1, 2, 16, 1000, 2**31 - 1, 2**31, 2**53, 2**63, 2**64, -(2**63) - 1, 10**40)
_FRACTIONS = (0.0, -0.0, 0.5, 1.0, 1e-300, 1e300, -1e300, 3e38, float("nan"), float("inf"), -float("inf"))
_SCHEMAS: tuple[Json, ...] = (
    {"$ref": "#"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    {"$ref": "http://127.0.0.1:1/x"},
    {"type": "strange"},
    {"type": ["object", "null"], "properties": {"a": False}},
    {"type": "array", "minItems": 10**9},
    {"type": "string", "pattern": "(?<=a)b\\1"},
    {"type": "integer", "minimum": 5, "maximum": 1},
    {"allOf": [{"type": "string"}, {"type": "object"}]},
    {"enum": []},
    {"const": {"a": [None]}},
    {"not": {}},
)
_NAMES = ("type", "role", "content", "text", "name", "id", "function", "arguments", "schema", "stream", "n", "tools")


def bodies(valid: Sequence[tuple[str, Mapping[str, Json]]], *, count: int, seed: int) -> Iterator[Body]:
    """Yield paths and bodies."""
    rng = random.Random(seed)  # noqa: S311  (bodies that come again, not secrets)
    for _ in range(count):
        path, body = rng.choice(valid)
        value: Json = json.loads(json.dumps(body))
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            value = _changed(value, rng)
        yield path, _written(value, rng)


def _changed(value: Json, rng: random.Random) -> Json:
    """A copy that differs in one place."""
    path = rng.choice(list(_places(value)))
    return _with(value, path, lambda old: rng.choice(_CHANGES)(old, rng))


def _places(value: Json, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from _places(item, (*path, key))


def _with(value: Json, path: tuple[Any, ...], change: Callable[[Json], Json]) -> Json:
    if not path:
        return change(value)
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _with(value[path[0]], path[1:], change)
    return copy


def _leaf(rng: random.Random) -> Json:
    return rng.choice((None, True, False, rng.choice(_NUMBERS), rng.choice(_FRACTIONS), rng.choice(_STRINGS)))


def _other(_old: Json, rng: random.Random) -> Json:
    kinds = (_leaf(rng), _leaf(rng), [], {}, [_leaf(rng)], {rng.choice(_NAMES): _leaf(rng)}, rng.choice(_SCHEMAS))
    return rng.choice(kinds)


def _wrapped(old: Json, rng: random.Random) -> Json:
    return rng.choice(([old], {rng.choice(_NAMES): old}, json.dumps(old), [old, old]))


def _nested(old: Json, rng: random.Random) -> Json:
    for _ in range(rng.choice((3, 40, 130))):
        old = [old] if rng.random() < 0.5 else {"type": "object", "properties": {"a": old}}
    return old


def _less(old: Json, rng: random.Random) -> Json:
    if isinstance(old, dict) and old:
        gone = rng.choice(list(old))
        return {key: item for key, item in old.items() if key != gone}
    return old[: rng.randrange(len(old) + 1)] if isinstance(old, list | str) else None


def _more(old: Json, rng: random.Random) -> Json:
    if isinstance(old, dict):
        return {**old, rng.choice((*_NAMES, *_STRINGS)): _leaf(rng)}
    if isinstance(old, list):
        return old * rng.choice((2, 40)) or [_leaf(rng)]
    return old + rng.choice(_STRINGS) if isinstance(old, str) else [old]


def _near(old: Json, rng: random.Random) -> Json:
    """Of the same kind, so that what is read further on meets it."""
    match old:
        case bool():
            return not old
        case int() | float():
            return rng.choice((*_NUMBERS, *_FRACTIONS, -old, old + 1, old / 3, old * 1e6))
        case str():
            return rng.choice(_STRINGS)
        case list():
            return rng.sample(old, len(old))
        case dict():
            keys = list(old)
            return dict(zip(keys, rng.sample(list(old.values()), len(keys)), strict=True))
    return _leaf(rng)


_CHANGES = (_other, _other, _wrapped, _nested, _less, _more, _near, _near, _near)


def _written(value: Json, rng: random.Random) -> bytes:
    """The bytes of a value; one in four is damaged, or hard to read."""
    data = json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    return rng.choice(_DAMAGES)(data, rng) if rng.random() < 0.25 else data


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _flipped(data: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 2, 8))):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def _with_junk(data: bytes, rng: random.Random) -> bytes:
    junk = rng.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x00", b"\xf4\x90\x80\x80", b"NaN", b"//x", b",", b'"'))
    place = rng.randrange(len(data) + 1)
    return data[:place] + junk + data[place:]


def _twice(data: bytes, _rng: random.Random) -> bytes:
    """Every field of the outer object stands there twice."""
    return data[:-1] + b"," + data[1:] if data.startswith(b'{"') else data + data


def _deep(data: bytes, rng: random.Random) -> bytes:
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return b'{"messages":' + opening * _DEEP + data + closing * rng.choice((0, _DEEP)) + b"}"


def _huge_number(data: bytes, rng: random.Random) -> bytes:
    number = rng.choice((b"9" * 5000, b"1e999", b"-1e999", b"1e-999", b"0" * 50, b"0.1e", b"1" + b"0" * 400, b"0x10"))
    place = data.find(b": ", rng.randrange(len(data)))
    return data[: place + 2] + number + data[place + 3 :] if place >= 0 else number


def _in_other_letters(data: bytes, rng: random.Random) -> bytes:
    text = data.decode("utf-8", "replace")
    return rng.choice((text.encode("utf-16"), text.encode("utf-32-be"), b"\xef\xbb\xbf" + data, data + b"\n\x1a"))


def _nothing(_data: bytes, rng: random.Random) -> bytes:
    return rng.choice((b"", b" ", b"null", b"[]", b"0", b'""', b"{}", b"{" * 2000, b"\x00" * 100))


_DAMAGES = (_cut, _flipped, _flipped, _with_junk, _with_junk, _twice, _deep, _huge_number, _in_other_letters, _nothing)
