"""A whole recipe: the four sections and the checks that span them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from graphsink.config.sections import DataSection, ModelSection, ParallelSection, SchedulerSection


class Recipe(BaseModel):
    """A validated recipe.

    The sections are named ``model``, ``data``, ``parallel`` and ``scheduler`` in Python (pydantic
    keeps ``model_config`` for itself) and ``model_config`` … ``scheduler_config`` in YAML and JSON.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, protected_namespaces=(), populate_by_name=False
    )

    model: ModelSection = Field(default_factory=ModelSection, alias="model_config")
    data: DataSection = Field(default_factory=DataSection, alias="data_config")
    parallel: ParallelSection = Field(default_factory=ParallelSection, alias="parallel_config")
    scheduler: SchedulerSection = Field(default_factory=SchedulerSection, alias="scheduler_config")

    def as_dict(self) -> dict[str, dict[str, object]]:
        """The effective recipe, with every default filled in, under its YAML names."""
        return self.model_dump(mode="json", by_alias=True)

    @property
    def max_prefill_tokens(self) -> int:
        """Token budget of one prefill step, with the default resolved."""
        if self.scheduler.max_prefill_tokens:
            return self.scheduler.max_prefill_tokens
        return self.data.input_truncated_len * self.scheduler.batch_size
