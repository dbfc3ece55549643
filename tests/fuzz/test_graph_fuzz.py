"""Random graphs against a sequential interpreter, with random delays on cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from graphsink.runtime.device import Device, DeviceBuffer
from graphsink.runtime.graph_instance import GraphInstance
from graphsink.runtime.tasks import If, Kernel, KernelTask, Switch, Task, While, prebuilt_kernel

LENGTH = 12
ARRAYS = 5


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with Device() as made:
        yield made


def kernel(name: str) -> Kernel:
    return prebuilt_kernel(name, "scalar")


@dataclass(frozen=True)
class Node:
    """``arrays[target] = 31 arrays[a] + 17 reversed(arrays[b]) + constant`` in ``blocks`` blocks."""

    target: int
    a: int
    b: int
    constant: int
    blocks: int
    on_last_core: bool
    delay_core: int
    delay_ns: int


indices = st.integers(0, ARRAYS - 1)
nodes = st.builds(
    Node, indices, indices, indices, st.integers(0, 1000), st.integers(1, 5), st.booleans(),
    st.integers(0, 1), st.sampled_from([0, 0, 1000, 30_000]),
)  # fmt: skip


def dependencies(program: list[Node], index: int) -> list[int]:
    """Positions of the nodes that must come before ``index``: read after write, write after read or write."""
    node = program[index]
    reads, writes = {node.a, node.b}, node.target
    return [
        earlier
        for earlier in range(index)
        if program[earlier].target in reads
        or program[earlier].target == writes
        or writes in (program[earlier].a, program[earlier].b)
    ]


def tasks_of(program: list[Node], arrays: list[DeviceBuffer], last_core: int) -> list[Task]:
    """Each node as a delay and a combine; dependencies by position of the combine."""
    tasks: list[Task] = []
    for index, node in enumerate(program):
        before = tuple(2 * earlier + 1 for earlier in dependencies(program, index))
        cores = (last_core,) if node.on_last_core else ()
        delay = [min(node.delay_core, last_core), node.delay_ns]
        tasks.append(
            KernelTask(kernel=kernel("delay"), slots=delay, block_dim=2, depends_on=before, cores=cores)
        )
        slots = [arrays[node.target], arrays[node.a], arrays[node.b], node.constant, LENGTH]
        tasks.append(
            KernelTask(
                kernel=kernel("combine"), slots=slots, block_dim=node.blocks, depends_on=(2 * index, *before),
                cores=cores,
            )
        )  # fmt: skip
    return tasks


def interpret(program: list[Node], state: NDArray[np.uint64]) -> None:
    for node in program:
        state[node.target] = (
            np.uint64(31) * state[node.a] + np.uint64(17) * state[node.b][::-1] + np.uint64(node.constant)
        )


def combines_itself(program: list[Node]) -> bool:
    """A node that reads what it writes races between its own blocks; that is not the runtime's to order."""
    return any(node.target in (node.a, node.b) for node in program)


@settings(max_examples=60, deadline=None)
@given(program=st.lists(nodes, min_size=1, max_size=14).filter(lambda p: not combines_itself(p)))
def test_random_graphs_give_the_sequential_result(device: Device, program: list[Node]) -> None:
    """Only true dependencies are declared, so anything independent may overlap."""
    start = np.arange(ARRAYS * LENGTH, dtype=np.uint64).reshape(ARRAYS, LENGTH)
    expected = start.copy()
    with np.errstate(over="ignore"):
        for _ in range(3):
            interpret(program, expected)
    arrays = [device.allocate(LENGTH * 8) for _ in range(ARRAYS)]
    for buffer, row in zip(arrays, start, strict=True):
        buffer.as_array(np.uint64, LENGTH)[:] = row
    graph = GraphInstance(device, tasks_of(program, arrays, device.num_cores - 1))
    for _ in range(3):
        graph.execute(timeout=30)
    result = np.stack([buffer.as_array(np.uint64, LENGTH) for buffer in arrays])
    assert np.array_equal(result, expected)


# A program over four counters: "add v c" adds c to counter v; control reads counters.
statements = st.deferred(
    lambda: st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3), st.integers(-2, 3)),
        st.tuples(st.just("if"), st.integers(0, 3), bodies, bodies),
        st.tuples(st.just("loop"), st.integers(1, 3), bodies),
        st.tuples(st.just("switch"), st.integers(0, 3), st.lists(bodies, min_size=1, max_size=3)),
    )
)
bodies = st.lists(statements, max_size=3)


class ControlProgram:
    """Builds the graph of a statement list, and interprets the same list in Python."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._core = 0
        self.counters = device.allocate(4 * 8)
        self._loops: list[DeviceBuffer] = []

    def tasks(self, body: list[tuple[object, ...]]) -> list[Task]:
        return [task for statement in body for task in self._statement(*statement)]

    def _add(self, address: int, value: int) -> KernelTask:
        """On a core that changes from task to task, so that bodies are left and entered by different ones."""
        self._core = (self._core + 1) % self._device.num_cores
        return KernelTask(kernel=kernel("add_to"), slots=[address, value], block_dim=3, cores=(self._core,))

    def _statement(self, kind: str, *rest: object) -> list[Task]:
        address = self.counters.address
        match kind, *rest:
            case "add", int(variable), int(value):
                return [self._add(address + 8 * variable, value)]
            case "if", int(variable), list(then), list(otherwise):
                return [
                    If(
                        variable=address + 8 * variable,
                        then=self.tasks(then),
                        otherwise=self.tasks(otherwise),
                    )
                ]
            case "switch", int(variable), list(cases):
                return [Switch(variable=address + 8 * variable, bodies=[self.tasks(case) for case in cases])]
            case "loop", int(count), list(body):
                left = self._device.allocate(8)
                left.as_array(np.int64)[:] = 0  # memory that was used before is not zero
                self._loops.append(left)
                return [
                    self._add(left.address, count),
                    While(variable=left, body=[*self.tasks(body), self._add(left.address, -1)]),
                ]
        raise AssertionError(kind)


def run_statements(body: list[tuple[object, ...]], counters: list[int]) -> None:
    for kind, *rest in body:
        match kind, *rest:
            case "add", int(variable), int(value):
                counters[variable] += value
            case "if", int(variable), list(then), list(otherwise):
                run_statements(then if counters[variable] != 0 else otherwise, counters)
            case "switch", int(variable), list(cases):
                if 0 <= counters[variable] < len(cases):
                    run_statements(cases[counters[variable]], counters)
            case "loop", int(count), list(inner):
                for _ in range(count):
                    run_statements(inner, counters)


@settings(max_examples=60, deadline=None)
@given(body=st.lists(statements, min_size=1, max_size=5))
def test_nested_control_flow_equals_an_interpreter(device: Device, body: list[tuple[object, ...]]) -> None:
    """IF, WHILE and SWITCH, nested at random, executed twice in a row."""
    program = ControlProgram(device)
    graph = GraphInstance(device, program.tasks(body))
    expected = [0, 1, 2, -1]
    values = program.counters.as_array(np.int64)
    values[:] = expected
    for _ in range(2):
        run_statements(body, expected)
        graph.execute(timeout=30)
        assert values.tolist() == expected
