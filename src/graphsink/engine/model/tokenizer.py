"""Tokenizers: loading one from a directory, prompts to token ids, and the tokens that end a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import (
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from graphsink.config import ModelSection
from graphsink.engine.model.configuration import check_remote_code
from graphsink.engine.model.files import read_json_object
from graphsink.engine.model.model_source import ModelSource
from graphsink.engine.model.transformers_output import quiet_transformers
from graphsink.errors import GraphsinkError, PromptError, RecipeValueError, TokenizerError

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "tekken.json",
)
"""A directory with none of them, and no ``tokenizer_config.json``, has no tokenizer."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenizerHandle:
    """A tokenizer that fits the model.

    Attributes:
        hf: transformers' tokenizer.
        directory: where it came from, for messages.
        vocab_size: rows of the model's embedding; token ids are below it.
        notes: what the user should know, one sentence each.
    """

    hf: PreTrainedTokenizerBase
    directory: Path
    vocab_size: int
    notes: tuple[str, ...] = ()

    @property
    def has_chat_template(self) -> bool:
        """Whether prompts can be rendered as a conversation."""
        return bool(self.hf.chat_template)

    def encode_prompt(
        self,
        text: str,
        apply_chat_template: bool,
        system_prompt: str | None = None,
        enable_thinking: bool | None = None,
    ) -> list[int]:
        """Token ids of one prompt.

        With a chat template the prompt becomes the user's message, and the template writes every special
        token itself. Without one (or with ``apply_chat_template`` off) the tokenizer adds its own.

        Args:
            text: the prompt.
            apply_chat_template: use the template if there is one.
            system_prompt: system message; needs the template.
            enable_thinking: passed to the template when not ``None``.

        Raises:
            PromptError: the prompt gives no tokens.
            RecipeValueError: ``system_prompt`` without a template to put it in.
            TokenizerError: the template fails, or a token is not in the model's embedding.
        """
        if apply_chat_template and self.has_chat_template:
            rendered = self._render(text, system_prompt, enable_thinking)
            ids = self.hf(rendered, add_special_tokens=False, verbose=False)["input_ids"]
        else:
            if system_prompt is not None:
                there = "is off" if self.has_chat_template else "does not exist"
                raise RecipeValueError(
                    f"a system prompt is set, but the chat template that it needs {there}",
                    key="data_config.system_prompt",
                    hint="remove it, or write it into the prompt",
                )
            ids = self.hf(text, add_special_tokens=True, verbose=False)["input_ids"]
        return self._checked(list(ids))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens left out and spaces as they are."""
        if _decodes_as_its_backend(self.hf):
            # What transformers calls as well; its way there costs several times as much as the decoding.
            return str(self.hf.backend_tokenizer.decode(list(ids), skip_special_tokens=True))
        text = self.hf.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(text)

    def eos_token_ids(
        self, config: PreTrainedConfig, generation_config: GenerationConfig | None
    ) -> frozenset[int]:
        """The tokens that end a text, see `eos_token_ids`."""
        return eos_token_ids(config, generation_config, self)

    def _render(self, text: str, system_prompt: str | None, enable_thinking: bool | None) -> str:
        messages = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
        messages.append({"role": "user", "content": text})
        options: dict[str, Any] = {"add_generation_prompt": True, "tokenize": False}
        if enable_thinking is not None:
            options["enable_thinking"] = enable_thinking
        try:
            rendered = self.hf.apply_chat_template(messages, **options)
        except Exception as error:  # a template is code: besides jinja's errors it raises its own
            reason = " ".join(str(error).split()) or type(error).__name__
            line = getattr(error, "lineno", None)
            raise TokenizerError(
                f"the chat template failed: {reason}" + (f" (template line {line})" if line else ""),
                where=str(self.directory),
                hint="set data_config.apply_chat_template: False (`--raw`), or correct the template; "
                "some templates refuse a system prompt",
            ) from error
        return str(rendered)

    def _checked(self, ids: list[int]) -> list[int]:
        if not ids:
            raise PromptError("the prompt gives no tokens", hint="write a prompt with at least one character")
        highest = max(ids)
        if highest >= self.vocab_size:
            token = self.hf.convert_ids_to_tokens(highest)
            raise TokenizerError(
                f"the token {highest} ('{token}') is not in the model's vocabulary of {self.vocab_size}",
                where=str(self.directory),
                hint="the tokenizer belongs to another model",
            )
        return ids


def _decodes_as_its_backend(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer's class leaves decoding to the `tokenizers` library."""
    kind = type(tokenizer)
    return (
        isinstance(tokenizer, PreTrainedTokenizerFast)
        and kind.decode is PreTrainedTokenizerBase.decode
        and kind._decode is PreTrainedTokenizerFast._decode
    )


def load_tokenizer(
    source: ModelSource, section: ModelSection, config: PreTrainedConfig
) -> TokenizerHandle | None:
    """Load the tokenizer of a model from local files.

    Args:
        source: its ``tokenizer_directory`` is looked at.
        section: for ``trust_remote_code``.
        config: for the vocabulary size.

    Returns:
        ``None`` if the directory has no tokenizer (or there is no directory): then prompts are token ids.

    Raises:
        TokenizerError: there is a tokenizer, and it cannot be loaded; or ``tokenizer_path`` has none.
        UnsupportedModelError: it brings code that ``trust_remote_code`` does not allow.
    """
    directory = source.tokenizer_directory
    if directory is None:
        return None
    check_remote_code(source, section)
    if not _has_tokenizer(directory):
        if section.tokenizer_path:
            raise TokenizerError(
                f"there is no tokenizer in '{section.tokenizer_path}'",
                where=f"model_config.tokenizer_path: {directory}",
                hint=f"a tokenizer is one of {', '.join(TOKENIZER_FILES)}",
            )
        return None
    tokenizer = _load(directory, section, config)
    notes = []
    if len(tokenizer) > config.vocab_size:
        notes.append(
            f"the tokenizer has {len(tokenizer)} tokens, the model's embedding {config.vocab_size}; "
            "prompts that use the surplus are refused"
        )
    return TokenizerHandle(tokenizer, directory, int(config.vocab_size), tuple(notes))


def eos_token_ids(
    config: PreTrainedConfig, generation_config: GenerationConfig | None, tokenizer: TokenizerHandle | None
) -> frozenset[int]:
    """Every token that ends a text, by configuration, generation configuration or tokenizer.

    The three often differ: a chat model's tokenizer ends a turn (``<|im_end|>``), its configuration
    still ends the document.
    """
    found: set[int] = set()
    for owner in (config, generation_config, tokenizer.hf if tokenizer is not None else None):
        value = getattr(owner, "eos_token_id", None)
        values: Iterable[object] = value if isinstance(value, (list, tuple)) else (value,)
        found.update(item for item in values if isinstance(item, int) and item >= 0)
    return frozenset(found)


def _has_tokenizer(directory: Path) -> bool:
    return any((directory / name).is_file() for name in (*TOKENIZER_FILES, "tokenizer_config.json"))


def _load(directory: Path, section: ModelSection, config: PreTrainedConfig) -> PreTrainedTokenizerBase:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (directory / name).is_file():
            _check_json(directory / name)
    options = {} if (directory / "config.json").is_file() else {"config": config}
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(
                directory, local_files_only=True, trust_remote_code=section.trust_remote_code, **options
            )
    except Exception as error:  # the library and the model's own code raise what they like
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TokenizerError(
            f"the tokenizer cannot be loaded: {reason}",
            where=str(directory),
            hint="download the tokenizer files again, or name another directory (tokenizer_path)",
        ) from error
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise TokenizerError(f"it gives a {type(tokenizer).__name__}, not a tokenizer", where=str(directory))
    return tokenizer


def _check_json(path: Path) -> None:
    """A damaged file is named with its line before the library reports something less precise."""
    try:
        read_json_object(path)
    except GraphsinkError as error:
        raise TokenizerError(error.what, where=error.where, hint=error.hint) from error
