"""Values that a recipe may not have: file, line, key, nearest valid key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphsink.errors import RecipeValueError
from graphsink.recipe import load_recipe, recipe_from_dict

HEAD = "model_config:\n  model_path: m\n"


def _failure(tmp_path: Path, text: str, overrides: Any = ()) -> RecipeValueError:
    file = tmp_path / "r.yaml"
    file.write_text(text)
    with pytest.raises(RecipeValueError) as caught:
        load_recipe(file, overrides)
    error = caught.value
    assert error.exit_code == 2
    assert error.hint, "every message says what to change"
    if error.line is not None:
        assert error.file == str(file)
        assert error.where == f"{file}:{error.line}, {error.key}"
    return error


@pytest.mark.parametrize(
    ("text", "line", "key", "suggestion"),
    [
        (HEAD + "  exe_mod: eager\n", 3, "model_config.exe_mod", "exe_mode"),
        (HEAD + "  max_new_tokens: 5\n", 3, "model_config.max_new_tokens", "scheduler_config.max_new_tokens"),
        (HEAD + "  max_new_token: 5\n", 3, "model_config.max_new_token", "scheduler_config.max_new_tokens"),
        (
            HEAD + "  num_hidden_layers: 5\n",
            3,
            "model_config.num_hidden_layers",
            "model_config.custom_params.num_hidden_layers",
        ),
        (HEAD + "  zzz: 5\n", 3, "model_config.zzz", None),
        (HEAD + "  5: 5\n", 3, "model_config[5]", None),
        (HEAD + "scheduler_cfg:\n  batch_size: 1\n", 3, "scheduler_cfg", "scheduler_config"),
        (HEAD + "batch_size: 1\n", 3, "batch_size", "scheduler_config.batch_size"),
        (HEAD + "zzz: 1\n", 3, "zzz", None),
        (HEAD + "5: 1\n", 3, "[5]", None),
        ("model_confg:\n  model_path: m\n", 1, "model_confg", "model_config"),
        ("model_config:\n  model_pth: m\n", 2, "model_config.model_pth", "model_path"),
    ],
)
def test_unknown_names(tmp_path: Path, text: str, line: int, key: str, suggestion: str | None) -> None:
    error = _failure(tmp_path, text)
    assert (error.line, error.key, error.suggestion) == (line, key, suggestion)
    assert error.what.startswith(("unknown key", "unknown section"))
    if suggestion:
        assert error.hint == f"did you mean '{suggestion}'?"


@pytest.mark.parametrize(
    ("section", "content", "key", "what"),
    [
        (
            "model_config",
            "exe_mode: captur",
            "exe_mode",
            "exe_mode: unknown value 'captur'; expected one of eager, ",
        ),
        (
            "model_config",
            "exe_mode: True",
            "exe_mode",
            "exe_mode: expected eager | capture | compile, got True (bool)",
        ),
        (
            "model_config",
            "dtype: float16",
            "dtype",
            "dtype: unknown value 'float16'; expected one of bfloat16, float32",
        ),
        (
            "model_config",
            "enable_profiler: 'True'",
            "enable_profiler",
            "enable_profiler: expected bool, got 'True' (str)",
        ),
        ("model_config", "with_ckpt: 1", "with_ckpt", "with_ckpt: expected bool, got 1 (int)"),
        ("model_config", "model_name: 5", "model_name", "model_name: expected str, got 5 (int)"),
        ("model_config", "model_name:", "model_name", "model_name: expected str, got null (null)"),
        ("model_config", "hf_config: [1]", "hf_config", "hf_config: expected mapping | null, got [1] (list)"),
        ("model_config", "next_n: -1", "next_n", "next_n must be >= 0 and <= 2^31 - 1, got -1 (int)"),
        (
            "model_config",
            "threads: 0",
            "threads",
            "threads: expected int | auto (>= 1 and <= 4096), got 0 (int)",
        ),
        (
            "model_config",
            "threads: many",
            "threads",
            "threads: unknown value 'many'; expected int | auto >= 1",
        ),
        (
            "model_config",
            "platform_version: 950",
            "platform_version",
            "platform_version: expected A2 | A3 | 950 | null",
        ),
        (
            "model_config",
            "custom_params: {num_hidden_layers: 0}",
            "custom_params.num_hidden_layers",
            "num_hidden_layers must be >= 1 and <= 2^31 - 1, got 0 (int)",
        ),
        (
            "model_config",
            "custom_params: {enable_prefetch: 1}",
            "custom_params.enable_prefetch",
            "enable_prefetch: expected bool, got 1 (int)",
        ),
        ("model_config", "custom_params: 5", "custom_params", "custom_params: expected mapping, got 5 (int)"),
        ("model_config", "custom_params: {5: 1}", "custom_params[5]", "custom_params: the keys must be text"),
        ("data_config", "top_p: 1.5", "top_p", "top_p must be >= 0 and <= 1, got 1.5 (float)"),
        ("data_config", "temperature: -1", "temperature", "temperature must be >= 0, got -1 (int)"),
        (
            "data_config",
            "temperature: .nan",
            "temperature",
            "temperature must be a finite number, got nan (float)",
        ),
        ("data_config", "top_k: 1.0", "top_k", "top_k: expected int (>= 0 and <= 2^31 - 1), got 1.0 (float)"),
        ("data_config", "seed: True", "seed", "seed: expected int | null (>= 0 and < 2^63), got True (bool)"),
        ("data_config", "dataset: longbench", "dataset", "dataset: unknown value 'longbench'"),
        (
            "data_config",
            "prompts: [a, 5]",
            "prompts[1]",
            "prompts: expected str | list[str | list[int]] | null, got 5",
        ),
        (
            "data_config",
            "prompts: [[1, true]]",
            "prompts[0][1]",
            "prompts: expected str | list[str | list[int]] | null",
        ),
        ("data_config", "stop: END", "stop", "stop: expected list[str], got 'END' (str)"),
        (
            "scheduler_config",
            "max_new_tokens: 0",
            "max_new_tokens",
            "max_new_tokens must be >= 1 and <= 2^31 - 1, got 0",
        ),
        (
            "scheduler_config",
            "batch_size: '1'",
            "batch_size",
            "batch_size: expected int (>= 1 and <= 65536), got '1'",
        ),
        (
            "scheduler_config",
            "kv_cache_gib: 0",
            "kv_cache_gib",
            "kv_cache_gib must be > 0 and <= 2^20, got 0 (int)",
        ),
        (
            "scheduler_config",
            "mem_fraction_static: .nan",
            "mem_fraction_static",
            "mem_fraction_static must be a finite",
        ),
        (
            "scheduler_config",
            "decode_buckets: [1, 0]",
            "decode_buckets[1]",
            "decode_buckets must be each >= 1",
        ),
        (
            "parallel_config",
            "world_size: 0",
            "world_size",
            "world_size must be >= 1 and <= 2^31 - 1, got 0 (int)",
        ),
    ],
)
def test_wrong_types_and_ranges(tmp_path: Path, section: str, content: str, key: str, what: str) -> None:
    text = HEAD if section == "model_config" else f"{HEAD}{section}:\n"
    error = _failure(tmp_path, f"{text}  {content}\n")
    assert error.what.startswith(what)
    assert error.key == f"{section}.{key}"
    assert error.line == text.count("\n") + 1


def test_line_of_a_list_element(tmp_path: Path) -> None:
    error = _failure(tmp_path, HEAD + "data_config:\n  prompts:\n    - a\n    - 12\n")
    assert (error.line, error.key) == (6, "data_config.prompts[1]")
    assert error.hint == "put the value in quotes to make it text"


@pytest.mark.parametrize(
    ("value", "suggestion"),
    [
        ("captur", "capture"),
        ("Eager", "eager"),
        ("gegraph", "ge_graph"),
        ("npugraph", "npugraph_ex"),
        ("x", None),
    ],
)
def test_nearest_exe_mode(tmp_path: Path, value: str, suggestion: str | None) -> None:
    assert _failure(tmp_path, f"{HEAD}  exe_mode: {value}\n").suggestion == suggestion


@pytest.mark.parametrize("content", ["model_config: 5", "model_config: [a]", "model_config: text"])
def test_section_that_is_no_mapping(tmp_path: Path, content: str) -> None:
    error = _failure(tmp_path, content)
    assert error.what.startswith("model_config must be a mapping of keys, got ")
    assert (error.line, error.key) == (1, "model_config")


@pytest.mark.parametrize(
    ("text", "line", "key", "what"),
    [
        (
            "parallel_config: {world_size: 4, attn_tp_size: 3}",
            3,
            "parallel_config.attn_tp_size",
            "attn_tp_size 3 does not divide",
        ),
        (
            "parallel_config: {moe_tp_size: 2}",
            3,
            "parallel_config.moe_tp_size",
            "moe_tp_size 2 does not divide world_size 1",
        ),
        (
            "parallel_config: {world_size: 4, cp_size: 2}\nscheduler_config: {batch_size: 4}",
            3,
            "parallel_config.cp_size",
            "cp_size 2 is neither 1 nor world_size 4",
        ),
        (
            "parallel_config: {world_size: 4, cp_size: 4, attn_tp_size: 4}",
            3,
            "parallel_config.cp_size",
            "cp_size 4 needs attn_tp_size 1, not 4",
        ),
        (
            "  enable_static_kernel: True",
            3,
            "model_config.enable_static_kernel",
            "enable_static_kernel needs exe_mode 'capture', not 'eager'",
        ),
        (
            "  exe_mode: ge_graph\n  enable_static_kernel: True",
            4,
            "model_config.enable_static_kernel",
            "enable_static_kernel needs exe_mode 'capture', not 'compile'",
        ),
        (
            "scheduler_config:\n  kv_cache_gib: 1\n  kv_cache_tokens: 64",
            5,
            "scheduler_config.kv_cache_tokens",
            "the KV capacity is given twice: 1.0 GiB and 64 tokens",
        ),
        (
            "  hf_config: {model_type: llama}",
            3,
            "model_config.hf_config",
            "hf_config describes a model without weights",
        ),
        (
            "  with_ckpt: False\n  hf_config: {model_type: llama}",
            4,
            "model_config.hf_config",
            "the model is given twice",
        ),
        (
            "scheduler_config: {decode_buckets: [1, 4, 2]}",
            3,
            "scheduler_config.decode_buckets",
            "decode_buckets must ascend without repeats, but 2 follows 4",
        ),
        (
            "scheduler_config: {prefill_buckets: [8, 8]}",
            3,
            "scheduler_config.prefill_buckets",
            "prefill_buckets must ascend without repeats, but 8 follows 8",
        ),
        (
            "scheduler_config: {prefill_buckets: []}",
            3,
            "scheduler_config.prefill_buckets",
            "prefill_buckets is an empty list",
        ),
        (
            "world_size: 2",
            3,
            "world_size",
            "world_size is 2 at top level, but parallel_config.world_size is 1",
        ),
        ("world_size: yes", 3, "world_size", "world_size: expected int, got True (bool)"),
        ("model_name: 5", 3, "model_name", "model_name: expected str, got 5 (int)"),
    ],
)
def test_contradictions(tmp_path: Path, text: str, line: int, key: str, what: str) -> None:
    error = _failure(tmp_path, HEAD + text + "\n")
    assert error.what.startswith(what)
    assert (error.line, error.key) == (line, key)


@pytest.mark.parametrize(
    ("text", "key", "what"),
    [
        (
            "model_config:\n",
            "model_config.model_path",
            "no model is given: with_ckpt is True and model_path is empty",
        ),
        ("data_config: {top_k: 1}\n", "model_config.model_path", "no model is given"),
        ("model_config:\n  with_ckpt: False\n", "model_config.with_ckpt", "with_ckpt is False, but neither"),
        (
            "model_config:\n  with_ckpt: False\n  hf_config: {vocab_size: 1}\n",
            "model_config.hf_config",
            "hf_config has no model_type",
        ),
        (
            "model_config:\n  with_ckpt: False\n  hf_config: {model_type: 5}\n",
            "model_config.hf_config",
            "hf_config has no model_type",
        ),
    ],
)
def test_which_model(tmp_path: Path, text: str, key: str, what: str) -> None:
    error = _failure(tmp_path, text)
    assert error.what.startswith(what)
    assert error.key == key


def test_all_faults_are_reported_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = (
        HEAD
        + "  exe_mode: captur\n  enable_profilr: True\nscheduler_config:\n  batch_size: 0\n"
        + "parallel_config:\n  attn_tp_size: 2\ndata_cfg: {}\n"
    )
    error = _failure(tmp_path, text, ["data_config.top_k=-1"])
    assert (error.line, error.key, error.suggestion) == (3, "model_config.exe_mode", "capture")
    lines = error.what.splitlines()
    assert lines[0] == "6 problems in the recipe:"
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "line 3, model_config.exe_mode",
        "line 4, model_config.enable_profilr",
        "line 6, scheduler_config.batch_size",
        "line 8, parallel_config.attn_tp_size",
        "line 9, data_cfg",
        "data_config.top_k",
    ]
    assert lines[2].endswith("unknown key 'enable_profilr' in model_config (did you mean 'enable_profiler'?)")
    assert "override 'data_config.top_k=-1'" in lines[6]


def test_many_faults_are_cut(tmp_path: Path) -> None:
    error = _failure(tmp_path, HEAD + "".join(f"  zz{n}: 1\n" for n in range(50)))
    assert error.what.startswith("50 problems in the recipe:")
    assert error.what.splitlines()[-1].strip() == "... and 30 more"


def test_a_wrong_field_does_not_cause_a_second_fault(tmp_path: Path) -> None:
    error = _failure(tmp_path, HEAD + "parallel_config: {world_size: two, attn_tp_size: 2}\n")
    assert error.what.startswith("world_size: expected int")


@pytest.mark.parametrize(
    ("override", "key", "what", "hint"),
    [
        (
            "scheduler_config.batch_size=0",
            "scheduler_config.batch_size",
            "batch_size must be >= 1",
            "choose a value",
        ),
        (
            "scheduler_config.batch_siz=1",
            "scheduler_config.batch_siz",
            "unknown key 'batch_siz'",
            "did you mean 'batch_size'?",
        ),
        (
            "batch_size=3",
            "batch_size",
            "does not name a section and a key",
            "did you mean 'scheduler_config.batch_size'?",
        ),
        ("batch_size", None, "has no '='", "write 'section.key=value'"),
        ("=3", None, "does not name a section and a key", "write 'section.key=value'"),
        ("a..b=3", "a..b", "does not name a section and a key", "write"),
        ("foo.bar=1", "foo", "unknown section 'foo'", "the sections are"),
        ("data_config.prompts=[a", "data_config.prompts", "the value is not valid YAML", "quote"),
        (
            "data_config.stop=x",
            "data_config.stop",
            "stop: expected list[str], got 'x' (str)",
            "write a value",
        ),
        (
            "model_config.model_path.x=1",
            "model_config.model_path.x",
            "'model_config.model_path' is 'm', not a mapping",
            "as a whole",
        ),
        (
            "model_config.custom_params.num_hidden_layers=x",
            "model_config.custom_params.num_hidden_layers",
            "expected int",
            "quotes",
        ),
        (
            "scheduler_config.batch_size=!!python/name:os.system",
            "scheduler_config.batch_size",
            "the tag",
            "quote",
        ),
    ],
)
def test_overrides_are_named_instead_of_a_line(
    tmp_path: Path, override: str, key: str | None, what: str, hint: str
) -> None:
    error = _failure(tmp_path, HEAD, [override])
    assert f"override '{override}'" in error.what
    assert what in error.what
    assert (error.key, error.line, error.file) == (key, None, None)
    assert error.hint is not None
    assert hint in error.hint


@pytest.mark.parametrize(
    ("overrides", "what"),
    [
        ({"scheduler_config.batch_size": "4"}, "batch_size: expected int (>= 1 and <= 65536), got '4' (str)"),
        (
            {"scheduler_config.batch_size": object()},
            "a value of the Python type object cannot stand in a recipe",
        ),
        ({"scheduler_config.batch_size": 10**5000}, "is too large (the limit is 64 bits)"),
        ({5: 1}, "the key must be text"),
        ({"model_config.hf_config": {(1,): 2}}, "a key must be text or an integer"),
        ({"model_config.model_name": "\ud800"}, "the text holds U+D800"),
        ([5], "is not text"),
        (["model_config.model_name=\ud800"], "the text holds U+D800"),
    ],
)
def test_overrides_from_python(overrides: Any, what: str) -> None:
    with pytest.raises(RecipeValueError) as caught:
        recipe_from_dict({"model_config": {"model_path": "m"}}, overrides)
    assert what in caught.value.what
    str(caught.value).encode("utf-8")


def test_endless_python_value() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(RecipeValueError, match="nested deeper than 50 levels"):
        recipe_from_dict({"model_config": {"hf_config": endless}})


def test_recipe_from_dict_without_a_mapping() -> None:
    with pytest.raises(RecipeValueError, match="not a mapping of sections"):
        recipe_from_dict(["model_config"])  # type: ignore[arg-type]


def test_long_and_odd_names_do_not_break_the_message(tmp_path: Path) -> None:
    error = _failure(tmp_path, HEAD + f'  ? "{"k" * 5000}"\n  : 1\n  "a\\nb": 1\n')
    assert len(str(error)) < 1500
    assert "a\nb" not in str(error)
