"""Bars of the engine in eager mode: ``python -m bench.engine [--quick] --json FILE``."""

from __future__ import annotations

import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from bench.harness import Row, main, median_ratio, skipped
from bench.real_shapes import REAL_SHAPES, real_shape
from bench.reference import (
    StaticCacheDecoder,
    greedy_tokens,
    paged_teacher_forced_logits,
    reference_copy,
    teacher_forced_logits,
)
from graphsink import LLM
from graphsink.engine.model.sample import fetch_sample

REPOSITORY = Path(__file__).resolve().parent.parent
RECIPES = REPOSITORY / "recipes"
FAMILIES = ("llama", "qwen3", "qwen2", "mistral", "gemma2", "gemma3", "phi3", "olmo2", "granite")
QUICK_FAMILIES = ("llama", "gemma2")
NEW_TOKENS = 64
DECODE_STEPS = 48
PROMPT_TOKENS = 50
QUICK = "not part of --quick"


def measure(quick: bool) -> Iterator[Row]:
    """All rows, in the order of the issue's bars."""
    yield from family_correctness(quick)
    yield from real_shape_correctness(quick)
    yield from sample_correctness(quick)
    yield from bfloat16_error(quick)
    yield decode_ratio("SmolLM2-135M", sample_recipe())
    if quick:
        yield skipped("decode forward / transformers: Qwen3-0.6B shape", "x", 1.10, "lower", QUICK)
    else:
        yield decode_ratio("Qwen3-0.6B shape", {"recipe": RECIPES / "qwen3_0_6b_random.yaml"})
    yield from engine_overhead()
    yield from demo_time(quick)


def sample_recipe(**overrides: object) -> dict[str, object]:
    """Arguments of `load` for the sample model with its shipped recipe."""
    path = str(fetch_sample("smollm2-135m"))
    return {"recipe": RECIPES / "smollm2_135m.yaml", "model_config.model_path": path, **overrides}


def load(arguments: dict[str, object]) -> LLM:
    """An LLM of ``arguments["recipe"]`` with the other entries as overrides."""
    overrides = {key: value for key, value in arguments.items() if key != "recipe"}
    overrides.setdefault("scheduler_config.ignore_eos", True)
    return LLM(arguments["recipe"], overrides)  # type: ignore[arg-type]


def prompts_of(vocab_size: int, lengths: Sequence[int]) -> list[list[int]]:
    """Random token ids; the special ids at the start of the vocabulary are left out."""
    generator = random.Random(1)
    return [[generator.randrange(8, vocab_size) for _ in range(length)] for length in lengths]


def family_correctness(quick: bool) -> Iterable[Row]:
    """Greedy tokens of every family against ``generate`` in float32."""
    for family in FAMILIES:
        name = f"{family}: greedy tokens that differ from generate, float32, alone and in batches of 1-8"
        if quick and family not in QUICK_FAMILIES:
            yield skipped(name, "tokens", 0, "lower", QUICK)
            continue
        arguments = {
            "recipe": RECIPES / "families" / f"{family}.yaml",
            "model_config.dtype": "float32",
            "model_config.threads": 1,
            "scheduler_config.batch_size": 8,
        }
        yield Row(
            name, different_tokens(arguments, (1, 5, 17, 40, 3, 16, 33, 2, 24, 9)), "tokens", 0, "lower"
        )


def real_shape_correctness(quick: bool) -> Iterable[Row]:
    """The same at the widths of published models, cut to four layers so that they fit twice in float32."""
    for shape in REAL_SHAPES:
        name = f"{shape} shape, 4 layers: greedy tokens that differ from generate, float32"
        if quick:
            yield skipped(name, "tokens", 0, "lower", QUICK)
            continue
        recipe = {
            "model_config": {
                "with_ckpt": False,
                "hf_config": real_shape(shape),
                "dtype": "float32",
                "custom_params": {"num_hidden_layers": 4},
            },
            "scheduler_config": {"max_new_tokens": NEW_TOKENS, "batch_size": 2},
        }
        yield Row(name, different_tokens({"recipe": recipe}, (5, 30, 17), 16), "tokens", 0, "lower")


def sample_correctness(quick: bool) -> Iterable[Row]:
    """The same on real weights."""
    lengths = (7, 30) if quick else (7, 30, 64, 1, 12, 50, 3, 22, 40, 5)
    arguments = sample_recipe(**{"model_config.dtype": "float32", "scheduler_config.batch_size": 8})
    name = f"SmolLM2-135M: greedy tokens that differ from generate, float32, {len(lengths)} prompts"
    yield Row(name, different_tokens(arguments, lengths), "tokens", 0, "lower")


def different_tokens(
    arguments: dict[str, object], lengths: Sequence[int], new_tokens: int = NEW_TOKENS
) -> int:
    """Tokens that differ from ``generate``: prompts alone, and in batches that others join and leave."""
    with load(arguments) as llm:
        reference = reference_copy(llm.model.module)
        prompts = prompts_of(llm.model.architecture.vocab_size, lengths)
        limits = [new_tokens - new_tokens // 9 * (index % 4) for index in range(len(prompts))]
        sampling = [{"max_new_tokens": limit, "ignore_eos": True} for limit in limits]
        batched = llm.generate(prompts, sampling)
        alone = llm.generate(prompts[1], sampling[1])[0]
        expected = [greedy_tokens(reference, p, limit) for p, limit in zip(prompts, limits, strict=True)]
        pairs = [*zip(expected, batched, strict=True), (expected[1], alone)]
        return sum(a != b for wanted, got in pairs for a, b in zip(wanted, got.token_ids, strict=True))


def bfloat16_error(quick: bool) -> Iterable[Row]:
    """bfloat16 under teacher forcing: against float32, beside transformers' own bfloat16."""
    lengths = (40, 25) if quick else (40, 25, 60, 33, 48, 12)
    ours, theirs = [], []
    with load(sample_recipe()) as llm, load(sample_recipe(**{"model_config.dtype": "float32"})) as exact_llm:
        bfloat16 = reference_copy(llm.model.module, "sdpa")
        exact = reference_copy(exact_llm.model.module)
        for prompt in prompts_of(llm.model.architecture.vocab_size, lengths):
            tokens = prompt + greedy_tokens(exact, prompt, NEW_TOKENS)
            first = len(prompt) - 1
            wanted = teacher_forced_logits(exact, tokens)[first:-1]
            ours.append(_deviation(paged_teacher_forced_logits(llm, tokens, len(prompt)), wanted))
            theirs.append(_deviation(teacher_forced_logits(bfloat16, tokens)[first:-1], wanted))
    agreement, error = _summary(ours)
    their_agreement, their_error = _summary(theirs)
    print(
        f"      SmolLM2-135M bfloat16, transformers' own: top-1 agreement {their_agreement:.4f}, "
        f"largest logit error {their_error:.4f}"
    )
    # The bars are transformers' own figures: our bfloat16 may not be worse than its by more than noise.
    name = "SmolLM2-135M bfloat16, teacher forced"
    bar = their_agreement - 0.03
    yield Row(f"{name}: top-1 agreement with float32", agreement, "share", bar, "higher")
    yield Row(f"{name}: largest logit error", error, "logit", 1.25 * their_error, "lower")


def _summary(figures: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return statistics.mean(agreement for agreement, _ in figures), max(error for _, error in figures)


def _deviation(logits: torch.Tensor, wanted: torch.Tensor) -> tuple[float, float]:
    agreement = (logits.argmax(-1) == wanted.argmax(-1)).float().mean()
    return float(agreement), float((logits - wanted).abs().max())


def decode_ratio(name: str, arguments: dict[str, object]) -> Row:
    """Our decode forward against transformers' eager forward with a static cache, A B A B, batch 1."""
    length = PROMPT_TOKENS + DECODE_STEPS + 8
    with load({**arguments, "scheduler_config.batch_size": 1}) as llm:
        prompt = prompts_of(llm.model.architecture.vocab_size, (PROMPT_TOKENS,))[0]
        theirs = StaticCacheDecoder(reference_copy(llm.model.module, "sdpa"), prompt, length)
        stream = llm.stream(prompt, {"max_new_tokens": DECODE_STEPS + 4, "ignore_eos": True})
        next(stream)
        our_ms, their_ms = [], []
        for step, _ in enumerate(stream):
            theirs.step()
            if step >= 3:  # both have touched their memory by then
                our_ms.append(llm.metrics.decode_ms[-1])
                their_ms.append(theirs.forward_ms)
    ours, other = statistics.median(our_ms), statistics.median(their_ms)
    print(f"      {name}: ours {ours:.2f} ms, transformers {other:.2f} ms")
    return Row(
        f"decode forward / transformers eager with static cache: {name}",
        median_ratio(our_ms, their_ms), "x", 1.10, "lower",
    )  # fmt: skip


def engine_overhead() -> Iterable[Row]:
    """Engine work per decode step outside the forward, on the sample model with text streaming."""
    for batch_size, bar in ((1, 0.5), (8, 1.0)):
        with load(sample_recipe(**{"scheduler_config.batch_size": batch_size})) as llm:
            prompts = [f"Write about the number {number}." for number in range(batch_size)]
            llm.generate(prompts, {"max_new_tokens": 40, "ignore_eos": True}, on_token=lambda _: None)
            overhead = statistics.median(llm.metrics.step_overhead_ms[1:])
        yield Row(
            f"engine work per step outside the forward, batch {batch_size}", overhead, "ms", bar, "lower"
        )


def demo_time(quick: bool) -> Iterable[Row]:
    """``scripts/demo`` in a clean clone: the first time, and again."""
    names = ("scripts/demo on a clean checkout, cold", "scripts/demo, second time")
    bars = (300.0, 60.0)
    if quick:
        for name, bar in zip(names, bars, strict=True):
            yield skipped(name, "s", bar, "lower", QUICK)
        return
    with tempfile.TemporaryDirectory() as directory:
        clone = Path(directory) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True)
        environment = [
            "env",
            "-u",
            "GRAPHSINK_VENV",
            "-u",
            "GRAPHSINK_CACHE_DIR",
            "-u",
            "VIRTUAL_ENV",
            f"XDG_CACHE_HOME={directory}/cache",
        ]
        for name, bar in zip(names, bars, strict=True):
            command = [*environment, str(clone / "scripts" / "demo")]
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            yield Row(name, time.perf_counter() - started, "s", bar, "lower")


if __name__ == "__main__":
    main("engine", measure)
