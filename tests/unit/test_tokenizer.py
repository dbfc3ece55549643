"""Prompts become token ids, and the tokens that end a text are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, GenerationConfig

from graphsink.config import ModelSection
from graphsink.engine.model.model_source import ModelSource, SourceKind
from graphsink.engine.model.tokenizer import TokenizerHandle, eos_token_ids, load_tokenizer
from support.tiny_models import (
    CHAT_TEMPLATE,
    family_values,
    train_backend,
    write_model_directory,
    write_tokenizer,
)

CONFIG = AutoConfig.for_model("llama", vocab_size=320, bos_token_id=1, eos_token_id=2)


def load(directory: Path | None, **section: Any) -> TokenizerHandle | None:
    source = ModelSource(SourceKind.DIRECTORY, written="m", tokenizer_directory=directory)
    return load_tokenizer(source, ModelSection(model_path="m", **section), CONFIG)


def handle(directory: Path, **options: Any) -> TokenizerHandle:
    write_tokenizer(directory, **options)
    loaded = load(directory)
    assert loaded is not None
    return loaded


def ids(text: str) -> list[int]:
    return list(train_backend().encode(text).ids)


def test_a_directory_without_tokenizer_has_none(tmp_path: Path) -> None:
    write_model_directory(tmp_path, family_values("llama"))
    assert load(tmp_path) is None
    assert load(None) is None


def test_a_prompt_becomes_the_users_message(tmp_path: Path) -> None:
    tokens = handle(tmp_path).encode_prompt("hi there", apply_chat_template=True)
    assert tokens == ids("<|im_start|>user\nhi there<|im_end|>\n<|im_start|>assistant\n")


def test_a_system_prompt_comes_first(tmp_path: Path) -> None:
    tokens = handle(tmp_path).encode_prompt("hi", apply_chat_template=True, system_prompt="be brief")
    assert tokens == ids(
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_special_tokens_are_not_added_to_what_the_template_wrote(tmp_path: Path) -> None:
    tokenizer = handle(tmp_path, adds_bos=True)
    assert tokenizer.encode_prompt("hi", apply_chat_template=True).count(1) == 2  # user and assistant
    assert tokenizer.encode_prompt("hi", apply_chat_template=False) == [1, *ids("hi")]


def test_a_raw_prompt_is_encoded_as_it_is(tmp_path: Path) -> None:
    assert handle(tmp_path).encode_prompt("the fox", apply_chat_template=False) == ids("the fox")


def test_without_template_the_prompt_is_raw(tmp_path: Path) -> None:
    tokenizer = handle(tmp_path, chat_template=None)
    assert not tokenizer.has_chat_template
    assert tokenizer.encode_prompt("the fox", apply_chat_template=True) == ids("the fox")


def test_thinking_is_passed_on_only_when_set(tmp_path: Path) -> None:
    template = CHAT_TEMPLATE + "{% if enable_thinking is defined %}[{{ enable_thinking }}]{% endif %}"
    tokenizer = handle(tmp_path, chat_template=template)
    plain = tokenizer.encode_prompt("hi", True)
    assert tokenizer.encode_prompt("hi", True, enable_thinking=False) == plain + ids("[False]")
    assert tokenizer.encode_prompt("hi", True, enable_thinking=True) == plain + ids("[True]")


def test_text_survives_and_special_tokens_are_left_out(tmp_path: Path) -> None:
    tokenizer = handle(tmp_path)
    text = " naïve  漢字 🙂 .\n don 't"
    assert tokenizer.decode(ids(text)) == text
    assert tokenizer.decode([*ids("fox"), 2]) == "fox"


def test_a_tokenizer_from_another_directory(tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    write_tokenizer(tmp_path / "words")
    loaded = load(tmp_path / "words", tokenizer_path="words")
    assert loaded is not None
    assert loaded.directory == tmp_path / "words"


def test_more_tokens_than_the_embedding_is_noted(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    source = ModelSource(SourceKind.DIRECTORY, written="m", tokenizer_directory=tmp_path)
    small = AutoConfig.for_model("llama", vocab_size=300)
    loaded = load_tokenizer(source, ModelSection(model_path="m"), small)
    assert loaded is not None
    assert loaded.notes == (
        f"the tokenizer has {len(loaded.hf)} tokens, the model's embedding 300; "
        "prompts that use the surplus are refused",
    )


@pytest.mark.parametrize(
    ("config_eos", "generation_eos", "with_tokenizer", "expected"),
    [
        (5, None, False, {5}),
        ([5, 6], None, False, {5, 6}),
        (5, [7, 8], False, {5, 7, 8}),
        (5, 7, True, {2, 5, 7}),
        (None, None, True, {2}),
        (None, None, False, set()),
        (0, None, False, {0}),
    ],
)
def test_every_source_of_end_tokens_counts(
    tmp_path: Path, config_eos: Any, generation_eos: Any, with_tokenizer: bool, expected: set[int]
) -> None:
    config = AutoConfig.for_model("llama", vocab_size=320, eos_token_id=config_eos)
    generation = None if generation_eos is None else GenerationConfig(eos_token_id=generation_eos)
    tokenizer = handle(tmp_path) if with_tokenizer else None
    assert eos_token_ids(config, generation, tokenizer) == frozenset(expected)
    if tokenizer is not None:
        assert tokenizer.eos_token_ids(config, generation) == frozenset(expected)
