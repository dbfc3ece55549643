"""transformers as the reference: greedy tokens, teacher-forced logits and the static-cache decode step."""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel, StaticCache

from graphsink import LLM, SamplingParams
from graphsink.engine.forward_batch import BatchBuilder


@torch.inference_mode()
def greedy_tokens(model: PreTrainedModel, prompt: Sequence[int], count: int) -> list[int]:
    """``count`` greedy tokens after ``prompt`` by ``generate``, end-of-sequence tokens ignored."""
    output = model.generate(
        torch.tensor([list(prompt)]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=count,
        min_new_tokens=count,
        do_sample=False,
        temperature=None,
        top_p=None,
        top_k=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    tokens: list[int] = output[0, len(prompt) :].tolist()
    return tokens


@torch.inference_mode()
def teacher_forced_logits(model: PreTrainedModel, tokens: Sequence[int]) -> Tensor:
    """Logits [len(tokens), vocabulary] of one forward over all tokens, in float32."""
    logits: Tensor = model(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits
    return logits[0].float()


class StaticCacheDecoder:
    """The decode step of transformers' own eager mode: SDPA attention, static cache, batch 1.

    Attributes:
        token: the newest token.
        forward_ms: time of the last forward, without choosing the token.
    """

    def __init__(self, model: PreTrainedModel, prompt: Sequence[int], max_length: int) -> None:
        self._model = model
        self._cache = StaticCache(config=model.config, max_cache_len=max_length)
        parameters = inspect.signature(model.forward).parameters
        # The argument was renamed; transformers documents `cache` from 5.2x on.
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"
        self._position = 0
        self.forward_ms = 0.0
        self.token = self._forward(list(prompt))

    def step(self) -> int:
        """Decode one token."""
        self.token = self._forward([self.token])
        return self.token

    @torch.inference_mode()
    def _forward(self, tokens: list[int]) -> int:
        positions = torch.arange(self._position, self._position + len(tokens)).unsqueeze(0)
        self._position += len(tokens)
        input_ids = torch.tensor([tokens])
        started = time.perf_counter()
        output = self._model(
            input_ids=input_ids,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_argument: self._cache},
        )
        self.forward_ms = (time.perf_counter() - started) * 1e3
        return int(output.logits[0, -1].argmax())


def reference_copy(module: PreTrainedModel, attn_implementation: str = "eager") -> PreTrainedModel:
    """The same architecture and weights with transformers' own attention; shares no memory."""
    config = copy.deepcopy(module.config)
    model = AutoModelForCausalLM.from_config(
        config, attn_implementation=attn_implementation, dtype=module.dtype
    )
    model.load_state_dict(module.state_dict())
    model.generation_config = GenerationConfig()
    return model.eval()


def paged_teacher_forced_logits(llm: LLM, tokens: Sequence[int], prompt_length: int) -> Tensor:
    """Logits of graphsink's paged path, in float32: prefill of the prompt, then one decode per given token.

    Returns:
        [len(tokens) - prompt_length, vocabulary]: the predictions of all tokens after the prompt.
    """
    engine = llm.engine
    request = engine.new_request(list(tokens[:prompt_length]), SamplingParams(max_new_tokens=1))
    engine.kv.admit(request.request_id, len(tokens))
    builder = BatchBuilder(engine.kv, ())
    try:
        logits = [engine.executor.forward(builder.prefill([request]))]
        for token in tokens[prompt_length:-1]:
            request.output_token_ids.append(token)
            logits.append(engine.executor.forward(builder.decode([request])))
    finally:
        engine.kv.release(request.request_id)
    return torch.cat(logits).float()
