"""A graph instance: a prepared task graph that runs with one call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from graphsink import _native
from graphsink.errors import (
    DeviceMemoryError,
    ExecutionAbortedError,
    ExecutionError,
    ExecutionTimeoutError,
    GraphLoadError,
    InstanceStateError,
    TaskFailedError,
)
from graphsink.runtime.device import DEFAULT_IDLE_SPIN_S, Device, DeviceBuffer
from graphsink.runtime.task_encoding import TaskEncoder
from graphsink.runtime.tasks import Task

READY, RUNNING, FAULT = 1, 2, 3
"""States as the native core numbers them; 0 is destroyed."""

_KERNEL_ERRORS = {
    1: "an index is out of range",
    2: "the scratch of the device is too small (Device(scratch_bytes=...))",
    3: "an argument is not acceptable",
}


class GraphInstance:
    """A task graph, loaded once and executed many times.

    Args:
        device: where it runs.
        tasks: the graph; see `graphsink.runtime.tasks`.
        parameters: scalar parameters with their first value.
        buffers: named buffers with their size in bytes; the instance owns them.
        name: for messages and traces.

    Raises:
        GraphLoadError: the graph cannot run; the message names the task.
    """

    def __init__(
        self,
        device: Device,
        tasks: Sequence[Task],
        *,
        parameters: Mapping[str, int | float] | None = None,
        buffers: Mapping[str, int] | None = None,
        name: str = "graph",
    ) -> None:
        device.check_usable()
        self.device, self.name = device, name
        self._parameters = {key: index for index, key in enumerate(parameters or {})}
        self._parameter_types = {key: type(value) for key, value in (parameters or {}).items()}
        self._buffers: dict[str, DeviceBuffer] = {
            key: device.allocate(size) for key, size in (buffers or {}).items()
        }
        both = self._parameters.keys() & self._buffers.keys()
        if both:
            raise GraphLoadError(f"'{min(both)}' is the name of a parameter and of a buffer")
        defaults = {key: (self._parameters[key], value) for key, value in (parameters or {}).items()}
        addresses = {key: buffer.address for key, buffer in self._buffers.items()}
        self._graph = TaskEncoder(defaults, addresses).encode(tasks)
        try:
            self._native = _native.lower_tasks(
                self._graph.tasks, device.num_cores, len(self._parameters), device.new_instance_id()
            )
        except ValueError as error:
            raise GraphLoadError(str(error), where=name) from error
        self._destroy_callbacks: dict[int, Callable[[], None]] = {}
        self._callback_ids = itertools.count(1)

    @property
    def state(self) -> str:
        """``NONE`` (destroyed), ``READY``, ``RUNNING``, or ``FAULT`` (an error waits to be taken)."""
        return str(self._native.state)

    @property
    def num_tasks(self) -> int:
        """Tasks, those of bodies included."""
        return int(self._native.num_tasks)

    @property
    def num_waits(self) -> int:
        """Waits of one core for another, over the whole program."""
        return int(self._native.num_waits)

    def task_label(self, task_id: int) -> tuple[str, str, str]:
        """Kind, name and module path of a task; ids count all tasks, bodies after their control task."""
        kind, name, module_path = self._native.label(task_id)
        return str(kind), str(name), str(module_path)

    def set(self, name: str, value: float | bytes | NDArray[np.generic]) -> None:
        """Change a parameter, or fill a named buffer, before the next execution.

        Args:
            name: of a parameter or a buffer.
            value: a number of the parameter's type, or bytes or an array that fit the buffer.

        Raises:
            InstanceStateError: it is running or destroyed.
            GraphLoadError: there is no such name, or the value does not fit it.
        """
        self._check_changeable()
        if name in self._parameters:
            self._set_parameter(name, value)
        elif name in self._buffers:
            self._fill_buffer(name, value)
        else:
            known = ", ".join(sorted([*self._parameters, *self._buffers])) or "none"
            raise GraphLoadError(f"'{self.name}' has no parameter or buffer '{name}' (known: {known})")

    def buffer(self, name: str) -> DeviceBuffer:
        """A named buffer, for reading results."""
        return self._buffers[name]

    def execute(self, timeout: float | None = None) -> None:
        """Run the graph on all cores, this thread included, and return when it has ended.

        Args:
            timeout: seconds; it is looked at between tasks and while waiting, a kernel is not interrupted.

        Raises:
            InstanceStateError: it is running, destroyed, or has a fault that was not taken.
            TaskFailedError: a kernel or call reported a fault; a host function's own exception is its cause.
            ExecutionTimeoutError, ExecutionAbortedError: it did not come to its end.
        """
        self.device.check_usable()
        state = self.device._native.execute(self._native, -1.0 if timeout is None else timeout)
        if state != READY:
            self._raise_for(state)

    def execute_async(self) -> None:
        """Queue an execution on the device's own threads; take its result with `wait`.

        Raises:
            InstanceStateError: it is running, destroyed, or has a fault that was not taken.
        """
        self.device.check_usable()
        state = self.device._native.submit(self._native)
        if state != READY:
            self._raise_for_state(state)

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of `execute_async` and raise what it raised.

        Raises:
            TimeoutError: it still runs after ``timeout`` seconds; it goes on running.
            TaskFailedError, ExecutionAbortedError: as `execute`.
        """
        self.device.check_usable()
        if not self._native.wait(DEFAULT_IDLE_SPIN_S, -1.0 if timeout is None else timeout):
            raise TimeoutError(f"'{self.name}' still runs after {timeout} s; it was not aborted")
        if self.state == "FAULT":
            self._raise_for(FAULT)

    def abort(self) -> None:
        """End the execution that is queued or runs; whoever waits gets `ExecutionAbortedError`."""
        self.device._native.abort(self._native)

    def destroy(self) -> None:
        """Release the instance; registered callbacks run, newest first.

        Raises:
            InstanceStateError: it is running.
        """
        if self.state == "NONE":
            return
        if not self._native.destroy():
            raise InstanceStateError(
                f"'{self.name}' cannot be destroyed", state=self.state, hint="wait() for it, or abort() it first"
            )
        for callback in reversed(list(self._destroy_callbacks.values())):
            callback()
        self._destroy_callbacks.clear()
        self._graph.keep_alive.clear()
        self._buffers.clear()

    def on_destroy(self, callback: Callable[[], None]) -> int:
        """Call ``callback`` when the instance is destroyed; returns a number for `forget_on_destroy`."""
        number = next(self._callback_ids)
        self._destroy_callbacks[number] = callback
        return number

    def forget_on_destroy(self, number: int) -> None:
        """Unregister a callback; unknown numbers are fine."""
        self._destroy_callbacks.pop(number, None)

    def _check_changeable(self) -> None:
        if self.state in ("RUNNING", "NONE"):
            raise InstanceStateError(
                f"'{self.name}' cannot be changed", state=self.state, hint="wait() for it, or load it again"
            )

    def _set_parameter(self, name: str, value: object) -> None:
        wanted = self._parameter_types[name]
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            raise GraphLoadError(f"parameter '{name}' takes a number, not a {type(value).__name__}")
        if wanted is int and not isinstance(value, int | np.integer):
            raise GraphLoadError(f"parameter '{name}' takes an integer, not {value!r}")
        self._native.set_parameter(self._parameters[name], wanted(value))

    def _fill_buffer(self, name: str, value: object) -> None:
        data = value if isinstance(value, bytes) else np.ascontiguousarray(value).tobytes()
        buffer = self._buffers[name]
        if len(data) > buffer.num_bytes:
            raise DeviceMemoryError(f"{len(data)} bytes do not fit into buffer '{name}' of {buffer.num_bytes}")
        buffer.as_array(np.uint8)[: len(data)] = np.frombuffer(data, dtype=np.uint8)

    def _raise_for(self, state: int) -> None:
        if state != FAULT:
            self._raise_for_state(state)
        outcome = self._native.take_outcome()
        if outcome.result == 0:
            # The fault was there before this call and somebody else has taken it since.
            self._raise_for_state(state)
        raise self._error(outcome) from self._cause(outcome)

    def _raise_for_state(self, state: int) -> None:
        names = {0: "NONE", RUNNING: "RUNNING", FAULT: "FAULT"}
        hints = {0: "load it again", RUNNING: "wait() for it first", FAULT: "wait() raises the fault and clears it"}
        raise InstanceStateError(f"'{self.name}' cannot be executed", state=names[state], hint=hints[state])

    def _cause(self, outcome: _native.Outcome) -> BaseException | None:
        call = self._graph.calls.get(outcome.task_id)
        if outcome.result == 1 and isinstance(call, _native.HostCall):
            error = call.take_error()
            return error if isinstance(error, BaseException) else None
        return None

    def _error(self, outcome: _native.Outcome) -> ExecutionError:
        kind, task, module_path = self.task_label(outcome.task_id)
        details = {"task": task, "module_path": module_path, "core": outcome.core}
        if outcome.result == 2:
            return ExecutionAbortedError(f"'{self.name}' was aborted: {outcome.message or 'it ran'}", **details)
        if outcome.result == 3:
            return ExecutionTimeoutError(f"'{self.name}' ran out of time: {outcome.message}", **details)
        code = outcome.code if outcome.code < 2**31 else outcome.code - 2**32
        reason = outcome.message or _KERNEL_ERRORS.get(code, "it reported a fault")
        return TaskFailedError(f"{kind} '{task}' failed with code {code}: {reason}", code=code, **details)
