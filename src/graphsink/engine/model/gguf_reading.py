"""Read the metadata and the tensor table of a GGUF file, with every damage named.

The `gguf` package opens a file by mapping and reshaping each tensor, so a truncated file ends in an
exception about array shapes. This reader takes the table only, bounds every length by the file, and
checks the tensors against the file's size; the types, their block sizes and the dequantisation come
from the package.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from graphsink.errors import ModelFileError, UnsupportedModelError

GGUF_MAGIC = b"GGUF"
GGUF_VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ENTRIES = 1_000_000
MAX_DIMENSIONS = 4
MAX_HEADER_BYTES = 2**30
"""Vocabularies take tens of megabytes; a gigabyte of metadata is damage."""

SCALAR_FORMATS: Mapping[GGUFValueType, str] = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}

READ_AHEAD_BYTES = 4 * 2**20

Scalar = int | float | bool | str
Value = Scalar | list[Scalar]


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor lies.

    Attributes:
        name: name in the file.
        shape: sizes, slowest first (as in torch).
        type: how its values are stored.
        start, size: position in the file and length, in bytes.
    """

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    start: int
    size: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row (the last axis); rows are stored one after the other."""
        return self.size // max(1, prod(self.shape[:-1]))


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What a GGUF file says about itself."""

    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, GgufTensor]


def looks_like_gguf(path: Path) -> bool:
    """Whether the file starts with the GGUF magic number; ``False`` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(GGUF_MAGIC)) == GGUF_MAGIC
    except OSError:
        return False


def read_gguf(path: Path) -> GgufFile:
    """Read everything but the tensors' values.

    Raises:
        ModelFileError: missing, not a GGUF file, another version or byte order, truncated, damaged.
        UnsupportedModelError: a tensor type that the `gguf` package does not know.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            return _read(_Cursor(path, size, file))
    except OSError as error:
        raise ModelFileError(f"'{path.name}' cannot be read: {error.strerror}", where=str(path)) from error


class _Cursor:
    """Reads values in order from a buffer that grows as needed and never past the file's end."""

    def __init__(self, path: Path, file_size: int, file: BinaryIO) -> None:
        self.path = path
        self.buffer = bytearray()
        self.file_size = file_size
        self.file = file
        self.position = 0

    def take(self, count: int) -> int:
        """Move over ``count`` bytes and return where they start."""
        start, end = self.position, self.position + count
        if end > self.file_size:
            raise self.damaged(f"its header needs at least {end:,} bytes, the file has {self.file_size:,}")
        if end > MAX_HEADER_BYTES:
            raise self.damaged(f"its header is larger than {MAX_HEADER_BYTES:,} bytes")
        while end > len(self.buffer):
            more = self.file.read(max(READ_AHEAD_BYTES, end - len(self.buffer)))
            if not more:
                raise self.damaged("it became shorter while it was read")
            self.buffer += more
        self.position = end
        return start

    def scalar(self, code: str) -> Scalar:
        layout = "<" + code
        value: Scalar = struct.unpack_from(layout, self.buffer, self.take(struct.calcsize(layout)))[0]
        return value

    def count(self, code: str = "Q") -> int:
        return int(self.scalar(code))

    def string(self) -> str:
        length = self.count()
        start = self.take(length)
        try:
            return self.buffer[start : start + length].decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.damaged(f"the text at byte {start:,} is not UTF-8") from error

    def damaged(self, reason: str) -> ModelFileError:
        return ModelFileError(
            f"'{self.path.name}' is not a usable GGUF file: {reason}",
            where=str(self.path),
            hint="download the file again",
        )


def _read(cursor: _Cursor) -> GgufFile:
    start = cursor.take(4)
    magic = bytes(cursor.buffer[start : start + 4])
    if magic != GGUF_MAGIC:
        raise cursor.damaged(f"it starts with {magic!r}, not with {GGUF_MAGIC!r}")
    version = cursor.count("I")
    if version not in GGUF_VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        kind = "it is big-endian" if swapped in GGUF_VERSIONS else f"it has version {version}"
        raise cursor.damaged(f"{kind}; little-endian files of version 2 and 3 can be read")
    tensor_count, value_count = cursor.count(), cursor.count()
    if max(tensor_count, value_count) > MAX_ENTRIES:
        raise cursor.damaged(f"it announces {tensor_count:,} tensors and {value_count:,} values")
    metadata: dict[str, Value] = {}
    for _ in range(value_count):
        key = cursor.string()
        metadata[key] = _read_value(cursor, cursor.count("I"))
    entries = [_read_tensor_entry(cursor) for _ in range(tensor_count)]
    return GgufFile(cursor.path, metadata, _place(cursor, metadata, entries))


def _read_value(cursor: _Cursor, type_number: int) -> Value:
    kind = _value_type(cursor, type_number)
    if kind is GGUFValueType.STRING:
        return cursor.string()
    if kind is not GGUFValueType.ARRAY:
        value = cursor.scalar(SCALAR_FORMATS[kind])
        return as_written(value) if kind is GGUFValueType.FLOAT32 and isinstance(value, float) else value
    element = _value_type(cursor, cursor.count("I"))
    count = cursor.count()
    if element is GGUFValueType.ARRAY:
        raise cursor.damaged("it holds an array of arrays")
    if element is GGUFValueType.STRING:
        if count * 8 > cursor.file_size:
            raise cursor.damaged(f"an array of {count:,} texts does not fit into the file")
        return [cursor.string() for _ in range(count)]
    layout = SCALAR_FORMATS[element]
    start = cursor.take(count * struct.calcsize("<" + layout))
    return list(struct.unpack_from(f"<{count}{layout}", cursor.buffer, start))


def as_written(value: float) -> float:
    """The shortest decimal that rounds to the same float32: 1e-05 instead of 9.999999747378752e-06."""
    return float(str(numpy.float32(value)))


def _value_type(cursor: _Cursor, number: int) -> GGUFValueType:
    try:
        return GGUFValueType(number)
    except ValueError as error:
        raise cursor.damaged(f"it holds a value of the unknown type {number}") from error


def _read_tensor_entry(cursor: _Cursor) -> tuple[str, tuple[int, ...], GGMLQuantizationType, int]:
    name = cursor.string()
    dimensions = cursor.count("I")
    if dimensions > MAX_DIMENSIONS:
        raise cursor.damaged(f"the tensor '{name}' has {dimensions} dimensions")
    shape = tuple(cursor.count() for _ in range(dimensions))
    number = cursor.count("I")
    offset = cursor.count()
    try:
        kind = GGMLQuantizationType(number)
    except ValueError as error:
        raise UnsupportedModelError(
            f"the tensor '{name}' has the unknown type {number}",
            where=str(cursor.path),
            hint="use a common type such as Q8_0, Q4_K_M or BF16; a newer `gguf` package may know this one",
        ) from error
    return name, shape[::-1], kind, offset


def _place(
    cursor: _Cursor,
    metadata: Mapping[str, Value],
    entries: list[tuple[str, tuple[int, ...], GGMLQuantizationType, int]],
) -> dict[str, GgufTensor]:
    """Give every tensor its place in the file, and check that the file reaches that far."""
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or not 1 <= alignment <= 2**20:
        raise cursor.damaged(f"its alignment is {alignment!r}")
    data_start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, shape, kind, offset in entries:
        block_values, block_bytes = GGML_QUANT_SIZES[kind]
        if not shape or shape[-1] % block_values:
            raise cursor.damaged(f"the tensor '{name}' of type {kind.name} has the shape {list(shape)}")
        if name in tensors:
            raise cursor.damaged(f"it has two tensors '{name}'")
        size = prod(shape) // block_values * block_bytes
        tensors[name] = GgufTensor(name, shape, kind, data_start + offset, size)
    needed = max((tensor.start + tensor.size for tensor in tensors.values()), default=data_start)
    if needed > cursor.file_size:
        raise cursor.damaged(
            f"it is truncated: its tensors need {needed:,} bytes, the file has {cursor.file_size:,}"
        )
    _check_tiling(cursor, tensors, alignment)
    return tensors


def _check_tiling(cursor: _Cursor, tensors: Mapping[str, GgufTensor], alignment: int) -> None:
    """Tensors lie one after another, each aligned; an overlap gives a tensor the values of another."""
    position = None
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.start):
        if position is not None and tensor.start != position:
            raise cursor.damaged(f"the tensor '{tensor.name}' does not lie where the one before it ends")
        position = -(-(tensor.start + tensor.size) // alignment) * alignment
