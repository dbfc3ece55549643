"""Memory of a device: views, statistics, misuse."""

from __future__ import annotations

import gc
import itertools

import numpy as np
import pytest

from graphsink.errors import CapacityError, DeviceMemoryError
from graphsink.runtime.device import Device


def test_statistics_count_what_is_handed_out() -> None:
    with Device(threads=1) as device:
        before = device.memory()
        assert (before.used_bytes, before.allocations, before.peak_used_bytes) == (0, 0, 0)
        first, second = device.allocate(1), device.allocate(1000)
        now = device.memory()
        assert (now.used_bytes, now.allocations) == (64 + 1024, 2)  # pieces are multiples of 64
        assert now.mapped_bytes >= now.used_bytes
        first.free()
        assert device.memory().used_bytes == 1024
        assert device.memory().peak_used_bytes == 64 + 1024
        del second
        assert device.memory().allocations == 0


def test_pieces_are_aligned_zero_and_apart(device: Device) -> None:
    buffers = [device.allocate(size) for size in (1, 63, 64, 65, 4097, 3 << 20)]
    spans = sorted((buffer.address, buffer.address + buffer.num_bytes) for buffer in buffers)
    assert all(begin % 64 == 0 for begin, _ in spans)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_new_memory_is_zero() -> None:
    with Device(threads=1) as device:
        assert not device.allocate(5 << 20).as_array(np.uint8).any()


def test_freed_neighbours_join() -> None:
    """Three pieces that fill the mapping make room for one of the whole size."""
    with Device(threads=1) as device:
        pieces = [device.allocate(8 << 20) for _ in range(4)]
        mapped = device.memory().mapped_bytes
        for index in (0, 2, 1, 3):
            pieces[index].free()
        whole = device.allocate(32 << 20)
        assert device.memory().mapped_bytes == mapped
        whole.free()


def test_misuse_is_refused(device: Device) -> None:
    for size in (0, -1):
        with pytest.raises(DeviceMemoryError, match=f"{size} bytes were asked for"):
            device.allocate(size)
    for size in (2**62, 2**63 - 1, 2**64 - 1):
        with pytest.raises(CapacityError, match="device memory cannot be allocated") as failure:
            device.allocate(size)
        assert failure.value.needed == size
    buffer = device.allocate(10)
    for shape in (11, (3, 4), (-1,), (2**40, 2**40), (-2, -5)):
        with pytest.raises(DeviceMemoryError, match="does not fit into a buffer of 10 bytes"):
            buffer.as_array(np.uint8, shape)
    assert buffer.as_array(np.float64).shape == (1,)
    assert buffer.as_array(np.uint8, 0).shape == (0,)
    assert buffer.as_array(np.uint8, ()).shape == ()
    buffer.free()
    with pytest.raises(DeviceMemoryError, match="was freed before"):
        buffer.free()
    with pytest.raises(DeviceMemoryError, match="was freed before"):
        buffer.as_array(np.uint8)


def test_a_view_keeps_its_buffer(device: Device) -> None:
    used = device.memory().used_bytes
    view = device.allocate(640).as_array(np.int64)
    part = view[3:5]
    del view
    gc.collect()
    assert device.memory().used_bytes == used + 640
    part[:] = 7
    del part
    gc.collect()
    assert device.memory().used_bytes == used
