"""Read safetensors files into memory of our own, with every damage named.

The files are not mapped: a mapped file that is changed or truncated while the model runs changes the
weights or kills the process, and its pages cannot be huge. Reading costs the same time and each tensor
is converted as it arrives, so that the peak is the weights plus one tensor.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import torch

from graphsink.engine.model.files import first_names, read_json_object
from graphsink.errors import ModelFileError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000
"""Limit of the format itself."""

FLOAT_TYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
OTHER_TYPES: Mapping[str, torch.dtype] = {
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Types of buffers (position ids and the like); they keep their type."""

TORCH_TYPES: Mapping[str, torch.dtype] = {**FLOAT_TYPES, **OTHER_TYPES}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies.

    Attributes:
        name: name in the file.
        file: the safetensors file.
        type_name: type as the format spells it.
        shape: sizes.
        start, size: position in the file and length, in bytes.
    """

    name: str
    file: Path
    type_name: str
    shape: tuple[int, ...]
    start: int
    size: int


def find_weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a model directory: the single one, or every shard of its index.

    Raises:
        ModelFileError: none there (pickle files are refused by name), a shard is absent, a bad index.
    """
    if (directory / INDEX_FILE).is_file():
        return _indexed_files(directory)
    if (directory / SINGLE_FILE).is_file():
        return [directory / SINGLE_FILE]
    pickles = [path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in directory.glob(pattern)]
    others = [path.name for path in directory.glob("*.safetensors")]
    if pickles:
        raise ModelFileError(
            f"the directory has only pickle weights ({first_names(pickles)}); loading them could run code",
            where=str(directory),
            hint="use the safetensors version of the model, or convert it with "
            "transformers' save_pretrained on a machine you trust it on",
        )
    if others:
        raise ModelFileError(
            f"neither '{SINGLE_FILE}' nor '{INDEX_FILE}' is there, only {first_names(others)}",
            where=str(directory),
            hint=f"a sharded model needs '{INDEX_FILE}'; download it too",
        )
    raise ModelFileError(
        "the directory has no weights (*.safetensors)",
        where=str(directory),
        hint="download the weights, or set model_config.with_ckpt: False for random weights",
    )


def _indexed_files(directory: Path) -> list[Path]:
    index_path = directory / INDEX_FILE
    weight_map = read_json_object(index_path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError("the index has no 'weight_map'", where=str(index_path))
    names = sorted({str(name) for name in weight_map.values()})
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise ModelFileError(
            f"the index names files outside the directory: {first_names(outside)}", where=str(index_path)
        )
    absent = [name for name in names if not (directory / name).is_file()]
    if absent:
        raise ModelFileError(
            f"{len(absent)} of {len(names)} weight files are missing: {first_names(absent)}",
            where=str(index_path),
            hint="download the missing files",
        )
    return [directory / name for name in names]


def read_headers(directory: Path) -> dict[str, StoredTensor]:
    """Every tensor of the directory by name, checked against the size of its file.

    Raises:
        ModelFileError: see `find_weight_files` and `read_header`; a name in two files; a tensor of the
            index that its file lacks.
    """
    tensors: dict[str, StoredTensor] = {}
    for path in find_weight_files(directory):
        for tensor in read_header(path):
            if tensor.name in tensors:
                raise ModelFileError(
                    f"the tensor '{tensor.name}' is in two files, '{tensors[tensor.name].file.name}' and "
                    f"'{path.name}'",
                    where=str(directory),
                )
            tensors[tensor.name] = tensor
    index_path = directory / INDEX_FILE
    if index_path.is_file():
        listed = read_json_object(index_path)["weight_map"]
        lacking = [name for name in listed if name not in tensors]
        if lacking:
            raise ModelFileError(
                f"{len(lacking)} tensors of the index are in none of its files: {first_names(lacking)}",
                where=str(index_path),
                hint="index and weights do not belong together; download both again",
            )
    return tensors


def read_header(path: Path) -> list[StoredTensor]:
    """The tensors of one file, in the order in which they lie.

    Raises:
        ModelFileError: not a safetensors file, truncated, or a header that contradicts itself.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
            if not 2 <= length <= MAX_HEADER_BYTES:
                raise _damaged(path, f"it does not start like a safetensors file ({size:,} bytes)")
            if 8 + length > size:
                raise _damaged(path, f"its header needs {8 + length:,} bytes, the file has {size:,}")
            header = json.loads(file.read(length), object_pairs_hook=_without_duplicates)
    except OSError as error:
        raise ModelFileError(f"'{path.name}' cannot be read: {error.strerror}", where=str(path)) from error
    except _DuplicateKeyError as error:
        raise _damaged(path, f"its header has two entries '{error}'") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "its header is not JSON") from error
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not a JSON object")
    header.pop("__metadata__", None)
    tensors = [_stored_tensor(path, name, entry, 8 + length) for name, entry in header.items()]
    needed = max((tensor.start + tensor.size for tensor in tensors), default=8 + length)
    if needed != size:
        kind = "truncated" if needed > size else "damaged"
        raise _damaged(path, f"it is {kind}: its tensors need {needed:,} bytes, the file has {size:,}")
    tensors.sort(key=lambda tensor: tensor.start)
    _check_tiling(path, tensors, 8 + length)
    return tensors


class _DuplicateKeyError(Exception):
    """A key that stands twice in one JSON object."""


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values: dict[str, object] = {}
    for key, value in pairs:
        if key in values:
            raise _DuplicateKeyError(key)
        values[key] = value
    return values


def _check_tiling(path: Path, tensors: list[StoredTensor], data_start: int) -> None:
    """Tensors lie one after another without gaps; an overlap gives a tensor the values of another."""
    position = data_start
    for tensor in tensors:
        if tensor.start != position:
            kind = "overlaps the one before it" if tensor.start < position else "leaves a gap before it"
            raise _damaged(path, f"the tensor '{tensor.name}' {kind}")
        position += tensor.size


def _damaged(path: Path, reason: str) -> ModelFileError:
    return ModelFileError(
        f"'{path.name}' is not usable: {reason}", where=str(path), hint="download the file again"
    )


def _stored_tensor(path: Path, name: str, entry: object, data_start: int) -> StoredTensor:
    try:
        if not isinstance(entry, dict):
            raise TypeError("not an object")
        type_name = str(entry["dtype"])
        shape = tuple(int(size) for size in entry["shape"])
        begin, end = (int(offset) for offset in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"the header entry of '{name}' is malformed") from error
    if type_name not in TORCH_TYPES:
        raise ModelFileError(
            f"the tensor '{name}' has the type {type_name}; supported: {', '.join(TORCH_TYPES)}",
            where=str(path),
            hint="use the float16, bfloat16 or float32 version of the checkpoint",
        )
    size = prod(shape) * TORCH_TYPES[type_name].itemsize
    if begin < 0 or min(shape, default=0) < 0 or end - begin != size:
        raise _damaged(path, f"the tensor '{name}' has {end - begin:,} bytes, its shape needs {size:,}")
    return StoredTensor(name, path, type_name, shape, data_start + begin, size)


def read_tensor(file: BinaryIO, tensor: StoredTensor, dtype: torch.dtype) -> torch.Tensor:
    """Read one tensor; floating-point ones come back in ``dtype``, others in their own type.

    Raises:
        ModelFileError: the file ended early or could not be read.
    """
    result = torch.empty(tensor.shape, dtype=TORCH_TYPES[tensor.type_name])
    if tensor.size:
        view = result.reshape(-1).view(torch.uint8).numpy().data
        try:
            file.seek(tensor.start)
            count = _fill(file, view)
        except OSError as error:
            raise ModelFileError(
                f"reading '{tensor.name}' failed: {error.strerror}", where=str(tensor.file)
            ) from error
        if count != tensor.size:
            raise _damaged(tensor.file, f"it ended inside '{tensor.name}'; something else is writing it")
    return result.to(dtype) if tensor.type_name in FLOAT_TYPES else result


def _fill(file: BinaryIO, view: memoryview) -> int:
    """Read until ``view`` is full or the file ends; one call of the system may return less than 2 GiB."""
    done = 0
    while done < len(view):
        count = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            break
        done += count
    return done
