"""Bars of the runtime: what a launch and a task cost, loops on the device, memory.

    python -m bench.runtime [--quick] [--json FILE]

Times are medians on a machine that may be shared, so each comparison is made within one run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import psutil
import torch

from bench.harness import Row, main, skipped
from graphsink.runtime.device import Device
from graphsink.runtime.graph_instance import GraphInstance
from graphsink.runtime.tasks import Kernel, KernelTask, While, prebuilt_kernel
from graphsink.runtime.trace import Trace

CHAIN = 10_000
ROUNDS = 1_000


def measure(quick: bool) -> Iterator[Row]:
    with Device() as device:
        empty = prebuilt_kernel("empty", str(device.isa))
        yield from launches(device, empty, 300 if quick else 3000)
        yield from per_task(device, empty, 5 if quick else 30)
        yield loop_on_the_device(device)
        yield memory_slope(device, empty, 2_000 if quick else 10_000)
        # Bars of prebuilt kernels against the measured limits join here.


def timed(action: Callable[[], object], rounds: int, pause_s: float = 0.0) -> float:
    """Median seconds of one call."""
    times = []
    for _ in range(rounds):
        if pause_s:
            time.sleep(pause_s)
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def launches(device: Device, empty: Kernel, rounds: int) -> Iterator[Row]:
    """One task of one block, and one with a block on every core."""
    graph = GraphInstance(device, [KernelTask(kernel=empty)])
    wide = GraphInstance(device, [KernelTask(kernel=empty, block_dim=device.num_cores)])
    cores = device.num_cores
    timed(graph.execute, 100)
    yield Row(f"launch, {cores} hot cores", timed(graph.execute, rounds) * 1e6, "us", 10, "lower")
    yield Row(f"launch on all of {cores} hot cores", timed(wide.execute, rounds) * 1e6, "us", 10, "lower")
    pause = 10 * device.idle_spin_s + 1e-3
    few = min(rounds, 300)
    yield Row(f"launch, {cores} parked cores", timed(graph.execute, few, pause) * 1e6, "us", 60, "lower")
    yield Row(
        f"launch on all of {cores} parked cores", timed(wide.execute, few, pause) * 1e6, "us", 60, "lower"
    )


def per_task(device: Device, empty: Kernel, rounds: int) -> Iterator[Row]:
    """A chain of empty kernels inside one replay; the same number of ATen calls from Python beside it."""
    on_one = GraphInstance(device, [KernelTask(kernel=empty)] * CHAIN)
    one = timed(on_one.execute, rounds) / CHAIN * 1e6
    yield Row(f"task in a replay of {CHAIN}, one core", one, "us", 0.3, "lower")
    if device.num_cores < 2:
        yield skipped("task with a barrier over 2 cores", "us", 1.0, "lower", "this machine allows one core")
    else:
        barrier = GraphInstance(device, [KernelTask(kernel=empty, block_dim=2, cores=(0, 1))] * CHAIN)
        both = timed(barrier.execute, rounds) / CHAIN * 1e6
        yield Row("task with a barrier over 2 cores", both, "us", 1.0, "lower")
    tensor = torch.zeros(1)

    def op_by_op() -> None:
        for _ in range(CHAIN):
            tensor.add_(1.0)

    with torch.inference_mode():
        from_python = timed(op_by_op, rounds) / CHAIN * 1e6
    print(f"      the smallest ATen operator, called from Python: {from_python:.3g} us", flush=True)
    yield Row("op by op from Python / task in a replay", from_python / one, "x", 10, "higher")


def loop_on_the_device(device: Device) -> Row:
    """Host submissions of a WHILE of 1000 rounds, as the trace shows them."""
    isa = str(device.isa)
    left = device.allocate(16)
    values = left.as_array("int64")
    values[:] = (ROUNDS, 0)
    body = [
        KernelTask(kernel=prebuilt_kernel("count_block", isa), slots=[left.address + 8]),
        KernelTask(kernel=prebuilt_kernel("add_to", isa), slots=[left, -1]),
    ]
    graph = GraphInstance(device, [While(variable=left, body=body)])
    with Trace(device, [graph]) as trace:
        graph.execute()
    if values[1] != ROUNDS:
        raise RuntimeError(f"the loop ran {values[1]} rounds instead of {ROUNDS}")
    inside = [task for task in trace.tasks if trace.host[0].start_ns <= task.begin_ns <= trace.host[0].end_ns]
    if len(inside) < 2 * ROUNDS:
        raise RuntimeError(f"{len(inside)} of {2 * ROUNDS} tasks lie within the only submission")
    values[0] = ROUNDS
    seconds = timed(graph.execute, 1)
    print(f"      a WHILE of {ROUNDS} rounds takes {seconds * 1e6:.0f} us", flush=True)
    return Row(f"host submissions of a WHILE of {ROUNDS} rounds", len(trace.host), "", 1, "lower")


def memory_slope(device: Device, empty: Kernel, rounds: int) -> Row:
    """Growth of the resident set over create, execute, destroy, after a warm-up."""

    def live(count: int) -> None:
        for _ in range(count):
            graph = GraphInstance(device, [KernelTask(kernel=empty)], buffers={"b": 64})
            graph.execute()
            graph.destroy()

    live(rounds // 4)
    process = psutil.Process()
    before = process.memory_info().rss
    live(rounds)
    grown = process.memory_info().rss - before
    return Row(f"memory per instance over {rounds} rounds", grown / rounds, "bytes", 100, "lower")


if __name__ == "__main__":
    main("runtime", measure)
