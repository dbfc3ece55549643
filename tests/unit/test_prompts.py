"""Where prompts come from, what they may be, and how they are cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphsink.recipe import (
    LoadedRecipe,
    PromptItem,
    load_prompts,
    load_recipe,
    prompts_from_values,
    truncate_prompt,
)
from graphsink.recipe.prompt_files import read_prompt_file
from graphsink.recipe.prompts import DEFAULT_PROMPTS


def _load(tmp_path: Path, data: str = "", batch_size: int = 1) -> LoadedRecipe:
    file = tmp_path / "r.yaml"
    file.write_text(
        f"model_config: {{model_path: m}}\nscheduler_config: {{batch_size: {batch_size}}}\n{data}"
    )
    return load_recipe(file)


def _texts(items: list[PromptItem]) -> list[str | None]:
    return [item.text for item in items]


def test_list_in_the_recipe_with_lines(tmp_path: Path) -> None:
    loaded = _load(
        tmp_path, "data_config:\n  prompts:\n    - one\n    - [1, 2]\n    - |\n      a\n      b\n", 5
    )
    name = tmp_path / "r.yaml"
    assert load_prompts(loaded) == [
        PromptItem("one", None, f"{name}:5"),
        PromptItem(None, (1, 2), f"{name}:6"),
        PromptItem("a\nb\n", None, f"{name}:7"),
    ]


def test_command_line_outranks_the_recipe(tmp_path: Path) -> None:
    loaded = _load(tmp_path, "data_config: {prompts: [one]}\n", 3)
    assert load_prompts(loaded, ["x", "y"]) == [
        PromptItem("x", None, "--prompt 1"),
        PromptItem("y", None, "--prompt 2"),
    ]
    assert _texts(load_prompts(loaded, [])) == ["one"]


@pytest.mark.parametrize("batch_size", [1, 3, 4, 9])
def test_built_in_prompts_are_repeated_or_cut_to_the_batch(tmp_path: Path, batch_size: int) -> None:
    texts = _texts(load_prompts(_load(tmp_path, batch_size=batch_size)))
    assert texts == [DEFAULT_PROMPTS[index % len(DEFAULT_PROMPTS)] for index in range(batch_size)]


@pytest.mark.parametrize(
    ("content", "texts"), [('{"text": "only"}', ["only"] * 3), ('{"text": ["a", "b"]}', ["a", "b", "a"])]
)
def test_default_prompt_json_is_repeated_to_the_batch(tmp_path: Path, content: str, texts: list[str]) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "default_prompt.json").write_text(content)
    assert _texts(load_prompts(_load(tmp_path, "data_config: {dataset_path: set}\n", 3))) == texts


def test_prompts_outrank_dataset_path_and_are_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"text": ["a", "b"]}')
    loaded = _load(tmp_path, "data_config: {dataset_path: nowhere, prompts: p.json}\n", 4)
    assert _texts(load_prompts(loaded)) == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"hello", "hello"),
        (b"hello\n", "hello"),
        (b"hello\r\n", "hello"),
        (b"a\n\nb\n\n", "a\n\nb\n"),
        (b"\xef\xbb\xbf caf\xc3\xa9 \n", " café "),
    ],
)
def test_txt_is_one_prompt(tmp_path: Path, content: bytes, text: str) -> None:
    file = tmp_path / "p.TXT"
    file.write_bytes(content)
    assert read_prompt_file(file) == [PromptItem(text, None, f"{file}:1")]


def test_json_list_with_lines(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(' [\n"a, ]b",\n\n [1,\n 2],\n{"prompt": "c"}, {"token_ids": [3]},\n{"prompt": [4]}\n]\n')
    assert read_prompt_file(file) == [
        PromptItem("a, ]b", None, f"{file}:2"),
        PromptItem(None, (1, 2), f"{file}:4"),
        PromptItem("c", None, f"{file}:6"),
        PromptItem(None, (3,), f"{file}:6"),
        PromptItem(None, (4,), f"{file}:7"),
    ]


def test_json_list_agrees_with_the_json_library(tmp_path: Path) -> None:
    values = ['\u2028 \\ " \n é 😀', [0, 2**31 - 1], "]", "[", ","]
    for indent in (None, 0, 2):
        for ascii_only in (True, False):
            file = tmp_path / "p.json"
            file.write_text(json.dumps(values, indent=indent, ensure_ascii=ascii_only), encoding="utf-8")
            items = read_prompt_file(file)
            assert [
                item.text if item.text is not None else list(item.token_ids or ()) for item in items
            ] == values


def test_jsonl_with_lines_and_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_bytes('"a"\r\n\n[1, 2]\n  {"prompt": "b\u2028c"} \n{"token_ids": [7]}'.encode())
    assert read_prompt_file(file) == [
        PromptItem("a", None, f"{file}:1"),
        PromptItem(None, (1, 2), f"{file}:3"),
        PromptItem("b\u2028c", None, f"{file}:4"),
        PromptItem(None, (7,), f"{file}:5"),
    ]


def test_prompt_file_is_relative_to_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.txt").write_text("here")
    loaded = _load(tmp_path, "data_config: {prompts: p.txt}\n")
    monkeypatch.chdir("/")
    assert _texts(load_prompts(loaded)) == ["here"]


def test_prompts_from_python() -> None:
    assert prompts_from_values("one") == [PromptItem("one", None, "prompt 1")]
    assert prompts_from_values(["a", (1, 2), {"token_ids": [3]}]) == [
        PromptItem("a", None, "prompt 1"),
        PromptItem(None, (1, 2), "prompt 2"),
        PromptItem(None, (3,), "prompt 3"),
    ]


@pytest.mark.parametrize(
    ("length", "limit", "kept", "cut"),
    [(5, 3, [0, 1, 2], 2), (3, 3, [0, 1, 2], 0), (2, 3, [0, 1], 0), (0, 3, [], 0)],
)
def test_truncation_keeps_the_head(length: int, limit: int, kept: list[int], cut: int) -> None:
    assert truncate_prompt(range(length), limit) == (kept, cut)
