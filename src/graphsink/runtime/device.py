"""A device: cores, threads and memory that graph instances run on."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from graphsink import _native
from graphsink.errors import CapacityError, DeviceError, DeviceMemoryError, ForkedDeviceError
from graphsink.runtime.machine import machine_facts

if TYPE_CHECKING:
    from types import TracebackType

DEFAULT_IDLE_SPIN_S = 200e-6
DEFAULT_CALL_SPIN_S = 20e-6
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
    """Memory of a device: 64-byte aligned, zero when new, freed with the last reference or by `free`."""

    __slots__ = ("__weakref__", "_finalizer", "address", "num_bytes")

    def __init__(self, device: Device, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self.address: int = device._allocate(num_bytes)
        self._finalizer = weakref.finalize(self, device._arena.free, self.address)

    def free(self) -> None:
        """Give the memory back now.

        Raises:
            DeviceMemoryError: it was freed before.
        """
        if not self._finalizer.alive:
            raise DeviceMemoryError(f"the buffer of {self.num_bytes} bytes at {self.address:#x} was freed before")
        self._finalizer()

    def as_array(self, dtype: DTypeLike, shape: int | tuple[int, ...] | None = None) -> NDArray[np.generic]:
        """A numpy view of the memory; it keeps the buffer alive.

        Args:
            dtype: element type.
            shape: ``None`` takes as many elements as fit.

        Raises:
            DeviceMemoryError: the buffer was freed, or the view would be larger than it.
        """
        if not self._finalizer.alive:
            raise DeviceMemoryError(f"the buffer of {self.num_bytes} bytes at {self.address:#x} was freed")
        kind = np.dtype(dtype)
        wanted = (self.num_bytes // kind.itemsize,) if shape is None else shape
        needed = int(np.prod(wanted)) * kind.itemsize
        if needed > self.num_bytes:
            raise DeviceMemoryError(f"a view of {needed} bytes does not fit into a buffer of {self.num_bytes}")
        memory = (ctypes.c_char * self.num_bytes).from_address(self.address)
        memory._buffer = self  # type: ignore[attr-defined]
        return np.frombuffer(memory, dtype=kind, count=int(np.prod(wanted))).reshape(wanted)


class Device:
    """Cores that run graph instances one after another, each instance on all of them.

    The thread that calls `GraphInstance.execute` lends itself as core 0; the device has a thread for every
    other core. Idle threads spin for ``idle_spin_s`` after a run and then sleep.

    Args:
        threads: number of cores; ``None`` is all that affinity and CPU quota allow.
        pin: bind the device's threads to their cores.
        idle_spin_s: seconds that an idle core spins before it sleeps.
        call_spin_s: the same while another core runs a call that brings threads of its own.
        scratch_bytes: memory per core for kernels.

    Raises:
        DeviceError: more threads than allowed cores, or a thread that cannot be started.
    """

    def __init__(
        self,
        threads: int | None = None,
        *,
        pin: bool = False,
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
        if scratch_bytes < 64 or idle_spin_s < 0 or call_spin_s < 0:
            raise DeviceError(f"scratch of {scratch_bytes} bytes, spinning for {idle_spin_s} and {call_spin_s} s")
        self.isa = facts.isa
        self._owner = os.getpid()
        self._arena = _native.Arena()
        self._next_instance_id = 0
        try:
            self._native = _native.Device(
                list(facts.cores[:count]), pin, idle_spin_s, call_spin_s, scratch_bytes
            )
        except RuntimeError as error:
            raise DeviceError(f"the device cannot be started: {error}") from error
        # Threads must be gone before the interpreter is: `finalize` runs at exit, too.
        self._finalizer = weakref.finalize(self, _shut_down, self._native, self._owner)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the device's threads. Queued executions end first; using it afterwards is a `DeviceError`."""
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
        self._native.set_poison(enabled)
        if enabled:
            self._arena.poison(0x7F)

    def _allocate(self, num_bytes: int) -> int:
        self.check_usable()
        if num_bytes <= 0:
            raise DeviceMemoryError(f"{num_bytes} bytes were asked for", hint="give a positive number of bytes")
        try:
            return int(self._arena.allocate(num_bytes))
        except MemoryError as error:
            available = machine_facts(choose_isa=False).memory.available_bytes
            raise CapacityError(
                "device memory cannot be allocated", needed=num_bytes, available=available
            ) from error

    def check_usable(self) -> None:
        """Raise if the device was closed, or belongs to the parent of this process."""
        if os.getpid() != self._owner:
            raise ForkedDeviceError(
                f"the device belongs to process {self._owner}; this is its child {os.getpid()}",
                hint="make a new Device in the child, or start it with multiprocessing's 'spawn'",
            )
        if not self._finalizer.alive:
            raise DeviceError("the device was closed", hint="make a new one")

    def new_instance_id(self) -> int:
        """A number for an instance, unique on this device."""
        self._next_instance_id += 1
        return self._next_instance_id


def usable_cores(cores: Sequence[int]) -> tuple[int, ...]:
    """Core ids, ascending and without duplicates."""
    return tuple(sorted(set(cores)))


def _shut_down(device: _native.Device, owner: int) -> None:
    # In a forked child the threads do not exist; waiting for them would never end.
    if os.getpid() == owner:
        device.shutdown()
