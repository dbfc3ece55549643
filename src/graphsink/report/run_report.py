"""The report of one run: the JSON document that ``graphsink run --json`` writes.

The schema is documented in ``docs/cli.md``. Figures that do not exist (no decode step, no tokenizer) are
``null``, never 0.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_NAME = "graphsink.run/1"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class MachinePart(_Part):
    """Where the run took place."""

    cpu: str = Field(description="Processor brand string.")
    isa: str = Field(description="Instruction-set level of graphsink's own kernels; ATen chooses its own.")
    threads: int = Field(description="Threads that computed.")
    read_bandwidth_gbps: float | None = Field(
        description="Read bandwidth in 1e9 bytes/s, measured with these threads after generation."
    )
    torch: str
    graphsink: str


class TimingPart(_Part):
    """Times; see `graphsink.engine.metrics` for definitions."""

    load_s: float = Field(description="Reading the model.")
    warmup_s: float = Field(description="Packing check, one prefill and one decode (and compilation).")
    process_s: float = Field(description="From the start of the process to the end of generation.")
    ttft_ms: float | None
    tpot_ms: float | None
    decode_ms: list[float] = Field(description="Every decode forward, in order.")
    decode_mean_ms: float | None
    forward_tokens_per_s: float | None
    generate_tokens_per_s: float | None
    bandwidth_fraction: float | None
    engine_overhead_ms: float | None = Field(
        description="Median engine work per step outside the forward: schedule, metadata, sample, detokenise."
    )


class MemoryPart(_Part):
    """Memory in MiB."""

    weights_mib: float
    kv_mib: float = Field(description="Size of the KV pool.")
    peak_rss_mib: float = Field(description="Highest resident set of the process.")


class CountersPart(_Part):
    """What the execution mode did."""

    graphs_compiled: int = 0
    instances_captured: int = 0
    replays: int = 0
    recaptures: int = 0
    fallbacks: dict[str, int] = Field(default_factory=dict, description="Reason -> count.")
    tasks_per_step: int = Field(
        description=(
            "Tasks of one decode step; in eager mode the operators that Python dispatches "
            "(paged attention counts as one)."
        )
    )


class LogprobsPart(_Part):
    """Log-probabilities of one generated token."""

    chosen: float
    top: list[tuple[int, float]]


class RequestPart(_Part):
    """One request."""

    prompt: str | None = Field(description="The text given; null for token-id prompts.")
    prompt_tokens: int = Field(description="Tokens of the prompt after truncation.")
    truncated_tokens: int = Field(description="Tokens that input_truncated_len cut off.")
    token_ids: list[int] = Field(description="Generated tokens, an end-of-sequence token included.")
    text: str | None = Field(description="Generated text; null without a tokenizer.")
    finish_reason: Literal["stop", "length", "prompt_too_long", "error"]
    error: str | None = Field(
        None,
        description="Why, for prompt_too_long and error, and for a length below max_new_tokens.",
    )
    logprobs: list[LogprobsPart] | None = Field(None, description="One entry per token when asked for.")


class RunReport(_Part):
    """The whole document."""

    schema_name: str = Field(SCHEMA_NAME, alias="schema")
    recipe: dict[str, Any] = Field(description="The effective recipe, defaults filled in.")
    recipe_notes: list[str] = Field(description="Fields without effect here, and other remarks.")
    model: str = Field(description="model_config.model_name.")
    exe_mode: str
    interrupted: bool = Field(
        False, description="Ctrl-C or an error ended the run early; results are partial."
    )
    machine: MachinePart
    timing: TimingPart
    memory: MemoryPart
    counters: CountersPart
    requests: list[RequestPart]

    def to_json(self) -> str:
        """The document, indented; NaN and infinity cannot occur in it."""
        return self.model_dump_json(by_alias=True, indent=2)
