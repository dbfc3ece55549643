"""Where a recipe's model is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from graphsink.config import Recipe
from graphsink.engine.model import sample
from graphsink.engine.model.gguf_conversion import conversion_directory
from graphsink.engine.model.source import SourceKind, resolve_source


def recipe(**model: Any) -> Recipe:
    return Recipe.model_validate({"model_config": model})


def model_directory(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    return path


def test_a_relative_path_is_relative_to_the_recipe(tmp_path: Path) -> None:
    directory = model_directory(tmp_path / "models" / "tiny")
    source = resolve_source(recipe(model_path="models/tiny"), tmp_path)
    assert (source.kind, source.directory, source.gguf) == (SourceKind.DIRECTORY, directory, None)
    assert source.tokenizer_directory == directory
    assert source.written == "models/tiny"


def test_an_absolute_path_and_a_home_path_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = model_directory(tmp_path / "tiny")
    monkeypatch.setenv("HOME", str(tmp_path))
    for written in (str(directory), "~/tiny"):
        assert resolve_source(recipe(model_path=written), Path("/nowhere")).directory == directory


@pytest.mark.parametrize("name", ["m.gguf", "m.GGUF", "blob-without-ending"])
def test_a_gguf_file_is_known_by_ending_or_content(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"GGUF\x03\0\0\0")
    source = resolve_source(recipe(model_path=name), tmp_path)
    assert (source.kind, source.directory, source.gguf) == (SourceKind.GGUF, None, tmp_path / name)


def test_random_weights_from_an_inline_configuration_need_no_path(tmp_path: Path) -> None:
    source = resolve_source(recipe(with_ckpt=False, hf_config={"model_type": "llama"}), tmp_path)
    assert (source.kind, source.directory, source.tokenizer_directory) == (SourceKind.RANDOM, None, None)


def test_random_weights_may_take_configuration_and_tokenizer_of_a_directory(tmp_path: Path) -> None:
    directory = model_directory(tmp_path / "tiny")
    source = resolve_source(recipe(with_ckpt=False, model_path="tiny"), tmp_path)
    assert (source.kind, source.directory, source.tokenizer_directory) == (
        SourceKind.RANDOM,
        directory,
        directory,
    )


def test_the_tokenizer_may_be_elsewhere(tmp_path: Path) -> None:
    model_directory(tmp_path / "tiny")
    (tmp_path / "words").mkdir()
    source = resolve_source(recipe(model_path="tiny", tokenizer_path="words"), tmp_path)
    assert source.tokenizer_directory == tmp_path / "words"


def test_a_fetched_sample_is_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHSINK_CACHE_DIR", str(tmp_path / "cache"))
    entry = sample.SAMPLES["smollm2-135m"]
    directory = conversion_directory(entry.sha256, entry.stem, torch.bfloat16)
    directory.mkdir(parents=True)
    source = resolve_source(recipe(model_path="sample://smollm2-135m"), tmp_path)
    assert (source.kind, source.directory) == (SourceKind.SAMPLE, directory)
