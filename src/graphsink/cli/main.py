"""Entry point of the ``graphsink`` command: its subcommands, and how errors leave it."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

import graphsink
from graphsink.cli.broken_pipe import BROKEN_PIPE, silence
from graphsink.cli.doctor import doctor_command
from graphsink.cli.recipe import check_command, fields_command
from graphsink.cli.run import INTERRUPTED, run_command
from graphsink.cli.sample import sample_command
from graphsink.config.knobs import DEBUG
from graphsink.errors import GraphsinkError


def build_app() -> typer.Typer:
    """The command tree."""
    app = typer.Typer(
        name="graphsink",
        help="Run PyTorch LLMs from a recipe: op by op, as a replayed task graph, or compiled.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    recipe = typer.Typer(help="Check recipes and list their fields.", no_args_is_help=True)
    recipe.command("check")(check_command)
    recipe.command("fields")(fields_command)
    app.command("run")(run_command)
    app.command("sample")(sample_command)
    app.command("doctor")(doctor_command)
    app.add_typer(recipe, name="recipe")
    app.callback()(_common_options)
    return app


def main() -> None:
    """Run the command line; errors of graphsink become messages and exit codes."""
    if sys.stdout is None:  # closed by the caller (`>&-`)
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 -- lives as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character of the model's must not end the run.
        sys.stdout.reconfigure(errors="replace")
    try:
        build_app()()
    except GraphsinkError as error:
        if _debugging():
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        silence(sys.stdout)
        sys.exit(BROKEN_PIPE)
    except OSError as error:
        if _debugging():
            raise
        place = f" ('{error.filename}')" if error.filename else ""
        print(f"error: input or output failed: {error.strerror}{place}", file=sys.stderr)
        silence(sys.stdout)
        sys.exit(1)


def _debugging() -> bool:
    try:
        return DEBUG.read()
    except GraphsinkError as error:
        print(f"error: {error}", file=sys.stderr)
        return False


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"graphsink {graphsink.__version__}")
        raise typer.Exit


def _common_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run PyTorch LLMs from a recipe: op by op, as a replayed task graph, or compiled."""
