"""Which configurations cannot run, told by their keys alone and refused by name.

Each check is one row of `CHECKS`. What a configuration does not say (masks, attention arguments,
recurrent layers) is found by the architecture probe, which calls the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from graphsink.engine.model.files import nearest
from graphsink.errors import GraphsinkError, ModelFileError, UnsupportedModelError

EXPERT_COUNT_KEYS = (
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "moe_num_experts",
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_top_k",
    "moe_topk",
    "moe_k",
    "top_k_experts",
    "ffn_num_experts",
)
"""Keys that count experts or the experts per token. Above one the model has a router."""

EXPERT_SWITCH_KEYS = ("is_moe", "enable_moe_block")
"""Keys with which a family turns its experts on; ``False`` makes the counts meaningless."""

EXPERT_SECTIONS = ("text_config", "ffn_config", "moe_config")
"""Nested sections in which a family keeps those keys."""

TEXT_MODEL_ENDINGS = ("ForCausalLM", "LMHeadModel", "LMHead", "Decoder")
"""Endings of class names that take text only."""

OTHER_MODALITIES = ("vision_config", "audio_config", "speech_config")


@dataclass(frozen=True, slots=True)
class ConfigurationText:
    """A configuration as written, and where.

    Attributes:
        values: the keys of ``config.json`` or of ``hf_config``.
        where: file or recipe key, for messages.
        remote_code: whether the model's own code was allowed and is there (it may define its type).
    """

    values: Mapping[str, Any]
    where: str
    remote_code: bool


def refuse_unsupported(text: ConfigurationText) -> None:
    """Raise for the first check that the configuration fails.

    Raises:
        ModelFileError: ``model_type`` is missing.
        UnsupportedModelError: the model cannot run; the message names the key and its value.
    """
    for check in CHECKS:
        error = check(text)
        if error is not None:
            raise error


def _model_type(text: ConfigurationText) -> GraphsinkError | None:
    model_type = text.values.get("model_type")
    if model_type is None:
        return ModelFileError(
            "the configuration has no 'model_type'",
            where=text.where,
            hint="use a directory that transformers can load, with its original config.json",
        )
    if text.remote_code or (isinstance(model_type, str) and model_type in CONFIG_MAPPING):
        return None
    match = nearest(str(model_type), list(CONFIG_MAPPING.keys()))
    return UnsupportedModelError(
        f"transformers knows no model_type '{model_type}'",
        where=f"{text.where}: model_type",
        hint=f"did you mean '{match}'?" if match else "a newer transformers may know it",
    )


def _encoder_decoder(text: ConfigurationText) -> GraphsinkError | None:
    if not text.values.get("is_encoder_decoder"):
        return None
    return UnsupportedModelError(
        f"'{text.values['model_type']}' is an encoder-decoder model; only decoder-only models run",
        where=f"{text.where}: is_encoder_decoder: True",
    )


def _causal_language_model(text: ConfigurationText) -> GraphsinkError | None:
    model_type = text.values["model_type"]
    name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type)
    if text.remote_code:
        return None
    if name is None:
        return UnsupportedModelError(
            f"'{model_type}' is not a decoder-only text model: transformers has no causal language "
            "model for it",
            where=f"{text.where}: model_type",
        )
    if not name.endswith(TEXT_MODEL_ENDINGS):
        parts = [key for key in OTHER_MODALITIES if key in text.values] or ["vision or audio parts"]
        return UnsupportedModelError(
            f"'{model_type}' is a multimodal model ({name}, {', '.join(parts)}); only text models run",
            where=f"{text.where}: model_type",
            hint=_text_twin_hint(model_type),
        )
    return None


def _text_twin_hint(model_type: str) -> str | None:
    twin = f"{model_type}_text"
    if twin not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return None
    return f"a text-only checkpoint of the same family has model_type '{twin}'"


def _mixture_of_experts(text: ConfigurationText) -> GraphsinkError | None:
    sections = [("", text.values)]
    sections += [
        (f"{name}.", section)
        for name in EXPERT_SECTIONS
        if isinstance(section := text.values.get(name), Mapping)
    ]
    for prefix, section in sections:
        if any(section.get(key) is False for key in EXPERT_SWITCH_KEYS):
            continue
        for key in EXPERT_COUNT_KEYS:
            value = section.get(key)
            if _counts_experts(value):
                return UnsupportedModelError(
                    f"'{text.values['model_type']}' is a mixture-of-experts model ({prefix}{key}: {value}); "
                    "mixture of experts is not supported yet",
                    where=f"{text.where}: {prefix}{key}",
                )
    return None


def _counts_experts(value: object) -> bool:
    """``8`` and ``[1, 8]`` do; ``None``, ``0``, ``1`` and booleans do not."""
    if isinstance(value, list):
        return any(_counts_experts(item) for item in value)
    return isinstance(value, int) and not isinstance(value, bool) and value > 1


def _quantized(text: ConfigurationText) -> GraphsinkError | None:
    section = text.values.get("quantization_config", text.values.get("compression_config"))
    if section is None:
        return None
    method = section.get("quant_method") if isinstance(section, Mapping) else None
    return UnsupportedModelError(
        f"the checkpoint is quantised (quant_method: {method or 'unnamed'}); "
        "quantised safetensors checkpoints are not supported",
        where=f"{text.where}: quantization_config",
        hint="use the float16, bfloat16 or float32 checkpoint, or a GGUF file (it is dequantised once)",
    )


CHECKS: tuple[Callable[[ConfigurationText], GraphsinkError | None], ...] = (
    _model_type,
    _encoder_decoder,
    _causal_language_model,
    _quantized,
    _mixture_of_experts,
)
