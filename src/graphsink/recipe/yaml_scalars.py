"""How a plain YAML word becomes a value.

Booleans and null follow YAML 1.1 as PyYAML does, because the reference recipes are read with it.
Numbers follow YAML 1.2: ``1e-5`` is a number and ``010`` is ten. There are no dates or
sexagesimal numbers: ``2024-01-01`` and ``12:30`` are text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

TAG_PREFIX = "tag:yaml.org,2002:"
MERGE_TAG = TAG_PREFIX + "merge"
LARGEST_INTEGER = 2**64

_BOOLEAN = re.compile(r"^(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$")
_INTEGER = re.compile(r"^[-+]?(?:0x[0-9a-fA-F]+|0o[0-7]+|0b[01]+|[0-9]+(?:_[0-9]+)*)$")
_FLOAT = re.compile(
    r"^(?:[-+]?(?:[0-9]+(?:_[0-9]+)*)?\.[0-9]+(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9]+(?:_[0-9]+)*(?:\.(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
_MERGE = re.compile(r"^<<$")

IMPLICIT_RESOLVERS: tuple[tuple[str, re.Pattern[str], str], ...] = (
    (TAG_PREFIX + "bool", _BOOLEAN, "yYnNtTfFoO"),
    (TAG_PREFIX + "int", _INTEGER, "-+0123456789"),
    (TAG_PREFIX + "float", _FLOAT, "-+0123456789."),
    (TAG_PREFIX + "null", _NULL, "~nN"),
    (MERGE_TAG, _MERGE, "<"),
)
"""(tag, pattern, first characters) in order of precedence; the empty word is added for null."""

_BASES = {"0x": 16, "0o": 8, "0b": 2}


def parse_boolean(text: str) -> bool:
    """``yes/on/true`` and ``no/off/false``, in the three usual spellings. Raises ``ValueError``."""
    if not _BOOLEAN.match(text):
        raise ValueError(f"'{text[:40]}' is not a boolean")
    return text.lower() in ("yes", "true", "on")


def parse_integer(text: str) -> int:
    """A decimal, hexadecimal, octal or binary integer within 64 bits. Raises ``ValueError``."""
    if not _INTEGER.match(text):
        raise ValueError(f"'{text[:40]}' is not an integer")
    if len(text) > 100:
        raise ValueError(f"an integer of {len(text)} digits is too large (the limit is 64 bits)")
    digits = text.lstrip("+-")
    value = int(digits, _BASES.get(digits[:2], 10))
    value = -value if text[0] == "-" else value
    if abs(value) > LARGEST_INTEGER:
        raise ValueError(f"the integer {text[:40]} is too large (the limit is 64 bits)")
    return value


def parse_float(text: str) -> float:
    """A decimal number with or without exponent, ``.inf`` or ``.nan``. Raises ``ValueError``."""
    if not _FLOAT.match(text) and not _INTEGER.match(text):
        raise ValueError(f"'{text[:40]}' is not a number")
    lowered = text.lower()
    if lowered.endswith((".inf", ".nan")):
        return float(lowered.replace(".", ""))
    return float(lowered.replace("_", ""))


def parse_null(text: str) -> None:
    """``null``, ``~`` or nothing. Raises ``ValueError``."""
    if not _NULL.match(text):
        raise ValueError(f"'{text[:40]}' is not null")


def parse_text(text: str) -> str:
    """The text itself; ``ValueError`` if it cannot be written as UTF-8 (a lone surrogate escape)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        code = ord(text[problem.start])
        raise ValueError(f"the text holds U+{code:04X}, which is half of a character") from problem
    return text


SCALAR_PARSERS: dict[str, Callable[[str], object]] = {
    TAG_PREFIX + "bool": parse_boolean,
    TAG_PREFIX + "int": parse_integer,
    TAG_PREFIX + "float": parse_float,
    TAG_PREFIX + "null": parse_null,
    TAG_PREFIX + "str": parse_text,
}
