"""Short ways to kernels and tasks for tests of the runtime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from graphsink.runtime.device import Device, DeviceBuffer
from graphsink.runtime.tasks import Kernel, KernelTask, Slot, prebuilt_kernel

SECOND_NS = 1_000_000_000


def kernel(name: str) -> Kernel:
    return prebuilt_kernel(name, "scalar")


def run(
    name: str,
    *slots: Slot,
    blocks: int = 1,
    cores: tuple[int, ...] = (),
    after: tuple[int, ...] | None = None,
    label: str = "",
    module: str = "",
) -> KernelTask:
    """A task of a prebuilt kernel."""
    return KernelTask(
        kernel=kernel(name), slots=slots, block_dim=blocks, cores=cores, depends_on=after, name=label,
        module_path=module,
    )  # fmt: skip


def integers(device: Device, values: Sequence[int]) -> tuple[DeviceBuffer, NDArray[np.int64]]:
    """Device memory with 8-byte integers, and a view of it."""
    buffer = device.allocate(8 * len(values))
    view = buffer.as_array(np.int64, len(values))
    view[:] = values
    return buffer, view
