"""One prompt: what it may be, and the checks of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphsink.errors import PromptError
from graphsink.recipe.field_catalog import preview, type_name
from graphsink.recipe.yaml_scalars import parse_text

LARGEST_TOKEN_ID = 2**31 - 1
TEXT_KEY = "prompt"
IDS_KEY = "token_ids"


@dataclass(frozen=True, slots=True)
class PromptItem:
    """A prompt, as text or as token ids; exactly one of the two is set.

    Attributes:
        text: the text, before any chat template.
        token_ids: ids that go to the model as they are.
        source: where it came from: ``file:line``, ``--prompt 1``, ``prompt 1``, ``built-in prompt 1``.
    """

    text: str | None
    token_ids: tuple[int, ...] | None
    source: str


def make_prompt(value: object, source: str) -> PromptItem:
    """Check one prompt.

    Args:
        value: text, a list of token ids, or a mapping with ``prompt`` or ``token_ids``.
        source: where it came from, for messages.

    Raises:
        PromptError: empty, of another type, a token id out of range, unknown keys.
    """
    if isinstance(value, Mapping):
        value = _from_mapping(value, source)
    if isinstance(value, str):
        return PromptItem(_check_text(value, source), None, source)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return PromptItem(None, _check_token_ids(value, source), source)
    raise PromptError(
        f"a prompt is {preview(value)} ({type_name(value)}), neither text nor a list of token ids",
        where=source,
        hint="write text in quotes, or a list of integers",
    )


def _from_mapping(value: Mapping[object, object], source: str) -> object:
    known = [key for key in (TEXT_KEY, IDS_KEY) if key in value]
    unknown = [key for key in value if key not in (TEXT_KEY, IDS_KEY)]
    if unknown or len(known) != 1:
        problem = (
            f"has the unknown key {preview(unknown[0])}" if unknown else "has not exactly one of its keys"
        )
        raise PromptError(
            f"a prompt object {problem}",
            where=source,
            hint=f"give it '{TEXT_KEY}' (text) or '{IDS_KEY}' (a list of integers) and nothing else",
        )
    return value[known[0]]


def _check_text(text: str, source: str) -> str:
    if not text.strip():
        kind = "empty" if not text else "only white space"
        raise PromptError(
            f"a prompt is {kind}",
            where=source,
            hint="remove it or write a text; white space can be given as ids",
        )
    try:
        return parse_text(text)
    except ValueError as problem:
        raise PromptError(
            f"a prompt is not valid text: {problem}", where=source, hint="write UTF-8"
        ) from problem


def _check_token_ids(ids: Sequence[object], source: str) -> tuple[int, ...]:
    if not len(ids):
        raise PromptError("a prompt has no token ids", where=source, hint="remove it or give at least one id")
    checked: list[int] = []
    for index, item in enumerate(ids):
        if isinstance(item, bool) or not isinstance(item, int):
            raise PromptError(
                f"token {index} of a prompt is {preview(item)} ({type_name(item)}), not an integer",
                where=source,
                hint="a prompt that is a list holds token ids only; list several texts one level up",
            )
        if not 0 <= item <= LARGEST_TOKEN_ID:
            shown = str(item) if item.bit_length() <= 128 else "an integer beyond 128 bits"
            raise PromptError(
                f"token {index} of a prompt is {shown}; token ids are 0 to {LARGEST_TOKEN_ID}",
                where=source,
                hint="use ids of the model's vocabulary",
            )
        checked.append(item)
    return tuple(checked)
