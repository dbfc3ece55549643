"""`graphsink doctor`: what it finds, what it reports as missing, and its exit code."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
import typer
from rich.console import Console
from typer.testing import CliRunner

import graphsink
from graphsink.cli import doctor
from graphsink.cli.doctor import Check, DoctorReport, Status, doctor_command, render, run_doctor
from graphsink.runtime.machine import BandwidthResult, machine_facts
from graphsink.target import IsaLevel

ALL_MODES = ("eager", "capture", "compile")


@pytest.fixture(autouse=True)
def quick(cache_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of our own, no knobs, and a bandwidth that costs no time (it has tests of its own)."""
    monkeypatch.delenv("GRAPHSINK_ISA", raising=False)
    monkeypatch.delenv("CXX", raising=False)

    def measured(threads: int) -> BandwidthResult:
        return BandwidthResult(31.25, 30.0, 900 << 20, threads, IsaLevel.SCALAR)

    monkeypatch.setattr(doctor, "read_bandwidth", measured)


def by_name(report: DoctorReport) -> dict[str, Check]:
    return {check.name: check for check in report.checks}


def missing_by_mode(report: DoctorReport) -> dict[str, tuple[str, ...]]:
    return {mode.mode: mode.missing for mode in report.modes}


def text_of(report: DoctorReport) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(render(report))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_everything_is_there(cache_root: Path) -> None:
    report = run_doctor()
    checks = by_name(report)
    facts = machine_facts()
    assert [check for check in report.checks if check.status is Status.MISSING] == []
    assert missing_by_mode(report) == dict.fromkeys(ALL_MODES, ())
    assert report.exit_code == 0
    assert checks["torch"].text == torch.__version__
    assert checks["transformers"].text == transformers.__version__
    assert checks["graphsink"].text == graphsink.__version__
    assert checks["cache directory"].text == str(cache_root)
    assert checks["ISA"].text == f"detected {facts.isa_detected}, in use {facts.isa}"
    assert checks["cores"].text.startswith(f"{facts.threads} usable; affinity allows {len(facts.cores)} (")
    assert checks["read bandwidth"].text.startswith("31.2 GB/s best, 30.0 GB/s median")
    assert "over 900 MiB" in checks["read bandwidth"].text
    assert facts.brand in checks["processor"].text


def test_absent_sample_is_not_a_fault() -> None:
    check = by_name(run_doctor())["sample model"]
    assert check.status is Status.INFO
    assert check.hint == "run: graphsink sample"


def test_lowered_level_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHSINK_ISA", "scalar")
    check = by_name(run_doctor())["ISA"]
    assert check.text.endswith("in use scalar")


def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")


def with_unknown_isa(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHSINK_ISA", "sse9")


def without_native_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphsink._native", None)


def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


def with_open_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    doctor.cache_directory().chmod(0o777)


def with_old_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor.importlib.metadata, "requires", lambda name: ["torch>=99", "absent-package>=1"]
    )


@pytest.mark.parametrize(
    ("damage", "missing", "modes", "message"),
    [
        (without_compiler, {"C++ compiler"}, ("compile",), "looked for no-such-compiler"),
        (with_unknown_isa, {"ISA"}, ALL_MODES, "unknown instruction-set level 'sse9'"),
        (without_native_module, {"native module", "ISA"}, ALL_MODES, "the native module cannot be loaded"),
        (without_torch, {"torch"}, ALL_MODES, "cannot be imported"),
        (with_open_cache, {"cache directory"}, ("compile",), "can be written by other users (mode 0777)"),
        (
            with_old_torch,
            {"packages"},
            ALL_MODES,
            f"torch is {torch.__version__}, needs >=99; absent-package is absent",
        ),
    ],
)
def test_what_is_missing_is_reported_per_mode(
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[pytest.MonkeyPatch], None],
    missing: set[str],
    modes: tuple[str, ...],
    message: str,
) -> None:
    damage(monkeypatch)
    report = run_doctor()
    failed = {name: check for name, check in by_name(report).items() if check.status is Status.MISSING}
    assert missing <= set(failed)
    assert report.exit_code == 1
    assert tuple(mode for mode, needs in missing_by_mode(report).items() if needs) == modes
    for mode in modes:
        assert set(missing_by_mode(report)[mode]) == missing
    text = text_of(report)
    assert message in text
    assert all(check.hint and f"fix: {check.hint}" in text for check in failed.values())
    assert f"{modes[-1]:8} could not run; missing: " in text


def test_json_and_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer()
    app.command()(doctor_command)
    good = CliRunner().invoke(app, ["--json"])
    report = json.loads(good.stdout)
    assert (good.exit_code, report["schema"], report["ok"]) == (0, "graphsink.doctor/1", True)
    assert report["modes"] == {mode: {"could_run": True, "missing": []} for mode in ALL_MODES}
    assert {"name": "graphsink", "status": "info", "text": graphsink.__version__, "hint": None} in report[
        "checks"
    ]

    without_compiler(monkeypatch)
    bad = CliRunner().invoke(app, ["--json"])
    assert bad.exit_code == 1
    assert json.loads(bad.stdout)["modes"]["compile"] == {"could_run": False, "missing": ["C++ compiler"]}
    plain = CliRunner().invoke(app, [])
    assert plain.exit_code == 1
    assert "missing: C++ compiler" in plain.stdout


@pytest.mark.parametrize(
    ("cores", "text"), [((0,), "0"), ((0, 1, 2), "0-2"), ((0, 2, 3, 7), "0,2-3,7"), ((), "")]
)
def test_core_ranges(cores: tuple[int, ...], text: str) -> None:
    assert doctor._ranges(cores) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (512, "512 B"),
        (48 << 10, "48 KiB"),
        (900 << 20, "900 MiB"),
        (3 << 29, "1.5 GiB"),
        (5 << 40, "5120.0 GiB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert doctor._size(size) == text
