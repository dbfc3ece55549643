"""``graphsink run``: load a recipe, generate, report.

What is generated and the report go to standard output; progress, notes and errors go to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from graphsink.cli.token_printer import TokenPrinter
from graphsink.recipe.prompt_values import PromptItem

INTERRUPTED = 130
"""Exit code after ctrl-C, as shells have it: 128 + SIGINT."""


@dataclass(frozen=True, slots=True)
class Output:
    """Where a run writes.

    Attributes:
        json_file: the JSON report; ``Path("-")`` is standard output, which then carries nothing else.
        quiet: only the generated text, no progress and no tables.
    """

    json_file: Path | None
    quiet: bool

    @property
    def json_on_stdout(self) -> bool:
        """Whether standard output is the JSON document."""
        return self.json_file == Path("-")


def run_command(
    recipe: Annotated[Path, typer.Argument(help="Recipe file (YAML).", show_default=False)],
    prompt: Annotated[
        list[str] | None,
        typer.Option("--prompt", "-p", help="A prompt; repeat for several. Replaces those of the recipe."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a recipe field; repeatable."),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the report as JSON; '-' is standard output."),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Do not apply the tokenizer's chat template.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the generated text only; no progress, no tables.")
    ] = False,
) -> None:
    """Run a recipe: load the model, generate for its prompts, print text and metrics.

    Exit code: 0, or 1 if a request failed (error, or none of the prompts fitted), 2 for wrong input,
    130 after ctrl-C (partial output is kept).
    """
    from graphsink.recipe.loader import load_recipe
    from graphsink.recipe.prompts import load_prompts

    overrides = [*(set_ or []), *(["data_config.apply_chat_template=false"] if raw else [])]
    loaded = load_recipe(recipe, overrides)
    prompts = load_prompts(loaded, prompt or [])
    output = Output(json_file, quiet)
    _check_writable(json_file)
    if not quiet:
        for note in loaded.notes:
            print(f"note: {note}", file=sys.stderr)
    raise typer.Exit(_run(loaded, prompts, output))


def _run(loaded: object, prompts: Sequence[PromptItem], output: Output) -> int:
    """Load, generate and report; returns the exit code."""
    # PyTorch and transformers take seconds to import: wrong recipes are reported before that.
    from graphsink.llm import LLM, GenerationInterrupted
    from graphsink.run_reporting import build_report

    try:
        with _loading_progress(output.quiet) as on_progress:
            llm = LLM(loaded, on_progress=on_progress)  # type: ignore[arg-type]
    except KeyboardInterrupt:
        print("interrupted while loading; nothing was generated", file=sys.stderr)
        return INTERRUPTED
    texts = TokenPrinter(
        sys.stdout,
        prompts,
        has_text=llm.model.tokenizer is not None,
        one_by_one=len(prompts) == 1 or llm.recipe.scheduler.batch_size == 1,
        headings=not output.quiet,
        enabled=not output.json_on_stdout,
    )
    interrupted = False
    try:
        outputs = llm.generate(prompts, on_token=texts)
    except GenerationInterrupted as interruption:
        outputs, interrupted = interruption.outputs, True
    texts.finish(outputs)
    if interrupted:
        print("interrupted; what was generated so far is kept", file=sys.stderr)
    report = build_report(llm, outputs, interrupted=interrupted)
    _write_report(report.to_json(), output)
    _print_tables(report, output)
    if interrupted:
        return INTERRUPTED
    failed = [request for request in report.requests if request.finish_reason in ("error", "prompt_too_long")]
    for request in failed:
        print(f"error: {request.finish_reason}: {request.error}", file=sys.stderr)
    errors = any(request.finish_reason == "error" for request in failed)
    return 1 if errors or len(failed) == len(report.requests) else 0


def _write_report(document: str, output: Output) -> None:
    if output.json_file is None:
        return
    if output.json_on_stdout:
        print(document)
        return
    from graphsink.errors import GraphsinkError

    try:
        output.json_file.write_text(document + "\n", encoding="utf-8")
    except OSError as error:
        raise GraphsinkError(
            f"the report could not be written: {error.strerror}", where=f"--json {output.json_file}"
        ) from error


def _print_tables(report: object, output: Output) -> None:
    from graphsink.report.tables import print_run

    if not output.quiet and not output.json_on_stdout:
        print_run(report, Console(highlight=False))  # type: ignore[arg-type]


def _check_writable(json_file: Path | None) -> None:
    """Refuse a report path that cannot work before minutes are spent on the run."""
    from graphsink.errors import RecipeError

    if json_file is None or json_file == Path("-"):
        return
    if json_file.is_dir() or not json_file.absolute().parent.is_dir():
        problem = "is a directory" if json_file.is_dir() else "is in a directory that does not exist"
        raise RecipeError(f"'{json_file}' {problem}", where="--json", hint="give the path of a file")


@contextmanager
def _loading_progress(quiet: bool) -> Iterator[object]:
    """A progress bar on standard error: reading weights, then warm-up."""
    if quiet:
        yield None
        return
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=not console.is_terminal) as progress:
        tasks = {"weights": progress.add_task("loading weights", total=1.0)}

        def on_progress(event: object) -> None:
            phase, fraction = event.phase, event.fraction  # type: ignore[attr-defined]
            if phase not in tasks:
                progress.update(tasks["weights"], completed=1.0)
                tasks[phase] = progress.add_task(phase, total=1.0)
            progress.update(tasks[phase], completed=fraction)

        yield on_progress
