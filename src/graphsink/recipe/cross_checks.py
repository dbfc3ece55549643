"""Checks that involve more than one field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from graphsink.config import Recipe

PARALLEL_SIZES = (
    "attn_tp_size",
    "offline_prefill_dp_group_size",
    "moe_tp_size",
    "embed_tp_size",
    "lmhead_tp_size",
    "dense_tp_size",
    "shared_tp_size",
    "o_proj_tp_size",
)
"""Sizes that must divide ``world_size``; ``cp_size`` has a stricter rule of its own."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a recipe breaks.

    Attributes:
        keys: dotted keys involved, the one to blame first.
        message: what is wrong, with the values.
        hint: what to change.
    """

    keys: tuple[str, ...]
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """One rule: its sentence for the documentation, and the function that finds violations."""

    rule: str
    find: Callable[[Recipe], Iterator[Finding]]


def _parallel_sizes_divide(recipe: Recipe) -> Iterator[Finding]:
    world = recipe.parallel.world_size
    for name in PARALLEL_SIZES:
        size = getattr(recipe.parallel, name)
        if world % size:
            yield Finding(
                (f"parallel_config.{name}", "parallel_config.world_size"),
                f"{name} {size} does not divide world_size {world}",
                f"choose a divisor of {world}, or change parallel_config.world_size",
            )


def _context_parallel(recipe: Recipe) -> Iterator[Finding]:
    parallel = recipe.parallel
    if parallel.cp_size == 1:
        return
    if parallel.cp_size != parallel.world_size:
        yield Finding(
            ("parallel_config.cp_size", "parallel_config.world_size"),
            f"cp_size {parallel.cp_size} is neither 1 nor world_size {parallel.world_size}",
            "set cp_size to 1" if parallel.world_size == 1 else f"set cp_size to 1 or {parallel.world_size}",
        )
    if parallel.attn_tp_size != 1:
        yield Finding(
            ("parallel_config.cp_size", "parallel_config.attn_tp_size"),
            f"cp_size {parallel.cp_size} needs attn_tp_size 1, not {parallel.attn_tp_size}",
            "set attn_tp_size to 1, or cp_size to 1",
        )


def _static_kernels(recipe: Recipe) -> Iterator[Finding]:
    if recipe.model.enable_static_kernel and recipe.model.exe_mode != "capture":
        yield Finding(
            ("model_config.enable_static_kernel", "model_config.exe_mode"),
            f"enable_static_kernel needs exe_mode 'capture', not '{recipe.model.exe_mode}'",
            "set exe_mode: capture (alias npugraph_ex), or enable_static_kernel: False",
        )


def _capacity_once(recipe: Recipe) -> Iterator[Finding]:
    scheduler = recipe.scheduler
    if scheduler.kv_cache_gib is not None and scheduler.kv_cache_tokens is not None:
        yield Finding(
            ("scheduler_config.kv_cache_tokens", "scheduler_config.kv_cache_gib"),
            f"the KV capacity is given twice: {scheduler.kv_cache_gib} GiB and "
            f"{scheduler.kv_cache_tokens} tokens",
            "keep kv_cache_gib or kv_cache_tokens",
        )


def _model_source(recipe: Recipe) -> Iterator[Finding]:
    model = recipe.model
    if model.with_ckpt and model.hf_config is not None:
        yield Finding(
            ("model_config.hf_config", "model_config.with_ckpt"),
            "hf_config describes a model without weights, but with_ckpt is True",
            "set with_ckpt: False for random weights, or remove hf_config and set model_path",
        )
    elif model.with_ckpt and not model.model_path:
        yield Finding(
            ("model_config.model_path", "model_config.with_ckpt"),
            "no model is given: with_ckpt is True and model_path is empty",
            "set model_config.model_path, or with_ckpt: False and hf_config for random weights",
        )
    elif model.hf_config is not None and model.model_path:
        yield Finding(
            ("model_config.hf_config", "model_config.model_path"),
            "the model is given twice: hf_config and model_path",
            "keep one of them",
        )
    elif model.hf_config is None and not model.model_path:
        yield Finding(
            ("model_config.with_ckpt", "model_config.hf_config", "model_config.model_path"),
            "with_ckpt is False, but neither hf_config nor model_path says which model to build",
            "add model_config.hf_config (with a model_type), or a model_path that holds a config.json",
        )


def _model_type(recipe: Recipe) -> Iterator[Finding]:
    inline = recipe.model.hf_config
    if inline is not None and not (isinstance(inline.get("model_type"), str) and inline["model_type"]):
        yield Finding(
            ("model_config.hf_config",),
            "hf_config has no model_type",
            "add the model family, e.g. 'model_type: llama'",
        )


def _buckets_ascend(recipe: Recipe) -> Iterator[Finding]:
    for name in ("decode_buckets", "prefill_buckets"):
        buckets = getattr(recipe.scheduler, name)
        if buckets is None:
            continue
        if not buckets:
            yield Finding(
                (f"scheduler_config.{name}",), f"{name} is an empty list", "remove it, or list sizes"
            )
        for before, after in pairwise(buckets):
            if after <= before:
                yield Finding(
                    (f"scheduler_config.{name}",),
                    f"{name} must ascend without repeats, but {after} follows {before}",
                    f"write {sorted(set(buckets))}" if len(buckets) <= 20 else "sort it and remove repeats",
                )
                break


CROSS_CHECKS: tuple[CrossCheck, ...] = (
    CrossCheck("Every size in `parallel_config` divides `world_size`.", _parallel_sizes_divide),
    CrossCheck("`cp_size` is 1 or `world_size`; above 1 it needs `attn_tp_size: 1`.", _context_parallel),
    CrossCheck("`enable_static_kernel` needs `exe_mode: capture`.", _static_kernels),
    CrossCheck("`kv_cache_gib` and `kv_cache_tokens` exclude each other.", _capacity_once),
    CrossCheck(
        "`with_ckpt: True` needs `model_path` and excludes `hf_config`; `with_ckpt: False` needs exactly "
        "one of `model_path` and `hf_config`.",
        _model_source,
    ),
    CrossCheck("`hf_config` needs `model_type`.", _model_type),
    CrossCheck("Bucket lists are not empty and ascend without repeats.", _buckets_ascend),
)
