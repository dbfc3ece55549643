"""Forcing an instruction-set level: lower is allowed, higher and unknown are refused."""

from __future__ import annotations

import itertools

import pytest

from graphsink.errors import IsaError
from graphsink.target import LEVELS, IsaLevel, parse_isa_level, select_isa_level

X86 = (IsaLevel.SCALAR, IsaLevel.AVX2, IsaLevel.AVX512, IsaLevel.AVX512_BF16, IsaLevel.AMX)
ARM = (IsaLevel.SCALAR, IsaLevel.NEON)


def test_without_a_knob_the_detected_level_is_used() -> None:
    assert [select_isa_level(level, None) for level in LEVELS] == list(LEVELS)


@pytest.mark.parametrize(("forced", "detected"), list(itertools.product(LEVELS, LEVELS)))
def test_a_level_can_be_lowered_and_not_raised(forced: IsaLevel, detected: IsaLevel) -> None:
    allowed = any(
        forced in ladder and detected in ladder and ladder.index(forced) <= ladder.index(detected)
        for ladder in (X86, ARM)
    )
    assert forced.runs_on(detected) is allowed
    if allowed:
        assert select_isa_level(detected, forced.value.upper()) is forced
        return
    with pytest.raises(IsaError) as caught:
        select_isa_level(detected, forced.value)
    message = str(caught.value)
    assert f"'{forced}' was forced, but this processor has only '{detected}'" in message
    assert "GRAPHSINK_ISA" in message


def test_refusal_lists_what_would_run() -> None:
    with pytest.raises(IsaError) as caught:
        select_isa_level(IsaLevel.AVX512, "amx")
    assert caught.value.hint == "use one of: scalar, avx2, avx512; or unset GRAPHSINK_ISA"
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["avx-512", "sse4", "", "avx1024"])
def test_unknown_level_lists_the_levels(text: str) -> None:
    with pytest.raises(IsaError) as caught:
        parse_isa_level(text, where="here")
    assert f"unknown instruction-set level '{text}'" in str(caught.value)
    assert caught.value.where == "here"
    assert caught.value.hint == "use one of: scalar, avx2, avx512, avx512_bf16, amx, neon"
