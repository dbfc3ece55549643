"""The probe learns what attention computes, and refuses what the operator cannot express."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from graphsink.engine.model.architecture_probe import (
    ArchitectureSpec,
    MaskPattern,
    _RefusedError,
    probe_architecture,
    recognise_mask,
)
from graphsink.errors import UnsupportedModelError

COMMON: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def probe(model_type: str, **settings: Any) -> ArchitectureSpec:
    config: PreTrainedConfig = AutoConfig.for_model(model_type, **{**COMMON, **settings})

    def build(implementation: str) -> nn.Module:
        with torch.device("meta"):
            model: nn.Module = AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
        return model

    return probe_architecture(build, config)


def test_learns_heads_scale_and_context() -> None:
    """Grouped heads with a head size of their own, and the model's own scale."""
    spec = probe(
        "gemma2", head_dim=12, query_pre_attn_scalar=9, sliding_window=7, attn_logit_softcapping=30.0
    )
    assert spec.vocab_size == 64
    assert spec.context_length == 256
    first, second = spec.layers
    assert (first.num_query_heads, first.num_kv_heads) == (4, 2)
    assert (first.key_head_size, first.value_head_size) == (12, 12)
    assert first.scale == pytest.approx(1 / 3)
    assert (first.window, second.window) == (7, 0)
    assert first.softcap == second.softcap == 30.0


def test_window_comes_from_the_mask_and_layer_by_layer() -> None:
    """Qwen2 windows only the layers beyond ``max_window_layers``."""
    spec = probe("qwen2", use_sliding_window=True, sliding_window=5, max_window_layers=1)
    assert [layer.window for layer in spec.layers] == [0, 5]


def test_a_window_beyond_the_context_is_no_window() -> None:
    """It can never hide anything."""
    assert [layer.window for layer in probe("mistral", sliding_window=4096).layers] == [0, 0]


def test_models_that_do_not_pass_arguments_down_work() -> None:
    """StableLM drops unknown keyword arguments on the way to attention."""
    assert len(probe("stablelm").layers) == 2


def test_longrope_limits_the_context() -> None:
    """Beyond the original context its frequencies depend on what is packed beside a sequence."""
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    spec = probe("phi3", rope_parameters=rope, original_max_position_embeddings=64)
    assert spec.context_length == 64
    assert spec.context_note is not None
    assert "64 of 256" in spec.context_note


@pytest.mark.parametrize(
    ("model_type", "settings", "words"),
    [
        ("gpt_oss", {"head_dim": 8}, "'s_aux'"),
        ("bloom", {"n_layer": 2, "n_head": 4}, "0 of its 2 layers"),
        ("mamba", {}, "0 of its 2 layers"),
        ("falcon", {}, "cannot be replaced"),
        ("bert", {"is_decoder": False}, "neither causal nor"),
    ],
)
def test_refuses_by_name(model_type: str, settings: dict[str, Any], words: str) -> None:
    """The message names the model type and what it needs."""
    with pytest.raises(UnsupportedModelError) as refusal:
        probe(model_type, **settings)
    assert f"'{model_type}'" in str(refusal.value)
    assert words in str(refusal.value)


def test_refuses_unknown_attention_arguments() -> None:
    """Attention sinks once were silently ignored; any argument that is not known is refused by its name."""
    config = AutoConfig.for_model("llama", **COMMON)

    def build(implementation: str) -> nn.Module:
        with torch.device("meta"):
            model: nn.Module = AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
        attention = model.get_submodule("model.layers.1.self_attn")
        plain_forward = attention.forward
        attention.forward = lambda *args, **kwargs: plain_forward(*args, s_aux=torch.zeros(4), **kwargs)  # type: ignore[method-assign]
        return model

    with pytest.raises(UnsupportedModelError, match="LlamaAttention passes 's_aux' to attention"):
        probe_architecture(build, config)


def causal(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return key <= query


@pytest.mark.parametrize("horizon", [1, 2, 3, 64, 1000])
@pytest.mark.parametrize("window", [1, 2, 63, 999])
def test_recognises_causal_windows(horizon: int, window: int) -> None:
    """Windows shorter than the horizon are found exactly; longer ones are plain causal."""
    pattern = recognise_mask(lambda b, h, q, k: (k <= q) & (k > q - window), horizon)
    assert pattern == MaskPattern(window if window < horizon else 0)
    assert recognise_mask(causal, horizon) == MaskPattern(0)


@pytest.mark.parametrize(
    "mask",
    [
        lambda b, h, q, k: k >= q,
        lambda b, h, q, k: (k <= q) | (k < 3),
        lambda b, h, q, k: (k <= q) & (k // 8 == q // 8),
        lambda b, h, q, k: (k <= q) & (k % 2 == 0),
        lambda b, h, q, k: torch.ones_like(q + k, dtype=torch.bool),
    ],
    ids=["anti-causal", "prefix", "chunked", "strided", "full"],
)
def test_refuses_other_masks(mask: Any) -> None:
    """Bidirectional prefixes, chunks and sparse patterns are not windows."""
    with pytest.raises(_RefusedError, match="neither causal nor"):
        recognise_mask(mask, 64)


def test_refuses_an_empty_mask() -> None:
    """Softmax over nothing is NaN."""
    with pytest.raises(_RefusedError, match="no position"):
        recognise_mask(lambda b, h, q, k: torch.zeros_like(q + k, dtype=torch.bool), 64)
