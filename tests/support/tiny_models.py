"""Tiny random models on disk: Hugging Face directories and tokenizers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CORPUS = [
    "the quick brown fox jumps over the lazy dog",
    "the theory of the other weather; 2024 and 1999 were years",
    "naïve café — déjà vu, 漢字 and 🙂",
]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VOCAB_SIZE = 320

BASE = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "tie_word_embeddings": True},
    "mistral": {"model_type": "mistral", "sliding_window": 8},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3", "head_dim": 32, "tie_word_embeddings": True},
    "gemma2": {"model_type": "gemma2", "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8},
    "gemma3": {
        "model_type": "gemma3_text",
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 8,
        "num_hidden_layers": 7,
    },
    "phi3": {"model_type": "phi3", "sliding_window": 8},
    "granite": {
        "model_type": "granite",
        "attention_multiplier": 0.25,
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.5,
        "logits_scaling": 8.0,
    },
    "olmo2": {"model_type": "olmo2"},
}


def family_values(family: str, **overrides: Any) -> dict[str, Any]:
    """The keys of a tiny configuration of that family."""
    return BASE | FAMILIES[family] | overrides


def build_model(
    values: dict[str, Any], *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    """A model with random weights; norms and biases are random too, so that mixing them up shows."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(**values)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.copy_(torch.randn(parameter.shape) * 0.1 + (1.0 if "norm" in name else 0.0))
            else:
                parameter.copy_(torch.randn(parameter.shape) * 0.1)
    return model


def write_model_directory(
    directory: Path,
    values: dict[str, Any],
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    tokenizer: bool = False,
    shard_size: str = "5GB",
) -> PreTrainedModel:
    """Write a model directory and return the model that is in it."""
    model = build_model(values, seed=seed, dtype=dtype)
    model.save_pretrained(directory, max_shard_size=shard_size)
    if tokenizer:
        write_tokenizer(directory)
    return model


def train_backend() -> Tokenizer:
    """A byte-level BPE tokenizer of `VOCAB_SIZE` tokens at most, special tokens first."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def write_tokenizer(
    directory: Path, *, chat_template: str | None = CHAT_TEMPLATE, adds_bos: bool = False
) -> PreTrainedTokenizerFast:
    """Write a small byte-level tokenizer: ``<|im_start|>`` (1) begins, ``<|im_end|>`` (2) ends."""
    backend = train_backend()
    if adds_bos:
        backend.post_processor = processors.TemplateProcessing(
            single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        unk_token="<|endoftext|>",
    )
    tokenizer.chat_template = chat_template
    tokenizer.save_pretrained(directory)
    return tokenizer


def edit_json(path: Path, **changes: Any) -> None:
    """Set keys of a JSON object in a file; ``None`` removes a key."""
    values = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    values |= changes
    kept = {key: value for key, value in values.items() if value is not None}
    path.write_text(json.dumps(kept), encoding="utf-8")
