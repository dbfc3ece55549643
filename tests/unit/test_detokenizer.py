"""Incremental detokenizer against the decoder itself, with real tokenizers trained here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from graphsink.engine.detokenizer import IncrementalDetokenizer, byte_fallback_tokens

CORPUS = [
    "Hello world, hello again.  Two spaces, a tab\tand a line\nbreak.",
    "안녕하세요 세계. 한국어 음절이 사라지지 않아야 합니다.",
    "你好，世界。每个字符都必须完整。日本語のテキスト。",
    "👩‍👩‍👧‍👦 family 🇩🇪🇯🇵 flags 👍🏽 thumbs 🤷‍♀️ shrug 😀😃😄",
    "e\u0301 a\u0308 combining, n\u0303 and \u05e9\u05b8\u05c1 marks, zero\u200bwidth",
    "a replacement \ufffd character, and \ufffd\ufffd more",
]
SPECIAL = "<|end|>"
Decode = Callable[[list[int]], str]


def decoder_of(tokenizer: Tokenizer) -> Decode:
    return lambda ids: tokenizer.decode(ids, skip_special_tokens=True)


@pytest.fixture(scope="module")
def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=[SPECIAL], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


@pytest.fixture(scope="module")
def sentencepiece_like() -> Tokenizer:
    """Metaspace pieces, byte fallback, and the leading space stripped, as Llama 2 has it."""
    pieces = ["<unk>", SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "▁▁", "▁Hello", "▁world", ",", ".", "H", "e", "l", "o", "你", "\ufffd", "é"]
    tokenizer = Tokenizer(
        models.BPE(
            {piece: index for index, piece in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True
        )
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([SPECIAL])
    return tokenizer


def stream(detokenizer: IncrementalDetokenizer, ids: Sequence[int]) -> tuple[list[str], str]:
    return [detokenizer.push(token_id) for token_id in ids], detokenizer.finish()


def check_exact(decode: Decode, ids: list[int], byte_tokens: frozenset[int] = frozenset()) -> list[str]:
    """Pieces add up to the decoder's own text; returns them."""
    pieces, rest = stream(IncrementalDetokenizer(decode, byte_tokens=byte_tokens), ids)
    assert "".join(pieces) + rest == decode(ids)
    return pieces


def sentencepiece_ids(tokenizer: Tokenizer, *pieces: str | bytes) -> list[int]:
    ids: list[int] = []
    for piece in pieces:
        names = [piece] if isinstance(piece, str) else [f"<0x{byte:02X}>" for byte in piece]
        ids += [tokenizer.token_to_id(name) for name in names]
    assert None not in ids
    return ids


@pytest.mark.parametrize("text", CORPUS)
def test_every_cut_of_real_text(byte_level: Tokenizer, text: str) -> None:
    decode, ids = decoder_of(byte_level), byte_level.encode(text).ids
    assert decode(ids) == text
    for end in range(len(ids) + 1):
        check_exact(decode, ids[:end])
    for start in range(len(ids)):
        check_exact(decode, ids[start:])


@pytest.mark.parametrize("text", [text for text in CORPUS if "\ufffd" not in text])
def test_single_bytes_never_show_half_a_character(byte_level: Tokenizer, text: str) -> None:
    """The hardest split: one token per byte. Every character comes whole, with its last byte."""
    alphabet = [byte_level.encode(chr(value)).ids for value in range(128)]
    to_id = {byte: ids[0] for byte, ids in enumerate(alphabet) if len(ids) == 1}
    names = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ids = [byte_level.token_to_id(name) for name in names.pre_tokenize_str(text)[0][0]]
    assert len(ids) == len(text.encode())
    assert to_id[ord("a")] == byte_level.token_to_id("a")
    detokenizer = IncrementalDetokenizer(decoder_of(byte_level))
    expected = [piece for character in text for piece in [""] * (len(character.encode()) - 1) + [character]]
    assert stream(detokenizer, ids) == (expected, "")


def byte_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    """Token ids of single bytes in a byte-level vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    names = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [tokenizer.token_to_id(names[byte]) for byte in data]


@pytest.mark.parametrize(
    "data",
    [
        b"\xe4",
        b"ok \xe4\xbd",
        b"\xe4\xbdA",
        b"\xf0\x9f\x98\xf0\x9f\x98\x80",
        b"\x80\x80\x80\x80",
        b"a\xff\xfe\xfdb",
        b"\xef\xbf\xbd",
        b"\xef\xbf\xbd\xef\xbf",
        b"x" + b"\xed\xa0\x80" * 3,
        b"\xc0\xaf\xf5\x80" * 2 + "末".encode(),
    ],
)
def test_invalid_bytes_come_out_as_the_decoder_has_them(byte_level: Tokenizer, data: bytes) -> None:
    ids = byte_ids(byte_level, data)
    decode = decoder_of(byte_level)
    assert decode(ids) == data.decode(errors="replace")
    check_exact(decode, ids)


def test_text_before_an_open_character_is_not_held(byte_level: Tokenizer) -> None:
    detokenizer = IncrementalDetokenizer(lambda ids: bytes(ids).decode(errors="replace"))
    assert [detokenizer.push(byte) for byte in b"a\xe4\xbd\xa0b"] == ["a", "", "", "你", "b"]
    merged = {1: b"a\xe4\xbd", 2: b"\xa0b"}
    detokenizer = IncrementalDetokenizer(
        lambda ids: b"".join(merged[i] for i in ids).decode(errors="replace")
    )
    assert stream(detokenizer, [1, 2]) == (["a", "你b"], "")


def test_unfinished_character_is_given_at_the_end_once() -> None:
    detokenizer = IncrementalDetokenizer(lambda ids: bytes(ids).decode(errors="replace"))
    assert [detokenizer.push(byte) for byte in b"a\xf0\x9f"] == ["a", "", ""]
    assert (detokenizer.finish(), detokenizer.finish()) == ("\ufffd", "")


@pytest.mark.parametrize(
    "unit",
    [
        b"\xe4",
        b"\xef\xbf\xbd",
        b"\x80",
        b"\xf0\x9f\x98",
        b"\xe4\xbd",
        b"a",
        "你".encode(),
        b" ",
        b"\xf0\x9f\x98\x80",
    ],
)
def test_work_per_token_is_bounded(unit: bytes) -> None:
    """No output, however long or broken, makes the decoded window grow."""
    calls: list[int] = []

    def decode(ids: list[int]) -> str:
        calls.append(len(ids))
        return bytes(ids).decode(errors="replace")

    ids = list(unit * (1500 // len(unit)))
    pieces, rest = stream(IncrementalDetokenizer(decode), ids)
    assert "".join(pieces) + rest == bytes(ids).decode(errors="replace")
    assert max(calls) <= 17
    assert sum(calls) <= 20 * len(ids)


def test_window_is_bounded_when_tokens_split_every_character() -> None:
    """Tokens whose ends never fall together with the end of a character, valid or not."""
    for head, body in ((b"\xe4\xbd", b"\xa0\xe4\xbd"), (b"\xe4", b"\xbd\xe4")):
        largest = 0

        def decode(ids: list[int], head: bytes = head, body: bytes = body) -> str:
            nonlocal largest
            largest = max(largest, len(ids))
            return b"".join(head if token_id == 0 else body for token_id in ids).decode(errors="replace")

        ids = [0] + [1] * 300
        pieces, rest = stream(IncrementalDetokenizer(decode), ids)
        assert largest <= 17
        assert "".join(pieces) + rest == decode(ids)


def test_special_tokens_have_no_text_and_cost_no_window(byte_level: Tokenizer) -> None:
    largest = 0

    def decode(ids: list[int]) -> str:
        nonlocal largest
        largest = max(largest, len(ids))
        return byte_level.decode(ids, skip_special_tokens=True)

    end = byte_level.token_to_id(SPECIAL)
    face = byte_ids(byte_level, "😀".encode())
    ids = [end] * 200 + face[:2] + [end] * 200 + face[2:] + [end] * 200
    pieces, rest = stream(IncrementalDetokenizer(decode), ids)
    assert [piece for piece in pieces if piece] == ["😀"]
    assert pieces[403] == "😀"
    assert rest == ""
    assert largest <= 6


def test_sentencepiece_spaces(sentencepiece_like: Tokenizer) -> None:
    decode = decoder_of(sentencepiece_like)
    ids = sentencepiece_ids(sentencepiece_like, "▁Hello", "▁world", ",", "▁Hello", "▁", "▁▁", "o", "▁world")
    assert check_exact(decode, ids) == ["Hello", " world", ",", " Hello", " ", "  ", "o", " world"]
    ids = sentencepiece_ids(sentencepiece_like, "▁", "▁Hello")
    assert check_exact(decode, ids) == ["", " Hello"]


def test_sentencepiece_spaces_after_special_tokens(sentencepiece_like: Tokenizer) -> None:
    decode = decoder_of(sentencepiece_like)
    for count in (1, 5, 40):
        ids = sentencepiece_ids(
            sentencepiece_like, "o", *[SPECIAL] * count, "▁Hello", *["▁"] * count, "▁world"
        )
        pieces = check_exact(decode, ids)
        assert pieces[1 + count] == " Hello"


def test_byte_fallback_runs(sentencepiece_like: Tokenizer) -> None:
    decode = decoder_of(sentencepiece_like)
    byte_tokens = byte_fallback_tokens(sentencepiece_like.get_vocab())
    assert len(byte_tokens) == 256
    ids = sentencepiece_ids(sentencepiece_like, "▁Hello", "😀é".encode(), "▁world")
    assert check_exact(decode, ids, byte_tokens) == ["Hello", *[""] * 6, "😀é world"]


@pytest.mark.parametrize(
    "pieces",
    [
        ("▁Hello", b"\n\xf0\x9f"),
        ("▁Hello", b"\n\xf0\x9f", "▁world"),
        ("▁Hello", b"\xe4\xbd\xa0\xe4", "o"),
        ("▁Hello", b"\xe4\xbd\xa0", SPECIAL, b"\xe4", SPECIAL),
        (b"\n\n", SPECIAL, b"\n", "▁", "▁Hello"),
        (b"\xff" * 100, "▁Hello"),
        (b"\xff" * 30, "\ufffd", "\ufffd", b"\xe4\xbd\xa0", "\ufffd"),
        (b" ", "▁Hello"),
        ("▁", b" ", "▁Hello"),
    ],
)
def test_invalid_byte_fallback_is_exact(
    sentencepiece_like: Tokenizer, pieces: tuple[str | bytes, ...]
) -> None:
    """This decoder turns a whole run of byte tokens into U+FFFD if its last character is unfinished."""
    byte_tokens = byte_fallback_tokens(sentencepiece_like.get_vocab())
    ids = sentencepiece_ids(sentencepiece_like, *pieces)
    for end in range(len(ids) + 1):
        check_exact(decoder_of(sentencepiece_like), ids[:end], byte_tokens)


def test_prompt_tail_is_context_and_not_output(sentencepiece_like: Tokenizer, byte_level: Tokenizer) -> None:
    tail = sentencepiece_ids(sentencepiece_like, "▁Hello")
    detokenizer = IncrementalDetokenizer(decoder_of(sentencepiece_like), tail)
    assert stream(detokenizer, sentencepiece_ids(sentencepiece_like, "▁world")) == ([" world"], "")
    face = byte_ids(byte_level, "x😀".encode())
    detokenizer = IncrementalDetokenizer(decoder_of(byte_level), face[:3])
    assert stream(detokenizer, face[3:]) == (["", "😀"], "")


def test_nothing_pushed() -> None:
    assert IncrementalDetokenizer(lambda ids: "never" if ids else "").finish() == ""


def test_byte_fallback_tokens_are_recognised_by_their_exact_form() -> None:
    vocabulary = {"<0x0A>": 3, "<0xff>": 4, "<0xFF>": 5, "<0x123>": 6, "a<0x0A>": 7}
    assert byte_fallback_tokens(vocabulary) == frozenset({3, 5})
