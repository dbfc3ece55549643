"""The run report as tables for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from graphsink.report.run_report import RunReport


def print_run(report: RunReport, console: Console) -> None:
    """Print the metrics of a run as a table, with a line about the machine and the remarks."""
    console.print()
    console.print(_metrics(report))
    for line in (_machine_line(report), *_notes(report)):
        console.print(line, soft_wrap=True, markup=False)


def _metrics(report: RunReport) -> Table:
    timing, memory = report.timing, report.memory
    table = Table(
        title=f"{report.model} · exe_mode: {report.exe_mode}",
        title_justify="left",
        show_header=False,
        pad_edge=False,
    )
    table.add_column("figure", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("meaning", style="dim")
    share = timing.bandwidth_fraction
    rows: list[tuple[str, str, str]] = [
        ("load", f"{timing.load_s:.2f} s", "reading the model"),
        ("warm-up", f"{timing.warmup_s:.2f} s", "packing check, one prefill, one decode"),
        ("TTFT proxy", _number(timing.ttft_ms, "ms"), "prefill forward"),
        ("TPOT proxy", _number(timing.tpot_ms, "ms"), f"mean of {len(timing.decode_ms)} decode forwards"),
        ("forward throughput", _number(timing.forward_tokens_per_s, "token/s"), "tokens / all forwards"),
        (
            "generate throughput",
            _number(timing.generate_tokens_per_s, "token/s"),
            "tokens / wall time of generate()",
        ),
        (
            "engine overhead",
            _number(timing.engine_overhead_ms, "ms"),
            "per step, outside the forward (median)",
        ),
        ("weights / KV pool", f"{memory.weights_mib:.0f} / {memory.kv_mib:.0f} MiB", "bytes held"),
        ("peak RSS", f"{memory.peak_rss_mib:.0f} MiB", "whole process"),
        ("tasks per step", f"{report.counters.tasks_per_step}", "operators that one decode dispatches"),
        (
            "read bandwidth",
            _number(report.machine.read_bandwidth_gbps, "GB/s"),
            f"decode reached {share:.0%} of it" if share is not None else "measured",
        ),
        ("process", f"{timing.process_s:.2f} s", "from its start to the end of generation"),
    ]
    for row in rows:
        table.add_row(*row)
    for reason, count in report.counters.fallbacks.items():
        table.add_row("fallback", str(count), reason, style="yellow")
    return table


def _machine_line(report: RunReport) -> str:
    machine = report.machine
    return (
        f"{machine.cpu} · {machine.isa} · {machine.threads} threads · torch {machine.torch} · "
        f"graphsink {machine.graphsink}"
    )


def _notes(report: RunReport) -> list[str]:
    notes = [f"note: {note}" for note in report.recipe_notes]
    for number, request in enumerate(report.requests, 1):
        if request.truncated_tokens:
            cut = f"prompt {number} was cut by {request.truncated_tokens} tokens"
            notes.append(f"note: {cut} (data_config.input_truncated_len)")
        if request.error and request.finish_reason == "length":
            notes.append(f"note: prompt {number} ended early: {request.error}")
    return notes


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.2f} {unit}"
