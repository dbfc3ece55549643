"""The bandwidth measurement: what it reads, what it refuses, what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import psutil
import pytest

from graphsink import _native

MIB = 1 << 20
CORES = sorted(os.sched_getaffinity(0))
LEVELS = [
    level
    for level in ("scalar", "avx2", "avx512", "avx512_bf16", "amx", "neon")
    if _native.isa_level_runs_here(level)
]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("threads", range(1, min(2, len(CORES)) + 1))
def test_reads_the_whole_buffer(level: str, threads: int) -> None:
    # The measurement checks a checksum of every word it read, and raises if it is wrong.
    result = _native.measure_read_bandwidth(CORES[:threads], 16 * MIB, 3, level)
    assert result.bytes_per_round == 16 * MIB
    assert result.best_gbps >= result.median_gbps > 0


def test_what_does_not_divide_into_huge_pages_is_not_counted() -> None:
    result = _native.measure_read_bandwidth(CORES[:1], 5 * MIB + 17, 1, "scalar")
    assert result.bytes_per_round == 4 * MIB
    assert result.best_gbps == result.median_gbps


def test_several_threads_may_share_a_core() -> None:
    result = _native.measure_read_bandwidth([CORES[0]] * 3, 7 * MIB, 2, "scalar")
    assert result.bytes_per_round == 6 * MIB


@pytest.mark.parametrize(
    ("cores", "size", "rounds", "level", "message"),
    [
        ([], 16 * MIB, 1, "scalar", "no core given"),
        ([0], 16 * MIB, 0, "scalar", "rounds must be at least 1"),
        ([0], 2 * MIB - 1, 1, "scalar", r"at least 2 MiB per thread, 2097152 bytes; got 2097151"),
        ([0], -1, 1, "scalar", "got -1"),
        ([0], 16 * MIB, 1, "mmx", "unknown ISA level 'mmx'"),
    ],
)
def test_senseless_requests(cores: list[int], size: int, rounds: int, level: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _native.measure_read_bandwidth(cores, size, rounds, level)


def test_a_level_that_the_processor_lacks_is_refused() -> None:
    missing = "avx2" if _native.cpu_features().isa_level == "neon" else "neon"
    with pytest.raises(ValueError, match=f"cannot run level {missing}"):
        _native.measure_read_bandwidth(CORES[:1], 16 * MIB, 1, missing)


@pytest.mark.parametrize("core", [100_000, -1])
def test_a_core_that_is_not_there(core: int) -> None:
    with pytest.raises(RuntimeError, match=f"cannot pin a thread to core {core}"):
        _native.measure_read_bandwidth([CORES[0], core], 16 * MIB, 1, "scalar")


def test_a_buffer_that_the_system_refuses() -> None:
    with pytest.raises(MemoryError):
        _native.measure_read_bandwidth(CORES[:1], 1 << 60, 1, "scalar")


def test_a_thread_that_cannot_be_started_is_an_error_and_not_a_hang() -> None:
    # Each thread needs 8 MiB of address space for its stack; the limit leaves room for a few only.
    program = (
        "import resource\n"
        "from graphsink import _native\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)\n"
        f"try: _native.measure_read_bandwidth([{CORES[0]}] * 20, 40 << 20, 1, 'scalar')\n"
        "except (RuntimeError, MemoryError) as error: print('refused', type(error).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("refused"), done.stdout + done.stderr


def test_buffer_and_threads_are_gone_afterwards() -> None:
    process = psutil.Process()
    _native.measure_read_bandwidth(CORES[:1], 16 * MIB, 1, "scalar")
    before, threads = process.memory_info().vms, process.num_threads()
    for _ in range(3):
        _native.measure_read_bandwidth(CORES[:2], 64 * MIB, 1, "scalar")
    assert process.num_threads() == threads
    # A thread stack may stay cached by the C library (8 MiB each); a 64 MiB buffer must not.
    assert process.memory_info().vms - before < 64 * MIB


def test_the_caller_stays_where_it_was() -> None:
    before = os.sched_getaffinity(0)
    _native.measure_read_bandwidth(CORES[:1], 16 * MIB, 1, "scalar")
    assert os.sched_getaffinity(0) == before


def test_the_gil_is_released() -> None:
    ended = threading.Event()
    ticks: list[float] = []

    def tick() -> None:
        while not ended.wait(0.001):
            ticks.append(time.monotonic())

    ticker = threading.Thread(target=tick)
    ticker.start()
    start = time.monotonic()
    _native.measure_read_bandwidth(CORES[:1], 256 * MIB, 8, "scalar")
    end = time.monotonic()
    ended.set()
    ticker.join()
    # With the GIL held, no Python code would run strictly between the two readings of the clock.
    margin = (end - start) / 4
    assert any(start + margin < tick < end - margin for tick in ticks)
