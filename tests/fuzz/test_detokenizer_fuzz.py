"""Any sequence of tokens, and any sequence of bytes behind them, streams to the decoder's own text."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from graphsink.engine.detokenizer import IncrementalDetokenizer
from graphsink.engine.stop_strings import StopStringFilter

BYTES = st.one_of(
    st.text("aé你😀\u0301\ufffd \n", min_size=1, max_size=3).map(str.encode),
    st.binary(min_size=1, max_size=3),
    st.sampled_from(
        [b"\xe4", b"\xe4\xbd", b"\xbd\xa0", b"\xa0\xe4\xbd", b"\xef\xbf", b"\xf0\x9f\x98", b"\x80", b""]
    ),
)


def stream(detokenizer: IncrementalDetokenizer, ids: list[int]) -> str:
    return "".join([detokenizer.push(token_id) for token_id in ids]) + detokenizer.finish()


@settings(max_examples=400, deadline=None, print_blob=True)
@given(vocabulary=st.lists(BYTES, min_size=1, max_size=6), data=st.data())
def test_byte_level(vocabulary: list[bytes], data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, len(vocabulary) - 1), max_size=60))

    def decode(token_ids: list[int]) -> str:
        return b"".join(vocabulary[token_id] for token_id in token_ids).decode(errors="replace")

    assert stream(IncrementalDetokenizer(decode), ids) == decode(ids)


PIECES = [
    "▁",
    "▁▁",
    "▁a",
    "b",
    "你",
    "\ufffd",
    "",
    "<0x0A>",
    "<0x20>",
    "<0xE4>",
    "<0xBD>",
    "<0xA0>",
    "<0xFF>",
]
BYTE_PIECES = {index for index, piece in enumerate(PIECES) if piece.startswith("<")}


def decode_sentencepiece(token_ids: list[int]) -> str:
    """Byte fallback over maximal runs, then one leading space stripped. A token without text is skipped."""
    text = "".join(PIECES[token_id] for token_id in token_ids)

    def replace_run(run: re.Match[str]) -> str:
        raw = bytes.fromhex(re.sub("<0x|>", "", run[0]))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(raw)

    return re.sub(r"(<0x..>)+", replace_run, text.replace("▁", " ")).removeprefix(" ")


@settings(max_examples=400, deadline=None, print_blob=True)
@given(ids=st.lists(st.integers(0, len(PIECES) - 1), max_size=60))
def test_sentencepiece_with_byte_fallback(ids: list[int]) -> None:
    detokenizer = IncrementalDetokenizer(decode_sentencepiece, byte_tokens=BYTE_PIECES)
    assert stream(detokenizer, ids) == decode_sentencepiece(ids)


@settings(max_examples=400, deadline=None, print_blob=True)
@given(
    stops=st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=4),
    pieces=st.lists(st.text("ab\nc", max_size=6), max_size=12),
)
def test_stop_strings(stops: list[str], pieces: list[str]) -> None:
    """The stream is cut where the whole text first contains a stop text, however it is divided."""
    text = "".join(pieces)
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    expected = text
    if ends:
        end = min(ends)
        expected = text[: end - max(len(stop) for stop in stops if text[:end].endswith(stop))]
    stop_filter = StopStringFilter(stops)
    passed = ""
    for piece in pieces:
        more, stopped = stop_filter.push(piece)
        passed += more
        assert expected.startswith(passed)
        if stopped:
            break
    else:
        stopped = False
    assert stopped == bool(ends)
    assert passed + stop_filter.finish() == expected
