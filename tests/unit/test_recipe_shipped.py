"""The recipes in recipes/: they load, and their configurations build."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from graphsink.config import BUILT_EXECUTION_MODES
from graphsink.errors import NotSupportedError
from graphsink.recipe import check_runnable, load_prompts, load_recipe

RECIPES = Path(__file__).parent.parent.parent / "recipes"
FAMILIES = {
    "llama": (8, 2, True),
    "qwen3": (4, 2, False),
    "qwen2": (8, 2, True),
    "mistral": (8, 2, False),
    "gemma2": (4, 2, True),
    "gemma3": (4, 1, True),
    "phi3": (8, 4, False),
    "olmo2": (8, 4, False),
    "granite": (8, 2, True),
}
"""Family → query heads, KV heads, tied head."""


def _config(path: Path) -> Any:
    inline = load_recipe(path).recipe.model.hf_config
    assert inline is not None
    keys = {key: value for key, value in inline.items() if key != "model_type"}
    config = AutoConfig.for_model(inline["model_type"], **keys)
    known = {field.name for field in dataclasses.fields(type(config))}
    assert set(keys) <= known, "a key that the library does not use is a mistake in the recipe"
    return config


def test_one_recipe_per_tested_family() -> None:
    assert {path.stem for path in (RECIPES / "families").glob("*.yaml")} == set(FAMILIES)


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.yaml")), ids=lambda path: path.stem)
def test_loads_and_can_run(path: Path) -> None:
    loaded = load_recipe(path)
    if loaded.recipe.model.exe_mode in BUILT_EXECUTION_MODES:
        check_runnable(loaded.recipe)
    else:
        with pytest.raises(NotSupportedError, match="is not built yet"):
            check_runnable(loaded.recipe)
    assert load_prompts(loaded)
    expected = (
        ["model_name", "world_size", "model_config.enable_profiler"] if path.stem == "qwen3_8b_1tp" else []
    )
    assert [note.key for note in loaded.notes] == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_family_builds_and_its_ids_are_in_the_vocabulary(family: str) -> None:
    path = RECIPES / "families" / f"{family}.yaml"
    heads, kv_heads, tied = FAMILIES[family]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = _config(path)
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    assert (config.num_attention_heads, config.num_key_value_heads) == (heads, kv_heads)
    assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) is tied
    prompts = [item.token_ids for item in load_prompts(load_recipe(path))]
    assert len({len(ids) for ids in prompts if ids is not None}) == 2, "prompts of different length"
    for ids in prompts:
        assert ids is not None
        assert max(ids) < config.vocab_size
        with torch.no_grad():
            assert model(torch.tensor([ids])).logits.isfinite().all()
    for special in (config.bos_token_id, config.eos_token_id, config.pad_token_id):
        assert 0 <= special < config.vocab_size


def test_windows_are_shorter_than_the_longest_prompt() -> None:
    for family in ("mistral", "gemma2", "gemma3"):
        path = RECIPES / "families" / f"{family}.yaml"
        longest = max(len(item.token_ids or ()) for item in load_prompts(load_recipe(path)))
        assert _config(path).sliding_window < longest
    gemma3 = _config(RECIPES / "families" / "gemma3.yaml")
    assert set(gemma3.layer_types) == {"sliding_attention", "full_attention"}
    gemma2 = _config(RECIPES / "families" / "gemma2.yaml")
    assert (gemma2.attn_logit_softcapping, gemma2.final_logit_softcapping) == (50.0, 30.0)


def test_qwen3_has_its_real_shape() -> None:
    config = _config(RECIPES / "qwen3_0_6b_random.yaml")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == 596_049_920
    assert config.rope_parameters["rope_theta"] == 1e6
    assert config.max_position_embeddings == 40960


def test_reference_recipe_has_the_fields_of_the_frozen_one() -> None:
    frozen = load_recipe(Path(__file__).parent.parent / "data" / "recipes" / "reference_1tp.yaml").recipe
    shipped = load_recipe(RECIPES / "qwen3_8b_1tp.yaml").recipe
    changed = shipped.model.model_copy(update={"model_path": frozen.model.model_path})
    assert shipped.model_copy(update={"model": changed}) == frozen
