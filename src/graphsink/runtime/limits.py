"""What the cores can do at best: read bandwidth and dot-product peak. A decode step is judged by these."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from graphsink.errors import DeviceError
from graphsink.runtime.machine import Machine, machine_facts, read_bandwidth
from graphsink.runtime.native import require_native_module
from graphsink.target import IsaLevel

DOT_DTYPES: Final = ("f32", "bf16")
"""Dtypes whose peak is measured; sums are float32 in both."""

_TRIAL_ITERATIONS: Final = 20_000
_SECONDS_PER_ROUND: Final = 0.01


@dataclass(frozen=True, slots=True)
class Limits:
    """Measured limits of some cores together.

    Attributes:
        read_bandwidth_gbps: best read bandwidth over 2 MiB pages, 1e9 bytes per second.
        dot_peak_gflops: dtype -> best rate of multiply-adds that stay in registers, in 1e9 operations per
            second; a multiply-add counts as two.
        isa: instruction-set level in use.
        threads: threads that were measured, each pinned to one core.
    """

    read_bandwidth_gbps: float
    dot_peak_gflops: Mapping[str, float]
    isa: IsaLevel
    threads: int

    def least_seconds(self, read_bytes: float, flops: float, dtype: str) -> float:
        """The time below which no step can go that reads ``read_bytes`` and does ``flops`` in ``dtype``."""
        memory = read_bytes / (self.read_bandwidth_gbps * 1e9)
        return max(memory, flops / (self.dot_peak_gflops[dtype] * 1e9))


def limits(threads: int, *, buffer_bytes: int | None = None, rounds: int = 7) -> Limits:
    """Measure both limits of ``threads`` cores. Takes about two seconds.

    Args:
        threads: number of threads, each pinned to one of the allowed cores.
        buffer_bytes: bytes read per round, see `read_bandwidth`.
        rounds: timed rounds of each measurement; the best one counts.

    Raises:
        DeviceError: see `read_bandwidth`.
        CapacityError: the buffer does not fit into the available memory.
        IsaError: ``GRAPHSINK_ISA`` names a level that is unknown or does not run here.
    """
    bandwidth = read_bandwidth(threads, buffer_bytes=buffer_bytes, rounds=rounds)
    machine = machine_facts()
    peaks = {dtype: dot_peak(threads, dtype, machine=machine, rounds=rounds) for dtype in DOT_DTYPES}
    return Limits(bandwidth.best_gbps, peaks, machine.isa, threads)


def dot_peak(
    threads: int, dtype: str, *, isa: IsaLevel | None = None, machine: Machine | None = None, rounds: int = 7
) -> float:
    """Best rate of multiply-adds of ``threads`` cores together, in 1e9 operations per second.

    Args:
        threads: number of threads, each pinned to one of the allowed cores.
        dtype: ``f32`` or ``bf16``.
        isa: level of the loop; by default the level in use.
        machine: facts that were taken already.
        rounds: timed rounds of about 10 ms.

    Raises:
        DeviceError: an unknown dtype, no round, or more threads than allowed cores.
    """
    require_native_module()
    from graphsink import _native

    facts = machine_facts() if machine is None else machine
    _check(threads, dtype, rounds, len(facts.cores))
    cores = list(facts.cores[:threads])
    level = str(facts.isa if isa is None else isa)
    flops = array("d", [0.0] * threads)

    def seconds(iterations: int, count: int) -> float:
        slots: list[int | float] = [iterations, flops.buffer_info()[0]]
        return min(_native.time_kernel(f"dot_peak_{dtype}", level, slots, threads, cores, count))

    trial = seconds(_TRIAL_ITERATIONS, 1)
    iterations = max(1, int(_TRIAL_ITERATIONS * _SECONDS_PER_ROUND / trial))
    best = seconds(iterations, rounds)
    return sum(flops) / best / 1e9


def _check(threads: int, dtype: str, rounds: int, cores: int) -> None:
    if dtype not in DOT_DTYPES:
        raise DeviceError(f"there is no dot peak for '{dtype}'", hint=f"use one of: {', '.join(DOT_DTYPES)}")
    if not 1 <= threads <= cores:
        raise DeviceError(
            f"dot peak was asked for {threads} threads; {cores} cores are allowed",
            hint=f"give 1 to {cores} threads, or widen the affinity (taskset, cpuset)",
        )
    if rounds < 1:
        raise DeviceError(f"dot peak was asked for {rounds} rounds", hint="give at least 1 round")
