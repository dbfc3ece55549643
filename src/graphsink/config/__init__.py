"""Typed configuration: recipe sections and sampling. Data only; reading files is `graphsink.recipe`."""

from graphsink.config.recipe import Recipe
from graphsink.config.sampling import SamplingParams
from graphsink.config.sections import (
    BUILT_EXECUTION_MODES,
    EXECUTION_MODE_ALIASES,
    DataSection,
    ExecutionMode,
    ModelSection,
    ParallelSection,
    SchedulerSection,
)

__all__ = [
    "BUILT_EXECUTION_MODES",
    "EXECUTION_MODE_ALIASES",
    "DataSection",
    "ExecutionMode",
    "ModelSection",
    "ParallelSection",
    "Recipe",
    "SamplingParams",
    "SchedulerSection",
]
