"""``model_config.custom_params``: free-form switches of the reference, and those that mean something here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict


@with_config(ConfigDict(extra="allow", strict=True))
class CustomParamsDict(TypedDict, total=False):
    """The mapping as written: known keys are type-checked, any other key is kept as it is."""

    num_hidden_layers: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="Build the model with this many layers only.",
            json_schema_extra={"origin": "reference", "effect": "used", "default": "all layers"},
        ),
    ]
    enable_superkernel: Annotated[
        bool,
        Field(
            description="Join runs of tasks into one task.",
            json_schema_extra={"origin": "reference", "effect": "graph_modes", "default": "False"},
        ),
    ]
    enable_multi_streams: Annotated[
        bool,
        Field(
            description="Run independent tasks side by side.",
            json_schema_extra={"origin": "reference", "effect": "graph_modes", "default": "False"},
        ),
    ]
    enable_prefetch: Annotated[
        bool,
        Field(
            description="Read the next weights ahead of their use.",
            json_schema_extra={"origin": "reference", "effect": "graph_modes", "default": "False"},
        ),
    ]


@dataclass(frozen=True, slots=True)
class CustomParams:
    """The known entries of ``custom_params``.

    Attributes:
        num_hidden_layers: layers to build; ``None`` builds all.
        enable_superkernel: join runs of tasks into one task (graph modes).
        enable_multi_streams: run independent tasks side by side (graph modes).
        enable_prefetch: read the next weights ahead of their use (graph modes).
    """

    num_hidden_layers: int | None = None
    enable_superkernel: bool = False
    enable_multi_streams: bool = False
    enable_prefetch: bool = False

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> CustomParams:
        """Pick the known entries out of a validated ``custom_params`` mapping."""
        return cls(**{name: mapping[name] for name in cls.__slots__ if name in mapping})
