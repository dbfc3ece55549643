"""The generated table, and the examples in the guide."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from graphsink.config import DataSection, ModelSection, ParallelSection, SchedulerSection
from graphsink.recipe import documentation, load_recipe
from graphsink.recipe.field_catalog import field_catalog

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_committed_table_is_what_the_code_generates() -> None:
    committed = (DOCS / "recipe_fields.md").read_text(encoding="utf-8")
    assert committed == documentation.render_document(), (
        "docs/recipe_fields.md is out of date: run python -m graphsink.recipe.documentation"
    )


def test_every_field_has_one_row_with_a_meaning() -> None:
    models = (ModelSection, DataSection, ParallelSection, SchedulerSection)
    names = [name for model in models for name in model.model_fields]
    catalog = field_catalog()
    assert len(catalog) == len(names) + 4, "the four known custom parameters come on top"
    text = documentation.render_document()
    for row in catalog.values():
        assert row.description.endswith("."), row.key
        assert row.origin in ("reference", "graphsink"), row.key
        assert row.effect in documentation.EFFECT_TEXT, row.key
        assert f"| `{row.name}` | " in text


def test_rows_say_type_range_and_default() -> None:
    catalog = field_catalog()
    threads = catalog["model_config.threads"]
    assert (threads.type_text, threads.check_text, threads.default) == (
        "int | auto",
        ">= 1 and <= 4096",
        "auto",
    )
    mode = catalog["model_config.exe_mode"]
    assert mode.choices == ("eager", "capture", "compile", "npugraph_ex", "ge_graph")
    prompts = catalog["data_config.prompts"]
    assert (prompts.type_text, prompts.default) == ("str | list[str | list[int]] | null", "null")
    assert catalog["scheduler_config.decode_buckets"].check_text == "each >= 1 and <= 2^31 - 1"
    layers = catalog["model_config.custom_params.num_hidden_layers"]
    assert (layers.type_text, layers.default) == ("int", "all layers")


def test_main_rewrites_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "fields.md"
    monkeypatch.setattr(sys, "argv", ["documentation", str(target)])
    documentation.main()
    assert target.read_text(encoding="utf-8") == documentation.render_document()
    assert capsys.readouterr().out == f"{target}\n"


def _examples() -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", (DOCS / "recipes.md").read_text(encoding="utf-8"), re.DOTALL)


def test_examples_of_the_guide_load(tmp_path: Path) -> None:
    examples = _examples()
    assert len(examples) == 4
    loaded = []
    for number, text in enumerate(examples):
        file = tmp_path / f"example{number}.yaml"
        file.write_text(text, encoding="utf-8")
        loaded.append(load_recipe(file))
    assert loaded[0].recipe.scheduler.max_new_tokens == 64
    assert loaded[1].recipe.model.weights_seed == 7
    assert loaded[2].recipe.scheduler.decode_buckets == [1, 2, 4, 8]
    assert [note.key for note in loaded[3].notes] == [
        "model_name",
        "world_size",
        "model_config.enable_weight_nz",
        "model_config.custom_params.moe_chunk_max_len",
    ]


def test_overrides_of_the_guide_are_accepted(tmp_path: Path) -> None:
    text = (DOCS / "recipes.md").read_text(encoding="utf-8")
    (commands,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    overrides = [quoted or plain for quoted, plain in re.findall(r"--set (?:'([^']*)'|(\S+))", commands)]
    assert len(overrides) == 4
    file = tmp_path / "r.yaml"
    file.write_text(_examples()[0])
    recipe = load_recipe(file, overrides).recipe
    assert recipe.model.exe_mode == "capture"
    assert recipe.data.prompts == [[1, 2, 3], "a text"]
