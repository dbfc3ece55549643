"""Every tested family gives transformers' own greedy tokens, alone and in batches."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench.reference import greedy_tokens, reference_copy
from graphsink import LLM

FAMILIES = ("llama", "qwen3", "qwen2", "mistral", "gemma2", "gemma3", "phi3", "olmo2", "granite")
NEW_TOKENS = 64


def load(recipes: Path, family: str, **overrides: object) -> LLM:
    """A family's recipe in float32, with random weights."""
    settings = {
        "model_config.dtype": "float32",
        "scheduler_config.max_new_tokens": NEW_TOKENS,
        "scheduler_config.ignore_eos": True,
        "scheduler_config.block_size": 16,
        # Tiny operators: a second thread costs more in waiting than it computes.
        "model_config.threads": 1,
    }
    return LLM(recipes / "families" / f"{family}.yaml", {**settings, **overrides})


def random_prompts(vocab_size: int, lengths: tuple[int, ...]) -> list[list[int]]:
    """Token ids; the special ids at the start of the vocabulary are left out."""
    generator = random.Random(1)
    return [[generator.randrange(8, vocab_size) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_equal_generate(recipes: Path, family: str) -> None:
    """Prompts of other lengths than the window and the block, more prompts than fit the batch at once.

    With eight prompts and a batch of three, requests join whenever one leaves; the last prompt runs
    alone. The prompt of 40 tokens is longer than the families' windows.
    """
    with load(recipes, family, **{"scheduler_config.batch_size": 3}) as llm:
        reference = reference_copy(llm.model.module)
        prompts = random_prompts(llm.model.architecture.vocab_size, (1, 5, 17, 40, 3, 16, 33, 2))
        limits = [NEW_TOKENS, 9, NEW_TOKENS, NEW_TOKENS, 1, 30, 12, NEW_TOKENS]
        sampling = [{"max_new_tokens": limit, "ignore_eos": True} for limit in limits]
        outputs = llm.generate(prompts, sampling)
        for prompt, limit, output in zip(prompts, limits, outputs, strict=True):
            assert output.token_ids == greedy_tokens(reference, prompt, limit)
            assert output.finish_reason == "length"
        alone = llm.generate(prompts[3])[0]
        assert alone.token_ids == outputs[3].token_ids


def test_families_have_the_features_they_stand_for(recipes: Path) -> None:
    """The recipes cover grouped heads, windows, soft-capping, QK-norm, tied and untied heads."""
    specs = {}
    tied = {}
    for family in FAMILIES:
        with load(recipes, family) as llm:
            specs[family] = llm.model.architecture.layers
            tied[family] = llm.model.config.tie_word_embeddings
    for family, layers in specs.items():
        if family not in ("olmo2",):
            assert any(layer.num_kv_heads < layer.num_query_heads for layer in layers), family
    assert all(layer.window > 0 for layer in specs["mistral"])
    assert {layer.window > 0 for layer in specs["gemma3"]} == {True, False}
    assert {layer.window > 0 for layer in specs["gemma2"]} == {True, False}
    assert all(layer.softcap == 50.0 for layer in specs["gemma2"])
    assert not any(
        layer.softcap for family, layers in specs.items() if family != "gemma2" for layer in layers
    )
    assert set(tied.values()) == {True, False}
