"""From a source to a transformers configuration, with everything refused that its keys already rule out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig, GenerationConfig, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from graphsink.config import ModelSection
from graphsink.engine.model.files import read_json_object
from graphsink.engine.model.model_source import ModelSource
from graphsink.engine.model.refusals import ConfigurationText, refuse_unsupported
from graphsink.engine.model.transformers_output import quiet_transformers
from graphsink.errors import (
    GraphsinkError,
    InternalError,
    ModelFileError,
    RecipeValueError,
    UnsupportedModelError,
)

INLINE_WHERE = "model_config.hf_config"
LAYERS_KEY = "model_config.custom_params.num_hidden_layers"
FILES_WITH_CODE = ("config.json", "tokenizer_config.json")
PER_LAYER_KEYS = frozenset({"num_key_value_heads", "num_attention_heads", "intermediate_size"})
"""Keys without "layer" in their name that some families give as one value per layer."""


@dataclass(frozen=True, slots=True)
class ConfigurationResult:
    """A configuration that passed the refusals.

    Attributes:
        config: the configuration of the text model.
        generation_config: defaults for generation that came with the model, if any.
        full_layers: layers of the model as published; ``config.num_hidden_layers`` may be fewer.
        notes: what the user should know, one sentence each.
    """

    config: PreTrainedConfig
    generation_config: GenerationConfig | None
    full_layers: int
    notes: tuple[str, ...]


def load_configuration(source: ModelSource, section: ModelSection) -> ConfigurationResult:
    """Read the configuration; no weight is touched.

    Args:
        source: from `resolve_source`; a GGUF source must have gone through `materialize`.
        section: for ``hf_config``, ``trust_remote_code`` and ``custom_params.num_hidden_layers``.

    Raises:
        ModelFileError: ``config.json`` (or ``generation_config.json``) is damaged or not acceptable.
        RecipeValueError: ``hf_config`` or ``num_hidden_layers`` is not acceptable.
        UnsupportedModelError: the model cannot run, see `refusals`; or it needs code of its own that
            ``trust_remote_code`` does not allow.
    """
    code_notes = check_remote_code(source, section)
    text = _configuration_text(source, section, remote_code=bool(code_notes))
    refuse_unsupported(text)
    config = _build(source, section, text)
    full_layers = int(config.num_hidden_layers)
    wanted = section.known_custom_params.num_hidden_layers
    notes = list(code_notes)
    if wanted is not None and wanted != full_layers:
        _check_layers(wanted, full_layers)
        with _reported(source, text.where):
            config = _with_layers(config, wanted, full_layers)
        notes.append(f"{wanted} of {full_layers} layers run ({LAYERS_KEY}); the text will not make sense")
    return ConfigurationResult(config, _generation_config(source), full_layers, tuple(notes))


def check_remote_code(source: ModelSource, section: ModelSection) -> tuple[str, ...]:
    """Refuse a model that brings code of its own, or say that this code runs.

    Returns:
        One note per file with ``auto_map`` if ``trust_remote_code`` is on; empty if there is no code.

    Raises:
        UnsupportedModelError: code is there and not allowed, or it is in another repository.
    """
    notes = []
    directories = dict.fromkeys(path for path in (source.directory, source.tokenizer_directory) if path)
    for path in (directory / name for directory in directories for name in FILES_WITH_CODE):
        auto_map = read_json_object(path).get("auto_map") if path.is_file() else None
        if auto_map:
            notes.append(_remote_code_note(path, auto_map, section.trust_remote_code))
    if section.hf_config and section.hf_config.get("auto_map"):
        raise UnsupportedModelError(
            "an inline configuration cannot bring code of its own (auto_map)", where=INLINE_WHERE
        )
    return tuple(notes)


def _remote_code_note(path: Path, auto_map: object, allowed: bool) -> str:
    entries = auto_map if isinstance(auto_map, dict) else {"auto_map": auto_map}
    names = ", ".join(f"{key}: {value}" for key, value in entries.items())
    if not allowed:
        raise UnsupportedModelError(
            f"the model brings Python code of its own ({names}), which is not run",
            where=f"{path}: auto_map",
            hint="read that code; to run it as you, set model_config.trust_remote_code: True. "
            "If transformers has the model built in, deleting auto_map from the file also works",
        )
    if "--" in names:
        raise UnsupportedModelError(
            f"the model's code is in another repository ({names}); only code in the directory itself can run",
            where=f"{path}: auto_map",
            hint="download that code into the model directory and name it without the repository",
        )
    return f"trust_remote_code is on: Python code from '{path.parent}' runs ({path.name}: {names})"


def _configuration_text(source: ModelSource, section: ModelSection, remote_code: bool) -> ConfigurationText:
    if source.directory is not None:
        path = source.directory / "config.json"
        return ConfigurationText(read_json_object(path), str(path), remote_code)
    if section.hf_config is None:
        raise InternalError(f"the {source.kind} source has neither a directory nor an inline configuration")
    return ConfigurationText(section.hf_config, INLINE_WHERE, remote_code=False)


def _build(source: ModelSource, section: ModelSection, text: ConfigurationText) -> PreTrainedConfig:
    """Let transformers read and validate the configuration."""
    with _reported(source, text.where):
        if source.directory is None:
            values = {key: value for key, value in text.values.items() if key != "model_type"}
            config = AutoConfig.for_model(text.values["model_type"], **values)
        else:
            config = AutoConfig.from_pretrained(
                source.directory, local_files_only=True, trust_remote_code=section.trust_remote_code
            )
        if not isinstance(config, PreTrainedConfig):
            raise TypeError(f"it gives a {type(config).__name__}")
        config = _text_model(config)
        if config.num_hidden_layers < 1:
            raise ValueError("num_hidden_layers is below 1")
    return config


@contextmanager
def _reported(source: ModelSource, where: str) -> Iterator[None]:
    """Turn what transformers (or the model's own code) raises about a configuration into our errors."""
    try:
        with quiet_transformers():
            yield
    except Exception as error:  # they raise what they like
        raise _unreadable(source, where, error) from error


def _unreadable(source: ModelSource, where: str, error: Exception) -> GraphsinkError:
    reason = " ".join(str(error).split()) or type(error).__name__
    what = f"transformers does not accept the configuration: {reason}"
    if source.directory is None:
        return RecipeValueError(what, key=where)
    return ModelFileError(what, where=where, hint="compare the file with the published one")


def _text_model(config: PreTrainedConfig) -> PreTrainedConfig:
    """The part that the causal language model is built from (itself, but for composite configurations)."""
    text_config: PreTrainedConfig = config.get_text_config(decoder=True)
    if text_config is config or text_config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return config
    text_config.name_or_path = config.name_or_path
    return text_config


def _check_layers(wanted: int, full_layers: int) -> None:
    if wanted > full_layers:
        raise RecipeValueError(
            f"num_hidden_layers is {wanted}, but the model has {full_layers} layers",
            key=LAYERS_KEY,
            hint=f"a number from 1 to {full_layers}; leave it out to run all layers",
        )


def _with_layers(config: PreTrainedConfig, layers: int, full_layers: int) -> PreTrainedConfig:
    """The same model with its first ``layers`` layers, values given per layer cut to match."""
    values: dict[str, Any] = config.to_dict()
    key = type(config).attribute_map.get("num_hidden_layers", "num_hidden_layers")
    values[key] = layers
    values |= {
        name: value[:layers] for name, value in values.items() if _is_per_layer(name, value, full_layers)
    }
    shortened = type(config).from_dict(values)
    shortened.name_or_path = config.name_or_path
    return shortened


def _is_per_layer(name: str, value: object, full_layers: int) -> bool:
    named_so = "layer" in name or name in PER_LAYER_KEYS
    return named_so and isinstance(value, list) and len(value) == full_layers


def _generation_config(source: ModelSource) -> GenerationConfig | None:
    if source.directory is None or not (source.directory / "generation_config.json").is_file():
        return None
    path = source.directory / "generation_config.json"
    values: Mapping[str, Any] = read_json_object(path)
    try:
        with quiet_transformers():
            generation_config: GenerationConfig = GenerationConfig.from_dict(dict(values))
    except Exception as error:  # the library validates field by field, with exceptions of many kinds
        raise ModelFileError(f"transformers does not accept it: {error}", where=str(path)) from error
    return generation_config
