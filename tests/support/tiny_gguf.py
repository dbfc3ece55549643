"""Tiny GGUF files, written as llama.cpp's converter would write them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy
import torch
from gguf import GGMLQuantizationType
from transformers import PreTrainedModel

from support.tiny_models import CHAT_TEMPLATE, SPECIAL_TOKENS, train_backend

ARCHITECTURE_NAMES = {"gemma3_text": "gemma3"}
PERMUTED = ("llama", "granite")
SHIFTED = ("gemma2", "gemma3_text")

TypeOf = Callable[[str], GGMLQuantizationType]


def all_float32(_name: str) -> GGMLQuantizationType:
    return GGMLQuantizationType.F32


def mixed_types(name: str) -> GGMLQuantizationType:
    """Like the files people use: norms and biases in float32, the embedding in Q8_0, the rest in Q4_1."""
    if "norm" in name or name.endswith(".bias"):
        return GGMLQuantizationType.F32
    return GGMLQuantizationType.Q8_0 if "token_embd" in name else GGMLQuantizationType.Q4_1


def permute(weight: numpy.ndarray, heads: int) -> numpy.ndarray:
    """Interleave the two halves of each head's rows (rotary pairs next to each other)."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, 2, half, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    *,
    type_of: TypeOf = all_float32,
    tokenizer: bool = True,
    pre: str | None = "smollm",
    extra: Mapping[str, Any] | None = None,
    without: tuple[str, ...] = (),
    extra_tensors: Mapping[str, numpy.ndarray] | None = None,
) -> None:
    """Write ``model`` as a GGUF file.

    Args:
        type_of: storage type by GGUF tensor name.
        tokenizer: write a byte-level tokenizer.
        pre: value of ``tokenizer.ggml.pre``; ``None`` leaves it out.
        extra: further metadata values (int, float, bool or str) by full key.
        without: tensors to leave out.
        extra_tensors: further float32 tensors.
    """
    config = model.config
    name = ARCHITECTURE_NAMES.get(config.model_type, config.model_type)
    writer = gguf.GGUFWriter(path, name)
    _add_configuration(writer, config)
    if tokenizer:
        _add_tokenizer(writer, pre)
    for key, value in (extra or {}).items():
        ADDERS[type(value)](writer, key, value)
    number = next(key for key, text in gguf.MODEL_ARCH_NAMES.items() if text == name)
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    for parameter, tensor in model.state_dict().items():
        if parameter == "lm_head.weight" and config.tie_word_embeddings:
            continue
        stem, _, suffix = parameter.rpartition(".")
        target = f"{names.get_name(stem)}.{suffix}"
        if target in without:
            continue
        values = _as_written(parameter, tensor, config)
        kind = type_of(target)
        writer.add_tensor(target, gguf.quants.quantize(values, kind), raw_dtype=kind)
    for target, values in (extra_tensors or {}).items():
        writer.add_tensor(target, values.astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


ADDERS: Mapping[type, Callable[[gguf.GGUFWriter, str, Any], None]] = {
    bool: gguf.GGUFWriter.add_bool,
    int: gguf.GGUFWriter.add_uint32,
    float: gguf.GGUFWriter.add_float32,
    str: gguf.GGUFWriter.add_string,
    list: gguf.GGUFWriter.add_array,
}


def _as_written(parameter: str, tensor: torch.Tensor, config: Any) -> numpy.ndarray:
    values = tensor.float().numpy()
    if config.model_type in SHIFTED and parameter.endswith("norm.weight"):
        return values + numpy.float32(1)
    if config.model_type in PERMUTED and ".q_proj." in parameter:
        return permute(values, config.num_attention_heads)
    if config.model_type in PERMUTED and ".k_proj." in parameter:
        return permute(values, config.num_key_value_heads)
    return values


def _add_configuration(writer: gguf.GGUFWriter, config: Any) -> None:
    name = ARCHITECTURE_NAMES.get(config.model_type, config.model_type)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(head_dim)
    writer.add_file_type(0)
    if name in ("qwen3", "gemma2", "gemma3"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if name in ("gemma2", "gemma3", "phi3"):
        writer.add_sliding_window(config.sliding_window)
    if name == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if name == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)


def _add_tokenizer(writer: gguf.GGUFWriter, pre: str | None) -> None:
    backend = train_backend()
    vocabulary = sorted(backend.get_vocab().items(), key=lambda item: item[1])
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if token in SPECIAL_TOKENS else 1 for token, _ in vocabulary])
    writer.add_token_merges([" ".join(pair) for pair in _merges(backend)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_chat_template(CHAT_TEMPLATE)


def _merges(backend: Any) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in json.loads(backend.to_str())["model"]["merges"]]
