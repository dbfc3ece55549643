"""Which GGUF architectures can be converted, and what their metadata mean to transformers.

One row of `ARCHITECTURES` per architecture. A metadata key that no row explains is refused, because
ignoring it (a rope scaling, a soft-cap) would give plausible, wrong text. What llama.cpp's own
converter changes on the way into the file (rows of q and k reordered, 1 added to norms) is undone by
`gguf_conversion`.

transformers' own GGUF import is not used for this: it needs a further package, it drops rope scalings
and soft-caps without a word, and its entry points differ between minor versions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphsink.engine.model.gguf_reading import GgufFile, Value
from graphsink.errors import ModelFileError, UnsupportedModelError

COMMON_KEYS: Mapping[str, str] = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
"""Metadata key (after the architecture's name) to configuration key."""

REQUIRED_KEYS = (
    "context_length",
    "block_count",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.layer_norm_rms_epsilon",
)

DERIVED_KEYS = frozenset(
    {
        "vocab_size",
        "attention.key_length",
        "attention.value_length",
        "rope.dimension_count",
        "rope.freq_base",
    }
)
"""Read by `configuration_values` itself."""

HARMLESS_VALUES: Mapping[str, tuple[Value, ...]] = {
    "attention.causal": (True,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "rope.scaling.type": ("none",),
    "rope.scaling.attn_factor": (1.0,),
    "rope.scaling.finetuned": (True, False),
    "attention.sliding_window": (0,),
    "tensor_data_layout": ("Meta AI original pth",),
}
"""Keys that change nothing when they have one of these values."""

DEFAULT_ROPE_THETA = 10_000.0
"""What llama.cpp takes when the file does not say."""


@dataclass(frozen=True, slots=True)
class GgufArchitecture:
    """How one architecture is converted.

    Attributes:
        model_type: transformers' name.
        keys: further metadata keys and their configuration keys.
        required: further keys that must be there.
        permuted_heads: the rows of q and k were reordered for interleaved rotary pairs.
        shifted_norms: norm weights were stored as ``w + 1``.
        has_head_dim: the configuration class takes ``head_dim``.
        finish: changes the configuration where a table does not reach.
    """

    model_type: str
    keys: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    permuted_heads: bool = False
    shifted_norms: bool = False
    has_head_dim: bool = True
    finish: Callable[[dict[str, Any], Mapping[str, Value]], None] | None = None


def _finish_gemma2(values: dict[str, Any], _metadata: Mapping[str, Value]) -> None:
    values["query_pre_attn_scalar"] = _gemma_query_scalar(values, layers_of_27b=46)


def _finish_gemma3(values: dict[str, Any], metadata: Mapping[str, Value]) -> None:
    values["query_pre_attn_scalar"] = _gemma_query_scalar(values, layers_of_27b=62)
    full = values.pop("rope_parameters")
    scaling = metadata.get("rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise UnsupportedModelError(
            f"the GGUF file sets 'gemma3.rope.scaling.type: {scaling}'; known: linear"
        )
    if scaling == "linear":
        full |= {"rope_type": "linear", "factor": metadata.get("rope.scaling.factor", 1.0)}
    local_theta = metadata.get("rope.freq_base_swa", DEFAULT_ROPE_THETA)
    values["rope_parameters"] = {
        "full_attention": full,
        "sliding_attention": {"rope_type": "default", "rope_theta": local_theta},
    }


def _gemma_query_scalar(values: dict[str, Any], layers_of_27b: int) -> int:
    """The file does not say it. The 27B models alone scale by the width per head instead of the head size."""
    if values["num_hidden_layers"] == layers_of_27b:
        return int(values["hidden_size"]) // int(values["num_attention_heads"])
    return int(values["head_dim"])


ARCHITECTURES: Mapping[str, GgufArchitecture] = {
    "llama": GgufArchitecture("llama", permuted_heads=True),
    "qwen2": GgufArchitecture("qwen2", has_head_dim=False),
    "qwen3": GgufArchitecture("qwen3"),
    "gemma2": GgufArchitecture(
        "gemma2",
        keys={
            "attention.sliding_window": "sliding_window",
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        required=("attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping"),
        shifted_norms=True,
        finish=_finish_gemma2,
    ),
    "gemma3": GgufArchitecture(
        "gemma3_text",
        keys={
            "attention.sliding_window": "sliding_window",
            "final_logit_softcapping": "final_logit_softcapping",
            "rope.scaling.type": "",
            "rope.scaling.factor": "",
            "rope.freq_base_swa": "",
        },
        required=("attention.sliding_window",),
        shifted_norms=True,
        finish=_finish_gemma3,
    ),
    "phi3": GgufArchitecture(
        "phi3",
        keys={
            "attention.sliding_window": "sliding_window",
            "rope.scaling.original_context_length": "original_max_position_embeddings",
        },
        has_head_dim=False,
    ),
    "granite": GgufArchitecture(
        "granite",
        keys={
            "attention.scale": "attention_multiplier",
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
            "logit_scale": "logits_scaling",
        },
        required=("attention.scale",),
        permuted_heads=True,
        has_head_dim=False,
    ),
    "olmo2": GgufArchitecture("olmo2", has_head_dim=False),
}


def select_architecture(file: GgufFile) -> tuple[str, GgufArchitecture]:
    """The name of the file's architecture and how it is converted.

    Raises:
        ModelFileError: the file names none, or is one part of several.
        UnsupportedModelError: mixture of experts, or an architecture without a row.
    """
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str):
        raise ModelFileError(
            "the GGUF file names no architecture", where=f"{file.path}: general.architecture"
        )
    parts = file.metadata.get("split.count", 1)
    if parts != 1:
        raise UnsupportedModelError(
            f"the GGUF model is split into {parts} files; only models in one file can be read",
            where=f"{file.path}: split.count",
            hint="join the parts with llama.cpp's gguf-split --merge",
        )
    experts = file.metadata.get(f"{name}.expert_count", 0)
    if isinstance(experts, int) and experts > 0:
        raise UnsupportedModelError(
            f"'{name}' is a mixture-of-experts model ({name}.expert_count: {experts}); "
            "mixture of experts is not supported yet",
            where=f"{file.path}: {name}.expert_count",
        )
    if name not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"GGUF files of the architecture '{name}' cannot be converted; "
            f"supported: {', '.join(ARCHITECTURES)}",
            where=f"{file.path}: general.architecture",
            hint="use the safetensors version of the model",
        )
    return name, ARCHITECTURES[name]


def configuration_values(file: GgufFile, name: str, architecture: GgufArchitecture) -> dict[str, Any]:
    """The keys of ``config.json``.

    Raises:
        ModelFileError: a required key is missing, or values contradict each other.
        UnsupportedModelError: a key that is not understood, by name and value.
    """
    prefix = f"{name}."
    metadata: dict[str, Any] = {
        key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)
    }
    _refuse_unknown(file, prefix, metadata, architecture)
    _check_numbers(file, prefix, metadata)
    for key in (*REQUIRED_KEYS, *architecture.required):
        if key not in metadata:
            raise ModelFileError(f"the GGUF file has no '{prefix}{key}'", where=str(file.path))
    _check_layers(file, int(metadata["block_count"]))
    values: dict[str, Any] = {"model_type": architecture.model_type}
    for key, target in {**COMMON_KEYS, **architecture.keys}.items():
        if target and key in metadata:
            values[target] = metadata[key]
    values.setdefault("num_key_value_heads", values["num_attention_heads"])
    values["vocab_size"] = _vocabulary_size(file)
    values["tie_word_embeddings"] = "output.weight" not in file.tensors
    head_dim = _head_dim(file, metadata, values, architecture)
    values["rope_parameters"] = _rope_parameters(file, metadata, head_dim)
    if architecture.has_head_dim:
        values["head_dim"] = head_dim
    if architecture.model_type in ("llama", "granite"):
        values["attention_bias"] = "blk.0.attn_q.bias" in file.tensors
        values["mlp_bias"] = "blk.0.ffn_up.bias" in file.tensors
    if architecture.finish is not None:
        architecture.finish(values, metadata)
    return values | _token_ids(file)


def _refuse_unknown(
    file: GgufFile, prefix: str, metadata: Mapping[str, Value], architecture: GgufArchitecture
) -> None:
    known = COMMON_KEYS.keys() | DERIVED_KEYS | architecture.keys.keys()
    for key, value in metadata.items():
        if key in known or value in HARMLESS_VALUES.get(key, ()):
            continue
        raise UnsupportedModelError(
            f"the GGUF file sets '{prefix}{key}: {value}', which the conversion does not understand",
            where=f"{file.path}: {prefix}{key}",
            hint="use the safetensors version of the model",
        )
    lists = [key for key, value in metadata.items() if isinstance(value, list)]
    if lists:
        raise UnsupportedModelError(
            f"the GGUF file gives '{prefix}{lists[0]}' per layer, which the conversion does not understand",
            where=f"{file.path}: {prefix}{lists[0]}",
        )


def _check_numbers(file: GgufFile, prefix: str, metadata: dict[str, Any]) -> None:
    """Everything but the texts in `HARMLESS_VALUES` is a number, and none is below zero."""
    for key, value in metadata.items():
        number = isinstance(value, int | float) and math.isfinite(value) and value >= 0
        if not number and not isinstance(HARMLESS_VALUES.get(key, (0,))[0], str):
            raise ModelFileError(
                f"the GGUF file sets '{prefix}{key}' to {value!r}, not to a number", where=str(file.path)
            )


def _check_layers(file: GgufFile, layers: int) -> None:
    """A wrong count would otherwise build a model of that many layers to find out what is missing."""
    stored = {name.split(".")[1] for name in file.tensors if name.startswith("blk.")}
    if layers != len(stored):
        raise ModelFileError(
            f"the GGUF file announces {layers:,} layers and has tensors of {len(stored):,}",
            where=str(file.path),
        )


def _head_dim(
    file: GgufFile, metadata: Mapping[str, Value], values: Mapping[str, Any], architecture: GgufArchitecture
) -> int:
    """Elements per head; the value heads and the rotary part must have the same size."""
    heads, width = int(values["num_attention_heads"]), int(values["hidden_size"])
    fallback = width // heads if heads else 0
    size = metadata.get("attention.key_length", metadata.get("rope.dimension_count", fallback))
    for key in ("attention.value_length", "rope.dimension_count"):
        if metadata.get(key, size) != size:
            raise UnsupportedModelError(
                f"the heads have {size} elements, but '{key}' is {metadata[key]}", where=str(file.path)
            )
    if not isinstance(size, int) or size < 1 or (not architecture.has_head_dim and size * heads != width):
        raise ModelFileError(
            f"{heads} heads of {size} elements do not fit a width of {width}", where=str(file.path)
        )
    return size


def _vocabulary_size(file: GgufFile) -> int:
    """Rows of the embedding; the metadata are sometimes padded differently."""
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelFileError("the GGUF file has no tensor 'token_embd.weight'", where=str(file.path))
    return embedding.shape[0]


def _token_ids(file: GgufFile) -> dict[str, Any]:
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    found = {key: file.metadata.get(f"tokenizer.ggml.{name}_token_id") for key, name in names.items()}
    return dict(found)


def _rope_parameters(file: GgufFile, metadata: Mapping[str, Value], head_dim: int) -> dict[str, Any]:
    """The rotary embedding, with Llama 3's frequency scaling where the file carries its factors as a tensor.

    Raises:
        UnsupportedModelError: factors that are not Llama 3's.
    """
    theta = metadata.get("rope.freq_base", DEFAULT_ROPE_THETA)
    if not isinstance(theta, int | float) or theta <= 0:
        raise ModelFileError(f"'rope.freq_base' is {theta!r}", where=str(file.path))
    tensor = file.tensors.get("rope_freqs.weight")
    if tensor is None:
        return {"rope_type": "default", "rope_theta": theta}
    with file.path.open("rb") as stream:
        stream.seek(tensor.start)
        data = stream.read(tensor.size)
    if tensor.type.name == "F32" and tensor.shape == (head_dim // 2,):
        found = memoryview(data).cast("f").tolist()
        expected = llama3_rope_factors(head_dim, theta, factor=max(found))
        if all(math.isclose(one, other, rel_tol=1e-4) for one, other in zip(found, expected, strict=True)):
            return {"rope_type": "llama3", "rope_theta": theta, "factor": round(max(found), 4), **LLAMA3_ROPE}
    raise UnsupportedModelError(
        "the GGUF file scales the rotary frequencies in a way that is not Llama 3's ('rope_freqs.weight')",
        where=str(file.path),
        hint="use the safetensors version of the model",
    )


LLAMA3_ROPE: Mapping[str, Any] = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""The same in every Llama 3.1, 3.2 and 3.3; only the factor (8 or 32) differs."""


def llama3_rope_factors(head_dim: int, theta: float, factor: float) -> list[float]:
    """By how much each of ``head_dim / 2`` rotary frequencies is divided.

    Long wavelengths by ``factor``, short ones not at all, and smoothly in between.
    """
    context = LLAMA3_ROPE["original_max_position_embeddings"]
    low, high = LLAMA3_ROPE["low_freq_factor"], LLAMA3_ROPE["high_freq_factor"]
    result = []
    for index in range(0, head_dim, 2):
        wavelength = 2 * math.pi * theta ** (index / head_dim)
        smooth = min(1.0, max(0.0, (context / wavelength - low) / (high - low)))
        result.append(1 / ((1 - smooth) / factor + smooth))
    return result
