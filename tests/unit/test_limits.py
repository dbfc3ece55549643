"""Measured limits: what is measured, and what is refused. No figure is judged."""

from __future__ import annotations

import math
from array import array

import pytest

from graphsink import _native
from graphsink.errors import CapacityError, DeviceError, IsaError
from graphsink.runtime.limits import DOT_DTYPES, Limits, dot_peak, limits
from graphsink.runtime.machine import machine_facts
from graphsink.target import IsaLevel

LEVELS = [level for level in IsaLevel if _native.isa_level_runs_here(str(level))]
MIB = 1 << 20


def test_limits_of_one_core() -> None:
    found = limits(1, buffer_bytes=32 * MIB, rounds=2)
    assert (found.threads, found.isa) == (1, machine_facts().isa)
    assert tuple(found.dot_peak_gflops) == DOT_DTYPES
    for figure in (found.read_bandwidth_gbps, *found.dot_peak_gflops.values()):
        assert math.isfinite(figure)
        assert figure > 0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DOT_DTYPES)
def test_every_block_reports_its_operations(level: IsaLevel, dtype: str) -> None:
    def flops(iterations: int) -> list[float]:
        done = array("d", [-1.0] * 3)
        slots = [iterations, done.buffer_info()[0]]
        assert _native.call_kernel(f"dot_peak_{dtype}", str(level), slots, 3) == 0
        return done.tolist()

    once = flops(1)
    assert once[0] > 0
    assert once[0] % 2 == 0
    assert once == [once[0]] * 3
    assert flops(7) == [7 * once[0]] * 3


@pytest.mark.parametrize("level", LEVELS)
def test_the_level_can_be_forced(level: IsaLevel) -> None:
    assert dot_peak(1, "f32", isa=level, rounds=1) > 0


def test_the_environment_chooses_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHSINK_ISA", "scalar")
    assert limits(1, buffer_bytes=8 * MIB, rounds=1).isa is IsaLevel.SCALAR
    monkeypatch.setenv("GRAPHSINK_ISA", "mmx")
    with pytest.raises(IsaError, match="unknown instruction-set level 'mmx'"):
        limits(1, buffer_bytes=8 * MIB)


def test_the_least_time_is_that_of_the_tighter_limit() -> None:
    some = Limits(10.0, {"f32": 100.0, "bf16": 400.0}, IsaLevel.AVX512, 2)
    assert some.least_seconds(20e9, 100e9, "f32") == 2.0
    assert some.least_seconds(5e9, 100e9, "f32") == 1.0
    assert some.least_seconds(5e9, 100e9, "bf16") == 0.5


@pytest.mark.parametrize("threads", [0, -1, 4096])
def test_threads_that_are_not_there(threads: int) -> None:
    with pytest.raises(DeviceError, match=f"asked for {threads} threads"):
        limits(threads)
    with pytest.raises(DeviceError, match=f"dot peak was asked for {threads} threads"):
        dot_peak(threads, "f32")


def test_senseless_requests() -> None:
    with pytest.raises(DeviceError, match="no dot peak for 'f64'"):
        dot_peak(1, "f64")
    with pytest.raises(DeviceError, match="asked for 0 rounds"):
        dot_peak(1, "f32", rounds=0)
    with pytest.raises(CapacityError):
        limits(1, buffer_bytes=1 << 60)
