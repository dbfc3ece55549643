"""How long things live: dropped instances and devices, closing, forked children, the interpreter's exit."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import psutil
import pytest

from graphsink.errors import DeviceError, ExecutionAbortedError, ForkedDeviceError, GraphLoadError
from graphsink.runtime.device import Device
from graphsink.runtime.graph_instance import GraphInstance
from graphsink.runtime.tasks import HostTask, Task, While
from support.graphs import integers, run

PROGRAM = """
import time
from graphsink.runtime.device import Device
from graphsink.runtime.graph_instance import GraphInstance
from graphsink.runtime.tasks import HostTask, KernelTask, While, prebuilt_kernel
device = Device()
variable = device.allocate(8)
variable.as_array("int64")[0] = 1
empty = KernelTask(kernel=prebuilt_kernel("empty", "scalar"), block_dim=2)
step = GraphInstance(device, [empty])
endless = GraphInstance(device, [While(variable=variable, body=[empty])])
slow = lambda: GraphInstance(device, [HostTask(function=lambda: time.sleep(0.05))])
print("begin", flush=True)
"""


def output_of(lines: str) -> str:
    """What a program prints on both streams until it has ended; it must end with 0 by itself."""
    command = [sys.executable, "-X", "faulthandler", "-W", "error", "-c", PROGRAM + lines]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize(
    "lines",
    [
        "",
        "step.execute()",
        "step.execute(); time.sleep(0.05)",
        "step.execute_async(); step.wait()",
        "endless.execute_async(); time.sleep(0.02)",
        "endless.execute_async(); step.execute_async(); del endless, step",
        "[slow().execute_async() for _ in range(3)]",
        "endless.loop = endless; endless.execute_async(); del device, endless, step",
        "device.close()",
    ],
    ids=[
        "idle",
        "hot",
        "parked",
        "queue used",
        "running",
        "running and queued",
        "in a call",
        "cycle",
        "closed",
    ],
)
def test_the_interpreter_ends_without_hanging_or_leaking(lines: str) -> None:
    """nanobind would report leaked instances on the error stream."""
    assert output_of(lines) == "begin\n"


def test_two_devices_at_the_exit() -> None:
    assert output_of("other = Device(); endless.execute_async(); step.abort()") == "begin\n"


def test_a_forked_child_is_told_and_the_parent_goes_on(device: Device) -> None:
    buffer, counts = integers(device, [0])
    graph = GraphInstance(device, [run("count_block", buffer)])
    graph.execute_async()
    graph.wait()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        words = []
        for action in (
            graph.execute, graph.execute_async, graph.wait, graph.abort, device.poison,
            lambda: device.allocate(8), lambda: GraphInstance(device, []),
        ):  # fmt: skip
            try:
                action()
            except ForkedDeviceError as error:
                words.append(str(error))
        graph.destroy()
        device.close()
        with Device() as own:  # a device of the child's own works
            mine, values = integers(own, [0])
            GraphInstance(own, [run("count_block", mine, blocks=1)]).execute()
        os.write(writer, f"{len(words)} {values[0]} {words[0]}".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert said.startswith(f"7 1 the device belongs to process {os.getpid()}; this is its child {child}")
    assert "make a new Device in the child" in said
    graph.execute()
    assert counts.tolist() == [2]


def test_a_forked_child_ends_as_any_other() -> None:
    """With the parent's run in progress; the child ends through the interpreter's exit, not os._exit."""
    lines = """
import os
endless.execute_async()
child = os.fork()
if child == 0:
    raise SystemExit(0)
assert os.waitpid(child, 0)[1] == 0
endless.abort()
"""
    assert output_of(lines) == "begin\n"


def test_a_closed_device_is_refused() -> None:
    closed = Device(threads=1)
    graph = GraphInstance(closed, [run("empty")])
    graph.execute()
    closed.close()
    closed.close()
    for action in (
        graph.execute, graph.execute_async, graph.wait, graph.abort, closed.poison, closed.__enter__,
        lambda: closed.allocate(8), lambda: GraphInstance(closed, []),
    ):  # fmt: skip
        with pytest.raises(DeviceError, match="the device was closed"):
            action()
    graph.destroy()


def test_closing_waits_for_what_is_queued() -> None:
    device = Device()
    order: list[int] = []
    for number in range(3):
        task = HostTask(function=lambda number=number: (time.sleep(0.01), order.append(number)))
        GraphInstance(device, [task]).execute_async()
    device.close()
    assert order == [0, 1, 2]


def test_a_submitted_instance_lives_until_it_has_ended(device: Device) -> None:
    """Nobody but the device refers to it, nor to its memory and its function."""
    order: list[str] = []

    def slow() -> None:
        time.sleep(0.05)
        order.append("ran")

    buffer, counts = integers(device, [0])
    graph = GraphInstance(device, [HostTask(function=slow), run("count_block", buffer, blocks=1)])
    gone = weakref.ref(graph)
    graph.execute_async()
    del graph, buffer
    gc.collect()
    assert gone() is not None
    last = GraphInstance(device, [run("empty")])
    last.execute_async()
    last.wait()
    assert order == ["ran"]
    assert counts.tolist() == [1]
    last.execute_async()  # lets go of those that have ended
    last.wait()
    gc.collect()
    assert gone() is None


def test_a_device_that_is_dropped_aborts_and_ends() -> None:
    threads_before = psutil.Process().num_threads()
    dropped = Device()
    buffer, _ = integers(dropped, [1])
    body: list[Task] = [run("empty", blocks=2)]
    endless = GraphInstance(dropped, [While(variable=buffer, body=body)])
    endless.execute_async()
    assert psutil.Process().num_threads() == threads_before + dropped.num_cores
    del dropped, endless, buffer
    gc.collect()
    assert psutil.Process().num_threads() == threads_before


def test_shutdown_of_the_core_aborts_a_synchronous_execution() -> None:
    """Another thread ends the device below; the one that executes is told."""
    device = Device()
    buffer, _ = integers(device, [1])
    endless = GraphInstance(device, [While(variable=buffer, body=[run("empty", blocks=2)])])
    timer = threading.Timer(0.05, device._native.shutdown)
    timer.start()
    with pytest.raises(ExecutionAbortedError, match="the device was closed"):
        endless.execute(timeout=60)
    timer.join()
    with pytest.raises(ExecutionAbortedError, match="the device was closed"):
        endless.execute()
    endless.execute_async()
    with pytest.raises(ExecutionAbortedError, match="the device was closed"):
        endless.wait()


def test_ten_thousand_instances_leave_no_memory_behind(device: Device) -> None:
    """After 2000 rounds the process no longer grows: less than 100 bytes a round over the other 8000."""
    process = psutil.Process()

    def rounds(count: int) -> None:
        for _ in range(count):
            graph = GraphInstance(device, [run("empty"), HostTask(function=_nothing)], buffers={"b": 64})
            graph.execute()
            graph.destroy()

    rounds(2000)
    gc.collect()
    before = process.memory_info().rss
    rounds(8000)
    gc.collect()
    assert process.memory_info().rss - before < 8000 * 100
    assert device.memory().allocations < 100


def _nothing() -> None:
    pass


def test_a_failed_load_leaves_no_memory_behind(device: Device) -> None:
    before = device.memory().allocations
    with pytest.raises(GraphLoadError):
        GraphInstance(device, [run("empty", cores=(99,))], buffers={"a": 64, "b": 64})
    gc.collect()
    assert device.memory().allocations == before


def test_threads_of_a_device_make_way_for_the_caller() -> None:
    """Bound threads: wherever the caller runs, the thread of the second core is on another core."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("this machine allows one core")
    before = set(os.listdir("/proc/self/task"))
    with Device(2, pin=True) as device:
        (worker,) = set(os.listdir("/proc/self/task")) - before
        buffer, counts = integers(device, [0, 0])
        graph = GraphInstance(device, [run("count_block", buffer, blocks=2)])
        try:
            for own, other in ((cores[1], cores[0]), (cores[0], cores[1]), (cores[1], cores[0])):
                os.sched_setaffinity(0, {own})
                graph.execute()
                assert os.sched_getaffinity(int(worker)) == {other}
        finally:
            os.sched_setaffinity(0, set(cores))
    assert counts.tolist() == [3, 3]


def test_binding_is_the_default_on_all_cores_only() -> None:
    cores = len(os.sched_getaffinity(0))
    with Device(1) as one:
        assert one.pinned is (cores == 1)
    with Device(1, pin=True) as bound:
        assert bound.pinned
    if cores == Device().num_cores:
        with Device() as every:
            assert every.pinned
