"""``graphsink run``: load a recipe, generate, report.

What is generated and the report go to standard output; progress, notes and errors go to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from graphsink.cli.broken_pipe import silence
from graphsink.cli.report_file import ReportFile
from graphsink.cli.token_printer import TokenPrinter
from graphsink.config.interrupts import deferred_interrupts
from graphsink.errors import GenerationFailedError, RecipeError, RecipeValueError
from graphsink.recipe.loader import LoadedRecipe, load_recipe, resolve_path
from graphsink.recipe.prompt_values import PromptItem
from graphsink.recipe.prompts import load_prompts
from graphsink.recipe.runnable import check_runnable
from graphsink.report.run_report import RunReport
from graphsink.report.tables import print_run

if TYPE_CHECKING:
    from graphsink.engine.request import RequestOutput
    from graphsink.llm import LoadProgress

INTERRUPTED = 130
"""Exit code after ctrl-C, as shells have it: 128 + SIGINT."""


@dataclass(frozen=True, slots=True)
class Output:
    """Where a run writes.

    Attributes:
        report_files: where the JSON report goes, reserved before the run.
        json_on_stdout: standard output is the JSON document and carries nothing else.
        quiet: only the generated text, no progress and no tables.
    """

    report_files: tuple[ReportFile, ...]
    json_on_stdout: bool
    quiet: bool


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
    overrides = [*(set_ or []), *(["data_config.apply_chat_template=false"] if raw else [])]
    loaded = load_recipe(recipe, overrides)
    prompts = load_prompts(loaded, prompt or [])
    if prompt:
        loaded = _with_prompts(loaded, prompt)
    check_runnable(loaded.recipe)
    output = Output(_report_files(loaded, json_file), json_file == Path("-"), quiet)
    if not quiet:
        for note in loaded.notes:
            print(f"note: {note}", file=sys.stderr)
    try:
        raise typer.Exit(_run(loaded, prompts, output))
    finally:
        for report_file in output.report_files:
            report_file.discard()


def _run(loaded: LoadedRecipe, prompts: Sequence[PromptItem], output: Output) -> int:
    """Load, generate and report; returns the exit code."""
    # PyTorch and transformers take seconds to import: wrong recipes are reported before that. Ctrl-C must
    # not strike inside: a module that is half imported raises other errors.
    with deferred_interrupts() as interrupt:
        from graphsink.llm import LLM, GenerationInterrupted
        from graphsink.run_reporting import build_report
    interrupt.check()

    try:
        with _loading_progress(output.quiet) as on_progress:
            llm = LLM(loaded, on_progress=on_progress)
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
    code = 0
    try:
        outputs = llm.generate(prompts, on_token=texts)
    except GenerationInterrupted as interruption:
        print("interrupted; what was generated so far is kept", file=sys.stderr)
        outputs, code = interruption.outputs, INTERRUPTED
    except GenerationFailedError as failure:
        print(f"error: {failure}", file=sys.stderr)
        outputs, code = cast("list[RequestOutput]", failure.outputs), failure.exit_code
    texts.finish(outputs)
    report = build_report(llm, outputs, interrupted=code != 0)
    document = report.to_json()
    failures = _write_reports(document, output.report_files)
    if output.json_on_stdout:
        print(document)
    elif not output.quiet and not texts.closed:
        _print_tables(report)
    if failures:
        raise failures[0]
    return code or _exit_code(report)


def _write_reports(document: str, report_files: Sequence[ReportFile]) -> list[RecipeError]:
    """Write all that can be written; returns the errors, to be raised when everything else is out."""
    failures = []
    for report_file in report_files:
        try:
            report_file.write(document)
        except RecipeError as error:
            failures.append(error)
    return failures


def _print_tables(report: RunReport) -> None:
    """Print the metrics; a reader that has gone away is no error."""
    console = Console(highlight=False)
    # Captured: rich ends the process by itself when its output breaks.
    with console.capture() as capture:
        print_run(report, console)
    try:
        sys.stdout.write(capture.get())
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)


def _with_prompts(loaded: LoadedRecipe, prompts: Sequence[str]) -> LoadedRecipe:
    """The recipe with the prompts of the command line: what the report calls effective."""
    data = loaded.recipe.data.model_copy(update={"prompts": list(prompts)})
    return replace(loaded, recipe=loaded.recipe.model_copy(update={"data": data}))


def _exit_code(report: RunReport) -> int:
    """1 if a request failed or none could be served; says why on standard error."""
    failed = []
    for number, request in enumerate(report.requests, 1):
        if request.finish_reason in ("error", "prompt_too_long"):
            failed.append(request)
            print(f"error: prompt {number}: {request.finish_reason}: {request.error}", file=sys.stderr)
    errors = any(request.finish_reason == "error" for request in failed)
    return 1 if errors or len(failed) == len(report.requests) else 0


def _report_files(loaded: LoadedRecipe, json_file: Path | None) -> tuple[ReportFile, ...]:
    """The files that the report goes to: ``--json``, and the one in ``model_config.output_path``."""
    paths = [] if json_file is None or json_file == Path("-") else [json_file]
    model = loaded.recipe.model
    if model.output_path:
        directory = Path(resolve_path(loaded, model.output_path))
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecipeValueError(
                f"the directory '{directory}' cannot be made: {error.strerror}",
                key="model_config.output_path",
            ) from error
        paths.append(directory / f"{model.model_name}.{model.exe_mode}.json")
    return tuple(ReportFile(path) for path in paths)


@contextmanager
def _loading_progress(quiet: bool) -> Iterator[Callable[[LoadProgress], None] | None]:
    """A progress bar on standard error: reading weights, then warm-up."""
    if quiet:
        yield None
        return
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=not console.is_terminal) as progress:
        tasks = {"weights": progress.add_task("loading weights", total=1.0)}

        def on_progress(event: LoadProgress) -> None:
            if event.phase not in tasks:
                progress.update(tasks["weights"], completed=1.0)
                tasks[event.phase] = progress.add_task(event.phase, total=1.0)
            progress.update(tasks[event.phase], completed=event.fraction)

        yield on_progress
