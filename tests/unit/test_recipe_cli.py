"""``graphsink recipe check`` and ``graphsink recipe fields``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from graphsink.cli.recipe import check_command, fields_command

DATA = Path(__file__).parent.parent / "data" / "recipes"


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command("check")(check_command)
    app.command("fields")(fields_command)
    return app


def test_check_prints_values_prompts_and_notes(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["check", str(DATA / "reference_1tp.yaml")])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].endswith("reference_1tp.yaml: the recipe is valid")
    assert "  exe_mode: compile" in lines
    assert "  input_truncated_len: 4096" in lines
    assert "1 prompt, the first from built-in prompt 1" in lines
    assert any(line.startswith("  line 9, model_config.enable_profiler: no effect") for line in lines)


def test_check_with_overrides_as_json(app: typer.Typer) -> None:
    arguments = ["check", str(DATA / "reference_1tp.yaml"), "--json"]
    arguments += ["--set", "scheduler_config.batch_size=3", "--set", "model_config.exe_mode=eager"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert data["ok"] is True
    assert data["recipe"]["scheduler_config"]["batch_size"] == 3
    assert data["recipe"]["model_config"]["exe_mode"] == "eager"
    assert data["prompts"] == 3
    assert data["not_runnable"] is None
    assert [note["line"] for note in data["notes"]] == [2, 3, 9]


def test_two_ranks_are_valid_but_said_not_to_run(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["check", str(DATA / "reference_2tp.yaml")])
    assert result.exit_code == 0
    assert "parallel_config.world_size: 2 is not yet supported" in result.stdout


def test_errors_exit_with_2(app: typer.Typer, tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("model_config:\n  model_path: m\n  exe_mode: captur\n")
    result = CliRunner().invoke(app, ["check", str(file)])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "error: exe_mode: unknown value 'captur'; "
        "expected one of eager, capture, compile, npugraph_ex, ge_graph",
        f"  at: {file}:3, model_config.exe_mode",
        "  fix: did you mean 'capture'?",
    ]


def test_errors_as_json(app: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", str(tmp_path / "none.yaml"), "--json"])
    assert result.exit_code == 2
    data = json.loads(result.stdout)
    assert (data["ok"], data["error"]["type"]) == (False, "RecipeSyntaxError")
    assert data["error"]["what"] == "the recipe does not exist"


def test_bad_prompts_are_found(app: typer.Typer, tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("model_config: {model_path: m}\ndata_config: {prompts: none.txt}\n")
    result = CliRunner().invoke(app, ["check", str(file)])
    assert result.exit_code == 2
    assert "the prompt file does not exist" in result.stderr


def test_markup_in_values_is_printed_as_written(app: typer.Typer, tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("model_config: {model_path: '[bold]m[/bold]'}\n")
    result = CliRunner().invoke(app, ["check", str(file)])
    assert result.exit_code == 0
    assert "  model_path: [bold]m[/bold]" in result.stdout


def test_fields_table_and_json(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["fields"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for word in (
        "model_config",
        "exe_mode",
        "scheduler_config",
        "kv_cache_gib",
        "num_hidden_layers",
        "[str | list",
    ):
        assert word in result.stdout
    data = json.loads(CliRunner().invoke(app, ["fields", "--json"]).stdout)
    by_key = {field["key"]: field for field in data["fields"]}
    assert by_key["scheduler_config.block_size"]["default"] == "128"
    assert by_key["model_config.enable_weight_nz"]["effect"] == "npu_only"
