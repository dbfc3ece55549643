"""Weights arrive complete, in the wanted type, and as ordinary tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, PreTrainedConfig

from graphsink.engine.model.model_source import ModelSource, SourceKind
from graphsink.engine.model.safetensors_reading import FLOAT_TYPES, read_headers
from graphsink.engine.model.weights import LoadedWeights, build_empty_model, load_weights, parameter_bytes
from support.tiny_models import FAMILIES, build_model, family_values, write_model_directory

RANDOM = ModelSource(SourceKind.RANDOM, written="")
TOKENS = torch.tensor([[5, 9, 200, 31, 7, 42]])


def config_of(family: str, **overrides: Any) -> PreTrainedConfig:
    return AutoConfig.for_model(**family_values(family, **overrides))


def load(
    config: PreTrainedConfig,
    source: ModelSource | Path,
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> LoadedWeights:
    if isinstance(source, Path):
        source = ModelSource(SourceKind.DIRECTORY, written="m", directory=source)
    return load_weights(config, source, dtype, attn_implementation="eager", **options)


def test_an_empty_model_has_shapes_and_no_memory() -> None:
    model = build_empty_model(config_of("llama"), torch.bfloat16, attn_implementation="eager")
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model.model.embed_tokens.weight.shape == (320, 64)
    assert not model.training


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_directory_gives_the_logits_of_the_model_that_was_saved(tmp_path: Path, family: str) -> None:
    model = write_model_directory(tmp_path, family_values(family))
    loaded = load(model.config, tmp_path)
    assert loaded.notes == ()
    with torch.no_grad():
        assert torch.equal(loaded.module(TOKENS).logits, model(TOKENS).logits)


def test_loaded_tensors_are_ordinary_ones(tmp_path: Path) -> None:
    model = write_model_directory(tmp_path, family_values("llama"))
    loaded = load(model.config, tmp_path)
    for name, parameter in loaded.module.named_parameters():
        assert not parameter.requires_grad
        assert not parameter.is_inference()
        version = parameter._version
        parameter.add_(1.0)
        assert parameter._version == version + 1, name
    assert not loaded.module.training
    assert loaded.module.lm_head.weight is loaded.module.model.embed_tokens.weight
    assert loaded.weight_bytes == sum(p.numel() * 4 for p in model.parameters())


def test_loaded_tensors_do_not_depend_on_the_file_any_more(tmp_path: Path) -> None:
    model = write_model_directory(tmp_path, family_values("llama"))
    loaded = load(model.config, tmp_path)
    with torch.no_grad():
        before = loaded.module(TOKENS).logits
        with (tmp_path / "model.safetensors").open("r+b") as file:
            file.truncate(100)
        assert torch.equal(loaded.module(TOKENS).logits, before)


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    model = write_model_directory(tmp_path, family_values("qwen2"), shard_size="50KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    loaded = load(model.config, tmp_path)
    expected = model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.module.state_dict().items())


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16])
def test_values_are_rounded_once_from_the_stored_type(
    tmp_path: Path, stored: torch.dtype, wanted: torch.dtype
) -> None:
    model = write_model_directory(tmp_path, family_values("llama"), dtype=stored)
    loaded = load(model.config, tmp_path, wanted)
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.module.state_dict()[name], tensor.to(wanted)), name


def test_tensors_outside_the_model_are_noted(tmp_path: Path) -> None:
    model = write_model_directory(tmp_path, family_values("llama"))
    path = tmp_path / "model.safetensors"
    save_file(load_file(path) | {"model.extra.weight": torch.zeros(2)}, path, {"format": "pt"})
    note = "1 tensors in the files are not part of the model: 'model.extra.weight'"
    assert load(model.config, tmp_path).notes == (note,)


def test_layers_that_were_cut_off_are_not_read(tmp_path: Path) -> None:
    model = write_model_directory(tmp_path, family_values("llama"))
    read = []
    loaded = load(config_of("llama", num_hidden_layers=1), tmp_path, progress=read.append)
    assert loaded.notes == ("9 tensors of layers from 1 on were not read",)
    assert len(loaded.module.model.layers) == 1
    wanted = [name for name in model.state_dict() if ".layers.1." not in name and name != "lm_head.weight"]
    assert len(read) == len(wanted)
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(loaded.module.state_dict()[name], model.state_dict()[name])


def test_progress_rises_to_one(tmp_path: Path) -> None:
    model = write_model_directory(tmp_path, family_values("llama"))
    for source in (tmp_path, RANDOM):
        shares: list[float] = []
        load(model.config, source, progress=shares.append)
        assert shares == sorted(shares)
        assert shares[-1] == 1.0


def test_the_type_table_agrees_with_the_library(tmp_path: Path) -> None:
    tensors = {str(index): torch.zeros(3, dtype=dtype) for index, dtype in enumerate(FLOAT_TYPES.values())}
    save_file(tensors, tmp_path / "model.safetensors")
    found = {name: FLOAT_TYPES[tensor.type_name] for name, tensor in read_headers(tmp_path).items()}
    assert found == {name: tensor.dtype for name, tensor in tensors.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_random_weights_depend_on_the_seed_and_nothing_else(dtype: torch.dtype) -> None:
    config = config_of("qwen3")
    threads = torch.get_num_threads()
    torch.manual_seed(1)
    state_before = torch.get_rng_state()
    try:
        torch.set_num_threads(1)
        one = load(config, RANDOM, dtype, seed=7)
        torch.set_num_threads(2)
        torch.randn(5)
        two = load(config, RANDOM, dtype, seed=7)
    finally:
        torch.set_num_threads(threads)
    other = load(config, RANDOM, dtype, seed=8)
    first, second, third = (w.module.state_dict() for w in (one, two, other))
    assert all(torch.equal(first[name], second[name]) for name in first)
    name = "model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(first[name], third[name])
    assert first[name].dtype is dtype
    assert one.notes == ("weights are random (seed 7); the text will not make sense",)
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state_before)


def test_random_weights_leave_the_callers_random_state_alone() -> None:
    torch.manual_seed(3)
    expected = torch.randn(4)
    torch.manual_seed(3)
    load(config_of("llama"), RANDOM, seed=1)
    assert torch.equal(torch.randn(4), expected)


def test_random_weights_follow_the_models_own_initialisation() -> None:
    module = load(config_of("qwen2", initializer_range=0.05), RANDOM).module
    weight = module.model.layers[0].mlp.up_proj.weight
    assert abs(weight.std().item() - 0.05) < 0.003
    assert torch.equal(module.model.norm.weight, torch.ones(64))
    assert torch.equal(module.model.layers[0].self_attn.q_proj.bias, torch.zeros(64))
    expected = build_model(family_values("qwen2")).model.rotary_emb.inv_freq
    assert torch.equal(module.model.rotary_emb.inv_freq, expected)


def test_tied_heads_of_random_models_are_tied() -> None:
    module = load(config_of("llama", tie_word_embeddings=True), RANDOM).module
    assert module.lm_head.weight is module.model.embed_tokens.weight


def test_the_memory_check_asks_before_reading(tmp_path: Path) -> None:
    model = write_model_directory(tmp_path, family_values("llama"))
    asked = []

    def plenty() -> int:
        asked.append(True)
        return 10**12

    available: Callable[[], int] = plenty
    assert load(model.config, tmp_path, available_bytes=available).weight_bytes == parameter_bytes(model)
    assert asked == [True]
