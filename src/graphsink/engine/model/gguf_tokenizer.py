"""Rebuild the tokenizer that a GGUF file describes.

A GGUF file has the vocabulary and the merges, but only a *name* for the rule that cuts text into words
before the merges apply (``tokenizer.ggml.pre``). `PRE_TOKENIZERS` says which rule each name means; a
wrong rule gives other tokens than the model was trained on, without an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from graphsink.engine.model.files import first_names
from graphsink.engine.model.gguf_reading import GgufFile
from graphsink.engine.model.transformers_output import quiet_transformers
from graphsink.errors import TokenizerError

CONTROL, USER_DEFINED = 3, 4
"""Values of ``tokenizer.ggml.token_type``: never part of a text, and matched whole within one."""

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PUNCTUATION_AND_SPACE = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _word_rule(digits: str) -> str:
    """Contractions, words with at most one leading symbol, runs of digits, punctuation, spaces."""
    return rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}|{PUNCTUATION_AND_SPACE}"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How text is cut before the merges of a byte-level vocabulary apply.

    Attributes:
        pattern: regular expression of the pieces; ``None`` is the rule of GPT-2.
        single_digits: digits are cut one by one first.
        compose: text is normalised to composed characters (NFC) first.
        whole_words: a piece that is a token is taken as it is, merges or not.
        adds_bos: a beginning-of-sequence token is added when the file does not say.
    """

    pattern: str | None = None
    single_digits: bool = False
    compose: bool = False
    whole_words: bool = False
    adds_bos: bool = False


GPT2_RULE = PreTokenizer()
DIGITS_RULE = PreTokenizer(single_digits=True)
LLAMA3_RULE = PreTokenizer(_word_rule(r"\p{N}{1,3}"), whole_words=True, adds_bos=True)
QWEN2_RULE = PreTokenizer(_word_rule(r"\p{N}"), compose=True)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "gpt-2": GPT2_RULE,
    "phi-2": GPT2_RULE,
    "olmo": GPT2_RULE,
    "smollm": DIGITS_RULE,
    "starcoder": DIGITS_RULE,
    "refact": DIGITS_RULE,
    "command-r": DIGITS_RULE,
    "llama-bpe": LLAMA3_RULE,
    "llama3": LLAMA3_RULE,
    "llama-v3": LLAMA3_RULE,
    "dbrx": PreTokenizer(LLAMA3_RULE.pattern),
    "smaug-bpe": PreTokenizer(LLAMA3_RULE.pattern),
    "qwen2": QWEN2_RULE,
    "deepseek-r1-qwen": QWEN2_RULE,
}

SPECIAL_TOKENS: Mapping[str, str] = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


def write_tokenizer(file: GgufFile, directory: Path) -> tuple[str, ...]:
    """Write the tokenizer files of a Hugging Face directory, if the GGUF file describes a tokenizer.

    Returns:
        What the user should know, one sentence each.

    Raises:
        TokenizerError: a kind of tokenizer that is not supported, or contradictory data.
    """
    kind = file.metadata.get("tokenizer.ggml.model")
    if kind is None or kind == "none":
        return ("the GGUF file has no tokenizer; prompts must be token ids",)
    if kind not in ("gpt2", "llama"):
        raise TokenizerError(
            f"the GGUF file has a tokenizer of the kind '{kind}'; "
            "supported: gpt2 (byte-level BPE), llama (SentencePiece)",
            where=f"{file.path}: tokenizer.ggml.model",
            hint="use the safetensors version of the model",
        )
    tokenizer, notes = _byte_level(file) if kind == "gpt2" else (_sentencepiece(file), ())
    template = file.metadata.get("tokenizer.chat_template")
    if isinstance(template, str) and template:
        tokenizer.chat_template = template
    with quiet_transformers():
        tokenizer.save_pretrained(directory)
    return notes


def _texts(file: GgufFile, key: str) -> list[str]:
    value = file.metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise TokenizerError(
            f"the GGUF file has no list 'tokenizer.ggml.{key}'",
            where=str(file.path),
            hint="use the safetensors version of the model",
        )
    return [str(item) for item in value]


def _byte_level(file: GgufFile) -> tuple[PreTrainedTokenizerBase, tuple[str, ...]]:
    tokens = _texts(file, "tokens")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        repeated = {token for index, token in enumerate(tokens) if vocabulary[token] != index}
        raise TokenizerError(f"tokens are listed twice: {first_names(repeated)}", where=str(file.path))
    name = file.metadata.get("tokenizer.ggml.pre")
    rule = PRE_TOKENIZERS.get(str(name))
    notes: tuple[str, ...] = ()
    if rule is None:
        rule = GPT2_RULE
        notes = (
            f"the GGUF file's pre-tokenizer '{name or 'not named'}' is not known; text is cut as GPT-2 does, "
            "which may give other tokens than the model was trained on",
        )
    merges = [_merge(file, line) for line in _texts(file, "merges")]
    try:
        model = models.BPE(vocab=vocabulary, merges=merges, fuse_unk=False, ignore_merges=rule.whole_words)
    except Exception as error:  # the library raises bare Exception: a merge of unknown tokens
        raise TokenizerError(
            f"vocabulary and merges contradict each other: {error}", where=str(file.path)
        ) from error
    backend = Tokenizer(model)
    _set_rule(backend, rule)
    _add_special_tokens(file, backend, tokens)
    special = _special_tokens(file, tokens)
    if file.metadata.get("tokenizer.ggml.add_bos_token", rule.adds_bos) and "bos_token" in special:
        bos = special["bos_token"]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, vocabulary[bos])]
        )
    else:
        backend.post_processor = processors.ByteLevel(trim_offsets=False)
    with quiet_transformers():
        tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
            tokenizer_object=backend, clean_up_tokenization_spaces=False, **special
        )
    return tokenizer, notes


def _merge(file: GgufFile, line: str) -> tuple[str, str]:
    left, separator, right = line.partition(" ")
    if not (left and separator and right) or " " in right:
        raise TokenizerError(
            f"the merge '{line}' is not two tokens", where=f"{file.path}: tokenizer.ggml.merges"
        )
    return left, right


def _set_rule(backend: Tokenizer, rule: PreTokenizer) -> None:
    """Byte-level pre-tokenizer and decoder; the pieces come from the rule."""
    steps: list[pre_tokenizers.PreTokenizer] = []
    if rule.single_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if rule.pattern is not None:
        steps.append(pre_tokenizers.Split(Regex(rule.pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule.pattern is None))
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    if rule.compose:
        backend.normalizer = normalizers.NFC()


def _add_special_tokens(file: GgufFile, backend: Tokenizer, tokens: list[str]) -> None:
    kinds = file.metadata.get("tokenizer.ggml.token_type")
    if not isinstance(kinds, list):
        kinds = []
    added = [
        AddedToken(token, normalized=False, special=kind == CONTROL)
        for token, kind in zip(tokens, kinds, strict=False)
        if kind in (CONTROL, USER_DEFINED) and token
    ]
    backend.add_special_tokens([token for token in added if token.special])
    backend.add_tokens([token for token in added if not token.special])


def _special_tokens(file: GgufFile, tokens: list[str]) -> dict[str, str]:
    found = {}
    for name, key in SPECIAL_TOKENS.items():
        index = file.metadata.get(f"tokenizer.ggml.{key}")
        if index is None:
            continue
        if not isinstance(index, int) or not 0 <= index < len(tokens):
            raise TokenizerError(
                f"'tokenizer.ggml.{key}' is {index}, but there are {len(tokens)} tokens", where=str(file.path)
            )
        found[name] = tokens[index]
    return found


def _sentencepiece(file: GgufFile) -> PreTrainedTokenizerBase:
    """Let transformers rebuild it: no pre-tokenizer takes part, and merges follow from the scores."""
    _special_tokens(file, _texts(file, "tokens"))
    try:
        with quiet_transformers():
            tokenizer: PreTrainedTokenizerBase = PreTrainedTokenizerFast.from_pretrained(
                str(file.path.parent), gguf_file=file.path.name, local_files_only=True
            )
    except Exception as error:  # the library raises what it likes on contradictory data
        raise TokenizerError(
            f"transformers cannot rebuild the tokenizer: {error}",
            where=str(file.path),
            hint="use the safetensors version of the model",
        ) from error
    return tokenizer
