"""Convert a GGUF file to a safetensors directory, once, in the cache.

Tensor by tensor: each is dequantised in bounded pieces, what llama.cpp's converter did to it is undone,
and it is written out in the wanted type. Nothing but the largest single tensor is held in memory.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import gguf
import numpy
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from graphsink.config.cache_directory import atomic_directory, cache_directory
from graphsink.engine.model.files import first_names, read_json_object
from graphsink.engine.model.gguf_architectures import (
    GgufArchitecture,
    configuration_values,
    select_architecture,
)
from graphsink.engine.model.gguf_reading import GgufFile, GgufTensor, read_gguf
from graphsink.engine.model.gguf_tokenizer import write_tokenizer
from graphsink.engine.model.model_source import ModelSource, Progress
from graphsink.engine.model.transformers_output import quiet_transformers
from graphsink.errors import CapacityError, InternalError, ModelFileError, UnsupportedModelError

CONVERTER_VERSION = 1
"""Part of the cache key; raised when the result of a conversion changes."""

CONVERSION_FILE = "conversion.json"
"""What the conversion says about itself, beside the model's files."""

PIECE_BYTES = 64 * 2**20
"""float32 values that are dequantised at a time."""

UNUSED_TENSORS = frozenset({"rope_freqs.weight"})
"""Already part of the configuration."""

TYPE_NAMES = {torch.bfloat16: "BF16", torch.float32: "F32"}


@dataclass(frozen=True, slots=True)
class _Target:
    """One parameter of the result: its name and shape, and the tensor that it comes from."""

    name: str
    shape: tuple[int, ...]
    source: GgufTensor


def materialize(source: ModelSource, dtype: torch.dtype, progress: Progress | None = None) -> ModelSource:
    """The same source with a directory: a GGUF file is converted (once), anything else is returned as it is.

    Args:
        source: from `resolve_source`.
        dtype: ``torch.bfloat16`` or ``torch.float32``.
        progress: see `convert_gguf`.

    Raises:
        GraphsinkError: what `convert_gguf` raises.
    """
    directory = source.directory
    if source.gguf is not None:
        directory = convert_gguf(source.gguf, dtype, progress=progress)
    if directory is None:
        return source
    return replace(
        source,
        directory=directory,
        tokenizer_directory=source.tokenizer_directory or directory,
        notes=conversion_notes(directory),
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """Everything that writing the weights needs."""

    file: GgufFile
    architecture: GgufArchitecture
    values: dict[str, Any]
    targets: list[_Target]
    dtype: torch.dtype


def convert_gguf(
    path: Path, dtype: torch.dtype, cache: Path | None = None, progress: Progress | None = None
) -> Path:
    """The Hugging Face directory of a GGUF file; converted now if that has not been done.

    Args:
        path: the GGUF file.
        dtype: ``torch.bfloat16`` or ``torch.float32``.
        cache: directory that holds conversions; ``None`` is ``models`` in the cache directory.
        progress: called while weights are written; not if the conversion is there already.

    Raises:
        ModelFileError: not a GGUF file, truncated, tensors missing or of wrong shape.
        UnsupportedModelError: architecture, tensor type or metadata that cannot be converted.
        TokenizerError: the tokenizer cannot be rebuilt.
        CapacityError: not enough disk space; nothing is left behind.
        CacheDirectoryError: the cache directory cannot be used.
    """
    file = read_gguf(path)
    name, architecture = select_architecture(file)
    values = configuration_values(file, name, architecture)
    final = conversion_directory(_digest(path), path.stem, dtype, cache)
    if final.is_dir():
        return final
    targets = _targets(file, name, values)
    _check_types(file, targets)
    _check_disk(final.parent, sum(prod(target.shape) for target in targets) * dtype.itemsize)
    try:
        with atomic_directory(final) as directory:
            notes = write_tokenizer(file, directory)
            _write_configuration(file, values, dtype, directory)
            plan = _Plan(file, architecture, values, targets, dtype)
            _write_weights(plan, directory / "model.safetensors", progress)
            _write_json(directory / CONVERSION_FILE, {"source": path.name, "notes": list(notes)})
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            needed = sum(prod(target.shape) for target in targets) * dtype.itemsize
            raise _disk_full(final.parent, needed) from error
        raise ModelFileError(f"the conversion failed: {error}", where=str(path)) from error
    return final


def conversion_directory(digest: str, stem: str, dtype: torch.dtype, cache: Path | None = None) -> Path:
    """Where the conversion of a file with this SHA-256 digest is kept."""
    what = (digest, str(dtype), CONVERTER_VERSION, version("transformers"), version("gguf"))
    key = hashlib.sha256(repr(what).encode()).hexdigest()[:16]
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", stem).lstrip(".")[:60] or "model"
    return (cache or cache_directory("models")) / f"{readable}-{key}"


def conversion_notes(directory: Path) -> tuple[str, ...]:
    """What the user should know about a converted model; empty for a directory that is not one."""
    path = directory / CONVERSION_FILE
    if not path.is_file():
        return ()
    notes = read_json_object(path).get("notes", [])
    return tuple(str(note) for note in notes)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _targets(file: GgufFile, name: str, values: dict[str, Any]) -> list[_Target]:
    """Match the parameters of the model with the tensors of the file, both completely.

    Raises:
        ModelFileError: a tensor is missing or has another shape.
        UnsupportedModelError: a tensor that no parameter takes.
    """
    shapes = _parameter_shapes(file, values)
    architecture = next(number for number, text in gguf.MODEL_ARCH_NAMES.items() if text == name)
    names = gguf.get_tensor_name_map(architecture, int(values["num_hidden_layers"]))
    targets, missing, wrong = [], [], []
    for parameter, shape in shapes.items():
        stem, _, suffix = parameter.rpartition(".")
        found = names.get_name(stem)
        if found is None:
            raise InternalError(f"the gguf package knows no name for '{parameter}' of '{name}'")
        source = file.tensors.get(f"{found}.{suffix}")
        if source is None:
            missing.append(f"{found}.{suffix}")
        elif source.shape != shape:
            wrong.append(f"'{source.name}' is {list(source.shape)}, the model needs {list(shape)}")
        else:
            targets.append(_Target(parameter, shape, source))
    if missing:
        raise ModelFileError(
            f"{len(missing)} tensors that the model needs are not in the GGUF file: {first_names(missing)}",
            where=str(file.path),
        )
    if wrong:
        what = f"{len(wrong)} tensors have the wrong shape: {'; '.join(wrong[:3])}"
        raise ModelFileError(what, where=str(file.path))
    left = set(file.tensors) - {target.source.name for target in targets} - UNUSED_TENSORS
    if left:
        raise UnsupportedModelError(
            f"{len(left)} tensors of the GGUF file have no place in a '{values['model_type']}' model: "
            f"{first_names(left)}",
            where=str(file.path),
            hint="use the safetensors version of the model",
        )
    return targets


def _parameter_shapes(file: GgufFile, values: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all parameters but a head that is tied to the embedding."""
    try:
        with quiet_transformers(), torch.device("meta"):
            config = AutoConfig.for_model(**values)
            model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    except Exception as error:  # the library validates field by field, with exceptions of many kinds
        raise ModelFileError(
            f"transformers does not accept the GGUF file's metadata: {error}", where=str(file.path)
        ) from error
    tied = {"lm_head.weight"} if values["tie_word_embeddings"] else set()
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if name not in tied}


def _check_types(file: GgufFile, targets: list[_Target]) -> None:
    """Dequantise one row of each type before anything is written."""
    examples = {target.source.type: target.source for target in targets}
    for kind, tensor in examples.items():
        try:
            gguf.dequantize(numpy.zeros((1, tensor.row_bytes), dtype=numpy.uint8), kind)
        except NotImplementedError as error:
            raise UnsupportedModelError(
                f"tensors of the type {kind.name} cannot be dequantised ('{tensor.name}')",
                where=str(file.path),
                hint="use a common type such as Q8_0, Q4_K_M or BF16",
            ) from error


def _check_disk(directory: Path, needed: int) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if shutil.disk_usage(directory).free < needed:
        raise _disk_full(directory, needed)


def _disk_full(directory: Path, needed: int) -> CapacityError:
    return CapacityError(
        "there is not enough disk space for the converted model",
        needed=needed,
        available=shutil.disk_usage(directory).free,
        where=str(directory),
        hint="free some space, or set GRAPHSINK_CACHE_DIR to a directory on a larger disk",
    )


def _write_configuration(file: GgufFile, values: dict[str, Any], dtype: torch.dtype, directory: Path) -> None:
    type_name = str(dtype).removeprefix("torch.")
    with quiet_transformers():
        config = AutoConfig.for_model(**values, dtype=type_name)
    config.architectures = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]]
    config.save_pretrained(directory)
    ends = [file.metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]
    generation = {
        "bos_token_id": values["bos_token_id"],
        "eos_token_id": list(dict.fromkeys(token for token in ends if isinstance(token, int))) or None,
        "pad_token_id": values["pad_token_id"],
    }
    _write_json(directory / "generation_config.json", {k: v for k, v in generation.items() if v is not None})


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def _write_weights(plan: _Plan, path: Path, progress: Progress | None) -> None:
    """Write a safetensors file: length of the header, header, then the tensors without gaps."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    total = 0
    for target in plan.targets:
        size = prod(target.shape) * plan.dtype.itemsize
        header[target.name] = {
            "dtype": TYPE_NAMES[plan.dtype],
            "shape": list(target.shape),
            "data_offsets": [total, total + size],
        }
        total += size
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    done = 0
    with plan.file.path.open("rb") as source, path.open("wb") as sink:
        sink.write(len(encoded).to_bytes(8, "little") + encoded)
        for target in plan.targets:
            tensor = _restore(source, target, plan)
            sink.write(tensor.reshape(-1).view(torch.uint8).numpy().data)
            done += tensor.numel() * plan.dtype.itemsize
            if progress is not None:
                progress(done / total)


def _restore(stream: BinaryIO, target: _Target, plan: _Plan) -> torch.Tensor:
    """The values of one parameter as transformers wants them.

    Rounding comes after everything that changes values; reordering rows changes none.
    """
    shift = 1.0 if plan.architecture.shifted_norms and target.name.endswith("norm.weight") else 0.0
    result = torch.empty(target.shape, dtype=plan.dtype)
    rows = result.view(-1, target.shape[-1])
    start = 0
    for piece in _dequantized_pieces(stream, target.source):
        shifted = piece - numpy.float32(shift) if shift else piece
        rows[start : start + len(piece)] = torch.from_numpy(shifted)
        start += len(piece)
    heads = _permuted_heads(target.name, plan.values) if plan.architecture.permuted_heads else None
    return result if heads is None else unpermute_rows(result, heads)


def _permuted_heads(parameter: str, values: dict[str, Any]) -> int | None:
    if ".q_proj." in parameter:
        return int(values["num_attention_heads"])
    if ".k_proj." in parameter:
        return int(values["num_key_value_heads"])
    return None


def unpermute_rows(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo the interleaving of rotary pairs.

    Rows ``0, h, 1, h+1, …`` of each head of ``2 h`` rows become ``0, 1, …, h, h+1, …``.

    Args:
        tensor: ``[heads * head size, ...]``.
        heads: number of heads.
    """
    half = tensor.shape[0] // heads // 2
    pairs = tensor.reshape(heads, half, 2, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape).contiguous()


def _dequantized_pieces(stream: BinaryIO, tensor: GgufTensor) -> Iterator[NDArray[numpy.float32]]:
    """float32 arrays ``[rows, last axis]`` of at most `PIECE_BYTES`, in order."""
    row_count = prod(tensor.shape[:-1])
    rows_per_piece = max(1, PIECE_BYTES // (4 * tensor.shape[-1]))
    stream.seek(tensor.start)
    for start in range(0, row_count, rows_per_piece):
        count = min(rows_per_piece, row_count - start)
        data = stream.read(count * tensor.row_bytes)
        if len(data) != count * tensor.row_bytes:
            raise ModelFileError(f"the GGUF file ended inside '{tensor.name}' while it was read")
        stored = numpy.frombuffer(data, dtype=numpy.uint8).reshape(count, tensor.row_bytes)
        values = gguf.dequantize(stored, tensor.type)
        yield numpy.array(values, dtype=numpy.float32)
