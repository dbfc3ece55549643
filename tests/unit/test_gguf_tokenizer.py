"""The rule that cuts text into words is the one that the file names."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from graphsink.engine.model.gguf_reading import read_gguf
from graphsink.engine.model.gguf_tokenizer import write_tokenizer
from support.tiny_gguf import write_gguf
from support.tiny_models import build_model, family_values


def pieces(directory: Path, pre: str, text: str) -> list[str]:
    """How text is cut before merges, spelled as text again."""
    path = directory / "m.gguf"
    write_gguf(path, build_model(family_values("llama", num_hidden_layers=1)), pre=pre)
    assert write_tokenizer(read_gguf(path), directory / pre) == ()
    backend = Tokenizer.from_file(str(directory / pre / "tokenizer.json"))
    return [backend.decoder.decode([piece]) for piece, _ in backend.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["it", "'s", " 2024", ",", " I", "'", "LL", " x", "==", "3", "\n\n", " ok"]),
        (
            "smollm",
            ["it", "'s", " ", "2", "0", "2", "4", ",", " I", "'", "LL", " x", "==", "3", "\n\n", " ok"],
        ),
        ("llama-bpe", ["it", "'s", " ", "202", "4", ",", " I", "'LL", " x", "==", "3", "\n\n", " ok"]),
        ("qwen2", ["it", "'s", " ", "2", "0", "2", "4", ",", " I", "'LL", " x", "==", "3", "\n\n", " ok"]),
    ],
)
def test_text_is_cut_by_the_named_rule(tmp_path: Path, pre: str, expected: list[str]) -> None:
    assert pieces(tmp_path, pre, "it's 2024, I'LL x==3\n\n ok") == expected


def load(directory: Path, **options: object) -> PreTrainedTokenizerBase:
    path = directory / "m.gguf"
    write_gguf(path, build_model(family_values("llama", num_hidden_layers=1)), **options)  # type: ignore[arg-type]
    write_tokenizer(read_gguf(path), directory)
    return AutoTokenizer.from_pretrained(directory, local_files_only=True)


@pytest.mark.parametrize(
    ("pre", "flag", "begins"),
    [("gpt-2", None, False), ("gpt-2", True, True), ("llama-bpe", None, True), ("llama-bpe", False, False)],
)
def test_a_beginning_token_is_added_as_the_file_or_its_rule_says(
    tmp_path: Path, pre: str, flag: bool | None, begins: bool
) -> None:
    extra = {} if flag is None else {"tokenizer.ggml.add_bos_token": flag}
    tokenizer = load(tmp_path, pre=pre, extra=extra)
    assert (tokenizer.encode("the fox")[0] == 1) is begins


def test_qwen2_composes_characters(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, pre="qwen2")
    assert tokenizer.encode("cafe\u0301") == tokenizer.encode("caf\u00e9")


def test_control_tokens_are_whole_and_left_out_of_text(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, pre="smollm")
    ids = tokenizer.encode("the<|im_end|>fox")
    assert 2 in ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "thefox"


@pytest.mark.parametrize(("pre", "name"), [("rule-of-2031", "rule-of-2031"), (None, "not named")])
def test_an_unknown_rule_is_said_not_guessed_in_silence(tmp_path: Path, pre: str | None, name: str) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, build_model(family_values("llama", num_hidden_layers=1)), pre=pre)
    (note,) = write_tokenizer(read_gguf(path), tmp_path)
    assert note.startswith(f"the GGUF file's pre-tokenizer '{name}' is not known; text is cut as GPT-2 does")


def test_a_sentencepiece_vocabulary_is_rebuilt_by_the_library(tmp_path: Path) -> None:
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{value:02X}>" for value in range(256)]
    words = ["th", "the", "▁the", "▁c", "▁ca", "▁cat", "▁t", "▁", "t", "h", "e", "c", "a"]  # best first
    writer = gguf.GGUFWriter(tmp_path / "s.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens + words)
    writer.add_token_scores([0.0] * len(tokens) + [-float(index) for index in range(len(words))])
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * len(words))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert write_tokenizer(read_gguf(tmp_path / "s.gguf"), tmp_path) == ()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    ids = tokenizer.encode("the cat é")
    assert ids[0] == 1  # SentencePiece models begin with <s> unless the file says otherwise
    vocabulary = tokens + words
    assert vocabulary[ids[1]] == "▁the"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "the cat é"
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token) == ("<s>", "</s>", "<unk>")
