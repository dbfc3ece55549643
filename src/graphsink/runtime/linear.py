"""Packed weights of linear layers: sizes, memory, and packing through a bounded buffer.

The form is described in ``docs/design/linear.md`` and defined by ``csrc/kernels/isa/linear_layout.h``. It
is the same for every number of rows and every instruction-set level, so a weight is packed once.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from graphsink.errors import CapacityError, DeviceError, InternalError
from graphsink.runtime.native import require_native_module
from graphsink.target import IsaLevel

PANEL_OUTPUTS: Final = 16
"""Outputs (rows of the weight) of one panel."""
LINE_BYTES: Final = 64
HEADER_BYTES: Final = 128
LINEAR_SCRATCH_BYTES: Final = 128 << 10
"""Scratch per core that the linear kernels need at least; 1 MiB lets them use larger blocks for many rows."""
DEFAULT_BUFFER_BYTES: Final = 4 << 20

_HUGE_PAGE_BYTES: Final = 2 << 20

ReadRows = Callable[[int, int, int], None]
"""``read_rows(first, count, address)`` writes rows ``first .. first + count - 1`` of the weight, contiguous,
to ``address``."""


class LinearDtype(StrEnum):
    """Dtype of x, weight, bias and y; the value is the suffix of the kernels' names."""

    FLOAT32 = "f32"
    BFLOAT16 = "bf16"

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return _FORMATS[self].element_bytes


@dataclass(frozen=True, slots=True)
class _Format:
    element_bytes: int
    inputs_per_line: int
    line_multiple: int


_FORMATS: Final = {
    LinearDtype.FLOAT32: _Format(element_bytes=4, inputs_per_line=1, line_multiple=1),
    LinearDtype.BFLOAT16: _Format(element_bytes=2, inputs_per_line=2, line_multiple=16),
}


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """Sizes of the packed form of a weight ``[outputs, inputs]``.

    Attributes:
        dtype: dtype of the weight.
        outputs: N, rows of the weight.
        inputs: K, columns of the weight.

    Raises:
        DeviceError: a negative size.
    """

    dtype: LinearDtype
    outputs: int
    inputs: int

    def __post_init__(self) -> None:
        if self.outputs < 0 or self.inputs < 0:
            raise DeviceError(
                f"a linear weight cannot have the shape [{self.outputs}, {self.inputs}]",
                hint="give sizes that are not negative",
            )

    @property
    def panels(self) -> int:
        """Panels of 16 outputs; the last one is padded with zeros."""
        return -(-self.outputs // PANEL_OUTPUTS)

    @property
    def lines_per_panel(self) -> int:
        """Lines of 64 bytes in a panel, padding included."""
        form = _FORMATS[self.dtype]
        lines = -(-self.inputs // form.inputs_per_line)
        return -(-lines // form.line_multiple) * form.line_multiple

    @property
    def panel_bytes(self) -> int:
        """Bytes from one panel to the next."""
        return self.lines_per_panel * LINE_BYTES

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole packed form, header included."""
        return HEADER_BYTES + self.panels * self.panel_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the weight before packing."""
        return self.inputs * self.dtype.element_bytes


class PackedWeight:
    """Memory with one packed weight, on 2 MiB pages where the system gives them.

    The memory is returned when the object is no longer referenced.

    Attributes:
        layout: what is packed.
        address: of the header, on a 2 MiB boundary; what the kernels take.
        huge_pages_requested: whether the system accepted the request for 2 MiB pages.

    Raises:
        CapacityError: the system refused the memory.
    """

    __slots__ = ("_memory", "_view", "address", "huge_pages_requested", "layout")

    def __init__(self, layout: PackedLayout) -> None:
        size = layout.total_bytes + _HUGE_PAGE_BYTES
        try:
            self._memory = mmap.mmap(-1, size)
        except (OSError, ValueError, OverflowError) as error:
            raise CapacityError(
                f"the system refused memory for a packed weight [{layout.outputs}, {layout.inputs}]",
                needed=size,
                available=0,
                hint="free some memory, or see ulimit -v",
            ) from error
        self.huge_pages_requested = _request_huge_pages(self._memory)
        self._view = ctypes.c_char.from_buffer(self._memory)
        self.address = -(-ctypes.addressof(self._view) // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
        self.layout = layout


def _request_huge_pages(memory: mmap.mmap) -> bool:
    try:
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError:  # a kernel that was built without them
        return False
    return True


def pack_rows(
    layout: PackedLayout,
    packed: int,
    rows: int,
    first: int,
    count: int,
    *,
    row_stride: int | None = None,
    block_dim: int = 1,
) -> None:
    """Pack rows ``first .. first + count - 1`` of a weight. The call with ``first == 0`` writes the header.

    Args:
        layout: sizes of the whole weight.
        packed: address of the packed form, 64-byte aligned, ``layout.total_bytes`` long.
        rows: address of row ``first``.
        first: a multiple of 16.
        count: a multiple of 16, unless these are the last rows.
        row_stride: elements from one row to the next; by default the rows are contiguous.
        block_dim: blocks that the kernel divides its work into; the result does not depend on it.

    Raises:
        DeviceError: rows that are not whole panels, or outside of the weight, or an unaligned address.
    """
    require_native_module()
    from graphsink import _native

    stride = layout.inputs if row_stride is None else row_stride
    slots: list[int | float] = [rows, packed, first, first + count, layout.outputs, layout.inputs, stride]
    kernel = f"pack_linear_{layout.dtype}"
    code = _native.call_kernel(kernel, str(IsaLevel.SCALAR), slots, block_dim)
    if code != 0:
        raise DeviceError(
            f"rows {first} to {first + count} of a weight [{layout.outputs}, {layout.inputs}] "
            f"cannot be packed to address {packed:#x}",
            where=f"kernel {kernel}, error {code}",
            hint=f"give whole panels of {PANEL_OUTPUTS} rows (only the last may be shorter) and an address "
            f"that is a multiple of {LINE_BYTES}",
        )


def pack_linear(
    layout: PackedLayout, read_rows: ReadRows, *, buffer_bytes: int = DEFAULT_BUFFER_BYTES
) -> PackedWeight:
    """Pack a weight that is produced piece by piece, without ever holding all of it unpacked.

    Args:
        layout: sizes of the weight.
        read_rows: called with ascending, adjacent ranges of rows that together are the whole weight.
        buffer_bytes: upper limit of the buffer that ``read_rows`` writes to.

    Raises:
        CapacityError: 16 rows do not fit into ``buffer_bytes``, or the system refused the memory.
    """
    panel_rows_bytes = PANEL_OUTPUTS * layout.row_bytes
    if panel_rows_bytes > buffer_bytes:
        raise CapacityError(
            f"the packing buffer does not hold {PANEL_OUTPUTS} rows of {layout.inputs} inputs",
            needed=panel_rows_bytes,
            available=buffer_bytes,
            hint="give a larger buffer_bytes",
        )
    weight = PackedWeight(layout)
    step = PANEL_OUTPUTS * max(1, buffer_bytes // max(1, panel_rows_bytes))
    step = min(step, layout.panels * PANEL_OUTPUTS)
    buffer = ctypes.create_string_buffer(max(1, step * layout.row_bytes))
    address = ctypes.addressof(buffer)
    # A weight without rows is packed, too: the kernel needs its header.
    for first in range(0, max(1, layout.outputs), max(1, step)):
        count = min(step, layout.outputs - first)
        if count > 0:
            read_rows(first, count, address)
        pack_rows(layout, weight.address, address, first, count)
    return weight


@dataclass(frozen=True, slots=True)
class LinearCall:
    """Arguments of ``linear_<dtype>``: ``y[M, N] = x[M, K] @ weight[N, K]^T + bias``.

    Attributes:
        weight: the packed weight; it gives N, K and the dtype.
        x: address of x.
        y: address of y.
        rows: M.
        bias: address of the bias ``[N]``, or 0.
        x_row_stride: elements from one row of x to the next; by default K.
        y_row_stride: elements from one row of y to the next; by default N.
    """

    weight: PackedWeight
    x: int
    y: int
    rows: int
    bias: int = 0
    x_row_stride: int | None = None
    y_row_stride: int | None = None

    @property
    def kernel(self) -> str:
        """Name of the kernel."""
        return f"linear_{self.weight.layout.dtype}"

    def slots(self) -> list[int]:
        """The argument slots of the kernel."""
        layout = self.weight.layout
        return [
            self.x,
            self.weight.address,
            self.bias,
            self.y,
            self.rows,
            layout.outputs,
            layout.inputs,
            layout.inputs if self.x_row_stride is None else self.x_row_stride,
            layout.outputs if self.y_row_stride is None else self.y_row_stride,
        ]


def run_linear(call: LinearCall, isa: IsaLevel, *, block_dim: int = 1, scratch_bytes: int = 1 << 20) -> None:
    """Run a linear kernel on the calling thread, outside of any graph.

    Raises:
        InternalError: the kernel reported an error.
        DeviceError: the native module is missing.
    """
    require_native_module()
    from graphsink import _native

    slots: list[int | float] = [*call.slots()]
    code = _native.call_kernel(call.kernel, str(isa), slots, block_dim, scratch_bytes)
    if code != 0:
        raise InternalError(
            f"{call.kernel} reported error {code} for {call.rows} rows of {call.weight.layout}",
            where=f"level {isa}, block_dim {block_dim}, {scratch_bytes:,} bytes of scratch",
        )
