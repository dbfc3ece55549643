"""A device: cores, threads and memory that graph instances run on."""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from graphsink import _native
from graphsink.errors import CapacityError, DeviceError, DeviceMemoryError, ForkedDeviceError
from graphsink.runtime.machine import machine_facts

if TYPE_CHECKING:
    from types import TracebackType

    from graphsink.runtime.graph_instance import GraphInstance

DEFAULT_IDLE_SPIN_S = 200e-6
DEFAULT_CALL_SPIN_S = 0.0
DEFAULT_SCRATCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """Device memory in bytes.

    Attributes:
        mapped_bytes: taken from the system.
        used_bytes: handed out now.
        peak_used_bytes: most that was handed out at one time.
        allocations: pieces handed out now.
        huge_pages: whether the system accepted 2 MiB pages.
    """

    mapped_bytes: int
    used_bytes: int
    peak_used_bytes: int
    allocations: int
    huge_pages: bool


class DeviceBuffer:
    """Memory of a device: 64-byte aligned, freed with the last reference or by `free`.

    Memory that the device hands out for the first time is zero; memory that was freed before is not.
    """

    __slots__ = ("__weakref__", "_address", "_finalizer", "num_bytes")

    def __init__(self, device: Device, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self._address: int = device._allocate(num_bytes)
        self._finalizer = weakref.finalize(self, device._arena.free, self._address)
        # The process gives its memory back as a whole.
        self._finalizer.atexit = False

    @property
    def address(self) -> int:
        """First byte.

        Raises:
            DeviceMemoryError: the buffer was freed.
        """
        self._check_alive()
        return self._address

    def free(self) -> None:
        """Give the memory back now. Graphs and arrays that still use it see what comes to lie there next.

        Raises:
            DeviceMemoryError: it was freed before.
        """
        self._check_alive()
        self._finalizer()

    def as_array(self, dtype: DTypeLike, shape: int | tuple[int, ...] | None = None) -> NDArray[np.generic]:
        """A numpy view of the memory; it keeps the buffer alive.

        Args:
            dtype: element type.
            shape: ``None`` takes as many elements as fit.

        Raises:
            DeviceMemoryError: the buffer was freed, or the view would be larger than it.
        """
        self._check_alive()
        kind = np.dtype(dtype)
        if shape is None:
            shape = self.num_bytes // kind.itemsize
        wanted = (shape,) if isinstance(shape, int) else shape
        needed = math.prod(wanted) * kind.itemsize
        if needed > self.num_bytes or min(wanted, default=0) < 0:
            raise DeviceMemoryError(
                f"a view of shape {wanted} and type {kind} ({needed} bytes) does not fit into a buffer of "
                f"{self.num_bytes} bytes"
            )
        memory = (ctypes.c_char * self.num_bytes).from_address(self._address)
        memory._buffer = self  # type: ignore[attr-defined]
        return np.ndarray(wanted, kind, buffer=memoryview(memory))

    def _check_alive(self) -> None:
        if not self._finalizer.alive:
            raise DeviceMemoryError(
                f"the buffer of {self.num_bytes} bytes at {self._address:#x} was freed before"
            )


class Device:
    """Cores that run graph instances one after another, each instance on all of them.

    The thread that calls `GraphInstance.execute` lends itself as core 0; the device has a thread for every
    other core. Idle threads spin for ``idle_spin_s`` after a run and then sleep. A device that is no longer
    referenced, and one that lives when the interpreter ends, aborts what it runs.

    Args:
        threads: number of cores; ``None`` is all that affinity and CPU quota allow.
        pin: bind the device's own threads, each to a core; the caller's thread is left alone. ``None`` does
            so if the device takes every allowed core: the system has no better place for them then.
        idle_spin_s: seconds that an idle core spins before it sleeps.
        call_spin_s: the same while another core runs a call; more than 0 fights with threads of the call
            (docs/design/threads.md).
        scratch_bytes: memory per core for kernels.

    Raises:
        DeviceError: more threads than allowed cores, a thread that cannot be started, a time that is none.
        CapacityError: no memory for scratch.
    """

    def __init__(
        self,
        threads: int | None = None,
        *,
        pin: bool | None = None,
        idle_spin_s: float = DEFAULT_IDLE_SPIN_S,
        call_spin_s: float = DEFAULT_CALL_SPIN_S,
        scratch_bytes: int = DEFAULT_SCRATCH_BYTES,
    ) -> None:
        facts = machine_facts()
        count = facts.threads if threads is None else threads
        if not 1 <= count <= len(facts.cores):
            raise DeviceError(
                f"a device of {count} cores was asked for; {len(facts.cores)} are allowed",
                hint=f"give 1 to {len(facts.cores)} threads, or widen the affinity (taskset, cpuset)",
            )
        if scratch_bytes < 64:
            raise DeviceError(f"scratch of {scratch_bytes} bytes was asked for", hint="give at least 64")
        seconds(idle_spin_s, "idle_spin_s")
        seconds(call_spin_s, "call_spin_s")
        self.isa = facts.isa
        self.idle_spin_s = idle_spin_s
        self.pinned = count == len(facts.cores) if pin is None else pin
        self._owner = os.getpid()
        self._arena = _native.Arena()
        self._instance_ids = itertools.count(1)
        self._submitted: set[GraphInstance] = set()
        try:
            self._native = _native.Device(
                list(facts.cores[:count]), self.pinned, idle_spin_s, call_spin_s, scratch_bytes
            )
        except RuntimeError as error:
            raise DeviceError(f"the device cannot be started: {error}") from error
        except MemoryError as error:
            raise _no_memory("scratch of the device", count * scratch_bytes) from error
        # Threads must be gone before the interpreter is: `finalize` runs at exit, too.
        self._finalizer = weakref.finalize(self, _shut_down, self._native, self._owner)

    def __enter__(self) -> Self:
        self.check_usable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait for queued executions, then end the device's threads.

        Using the device afterwards is a `DeviceError`; closing it again does nothing.

        Raises:
            DeviceError: called by a task of this device.
        """
        if os.getpid() == self._owner and self._finalizer.alive:
            self.check_outside_of_run("close")
            for instance in self._submitted.copy():
                instance._native.wait(0.0, -1.0)
            self._submitted.clear()
        self._finalizer()

    @property
    def num_cores(self) -> int:
        """Cores, the caller's included."""
        return int(self._native.num_cores)

    def allocate(self, num_bytes: int) -> DeviceBuffer:
        """Memory for graphs, 64-byte aligned.

        Raises:
            DeviceMemoryError: not a positive number of bytes.
            CapacityError: the system gives no more.
        """
        return DeviceBuffer(self, num_bytes)

    def memory(self) -> MemoryStatistics:
        """What the device's memory is used for."""
        statistics = self._arena.statistics()
        return MemoryStatistics(
            statistics.mapped_bytes,
            statistics.used_bytes,
            statistics.peak_used_bytes,
            statistics.allocations,
            statistics.huge_pages,
        )

    def poison(self, enabled: bool = True) -> None:
        """Debug mode: fill scratch before every run, and free memory now, with 0x7f."""
        self.check_usable()
        self._native.set_poison(enabled)
        if enabled:
            self._arena.poison(0x7F)

    def _allocate(self, num_bytes: int) -> int:
        self.check_usable()
        if num_bytes <= 0:
            raise DeviceMemoryError(
                f"{num_bytes} bytes were asked for", hint="give a positive number of bytes"
            )
        try:
            return int(self._arena.allocate(num_bytes))
        except MemoryError as error:
            raise _no_memory("device memory", num_bytes) from error

    def check_usable(self) -> None:
        """Raise if the device was closed, or belongs to the parent of this process."""
        if os.getpid() != self._owner:
            raise ForkedDeviceError(
                f"the device belongs to process {self._owner}; this is its child {os.getpid()}",
                hint="make a new Device in the child, or start it with multiprocessing's 'spawn'",
            )
        if not self._finalizer.alive:
            raise DeviceError("the device was closed", hint="make a new one")

    def check_outside_of_run(self, action: str) -> None:
        """Raise if a task of this device calls it: what waits for the device would wait for itself."""
        if self._native.runs_on_this_thread:
            raise DeviceError(
                f"'{action}' was called by a host function that this device runs; it would wait for itself",
                hint="call it after the execution, or use another device",
            )

    def new_instance_id(self) -> int:
        """A number for an instance, unique on this device."""
        return next(self._instance_ids)

    def keep_while_running(self, instance: GraphInstance) -> None:
        """Keep a submitted instance alive; those that have ended are let go of."""
        self._submitted = {other for other in self._submitted if other.state == "RUNNING"} | {instance}


def seconds(value: float | None, name: str) -> float:
    """A time span for the native core, where a negative one means no limit.

    Raises:
        DeviceError: it is negative or not a number.
    """
    if value is None:
        return -1.0
    if not value >= 0:
        raise DeviceError(f"{name} is {value} s", hint="give 0 or more seconds")
    return float(value)


def _no_memory(what: str, num_bytes: int) -> CapacityError:
    available = machine_facts(choose_isa=False).memory.available_bytes
    return CapacityError(f"{what} cannot be allocated", needed=num_bytes, available=available)


def _shut_down(device: _native.Device, owner: int) -> None:
    # In a forked child the threads do not exist; waiting for them would never end.
    if os.getpid() == owner:
        device.shutdown()
