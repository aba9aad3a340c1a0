"""A plugin's table against its schema: what fits, what is refused, and by which path."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from memra.plugins.config_schema import ConfigError, convert_table


@dataclass(frozen=True)
class Price:
    prompt: float
    note: str | None = None


class Struct(msgspec.Struct, frozen=True):
    width: int = 1


class Circle(msgspec.Struct, frozen=True, tag="circle"):
    radius: float


class Square(msgspec.Struct, frozen=True, tag="square"):
    side: float


@dataclass(frozen=True)
class Config:
    url: str = "sqlite://"
    file: Path = Path()
    prices: dict[str, Price] = field(default_factory=dict)
    rows: list[Struct] = field(default_factory=list)
    best: Price | str | None = None
    shape: Circle | Square | None = None


@dataclass
class Mutable:
    x: int = 1


def test_tables_become_instances_at_every_depth():
    config = convert_table(
        {
            "file": "~/x",
            "prices": {"a/b": {"prompt": 1}},
            "rows": [{"width": 2}],
            "best": "none",
            "shape": {"type": "square", "side": 2},
        },
        Config,
    )
    assert config == Config(
        file=Path.home() / "x", prices={"a/b": Price(1.0)}, rows=[Struct(2)], best="none", shape=Square(2.0)
    )
    assert convert_table({}, Struct) == Struct()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"ulr": "x"}, "unknown key ulr; known are url, file, prices, rows, best, shape"),
        ({"prices": {"a": {"prompt": 1, "promt": 2}}}, "unknown key prices.a.promt; known are prompt, note"),
        ({"rows": [{}, {"wdth": 1}]}, "unknown key rows[1].wdth; known are width"),
        ({"best": {"prompt": 1, "x": 1}}, "unknown key best.x"),
        ({"shape": {"type": "circle", "radius": 1, "x": 1}}, "unknown key shape.x; known are radius"),
        ({"x": 1, "y": 2}, "unknown key y"),
        ({"url": 3}, "url: Expected `str`, got `int`"),
        ({"prices": {"a": {}}}, "Object missing required field `prompt`"),
        ({"prices": {"a": {"prompt": "1"}}}, "Expected `float`, got `str`"),
        ({"file": 3}, "file: Expected `Path`, got `int`"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_path(table, words):
    with pytest.raises(ConfigError) as caught:
        convert_table(table, Config)
    assert words in str(caught.value)


@pytest.mark.parametrize("schema", [None, Mutable, Price(1.0), dict])
def test_only_frozen_dataclasses_and_structs_are_schemas(schema):
    with pytest.raises(ConfigError, match="frozen dataclass or a msgspec struct"):
        convert_table({}, schema)


def test_a_schema_that_cannot_be_read_is_told():
    broken = dataclass(frozen=True)(type("Broken", (), {"__annotations__": {"x": "Nowhere"}}))
    with pytest.raises(ConfigError, match=r"its schema cannot be used: .*Nowhere"):
        convert_table({}, broken)
