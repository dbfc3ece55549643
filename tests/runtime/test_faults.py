"""How an execution ends when it does not end well: faults, exceptions, time-outs, aborts."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from graphsink.errors import (
    DeviceError,
    ExecutionAbortedError,
    ExecutionTimeoutError,
    InstanceStateError,
    TaskFailedError,
)
from graphsink.runtime.device import Device
from graphsink.runtime.graph_instance import GraphInstance
from graphsink.runtime.tasks import CopyTask, HostTask, NamedBuffer, Parameter, Task, While
from support.graphs import integers, run

WAYS = ("execute", "execute_async")


def finish(graph: GraphInstance, way: str) -> None:
    """Execute, one way or the other, and wait for the end."""
    if way == "execute":
        graph.execute()
    else:
        graph.execute_async()
        graph.wait(timeout=60)


def endless(device: Device) -> GraphInstance:
    """A loop that only an abort or a time-out ends."""
    buffer, _ = integers(device, [1, 0])
    body: list[Task] = [
        run("count_block", buffer.address + 8, blocks=1, label="round"),
        run("empty", blocks=2),
    ]
    return GraphInstance(device, [While(variable=buffer, body=body, name="loop")], name="endless")


@pytest.mark.parametrize("way", WAYS)
def test_a_fault_names_task_kernel_module_code_and_core(two_cores: Device, way: str) -> None:
    buffer, counts = integers(two_cores, [0])
    tasks = [
        run("fail_on_core", 1, blocks=6, label="gather", module="model.layers.3"),
        run("count_block", buffer),
    ]
    graph = GraphInstance(two_cores, tasks)
    for _ in range(3):
        with pytest.raises(TaskFailedError, match=r"kernel 'gather' failed with code 100[345]") as failure:
            finish(graph, way)
        error = failure.value
        assert (error.task, error.module_path, error.core) == ("gather", "model.layers.3", 1)
        assert error.code in (1003, 1004, 1005)
        assert "at: model.layers.3" in str(error)
        assert graph.state == "READY"
    assert counts.tolist() == [0]


def test_a_fault_on_one_core_stops_the_others(two_cores: Device) -> None:
    """Core 0 would count for seconds; core 1 fails at once, and a task waits for both."""
    buffer, counts = integers(two_cores, [0])
    slow = [run("delay", 0, 1_000_000, cores=(0,), after=()) for _ in range(5000)]
    tasks = [
        *slow,
        run("fail", 77, cores=(1,), after=(), label="bad"),
        run("count_block", buffer, after=(4999, 5000)),
    ]
    graph = GraphInstance(two_cores, tasks)
    start = time.monotonic()
    with pytest.raises(TaskFailedError, match="kernel 'bad' failed with code 77: it reported a fault"):
        graph.execute()
    assert counts.tolist() == [0]
    assert time.monotonic() - start < 4, "core 0 did not stop"


def test_known_codes_are_explained(device: Device) -> None:
    words = {1: "an index is out of range", 2: "scratch of the device is too small", 3: "not acceptable"}
    for code, expected in words.items():
        with pytest.raises(TaskFailedError, match=expected):
            GraphInstance(device, [run("fail", code)]).execute()


def test_a_negative_size_is_a_fault_of_the_copy(device: Device) -> None:
    source, _ = integers(device, [1])
    copy = CopyTask(destination=NamedBuffer("b"), source=source, num_bytes=Parameter("n"))
    graph = GraphInstance(device, [copy], parameters={"n": 8}, buffers={"b": 8})
    graph.execute()
    graph.set("n", -1)
    with pytest.raises(TaskFailedError, match="copy 'copy' failed with code 3"):
        graph.execute()


@pytest.mark.parametrize("way", WAYS)
def test_the_exception_of_a_host_function_is_the_cause(device: Device, way: str) -> None:
    def broken() -> None:
        raise LookupError("no such row")

    graph = GraphInstance(device, [run("empty"), HostTask(function=broken, module_path="model.head")])
    for _ in range(2):
        with pytest.raises(TaskFailedError, match="code -1: LookupError: no such row") as failure:
            finish(graph, way)
        cause = failure.value.__cause__
        assert isinstance(cause, LookupError)
        assert cause.__traceback__ is not None
        assert cause.__traceback__.tb_frame.f_code.co_name == "broken"
        assert failure.value.module_path == "model.head"


def test_an_interrupt_in_a_host_function_stays_an_interrupt(device: Device) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    graph = GraphInstance(device, [HostTask(function=stop)])
    with pytest.raises(KeyboardInterrupt):
        graph.execute()
    assert graph.state == "READY"


def test_an_untaken_fault_blocks_the_next_execution(device: Device) -> None:
    graph = GraphInstance(device, [run("fail", 9)])
    graph.execute_async()
    while graph.state == "RUNNING":
        time.sleep(0.001)
    assert graph.state == "FAULT"
    for action in (graph.execute, graph.execute_async):
        with pytest.raises(InstanceStateError, match=r"state FAULT.*\n.*wait\(\) raises the fault"):
            action()
    with pytest.raises(TaskFailedError, match="code 9"):
        graph.wait()
    assert graph.state == "READY"
    graph.wait()
    graph.execute_async()
    while graph.state == "RUNNING":
        time.sleep(0.001)
    graph.destroy()  # a fault that nobody wants goes with the instance
    assert graph.state == "NONE"


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_a_time_out_names_what_every_core_does(device: Device, timeout: float) -> None:
    graph = endless(device)
    for _ in range(2):
        with pytest.raises(ExecutionTimeoutError, match="'endless' ran out of time") as failure:
            graph.execute(timeout=timeout)
        assert isinstance(failure.value, TimeoutError)
        assert failure.value.task in ("round", "empty", "loop")
        if timeout:
            assert "core 0 " in str(failure.value)
        assert graph.state == "READY"


def test_a_time_out_of_a_waiting_core_names_the_task_it_waits_to_run(two_cores: Device) -> None:
    """Core 1 is held for 0.3 s; core 0 waits for it and runs out of time after 0.05 s."""
    tasks = [
        run("delay", 1, 300_000_000, cores=(1,), after=(), label="slow"),
        run("empty", cores=(0,), after=(0,), label="patient"),
    ]
    graph = GraphInstance(two_cores, tasks)
    with pytest.raises(ExecutionTimeoutError, match="core 0 waits to run 'patient'; core 1 runs 'slow'"):
        graph.execute(timeout=0.05)
    graph.execute(timeout=60)


def test_a_time_out_includes_waiting_for_the_device(device: Device) -> None:
    running, waiting = endless(device), GraphInstance(device, [run("empty")])
    running.execute_async()
    try:
        while device._native.runs == 0 or running.state != "RUNNING":
            time.sleep(0.001)
        time.sleep(0.05)
        with pytest.raises(ExecutionTimeoutError, match="another instance holds the device"):
            waiting.execute(timeout=0.05)
    finally:
        running.abort()
    with pytest.raises(ExecutionAbortedError):
        running.wait(timeout=60)
    waiting.execute(timeout=60)


def test_abort_ends_what_runs_and_what_is_queued(device: Device) -> None:
    first, second = endless(device), endless(device)
    for _ in range(3):
        first.execute_async()
        second.execute_async()
        time.sleep(0.01)
        second.abort()
        assert second.state == "RUNNING"  # its turn has not come
        first.abort()
        with pytest.raises(
            ExecutionAbortedError, match=r"'endless' was aborted: (core 0|it had not started)"
        ):
            first.wait(timeout=60)
        with pytest.raises(ExecutionAbortedError, match="it had not started"):
            second.wait(timeout=60)
    first.abort()  # nothing runs: nothing happens, now or later
    buffer, counts = integers(device, [0])
    graph = GraphInstance(device, [run("count_block", buffer)])
    graph.abort()
    graph.execute()
    assert counts.tolist() == [1]


def test_abort_right_after_submission_is_never_lost(device: Device) -> None:
    """Whether it is still queued, just being started or running: it ends."""
    graph = endless(device)
    for pause in range(60):
        graph.execute_async()
        for _ in range(pause * 20):
            pass
        graph.abort()
        with pytest.raises(ExecutionAbortedError):
            graph.wait(timeout=60)


def test_abort_from_another_thread_ends_a_synchronous_execution(device: Device) -> None:
    graph = endless(device)
    timer = threading.Timer(0.05, graph.abort)
    timer.start()
    with pytest.raises(ExecutionAbortedError, match="was aborted: core 0"):
        graph.execute(timeout=60)
    timer.join()


def test_abort_while_other_cores_sleep_for_a_call(two_cores: Device) -> None:
    """The call itself is not interrupted; what follows it does not run."""
    graphs: list[GraphInstance] = []

    def abort_me() -> None:
        time.sleep(0.01)
        graphs[0].abort()

    buffer, counts = integers(two_cores, [0, 0])
    graphs.append(
        GraphInstance(two_cores, [HostTask(function=abort_me), run("count_block", buffer, blocks=2)])
    )
    with pytest.raises(ExecutionAbortedError):
        graphs[0].execute()
    assert counts.tolist() == [0, 0]
    graphs.clear()


def test_of_many_waiters_one_gets_the_fault(device: Device) -> None:
    graph = GraphInstance(device, [run("delay", 0, 20_000_000), run("fail", 5)])
    graph.execute_async()
    caught: list[TaskFailedError] = []

    def wait() -> None:
        try:
            graph.wait()
        except TaskFailedError as error:
            caught.append(error)

    threads = [threading.Thread(target=wait) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [error.code for error in caught] == [5]
    assert graph.state == "READY"


@pytest.mark.parametrize("call", ["graph.execute()", "(graph.execute_async(), graph.wait())"])
def test_ctrl_c_ends_an_endless_graph(call: str) -> None:
    """The signal goes to the process while its main thread is in native code."""
    program = f"""
import signal
from graphsink.runtime.device import Device
from graphsink.runtime.graph_instance import GraphInstance
from graphsink.runtime.tasks import KernelTask, While, prebuilt_kernel
device = Device()
variable = device.allocate(8)
variable.as_array("int64")[0] = 1
body = [KernelTask(kernel=prebuilt_kernel("empty", "scalar"), block_dim=2)]
graph = GraphInstance(device, [While(variable=variable, body=body)])
signal.signal(signal.SIGINT, signal.default_int_handler)
print("ready", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", graph.state)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=60)
    assert output.startswith("interrupted")
    assert child.returncode == 0


def test_negative_times_are_refused(device: Device) -> None:
    graph = GraphInstance(device, [run("empty")])
    actions: list[Callable[[float], None]] = [graph.execute, graph.wait]
    for action in actions:
        for value in (-1.0, float("nan")):
            with pytest.raises(DeviceError, match=f"timeout is {value} s"):
                action(value)
    graph.execute(timeout=float("inf"))
