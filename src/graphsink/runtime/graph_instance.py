"""A graph instance: a prepared task graph that runs with one call."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from graphsink import _native
from graphsink.errors import (
    DeviceError,
    DeviceMemoryError,
    ExecutionAbortedError,
    ExecutionError,
    ExecutionTimeoutError,
    GraphLoadError,
    InstanceStateError,
    TaskFailedError,
)
from graphsink.runtime.device import DEFAULT_IDLE_SPIN_S, Device, DeviceBuffer, seconds
from graphsink.runtime.task_encoding import TaskEncoder, eight_byte_integer
from graphsink.runtime.tasks import Task

STATES = ("NONE", "READY", "RUNNING", "FAULT")
"""States as the native core numbers them; ``NONE`` is destroyed."""

FAILED, ABORTED, TIMED_OUT, REFUSED = 1, 2, 3, 4
"""Results of an execution as the native core numbers them; 0 is a good one."""

_HINTS = {
    "NONE": "load it again",
    "RUNNING": "wait() for it, or abort() it, first",
    "FAULT": "wait() raises the fault and clears it",
}

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
        defaults = {key: _number(key, value) for key, value in (parameters or {}).items()}
        self._parameter_types: dict[str, type[int | float]] = {key: type(defaults[key]) for key in defaults}
        self._buffers: dict[str, DeviceBuffer] = {
            key: device.allocate(size) for key, size in (buffers or {}).items()
        }
        both = self._parameters.keys() & self._buffers.keys()
        if both:
            raise GraphLoadError(f"'{min(both)}' is the name of a parameter and of a buffer")
        indexed = {key: (self._parameters[key], value) for key, value in defaults.items()}
        addresses = {key: buffer.address for key, buffer in self._buffers.items()}
        self._graph = TaskEncoder(indexed, addresses).encode(tasks)
        try:
            self._native = _native.lower_tasks(
                self._graph.tasks, device.num_cores, len(self._parameters), device.new_instance_id()
            )
        except ValueError as error:
            raise GraphLoadError(str(error), where=name) from error
        self._destroy_callbacks: dict[int, Callable[[], None]] = {}
        self._callback_ids = itertools.count(1)
        # Held while a fault is taken: of several threads that wait, one gets it whole.
        self._fault_lock = threading.Lock()

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
        if self.state in ("RUNNING", "NONE"):
            raise self._state_error("changed", self.state)
        if name in self._parameters:
            self._set_parameter(name, value)
        elif name in self._buffers:
            self._fill_buffer(name, value)
        else:
            known = ", ".join(sorted([*self._parameters, *self._buffers])) or "none"
            raise GraphLoadError(f"'{self.name}' has no parameter or buffer '{name}' (known: {known})")

    def buffer(self, name: str) -> DeviceBuffer:
        """A named buffer, for reading results.

        Raises:
            GraphLoadError: there is no such buffer.
        """
        if name not in self._buffers:
            known = ", ".join(sorted(self._buffers)) or "none"
            raise GraphLoadError(f"'{self.name}' has no buffer '{name}' (known: {known})")
        return self._buffers[name]

    def execute(self, timeout: float | None = None) -> None:
        """Run the graph on all cores, this thread included, and return when it has ended.

        Args:
            timeout: seconds; it is looked at between tasks and while waiting, a kernel is not interrupted.

        Raises:
            InstanceStateError: it is running, destroyed, or has a fault that was not taken.
            TaskFailedError: a kernel or call reported a fault; a host function's own exception is its cause.
            ExecutionTimeoutError, ExecutionAbortedError: it did not come to its end.
            DeviceError: called by a task of the same device, or a time-out that is negative.
        """
        self.device.check_usable()
        self.device.check_outside_of_run("execute")
        outcome = self.device._native.execute(self._native, seconds(timeout, "timeout"))
        if outcome is None:
            return
        if outcome.result == REFUSED:
            raise self._state_error("executed", STATES[outcome.code])
        try:
            self._raise(outcome)
        finally:
            self._native.end_run()

    def execute_async(self) -> None:
        """Queue an execution on the device's own threads; take its result with `wait`.

        The device keeps the instance alive until it has ended.

        Raises:
            InstanceStateError: it is running, destroyed, or has a fault that was not taken.
            DeviceError: the device's thread cannot be started.
        """
        self.device.check_usable()
        try:
            found = STATES[self.device._native.submit(self._native)]
        except RuntimeError as error:
            raise DeviceError(f"'{self.name}' cannot be queued: {error}") from error
        if found != "READY":
            raise self._state_error("executed", found)
        self.device.keep_while_running(self)

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of `execute_async` and raise what it raised. Nothing runs: returns at once.

        Raises:
            TimeoutError: it still runs after ``timeout`` seconds; it goes on running.
            TaskFailedError, ExecutionAbortedError: as `execute`.
            DeviceError: called by a task of the same device, or a time-out that is negative.
        """
        self.device.check_usable()
        self.device.check_outside_of_run("wait")
        if not self._native.wait(DEFAULT_IDLE_SPIN_S, seconds(timeout, "timeout")):
            raise TimeoutError(f"'{self.name}' still runs after {timeout} s; it was not aborted")
        with self._fault_lock:
            if self.state != "FAULT":
                return
            try:
                self._raise(self._native.fault())
            finally:
                self._native.clear_fault()

    def abort(self) -> None:
        """End the execution that runs or is queued; whoever waits gets `ExecutionAbortedError`.

        It returns at once. A kernel is not interrupted, and one that is queued ends when its turn comes.
        """
        self.device.check_usable()
        self.device._native.abort(self._native)

    def destroy(self) -> None:
        """Release the instance; registered callbacks run, newest first. Again: nothing happens.

        All callbacks run even if some raise; the exception of the last one that did is raised then.

        Raises:
            InstanceStateError: it is running.
        """
        if self.state == "NONE":
            return
        if not self._native.destroy():
            raise self._state_error("destroyed", self.state)
        with contextlib.ExitStack() as callbacks:
            for callback in self._destroy_callbacks.values():
                callbacks.callback(callback)
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

    def _set_parameter(self, name: str, value: object) -> None:
        wanted = self._parameter_types[name]
        number = _number(name, value)
        if wanted is int and not isinstance(number, int):
            raise GraphLoadError(f"parameter '{name}' takes an integer, not {value!r}")
        if not self._native.set_parameter(self._parameters[name], wanted(number)):
            raise self._state_error("changed", "RUNNING")

    def _fill_buffer(self, name: str, value: object) -> None:
        data = value if isinstance(value, bytes) else np.ascontiguousarray(value).tobytes()
        buffer = self._buffers[name]
        if len(data) > buffer.num_bytes:
            raise DeviceMemoryError(
                f"{len(data)} bytes do not fit into buffer '{name}' of {buffer.num_bytes}"
            )
        buffer.as_array(np.uint8)[: len(data)] = np.frombuffer(data, dtype=np.uint8)

    def _state_error(self, verb: str, state: str) -> InstanceStateError:
        return InstanceStateError(f"'{self.name}' cannot be {verb}", state=state, hint=_HINTS[state])

    def _raise(self, outcome: _native.Outcome) -> NoReturn:
        cause = self._cause(outcome)
        if cause is not None and not isinstance(cause, Exception):
            raise cause  # KeyboardInterrupt, SystemExit
        raise self._error(outcome, cause) from cause

    def _cause(self, outcome: _native.Outcome) -> BaseException | None:
        call = self._graph.calls.get(outcome.task_id)
        if outcome.result == FAILED and isinstance(call, _native.HostCall):
            error = call.take_error()
            return error if isinstance(error, BaseException) else None
        return None

    def _error(self, outcome: _native.Outcome, cause: Exception | None) -> ExecutionError:
        kind, task, module_path = self.task_label(outcome.task_id)
        if outcome.result in (ABORTED, TIMED_OUT):
            how = "was aborted" if outcome.result == ABORTED else "ran out of time"
            error_class = ExecutionAbortedError if outcome.result == ABORTED else ExecutionTimeoutError
            what = f"'{self.name}' {how}: {outcome.message}"
            return error_class(what, task=task, module_path=module_path, core=outcome.core)
        code = outcome.code if outcome.code < 2**31 else outcome.code - 2**32
        reason = outcome.message or _KERNEL_ERRORS.get(code, "it reported a fault")
        if cause is not None:
            reason = f"{type(cause).__name__}: {cause}"
        what = f"{kind} '{task}' failed with code {code}: {reason}"
        return TaskFailedError(what, task=task, module_path=module_path, core=outcome.core, code=code)


def _number(name: str, value: object) -> int | float:
    """A parameter's value as the native core takes it."""
    if isinstance(value, float | np.floating):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise GraphLoadError(f"parameter '{name}' takes a number, not a {type(value).__name__}")
    return eight_byte_integer(int(value), f"parameter '{name}'")
