"""Check on the loaded weights that packing and paging change nothing.

The probe sees what a model asks of attention. It cannot see a model that derives positions, or mixes
tokens, in a way that a packed forward breaks. So before the first request two short sequences are run
alone, packed together, and split into prefill and decode, on a small KV pool of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphsink.config import SamplingParams
from graphsink.engine.executor import EagerExecutor, KVTensors
from graphsink.engine.forward_batch import BatchBuilder
from graphsink.engine.kv_cache import KVCacheManager
from graphsink.engine.model.loaded_model import LoadedModel
from graphsink.engine.request import Request
from graphsink.errors import NonFiniteLogitsError, UnsupportedModelError

BLOCK_SIZE = 4
SEQUENCE_LENGTHS = (21, 3)
"""The longer one has more than 16 positions: with fewer keys ATen's attention hides a NaN in its query."""
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1}
"""Largest root mean square of the difference relative to that of the logits.

Rounding gives about 1e-6 in float32 and 0.02 in bfloat16 (products with another number of rows add up
in another order); wrong positions or wrong neighbours give 0.3 and more.
"""


def check_packing(model: LoadedModel) -> None:
    """Raise if packed or paged execution differs from running each sequence alone.

    Raises:
        UnsupportedModelError: the logits differ beyond rounding.
        NonFiniteLogitsError: the model gives NaN or infinity already here.
    """
    model_type = model.config.model_type
    generator = torch.Generator().manual_seed(0)
    limit = model.architecture.context_length or max(SEQUENCE_LENGTHS)
    prompts = [
        torch.randint(
            model.architecture.vocab_size, (max(2, min(length, limit)),), generator=generator
        ).tolist()
        for length in SEQUENCE_LENGTHS
    ]
    run = _Runner(model)
    alone = torch.cat([run.prefill([prompt]) for prompt in prompts])
    if not bool(torch.isfinite(alone).all()):
        raise NonFiniteLogitsError(
            f"model type '{model_type}' gives NaN or infinite logits on random tokens",
            hint="check the weights; dtype float32 has more range than a 16-bit checkpoint may need",
        )
    observed = {
        "sequences packed into one forward": run.prefill(prompts),
        "a prefill continued by a decode step": run.prefill_then_decode(prompts),
    }
    tolerance = TOLERANCE[model.dtype]
    for what, logits in observed.items():
        deviation = _relative_deviation(logits, alone)
        if not deviation <= tolerance:
            raise UnsupportedModelError(
                f"model type '{model_type}' is not supported: {what} give other logits than each sequence "
                f"alone (relative deviation {deviation:.3g}, rounding explains {tolerance:.3g})",
                hint="the model derives positions or mixes tokens in a way that packing does not preserve",
            )


class _Runner:
    """Runs prompts on a fresh KV pool each time."""

    def __init__(self, model: LoadedModel) -> None:
        blocks_per_sequence = -(-max(SEQUENCE_LENGTHS) // BLOCK_SIZE)
        self._num_blocks = 1 + blocks_per_sequence * len(SEQUENCE_LENGTHS)
        self._model = model

    def prefill(self, prompts: Sequence[list[int]]) -> Tensor:
        executor, builder, requests = self._start(prompts)
        return executor.forward(builder.prefill(requests)).float()

    def prefill_then_decode(self, prompts: Sequence[list[int]]) -> Tensor:
        executor, builder, requests = self._start([prompt[:-1] for prompt in prompts])
        executor.forward(builder.prefill(requests))
        for request, prompt in zip(requests, prompts, strict=True):
            request.output_token_ids.append(prompt[-1])
        return executor.forward(builder.decode(requests)).float()

    def _start(self, prompts: Sequence[list[int]]) -> tuple[EagerExecutor, BatchBuilder, list[Request]]:
        kv = KVCacheManager(self._num_blocks, BLOCK_SIZE)
        tensors = KVTensors.allocate(
            self._model.architecture.layers, self._num_blocks, BLOCK_SIZE, self._model.dtype
        )
        requests = [Request(i, None, list(prompt), SamplingParams()) for i, prompt in enumerate(prompts)]
        for request in requests:
            kv.admit(request.request_id, len(request.prompt_token_ids) + 1)
        return EagerExecutor(self._model, tensors), BatchBuilder(kv, ()), requests


def _relative_deviation(logits: Tensor, reference: Tensor) -> float:
    return float(
        (logits - reference).square().mean().sqrt() / reference.square().mean().sqrt().clamp_min(1e-30)
    )
