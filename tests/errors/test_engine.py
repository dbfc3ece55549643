"""What goes wrong while generating: a clear error, nothing lost, the engine usable afterwards."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator

import pytest
import torch

from graphsink import LLM, SamplingParams
from graphsink.engine.forward_batch import ForwardBatch
from graphsink.engine.model.packing_check import check_packing
from graphsink.engine.request import RequestOutput, TokenEvent
from graphsink.errors import (
    CapacityError,
    EngineBusyError,
    EngineError,
    GenerationFailedError,
    NonFiniteLogitsError,
    NotSupportedError,
    PromptError,
    RecipeValueError,
    StaleWeightsError,
)
from graphsink.llm import GenerationInterrupted
from graphsink.runtime.machine import machine_facts
from support.tiny_llm import TINY_LLAMA, tiny_llm, tiny_recipe

PROMPT = [5, 6, 7]


@pytest.fixture
def llm() -> Iterator[LLM]:
    with tiny_llm() as loaded:
        yield loaded


def free_blocks(llm: LLM) -> int:
    return llm.engine.kv.num_free_blocks


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([], "no token"),
        ("", "empty"),
        ([3, 128], "token id 128 is outside the vocabulary \\(0 to 127\\)"),
        ([-1], "-1"),
        ("text", "no tokenizer"),
    ],
)
def test_unusable_prompts_are_refused(llm: LLM, prompt: list[int] | str, words: str) -> None:
    """Before anything runs; the other prompts of the call are not started either."""
    with pytest.raises(PromptError, match=words):
        llm.generate([PROMPT, prompt])
    assert len(llm.generate(PROMPT)[0].token_ids) == 8


def test_stop_texts_need_a_tokenizer(llm: LLM) -> None:
    """They could never match."""
    with pytest.raises(PromptError, match="stop texts need a tokenizer"):
        llm.generate(PROMPT, {"stop": ("x",)})


def test_bad_sampling_parameters_are_named(llm: LLM) -> None:
    """By key, and before anything runs."""
    with pytest.raises(RecipeValueError, match="top_p"):
        llm.generate(PROMPT, {"top_p": 2.0})
    with pytest.raises(RecipeValueError, match="temprature"):
        llm.generate(PROMPT, {"temprature": 1.0})
    with pytest.raises(PromptError, match="2 sampling parameters for 1 prompts"):
        llm.generate(PROMPT, [{}, {}])


def test_too_long_prompts_end_and_others_are_served() -> None:
    """Longer than the prefill budget: a finish reason with the numbers, not an exception."""
    with tiny_llm(scheduler={"max_prefill_tokens": 10}) as llm:
        outputs = llm.generate([PROMPT, list(range(3, 14)), PROMPT])
        assert [output.finish_reason for output in outputs] == ["length", "prompt_too_long", "length"]
        assert outputs[1].error is not None
        assert "11" in outputs[1].error
        assert "10" in outputs[1].error
        assert outputs[1].token_ids == []
        assert outputs[0].token_ids == outputs[2].token_ids


@pytest.mark.parametrize(
    ("overrides", "length", "reason", "generated"),
    [
        # A pool of 12 tokens: 11 prompt tokens leave room for one; 12 leave none.
        ({"scheduler": {"kv_cache_tokens": 12}}, 11, "length", 1),
        ({"scheduler": {"kv_cache_tokens": 12}}, 12, "prompt_too_long", 0),
        # A context of 96 tokens.
        ({"data": {"input_truncated_len": 200}}, 95, "length", 1),
        ({"data": {"input_truncated_len": 200}}, 96, "prompt_too_long", 0),
    ],
)
def test_limits_are_exact(
    overrides: dict[str, dict[str, int]], length: int, reason: str, generated: int
) -> None:
    """Prompts of limit - 1 and limit tokens."""
    with tiny_llm(**overrides) as llm:
        output = llm.generate([3] * length)[0]
        assert output.finish_reason == reason
        assert len(output.token_ids) == generated
        assert free_blocks(llm) == llm.engine.capacity.num_blocks - 1


def test_truncation_is_reported(llm: LLM) -> None:
    """The head of the prompt is kept, and the result says how many tokens were cut."""
    long = [3 + i % 50 for i in range(80)]
    output = llm.generate([long], {"max_new_tokens": 4})[0]
    assert (output.prompt_tokens, output.truncated_tokens) == (64, 16)
    assert output.token_ids == llm.generate([long[:64]], {"max_new_tokens": 4})[0].token_ids


def test_nan_ends_only_its_request() -> None:
    """A prompt whose embedding is NaN ends with an error; its neighbours and later requests do not."""
    with tiny_llm(model={"allow_weight_updates": True}, scheduler={"kv_cache_tokens": 24}) as llm:
        expected = llm.generate(PROMPT)[0].token_ids
        with torch.no_grad():
            llm.model.module.get_input_embeddings().weight[99] = float("nan")  # type: ignore[operator]
        good, bad = llm.generate([PROMPT, [5, 99, 7]])
        assert bad.finish_reason == "error"
        assert "NaN" in (bad.error or "")
        assert good.token_ids == expected
        # The pool is small: this request gets the blocks that hold the NaN of the failed one.
        assert [o.token_ids for o in llm.generate([PROMPT, PROMPT])] == [expected, expected]


def test_nan_weights_are_noticed_in_warm_up() -> None:
    """A model that cannot work at all is refused before the first request."""
    with pytest.raises(NonFiniteLogitsError, match="NaN or infinite logits"):
        overflowing = {**TINY_LLAMA, "model_type": "granite", "logits_scaling": 1e-39}
        tiny_llm(model={"hf_config": overflowing})


def test_ctrl_c_keeps_partial_output(llm: LLM) -> None:
    """KeyboardInterrupt carries what was generated; KV blocks come back; the engine works on."""
    before = free_blocks(llm)
    expected = llm.generate(PROMPT)[0].token_ids

    def interrupt(event: TokenEvent) -> None:
        if len(llm.metrics.decode_ms) == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(GenerationInterrupted) as interruption:
        llm.generate([PROMPT, PROMPT, PROMPT], on_token=interrupt)
    assert isinstance(interruption.value, KeyboardInterrupt)
    first, second, third = interruption.value.outputs
    assert first.token_ids == expected[: len(first.token_ids)]
    assert len(first.token_ids) == 4
    assert {first.finish_reason, second.finish_reason, third.finish_reason} == {"error"}
    assert first.error == third.error == "interrupted"
    assert third.token_ids == []
    assert free_blocks(llm) == before
    assert llm.generate(PROMPT)[0].token_ids == expected


def test_a_failing_callback_leaves_the_engine_usable(llm: LLM) -> None:
    """The caller's exception passes through unchanged."""
    before = free_blocks(llm)

    def fail(event: TokenEvent) -> None:
        raise ZeroDivisionError("callback")

    with pytest.raises(ZeroDivisionError, match="callback"):
        llm.generate([PROMPT, PROMPT], on_token=fail)
    assert free_blocks(llm) == before
    assert len(llm.generate(PROMPT)[0].token_ids) == 8


def test_closing_the_iterator_ends_the_generation(llm: LLM) -> None:
    """An iterator that is dropped half-way gives everything back."""
    before = free_blocks(llm)
    stream = llm.stream([PROMPT, PROMPT])
    next(stream)
    with pytest.raises(EngineBusyError, match="already generating"):
        llm.generate(PROMPT)
    stream.close()  # type: ignore[attr-defined]
    assert free_blocks(llm) == before
    assert len(llm.generate(PROMPT)[0].token_ids) == 8


def test_a_second_thread_is_refused(llm: LLM) -> None:
    """One generation at a time; the second caller is told so and the first is not disturbed."""
    expected = llm.generate(PROMPT)[0].token_ids
    seen: list[BaseException] = []

    def second() -> None:
        try:
            llm.generate(PROMPT)
        except EngineBusyError as error:
            seen.append(error)

    def start_second(event: TokenEvent) -> None:
        if not seen:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()

    assert llm.generate(PROMPT, on_token=start_second)[0].token_ids == expected
    assert len(seen) == 1


def test_written_weights_are_noticed(llm: LLM) -> None:
    """In-place writes, load_state_dict and replaced tensors; the message names the tensor."""
    weight = llm.model.module.get_submodule("model.layers.1.mlp.up_proj").weight
    before = llm.generate(PROMPT)[0].token_ids
    with torch.no_grad():
        weight.mul_(-3.0)  # type: ignore[operator]
    with pytest.raises(StaleWeightsError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        llm.generate(PROMPT)
    llm.refresh_weights()
    assert llm.generate(PROMPT)[0].token_ids != before

    state = {name: tensor.clone() for name, tensor in llm.model.module.state_dict().items()}
    llm.model.module.load_state_dict(state)
    with pytest.raises(StaleWeightsError, match=r"and \d+ more"):
        llm.generate(PROMPT)
    llm.refresh_weights()

    llm.model.module.get_submodule("lm_head").weight = torch.nn.Parameter(state["lm_head.weight"])
    with pytest.raises(StaleWeightsError, match=r"lm_head\.weight"):
        llm.generate(PROMPT)


def test_weight_updates_can_be_allowed() -> None:
    """Then a change rebinds, is counted, and the new weights are used."""
    with tiny_llm(model={"allow_weight_updates": True}) as llm:
        before = llm.generate(PROMPT)[0].token_ids
        with torch.no_grad():
            llm.model.module.get_submodule("lm_head").weight.mul_(-1.0)  # type: ignore[operator]
        assert llm.generate(PROMPT)[0].token_ids != before
        assert llm.engine.weights.rebinds == 1


def test_kv_capacity_beyond_memory_is_an_error_with_numbers() -> None:
    """In GiB and in tokens."""
    for scheduler in ({"kv_cache_gib": 1e6}, {"kv_cache_tokens": 2**31 - 1, "mem_fraction_static": 1e-6}):
        with pytest.raises(CapacityError) as error:
            tiny_llm(scheduler=scheduler)
        assert error.value.unit == "bytes"
        assert error.value.needed > error.value.available > 0
        assert f"{error.value.needed:,}" in str(error.value)


@pytest.mark.parametrize("mode", ["capture", "compile", "npugraph_ex", "ge_graph"])
def test_modes_that_are_not_built_say_so(mode: str) -> None:
    """An error of our tree before anything is loaded, never a silent eager run."""
    with pytest.raises(NotSupportedError, match="not built yet"):
        LLM(tiny_recipe(model={"exe_mode": mode, "hf_config": {"model_type": "does not even exist"}}))


def test_two_ranks_are_refused() -> None:
    """The recipe parses; running says that it is not supported yet."""
    with pytest.raises(NotSupportedError, match="world_size: 2 is not yet supported"):
        tiny_llm(parallel={"world_size": 2}, scheduler={"batch_size": 2})


def test_a_closed_llm_says_so() -> None:
    """Instead of an attribute error."""
    llm = tiny_llm()
    llm.close()
    llm.close()
    with pytest.raises(EngineError, match="closed"):
        llm.generate(PROMPT)


def test_a_failing_forward_keeps_what_was_generated(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of memory in the middle: the error names the step and carries the outputs."""
    expected = llm.generate(PROMPT)[0].token_ids
    forward = llm.engine.executor.forward
    calls = 0

    def failing(batch: ForwardBatch) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise RuntimeError("DefaultCPUAllocator: not enough memory")
        return forward(batch)

    monkeypatch.setattr(type(llm.engine.executor), "forward", lambda self, batch: failing(batch))
    with pytest.raises(GenerationFailedError, match="forward of 1 tokens failed: RuntimeError") as error:
        llm.generate(PROMPT)
    assert isinstance(error.value.__cause__, RuntimeError)
    (output,) = error.value.outputs
    assert isinstance(output, RequestOutput)
    assert output.token_ids == expected[:3]
    assert output.finish_reason == "error"
    monkeypatch.undo()
    assert llm.generate(PROMPT)[0].token_ids == expected


def test_an_interrupt_at_any_time_loses_nothing(llm: LLM) -> None:
    """SIGINT at random moments: partial results are a prefix, blocks come back, the next call is right."""
    expected = llm.generate([PROMPT, PROMPT, PROMPT])
    before = free_blocks(llm)
    generator = random.Random(0)
    interrupted = 0
    for _ in range(60):
        signal.setitimer(signal.ITIMER_REAL, generator.uniform(0.0005, 0.03))
        previous = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        try:
            outputs = llm.generate([PROMPT, PROMPT, PROMPT])
        except GenerationInterrupted as interruption:
            outputs = interruption.outputs
            interrupted += 1
        except KeyboardInterrupt:
            outputs = []
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        for output, whole in zip(outputs, expected, strict=False):
            assert output.token_ids == whole.token_ids[: len(output.token_ids)]
        assert free_blocks(llm) == before
    assert interrupted > 5
    assert [o.token_ids for o in llm.generate([PROMPT, PROMPT])] == [o.token_ids for o in expected[:2]]


def test_bookkeeping_that_an_interrupt_left_behind_is_renewed(llm: LLM) -> None:
    """An iterator gets its interrupt anywhere, also between taking blocks and registering them."""
    expected = llm.generate(PROMPT)[0].token_ids
    llm.engine.kv.admit(10**6, 40)
    assert llm.generate(PROMPT)[0].token_ids == expected
    assert free_blocks(llm) == llm.engine.capacity.num_blocks - 1


def test_a_mapping_changes_single_values_of_the_recipe() -> None:
    """What it does not name stays as in the recipe; one seed for all prompts counts up."""
    data = {"temperature": 1.0, "logprobs": 2}
    with tiny_llm(scheduler={"max_new_tokens": 5}, data=data) as llm:
        outputs = llm.generate([PROMPT, PROMPT], {"seed": 7})
        assert [len(output.token_ids) for output in outputs] == [5, 5]
        assert [len(output.logprobs) for output in outputs] == [5, 5]
        assert outputs[0].token_ids != outputs[1].token_ids
        second = llm.generate(PROMPT, {"seed": 8})[0]
        assert second.token_ids == outputs[1].token_ids
        assert len(llm.generate(PROMPT, SamplingParams())[0].token_ids) == 32


def test_two_models_keep_their_threads() -> None:
    """The number of threads belongs to the process; each model sets its own while it runs."""
    before = torch.get_num_threads()
    seen = []
    with tiny_llm() as one, tiny_llm(model={"threads": "auto"}) as all_threads:
        for llm in (one, all_threads, one):
            llm.generate(PROMPT, {"max_new_tokens": 1}, lambda _: seen.append(torch.get_num_threads()))
        assert seen == [1, all_threads.threads, 1]
        assert (one.threads, all_threads.threads) == (1, machine_facts().threads)
    assert torch.get_num_threads() == before


def test_more_threads_than_cores_are_refused() -> None:
    """They would fight for the cores; the message says how many there are."""
    with pytest.raises(RecipeValueError, match="4096 threads are more than the"):
        tiny_llm(model={"threads": 4096})


def test_a_pool_without_room_for_a_new_token_is_refused() -> None:
    """At load, with the numbers."""
    with pytest.raises(CapacityError, match="a prompt token and a new token") as error:
        tiny_llm(scheduler={"block_size": 1, "kv_cache_tokens": 1})
    assert (error.value.needed, error.value.available, error.value.unit) == (2, 1, "tokens")


def test_the_read_volume_of_windowed_layers_is_that_of_the_window() -> None:
    """Bytes per decode step: layers x (K + V) x heads x size x min(length, window)."""
    windowed = {**TINY_LLAMA, "model_type": "mistral", "sliding_window": 8}
    with tiny_llm(model={"hf_config": windowed}) as llm:
        llm.generate([list(range(3, 33))], {"max_new_tokens": 3})
        per_token = 2 * 2 * 2 * 8 * 4
        assert llm.metrics.decode_kv_bytes == [8 * per_token] * 2
    with tiny_llm() as llm:
        llm.generate([list(range(3, 33))], {"max_new_tokens": 3})
        assert llm.metrics.decode_kv_bytes == [31 * per_token, 32 * per_token]


def test_wall_time_covers_the_whole_call(llm: LLM) -> None:
    """Also what happens before the first step."""
    waits = iter([0.2])

    def slow_first(event: TokenEvent) -> None:
        time.sleep(next(waits, 0.0))

    begin = time.perf_counter()
    llm.generate(PROMPT, on_token=slow_first)
    whole = time.perf_counter() - begin
    assert 0.2 < llm.metrics.wall_s <= whole
    assert sum(llm.metrics.step_overhead_ms) < 200


@pytest.mark.parametrize("prompts", [torch.tensor([5, 6]), 7, {"prompt": "x"}, object()])
def test_prompts_of_other_types_are_refused(llm: LLM, prompts: object) -> None:
    """A tensor's truth value is ambiguous; the message should not be about that."""
    with pytest.raises(PromptError, match=r"prompts are given as|a prompt is"):
        llm.generate(prompts)  # type: ignore[arg-type]


def test_a_forked_child_gets_an_error_instead_of_hanging(llm: LLM) -> None:
    """PyTorch's threads do not exist there."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            llm.generate(PROMPT)
        except EngineError as error:
            code = 42 if "its child" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert len(llm.generate(PROMPT)[0].token_ids) == 8


def test_a_nan_weight_of_attention_is_noticed_in_warm_up(llm: LLM) -> None:
    """ATen's attention gives finite numbers for a NaN query with fewer than 16 keys."""
    weight = llm.model.module.get_submodule("model.layers.1.self_attn.q_proj").weight
    with torch.no_grad():
        weight[0, 0] = float("nan")  # type: ignore[index]
    with pytest.raises(NonFiniteLogitsError):
        check_packing(llm.model)


@pytest.mark.parametrize("sampling", [5, "x", object()])
def test_sampling_of_other_types_is_refused(llm: LLM, sampling: object) -> None:
    """Named by its type."""
    with pytest.raises(PromptError, match="sampling is given as"):
        llm.generate(PROMPT, sampling)  # type: ignore[arg-type]


def test_recipes_of_other_types_are_refused() -> None:
    """Named by their type."""
    for recipe in (None, [], 5):
        with pytest.raises(RecipeValueError, match="a recipe is given as"):
            LLM(recipe)  # type: ignore[arg-type]
