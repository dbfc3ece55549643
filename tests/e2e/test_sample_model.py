"""The sample model, with real weights, through the Python interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bench.reference import greedy_tokens, reference_copy, teacher_forced_logits
from graphsink import LLM
from graphsink.engine.request import TokenEvent

QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def llm(sample_directory: Path, recipes: Path) -> Iterator[LLM]:
    """The shipped recipe in float32, so that tokens can be compared one by one."""
    overrides = {
        "model_config.model_path": str(sample_directory),
        "model_config.dtype": "float32",
        "scheduler_config.batch_size": 4,
        "scheduler_config.max_new_tokens": 64,
    }
    with LLM(recipes / "smollm2_135m.yaml", overrides) as loaded:
        yield loaded


def test_answers_sensibly(llm: LLM) -> None:
    """The chat template is applied, the answer ends by itself, and it is right."""
    output = llm.generate(QUESTION)[0]
    assert output.finish_reason == "stop"
    assert output.text is not None
    assert "Paris" in output.text
    assert "<|" not in output.text
    assert output.prompt == QUESTION
    # The template adds a system message and turn markers around the eight tokens of the question.
    assert output.prompt_tokens > 20


def test_greedy_tokens_equal_generate_in_a_batch(llm: LLM) -> None:
    """Four prompts of other lengths at once give what transformers gives for each alone."""
    reference = reference_copy(llm.model.module)
    tokenizer = llm.model.tokenizer
    assert tokenizer is not None
    texts = [QUESTION, "Write one sentence about bicycles.", "1 2 3 4", "Name three colours."]
    prompts = [tokenizer.encode_prompt(text, apply_chat_template=True) for text in texts]
    outputs = llm.generate(prompts, {"max_new_tokens": 64, "ignore_eos": True})
    for prompt, output in zip(prompts, outputs, strict=True):
        assert output.token_ids == greedy_tokens(reference, prompt, 64)


def test_logprobs_are_those_of_the_model(llm: LLM) -> None:
    """Log-probabilities equal log_softmax of transformers' logits at the same positions."""
    prompt = list(range(100, 120))
    output = llm.generate(prompt, {"max_new_tokens": 5, "logprobs": 3, "ignore_eos": True})[0]
    reference = reference_copy(llm.model.module)
    logits = teacher_forced_logits(reference, prompt + output.token_ids)
    for step, entry in enumerate(output.logprobs):
        expected = torch.log_softmax(logits[len(prompt) - 1 + step], dim=-1)
        assert entry.chosen == pytest.approx(float(expected[output.token_ids[step]]), abs=1e-3)
        assert [token for token, _ in entry.top] == expected.topk(3).indices.tolist()
        assert entry.top[0][0] == output.token_ids[step]


def test_streamed_text_adds_up(llm: LLM) -> None:
    """Callback and iterator see every token once; their texts add up to the result's."""
    seen: list[TokenEvent] = []
    outputs = llm.generate([QUESTION, "Say: héllo 😀 世界"], on_token=seen.append)
    for index, output in enumerate(outputs):
        events = [event for event in seen if event.index == index]
        assert [event.token_id for event in events] == output.token_ids
        assert "".join(event.text for event in events) == output.text
        assert [event.finish_reason for event in events[:-1]] == [None] * (len(events) - 1)
        assert events[-1].finish_reason == output.finish_reason
    streamed = list(llm.stream(QUESTION))
    assert [event.token_id for event in streamed] == outputs[0].token_ids


def test_tokens_arrive_while_generating(llm: LLM) -> None:
    """``on_token`` is called as each token is made, not at the end."""
    decode_steps_at_event: list[int] = []
    llm.generate(
        list(range(50, 60)),
        {"max_new_tokens": 6, "ignore_eos": True},
        on_token=lambda _: decode_steps_at_event.append(len(llm.metrics.decode_ms)),
    )
    assert decode_steps_at_event == [0, 1, 2, 3, 4, 5]


def test_stop_text_is_not_returned(llm: LLM) -> None:
    """The text ends before the stop text, and the reason says so."""
    full = llm.generate(QUESTION)[0]
    assert full.text is not None
    stop = full.text[10:14]
    output = llm.generate(QUESTION, {"max_new_tokens": 64, "stop": (stop,)})[0]
    assert output.finish_reason == "stop"
    assert output.text == full.text[: full.text.index(stop)]


def test_seed_repeats_and_does_not_depend_on_the_batch(llm: LLM) -> None:
    """The same seed gives the same tokens alone and among others; another seed gives others."""
    sampling = {"max_new_tokens": 16, "temperature": 1.0, "seed": 5, "ignore_eos": True}
    alone = llm.generate(QUESTION, sampling)[0].token_ids
    others = [{**sampling, "seed": seed} for seed in (1, 5, 2)]
    batch = llm.generate(["Hello", QUESTION, "Bye"], others)
    assert batch[1].token_ids == alone
    assert llm.generate(QUESTION, {**sampling, "seed": 6})[0].token_ids != alone


def test_eager_bfloat16_agrees_with_transformers(sample_directory: Path, recipes: Path) -> None:
    """Under teacher forcing, bfloat16 picks the same token as transformers' bfloat16 almost everywhere."""
    with LLM(recipes / "smollm2_135m.yaml", {"model_config.model_path": str(sample_directory)}) as llm:
        prompt = list(range(1000, 1040))
        output = llm.generate(prompt, {"max_new_tokens": 48, "ignore_eos": True})[0]
        reference = reference_copy(llm.model.module, "sdpa")
        logits = teacher_forced_logits(reference, prompt + output.token_ids)
        expected = logits[len(prompt) - 1 : -1].argmax(dim=-1).tolist()
        agreement = sum(a == b for a, b in zip(expected, output.token_ids, strict=True)) / 48
        assert agreement >= 0.9
