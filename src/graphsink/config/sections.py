"""The four sections of a recipe, typed.

Names, types, defaults and range checks follow the reference recipes (cann-recipes-infer,
``inference_config``); those of origin ``graphsink`` are additions. What a field does is said
once, in its description: the documentation table is generated from it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from graphsink.config.custom_params import CustomParams, CustomParamsDict

OURS: dict[str, Any] = {"origin": "graphsink", "effect": "used"}
OURS_GRAPH_MODES: dict[str, Any] = {"origin": "graphsink", "effect": "graph_modes"}
USED: dict[str, Any] = {"origin": "reference", "effect": "used"}
GRAPH_MODES: dict[str, Any] = {"origin": "reference", "effect": "graph_modes"}
NPU_ONLY: dict[str, Any] = {"origin": "reference", "effect": "npu_only"}
LATER: dict[str, Any] = {"origin": "reference", "effect": "later"}

LARGEST_COUNT = 2**31 - 1
"""Upper limit of counts and lengths: what fits the 32-bit indices of the runtime."""

ExecutionMode = Literal["eager", "capture", "compile"]
BUILT_EXECUTION_MODES: frozenset[ExecutionMode] = frozenset({"eager"})
"""Modes that this version can run; the others are refused by name."""

EXECUTION_MODE_ALIASES: dict[str, ExecutionMode] = {
    "npugraph_ex": "capture",
    "ge_graph": "compile",
}
"""Names that the reference recipes use for the graph modes."""

PromptSource = str | list[str | list[int]]
"""A path (``.txt``, ``.json``, ``.jsonl``), or a list of texts and token-id lists."""


class Section(BaseModel):
    """Base of the sections: strict types, unknown keys refused, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


class ModelSection(Section):
    """``model_config``: which model, and how it is executed."""

    model_name: str = Field(
        default="model", description="Name of the model in reports.", json_schema_extra=USED
    )
    model_path: str = Field(
        default="",
        description=(
            "Model directory (config.json + safetensors) or a `.gguf` file, relative to the recipe. "
            "`sample://smollm2-135m` is the model that `graphsink sample` fetches."
        ),
        json_schema_extra=USED,
    )
    tokenizer_path: str = Field(
        default="",
        description="Directory of the tokenizer, if it is not in `model_path`.",
        json_schema_extra=OURS,
    )
    hf_config: dict[str, Any] | None = Field(
        default=None,
        description=(
            "Hugging Face model configuration written inline (needs `model_type`); used with "
            "`with_ckpt: False` and without `model_path`."
        ),
        json_schema_extra=OURS,
    )
    output_path: str = Field(
        default="",
        description=(
            "Directory, made if needed, where a run also writes its report: `<model_name>.<exe_mode>.json`."
        ),
        json_schema_extra=USED,
    )
    dtype: Literal["bfloat16", "float32"] = Field(
        default="bfloat16", description="Type of weights and activations.", json_schema_extra=USED
    )
    with_ckpt: bool = Field(
        default=True, description="`False`: random weights from the configuration.", json_schema_extra=USED
    )
    weights_seed: int = Field(
        default=0, ge=0, lt=2**63, description="Seed of the random weights.", json_schema_extra=OURS
    )
    next_n: int = Field(
        default=0,
        ge=0,
        le=LARGEST_COUNT,
        description="Draft tokens per step (MTP). Only 0 is supported.",
        json_schema_extra=LATER,
    )
    platform_version: Literal["A2", "A3", "950"] | None = Field(
        default=None, description="Ascend generation.", json_schema_extra=NPU_ONLY
    )
    exe_mode: ExecutionMode = Field(
        default="eager",
        description=(
            "`eager`: op by op; `capture` (alias `npugraph_ex`): captured and replayed task graph; "
            "`compile` (alias `ge_graph`): fused, generated kernels."
        ),
        json_schema_extra=USED,
    )
    enable_cache_compile: bool = Field(
        default=False,
        description="Keep traced and compiled graphs on disk and reuse them.",
        json_schema_extra=GRAPH_MODES,
    )
    enable_static_kernel: bool = Field(
        default=False,
        description="Specialise kernels for fixed shapes; only with `exe_mode: capture`.",
        json_schema_extra=GRAPH_MODES,
    )
    enable_dynamic_graph: bool = Field(
        default=True,
        description="Trace with symbolic sizes instead of one graph per shape.",
        json_schema_extra=GRAPH_MODES,
    )
    force_eplb: bool = Field(default=False, description="Even expert routing.", json_schema_extra=NPU_ONLY)
    enable_profiler: bool = Field(
        default=False, description="Profiler windows of the reference.", json_schema_extra=NPU_ONLY
    )
    enable_weight_nz: bool = Field(
        default=True, description="Cast weights to the NZ layout.", json_schema_extra=NPU_ONLY
    )
    enable_hadamard: bool = Field(
        default=False, description="Hadamard transform of quantised models.", json_schema_extra=NPU_ONLY
    )
    hadamard_weight_path: str = Field(
        default="", description="Offline Hadamard weights.", json_schema_extra=NPU_ONLY
    )
    custom_params: CustomParamsDict = Field(
        default_factory=CustomParamsDict,
        description="Free-form switches; the known ones are listed below, all others have no effect.",
        json_schema_extra=USED,
    )
    device: Literal["cpu", "cuda", "npu"] = Field(
        default="cpu",
        description="Where the model runs. Only `cpu` runs in this version.",
        json_schema_extra=OURS,
    )
    numerics: Literal["eager", "fast"] = Field(
        default="eager",
        description="`eager` rounds where eager PyTorch rounds; `fast` keeps float32 inside fused kernels.",
        json_schema_extra=OURS_GRAPH_MODES,
    )
    on_fallback: Literal["error", "warn"] = Field(
        default="warn",
        description="What to do when something cannot run in the chosen mode; every fallback is counted.",
        json_schema_extra=OURS_GRAPH_MODES,
    )
    threads: Annotated[int, Field(ge=1, le=4096)] | Literal["auto"] = Field(
        default="auto",
        description="Worker threads; `auto` is the number of cores that affinity and cgroup quota allow.",
        json_schema_extra=OURS,
    )
    trust_remote_code: bool = Field(
        default=False,
        description="Allow Python code shipped in the model directory (`auto_map`). It runs as you.",
        json_schema_extra=OURS,
    )
    allow_weight_updates: bool = Field(
        default=False,
        description="Rebind when weights were changed after loading, instead of raising.",
        json_schema_extra=OURS,
    )

    @property
    def known_custom_params(self) -> CustomParams:
        """The entries of ``custom_params`` that mean something here, typed, with their defaults."""
        return CustomParams.from_mapping(self.custom_params)


class DataSection(Section):
    """``data_config``: prompts and sampling."""

    dataset: Literal["default", "LongBench", "InfiniteBench"] = Field(
        default="default",
        description="Only `default` is supported: `prompts`, else `default_prompt.json` in `dataset_path`.",
        json_schema_extra=USED,
    )
    dataset_path: str = Field(
        default="", description="Directory that holds `default_prompt.json`.", json_schema_extra=USED
    )
    input_truncated_len: int = Field(
        default=256,
        ge=1,
        le=LARGEST_COUNT,
        description="Prompts are cut to this many tokens; the head is kept.",
        json_schema_extra=USED,
    )
    temperature: float = Field(
        default=0.0,
        ge=0.0,
        allow_inf_nan=False,
        description="0 (below 1e-5) is greedy.",
        json_schema_extra=USED,
    )
    top_p: float = Field(
        default=1.0,
        ge=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="Nucleus sampling; 1 is off.",
        json_schema_extra=USED,
    )
    top_k: int = Field(
        default=0,
        ge=0,
        le=LARGEST_COUNT,
        description="Keep the k most likely tokens; 0 is off.",
        json_schema_extra=USED,
    )
    seed: int | None = Field(
        default=None, ge=0, lt=2**63, description="Seed of request i is `seed + i`.", json_schema_extra=USED
    )
    enable_thinking: bool | None = Field(
        default=None, description="Passed to the chat template when set.", json_schema_extra=USED
    )
    prompts: PromptSource | None = Field(
        default=None,
        description=(
            "List of texts or of token-id lists, or the path of a `.txt` (one prompt), `.json` (a list) or "
            "`.jsonl` (one per line) file, relative to the recipe."
        ),
        json_schema_extra=OURS,
    )
    apply_chat_template: bool = Field(
        default=True,
        description="Apply the tokenizer's chat template when it has one (`--raw` turns it off).",
        json_schema_extra=OURS,
    )
    system_prompt: str | None = Field(
        default=None, description="System message for the chat template.", json_schema_extra=OURS
    )
    stop: list[str] = Field(
        default_factory=list,
        description="Texts that end a request; not part of its text.",
        json_schema_extra=OURS,
    )
    logprobs: int = Field(
        default=0,
        ge=0,
        le=100,
        description="Report log-probabilities of the top n tokens per step.",
        json_schema_extra=OURS,
    )


class ParallelSection(Section):
    """``parallel_config``: ranks. Parsed in full; running needs ``world_size: 1`` in this version."""

    world_size: int = Field(
        default=1, ge=1, le=LARGEST_COUNT, description="Processes; only 1 runs.", json_schema_extra=USED
    )
    attn_tp_size: int = Field(
        default=1, ge=1, le=LARGEST_COUNT, description="Attention tensor parallel.", json_schema_extra=LATER
    )
    offline_prefill_dp_group_size: int = Field(
        default=1,
        ge=1,
        le=LARGEST_COUNT,
        description="Ranks that share one offline prefill batch.",
        json_schema_extra=LATER,
    )
    moe_tp_size: int = Field(
        default=1, ge=1, le=LARGEST_COUNT, description="Expert tensor parallel.", json_schema_extra=LATER
    )
    embed_tp_size: int = Field(
        default=1, ge=1, le=LARGEST_COUNT, description="Embedding tensor parallel.", json_schema_extra=LATER
    )
    lmhead_tp_size: int = Field(
        default=1, ge=1, le=LARGEST_COUNT, description="LM head tensor parallel.", json_schema_extra=LATER
    )
    dense_tp_size: int = Field(
        default=1, ge=1, le=LARGEST_COUNT, description="Dense MLP tensor parallel.", json_schema_extra=LATER
    )
    shared_tp_size: int = Field(
        default=1,
        ge=1,
        le=LARGEST_COUNT,
        description="Shared expert tensor parallel.",
        json_schema_extra=LATER,
    )
    o_proj_tp_size: int = Field(
        default=1,
        ge=1,
        le=LARGEST_COUNT,
        description="Output projection tensor parallel.",
        json_schema_extra=LATER,
    )
    cp_size: int = Field(
        default=1,
        ge=1,
        le=LARGEST_COUNT,
        description="Prefill context parallel: 1 or `world_size`.",
        json_schema_extra=LATER,
    )

    @property
    def attn_dp_size(self) -> int:
        """Attention data-parallel size: ``world_size / attn_tp_size`` (the loader checks that it divides)."""
        return self.world_size // self.attn_tp_size


class SchedulerSection(Section):
    """``scheduler_config``: batching, lengths and KV capacity."""

    batch_size: int = Field(
        default=1, ge=1, le=65536, description="Requests that may decode together.", json_schema_extra=USED
    )
    max_new_tokens: int = Field(
        default=32, ge=1, le=LARGEST_COUNT, description="Tokens per request.", json_schema_extra=USED
    )
    max_prefill_tokens: int = Field(
        default=0,
        ge=0,
        le=LARGEST_COUNT,
        description="Token budget of one prefill step; 0: `input_truncated_len * batch_size`.",
        json_schema_extra=USED,
    )
    mem_fraction_static: float = Field(
        default=0.85,
        gt=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="Largest share of the free memory that the KV cache may take.",
        json_schema_extra=USED,
    )
    block_size: int = Field(
        default=128, ge=1, le=65536, description="Tokens per KV block.", json_schema_extra=USED
    )
    num_reserved_decode_tokens: int = Field(
        default=64,
        ge=0,
        le=LARGEST_COUNT,
        description="Admission reserve of prefill/decode separation.",
        json_schema_extra=NPU_ONLY,
    )
    cp_mini_batch: int = Field(
        default=-1, description="Requests per context-parallel prefill step.", json_schema_extra=NPU_ONLY
    )
    ignore_eos: bool = Field(
        default=False,
        description="Decode `max_new_tokens` tokens whatever the model says.",
        json_schema_extra=OURS,
    )
    kv_cache_gib: float | None = Field(
        default=None,
        gt=0.0,
        le=2.0**20,
        allow_inf_nan=False,
        description="KV capacity in GiB.",
        json_schema_extra=OURS,
    )
    kv_cache_tokens: int | None = Field(
        default=None,
        ge=1,
        le=2**40,
        description="KV capacity in tokens; rounded up to blocks.",
        json_schema_extra=OURS,
    )
    decode_buckets: list[Annotated[int, Field(ge=1, le=LARGEST_COUNT)]] | None = Field(
        default=None,
        description="Batch sizes that graph modes prepare for decode.",
        json_schema_extra=OURS_GRAPH_MODES,
    )
    prefill_buckets: list[Annotated[int, Field(ge=1, le=LARGEST_COUNT)]] | None = Field(
        default=None,
        description="Token counts that graph modes prepare for prefill.",
        json_schema_extra=OURS_GRAPH_MODES,
    )
