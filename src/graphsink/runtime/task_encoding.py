"""Task descriptions in the form that the native core loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphsink import _native
from graphsink.errors import GraphLoadError
from graphsink.runtime.tasks import (
    CallTask,
    ControlTask,
    CopyTask,
    FillTask,
    HostTask,
    If,
    KernelTask,
    NamedBuffer,
    Parameter,
    PreparedCall,
    Slot,
    Switch,
    Task,
    TaskKind,
    While,
)

Encoded = dict[str, Any]

DEEPEST_NESTING = 64
"""Levels of bodies within bodies that the native core takes."""


@dataclass(slots=True)
class EncodedGraph:
    """A task list for `_native.lower_tasks`.

    Attributes:
        tasks: one dictionary per task, bodies inside of control tasks.
        calls: prepared calls and callables by task id (ids count all tasks, bodies included).
        keep_alive: objects whose memory the tasks point to.
    """

    tasks: list[Encoded]
    calls: dict[int, PreparedCall | _native.HostCall]
    keep_alive: list[object]


class TaskEncoder:
    """Encodes one graph.

    Args:
        parameters: index and default of every scalar parameter.
        buffers: address of every named buffer.
    """

    def __init__(self, parameters: Mapping[str, tuple[int, int | float]], buffers: Mapping[str, int]) -> None:
        self._parameters, self._buffers = parameters, buffers
        self._graph = EncodedGraph([], {}, [])
        self._next_task_id = 0
        self._depth = 0
        self._encoders: dict[type[Task], Callable[[Any, Encoded], None]] = {
            KernelTask: self._kernel,
            CallTask: self._call,
            HostTask: self._host,
            CopyTask: self._copy,
            FillTask: self._fill,
            If: self._if,
            While: self._while,
            Switch: self._switch,
        }

    def encode(self, tasks: Sequence[Task]) -> EncodedGraph:
        """The graph of ``tasks``.

        Raises:
            GraphLoadError: something that is not a task, or a slot that cannot be encoded.
        """
        self._graph.tasks = self._body(tasks)
        return self._graph

    def _body(self, tasks: Sequence[Task]) -> list[Encoded]:
        return [self._task(task, position) for position, task in enumerate(tasks)]

    def _task(self, task: Task, position: int) -> Encoded:
        encoder = self._encoders.get(type(task))
        if encoder is None:
            raise GraphLoadError(f"task {position} is a {type(task).__name__}, which is not a task")
        dependencies = task.depends_on
        if dependencies is None:
            dependencies = (position - 1,) if position else ()
        if not all(_is_integer(one, 0, position - 1) for one in dependencies):
            raise GraphLoadError(
                f"task {position} '{task.name}' depends on {list(dependencies)}: only tasks before it can be "
                "waited for; nothing would ever signal the others",
                where=task.module_path or None,
            )
        encoded: Encoded = {
            "kind": 0, "name": task.name, "module_path": task.module_path, "entry": 0, "context": 0,
            "block_dim": 1, "slots": [], "depends_on": list(dependencies), "cores": [], "prefetch_address": 0,
            "prefetch_bytes": 0, "condition": 0, "bodies": [],
        }  # fmt: skip
        # The native core numbers tasks in the same order: a control task before those of its bodies.
        encoded["id"] = self._next_task_id
        self._next_task_id += 1
        encoder(task, encoded)
        del encoded["id"]
        return encoded

    def _kernel(self, task: KernelTask, encoded: Encoded) -> None:
        name = task.name or task.kernel.name
        if not _is_integer(task.block_dim, 1, 2**32 - 1):
            raise GraphLoadError(
                f"task '{name}': block_dim is {task.block_dim!r}", hint="give 1 block or more (an integer)"
            )
        if not all(_is_integer(core, 0, 2**32 - 1) for core in task.cores):
            raise GraphLoadError(f"task '{name}': cores are {task.cores!r}", hint="give indices from 0 on")
        address, num_bytes = task.prefetch or (0, 0)
        if num_bytes < 0 or address < 0:
            raise GraphLoadError(f"task '{name}': prefetch of {num_bytes} bytes at {address:#x}")
        encoded |= {"kind": int(TaskKind.KERNEL), "name": name, "entry": task.kernel.address}
        encoded |= {"block_dim": task.block_dim, "cores": list(task.cores)}
        encoded |= {"prefetch_address": address, "prefetch_bytes": num_bytes}
        encoded["slots"] = self._slots(task.slots, name)
        self._graph.keep_alive.append(task.kernel)

    def _call(self, task: CallTask, encoded: Encoded) -> None:
        self._add_call(task.call, task.name or "call", encoded)

    def _host(self, task: HostTask, encoded: Encoded) -> None:
        name = task.name or getattr(task.function, "__name__", "host function")
        self._add_call(_native.HostCall(task.function), name, encoded)

    def _add_call(self, call: PreparedCall | _native.HostCall, name: str, encoded: Encoded) -> None:
        self._graph.calls[encoded["id"]] = call
        encoded |= {"kind": int(TaskKind.CALL), "name": name, "entry": call.entry, "context": call.context}

    def _copy(self, task: CopyTask, encoded: Encoded) -> None:
        name = task.name or "copy"
        slots = self._slots([task.destination, task.source, _size(task.num_bytes, name)], name)
        encoded |= {"kind": int(TaskKind.COPY), "name": name, "slots": slots}

    def _fill(self, task: FillTask, encoded: Encoded) -> None:
        name = task.name or "fill"
        if not _is_integer(task.value, 0, 255):
            raise GraphLoadError(f"task '{name}': {task.value!r} is not a byte value (0 to 255)")
        slots = self._slots([task.destination, task.value, _size(task.num_bytes, name)], name)
        encoded |= {"kind": int(TaskKind.FILL), "name": name, "slots": slots}

    def _if(self, task: If, encoded: Encoded) -> None:
        bodies = [task.then, task.otherwise] if task.otherwise else [task.then]
        self._control(task, TaskKind.IF, "if", bodies, encoded)

    def _while(self, task: While, encoded: Encoded) -> None:
        self._control(task, TaskKind.WHILE, "while", [task.body], encoded)

    def _switch(self, task: Switch, encoded: Encoded) -> None:
        self._control(task, TaskKind.SWITCH, "switch", list(task.bodies), encoded)

    def _control(
        self,
        task: ControlTask,
        kind: TaskKind,
        default_name: str,
        bodies: Sequence[Sequence[Task]],
        encoded: Encoded,
    ) -> None:
        name = task.name or default_name
        (address,) = self._slots([task.variable], name)
        if not isinstance(address, int) or address % 8 or address <= 0:
            raise GraphLoadError(
                f"{default_name} task '{name}': its variable is at {address!r}, not a multiple of 8",
                hint="give the address of an 8-byte integer, for example device memory",
            )
        if self._depth == DEEPEST_NESTING:
            raise GraphLoadError(f"task '{name}' is nested {self._depth} levels deep; that is the limit")
        encoded |= {"kind": int(kind), "name": name, "condition": address}
        self._depth += 1
        encoded["bodies"] = [self._body(body) for body in bodies]
        self._depth -= 1

    def _slots(self, slots: Sequence[Slot], task: str) -> list[int | float | tuple[int, int | float]]:
        return [self._slot(slot, f"task '{task}', slot {index}") for index, slot in enumerate(slots)]

    def _slot(self, slot: Slot, where: str) -> int | float | tuple[int, int | float]:
        if isinstance(slot, Parameter):
            if slot.name not in self._parameters:
                raise GraphLoadError(f"{where}: the instance has no parameter '{slot.name}'")
            return self._parameters[slot.name]
        if isinstance(slot, NamedBuffer):
            if slot.name not in self._buffers:
                raise GraphLoadError(f"{where}: the instance has no buffer '{slot.name}'")
            return self._buffers[slot.name]
        if isinstance(slot, np.integer):
            slot = int(slot)
        if isinstance(slot, bool) or not isinstance(slot, int | float):
            address = getattr(slot, "address", None)
            if not isinstance(address, int):
                raise GraphLoadError(f"{where}: {slot!r} is neither a number nor has it an address")
            self._graph.keep_alive.append(slot)
            return address
        return eight_byte_integer(slot, where) if isinstance(slot, int) else slot


def eight_byte_integer(value: int, where: str) -> int:
    """The signed integer with the same 8 bytes: a slot may be read as a signed or an unsigned one.

    Raises:
        GraphLoadError: it does not fit into 8 bytes.
    """
    if not -(2**63) <= value < 2**64:
        raise GraphLoadError(f"{where}: {value} does not fit into 8 bytes")
    return value if value < 2**63 else value - 2**64


def _is_integer(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and least <= value <= most


def _size(num_bytes: int | Parameter, name: str) -> int | Parameter:
    if isinstance(num_bytes, int) and num_bytes < 0:
        raise GraphLoadError(f"task '{name}': {num_bytes} bytes")
    return num_bytes
