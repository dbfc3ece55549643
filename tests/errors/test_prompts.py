"""Prompts that cannot be used: what is said, and where."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from graphsink.errors import PromptError
from graphsink.recipe import load_prompts, load_recipe, prompts_from_values
from graphsink.recipe.prompt_files import read_prompt_file


def _fails(file: Path, content: str | bytes) -> tuple[str, str]:
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(PromptError) as caught:
        read_prompt_file(file)
    assert caught.value.exit_code == 2
    assert caught.value.hint, "every message says what to change"
    assert caught.value.where is not None
    return caught.value.what, caught.value.where.removeprefix(f"{file.parent}{os.sep}")


@pytest.mark.parametrize(
    ("name", "content", "what", "place"),
    [
        ("p.txt", "", "a prompt is empty", "p.txt:1"),
        ("p.txt", "\n", "a prompt is empty", "p.txt:1"),
        ("p.txt", " \n\n", "a prompt is only white space", "p.txt:1"),
        ("p.txt", b"caf\xe9", "the prompt file is not UTF-8 text: byte 0xe9 at offset 3", "p.txt:1"),
        ("p.json", "", "invalid JSON: Expecting value", "p.json:1"),
        ("p.json", "[]", "the prompt file holds no prompts", "p.json"),
        ("p.json", '{"text": []}', "the prompt file holds no prompts", "p.json"),
        ("p.json", '["a",\n"b",\n]', "invalid JSON: Expecting value", "p.json:3"),
        ("p.json", '["a"\n"b"]', "invalid JSON: expected ',' or ']' after a prompt", "p.json:2"),
        ("p.json", '["a"', "invalid JSON: expected ',' or ']' after a prompt", "p.json:1"),
        ("p.json", '["a",\n"b', "invalid JSON: Unterminated string starting at", "p.json:2"),
        ("p.json", '["a"]\nx', "invalid JSON: text after the end of the list", "p.json:1"),
        ("p.json", '{"text": "a"} x', "invalid JSON: text after the end of the JSON value", "p.json:1"),
        ("p.json", '"a"', 'the file is neither a list of prompts nor {"text": ...}', "p.json:1"),
        (
            "p.json",
            '{"prompts": ["a"]}',
            'the file is neither a list of prompts nor {"text": ...}',
            "p.json:1",
        ),
        ("p.json", '["a",\n""]', "a prompt is empty", "p.json:2"),
        ("p.json", '["a",\n5]', "a prompt is 5 (int), neither text nor a list of token ids", "p.json:2"),
        (
            "p.json",
            '["a",\nnull]',
            "a prompt is null (null), neither text nor a list of token ids",
            "p.json:2",
        ),
        ("p.json", "[\n[1, -2]]", "token 1 of a prompt is -2; token ids are 0 to 2147483647", "p.json:2"),
        ("p.json", "[[2147483648]]", "token 0 of a prompt is 2147483648; token ids are", "p.json:1"),
        ("p.json", "[[1, true]]", "token 1 of a prompt is True (bool), not an integer", "p.json:1"),
        ("p.json", '[[1, "a"]]', "token 1 of a prompt is 'a' (str), not an integer", "p.json:1"),
        ("p.json", "[[1.0]]", "token 0 of a prompt is 1.0 (float), not an integer", "p.json:1"),
        ("p.json", "[[]]", "a prompt has no token ids", "p.json:1"),
        (
            "p.json",
            '[{"prompt": "a", "top_k": 5}]',
            "a prompt object has the unknown key 'top_k'",
            "p.json:1",
        ),
        ("p.json", '[{"prompt": "a", "token_ids": [1]}]', "a prompt object has not exactly one", "p.json:1"),
        ("p.json", "[{}]", "a prompt object has not exactly one of its keys", "p.json:1"),
        (
            "p.json",
            '[{"prompt": "a",\n"prompt": "b"}]',
            "invalid JSON: an object has the same key twice",
            "p.json:1",
        ),
        ("p.json", f"[[{'9' * 5000}]]", "invalid JSON: Exceeds the limit", "p.json:1"),
        ("p.json", f"[[{'9' * 4000}]]", "token 0 of a prompt is an integer beyond 128 bits", "p.json:1"),
        ("p.json", "[" * 100_000, "invalid JSON: it is nested too deeply", "p.json:1"),
        ("p.json", '["\\ud800"]', "a prompt is not valid text: the text holds U+D800", "p.json:1"),
        ("p.jsonl", "", "the prompt file holds no prompts", "p.jsonl"),
        ("p.jsonl", "\n \n", "the prompt file holds no prompts", "p.jsonl"),
        ("p.jsonl", '"a"\n\nb\n', "invalid JSON: Expecting value", "p.jsonl:3"),
        ("p.jsonl", '"a"\n"b" "c"\n', "invalid JSON: more than one value in a line", "p.jsonl:2"),
        ("p.jsonl", '"a"\n""\n', "a prompt is empty", "p.jsonl:2"),
        ("p.jsonl", '"a"\n{"text": "b"}\n', "a prompt object has the unknown key 'text'", "p.jsonl:2"),
        ("p.csv", "a", "a prompt file cannot end in '.csv'", "p.csv"),
        ("p", "a", "a prompt file cannot end in ''", "p"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: str | bytes, what: str, place: str) -> None:
    said, where = _fails(tmp_path / name, content)
    assert said.startswith(what)
    assert where == place


def test_unknown_extension_lists_the_valid_ones(tmp_path: Path) -> None:
    with pytest.raises(PromptError) as caught:
        read_prompt_file(tmp_path / "p.csv")
    assert caught.value.hint == "use .txt, .json, .jsonl"


def test_missing_extension_finds_the_file(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('"a"')
    with pytest.raises(PromptError) as caught:
        read_prompt_file(tmp_path / "prompts")
    assert caught.value.hint == f"did you mean '{tmp_path / 'prompts.jsonl'}'?"


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("a")
    with pytest.raises(PromptError, match="the prompt file does not exist") as caught:
        read_prompt_file(tmp_path / "promts.txt")
    assert caught.value.hint == f"did you mean '{tmp_path / 'prompts.txt'}'?"


def test_huge_file_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    with file.open("wb") as stream:
        stream.truncate(65 * 1024 * 1024)
    with pytest.raises(PromptError, match=r"too large: 65\.0 MiB \(68,157,440 bytes\), the limit is 64 MiB"):
        read_prompt_file(file)


@pytest.mark.parametrize(
    ("data", "line", "what"),
    [
        ("  prompts: []\n", 3, "data_config.prompts is an empty list"),
        ("  prompts: ''\n", 3, "data_config.prompts is an empty path"),
        ("  prompts:\n    - a\n    - ''\n", 5, "a prompt is empty"),
        ("  prompts:\n    - a\n    - [1, -1]\n", 5, "token 1 of a prompt is -1"),
        ("  prompts:\n    - []\n", 4, "a prompt has no token ids"),
    ],
)
def test_bad_prompts_in_the_recipe(tmp_path: Path, data: str, line: int, what: str) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(f"model_config: {{model_path: m}}\ndata_config:\n{data}")
    with pytest.raises(PromptError) as caught:
        load_prompts(load_recipe(file))
    assert caught.value.what.startswith(what)
    assert caught.value.where == f"{file}:{line}"


def test_default_prompt_file_missing(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("model_config: {model_path: m}\ndata_config: {dataset_path: set}\n")
    with pytest.raises(PromptError) as caught:
        load_prompts(load_recipe(file))
    assert caught.value.where == str(tmp_path / "set" / "default_prompt.json")


def test_empty_prompt_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("model_config: {model_path: m}\n")
    with pytest.raises(PromptError, match="a prompt is empty") as caught:
        load_prompts(load_recipe(file), ["fine", ""])
    assert caught.value.where == "--prompt 2"
    with pytest.raises(PromptError, match="U\\+DCFF"):
        load_prompts(load_recipe(file), ["\udcff"])


@pytest.mark.parametrize(
    ("values", "what", "where"),
    [
        ([], "the list of prompts is empty", "prompt"),
        (5, "prompts are given as int", "prompt"),
        (b"text", "prompts are given as bytes", "prompt"),
        ([b"text"], "a prompt is b'text'", "prompt 1"),
        (["a", ""], "a prompt is empty", "prompt 2"),
        ([1, 2], "a prompt is 1 (int), neither text nor a list of token ids", "prompt 1"),
        ([[1, None]], "token 1 of a prompt is null (null), not an integer", "prompt 1"),
    ],
)
def test_bad_prompts_from_python(values: Any, what: str, where: str) -> None:
    with pytest.raises(PromptError) as caught:
        prompts_from_values(values)
    assert caught.value.what.startswith(what)
    assert caught.value.where == where
