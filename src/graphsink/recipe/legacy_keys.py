"""Keys that reference recipes carry although nothing reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class RecipeNote:
    """Something in the recipe that has no effect on this device.

    Attributes:
        key: dotted key path.
        line: 1-based line in the file; ``None`` if it came from an override or from Python.
        reason: why it has no effect.
    """

    key: str
    line: int | None
    reason: str

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}, "
        return f"{place}{self.key}: {self.reason}"


LEGACY_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "pa_block_size": "legacy key without effect; the block size is scheduler_config.block_size",
        "enable_multi_streams": (
            "legacy place without effect; the switch is model_config.custom_params.enable_multi_streams"
        ),
        "prefill_mini_batch_size": "legacy key without effect",
        "kvp_size": "legacy key without effect",
    }
)
"""Accepted in every section and at top level: key → why it has no effect."""

TOP_LEVEL_KEYS: Mapping[str, tuple[type, str]] = MappingProxyType(
    {
        "model_name": (str, "without effect at top level; model_config.model_name is used"),
        "world_size": (int, "without effect at top level; parallel_config.world_size is used"),
    }
)
"""Keys that reference recipes repeat at top level: key → type, why they have no effect."""
