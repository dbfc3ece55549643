"""The packed form of linear weights: sizes, bytes, streaming, refusals."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy
import pytest

from graphsink import _native
from graphsink.errors import CapacityError, DeviceError
from graphsink.runtime.linear import (
    HEADER_BYTES,
    LinearDtype,
    PackedLayout,
    PackedWeight,
    pack_linear,
    pack_rows,
)

REPOSITORY = Path(__file__).resolve().parents[2]
LEVELS = [
    level
    for level in ("scalar", "avx2", "avx512", "avx512_bf16", "amx", "neon")
    if _native.isa_level_runs_here(level)
]
NUMPY_TYPES = {LinearDtype.FLOAT32: numpy.uint32, LinearDtype.BFLOAT16: numpy.uint16}
DTYPES = tuple(LinearDtype)
SIZES = [(1, 1), (15, 2), (16, 31), (17, 32), (33, 33), (48, 64), (5, 97), (64, 576)]


def bits(dtype: LinearDtype, outputs: int, inputs: int) -> numpy.ndarray:
    """A weight whose elements are all different from zero; only bits matter for packing."""
    generator = numpy.random.default_rng(outputs * 1000 + inputs)
    top = numpy.iinfo(NUMPY_TYPES[dtype]).max
    return generator.integers(1, top, (outputs, inputs), dtype=NUMPY_TYPES[dtype], endpoint=True)


def expected_panels(weight: numpy.ndarray, layout: PackedLayout) -> numpy.ndarray:
    """[panel, line, output, input of the line], by transposition."""
    per_line = 4 // weight.itemsize
    padded = numpy.zeros((layout.panels * 16, layout.lines_per_panel * per_line), dtype=weight.dtype)
    padded[: weight.shape[0], : weight.shape[1]] = weight
    return padded.reshape(layout.panels, 16, layout.lines_per_panel, per_line).transpose(0, 2, 1, 3)


def packed_panels(address: int, layout: PackedLayout, dtype: type) -> numpy.ndarray:
    per_line = 4 // numpy.dtype(dtype).itemsize
    data = ctypes.string_at(address + HEADER_BYTES, layout.total_bytes - HEADER_BYTES)
    return numpy.frombuffer(data, dtype=dtype).reshape(layout.panels, layout.lines_per_panel, 16, per_line)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
def test_every_element_is_at_its_place_and_padding_is_zero(
    dtype: LinearDtype, outputs: int, inputs: int
) -> None:
    weight = bits(dtype, outputs, inputs)
    layout = PackedLayout(dtype, outputs, inputs)
    expected = expected_panels(weight, layout)
    guard = 256
    for level in LEVELS:
        for block_dim in (1, 2, 3, 7):
            memory = numpy.full(layout.total_bytes + 2 * guard + 64, 0xA5, dtype=numpy.uint8)
            address = -(-(memory.ctypes.data + guard) // 64) * 64
            slots = [weight.ctypes.data, address, 0, outputs, outputs, inputs, inputs]
            assert _native.call_kernel(f"pack_linear_{dtype}", level, slots, block_dim) == 0
            assert numpy.array_equal(packed_panels(address, layout, weight.dtype.type), expected)
            start = address - memory.ctypes.data
            assert (memory[:start] == 0xA5).all()
            assert (memory[start + layout.total_bytes :] == 0xA5).all()


def test_the_header_says_what_is_packed() -> None:
    layout = PackedLayout(LinearDtype.BFLOAT16, 33, 65)
    weight = bits(layout.dtype, 33, 65)
    packed = PackedWeight(layout)
    pack_rows(layout, packed.address, weight.ctypes.data, 0, 33)
    words = numpy.frombuffer(ctypes.string_at(packed.address, HEADER_BYTES), dtype=numpy.int64)
    magic_version_format, outputs, inputs, lines, panel_bytes, panels_offset = words[:6].tolist()
    assert magic_version_format.to_bytes(8, "little") == b"GPKL\x01\x00\x02\x00"
    assert (outputs, inputs, lines, panel_bytes, panels_offset) == (33, 65, 48, 48 * 64, 128)
    assert not words[6:].any()
    assert layout.total_bytes == 128 + 3 * 48 * 64


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("buffer_rows", [16, 17, 40, 1000])
def test_streaming_through_a_small_buffer_gives_the_same_bytes(dtype: LinearDtype, buffer_rows: int) -> None:
    weight = bits(dtype, 101, 37)
    layout = PackedLayout(dtype, 101, 37)
    ranges: list[tuple[int, int]] = []

    def read_rows(first: int, count: int, address: int) -> None:
        ranges.append((first, count))
        ctypes.memmove(address, weight[first : first + count].tobytes(), count * layout.row_bytes)

    packed = pack_linear(layout, read_rows, buffer_bytes=buffer_rows * layout.row_bytes)
    assert numpy.array_equal(
        packed_panels(packed.address, layout, weight.dtype.type), expected_panels(weight, layout)
    )
    assert max(count for _, count in ranges) <= buffer_rows
    assert [row for first, count in ranges for row in range(first, first + count)] == list(range(101))


def test_rows_may_be_strided() -> None:
    wide = bits(LinearDtype.FLOAT32, 20, 50)
    layout = PackedLayout(LinearDtype.FLOAT32, 20, 30)
    packed = PackedWeight(layout)
    pack_rows(layout, packed.address, wide.ctypes.data, 0, 20, row_stride=50)
    expected = expected_panels(wide[:, :30], layout)
    assert numpy.array_equal(packed_panels(packed.address, layout, numpy.uint32), expected)


def test_a_packed_weight_starts_on_a_huge_page() -> None:
    packed = PackedWeight(PackedLayout(LinearDtype.BFLOAT16, 64, 64))
    assert packed.address % (2 << 20) == 0
    assert isinstance(packed.huge_pages_requested, bool)


def test_nothing_to_pack() -> None:
    calls: list[object] = []
    for outputs, inputs in ((0, 5), (0, 0)):
        packed = pack_linear(
            PackedLayout(LinearDtype.BFLOAT16, outputs, inputs), lambda *range_: calls.append(range_)
        )
        assert ctypes.string_at(packed.address, 4) == b"GPKL"
    assert calls == []
    layout = PackedLayout(LinearDtype.FLOAT32, 7, 0)
    without_inputs = pack_linear(layout, lambda *range_: calls.append(range_))
    assert without_inputs.layout.total_bytes == HEADER_BYTES
    assert calls == [(0, 7, calls[0][2])]  # type: ignore[index]


@pytest.mark.parametrize(
    ("first", "count", "shift"), [(8, 16, 0), (0, 8, 0), (32, 17, 0), (-16, 16, 0), (16, -16, 0), (0, 16, 4)]
)
def test_rows_that_are_not_whole_panels_are_refused(first: int, count: int, shift: int) -> None:
    layout = PackedLayout(LinearDtype.FLOAT32, 48, 4)
    weight = bits(layout.dtype, 64, 4)
    packed = PackedWeight(layout)
    message = rf"rows {first} to {first + count} of a weight \[48, 4\]"
    with pytest.raises(DeviceError, match=message) as caught:
        pack_rows(layout, packed.address + shift, weight.ctypes.data, first, count)
    assert caught.value.where == "kernel pack_linear_f32, error 3"
    assert not any(ctypes.string_at(packed.address, layout.total_bytes))


def test_a_buffer_below_one_panel_is_refused() -> None:
    layout = PackedLayout(LinearDtype.BFLOAT16, 100, 1000)
    with pytest.raises(CapacityError, match="needed 32,000 bytes, available 31,999 bytes"):
        pack_linear(layout, lambda *_: None, buffer_bytes=31_999)


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(DeviceError, match=r"shape \[-1, 4\]"):
        PackedLayout(LinearDtype.FLOAT32, -1, 4)


def test_memory_that_the_system_refuses() -> None:
    with pytest.raises(CapacityError, match="refused memory"):
        PackedWeight(PackedLayout(LinearDtype.FLOAT32, 1 << 30, 1 << 30))
