"""Task lists that cannot run are refused when they are loaded, with words."""

# ruff: noqa: E501  one line per case
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from graphsink.errors import CapacityError, DeviceError, DeviceMemoryError, GraphLoadError, InstanceStateError
from graphsink.runtime.device import Device
from graphsink.runtime.graph_instance import GraphInstance
from graphsink.runtime.tasks import (
    CopyTask,
    FillTask,
    HostTask,
    If,
    Kernel,
    KernelTask,
    NamedBuffer,
    Parameter,
    Switch,
    Task,
    While,
)
from support.graphs import integers, kernel, run

EMPTY = kernel("empty")


def refused(device: Device, *tasks: Any, **arguments: Any) -> str:
    """The words with which a task list is refused."""
    with pytest.raises(GraphLoadError) as failure:
        GraphInstance(device, tasks, **arguments)
    return str(failure.value)


CASES: dict[str, tuple[Callable[[], list[Any]], str]] = {
    "forward dependency": (lambda: [run("empty", after=(1,), label="a"), run("empty")], "task 0 'a' depends on [1]: only"),
    "dependency on itself": (lambda: [run("empty", after=(0,))], "task 0 '' depends on [0]"),
    "negative dependency": (lambda: [run("empty"), run("empty", after=(-1,))], "depends on [-1]"),
    "dependency of another type": (lambda: [run("empty"), run("empty", after=("0",))], "depends on ['0']"),  # type: ignore[arg-type]
    "no block": (lambda: [run("empty", blocks=0)], "'empty': block_dim is 0"),
    "negative blocks": (lambda: [run("empty", blocks=-3)], "block_dim is -3"),
    "half a block": (lambda: [run("empty", blocks=1.5)], "block_dim is 1.5"),  # type: ignore[arg-type]
    "too many blocks": (lambda: [run("empty", blocks=2**32)], f"block_dim is {2**32}"),
    "unknown core": (lambda: [run("empty", cores=(99,))], "core 99 of a device with"),
    "negative core": (lambda: [run("empty", cores=(-1,))], "cores are (-1,)"),
    "a core twice": (lambda: [run("empty", cores=(0, 0))], "core 0 is named twice"),
    "no function": (lambda: [KernelTask(kernel=Kernel("nothing", 0))], "kernel task 0 'nothing': has no function"),
    "slot that is text": (lambda: [run("empty", 1, "x")], "task 'empty', slot 1: 'x' is neither a number"),
    "slot that is a bool": (lambda: [run("empty", True)], "slot 0: True is neither a number"),
    "slot that is too large": (lambda: [run("empty", 2**64)], f"{2**64} does not fit into 8 bytes"),
    "slot that is too small": (lambda: [run("empty", -(2**63) - 1)], "does not fit into 8 bytes"),
    "unknown parameter": (lambda: [run("empty", Parameter("n"))], "has no parameter 'n'"),
    "unknown buffer": (lambda: [run("empty", NamedBuffer("b"))], "has no buffer 'b'"),
    "variable at 0": (lambda: [If(variable=0, then=[])], "if task 'if': its variable is at 0"),
    "variable not aligned": (lambda: [While(variable=4100, body=[])], "while task 'while': its variable is at 4100"),
    "variable that is a number": (lambda: [If(variable=1.5, then=[])], "its variable is at 1.5"),
    "switch without bodies": (lambda: [Switch(variable=4096, bodies=[])], "switch task 0 'switch': has 0 bodies"),
    "negative copy": (lambda: [CopyTask(destination=8, source=4096, num_bytes=-1)], "'copy': -1 bytes"),
    "negative fill": (lambda: [FillTask(destination=8, value=0, num_bytes=-8)], "'fill': -8 bytes"),
    "copy to 0": (lambda: [CopyTask(destination=0, source=64, num_bytes=8)], "copy task 0 'copy': an address is 0"),
    "copy onto itself": (lambda: [CopyTask(destination=64, source=71, num_bytes=8)], "source and destination overlap"),
    "fill with 256": (lambda: [FillTask(destination=64, value=256, num_bytes=8)], "256 is not a byte value"),
    "negative prefetch": (lambda: [KernelTask(kernel=EMPTY, prefetch=(64, -1))], "prefetch of -1 bytes"),
    "something else": (lambda: ["task"], "task 0 is a str, which is not a task"),
    "a task of the base class": (lambda: [Task()], "task 0 is a Task, which is not a task"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_lists_that_cannot_run_are_refused(device: Device, case: str) -> None:
    make, words = CASES[case]
    assert words in refused(device, *make())


def test_the_message_names_the_place_in_the_model(device: Device) -> None:
    words = refused(
        device, run("empty", cores=(7, 7), label="up", module="model.layers.0.mlp"), name="decode"
    )
    assert "kernel task 0 'up' (model.layers.0.mlp): core 7" in words
    assert "at: decode" in words
    assert "at: model.norm" in refused(device, run("empty", after=(4,), module="model.norm"))


def test_errors_in_bodies_are_found(device: Device) -> None:
    variable, _ = integers(device, [0])
    bad = run("empty", blocks=0, label="inner")
    for control in (
        If(variable=variable, then=[], otherwise=[bad]),
        While(variable=variable, body=[bad]),
        Switch(variable=variable, bodies=[[], [If(variable=variable, then=[bad])]]),
    ):
        assert "'inner': block_dim is 0" in refused(device, control)


def test_nesting_has_a_limit(device: Device) -> None:
    variable, _ = integers(device, [1])

    def nested(levels: int) -> list[Task]:
        body: list[Task] = []
        for _ in range(levels):
            body = [If(variable=variable, then=body)]
        return body

    GraphInstance(device, nested(64)).execute()
    assert "is nested 64 levels deep; that is the limit" in refused(device, *nested(65))
    assert "nested 64 levels" in refused(device, *nested(500))


def test_names_and_values_of_parameters_are_checked(device: Device) -> None:
    assert "'x' is the name of a parameter and of a buffer" in refused(
        device, parameters={"x": 1}, buffers={"x": 8}
    )
    assert "'x' takes a number, not a str" in refused(device, parameters={"x": "1"})
    assert "'x' takes a number, not a bool" in refused(device, parameters={"x": True})
    assert f"'x': {2**64} does not fit" in refused(device, parameters={"x": 2**64})
    for size in (0, -5):
        with pytest.raises(DeviceMemoryError, match=f"{size} bytes were asked for"):
            GraphInstance(device, [], buffers={"b": size})


def test_all_64_bits_reach_the_kernel(device: Device) -> None:
    """Signed and unsigned integers, numpy's too, and parameters."""
    total, values = integers(device, [0])
    tasks = [
        run("add_to", total, value) for value in (2**64 - 5, np.int32(-2), np.uint64(2**63), Parameter("n"))
    ]
    graph = GraphInstance(device, tasks, parameters={"n": 2**64 - 1})
    graph.execute()
    assert values[0] == -5 - 2 - 2**63 - 1 + 2**64
    values[0] = 0
    graph.set("n", -(2**63))
    graph.execute()
    assert values[0] == -7


def test_freed_memory_is_no_slot(device: Device) -> None:
    buffer = device.allocate(64)
    buffer.free()
    with pytest.raises(DeviceMemoryError, match="was freed before"):
        GraphInstance(device, [run("empty", buffer)])


def test_an_empty_graph_runs(device: Device) -> None:
    variable, _ = integers(device, [1])
    for tasks in (
        [],
        [If(variable=variable, then=[])],
        [If(variable=variable, then=[], otherwise=[run("empty")])],
    ):
        graph = GraphInstance(device, tasks)
        graph.execute()
        assert graph.num_waits == 0


def test_callbacks_run_once_newest_first(device: Device) -> None:
    @dataclass
    class Log:
        entries: list[str]

    log = Log([])
    graph = GraphInstance(device, [run("empty")], name="plan")
    for name in ("first", "second", "third"):
        number = graph.on_destroy(lambda name=name: log.entries.append(name))
    graph.on_destroy(graph.destroy)  # within a callback it is destroyed already
    graph.forget_on_destroy(number)
    graph.forget_on_destroy(12345)
    graph.destroy()
    graph.destroy()
    assert log.entries == ["second", "first"]
    assert graph.state == "NONE"
    for action in (graph.execute, graph.execute_async, lambda: graph.set("x", 1)):
        with pytest.raises(
            InstanceStateError, match=r"'plan' cannot be .* \(state NONE\)\n  fix: load it again"
        ):
            action()
    graph.wait()
    graph.abort()


def test_all_callbacks_run_though_one_raises(device: Device) -> None:
    seen: list[int] = []

    def broken() -> None:
        raise LookupError("callback")

    graph = GraphInstance(device, [HostTask(function=broken)])
    graph.on_destroy(lambda: seen.append(1))
    graph.on_destroy(broken)
    graph.on_destroy(lambda: seen.append(2))
    with pytest.raises(LookupError, match="callback"):
        graph.destroy()
    assert seen == [2, 1]


def test_devices_that_cannot_be_made_are_refused() -> None:
    for threads in (0, -1, 10_000):
        with pytest.raises(DeviceError, match=f"a device of {threads} cores was asked for"):
            Device(threads)
    with pytest.raises(DeviceError, match="scratch of 63 bytes"):
        Device(scratch_bytes=63)
    with pytest.raises(DeviceError, match=r"idle_spin_s is -1\.0 s"):
        Device(idle_spin_s=-1.0)
    with pytest.raises(DeviceError, match="call_spin_s is nan s"):
        Device(call_spin_s=float("nan"))
    with pytest.raises(CapacityError, match="scratch of the device cannot be allocated"):
        Device(threads=1, scratch_bytes=2**62)
