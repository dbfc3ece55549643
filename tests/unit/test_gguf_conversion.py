"""GGUF files become exactly the model they were written from."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import numpy
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from graphsink.engine.model.gguf_architectures import ARCHITECTURES, llama3_rope_factors
from graphsink.engine.model.gguf_conversion import (
    conversion_notes,
    convert_gguf,
    materialize,
    unpermute_rows,
)
from graphsink.engine.model.model_source import ModelSource, SourceKind
from support.tiny_gguf import all_float32, mixed_types, permute, write_gguf
from support.tiny_models import build_model, family_values, train_backend

TOKENS = torch.tensor([[5, 9, 200, 31, 7, 7, 42, 300, 11, 3, 77, 8]])


def logits_of(directory: Path) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    )
    with torch.no_grad():
        return model(TOKENS).logits


# Gemma models have no head of their own.
HEADS = [(family, True) for family in sorted(ARCHITECTURES)]
HEADS += [(family, False) for family in sorted(ARCHITECTURES) if not family.startswith("gemma")]


@pytest.mark.parametrize(("family", "tied"), HEADS)
def test_a_float32_file_gives_the_logits_of_the_model_it_came_from(
    tmp_path: Path, family: str, tied: bool
) -> None:
    model = build_model(family_values(family, tie_word_embeddings=tied))
    write_gguf(tmp_path / "m.gguf", model)
    directory = convert_gguf(tmp_path / "m.gguf", torch.float32, cache=tmp_path)
    with torch.no_grad():
        expected = model(TOKENS).logits
    # 1 added to a norm weight in float32 and taken away again loses its last bits
    tolerance = 1e-4 if family.startswith("gemma") else 0.0
    torch.testing.assert_close(logits_of(directory), expected, rtol=tolerance, atol=tolerance)


def test_biases_of_permuted_projections_are_restored_too(tmp_path: Path) -> None:
    model = build_model(family_values("llama", attention_bias=True, mlp_bias=True))
    write_gguf(tmp_path / "m.gguf", model)
    directory = convert_gguf(tmp_path / "m.gguf", torch.float32, cache=tmp_path)
    with torch.no_grad():
        assert torch.equal(logits_of(directory), model(TOKENS).logits)


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_quantised_tensors_equal_the_librarys_own_import_after_rounding(tmp_path: Path, family: str) -> None:
    model = build_model(family_values(family))
    path = tmp_path / "m.gguf"
    write_gguf(path, model, type_of=mixed_types)
    ours = load_file(convert_gguf(path, torch.bfloat16, cache=tmp_path) / "model.safetensors")
    theirs = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    assert set(ours) == set(theirs)
    for name, tensor in ours.items():
        assert tensor.dtype is torch.bfloat16
        assert torch.equal(tensor, theirs[name].to(torch.bfloat16)), name


def test_large_tensors_are_dequantised_in_pieces_without_a_seam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_model(family_values("llama"))
    write_gguf(tmp_path / "m.gguf", model, type_of=mixed_types)
    whole = load_file(
        convert_gguf(tmp_path / "m.gguf", torch.float32, cache=tmp_path / "a") / "model.safetensors"
    )
    monkeypatch.setattr("graphsink.engine.model.gguf_conversion.PIECE_BYTES", 7 * 64 * 4)
    pieces = load_file(
        convert_gguf(tmp_path / "m.gguf", torch.float32, cache=tmp_path / "b") / "model.safetensors"
    )
    assert all(torch.equal(whole[name], pieces[name]) for name in whole)


def test_unpermute_undoes_the_interleaving_of_each_head() -> None:
    rows = torch.arange(8.0)[:, None]
    interleaved = torch.tensor([0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0])[:, None]
    assert torch.equal(unpermute_rows(interleaved, heads=2), rows)
    assert numpy.array_equal(permute(rows.numpy(), 2), interleaved.numpy())


def test_llama3_frequency_scaling_is_recognised_from_its_factors(tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    model = build_model(family_values("llama", head_dim=64, rope_parameters=rope))
    factors = numpy.array(llama3_rope_factors(64, 500000.0, 8.0))
    write_gguf(tmp_path / "m.gguf", model, extra_tensors={"rope_freqs.weight": factors})
    directory = convert_gguf(tmp_path / "m.gguf", torch.float32, cache=tmp_path)
    config = AutoConfig.from_pretrained(directory)
    assert {key: config.rope_parameters[key] for key in rope} == rope
    with torch.no_grad():
        assert torch.equal(logits_of(directory), model(TOKENS).logits)


def test_llama3_factors_equal_the_librarys_frequencies() -> None:
    model = build_model(
        family_values(
            "llama",
            head_dim=64,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 32.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
        )
    )
    plain = 10000.0 ** (-torch.arange(0, 64, 2) / 64)
    expected = plain / torch.tensor(llama3_rope_factors(64, 10000.0, 32.0))
    torch.testing.assert_close(model.model.rotary_emb.inv_freq, expected, rtol=1e-5, atol=0)


def test_configuration_tokens_and_generation_defaults_are_written(tmp_path: Path) -> None:
    model = build_model(family_values("granite"))
    write_gguf(tmp_path / "m.gguf", model, extra={"tokenizer.ggml.eot_token_id": 7})
    directory = convert_gguf(tmp_path / "m.gguf", torch.bfloat16, cache=tmp_path)
    config = json.loads((directory / "config.json").read_text())
    assert config["architectures"] == ["GraniteForCausalLM"]
    assert config["dtype"] == "bfloat16"
    assert config["rms_norm_eps"] == model.config.rms_norm_eps  # the decimal, not the nearest float32
    assert config["attention_multiplier"] == 0.25
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (1, 2, 0)
    generation = json.loads((directory / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [2, 7]


def test_the_conversion_happens_once_per_content_and_type(tmp_path: Path) -> None:
    model = build_model(family_values("llama"))
    write_gguf(tmp_path / "m.gguf", model)
    calls: list[float] = []
    first = convert_gguf(tmp_path / "m.gguf", torch.bfloat16, cache=tmp_path / "c", progress=calls.append)
    assert calls[-1] == 1.0
    assert calls == sorted(calls)
    count = len(calls)
    assert (
        convert_gguf(tmp_path / "m.gguf", torch.bfloat16, cache=tmp_path / "c", progress=calls.append)
        == first
    )
    assert len(calls) == count
    other_type = convert_gguf(tmp_path / "m.gguf", torch.float32, cache=tmp_path / "c")
    write_gguf(tmp_path / "m.gguf", build_model(family_values("llama"), seed=1))
    other_content = convert_gguf(tmp_path / "m.gguf", torch.bfloat16, cache=tmp_path / "c")
    assert len({first, other_type, other_content}) == 3


def _convert_in_process(path: str, cache: str, queue: multiprocessing.Queue) -> None:
    queue.put(str(convert_gguf(Path(path), torch.float32, cache=Path(cache))))


@pytest.mark.slow
def test_two_processes_may_convert_the_same_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", build_model(family_values("llama")))
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    cache = tmp_path / "cache"
    workers = [
        context.Process(target=_convert_in_process, args=(str(tmp_path / "m.gguf"), str(cache), queue))
        for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    results = {queue.get(timeout=120) for _ in workers}
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0
    assert len(results) == 1
    assert [path.name for path in cache.iterdir()] == [Path(results.pop()).name]


def test_materialize_converts_gguf_sources_and_passes_others_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHSINK_CACHE_DIR", str(tmp_path / "cache"))
    write_gguf(tmp_path / "m.gguf", build_model(family_values("llama")), pre="a-rule-of-the-future")
    source = ModelSource(SourceKind.GGUF, written="m.gguf", gguf=tmp_path / "m.gguf")
    converted = materialize(source, torch.bfloat16)
    assert converted.directory is not None
    assert converted.directory.parent == tmp_path / "cache" / "models"
    assert converted.tokenizer_directory == converted.directory
    assert "'a-rule-of-the-future' is not known" in converted.notes[0]
    assert conversion_notes(converted.directory) == converted.notes
    inline = ModelSource(SourceKind.RANDOM, written="")
    assert materialize(inline, torch.bfloat16) is inline


def test_a_file_without_tokenizer_says_so(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", build_model(family_values("llama")), tokenizer=False, type_of=all_float32)
    directory = convert_gguf(tmp_path / "m.gguf", torch.float32, cache=tmp_path)
    assert conversion_notes(directory) == ("the GGUF file has no tokenizer; prompts must be token ids",)
    assert not (directory / "tokenizer.json").exists()


def test_the_converted_tokenizer_is_the_one_that_was_written(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", build_model(family_values("llama")), pre="gpt-2")
    tokenizer = AutoTokenizer.from_pretrained(
        convert_gguf(tmp_path / "m.gguf", torch.float32, cache=tmp_path), local_files_only=True
    )
    text = "the other café 🙂 in 2024<|im_end|>\n"
    assert tokenizer.encode(text) == train_backend().encode(text).ids
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.chat_template is not None
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token_id) == (
        "<|im_start|>",
        "<|im_end|>",
        0,
    )
