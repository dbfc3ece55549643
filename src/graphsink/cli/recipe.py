"""``graphsink recipe check`` and ``graphsink recipe fields``."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from graphsink.errors import GraphsinkError, NotSupportedError, RecipeValueError
from graphsink.recipe import LoadedRecipe, PromptItem, check_runnable, load_prompts, load_recipe
from graphsink.recipe.documentation import EFFECT_TEXT
from graphsink.recipe.field_catalog import field_catalog, section_models

CHECK_SCHEMA: Final = "graphsink.recipe.check/1"
FIELDS_SCHEMA: Final = "graphsink.recipe.fields/1"


def check_command(
    file: Annotated[Path, typer.Argument(help="The recipe.", show_default=False)],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a value; may be repeated."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Validate a recipe and its prompts without loading a model; exit 2 if something is wrong."""
    try:
        loaded = load_recipe(file, set_ or ())
        prompts = load_prompts(loaded)
    except GraphsinkError as error:
        if json:
            typer.echo(
                json_format.dumps(
                    {"schema": CHECK_SCHEMA, "ok": False, "error": _error_data(error)}, indent=2
                )
            )
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_code) from error
    if json:
        typer.echo(json_format.dumps(_check_data(loaded, prompts), indent=2))
    else:
        _print_check(loaded, prompts)


def fields_command(
    json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """List every recipe field: type, default, effect on this device, meaning."""
    rows = field_catalog().values()
    if json:
        data = [
            {
                "key": row.key,
                "type": row.type_text,
                "check": row.check_text,
                "default": row.default,
                "origin": row.origin,
                "effect": row.effect,
                "description": row.description,
            }
            for row in rows
        ]
        typer.echo(json_format.dumps({"schema": FIELDS_SCHEMA, "fields": data}, indent=2))
        return
    table = Table(title="Recipe fields", title_justify="left")
    for column in ("Field", "Type", "Default", "Effect", "Meaning"):
        table.add_column(column, overflow="fold")
    section = ""
    for row in rows:
        if row.section != section:
            section = row.section
            table.add_section()
            table.add_row(f"[bold]{section}[/bold]", "", "", "", "")
        kind = f"{row.type_text} ({row.check_text})" if row.check_text else row.type_text
        cells = (f"  {row.name}", kind, row.default, EFFECT_TEXT[row.effect], row.description)
        table.add_row(*(escape(cell) for cell in cells))
    # In a pipe there is no width to fit; a name that is cut cannot be searched for.
    Console(width=None if sys.stdout.isatty() else 240).print(table)


def _check_data(loaded: LoadedRecipe, prompts: list[PromptItem]) -> dict[str, Any]:
    return {
        "schema": CHECK_SCHEMA,
        "ok": True,
        "recipe": loaded.recipe.as_dict(),
        "notes": [{"key": note.key, "line": note.line, "reason": note.reason} for note in loaded.notes],
        "prompts": len(prompts),
        "not_runnable": _not_runnable(loaded),
    }


def _error_data(error: GraphsinkError) -> dict[str, Any]:
    data: dict[str, Any] = {
        "type": type(error).__name__,
        "what": error.what,
        "where": error.where,
        "hint": error.hint,
    }
    if isinstance(error, RecipeValueError):
        data.update(key=error.key, file=error.file, line=error.line, suggestion=error.suggestion)
    return data


def _not_runnable(loaded: LoadedRecipe) -> str | None:
    try:
        check_runnable(loaded.recipe)
    except NotSupportedError as error:
        return error.what
    return None


def _print_check(loaded: LoadedRecipe, prompts: list[PromptItem]) -> None:
    """The values that are not the defaults, the prompts, and what has no effect."""
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{escape(str(loaded.path))}: the recipe is valid", style="green")
    effective = loaded.recipe.as_dict()
    for section, model in section_models().items():
        defaults = model().model_dump(mode="json")
        changed = {key: value for key, value in effective[section].items() if value != defaults[key]}
        if "exe_mode" in defaults:
            changed = {"exe_mode": effective[section]["exe_mode"], **changed}
        changed.pop("prompts", None)
        if changed:
            console.print(section, style="bold")
        for key, value in changed.items():
            console.print(f"  {key}: {escape(_short(value))}")
    noun = "prompt" if len(prompts) == 1 else "prompts"
    console.print(f"{len(prompts)} {noun}, the first from {escape(prompts[0].source)}")
    if loaded.notes:
        console.print("without effect on this device:", style="yellow")
    for note in loaded.notes:
        console.print(f"  {escape(str(note))}")
    refusal = _not_runnable(loaded)
    if refusal:
        console.print(f"cannot be run by this version: {escape(refusal)}", style="yellow")


def _short(value: object) -> str:
    shown = json_format.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return shown if len(shown) <= 100 else shown[:97] + "..."
