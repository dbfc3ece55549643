"""Instruction-set levels: their order, and the choice of one."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from graphsink.config.knobs import ISA
from graphsink.errors import IsaError


class IsaLevel(StrEnum):
    """A level that kernels are built for; each x86 level contains the ones before it.

    The native module detects the level and defines what each one needs (``csrc/cpu_features.cpp``).
    """

    SCALAR = "scalar"
    AVX2 = "avx2"
    AVX512 = "avx512"
    AVX512_BF16 = "avx512_bf16"
    AMX = "amx"
    NEON = "neon"

    def runs_on(self, detected: IsaLevel) -> bool:
        """Whether code built for this level runs where ``detected`` is the highest level."""
        ladders = (ladder for ladder in _LADDERS if detected in ladder)
        return any(self in ladder[: ladder.index(detected) + 1] for ladder in ladders)


LEVELS: Final = tuple(IsaLevel)

_LADDERS: Final = (
    (IsaLevel.SCALAR, IsaLevel.AVX2, IsaLevel.AVX512, IsaLevel.AVX512_BF16, IsaLevel.AMX),
    (IsaLevel.SCALAR, IsaLevel.NEON),
)
"""One ladder per architecture, lowest level first."""


def parse_isa_level(text: str, *, where: str | None = None) -> IsaLevel:
    """Turn a name into a level.

    Raises:
        IsaError: the name is not a level; the message lists the levels.
    """
    try:
        return IsaLevel(text.strip().lower())
    except ValueError:
        names = ", ".join(LEVELS)
        raise IsaError(
            f"unknown instruction-set level '{text}'", where=where, hint=f"use one of: {names}"
        ) from None


def select_isa_level(detected: IsaLevel, forced: str | None) -> IsaLevel:
    """The level to use: ``detected``, or a lower one that the user forced.

    Args:
        detected: the highest level that runs here.
        forced: value of ``GRAPHSINK_ISA``, or ``None``.

    Raises:
        IsaError: ``forced`` is not a level, or this processor cannot run it.
    """
    if forced is None:
        return detected
    level = parse_isa_level(forced, where=f"environment variable {ISA.name}")
    if not level.runs_on(detected):
        possible = ", ".join(candidate for candidate in LEVELS if candidate.runs_on(detected))
        raise IsaError(
            f"instruction-set level '{level}' was forced, but this processor has only '{detected}'",
            where=f"environment variable {ISA.name}",
            hint=f"use one of: {possible}; or unset {ISA.name}",
        )
    return level
