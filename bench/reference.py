"""transformers as the reference: greedy tokens, teacher-forced logits and the static-cache decode step."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel, StaticCache


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
    """The decode step of transformers' own eager mode: SDPA attention, static cache, batch 1."""

    def __init__(self, model: PreTrainedModel, prompt: Sequence[int], max_length: int) -> None:
        self._model = model
        self._cache = StaticCache(config=model.config, max_cache_len=max_length)
        parameters = inspect.signature(model.forward).parameters
        # The argument was renamed; transformers documents `cache` from 5.2x on.
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"
        self._position = 0
        self.token = self._forward(list(prompt))

    def step(self) -> int:
        """Decode one token."""
        self.token = self._forward([self.token])
        return self.token

    @torch.inference_mode()
    def _forward(self, tokens: list[int]) -> int:
        positions = torch.arange(self._position, self._position + len(tokens)).unsqueeze(0)
        self._position += len(tokens)
        output = self._model(
            input_ids=torch.tensor([tokens]),
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_argument: self._cache},
        )
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
