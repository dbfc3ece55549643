"""Overrides from the command line and from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphsink.config import Recipe
from graphsink.recipe import load_recipe, recipe_from_dict

BASE: dict[str, object] = {"model_config": {"model_path": "m"}}


def _value(recipe: Recipe, key: str) -> object:
    value: Any = recipe.as_dict()
    for part in key.split("."):
        value = value[part]
    return value


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("scheduler_config.batch_size=4", 4),
        ("scheduler_config.batch_size = 4", 4),
        ("data_config.temperature=1e-5", 1e-5),
        ("model_config.with_ckpt=yes", True),
        ("model_config.exe_mode=ge_graph", "compile"),
        ("model_config.model_path=123", "123"),
        ("model_config.model_path=a=b #c", "a=b #c"),
        ("model_config.model_path='a b'", "a b"),
        ("model_config.tokenizer_path=", ""),
        ("model_config.model_name=null", "null"),
        ("model_config.model_name=[x", "[x"),
        ("model_config.model_name=True", "True"),
        ("model_config.platform_version=950", "950"),
        ("model_config.threads=auto", "auto"),
        ("model_config.threads=2", 2),
        ("data_config.system_prompt=Be brief: one line", "Be brief: one line"),
        ("data_config.system_prompt=null", None),
        ("data_config.seed=7", 7),
        ("data_config.prompts=p.txt", "p.txt"),
        ('data_config.prompts=["a b", [1, 2]]', ["a b", [1, 2]]),
        ("data_config.stop=['###', '7']", ["###", "7"]),
        ("scheduler_config.decode_buckets=[1, 2, 4]", [1, 2, 4]),
        ("model_config.custom_params.num_hidden_layers=2", 2),
        ("model_config.custom_params.other=text", "text"),
        ("model_config.custom_params.deep.er=[1]", [1]),
    ],
)
def test_command_line_values(override: str, value: object) -> None:
    key = override.partition("=")[0].strip()
    result = _value(recipe_from_dict(BASE, [override]).recipe, key)
    assert result == value
    assert type(result) is type(value)


def test_nested_override_of_an_absent_mapping() -> None:
    loaded = recipe_from_dict(
        {"model_config": {"with_ckpt": False, "hf_config": None}},
        ["model_config.hf_config.model_type=llama", "model_config.hf_config.rope.theta=1e4"],
    )
    assert loaded.recipe.model.hf_config == {"model_type": "llama", "rope": {"theta": 10000.0}}


def test_last_override_wins_and_the_file_is_overridden(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("model_config: {model_path: m}\nscheduler_config: {batch_size: 2, block_size: 32}\n")
    recipe = load_recipe(file, ["scheduler_config.batch_size=3", "scheduler_config.batch_size=5"]).recipe
    assert (recipe.scheduler.batch_size, recipe.scheduler.block_size) == (5, 32)


def test_one_override_as_plain_text() -> None:
    assert recipe_from_dict(BASE, "scheduler_config.batch_size=4").recipe.scheduler.batch_size == 4


def test_python_values(tmp_path: Path) -> None:
    overrides = {
        "scheduler_config.batch_size": 4,
        "scheduler_config": {"max_new_tokens": 5},
        "model_config.model_path": tmp_path,
        "data_config.prompts": ("a", (1, 2)),
        "model_config.custom_params.num_hidden_layers": 3,
    }
    recipe = recipe_from_dict(BASE, overrides).recipe
    assert (recipe.scheduler.batch_size, recipe.scheduler.max_new_tokens) == (4, 5)
    assert recipe.model.model_path == str(tmp_path)
    assert recipe.data.prompts == ["a", [1, 2]]
    assert recipe.model.known_custom_params.num_hidden_layers == 3


def test_a_fault_of_the_file_is_repaired_by_an_override(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("model_config: {model_path: m, exe_mode: nonsense}\n")
    assert load_recipe(file, ["model_config.exe_mode=eager"]).recipe.model.exe_mode == "eager"


def test_world_size_override_outranks_the_copy_at_top_level(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(
        "world_size: 2\nmodel_config: {model_path: m}\nparallel_config: {world_size: 2, attn_tp_size: 2}\n"
    )
    recipe = load_recipe(file, ["parallel_config.world_size=1", "parallel_config.attn_tp_size=1"]).recipe
    assert recipe.parallel.world_size == 1


def test_notes_about_overrides_have_no_line() -> None:
    (note,) = recipe_from_dict(BASE, ["model_config.enable_weight_nz=False"]).notes
    assert (note.key, note.line) == ("model_config.enable_weight_nz", None)
    assert str(note).startswith("model_config.enable_weight_nz: ")
