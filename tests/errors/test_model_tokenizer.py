"""Tokenizers and chat templates that do not work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from graphsink.config import ModelSection
from graphsink.engine.model.model_source import ModelSource, SourceKind
from graphsink.engine.model.tokenizer import TokenizerHandle, load_tokenizer
from graphsink.errors import PromptError, RecipeValueError, TokenizerError, UnsupportedModelError
from support.tiny_models import edit_json, write_tokenizer


def load(directory: Path, vocab_size: int = 320, **section: Any) -> TokenizerHandle:
    source = ModelSource(SourceKind.DIRECTORY, written="m", tokenizer_directory=directory)
    config = AutoConfig.for_model("llama", vocab_size=vocab_size)
    loaded = load_tokenizer(source, ModelSection(model_path="m", **section), config)
    assert loaded is not None
    return loaded


def handle(directory: Path, template: str | None, vocab_size: int = 320) -> TokenizerHandle:
    write_tokenizer(directory, chat_template=template)
    return load(directory, vocab_size)


def test_a_named_directory_without_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="there is no tokenizer in 'words'"):
        load(tmp_path, tokenizer_path="words")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"model": ', "'tokenizer.json' is not valid JSON"),
        ("[]", "'tokenizer.json' holds a JSON list"),
        ('{"model": {"type": "BPE"}}', "the tokenizer cannot be loaded"),
    ],
)
def test_a_damaged_tokenizer_file(tmp_path: Path, content: str, words: str) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(TokenizerError) as caught:
        load(tmp_path)
    assert caught.value.what.startswith(words)
    assert str(tmp_path) in str(caught.value.where)


def test_a_configuration_without_the_tokenizer_itself(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(TokenizerError, match="the tokenizer cannot be loaded"):
        load(tmp_path)


def test_a_tokenizer_with_code_of_its_own(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Tokenizer", None]})
    with pytest.raises(UnsupportedModelError, match="which is not run"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for message in messages %}", "Unexpected end of template"),
        ("{{ messages[0].content | no_such_filter }}", "No filter named 'no_such_filter'"),
        ("{{ raise_exception('System role not supported') }}", "System role not supported"),
        ("{{ missing.attribute }}", "'missing' is undefined"),
    ],
)
def test_a_broken_template_gives_its_own_message(tmp_path: Path, template: str, words: str) -> None:
    tokenizer = handle(tmp_path, template)
    with pytest.raises(TokenizerError) as caught:
        tokenizer.encode_prompt("hi", apply_chat_template=True)
    assert caught.value.what.startswith("the chat template failed: ")
    assert words in caught.value.what
    assert caught.value.hint is not None
    assert "--raw" in caught.value.hint


def test_a_template_cannot_reach_the_machine(tmp_path: Path) -> None:
    tokenizer = handle(tmp_path, "{{ messages.__class__.__base__.__subclasses__() }}")
    with pytest.raises(TokenizerError, match="unsafe"):
        tokenizer.encode_prompt("hi", apply_chat_template=True)


def test_a_system_prompt_without_a_template_is_not_dropped(tmp_path: Path) -> None:
    with pytest.raises(RecipeValueError, match="the chat template that it needs does not exist"):
        handle(tmp_path, None).encode_prompt("hi", True, system_prompt="be brief")
    with pytest.raises(RecipeValueError, match="the chat template that it needs is off") as caught:
        handle(tmp_path, "x").encode_prompt("hi", False, system_prompt="be brief")
    assert caught.value.key == "data_config.system_prompt"


def test_a_prompt_without_tokens(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="gives no tokens"):
        handle(tmp_path, None).encode_prompt("", apply_chat_template=True)


def test_a_token_that_the_embedding_lacks(tmp_path: Path) -> None:
    tokenizer = handle(tmp_path, None, vocab_size=10)
    with pytest.raises(TokenizerError, match="is not in the model's vocabulary of 10"):
        tokenizer.encode_prompt("the fox", apply_chat_template=True)
