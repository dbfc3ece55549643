"""Models that are not where the recipe says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphsink.config import Recipe
from graphsink.engine.model.source import resolve_source
from graphsink.errors import GraphsinkError, ModelFileError, RecipeValueError, TokenizerError


def refuse(base: Path, kind: type[GraphsinkError], **model: Any) -> GraphsinkError:
    with pytest.raises(kind) as caught:
        resolve_source(Recipe.model_validate({"model_config": model}), base)
    return caught.value


def test_a_missing_path_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "qwen3-8b").mkdir()
    error = refuse(tmp_path, ModelFileError, model_path="qwen3-8B")
    assert error.what == "the model 'qwen3-8B' does not exist"
    assert error.hint == f"did you mean '{tmp_path / 'qwen3-8b'}'?"


def test_a_missing_folder_on_the_way_is_named(tmp_path: Path) -> None:
    error = refuse(tmp_path, ModelFileError, model_path="models/zzz/tiny")
    assert error.hint == f"there is no 'models' in '{tmp_path}'"


def test_a_directory_without_configuration(tmp_path: Path) -> None:
    assert refuse(tmp_path, ModelFileError, model_path=".").what == "the directory '.' has no config.json"
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "config.json").write_text("{}")
    assert refuse(tmp_path, ModelFileError, model_path=".").hint == f"did you mean '{tmp_path / 'inner'}'?"
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    hint = refuse(tmp_path, ModelFileError, model_path=".").hint
    assert hint == f"to use the GGUF file, name it: '{tmp_path / 'm.gguf'}'"


def test_a_pickle_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    error = refuse(tmp_path, ModelFileError, model_path="pytorch_model.bin")
    assert error.what == "'pytorch_model.bin' is a pickle file; loading it could run code, so it is not read"


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"12345678")
    error = refuse(tmp_path, ModelFileError, model_path="model.safetensors")
    assert error.what == "'model.safetensors' is neither a model directory nor a GGUF file"
    assert error.hint == "name the directory that holds config.json, not a file in it"


def test_no_model_at_all(tmp_path: Path) -> None:
    error = refuse(tmp_path, RecipeValueError)
    assert error.what == "the recipe names no model"
    assert refuse(tmp_path, RecipeValueError, with_ckpt=False).what == "random weights need a configuration"


def test_random_weights_from_a_gguf_file(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    error = refuse(tmp_path, RecipeValueError, with_ckpt=False, model_path="m.gguf")
    assert "cannot take their configuration from a GGUF file" in error.what


def test_a_sample_that_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHSINK_CACHE_DIR", str(tmp_path / "cache"))
    error = refuse(tmp_path, ModelFileError, model_path="sample://smollm2-135m")
    assert error.what == "the sample model 'smollm2-135m' has not been fetched"
    assert error.hint is not None
    assert "graphsink sample" in error.hint


def test_an_unknown_sample(tmp_path: Path) -> None:
    error = refuse(tmp_path, RecipeValueError, model_path="sample://smolm2-135m")
    assert error.what == "there is no sample model 'smolm2-135m'; there is: smollm2-135m"
    assert error.hint == "did you mean 'sample://smollm2-135m'?"


def test_a_missing_tokenizer_directory(tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    error = refuse(tmp_path, TokenizerError, model_path=".", tokenizer_path="word")
    assert error.what == "the tokenizer 'word' does not exist"
    assert error.hint == f"did you mean '{tmp_path / 'words'}'?"
