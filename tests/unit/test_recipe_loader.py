"""Recipe files that load: values, defaults, notes, paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsink.config import Recipe
from graphsink.config.custom_params import CustomParams
from graphsink.errors import NotSupportedError, RecipeValueError
from graphsink.recipe import LoadedRecipe, check_runnable, load_recipe, recipe_from_dict, resolve_path

DATA = Path(__file__).parent.parent / "data" / "recipes"


def _write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "r.yaml"
    file.write_text("model_config:\n  model_path: m\n" + text)
    return file


def _notes(loaded: LoadedRecipe) -> list[tuple[int | None, str]]:
    return [(note.line, note.key) for note in loaded.notes]


def test_defaults() -> None:
    recipe = recipe_from_dict({"model_config": {"model_path": "m"}}).recipe
    assert recipe.as_dict()["data_config"] == {
        "dataset": "default",
        "dataset_path": "",
        "input_truncated_len": 256,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "seed": None,
        "enable_thinking": None,
        "prompts": None,
        "apply_chat_template": True,
        "system_prompt": None,
        "stop": [],
        "logprobs": 0,
    }
    assert recipe.scheduler.model_dump(exclude={"kv_cache_gib", "decode_buckets", "prefill_buckets"}) == {
        "batch_size": 1,
        "max_new_tokens": 32,
        "max_prefill_tokens": 0,
        "mem_fraction_static": 0.85,
        "block_size": 128,
        "num_reserved_decode_tokens": 64,
        "cp_mini_batch": -1,
        "ignore_eos": False,
        "kv_cache_tokens": None,
    }
    assert set(recipe.parallel.model_dump().values()) == {1}
    assert recipe.model.exe_mode == "eager"
    assert recipe.model.dtype == "bfloat16"
    assert recipe.model.enable_dynamic_graph is True
    assert recipe.model.enable_weight_nz is True
    assert recipe.max_prefill_tokens == 256


def test_reference_recipe_loads_unchanged() -> None:
    loaded = load_recipe(DATA / "reference_1tp.yaml")
    recipe = loaded.recipe
    assert recipe.model.exe_mode == "compile"
    assert recipe.model.model_name == "qwen3_8b"
    assert recipe.model.with_ckpt is True
    assert recipe.data.input_truncated_len == 4096
    assert recipe.scheduler.max_new_tokens == 256
    assert recipe.scheduler.batch_size == 1
    assert _notes(loaded) == [(2, "model_name"), (3, "world_size"), (9, "model_config.enable_profiler")]
    assert recipe.model.exe_mode == "compile"


def test_two_ranks_parse_and_are_refused_to_run() -> None:
    recipe = load_recipe(DATA / "reference_2tp.yaml").recipe
    assert recipe.parallel.world_size == 2
    assert recipe.parallel.attn_tp_size == 2
    assert recipe.parallel.attn_dp_size == 1
    with pytest.raises(NotSupportedError, match=r"parallel_config\.world_size: 2 is not yet supported"):
        check_runnable(recipe)


def test_legacy_recipe_loads_and_lists_what_has_no_effect() -> None:
    loaded = load_recipe(DATA / "reference_legacy.yaml")
    recipe = loaded.recipe
    assert recipe.model.exe_mode == "capture"
    assert recipe.model.enable_static_kernel is True
    assert recipe.model.enable_dynamic_graph is False
    assert recipe.data.temperature == 1e-5
    assert recipe.model.known_custom_params == CustomParams(
        num_hidden_layers=4, enable_superkernel=True, enable_multi_streams=True, enable_prefetch=False
    )
    assert recipe.model.custom_params["moe_chunk_max_len"] == 65536  # type: ignore[typeddict-item]
    assert _notes(loaded) == [
        (6, "model_config.enable_weight_nz"),
        (9, "model_config.platform_version"),
        (10, "model_config.pa_block_size"),
        (11, "model_config.enable_multi_streams"),
        (17, "model_config.custom_params.moe_chunk_max_len"),
        (18, "model_config.custom_params.enable_superkernal"),
        (26, "parallel_config.kvp_size"),
        (30, "scheduler_config.prefill_mini_batch_size"),
        (31, "scheduler_config.num_reserved_decode_tokens"),
    ]
    by_key = {note.key: note.reason for note in loaded.notes}
    assert by_key["model_config.custom_params.moe_chunk_max_len"] == "unknown custom parameter, no effect"
    assert by_key["model_config.custom_params.enable_superkernal"].endswith(
        "did you mean 'enable_superkernel'?"
    )
    assert "scheduler_config.block_size" in by_key["model_config.pa_block_size"]
    assert str(loaded.notes[0]) == (
        "line 6, model_config.enable_weight_nz: no effect on this device; the reference uses it on an NPU"
    )


def test_graph_mode_switches_are_noted_in_eager_only(tmp_path: Path) -> None:
    text = (
        "  {mode}\n  enable_cache_compile: True\n  enable_dynamic_graph: True\n  numerics: fast\n"
        "  custom_params: {{enable_prefetch: True, enable_superkernel: False}}\n"
    )
    eager = load_recipe(_write(tmp_path, text.format(mode="exe_mode: eager")))
    assert _notes(eager) == [
        (4, "model_config.enable_cache_compile"),
        (6, "model_config.numerics"),
        (7, "model_config.custom_params.enable_prefetch"),
    ]
    assert load_recipe(_write(tmp_path, text.format(mode="exe_mode: compile"))).notes == ()


def test_a_section_without_content_is_empty(tmp_path: Path) -> None:
    assert load_recipe(_write(tmp_path, "data_config:\nscheduler_config: {}\n")).recipe.data.top_k == 0


def test_known_custom_params_have_defaults() -> None:
    recipe = recipe_from_dict({"model_config": {"model_path": "m"}}).recipe
    assert recipe.model.custom_params == {}
    assert recipe.model.known_custom_params == CustomParams(None, False, False, False)


def test_round_trip_of_the_effective_recipe() -> None:
    recipe = load_recipe(DATA / "reference_legacy.yaml").recipe
    assert recipe_from_dict(recipe.as_dict()).recipe == recipe
    assert Recipe.model_validate(recipe.as_dict()) == recipe


def test_integers_are_accepted_for_numbers(tmp_path: Path) -> None:
    recipe = load_recipe(
        _write(tmp_path, "data_config:\n  temperature: 1\nscheduler_config:\n  kv_cache_gib: 2\n")
    ).recipe
    assert recipe.data.temperature == 1.0
    assert recipe.scheduler.kv_cache_gib == 2.0


def test_context_parallel_and_data_parallel_recipe(tmp_path: Path) -> None:
    text = "parallel_config: {world_size: 4, cp_size: 4}\nscheduler_config: {batch_size: 8}\n"
    parallel = load_recipe(_write(tmp_path, text)).recipe.parallel
    assert (parallel.cp_size, parallel.attn_dp_size) == (4, 4)


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("model_config", "next_n", 1, "model_config.next_n: 1"),
        ("model_config", "device", "npu", "model_config.device: npu"),
        ("data_config", "dataset", "LongBench", "data_config.dataset: LongBench"),
        ("data_config", "dataset", "InfiniteBench", "data_config.dataset: InfiniteBench"),
    ],
)
def test_what_parses_but_cannot_run(section: str, key: str, value: object, message: str) -> None:
    recipe = recipe_from_dict({"model_config": {"model_path": "m"}}, {f"{section}.{key}": value}).recipe
    with pytest.raises(NotSupportedError) as caught:
        check_runnable(recipe)
    assert caught.value.what == f"{message} is not yet supported"
    assert caught.value.where == f"{section}.{key}"
    assert caught.value.hint


def test_paths_are_relative_to_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes").mkdir()
    _write(tmp_path / "recipes", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    loaded = load_recipe("recipes/r.yaml")
    assert loaded.path == Path("recipes/r.yaml")
    assert loaded.base_directory == tmp_path / "recipes"
    monkeypatch.chdir("/")
    assert resolve_path(loaded, "m") == str(tmp_path / "recipes" / "m")
    assert resolve_path(loaded, "../m/./x") == str(tmp_path / "m" / "x")
    assert resolve_path(loaded, "/abs/m") == "/abs/m"
    assert resolve_path(loaded, "~/m") == "/home/someone/m"
    assert resolve_path(loaded, "sample://smollm2-135m") == "sample://smollm2-135m"
    assert resolve_path(loaded, "") == ""
    with pytest.raises(RecipeValueError, match="cannot be expanded"):
        resolve_path(loaded, "~no-such-user-here/m")


def test_recipe_from_dict_takes_python_values(tmp_path: Path) -> None:
    values = {
        "model_config": {"model_path": tmp_path / "m"},
        "data_config": {"prompts": ("text", (1, 2))},
        "scheduler_config": {"decode_buckets": (1, 2)},
    }
    loaded = recipe_from_dict(values, base_directory=tmp_path)
    assert loaded.recipe.model.model_path == str(tmp_path / "m")
    assert loaded.recipe.data.prompts == ["text", [1, 2]]
    assert loaded.recipe.scheduler.decode_buckets == [1, 2]
    assert loaded.path is None
    assert loaded.base_directory == tmp_path


def test_the_given_mapping_is_not_changed() -> None:
    values = {"model_config": {"model_path": "m", "exe_mode": "ge_graph"}}
    recipe_from_dict(values, ["model_config.model_name=x"])
    assert values == {"model_config": {"model_path": "m", "exe_mode": "ge_graph"}}


def test_two_ranks_parse_whatever_the_batch_size() -> None:
    """How requests are divided among ranks matters where ranks run; there they are refused by name."""
    recipe = recipe_from_dict(
        {"model_config": {"model_path": "m"}, "parallel_config": {"world_size": 2}}
    ).recipe
    with pytest.raises(NotSupportedError, match=r"parallel_config\.world_size: 2 is not yet supported"):
        check_runnable(recipe)
