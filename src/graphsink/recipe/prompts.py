"""Which prompts a run uses, and how long they may be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

from graphsink.errors import PromptError
from graphsink.recipe.loader import LoadedRecipe, resolve_path
from graphsink.recipe.prompt_files import read_prompt_file
from graphsink.recipe.prompt_values import PromptItem, make_prompt

DEFAULT_PROMPTS: tuple[str, ...] = (
    "Explain in two sentences why the sky is blue.",
    "Write a short poem about a river that never sleeps.",
    "List three things to check before a long bicycle trip.",
    "What is the difference between a compiler and an interpreter?",
)
"""Used when no prompt is given anywhere."""

DEFAULT_PROMPT_FILE = "default_prompt.json"


def load_prompts(loaded: LoadedRecipe, command_line_prompts: Sequence[str] | None = None) -> list[PromptItem]:
    """The prompts of a run: those of the command line, else ``data_config.prompts``, else
    ``default_prompt.json`` in ``data_config.dataset_path``, else a built-in list.

    Prompts that the user gave are taken as they are. Default prompts are repeated or cut to
    ``batch_size``, as in the reference.

    Args:
        loaded: the recipe.
        command_line_prompts: texts of ``--prompt``; ``None`` or empty if there are none.

    Raises:
        PromptError: see `make_prompt` and `read_prompt_file`; also an empty list.
    """
    if command_line_prompts:
        return [
            make_prompt(text, f"--prompt {number}")
            for number, text in enumerate(command_line_prompts, start=1)
        ]
    if loaded.recipe.data.prompts is not None:
        return _recipe_prompts(loaded)
    dataset_path = loaded.recipe.data.dataset_path
    if dataset_path:
        prompts = read_prompt_file(Path(resolve_path(loaded, dataset_path)) / DEFAULT_PROMPT_FILE)
    else:
        prompts = prompts_from_values(DEFAULT_PROMPTS, source="built-in prompt")
    return list(islice(cycle(prompts), loaded.recipe.scheduler.batch_size))


def prompts_from_values(values: object, *, source: str = "prompt") -> list[PromptItem]:
    """Check prompts given in Python.

    Args:
        values: one text, or a sequence of texts, token-id lists or mappings.
        source: what messages call them; ``" 1"``, ``" 2"``, … is added.

    Raises:
        PromptError: an empty sequence, or a prompt that is not acceptable.
    """
    if isinstance(values, str):
        values = [values]
    if not isinstance(values, Sequence) or isinstance(values, (bytes, bytearray)):
        raise PromptError(
            f"prompts are given as {type(values).__name__}",
            where=source,
            hint="give a list of texts or of token-id lists",
        )
    if not values:
        raise PromptError("the list of prompts is empty", where=source, hint="give at least one prompt")
    return [make_prompt(value, f"{source} {number}") for number, value in enumerate(values, start=1)]


def truncate_prompt(token_ids: Sequence[int], limit: int) -> tuple[list[int], int]:
    """Cut a prompt to ``limit`` tokens, keeping its head as the reference does.

    Returns:
        The tokens kept, and how many were cut off.
    """
    kept = list(token_ids[:limit])
    return kept, len(token_ids) - len(kept)


def _recipe_prompts(loaded: LoadedRecipe) -> list[PromptItem]:
    key = ("data_config", "prompts")
    value = loaded.recipe.data.prompts
    if isinstance(value, str):
        if not value:
            raise PromptError(
                "data_config.prompts is an empty path",
                where=loaded.provenance.describe(key),
                hint="give a list of prompts or the path of a file, or remove the line",
            )
        return read_prompt_file(Path(resolve_path(loaded, value)))
    if not value:
        raise PromptError(
            "data_config.prompts is an empty list",
            where=loaded.provenance.describe(key),
            hint="give at least one prompt, or remove the line",
        )
    return [make_prompt(item, loaded.provenance.describe((*key, index))) for index, item in enumerate(value)]
