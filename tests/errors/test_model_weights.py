"""Weight files that are missing, damaged or do not fit."""

from __future__ import annotations

import contextlib
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, PreTrainedConfig

from graphsink.engine.model.model_source import ModelSource, SourceKind
from graphsink.engine.model.safetensors_reading import read_header
from graphsink.engine.model.weights import build_empty_model, load_weights
from graphsink.errors import (
    CapacityError,
    GraphsinkError,
    InternalError,
    ModelFileError,
    UnsupportedModelError,
)
from support.tiny_models import family_values, write_model_directory


@pytest.fixture
def model(tmp_path: Path) -> PreTrainedConfig:
    return write_model_directory(tmp_path, family_values("llama")).config


def refuse(
    config: PreTrainedConfig, directory: Path, kind: type[GraphsinkError] = ModelFileError
) -> GraphsinkError:
    source = ModelSource(SourceKind.DIRECTORY, written="m", directory=directory)
    with pytest.raises(kind) as caught:
        load_weights(config, source, torch.float32, attn_implementation="eager")
    return caught.value


def rewrite(directory: Path, **changes: torch.Tensor | None) -> None:
    """Change tensors of the single file; ``None`` leaves one out."""
    path = directory / "model.safetensors"
    tensors = load_file(path) | {name.replace("__", "."): tensor for name, tensor in changes.items()}
    save_file(
        {name: tensor for name, tensor in tensors.items() if tensor is not None}, path, {"format": "pt"}
    )


def test_no_weights(tmp_path: Path, model: PreTrainedConfig) -> None:
    (tmp_path / "model.safetensors").unlink()
    error = refuse(model, tmp_path)
    assert error.what == "the directory has no weights (*.safetensors)"
    assert error.hint is not None
    assert "with_ckpt: False" in error.hint


def test_pickle_only_directories_are_refused_by_name(tmp_path: Path, model: PreTrainedConfig) -> None:
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    error = refuse(model, tmp_path)
    assert error.what == (
        "the directory has only pickle weights ('pytorch_model.bin'); loading them could run code"
    )


def test_shards_without_index(tmp_path: Path, model: PreTrainedConfig) -> None:
    (tmp_path / "model.safetensors").rename(tmp_path / "model-00001-of-00002.safetensors")
    assert "neither 'model.safetensors' nor 'model.safetensors.index.json'" in refuse(model, tmp_path).what


def test_a_missing_tensor_is_named_and_never_made_up(tmp_path: Path, model: PreTrainedConfig) -> None:
    rewrite(tmp_path, model__norm__weight=None)
    error = refuse(model, tmp_path)
    assert error.what == "1 tensors that the model needs are not in its files: 'model.norm.weight'"
    assert error.where == str(tmp_path)


def test_a_wrong_shape_is_named_with_both_shapes(tmp_path: Path, model: PreTrainedConfig) -> None:
    rewrite(tmp_path, model__norm__weight=torch.zeros(63))
    assert refuse(model, tmp_path).what == (
        "1 tensors have the wrong shape: 'model.norm.weight' is [63], the model needs [64]"
    )


def test_a_wrong_shape_under_an_old_name_is_found_after_renaming(
    tmp_path: Path, model: PreTrainedConfig
) -> None:
    rewrite(tmp_path, model__norm__weight=None, norm__weight=torch.zeros(63))
    assert "'model.norm.weight' is [63], the model needs [64]" in refuse(model, tmp_path).what


@pytest.mark.parametrize("keep", [0, 4, 8, 200, -1, -1000])
def test_a_truncated_file_gives_both_sizes(tmp_path: Path, model: PreTrainedConfig, keep: int) -> None:
    path = tmp_path / "model.safetensors"
    size = path.stat().st_size
    kept = keep if keep >= 0 else size + keep
    path.write_bytes(path.read_bytes()[:kept])
    error = refuse(model, tmp_path)
    assert error.what.startswith("'model.safetensors' is not usable: ")
    assert f"{kept:,}" in error.what
    if keep < 0:
        assert f"it is truncated: its tensors need {size:,} bytes, the file has {kept:,}" in error.what


def with_header(path: Path, header: bytes, data: bytes = b"") -> None:
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"not json", "its header is not JSON"),
        (b"[1, 2]", "its header is not a JSON object"),
        (b'{"a": 1}', "the header entry of 'a' is malformed"),
        (b'{"a": {"dtype": "F32", "shape": [2]}}', "the header entry of 'a' is malformed"),
        (
            b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
            "the tensor 'a' has 4 bytes, its shape needs 8",
        ),
        (b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}', "the tensor 'a'"),
        (b"\xff" * 10, "its header is not JSON"),
        (b"[" * 50_000, "its header is not JSON"),
    ],
)
def test_a_header_that_contradicts_itself(
    tmp_path: Path, model: PreTrainedConfig, header: bytes, words: str
) -> None:
    with_header(tmp_path / "model.safetensors", header)
    assert words in refuse(model, tmp_path).what


def test_a_type_that_is_not_supported(tmp_path: Path, model: PreTrainedConfig) -> None:
    entry = {"a": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}
    with_header(tmp_path / "model.safetensors", json.dumps(entry).encode(), b"0")
    assert refuse(model, tmp_path).what.startswith("the tensor 'a' has the type F8_E4M3; supported: F64, F32")


@settings(max_examples=150, deadline=None, print_blob=True)
@given(st.binary(max_size=200), st.integers(0, 300))
def test_no_file_content_gives_anything_but_our_errors(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, length: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.safetensors"
    for data in (content, struct.pack("<Q", length) + content):
        path.write_bytes(data)
        with contextlib.suppress(ModelFileError):
            read_header(path)


def shard(tmp_path: Path) -> PreTrainedConfig:
    return write_model_directory(tmp_path / "s", family_values("llama"), shard_size="50KB").config


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    config = shard(tmp_path)
    files = sorted((tmp_path / "s").glob("*.safetensors"))
    files[1].unlink()
    assert (
        refuse(config, tmp_path / "s").what
        == f"1 of {len(files)} weight files are missing: '{files[1].name}'"
    )


def test_an_index_that_does_not_fit_its_files(tmp_path: Path) -> None:
    config = shard(tmp_path)
    path = tmp_path / "s" / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    first = next(iter(index["weight_map"].values()))
    index["weight_map"]["model.ghost.weight"] = first
    path.write_text(json.dumps(index))
    error = refuse(config, tmp_path / "s")
    assert error.what == "1 tensors of the index are in none of its files: 'model.ghost.weight'"
    index["weight_map"]["model.ghost.weight"] = "../../etc/passwd"
    path.write_text(json.dumps(index))
    assert "files outside the directory: '../../etc/passwd'" in refuse(config, tmp_path / "s").what
    path.write_text("{}")
    assert refuse(config, tmp_path / "s").what == "the index has no 'weight_map'"


def test_weights_larger_than_memory(tmp_path: Path, model: PreTrainedConfig) -> None:
    source = ModelSource(SourceKind.DIRECTORY, written="m", directory=tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"never read")
    with pytest.raises(CapacityError) as caught:
        load_weights(model, source, torch.float32, attn_implementation="eager", available_bytes=lambda: 1000)
    weights = sum(
        p.numel() * 4
        for p in build_empty_model(model, torch.float32, attn_implementation="eager").parameters()
    )
    assert caught.value.needed == weights + 64 * 2**20
    assert caught.value.available == 1000


def test_a_model_with_experts_is_refused_when_its_modules_show_them() -> None:
    config = AutoConfig.for_model(
        "qwen2_moe", hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_experts=2
    )
    with pytest.raises(UnsupportedModelError, match=r"mixture-of-experts model \(model\.layers\.0\.mlp"):
        build_empty_model(config, torch.float32, attn_implementation="eager")


def test_a_model_that_cannot_be_built_gives_the_reason() -> None:
    config = AutoConfig.for_model("llama", hidden_act="no-such-function", num_hidden_layers=1)
    with pytest.raises(UnsupportedModelError, match="no-such-function"):
        build_empty_model(config, torch.float32, attn_implementation="eager")


def test_a_gguf_source_must_be_materialized(model: PreTrainedConfig) -> None:
    source = ModelSource(SourceKind.GGUF, written="m.gguf", gguf=Path("m.gguf"))
    with pytest.raises(InternalError, match="was not materialized"):
        load_weights(model, source, torch.float32, attn_implementation="eager")


def rewrite_header(path: Path, change: Callable[[dict[str, Any]], str | None]) -> None:
    """Change the header of a safetensors file in place; ``change`` may return the new JSON text."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    text = change(header) or json.dumps(header)
    encoded = text.encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data[8 + length :])


def weight_entry(header: dict[str, Any], layer: int) -> dict[str, Any]:
    entry: dict[str, Any] = header[f"model.layers.{layer}.self_attn.q_proj.weight"]
    return entry


def overlapping(header: dict[str, Any]) -> None:
    weight_entry(header, 1)["data_offsets"] = weight_entry(header, 0)["data_offsets"]


def integer_typed(header: dict[str, Any]) -> None:
    weight_entry(header, 1)["dtype"] = "I32"


def twice(header: dict[str, Any]) -> str:
    name = "model.layers.0.self_attn.q_proj.weight"
    return json.dumps(header)[:-1] + f', "{name}": {json.dumps(header[name])}}}'


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (overlapping, "overlaps the one before it|leaves a gap before it"),
        (twice, "two entries 'model.layers.0.self_attn.q_proj.weight'"),
        (integer_typed, "layers.1.self_attn.q_proj.weight' has the type I32"),
    ],
)
def test_headers_that_give_a_weight_other_values_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], str | None], words: str
) -> None:
    """They would run, with plausible, wrong tokens."""
    config = write_model_directory(tmp_path, family_values("llama"), dtype=torch.float32).config
    rewrite_header(tmp_path / "model.safetensors", change)
    assert re.search(words, refuse(config, tmp_path).what)
