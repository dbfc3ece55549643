"""Configurations of published models, for runs with random weights.

Only numbers: sizes, heads, windows and multipliers as the models' own config.json files give them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

REAL_SHAPES = MappingProxyType(
    {
        "Llama-3.2-1B": {
            "model_type": "llama", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192,
            "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
            "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
            },
        },
        "Qwen3-0.6B": {
            "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072,
            "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
            "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
        "Qwen2-0.5B": {
            "model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864,
            "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
            "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
        "Mistral-7B": {
            "model_type": "mistral", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
            "max_position_embeddings": 32768, "sliding_window": 4096, "rms_norm_eps": 1e-5,
            "tie_word_embeddings": False,
        },
        "Gemma-2-2B": {
            "model_type": "gemma2", "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
            "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
            "max_position_embeddings": 8192, "sliding_window": 4096, "query_pre_attn_scalar": 256,
            "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "tie_word_embeddings": True,
        },
        "Gemma-3-1B": {
            "model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 1152,
            "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4,
            "num_key_value_heads": 1, "head_dim": 256, "max_position_embeddings": 32768,
            "sliding_window": 512, "query_pre_attn_scalar": 256, "tie_word_embeddings": True,
        },
        "Phi-3-mini": {
            "model_type": "phi3", "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
            "max_position_embeddings": 4096, "sliding_window": 2047, "tie_word_embeddings": False,
        },
        "OLMo-2-1B": {
            "model_type": "olmo2", "vocab_size": 100352, "hidden_size": 2048, "intermediate_size": 8192,
            "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16,
            "max_position_embeddings": 4096, "tie_word_embeddings": False,
        },
        "Granite-3.1-2B": {
            "model_type": "granite", "vocab_size": 49155, "hidden_size": 2048, "intermediate_size": 8192,
            "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
            "max_position_embeddings": 131072, "attention_multiplier": 0.015625,
            "embedding_multiplier": 12.0, "logits_scaling": 8.0, "residual_multiplier": 0.22,
            "tie_word_embeddings": True,
        },
    }
)  # fmt: skip
"""Name -> configuration. The special token ids are set by `real_shape`."""


def real_shape(name: str) -> dict[str, Any]:
    """A configuration with special token ids inside of every vocabulary."""
    return {**REAL_SHAPES[name], "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
