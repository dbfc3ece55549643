"""Fills the run report from an `LLM` and its outputs."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import torch

import graphsink
from graphsink.engine.request import RequestOutput
from graphsink.errors import GraphsinkError
from graphsink.llm import LLM
from graphsink.report.run_report import (
    CountersPart,
    LogprobsPart,
    MachinePart,
    MemoryPart,
    RequestPart,
    RunReport,
    TimingPart,
)
from graphsink.runtime.machine import machine_facts, read_bandwidth

MEBIBYTE = 1 << 20


def build_report(llm: LLM, outputs: Sequence[RequestOutput], *, interrupted: bool = False) -> RunReport:
    """The report of the last ``generate()`` call of ``llm``.

    The read bandwidth is measured here, after peak memory was noted: its buffer is larger than the
    last-level cache and would count otherwise. What was generated is worth more than this figure: if it
    cannot be measured, or ctrl-C is pressed meanwhile, it is ``None`` and a note says why.
    """
    process_s = time.time() - psutil.Process().create_time()
    memory = _memory(llm)
    bandwidth_gbps, note = (None, None) if interrupted else _bandwidth(llm.threads)
    facts = machine_facts()
    machine = MachinePart(
        cpu=facts.brand,
        isa=str(facts.isa),
        threads=llm.threads,
        read_bandwidth_gbps=bandwidth_gbps,
        torch=torch.__version__,
        graphsink=graphsink.__version__,
    )
    return RunReport(
        recipe=llm.recipe.as_dict(),
        recipe_notes=[*llm.notes, *([note] if note else [])],
        model=llm.recipe.model.model_name,
        exe_mode=llm.recipe.model.exe_mode,
        interrupted=interrupted,
        machine=machine,
        timing=_timing(llm, process_s, bandwidth_gbps),
        memory=memory,
        counters=CountersPart(tasks_per_step=llm.warmup.tasks_per_step),
        requests=[_request(output) for output in outputs],
    )


def _bandwidth(threads: int) -> tuple[float | None, str | None]:
    """Measured read bandwidth in GB/s, or ``None`` and the reason."""
    try:
        return read_bandwidth(threads).best_gbps, None
    except GraphsinkError as error:
        return None, f"read bandwidth was not measured: {error.what}"
    except KeyboardInterrupt:
        return None, "read bandwidth was not measured: interrupted"


def _timing(llm: LLM, process_s: float, bandwidth_gbps: float | None) -> TimingPart:
    metrics = llm.metrics
    fraction = (
        metrics.bandwidth_fraction(llm.model.weight_bytes_per_decode_step, bandwidth_gbps)
        if bandwidth_gbps is not None
        else None
    )
    return TimingPart(
        load_s=llm.load_s,
        warmup_s=llm.warmup.seconds,
        process_s=process_s,
        ttft_ms=metrics.ttft_ms,
        tpot_ms=metrics.tpot_ms,
        decode_ms=metrics.decode_ms,
        decode_mean_ms=metrics.decode_mean_ms,
        forward_tokens_per_s=metrics.forward_tokens_per_s,
        generate_tokens_per_s=metrics.generate_tokens_per_s,
        bandwidth_fraction=fraction,
        engine_overhead_ms=statistics.median(metrics.step_overhead_ms) if metrics.step_overhead_ms else None,
    )


def _memory(llm: LLM) -> MemoryPart:
    return MemoryPart(
        weights_mib=llm.model.weight_bytes / MEBIBYTE,
        kv_mib=llm.engine.kv_tensors.bytes / MEBIBYTE,
        peak_rss_mib=_peak_rss_kib() / 1024,
    )


def _peak_rss_kib() -> int:
    """Highest resident set of this process so far.

    Not from ``getrusage``: after fork and exec that figure starts at the size of the parent.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _request(output: RequestOutput) -> RequestPart:
    logprobs = [LogprobsPart(chosen=entry.chosen, top=list(entry.top)) for entry in output.logprobs]
    return RequestPart(
        prompt=output.prompt,
        prompt_tokens=output.prompt_tokens,
        truncated_tokens=output.truncated_tokens,
        token_ids=output.token_ids,
        text=output.text,
        finish_reason=output.finish_reason.value,
        error=output.error,
        logprobs=logprobs or None,
    )
