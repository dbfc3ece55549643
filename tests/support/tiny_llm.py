"""A tiny random-weight model in float32, for tests of the engine."""

from __future__ import annotations

from typing import Any

from graphsink import LLM

TINY_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 96,
    "initializer_range": 0.3,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def tiny_recipe(**sections: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A recipe for `TINY_LLAMA`; keyword arguments update its sections (``model``, ``scheduler`` …)."""
    recipe: dict[str, dict[str, Any]] = {
        "model_config": {"with_ckpt": False, "hf_config": TINY_LLAMA, "dtype": "float32", "threads": 1},
        "data_config": {"input_truncated_len": 64},
        "scheduler_config": {"max_new_tokens": 8, "block_size": 4, "batch_size": 2, "ignore_eos": True},
    }
    for name, values in sections.items():
        recipe.setdefault(f"{name}_config", {}).update(values)
    return recipe


def tiny_llm(**sections: dict[str, Any]) -> LLM:
    """`tiny_recipe`, loaded."""
    return LLM(tiny_recipe(**sections))
