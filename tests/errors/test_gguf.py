"""GGUF files that cannot be converted, and what is left behind."""

from __future__ import annotations

import contextlib
import errno
import io
import shutil
import struct
from collections import namedtuple
from pathlib import Path
from typing import Any

import gguf
import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphsink.engine.model import gguf_conversion
from graphsink.engine.model.gguf_conversion import convert_gguf
from graphsink.engine.model.gguf_reading import read_gguf
from graphsink.errors import (
    CapacityError,
    GraphsinkError,
    ModelFileError,
    TokenizerError,
    UnsupportedModelError,
)
from support.tiny_gguf import write_gguf
from support.tiny_models import build_model, family_values


@pytest.fixture(scope="module")
def good_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "good.gguf"
    write_gguf(path, build_model(family_values("llama")))
    return path


def refuse(path: Path, kind: type[GraphsinkError] = UnsupportedModelError) -> GraphsinkError:
    cache = path.parent / "cache"
    with pytest.raises(kind) as caught:
        convert_gguf(path, torch.bfloat16, cache=cache)
    assert not cache.exists() or list(cache.iterdir()) == []
    return caught.value


def refuse_written(
    directory: Path, kind: type[GraphsinkError] = UnsupportedModelError, **options: Any
) -> str:
    write_gguf(directory / "m.gguf", build_model(family_values("llama")), **options)
    return refuse(directory / "m.gguf", kind).what


def test_a_missing_file(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refuse(tmp_path / "m.gguf", ModelFileError).what


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "its header needs at least 4 bytes, the file has 0"),
        (b"PK\x03\x04 zip", "it starts with b'PK\\x03\\x04', not with b'GGUF'"),
        (b"GGUF" + struct.pack("<I", 1), "it has version 1"),
        (b"GGUF" + struct.pack(">I", 3), "it is big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**40, 1), "it announces 1,099,511,627,776 tensors and 1 values"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**60), "its header needs at least"),
        (b"GGUF" + struct.pack("<IQQQcI", 3, 0, 1, 1, b"a", 99), "it holds a value of the unknown type 99"),
        (
            b"GGUF" + struct.pack("<IQQQcIIQ", 3, 0, 1, 1, b"a", 9, 8, 2**50),
            "an array of 1,125,899,906,842,624 texts does not fit into the file",
        ),
        (b"GGUF" + struct.pack("<IQQQ2s", 3, 0, 1, 2, b"\xff\xfe"), "the text at byte 32 is not UTF-8"),
    ],
)
def test_a_file_that_is_not_gguf_or_damaged(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    error = refuse(tmp_path / "m.gguf", ModelFileError)
    assert error.what.startswith("'m.gguf' is not a usable GGUF file: ")
    assert words in error.what


def test_a_truncated_file_gives_both_sizes(tmp_path: Path, good_file: Path) -> None:
    content = good_file.read_bytes()
    path = tmp_path / "m.gguf"
    path.write_bytes(content[:-40])
    needed = max(t.start + t.size for t in read_gguf(good_file).tensors.values())
    assert refuse(path, ModelFileError).what == (
        "'m.gguf' is not a usable GGUF file: it is truncated: "
        f"its tensors need {needed:,} bytes, the file has {len(content) - 40:,}"
    )
    path.write_bytes(content[:500])
    assert "its header needs at least" in refuse(path, ModelFileError).what


@settings(max_examples=200, deadline=None, print_blob=True)
@given(st.data())
def test_damage_anywhere_in_the_header_gives_our_errors_only(
    tmp_path_factory: pytest.TempPathFactory, good_file: Path, data: st.DataObject
) -> None:
    content = bytearray(good_file.read_bytes()[:12_000])
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(content)
    with contextlib.suppress(ModelFileError, UnsupportedModelError):
        read_gguf(path)


def metadata_only(path: Path, architecture: str, **values: Any) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in values.items():
        writer.add_uint32(key.replace("__", "."), value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_an_architecture_without_a_row(tmp_path: Path) -> None:
    error = refuse(metadata_only(tmp_path / "m.gguf", "mamba"))
    assert error.what == (
        "GGUF files of the architecture 'mamba' cannot be converted; "
        "supported: llama, qwen2, qwen3, gemma2, gemma3, phi3, granite, olmo2"
    )


@pytest.mark.parametrize("architecture", ["llama", "qwen3moe"])
def test_mixture_of_experts(tmp_path: Path, architecture: str) -> None:
    values = {f"{architecture}__expert_count": 8}
    error = refuse(metadata_only(tmp_path / "m.gguf", architecture, **values))
    assert f"'{architecture}' is a mixture-of-experts model ({architecture}.expert_count: 8)" in error.what


def test_one_part_of_several(tmp_path: Path) -> None:
    error = refuse(metadata_only(tmp_path / "m.gguf", "llama", split__count=3))
    assert "the GGUF model is split into 3 files" in error.what


def test_missing_metadata(tmp_path: Path) -> None:
    error = refuse(metadata_only(tmp_path / "m.gguf", "llama"), ModelFileError)
    assert error.what == "the GGUF file has no 'llama.context_length'"


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"llama.vocab_size": "many"}, "sets 'llama.vocab_size' to 'many', not to a number"),
        ({"llama.vocab_size": float("nan")}, "sets 'llama.vocab_size' to nan, not to a number"),
        ({"general.alignment": 0}, "its alignment is 0"),
    ],
)
def test_metadata_that_are_no_numbers(tmp_path: Path, extra: dict[str, Any], words: str) -> None:
    assert words in refuse_written(tmp_path, ModelFileError, extra=extra)


def test_a_wrong_number_of_layers_is_not_built(tmp_path: Path, good_file: Path) -> None:
    content = bytearray(good_file.read_bytes())
    place = content.index(b"llama.block_count") + len(b"llama.block_count") + 4
    content[place : place + 4] = struct.pack("<I", 2**31)
    (tmp_path / "m.gguf").write_bytes(content)
    what = refuse(tmp_path / "m.gguf", ModelFileError).what
    assert what == "the GGUF file announces 2,147,483,648 layers and has tensors of 2"


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"llama.rope.scaling.type": "yarn"}, "'llama.rope.scaling.type: yarn'"),
        ({"llama.rope.scaling.factor": 4.0}, "'llama.rope.scaling.factor: 4.0'"),
        ({"llama.attention.sliding_window": 4096}, "'llama.attention.sliding_window: 4096'"),
        ({"llama.attention.max_alibi_bias": 8.0}, "'llama.attention.max_alibi_bias: 8.0'"),
    ],
)
def test_metadata_that_would_change_the_text_are_not_ignored(
    tmp_path: Path, extra: dict[str, Any], words: str
) -> None:
    what = refuse_written(tmp_path, extra=extra)
    assert words in what
    assert "which the conversion does not understand" in what


def test_harmless_metadata_pass(tmp_path: Path) -> None:
    extra = {"llama.rope.scaling.type": "none", "llama.attention.causal": True, "llama.expert_count": 0}
    write_gguf(tmp_path / "m.gguf", build_model(family_values("llama")), extra=extra)
    assert convert_gguf(tmp_path / "m.gguf", torch.bfloat16, cache=tmp_path / "c").is_dir()


def test_rotary_factors_that_are_not_llama3s(tmp_path: Path) -> None:
    what = refuse_written(tmp_path, extra_tensors={"rope_freqs.weight": numpy.linspace(1, 3, 8)})
    assert "in a way that is not Llama 3's ('rope_freqs.weight')" in what


def test_partial_rotary_embeddings(tmp_path: Path) -> None:
    model = build_model(family_values("qwen3"))
    write_gguf(tmp_path / "m.gguf", model, extra={"qwen3.rope.dimension_count": 8})
    assert "'rope.dimension_count' is 8" in refuse(tmp_path / "m.gguf").what


def test_missing_and_surplus_tensors(tmp_path: Path) -> None:
    what = refuse_written(tmp_path, ModelFileError, without=("blk.1.ffn_up.weight",))
    assert what == "1 tensors that the model needs are not in the GGUF file: 'blk.1.ffn_up.weight'"
    what = refuse_written(tmp_path, extra_tensors={"blk.0.attn_sinks.weight": numpy.zeros(4)})
    assert "1 tensors of the GGUF file have no place in a 'llama' model: 'blk.0.attn_sinks.weight'" in what


def test_a_tensor_of_wrong_shape(tmp_path: Path) -> None:
    what = refuse_written(
        tmp_path,
        ModelFileError,
        without=("blk.1.ffn_norm.weight",),
        extra_tensors={"blk.1.ffn_norm.weight": numpy.zeros(32)},
    )
    assert what == "1 tensors have the wrong shape: 'blk.1.ffn_norm.weight' is [32], the model needs [64]"


def test_a_tensor_type_nobody_knows(tmp_path: Path, good_file: Path) -> None:
    content = bytearray(good_file.read_bytes())
    place = content.index(b"blk.0.attn_norm.weight") + len(b"blk.0.attn_norm.weight") + 4 + 8
    content[place : place + 4] = struct.pack("<I", 250)
    (tmp_path / "m.gguf").write_bytes(content)
    assert "the tensor 'blk.0.attn_norm.weight' has the unknown type 250" in refuse(tmp_path / "m.gguf").what


def test_a_tensor_type_that_cannot_be_dequantised(tmp_path: Path, good_file: Path) -> None:
    content = bytearray(good_file.read_bytes())
    place = content.index(b"blk.0.attn_norm.weight") + len(b"blk.0.attn_norm.weight") + 4 + 8
    content[place : place + 4] = struct.pack("<I", gguf.GGMLQuantizationType.I32.value)
    (tmp_path / "m.gguf").write_bytes(content)
    assert "tensors of the type I32 cannot be dequantised" in refuse(tmp_path / "m.gguf").what


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"tokenizer.ggml.model": "rwkv"}, "a tokenizer of the kind 'rwkv'"),
        ({"tokenizer.ggml.model": "gpt2"}, "the GGUF file has no list 'tokenizer.ggml.tokens'"),
        ({"tokenizer.ggml.model": "llama"}, "the GGUF file has no list 'tokenizer.ggml.tokens'"),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b", "a"]},
            "tokens are listed twice: 'a'",
        ),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.merges": ["a"]},
            "the merge 'a' is not two tokens",
        ),
        (
            {
                "tokenizer.ggml.model": "gpt2",
                "tokenizer.ggml.tokens": ["a"],
                "tokenizer.ggml.merges": ["a b"],
            },
            "vocabulary and merges contradict each other",
        ),
    ],
)
def test_a_tokenizer_that_cannot_be_rebuilt(tmp_path: Path, extra: dict[str, Any], words: str) -> None:
    assert words in refuse_written(tmp_path, TokenizerError, tokenizer=False, extra=extra)


def test_a_special_token_outside_the_vocabulary(tmp_path: Path) -> None:
    what = refuse_written(tmp_path, TokenizerError, extra={"tokenizer.ggml.unknown_token_id": 9999})
    assert what.startswith("'tokenizer.ggml.unknown_token_id' is 9999, but there are ")


def test_a_disk_that_is_too_small_is_seen_before_writing(
    good_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")(100, 90, 10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    shutil.copy(good_file, tmp_path / "m.gguf")
    error = refuse(tmp_path / "m.gguf", CapacityError)
    assert isinstance(error, CapacityError)
    assert (error.available, error.unit) == (10, "bytes")
    assert error.needed == sum(p.numel() * 2 for p in build_model(family_values("llama")).parameters())


def test_a_disk_that_fills_up_leaves_nothing_behind(
    good_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(gguf_conversion, "_write_weights", full)
    shutil.copy(good_file, tmp_path / "m.gguf")
    assert "not enough disk space" in refuse(tmp_path / "m.gguf", CapacityError).what


def test_an_interruption_leaves_nothing_behind(
    good_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_gguf(good_file, torch.bfloat16, cache=tmp_path / "c", progress=interrupt)
    assert list((tmp_path / "c").iterdir()) == []


def test_a_file_that_shrinks_while_it_is_read(good_file: Path) -> None:
    tensor = read_gguf(good_file).tensors["token_embd.weight"]
    with pytest.raises(ModelFileError, match=r"ended inside 'token_embd\.weight'"):
        list(gguf_conversion._dequantized_pieces(io.BytesIO(b"\0" * (tensor.start + 10)), tensor))
