"""Where a recipe's model is: a directory, a GGUF file, the fetched sample, or only a configuration."""

from __future__ import annotations

from pathlib import Path

from graphsink.config import ModelSection, Recipe
from graphsink.config.paths import SAMPLE_SCHEME, resolve_path
from graphsink.engine.model import sample
from graphsink.engine.model.files import nearest, nearest_path_hint
from graphsink.engine.model.gguf_reading import looks_like_gguf
from graphsink.engine.model.model_source import ModelSource, SourceKind
from graphsink.errors import ModelFileError, RecipeValueError, TokenizerError

__all__ = ["ModelSource", "SourceKind", "resolve_source"]

PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl"})


def resolve_source(recipe: Recipe, base_directory: Path) -> ModelSource:
    """Find the model that ``recipe`` names; nothing is read but directory entries and a magic number.

    Args:
        recipe: the recipe; its relative paths are relative to ``base_directory``.
        base_directory: directory of the recipe file.

    Raises:
        RecipeValueError: no model named, or an unknown sample.
        ModelFileError: the path does not exist or holds no model; the sample is not fetched yet.
        TokenizerError: ``tokenizer_path`` does not exist.
    """
    section = recipe.model
    tokenizer_directory = _tokenizer_directory(section, base_directory)
    if not section.model_path:
        return _inline_source(section, tokenizer_directory)
    if section.model_path.startswith(SAMPLE_SCHEME):
        source = _sample_source(section.model_path)
    else:
        source = _path_source(section.model_path, _absolute(section.model_path, base_directory))
    if not section.with_ckpt:
        source = _without_weights(source)
    return ModelSource(
        kind=source.kind,
        written=section.model_path,
        directory=source.directory,
        gguf=source.gguf,
        tokenizer_directory=tokenizer_directory or source.directory,
    )


def _absolute(written: str, base_directory: Path) -> Path:
    return Path(resolve_path(written, base_directory, key="model_config"))


def _inline_source(section: ModelSection, tokenizer_directory: Path | None) -> ModelSource:
    if section.with_ckpt:
        raise RecipeValueError(
            "the recipe names no model",
            key="model_config.model_path",
            hint="set model_path, or set with_ckpt: False and hf_config for random weights",
        )
    if section.hf_config is None:
        raise RecipeValueError(
            "random weights need a configuration",
            key="model_config.hf_config",
            hint="set model_path to a directory with config.json, or write hf_config in the recipe",
        )
    return ModelSource(SourceKind.RANDOM, written="", tokenizer_directory=tokenizer_directory)


def _sample_source(written: str) -> ModelSource:
    name = written.removeprefix(SAMPLE_SCHEME)
    if name not in sample.SAMPLES:
        raise RecipeValueError(
            f"there is no sample model '{name}'; there is: {', '.join(sample.SAMPLES)}",
            key="model_config.model_path",
            suggestion=_prefixed(nearest(name, sample.SAMPLES)),
        )
    directory = sample.sample_directory(name)
    if directory is None:
        raise ModelFileError(
            f"the sample model '{name}' has not been fetched",
            where=f"model_config.model_path: {written}",
            hint="run `graphsink sample` once (it downloads about 98 MB)",
        )
    return ModelSource(SourceKind.SAMPLE, written=written, directory=directory)


def _prefixed(name: str | None) -> str | None:
    return None if name is None else SAMPLE_SCHEME + name


def _path_source(written: str, path: Path) -> ModelSource:
    where = f"model_config.model_path: {path}"
    if path.is_dir():
        return _directory_source(written, path)
    if not path.exists():
        hint = nearest_path_hint(path)
        raise ModelFileError(f"the model '{written}' does not exist", where=where, hint=hint)
    if path.suffix.lower() == ".gguf" or looks_like_gguf(path):
        return ModelSource(SourceKind.GGUF, written=written, gguf=path)
    if path.suffix.lower() in PICKLE_SUFFIXES:
        raise ModelFileError(
            f"'{path.name}' is a pickle file; loading it could run code, so it is not read",
            where=where,
            hint="use a directory with safetensors weights, or a GGUF file",
        )
    hint = "name the directory that holds config.json, not a file in it"
    what = f"'{path.name}' is neither a model directory nor a GGUF file"
    raise ModelFileError(what, where=where, hint=hint)


def _directory_source(written: str, path: Path) -> ModelSource:
    if (path / "config.json").is_file():
        return ModelSource(SourceKind.DIRECTORY, written=written, directory=path)
    gguf_files = sorted(entry.name for entry in path.glob("*.gguf"))
    nested = sorted(entry.parent.name for entry in path.glob("*/config.json"))
    if gguf_files:
        hint = f"to use the GGUF file, name it: '{path / gguf_files[0]}'"
    elif nested:
        hint = f"did you mean '{path / nested[0]}'?"
    else:
        hint = "a model directory holds config.json, the tokenizer files and *.safetensors"
    raise ModelFileError(
        f"the directory '{written}' has no config.json", where=f"model_config.model_path: {path}", hint=hint
    )


def _without_weights(source: ModelSource) -> ModelSource:
    if source.kind is SourceKind.GGUF:
        raise RecipeValueError(
            "random weights (with_ckpt: False) cannot take their configuration from a GGUF file",
            key="model_config.with_ckpt",
            hint="set with_ckpt: True, or name a directory with config.json",
        )
    return ModelSource(SourceKind.RANDOM, written=source.written, directory=source.directory)


def _tokenizer_directory(section: ModelSection, base_directory: Path) -> Path | None:
    if not section.tokenizer_path:
        return None
    path = _absolute(section.tokenizer_path, base_directory)
    if path.is_dir():
        return path
    what = "is not a directory" if path.exists() else "does not exist"
    hint = "name the directory that holds tokenizer.json" if path.exists() else nearest_path_hint(path)
    raise TokenizerError(
        f"the tokenizer '{section.tokenizer_path}' {what}",
        where=f"model_config.tokenizer_path: {path}",
        hint=hint,
    )
