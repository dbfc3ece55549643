"""Packed linear kernels against memory, arithmetic and oneDNN: ``python -m bench.linear_kernels``.

For developers. All series of one row are taken in turn within one run, and the best of each counts: on a
shared machine the rest is other people's work. Weights for few rows are over 1 GiB, so no cache keeps them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional as F

from bench.harness import Row, main, skipped
from graphsink import _native
from graphsink.runtime.limits import dot_peak
from graphsink.runtime.linear import LinearCall, LinearDtype, PackedLayout, PackedWeight, pack_rows
from graphsink.runtime.machine import machine_facts
from graphsink.target import IsaLevel

MEMORY_WEIGHT_BYTES = 1100 << 20
BANDWIDTH_BUFFER_BYTES = 1 << 30
SCRATCH_BYTES = 1 << 20
INPUTS = (576, 1024, 4096)
FEW_ROWS = (1, 8)
MANY_ROWS = 512
TURNS = 5
TORCH_TYPES = {LinearDtype.FLOAT32: torch.float32, LinearDtype.BFLOAT16: torch.bfloat16}
# Share of the read bandwidth that one row must reach.
BANDWIDTH_BARS = {IsaLevel.AMX: 0.95, IsaLevel.AVX512_BF16: 0.95, IsaLevel.AVX512: 0.85, IsaLevel.AVX2: 0.85}
EIGHT_ROWS_BAR = 1.15
PEAK_BAR = 0.70
QUICK = "not part of --quick"


@dataclass(frozen=True, slots=True)
class Subject:
    """A weight, plain and packed, and the cores it is used by."""

    dtype: LinearDtype
    weight: torch.Tensor
    packed: PackedWeight
    cores: list[int]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weight without padding."""
        return self.weight.numel() * self.weight.element_size()

    def inputs(self, rows: int) -> torch.Tensor:
        """Random x with that many rows."""
        return torch.randn(rows, self.weight.shape[1]).to(self.weight.dtype)

    def ours(self, rows: int, level: IsaLevel) -> float:
        """Seconds of one call on all cores."""
        x = self.inputs(rows)
        y = torch.empty(rows, self.weight.shape[0], dtype=x.dtype)
        call = LinearCall(self.packed, x.data_ptr(), y.data_ptr(), rows)
        blocks = len(self.cores)
        return min(
            _native.time_kernel(call.kernel, str(level), call.slots(), blocks, self.cores, 2, SCRATCH_BYTES)
        )

    def aten(self, rows: int) -> float:
        """Seconds of one call of ATen with as many threads."""
        x = self.inputs(rows)
        start = time.perf_counter()
        F.linear(x, self.weight)
        return time.perf_counter() - start


def subject(dtype: LinearDtype, outputs: int, inputs: int) -> Subject:
    machine = machine_facts()
    cores = list(machine.cores[: machine.threads])
    torch.set_num_threads(len(cores))
    weight = torch.empty(outputs, inputs, dtype=TORCH_TYPES[dtype])
    for part in weight.split(4096):
        part.normal_()
    packed = PackedWeight(PackedLayout(dtype, outputs, inputs))
    pack_rows(packed.layout, packed.address, weight.data_ptr(), 0, outputs)
    return Subject(dtype, weight, packed, cores)


def best_in_turn(series: dict[object, Callable[[], float]], turns: int = TURNS) -> dict[object, float]:
    """Least value of each series; one value of each per turn."""
    found = dict.fromkeys(series, float("inf"))
    for _ in range(turns):
        for key, measure_one in series.items():
            found[key] = min(found[key], measure_one())
    return found


def levels() -> list[IsaLevel]:
    return [level for level in BANDWIDTH_BARS if _native.isa_level_runs_here(str(level))]


def seconds_per_byte(cores: list[int], level: IsaLevel) -> float:
    measured = _native.measure_read_bandwidth(cores, BANDWIDTH_BUFFER_BYTES, 2, str(level))
    return 1e-9 / measured.best_gbps


def few_rows(dtype: LinearDtype, inputs: int) -> Iterator[Row]:
    """One row against the bandwidth, eight rows against one, both against ATen."""
    element = dtype.element_bytes
    each = subject(dtype, MEMORY_WEIGHT_BYTES // (inputs * element) // 16 * 16, inputs)
    best_level = machine_facts().isa
    series: dict[object, Callable[[], float]] = {
        "bandwidth": partial(seconds_per_byte, each.cores, best_level)
    }
    for level in levels():
        for rows in FEW_ROWS:
            series[level, rows] = partial(each.ours, rows, level)
    for rows in FEW_ROWS:
        series["aten", rows] = partial(each.aten, rows)
    best = best_in_turn(series)
    shape = f"{dtype} K={inputs}, {len(each.cores)} cores"
    for level in levels():
        share = best["bandwidth"] * each.weight_bytes / best[level, 1]
        yield Row(
            f"M=1 share of read bandwidth, {level}, {shape}", share, "x", BANDWIDTH_BARS[level], "higher"
        )
    for level in levels():
        flops = 2 * 8 * each.weight.numel()
        arithmetic = flops / (dot_peak(len(each.cores), str(dtype), isa=level) * 1e9)
        ratio = best[level, 8] / max(best[level, 1], arithmetic)
        name = f"M=8 time / the larger of M=1 time and flops limit, {level}, {shape}"
        yield Row(name, ratio, "x", EIGHT_ROWS_BAR, "lower")
    for rows in FEW_ROWS:
        ratio = best["aten", rows] / best[best_level, rows]
        yield Row(f"M={rows} speed relative to ATen, {best_level}, {shape}", ratio, "x", 1.0, "higher")


def many_rows(dtype: LinearDtype, inputs: int) -> Iterator[Row]:
    """512 rows against the dot peak of each level, and against ATen."""
    each = subject(dtype, 4096, inputs)
    best_level = machine_facts().isa
    threads = len(each.cores)
    series: dict[object, Callable[[], float]] = {}
    for level in levels():
        series["peak", level] = lambda level=level: 1 / dot_peak(threads, str(dtype), isa=level, rounds=2)
        series[level] = partial(each.ours, MANY_ROWS, level)
    series["aten"] = partial(each.aten, MANY_ROWS)
    best = best_in_turn(series)
    shape = f"{dtype} N=4096 K={inputs}, {threads} cores"
    gigaflops = 2e-9 * MANY_ROWS * each.weight.numel()
    for level in levels():
        share = gigaflops / best[level] * best["peak", level]
        yield Row(f"M={MANY_ROWS} share of dot peak, {level}, {shape}", share, "x", PEAK_BAR, "higher")
    ratio = best["aten"] / best[best_level]
    yield Row(f"M={MANY_ROWS} speed relative to ATen, {best_level}, {shape}", ratio, "x", 1.0, "higher")


def measure(quick: bool) -> Iterator[Row]:
    """All rows; ``quick`` keeps K = 1024 in bfloat16."""
    for dtype in (LinearDtype.BFLOAT16, LinearDtype.FLOAT32):
        for inputs in INPUTS:
            if quick and (dtype is not LinearDtype.BFLOAT16 or inputs != 1024):
                yield skipped(f"{dtype} K={inputs}", "x", 1.0, "higher", QUICK)
                continue
            yield from few_rows(dtype, inputs)
            yield from many_rows(dtype, inputs)


if __name__ == "__main__":
    main("linear_kernels", measure)
