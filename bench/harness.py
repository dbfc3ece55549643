"""What all benchmarks share: rows with bars, the command line, the JSON document.

A row holds if its value meets its bar; a skipped row neither holds nor fails. The process exits with 0 if
every row holds and with 1 if one does not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
import transformers

import graphsink
from graphsink.runtime.machine import machine_facts


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure.

    Attributes:
        name: what was measured, in words.
        value: the figure; ``None`` if skipped.
        unit: its unit.
        bar: what it must reach.
        better: whether lower or higher figures are better.
        skipped: why it was not measured, if it was not.
    """

    name: str
    value: float | None
    unit: str
    bar: float
    better: Literal["lower", "higher"]
    skipped: str | None = None

    @property
    def holds(self) -> bool:
        """Whether the bar is met; a skipped row does not fail."""
        if self.value is None:
            return self.skipped is not None
        return self.value <= self.bar if self.better == "lower" else self.value >= self.bar

    def as_dict(self) -> dict[str, object]:
        """The row of the JSON document."""
        document = {**asdict(self), "holds": self.holds}
        if self.skipped is None:
            del document["skipped"]
        return document


def skipped(name: str, unit: str, bar: float, better: Literal["lower", "higher"], why: str) -> Row:
    """A row that was not measured."""
    return Row(name, None, unit, bar, better, skipped=why)


def median_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """Median of the pairwise ratios of two interleaved series."""
    return statistics.median(a / b for a, b in zip(numerator, denominator, strict=True))


def main(name: str, measure: Callable[[bool], Iterable[Row]]) -> None:
    """Command line of a benchmark; ``measure(quick)`` yields its rows. Exits the process."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{name}")
    parser.add_argument("--quick", action="store_true", help="under 50 s; marks what it skips")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    arguments = parser.parse_args()
    rows: list[Row] = []
    try:
        rows.extend(_printed(measure(arguments.quick)))
    finally:
        # Rows that were measured before a failure are worth keeping.
        if arguments.json is not None:
            document = {"machine": _machine(), "rows": [row.as_dict() for row in rows]}
            arguments.json.write_text(json.dumps(document, indent=2) + "\n")
    sys.exit(0 if all(row.holds for row in rows) else 1)


def _printed(rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        verdict = "skip" if row.skipped else ("ok" if row.holds else "FAIL")
        value = row.skipped if row.value is None else f"{row.value:.4g} {row.unit}"
        sign = "<=" if row.better == "lower" else ">="
        print(f"{verdict:4}  {row.name}: {value} (bar: {sign} {row.bar:g})", flush=True)
        yield row


def _machine() -> dict[str, object]:
    facts = machine_facts()
    return {
        "cpu": facts.brand,
        "isa": str(facts.isa),
        "threads": facts.threads,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "graphsink": graphsink.__version__,
    }
