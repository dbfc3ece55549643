"""Files that are not readable recipes: what the error says, and where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphsink.errors import RecipeSyntaxError
from graphsink.recipe import load_recipe
from graphsink.recipe.yaml_reader import MAX_DEPTH, MAX_FILE_BYTES, parse_yaml


def _failure(path: Path) -> RecipeSyntaxError:
    with pytest.raises(RecipeSyntaxError) as caught:
        load_recipe(path)
    assert caught.value.exit_code == 2
    assert caught.value.hint, "every message says what to change"
    return caught.value


def _failure_of(tmp_path: Path, content: str | bytes) -> tuple[str, str]:
    """What is said, and the place with the directory cut off."""
    file = tmp_path / "r.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    error = _failure(file)
    assert error.where is not None
    return error.what, error.where.removeprefix(f"{tmp_path}{os.sep}")


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "smollm2.yaml").write_text("a: 1")
    (tmp_path / "other.txt").write_text("")
    error = _failure(tmp_path / "smolm2.yaml")
    assert error.what == "the recipe does not exist"
    assert error.hint == f"did you mean '{tmp_path / 'smollm2.yaml'}'?"


def test_missing_file_with_another_extension(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: 1")
    assert _failure(tmp_path / "x.json").hint == f"did you mean '{tmp_path / 'x.yaml'}'?"


def test_missing_directory(tmp_path: Path) -> None:
    assert f"its directory '{tmp_path / 'no'}' does not exist" in _failure(tmp_path / "no" / "r.yaml").what


def test_directory_and_special_file(tmp_path: Path) -> None:
    assert _failure(tmp_path).what == "the recipe is a directory"
    assert _failure(Path("/dev/zero")).what == "the recipe is not a regular file"


def test_impossible_names(tmp_path: Path) -> None:
    assert "cannot be read" in _failure(tmp_path / ("x" * 5000)).what
    assert "cannot be read" in _failure(Path("a\0b")).what


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("a: 1")

    def refuse(self: Path, mode: str) -> None:  # permissions do not stop the superuser, who may run this
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    error = _failure(file)
    assert error.what == "the recipe cannot be read: Permission denied"
    assert error.hint == "check the permissions of the file"


def test_huge_file_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    with file.open("wb") as stream:
        stream.truncate(100 * 1024 * 1024)
    assert _failure(file).what == "the recipe is too large: 100.0 MiB (104,857,600 bytes), the limit is 1 MiB"


def test_one_byte_above_the_limit(tmp_path: Path) -> None:
    what, _ = _failure_of(tmp_path, b"#" * (MAX_FILE_BYTES + 1))
    assert "1,048,577 bytes" in what
    what, _ = _failure_of(tmp_path, b"#" * 1000)
    assert what == "the recipe is empty"


@pytest.mark.parametrize("content", ["", "\n\n", "# only a comment\n", "---\n", "~", "null\n"])
def test_empty(tmp_path: Path, content: str) -> None:
    assert _failure_of(tmp_path, content) == ("the recipe is empty", "r.yaml")


@pytest.mark.parametrize(
    ("content", "kind"), [("- a\n", "a list"), ("hello", "a single value"), ("5", "a single value")]
)
def test_top_level_is_no_mapping(tmp_path: Path, content: str, kind: str) -> None:
    assert _failure_of(tmp_path, content) == (f"the recipe is {kind}, not a mapping of sections", "r.yaml:1")


@pytest.mark.parametrize(
    ("content", "what", "place"),
    [
        ("a: 1\nb: 2\na: 3\n", "the key 'a' appears twice, in lines 1 and 3", "r.yaml:3"),
        ("m:\n  x: 1\n  y: 2\n  x: 1\n", "the key 'x' appears twice, in lines 2 and 4", "r.yaml:4"),
        ("a: {b: 1, b: 1}", "the key 'b' appears twice, in lines 1 and 1", "r.yaml:1"),
        ("a:\n\tb: 1\n", "a tab is used for indentation", "r.yaml:2"),
        ("a:\n  b: 1\n\tc: 2\n", "a tab is used for indentation", "r.yaml:3"),
        ("a:\n  b: 1\n  \tc: 2\n", "a tab is used for indentation", "r.yaml:3"),
        ("a: 1\n---\nb: 2\n", "the file holds more than one YAML document", "r.yaml:2"),
        (
            "a: 1\nb: !!python/object/apply:os.system ['true']\n",
            "the tag '!!python/object/apply:os.system' is not allowed in a recipe",
            "r.yaml:2",
        ),
        (
            "!!python/name:os.system",
            "the tag '!!python/name:os.system' is not allowed in a recipe",
            "r.yaml:1",
        ),
        ("a: !secret x", "the tag '!secret' is not allowed in a recipe", "r.yaml:1"),
        ("a: !!binary aGVsbG8=", "the tag '!!binary' is not allowed in a recipe", "r.yaml:1"),
        ("a: !!map [1]", "the tag '!!map' is not allowed in a recipe", "r.yaml:1"),
        ("\na: !!int x", "'x' is not an integer", "r.yaml:2"),
        ("a: " + "9" * 5000, "an integer of 5000 digits is too large (the limit is 64 bits)", "r.yaml:1"),
        ("a: 99999999999999999999999", "the integer 99999999999999999999999 is too large", "r.yaml:1"),
        ('a: "\\ud800"', "the text holds U+D800, which is half of a character", "r.yaml:1"),
        ("a: 1\nb: x\x07y", "character U+0007 is not allowed in YAML", "r.yaml:2"),
        ("a: 1\non: 2\n", "a key must be text or an integer", "r.yaml:2"),
        ("? [1]\n: 2\n", "a key must be text or an integer", "r.yaml:1"),
        ("a: [1, 2\nb: 3\n", "invalid YAML: while parsing a flow sequence", "r.yaml:2"),
        ("a: 'x\n", "invalid YAML: while scanning a quoted scalar", "r.yaml:2"),
        ("a: *nope\n", "invalid YAML: found undefined alias 'nope'", "r.yaml:1"),
        ("a: b: c\n", "invalid YAML: mapping values are not allowed here", "r.yaml:1"),
        ("a: &x [*x]\n", "an alias contains itself", "r.yaml:1"),
        ("a: &x {<<: *x}\n", "an alias contains itself", "r.yaml:1"),
        ("<<: 3\n", "'<<' can only merge a mapping", "r.yaml:1"),
    ],
)
def test_bad_yaml(tmp_path: Path, content: str, what: str, place: str) -> None:
    said, where = _failure_of(tmp_path, content)
    assert said.startswith(what)
    assert where == place


def test_not_utf8_names_byte_and_line(tmp_path: Path) -> None:
    assert _failure_of(tmp_path, b"a: 1\nb: caf\xe9\n") == (
        "the recipe is not UTF-8 text: byte 0xe9 at offset 11",
        "r.yaml:2",
    )
    assert "byte 0xff at offset 0" in _failure_of(tmp_path, "a: 1\n".encode("utf-16"))[0]


def test_alias_bomb_is_counted_expanded(tmp_path: Path) -> None:
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    said, where = _failure_of(tmp_path, "\n".join(["a0: &a0 [x, x, x]", *levels]))
    assert said.startswith("aliases expand the YAML to more than 100,000 values")
    assert where.startswith("r.yaml:")


def test_long_chain_of_merges_does_not_exhaust_the_stack(tmp_path: Path) -> None:
    chain = [f"a{n}: &a{n} {{<<: *a{n - 1}}}" for n in range(1, 2000)]
    assert "levels" in _failure_of(tmp_path, "\n".join(["a0: &a0 {x: 1}", *chain]))[0]


def test_deep_nesting(tmp_path: Path) -> None:
    said, where = _failure_of(tmp_path, "a: " + "[" * 100_000)
    assert said == f"the YAML is nested deeper than {MAX_DEPTH} levels"
    assert where == "r.yaml:1"
    nested: object = parse_yaml("[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1), name="f").value
    for _ in range(MAX_DEPTH - 2):
        assert isinstance(nested, list)
        (nested,) = nested
    assert nested == []
