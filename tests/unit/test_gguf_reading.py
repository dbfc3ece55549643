"""The reader agrees with the gguf package about whole files."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy
import pytest

from graphsink.engine.model.gguf_reading import as_written, looks_like_gguf, read_gguf
from support.tiny_gguf import mixed_types, write_gguf
from support.tiny_models import build_model, family_values


def test_tensors_and_values_are_where_the_library_finds_them(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, build_model(family_values("llama")), type_of=mixed_types)
    ours = read_gguf(path)
    theirs = gguf.GGUFReader(path)
    content = path.read_bytes()
    assert set(ours.tensors) == {tensor.name for tensor in theirs.tensors}
    for tensor in theirs.tensors:
        found = ours.tensors[tensor.name]
        assert found.shape == tuple(int(size) for size in reversed(tensor.shape))
        assert found.type is tensor.tensor_type
        assert found.start == tensor.data_offset
        assert content[found.start : found.start + found.size] == tensor.data.tobytes()
    for key, field in theirs.fields.items():
        if key.startswith("GGUF."):
            continue
        expected = field.contents()
        if isinstance(expected, float):
            assert numpy.float32(ours.metadata[key]) == numpy.float32(expected)
        else:
            assert ours.metadata[key] == expected, key


def test_every_kind_of_value_is_read(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "v.gguf", "llama")
    values = {
        "uint8": 200, "int8": -100, "uint16": 60_000, "int16": -30_000, "uint32": 4_000_000_000,
        "int32": -2_000_000_000, "uint64": 2**63, "int64": -(2**62), "float64": 0.1, "bool": True,
        "string": "naïve 漢字",
    }  # fmt: skip
    for name, value in values.items():
        getattr(writer, f"add_{name}")(f"x.{name}", value)
    writer.add_array("x.numbers", [1, 2, 3])
    writer.add_array("x.texts", ["a", "", "ö"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata = read_gguf(tmp_path / "v.gguf").metadata
    assert {name: metadata[f"x.{name}"] for name in values} == values
    assert metadata["x.numbers"] == [1, 2, 3]
    assert metadata["x.texts"] == ["a", "", "ö"]


@pytest.mark.parametrize("decimal", [1e-5, 1e-6, 0.1, 500000.0, 0.0078125, 1000000.0])
def test_float32_values_come_back_as_the_decimal_that_was_meant(decimal: float) -> None:
    assert as_written(float(numpy.float32(decimal))) == decimal


def test_the_magic_number_decides(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"GGUF....")
    (tmp_path / "b").write_bytes(b"GGU")
    assert looks_like_gguf(tmp_path / "a")
    assert not looks_like_gguf(tmp_path / "b")
    assert not looks_like_gguf(tmp_path / "missing")
    assert not looks_like_gguf(tmp_path)
