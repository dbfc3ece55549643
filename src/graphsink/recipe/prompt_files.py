"""Prompt files: ``.txt``, ``.json`` and ``.jsonl``, each prompt with the line it stands in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from graphsink.errors import PromptError
from graphsink.recipe.prompt_values import PromptItem, make_prompt
from graphsink.recipe.text_file import MIB, nearest_file_name, read_text_file

MAX_FILE_BYTES = 64 * MIB
DEFAULT_PROMPT_KEY = "text"
"""Key of the reference's ``default_prompt.json``: one text, or a list of prompts."""

_SPACE = re.compile(r"[ \t\r\n]*")


def read_prompt_file(path: Path) -> list[PromptItem]:
    """Read all prompts of a file.

    ``.txt``: the whole file is one prompt, without its last line break. ``.json``: a list of
    prompts, or ``{"text": …}`` with a text or a list. ``.jsonl``: one prompt per line, blank lines
    skipped. A prompt is a text, a list of token ids, or an object with ``prompt`` or ``token_ids``.

    Raises:
        PromptError: missing, unreadable, larger than 64 MiB, not UTF-8, an unknown extension,
            invalid JSON, no prompt in it, or a prompt that is not acceptable; with ``file:line``.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        nearest = nearest_file_name(path) if path.suffix == "" else None
        raise PromptError(
            f"a prompt file cannot end in '{path.suffix}'",
            where=str(path),
            hint=f"did you mean '{path.parent / nearest}'?" if nearest else f"use {', '.join(_READERS)}",
        )
    text = read_text_file(path, kind="prompt file", limit_bytes=MAX_FILE_BYTES, error=PromptError)
    prompts = reader(text, str(path))
    if not prompts:
        raise PromptError("the prompt file holds no prompts", where=str(path), hint="add at least one")
    return prompts


def _read_txt(text: str, name: str) -> list[PromptItem]:
    for ending in ("\r\n", "\n"):
        if text.endswith(ending):
            text = text[: -len(ending)]
            break
    return [make_prompt(text, f"{name}:1")]


def _read_jsonl(text: str, name: str) -> list[PromptItem]:
    prompts = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        start = _skip_space(line, 0)
        value, end = _decode(line, start, name, first_line=number)
        if _skip_space(line, end) != len(line):
            _raise_json("more than one value in a line", line, end, name, number)
        prompts.append(make_prompt(value, f"{name}:{number}"))
    return prompts


def _read_json(text: str, name: str) -> list[PromptItem]:
    start = _skip_space(text, 0)
    if text[start : start + 1] == "[":
        return list(_list_items(text, start, name))
    value, end = _decode(text, start, name)
    if _skip_space(text, end) != len(text):
        _raise_json("text after the end of the JSON value", text, end, name)
    if not isinstance(value, dict) or set(value) != {DEFAULT_PROMPT_KEY}:
        raise PromptError(
            'the file is neither a list of prompts nor {"text": ...}',
            where=f"{name}:1",
            hint='write ["first prompt", "second prompt"]',
        )
    content = value[DEFAULT_PROMPT_KEY]
    place = f"{name}:1"
    return [make_prompt(item, place) for item in (content if isinstance(content, list) else [content])]


def _list_items(text: str, start: int, name: str) -> Iterator[PromptItem]:
    """Decode a top-level list item by item, so that each prompt has its own line."""
    line, counted = 1, 0
    at = _skip_space(text, start + 1)
    closed = text[at : at + 1] == "]"
    while not closed:
        line, counted = line + text.count("\n", counted, at), at
        value, end = _decode(text, at, name)
        yield make_prompt(value, f"{name}:{line}")
        at = _skip_space(text, end)
        closed = text[at : at + 1] == "]"
        if not closed and text[at : at + 1] != ",":
            _raise_json("expected ',' or ']' after a prompt", text, at, name)
        if not closed:
            at = _skip_space(text, at + 1)
    if _skip_space(text, at + 1) != len(text):
        _raise_json("text after the end of the list", text, at + 1, name)


def _decode(text: str, start: int, name: str, first_line: int = 1) -> tuple[object, int]:
    try:
        return json.JSONDecoder(object_pairs_hook=_unique_keys).raw_decode(text, start)
    except json.JSONDecodeError as problem:
        _raise_json(problem.msg, text, problem.pos, name, first_line)
    except (ValueError, RecursionError) as problem:  # huge integers, repeated keys, thousands of levels
        reason = "it is nested too deeply" if isinstance(problem, RecursionError) else str(problem)
        _raise_json(reason, text, start, name, first_line)


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object has the same key twice")
    return result


def _raise_json(reason: str, text: str, position: int, name: str, first_line: int = 1) -> NoReturn:
    line = first_line + text.count("\n", 0, position)
    raise PromptError(
        f"invalid JSON: {reason}",
        where=f"{name}:{line}",
        hint="check quotes, commas and brackets in this line",
    )


def _skip_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return start if match is None else match.end()


_READERS: Mapping[str, Callable[[str, str], list[PromptItem]]] = MappingProxyType(
    {".txt": _read_txt, ".json": _read_json, ".jsonl": _read_jsonl}
)
