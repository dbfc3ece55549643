"""``graphsink doctor``: what this machine offers, and which modes could run on it."""

from __future__ import annotations

import importlib
import importlib.metadata
import json as json_format
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Final

import typer
from packaging.requirements import Requirement
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

import graphsink
from graphsink.config import BUILT_EXECUTION_MODES
from graphsink.config.cache_directory import cache_directory
from graphsink.errors import DeviceError, GraphsinkError
from graphsink.runtime.machine import machine_facts, read_bandwidth
from graphsink.runtime.toolchain import check_toolchain, find_toolchain

SCHEMA: Final = "graphsink.doctor/1"
SAMPLE_NAME: Final = "smollm2-135m"


class Status(StrEnum):
    """Result of one check."""

    OK = "ok"
    MISSING = "missing"
    INFO = "info"
    """Nothing that a mode depends on."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report.

    Attributes:
        name: what was looked at.
        status: whether it is all right.
        text: what was found, or what is wrong.
        hint: what to do about it.
    """

    name: str
    status: Status
    text: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class ModeCheck:
    """Whether an ``exe_mode`` could run here.

    Attributes:
        mode: name of the mode.
        missing: names of the checks that it needs and that failed; empty if it could run.
    """

    mode: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All checks, in the order in which they are shown."""

    checks: tuple[Check, ...]
    modes: tuple[ModeCheck, ...]

    @property
    def exit_code(self) -> int:
        """0 if every mode could run, else 1."""
        return 1 if any(mode.missing for mode in self.modes) else 0

    def as_dict(self) -> dict[str, object]:
        """The report as JSON values."""
        return {
            "schema": SCHEMA,
            "ok": self.exit_code == 0,
            "checks": [asdict(check) for check in self.checks],
            "modes": {
                mode.mode: {"could_run": not mode.missing, "missing": list(mode.missing)}
                for mode in self.modes
            },
        }


# Eager needs the native module, too: for cores, memory and the figures in a report.
_EVERY_MODE: Final = ("torch", "transformers", "packages", "native module", "ISA")

MODE_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "eager": _EVERY_MODE,
    "capture": _EVERY_MODE,
    "compile": (*_EVERY_MODE, "C++ compiler", "cache directory"),
}
"""Names of the checks that each mode needs."""


def run_doctor() -> DoctorReport:
    """Run every check. Never raises for something that is missing: that is what the report is for."""
    checks = tuple(_guarded(name, check) for name, check in _CHECKS.items())
    failed = {check.name for check in checks if check.status is Status.MISSING}
    modes = tuple(
        ModeCheck(mode, tuple(need for need in needs if need in failed)) for mode, needs in MODE_NEEDS.items()
    )
    return DoctorReport(checks, modes)


def _guarded(name: str, check: Callable[[str], Check]) -> Check:
    """Run a check; an error of ours is its result."""
    try:
        return check(name)
    except GraphsinkError as error:
        place = f" [{error.where}]" if error.where else ""
        return Check(name, Status.MISSING, f"{error.what}{place}", error.hint)


def _check_python(name: str) -> Check:
    return Check(name, Status.OK, f"{platform.python_version()} ({sys.executable})")


def _check_graphsink(name: str) -> Check:
    return Check(name, Status.INFO, graphsink.__version__)


def _check_import(name: str) -> Check:
    """Import a package: a broken installation has a version number, too."""
    try:
        module = importlib.import_module(name)
    except (ImportError, OSError) as error:  # OSError: a shared library of it cannot be loaded
        raise DeviceError(
            f"cannot be imported: {error}", hint=f"install it again: pip install --force-reinstall {name}"
        ) from error
    return Check(name, Status.OK, str(module.__version__))


def _check_packages(name: str) -> Check:
    """Compare what is installed with what graphsink asks for."""
    try:
        asked = importlib.metadata.requires("graphsink") or []
    except importlib.metadata.PackageNotFoundError:
        return Check(
            name, Status.INFO, "graphsink runs from source; versions of other packages were not checked"
        )
    wrong = []
    requirements = [Requirement(text) for text in asked]
    needed = [each for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})]
    for requirement in needed:
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            version = "absent"
        if version == "absent" or not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} is {version}, needs {requirement.specifier}")
    if wrong:
        raise DeviceError("; ".join(wrong), hint="run: pip install --upgrade graphsink")
    return Check(name, Status.OK, f"all {len(needed)} required packages are there, in accepted versions")


def _check_native(name: str) -> Check:
    # A wrong GRAPHSINK_ISA has a check of its own, so only that one lets it count.
    facts = machine_facts(choose_isa=False)
    return Check(name, Status.OK, f"loaded, {facts.architecture}")


def _check_processor(name: str) -> Check:
    facts = machine_facts(choose_isa=False)
    sizes = ", ".join(
        f"{label} {_size(size)}"
        for label, size in (("L1d", facts.caches.l1d), ("L2", facts.caches.l2), ("L3", facts.caches.l3))
        if size
    )
    return Check(name, Status.INFO, f"{facts.brand}" + (f" ({sizes})" if sizes else ""))


def _check_isa(name: str) -> Check:
    facts = machine_facts()
    return Check(name, Status.OK, f"detected {facts.isa_detected}, in use {facts.isa}")


def _check_cores(name: str) -> Check:
    facts = machine_facts(choose_isa=False)
    text = f"{facts.threads} usable; affinity allows {len(facts.cores)} ({_ranges(facts.cores)})"
    if facts.quota is not None:
        text += f", quota {facts.quota.cores:.2f} cores [{facts.quota.directory}]"
    return Check(name, Status.INFO, text)


def _check_memory(name: str) -> Check:
    memory = machine_facts(choose_isa=False).memory
    text = f"{_size(memory.available_bytes)} available of {_size(memory.total_bytes)}"
    if memory.limited_by is not None:
        text += f", limited by control group {memory.limited_by}"
    return Check(name, Status.INFO, text)


def _check_bandwidth(name: str) -> Check:
    try:
        result = read_bandwidth(machine_facts(choose_isa=False).threads)
    except GraphsinkError as error:
        return Check(name, Status.INFO, f"not measured: {error.what}", error.hint)
    text = (
        f"{result.best_gbps:.1f} GB/s best, {result.median_gbps:.1f} GB/s median, "
        f"{result.threads} thread(s) over {_size(result.buffer_bytes)}"
    )
    return Check(name, Status.INFO, text)


def _check_compiler(name: str) -> Check:
    toolchain = find_toolchain()
    check_toolchain(toolchain)
    return Check(name, Status.OK, f"{toolchain.version} ({' '.join(toolchain.command)})")


def _check_cache(name: str) -> Check:
    return Check(name, Status.OK, str(cache_directory()))


def _check_sample(name: str) -> Check:
    # Imported here: it may need torch, and doctor must be able to say that torch is broken.
    try:
        from graphsink.engine.model.sample import sample_directory
    except (ImportError, OSError) as error:
        return Check(name, Status.INFO, f"not checked: {error}")
    try:
        directory = sample_directory(SAMPLE_NAME)
    except GraphsinkError as error:
        return Check(name, Status.INFO, f"not checked: {error.what}", error.hint)
    if directory is None:
        return Check(name, Status.INFO, f"{SAMPLE_NAME} has not been fetched", "run: graphsink sample")
    return Check(name, Status.INFO, str(directory))


_CHECKS: Final[Mapping[str, Callable[[str], Check]]] = {
    "graphsink": _check_graphsink,
    "python": _check_python,
    "torch": _check_import,
    "transformers": _check_import,
    "packages": _check_packages,
    "native module": _check_native,
    "processor": _check_processor,
    "ISA": _check_isa,
    "cores": _check_cores,
    "memory": _check_memory,
    "read bandwidth": _check_bandwidth,
    "C++ compiler": _check_compiler,
    "cache directory": _check_cache,
    "sample model": _check_sample,
}
"""The checks, in the order in which they are shown."""


def _size(size: float) -> str:
    """Bytes in binary units, with at most one decimal."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _ranges(cores: tuple[int, ...]) -> str:
    """``(0, 1, 2, 5)`` as ``0-2,5``."""
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][-1] + 1:
            runs[-1][1:] = [core]
        else:
            runs.append([core])
    return ",".join("-".join(str(end) for end in run) for run in runs)


_STYLES: Final[Mapping[Status, str]] = {Status.OK: "green", Status.MISSING: "bold red", Status.INFO: "dim"}


def render(report: DoctorReport) -> RenderableType:
    """The report as a table of checks and one line per mode."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in report.checks:
        text = Text(check.text)
        if check.hint:
            text.append(f"\nfix: {check.hint}", style="yellow")
        table.add_row(check.name, Text(check.status, style=_STYLES[check.status]), text)
    lines: list[RenderableType] = [table, Text()]
    for mode in report.modes:
        verdict = f"could not run; missing: {', '.join(mode.missing)}" if mode.missing else "could run"
        if mode.mode not in BUILT_EXECUTION_MODES:
            verdict += " (the machine; this version of graphsink does not have the mode yet)"
        lines.append(Text(f"{mode.mode:8} {verdict}", style="bold red" if mode.missing else "green"))
    return Group(*lines)


def doctor_command(
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check compiler, processor, memory, cache directory and versions; exit 0 if every mode could run."""
    report = run_doctor()
    if json:
        typer.echo(json_format.dumps(report.as_dict(), indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 240).print(render(report))
    raise typer.Exit(report.exit_code)
