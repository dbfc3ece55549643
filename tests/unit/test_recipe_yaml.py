"""YAML → plain values and positions."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from graphsink.recipe.yaml_reader import Position, parse_yaml, read_yaml_file


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1.5E+3", 1500.0),
        ("-.5", -0.5),
        ("1.", 1.0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("1_000", 1000),
        ("1_000.5", 1000.5),
        ("010", 10),
        ("0x1F", 31),
        ("-0x1F", -31),
        ("0o17", 15),
        ("0b101", 5),
        ("+7", 7),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("yes", True),
        ("Off", False),
        ("yEs", "yEs"),
        ("y", "y"),
        ("~", None),
        ("null", None),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("!!float 5", 5.0),
        ("=", "="),
        ("1e", "1e"),
        ("1__0", "1__0"),
        ("+", "+"),
        ("", None),
    ],
)
def test_scalars(text: str, value: object) -> None:
    parsed = parse_yaml(f"key: {text}\n", name="f").value
    assert parsed == {"key": value}
    assert isinstance(parsed, dict)
    assert type(parsed["key"]) is type(value)


def test_nan_is_a_float() -> None:
    parsed = parse_yaml("[.nan]", name="f").value
    assert isinstance(parsed, list)
    assert math.isnan(parsed[0])


def test_positions_of_keys_and_elements() -> None:
    document = parse_yaml("a:\n  b: 1\n  c:\n    - x\n    - [1, 2]\n\nd: 5\n", name="f")
    assert document.value == {"a": {"b": 1, "c": ["x", [1, 2]]}, "d": 5}
    assert document.positions[("a",)] == Position(1, 1)
    assert document.positions[("a", "b")] == Position(2, 3)
    assert document.positions[("a", "c", 0)] == Position(4, 7)
    assert document.positions[("a", "c", 1, 1)] == Position(5, 11)
    assert document.positions[("d",)] == Position(7, 1)


def test_aliases_and_merge_keys() -> None:
    document = parse_yaml("x: &d {a: 1, b: 2}\ny:\n  <<: *d\n  a: 5\nz: *d\n", name="f")
    assert document.value == {"x": {"a": 1, "b": 2}, "y": {"a": 5, "b": 2}, "z": {"a": 1, "b": 2}}
    assert document.positions[("y", "b")].line == 1, "a merged value is where it was written"
    assert document.positions[("y", "a")].line == 4
    merged = parse_yaml("m: {b: 1, <<: [{c: 2}, {b: 3, c: 4}]}", name="f").value
    assert merged == {"m": {"b": 1, "c": 2}}


def test_values_of_aliases_are_not_shared() -> None:
    value = parse_yaml("x: &d [1]\ny: *d\n", name="f").value
    assert isinstance(value, dict)
    assert value["x"] is not value["y"]


def test_integer_keys_stay_integers() -> None:
    assert parse_yaml("{0: a, '0': b}", name="f").value == {0: "a", "0": "b"}


def test_file_with_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\nb:\r\n  c: 2\r\n")
    document = read_yaml_file(file)
    assert document.value == {"a": 1, "b": {"c": 2}}
    assert document.positions[("b", "c")].line == 3
    assert document.name == str(file)
