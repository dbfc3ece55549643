"""Configurations that are accepted, and what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphsink.config import ModelSection
from graphsink.engine.model.configuration import ConfigurationResult, load_configuration
from graphsink.engine.model.model_source import ModelSource, SourceKind
from support.tiny_models import FAMILIES, edit_json, family_values, write_model_directory


def from_values(values: dict[str, Any], **section: Any) -> ConfigurationResult:
    source = ModelSource(SourceKind.RANDOM, written="")
    return load_configuration(source, ModelSection(with_ckpt=False, hf_config=values, **section))


def from_directory(directory: Path, **section: Any) -> ConfigurationResult:
    source = ModelSource(
        SourceKind.DIRECTORY, written="m", directory=directory, tokenizer_directory=directory
    )
    return load_configuration(source, ModelSection(model_path="m", **section))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_tested_family_passes(family: str) -> None:
    values = family_values(family)
    result = from_values(values)
    assert result.config.model_type == values["model_type"]
    assert result.full_layers == values["num_hidden_layers"]
    assert (result.generation_config, result.notes) == (None, ())


def test_a_directory_gives_the_same_configuration_and_its_generation_defaults(tmp_path: Path) -> None:
    write_model_directory(tmp_path, family_values("qwen3"))
    edit_json(tmp_path / "generation_config.json", eos_token_id=[2, 5], temperature=0.6, do_sample=True)
    result = from_directory(tmp_path)
    assert result.config.head_dim == 32
    assert result.config.num_key_value_heads == 2
    assert result.generation_config is not None
    assert result.generation_config.eos_token_id == [2, 5]


@pytest.mark.parametrize(
    ("family", "extra"),
    [
        ("llama", {"num_experts": None}),
        ("llama", {"num_local_experts": 0}),
        ("llama", {"num_experts_per_tok": 1}),
        ("llama", {"is_moe": False, "num_experts": 64}),
        ("llama", {"quantization_config": None}),
        ("llama", {"use_experts": True}),
    ],
)
def test_keys_of_dense_models_are_not_mistaken_for_experts(family: str, extra: dict[str, Any]) -> None:
    assert from_values(family_values(family) | extra).full_layers == 2


@pytest.mark.parametrize("where", ["inline", "directory"])
def test_fewer_layers_cut_the_lists_that_go_by_layer(tmp_path: Path, where: str) -> None:
    values = family_values("gemma3")
    section: dict[str, Any] = {"custom_params": {"num_hidden_layers": 6}}
    if where == "inline":
        result = from_values(values, **section)
    else:
        write_model_directory(tmp_path, values)
        result = from_directory(tmp_path, **section)
    assert (result.config.num_hidden_layers, result.full_layers) == (6, 7)
    assert result.config.layer_types == ["sliding_attention"] * 5 + ["full_attention"]
    assert result.config.sliding_window == 8
    assert result.notes == (
        "6 of 7 layers run (model_config.custom_params.num_hidden_layers); the text will not make sense",
    )


def test_layers_of_a_family_with_another_name_for_them() -> None:
    values = {"model_type": "gpt2", "n_embd": 32, "n_layer": 4, "n_head": 2, "vocab_size": 64}
    values |= {"bos_token_id": 1, "eos_token_id": 2}
    result = from_values(values, custom_params={"num_hidden_layers": 3})
    assert (result.config.n_layer, result.full_layers) == (3, 4)


def test_all_layers_named_is_not_worth_a_note() -> None:
    assert from_values(family_values("llama"), custom_params={"num_hidden_layers": 2}).notes == ()


def test_code_in_the_directory_runs_only_when_switched_on_and_is_said_so(tmp_path: Path) -> None:
    write_model_directory(tmp_path, family_values("llama"))
    (tmp_path / "own_code.py").write_text(
        "from transformers import LlamaConfig\n\n\nclass OwnConfig(LlamaConfig):\n    model_type = 'own'\n"
    )
    edit_json(tmp_path / "config.json", model_type="own", auto_map={"AutoConfig": "own_code.OwnConfig"})
    result = from_directory(tmp_path, trust_remote_code=True)
    assert type(result.config).__name__ == "OwnConfig"
    assert result.notes == (
        f"trust_remote_code is on: Python code from '{tmp_path}' runs "
        "(config.json: AutoConfig: own_code.OwnConfig)",
    )
