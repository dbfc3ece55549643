"""Whatever a recipe, an override or a prompt file holds: a result, or an error of ours that can be printed.

The seed is in the header of the test run; `--hypothesis-seed` repeats it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from graphsink.errors import RecipeError
from graphsink.recipe import load_prompts, load_recipe, recipe_from_dict
from graphsink.recipe.field_catalog import field_catalog, section_models
from graphsink.recipe.prompt_files import read_prompt_file

KEYS = st.one_of(
    st.sampled_from([row.name for row in field_catalog().values()]),
    st.sampled_from(["pa_block_size", "world_size", "model_name", "exe_mod", "<<", "&a", ""]),
    st.text(max_size=8),
    st.integers(-3, 3),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 9),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["eager", "ge_graph", "bfloat16", "auto", "default", "950", "p.txt"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)
RECIPES = st.dictionaries(
    st.one_of(st.sampled_from(list(section_models())), KEYS),
    st.one_of(st.dictionaries(KEYS, VALUES, max_size=6), VALUES),
    max_size=5,
)
YAML_SIGNS = (*":,[]{}'\"|>#?~ \t\n", ": ", "- ", "  ", "---", "...", "%YAML 1.1\n", "\\ud800")
YAML_WORDS = ("model_config", "exe_mode", "&a ", "*a", "<<", "!!int ", "!x ", "1e-5", "yes")
YAML_PIECES = st.lists(st.sampled_from([*YAML_SIGNS, *YAML_WORDS]), max_size=30).map("".join)


def _succeeds_or_is_refused(action: Callable[[], object]) -> None:
    try:
        action()
    except RecipeError as error:
        assert str(error).encode("utf-8")
        assert error.exit_code == 2


def _load_bytes(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "r.yaml"
        file.write_bytes(content)
        _succeeds_or_is_refused(lambda: load_prompts(load_recipe(file)))


@given(st.binary(max_size=200))
def test_random_bytes(content: bytes) -> None:
    _load_bytes(content)


@given(YAML_PIECES)
@settings(max_examples=150)
def test_random_yaml_pieces(content: str) -> None:
    _load_bytes(content.encode())
    _load_bytes(f"model_config:\n  model_path: m\n  {content}".encode())


@given(RECIPES)
@settings(max_examples=60)
def test_random_nested_recipes(values: dict[object, object]) -> None:
    _load_bytes(yaml.safe_dump(values, allow_unicode=True).encode("utf-8", "surrogatepass"))
    _succeeds_or_is_refused(lambda: recipe_from_dict(values))  # type: ignore[arg-type]


@given(
    st.one_of(
        st.text(max_size=40),
        st.builds(
            lambda key, value: f"{key}={value}",
            st.one_of(st.sampled_from(list(field_catalog())), st.text("abc._", max_size=12)),
            st.one_of(YAML_PIECES, st.text(max_size=12), SCALARS.map(str)),
        ),
    )
)
@settings(max_examples=150)
def test_random_overrides(override: str) -> None:
    _succeeds_or_is_refused(lambda: recipe_from_dict({"model_config": {"model_path": "m"}}, [override]))


@given(
    st.sampled_from([".txt", ".json", ".jsonl"]),
    st.one_of(
        st.binary(max_size=100),
        st.lists(
            st.sampled_from([*'[]{},:"0-9', "\n", '"prompt"', '"a"', "12", "true", "\\ud800"]),
            max_size=30,
        )
        .map("".join)
        .map(str.encode),
    ),
)
@settings(max_examples=150)
def test_random_prompt_files(extension: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / f"p{extension}"
        file.write_bytes(content)
        _succeeds_or_is_refused(lambda: read_prompt_file(file))
