"""What a graph computes: blocks, dependencies, parameters, buffers, copies, calls, control flow."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from graphsink.errors import (
    DeviceError,
    DeviceMemoryError,
    GraphLoadError,
    InstanceStateError,
    TaskFailedError,
)
from graphsink.runtime.device import Device
from graphsink.runtime.graph_instance import GraphInstance
from graphsink.runtime.tasks import (
    CopyTask,
    FillTask,
    HostTask,
    If,
    NamedBuffer,
    Parameter,
    Switch,
    Task,
    While,
)
from support.graphs import SECOND_NS, integers, run

KIB = 1024


@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 64, 1000])
def test_every_block_runs_once(device: Device, blocks: int) -> None:
    buffer, counts = integers(device, [0] * (blocks + 1))
    graph = GraphInstance(device, [run("count_block", buffer, blocks=blocks)])
    for _ in range(3):
        graph.execute()
    assert counts.tolist() == [3] * blocks + [0]
    assert (graph.state, graph.num_tasks) == ("READY", 1)


@pytest.mark.parametrize("cores", [(0,), (1,), (1, 0)])
def test_named_cores_run_all_blocks(two_cores: Device, cores: tuple[int, ...]) -> None:
    buffer, counts = integers(two_cores, [0] * 5)
    GraphInstance(two_cores, [run("count_block", buffer, blocks=5, cores=cores)]).execute()
    assert counts.tolist() == [1] * 5


def test_blocks_and_independent_branches_overlap(two_cores: Device) -> None:
    """Both partners wait for each other: run one after another, they would report a fault."""
    flags, _ = integers(two_cores, [0] * 4)
    limit = 20 * SECOND_NS
    GraphInstance(two_cores, [run("meet", flags, limit, blocks=2)]).execute()
    branches = [
        run("empty", blocks=2),
        run("meet_tasks", flags.address + 16, 0, 2, limit, cores=(0,), after=(0,)),
        run("meet_tasks", flags.address + 16, 1, 2, limit, cores=(1,), after=(0,)),
    ]
    GraphInstance(two_cores, branches).execute()


def test_what_depends_waits_across_cores(two_cores: Device) -> None:
    """Without the wait the second core would add its 5 to an element that is set 3 ms later."""
    source, _ = integers(two_cores, [40])
    target, values = integers(two_cores, [0])
    tasks = [
        run("delay", 0, 3_000_000, cores=(0,), after=()),
        run("combine", target, source, source, 0, 1, cores=(0,), after=(0,)),
        run("add_to", target, 5, cores=(1,), after=(1,)),
    ]
    graph = GraphInstance(two_cores, tasks)
    for _ in range(5):
        graph.execute()
        assert values.tolist() == [48 * 40 + 5]
    assert graph.num_waits == 1


def test_parameters_and_named_buffers(device: Device) -> None:
    tasks = [
        FillTask(destination=NamedBuffer("out"), value=0, num_bytes=Parameter("bytes")),
        run("add_to", NamedBuffer("out"), Parameter("step")),
        run("combine", NamedBuffer("sum"), NamedBuffer("out"), NamedBuffer("out"), Parameter("step"), 1),
    ]
    graph = GraphInstance(
        device, tasks, parameters={"bytes": 8, "step": 3}, buffers={"out": 8, "sum": 8}, name="numbers"
    )
    result = graph.buffer("sum").as_array(np.uint64, 1)
    graph.execute()
    assert result[0] == 48 * 3 + 3
    graph.set("step", np.int64(10))
    graph.execute()
    assert result[0] == 48 * 10 + 10
    graph.set("bytes", 0)  # the buffer keeps its 10
    graph.set("out", np.array([100]))
    graph.execute()
    assert result[0] == 48 * 110 + 10
    graph.set("out", (7).to_bytes(8, "little"))
    graph.execute()
    assert result[0] == 48 * 17 + 10


def test_values_that_do_not_fit_are_refused(device: Device) -> None:
    graph = GraphInstance(
        device,
        [run("add_to", NamedBuffer("b"), Parameter("n"))],
        parameters={"n": 1, "x": 1.5},
        buffers={"b": 8},
    )
    graph.set("b", bytes(8))
    with pytest.raises(GraphLoadError, match=r"no parameter or buffer 'm' \(known: b, n, x\)"):
        graph.set("m", 1)
    with pytest.raises(GraphLoadError, match=r"'n' takes an integer, not 1\.5"):
        graph.set("n", 1.5)
    with pytest.raises(GraphLoadError, match="'n' takes a number, not a str"):
        graph.set("n", "1")  # type: ignore[arg-type]
    with pytest.raises(GraphLoadError, match="'n' takes a number, not a bool"):
        graph.set("n", True)
    with pytest.raises(GraphLoadError, match=f"'n': {2**64} does not fit into 8 bytes"):
        graph.set("n", 2**64)
    with pytest.raises(DeviceMemoryError, match="16 bytes do not fit into buffer 'b' of 8"):
        graph.set("b", np.zeros(2))
    with pytest.raises(GraphLoadError, match=r"no buffer 'n' \(known: b\)"):
        graph.buffer("n")
    graph.set("x", 2)
    graph.execute()
    assert graph.buffer("b").as_array(np.int64)[0] == 1


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 512 * KIB - 1, 512 * KIB, 512 * KIB + 1, 777_777])
def test_copy_and_fill_write_exactly_their_bytes(device: Device, size: int) -> None:
    """Around the size from which several cores share the work; guard bytes on both sides."""
    source = device.allocate(size + 1)
    data = source.as_array(np.uint8)
    data[:] = np.random.default_rng(size).integers(0, 256, size + 1, dtype=np.uint8)
    target = device.allocate(size + 66)
    bytes_of_target = target.as_array(np.uint8)
    for task, expected in (
        (CopyTask(destination=target.address + 33, source=source, num_bytes=size), data[:size]),
        (FillTask(destination=target.address + 33, value=255, num_bytes=size), np.full(size, 255, np.uint8)),
    ):
        bytes_of_target[:] = 0xA5
        GraphInstance(device, [task]).execute()
        assert np.array_equal(bytes_of_target[33 : 33 + size], expected)
        assert (bytes_of_target[:33] == 0xA5).all()
        assert (bytes_of_target[33 + size :] == 0xA5).all()


def test_host_functions_run_in_order_with_kernels(device: Device) -> None:
    buffer, counts = integers(device, [0] * 2)
    seen: list[list[int]] = []
    look = HostTask(function=lambda: seen.append(counts.tolist()))
    tasks = [
        look,
        run("count_block", buffer, blocks=2),
        look,
        look,
        run("count_block", buffer, blocks=2),
        look,
    ]
    GraphInstance(device, tasks).execute()
    assert seen == [[0, 0], [1, 1], [1, 1], [2, 2]]


def test_while_runs_on_the_device(device: Device) -> None:
    buffer, values = integers(device, [1000, 0, 0])
    body: list[Task] = [run("count_block", buffer.address + 8, blocks=2), run("add_to", buffer, -1)]
    graph = GraphInstance(device, [While(variable=buffer, body=body)])
    before = device._native.runs
    graph.execute()
    assert values.tolist() == [0, 1000, 1000]
    assert device._native.runs == before + 1
    graph.execute()  # the variable is 0: no round
    assert values.tolist() == [0, 1000, 1000]


@pytest.mark.parametrize("value", [0, 1, 2, 3, -1, 2**32, 2**62, -(2**63)])
def test_switch_takes_the_body_of_the_index_or_none(device: Device, value: int) -> None:
    buffer, values = integers(device, [value, 0, 0, 0])
    bodies = [[run("add_to", buffer.address + 8 * (1 + case), 1)] for case in range(3)]
    GraphInstance(device, [Switch(variable=buffer, bodies=bodies)]).execute()
    assert values[1:].tolist() == [int(value == case) for case in range(3)]


@pytest.mark.parametrize("value", [0, 1, -1, 2**32, -(2**63), 2**63 - 1])
def test_if_looks_at_all_64_bits(device: Device, value: int) -> None:
    buffer, values = integers(device, [value, 0, 0])
    branch = If(
        variable=buffer,
        then=[run("add_to", buffer.address + 8, 1)],
        otherwise=[run("add_to", buffer.address + 16, 1)],
    )
    GraphInstance(device, [branch]).execute()
    assert values[1:].tolist() == [int(value != 0), int(value == 0)]


def test_a_condition_is_read_after_slow_producers_on_other_cores(two_cores: Device) -> None:
    buffer, values = integers(two_cores, [0, 0])
    tasks = [
        run("delay", 1, 3_000_000, cores=(1,), after=()),
        run("add_to", buffer, 1, cores=(1,), after=(0,)),
        If(variable=buffer, then=[run("add_to", buffer.address + 8, 1, cores=(0,))]),
    ]
    GraphInstance(two_cores, tasks).execute()
    assert values.tolist() == [1, 1]


@pytest.mark.parametrize("control", ["if", "switch", "while"])
def test_what_follows_a_body_waits_for_all_cores_that_run_it(two_cores: Device, control: str) -> None:
    """Core 1 is slow inside the body; the task after it runs on core 0 and must see the result."""
    buffer, values = integers(two_cores, [0, 0, 0])
    body: list[Task] = [
        run("delay", 1, 3_000_000, cores=(1,), after=()),
        run("add_to", buffer.address + 8, 2, cores=(1,), after=(0,)),
        run("add_to", buffer, -1, cores=(0,), after=()),
    ]
    controls: dict[str, Task] = {
        "if": If(variable=buffer, then=body),
        "switch": Switch(variable=buffer, bodies=[[], body]),
        "while": While(variable=buffer, body=body),
    }
    first, second = buffer.address + 8, buffer.address + 16
    graph = GraphInstance(
        two_cores,
        [controls[control], run("combine", second, first, first, 0, 1, cores=(0,))],
    )
    for _ in range(3):
        values[:] = [1, 0, 0]
        graph.execute()
        assert values.tolist() == [0, 2, 96]


def test_control_tasks_nest(device: Device) -> None:
    """Three nested loops of 3, 4 and 5 rounds: the innermost body runs 60 times."""
    buffer, values = integers(device, [0, 0, 0, 0])
    body: list[Task] = [run("add_to", buffer.address + 24, 1, cores=(device.num_cores - 1,))]
    for level, rounds in ((2, 5), (1, 4), (0, 3)):
        variable = buffer.address + 8 * level
        body = [
            run("add_to", variable, rounds),
            While(variable=variable, body=[*body, run("add_to", variable, -1)]),
        ]
    graph = GraphInstance(device, body)
    graph.execute()
    graph.execute()
    assert values.tolist() == [0, 0, 0, 120]


def test_async_executions_run_in_the_order_of_submission(device: Device) -> None:
    order: list[int] = []
    graphs = [
        GraphInstance(device, [HostTask(function=lambda number=number: order.append(number))])
        for number in range(20)
    ]
    for graph in graphs:
        graph.execute_async()
    for graph in graphs:
        graph.wait(timeout=30)
    assert order == list(range(20))
    graphs[0].wait()  # nothing runs: returns at once


def test_an_instance_that_runs_is_left_alone(device: Device) -> None:
    gate = threading.Event()
    tasks = [HostTask(function=gate.wait), run("add_to", NamedBuffer("b"), Parameter("n"))]
    graph = GraphInstance(device, tasks, parameters={"n": 1}, buffers={"b": 8}, name="held")
    graph.set("b", bytes(8))
    graph.execute_async()
    try:
        for action in (
            graph.execute,
            graph.execute_async,
            graph.destroy,
            lambda: graph.set("n", 2),
            lambda: graph.set("b", b"x"),
        ):
            with pytest.raises(InstanceStateError, match=r"state RUNNING.*\n.*wait\(\)"):
                action()
        with pytest.raises(TimeoutError, match=r"'held' still runs after 0\.01 s; it was not aborted"):
            graph.wait(timeout=0.01)
    finally:
        gate.set()
    graph.wait()
    assert graph.buffer("b").as_array(np.int64)[0] == 1


def test_eight_threads_share_a_device(device: Device) -> None:
    """Each executes its own graph 50 times, half of them through the queue."""
    failures: list[Exception] = []
    buffer, counts = integers(device, [0] * 16)

    def work(thread: int) -> None:
        try:
            graph = GraphInstance(device, [run("count_block", buffer.address + 16 * thread, blocks=2)])
            for step in range(50):
                if step % 2:
                    graph.execute()
                else:
                    graph.execute_async()
                    graph.wait()
        except Exception as error:  # noqa: BLE001  the main thread looks at it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert counts.tolist() == [50] * 16


def test_two_devices_run_side_by_side(device: Device) -> None:
    with Device() as other:
        mine, my_counts = integers(device, [0] * 3)
        its, its_counts = integers(other, [0] * 3)
        graphs = [
            GraphInstance(device, [run("count_block", mine, blocks=3)]),
            GraphInstance(other, [run("count_block", its, blocks=3)]),
        ]
        for _ in range(20):
            for graph in graphs:
                graph.execute_async()
            for graph in graphs:
                graph.wait()
    assert my_counts.tolist() == its_counts.tolist() == [20] * 3


def test_a_host_function_may_use_another_device_only(device: Device) -> None:
    with Device(threads=1) as other:
        buffer, counts = integers(device, [0])
        inner = GraphInstance(other, [run("count_block", buffer)])
        GraphInstance(device, [HostTask(function=inner.execute)]).execute()
        assert counts.tolist() == [1]
        own = GraphInstance(device, [run("count_block", buffer)])
        for call in (own.execute, own.wait, device.close):
            with pytest.raises(TaskFailedError) as failure:
                GraphInstance(device, [HostTask(function=call)]).execute()
            assert isinstance(failure.value.__cause__, DeviceError)
            assert "it would wait for itself" in str(failure.value)
    assert counts.tolist() == [1]


def test_poison_fills_scratch_and_free_memory(device: Device) -> None:
    dropped = device.allocate(4096)
    address = dropped.address
    dropped.as_array(np.uint8)[:] = 1
    dropped.free()
    device.poison()
    try:
        again = device.allocate(4096)
        assert again.address == address
        assert (again.as_array(np.uint8) == 0x7F).all()
    finally:
        device.poison(False)
