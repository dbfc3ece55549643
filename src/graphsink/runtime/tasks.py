"""What a graph is made of: task descriptions, as a planner or a user writes them.

A graph is a list of tasks. A task runs after the tasks that it depends on; ``depends_on=None`` means after
the one before it in the list, ``()`` means after none. Control tasks (`If`, `While`, `Switch`) have bodies of
their own; they run when everything before them has ended, and everything after them waits for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol

from graphsink import _native
from graphsink.errors import KernelLibraryError


class TaskKind(IntEnum):
    """Kinds of tasks; the numbers are those of csrc/runtime/task.h."""

    KERNEL = 0
    CALL = 1
    COPY = 2
    FILL = 3
    IF = 4
    WHILE = 5
    SWITCH = 6


class HasAddress(Protocol):
    """Anything with an address: device memory, a named buffer."""

    @property
    def address(self) -> int:
        """First byte."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A scalar slot that `GraphInstance.set` changes between executions."""

    name: str


@dataclass(frozen=True, slots=True)
class NamedBuffer:
    """A slot that holds the address of a buffer of the instance, filled by `GraphInstance.set`."""

    name: str


Slot = int | float | Parameter | NamedBuffer | HasAddress
"""One argument: an integer or address, a float, a named parameter, or something that has an address."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel function.

    Attributes:
        name: for messages.
        address: of a function with the signature of ``gs_kernel`` (csrc/include/graphsink/kernel_abi.h).
        owner: kept alive as long as the kernel is (a loaded library).
    """

    name: str
    address: int
    owner: object = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What all tasks have.

    Attributes:
        depends_on: positions of earlier tasks in the same list; ``None`` is the one before.
        module_path: where in the user's model it came from, for messages.
        name: for messages and traces; a default is chosen by the kind.
    """

    depends_on: tuple[int, ...] | None = None
    module_path: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTask(Task):
    """Runs a kernel once per block.

    Attributes:
        kernel: the function.
        slots: its arguments.
        block_dim: number of blocks; every value gives the same result.
        cores: cores of the device that share the blocks; empty is all of them.
        prefetch: ``(address, bytes)`` that waiting cores read ahead, each its share.
    """

    kernel: Kernel
    slots: Sequence[Slot] = ()
    block_dim: int = 1
    cores: tuple[int, ...] = ()
    prefetch: tuple[int, int] | None = None


class PreparedCall(Protocol):
    """A call outside of the kernel interface, prepared in native code (an ATen operator)."""

    @property
    def entry(self) -> int:
        """Address of ``int32_t (*)(void* context, char* message, uint64_t capacity)``."""

    @property
    def context(self) -> int:
        """Its first argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTask(Task):
    """Runs a prepared call alone on the device: the other cores sleep."""

    call: PreparedCall


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTask(Task):
    """Runs a Python callable without arguments, alone on the device. The last resort: it takes the GIL."""

    function: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask(Task):
    """Copies ``num_bytes`` from ``source`` to ``destination``."""

    destination: Slot
    source: Slot
    num_bytes: int | Parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class FillTask(Task):
    """Sets ``num_bytes`` from ``destination`` to the byte ``value``."""

    destination: Slot
    value: int
    num_bytes: int | Parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlTask(Task):
    """What control tasks have.

    Attributes:
        variable: address of an 8-byte integer that tasks before it may write.
    """

    variable: Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class If(ControlTask):
    """Runs ``then`` if the variable is not 0, else ``otherwise``."""

    then: Sequence[Task]
    otherwise: Sequence[Task] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class While(ControlTask):
    """Runs ``body`` as long as the variable is not 0; it is read before each round."""

    body: Sequence[Task]


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch(ControlTask):
    """Runs the body that the variable is the index of; none if there is no such body."""

    bodies: Sequence[Sequence[Task]]


def prebuilt_kernel(name: str, isa: str) -> Kernel:
    """The prebuilt kernel ``name`` in its build for the level ``isa``.

    Raises:
        KernelLibraryError: there is no such kernel, or the processor cannot run the level.
    """
    try:
        return Kernel(name, _native.kernel_address(name, isa))
    except IndexError as error:
        raise KernelLibraryError(str(error)) from error
    except ValueError as error:
        raise KernelLibraryError(str(error), hint="choose a level that `graphsink doctor` lists") from error
