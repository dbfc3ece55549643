"""The engine: a loaded model, its KV cache, and everything that turns requests into tokens."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from graphsink.config import Recipe, SamplingParams
from graphsink.engine.detokenizer import byte_fallback_tokens
from graphsink.engine.executor import EagerExecutor, KVTensors
from graphsink.engine.forward_batch import BatchBuilder, ForwardBatch, kv_read_costs
from graphsink.engine.generation import Generation
from graphsink.engine.kv_cache import (
    KVCacheManager,
    KVCacheSpec,
    KVCapacity,
    default_kv_tokens,
    plan_capacity,
)
from graphsink.engine.metrics import WarmupReport
from graphsink.engine.model.loaded_model import LoadedModel
from graphsink.engine.model.packing_check import check_packing
from graphsink.engine.process_state import torch_threads
from graphsink.engine.request import Request
from graphsink.engine.sampler import Sampler
from graphsink.engine.scheduler import ScheduledBatch, Scheduler
from graphsink.engine.text_stream import TextStream
from graphsink.engine.weight_watch import WeightWatch
from graphsink.errors import CapacityError, EngineBusyError, EngineError, PromptError

WARMUP_PROMPT_TOKENS = 64
"""Length of the warm-up's prefill (shorter if the budget, the pool or the context is)."""


class Engine:
    """Runs requests on a loaded model.

    Args:
        model: weights loaded.
        recipe: the effective recipe.
        threads: threads that ATen computes with.
        available_bytes: memory that the KV cache may count on.

    Raises:
        CapacityError: the KV cache does not fit into memory, or is too small for one new token.
    """

    def __init__(self, model: LoadedModel, recipe: Recipe, *, threads: int, available_bytes: int) -> None:
        self.model, self.recipe, self.threads = model, recipe, threads
        self.capacity = _plan_capacity(model, recipe, available_bytes)
        self.kv_tensors = self._allocate_kv(available_bytes)
        self.executor = EagerExecutor(model, self.kv_tensors)
        self.sampler = Sampler(model.architecture.vocab_size)
        self.weights = WeightWatch(model.module, allow_updates=recipe.model.allow_weight_updates)
        self.eos_token_ids = model.eos_token_ids
        self._byte_tokens = (
            byte_fallback_tokens(model.tokenizer.hf.get_vocab()) if model.tokenizer else frozenset()
        )
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._next_request_id = 0
        self._reset()

    def _allocate_kv(self, available_bytes: int) -> KVTensors:
        try:
            return KVTensors.allocate(
                self.model.architecture.layers,
                self.capacity.num_blocks,
                self.recipe.scheduler.block_size,
                self.model.dtype,
            )
        except RuntimeError as error:  # what ATen raises when the system refuses memory
            raise CapacityError(
                "the system refused memory for the KV cache (a limit of this process, see ulimit -v)",
                needed=self.capacity.bytes,
                available=available_bytes,
                where="scheduler_config",
                hint="lower kv_cache_gib or kv_cache_tokens",
            ) from error

    def renew(self) -> None:
        """Start afresh after an interrupt that struck in the middle of bookkeeping."""
        self._reset()

    def _reset(self) -> None:
        """Fresh bookkeeping: all blocks free, nothing scheduled."""
        recipe = self.recipe
        self.kv = KVCacheManager(self.capacity.num_blocks, recipe.scheduler.block_size)
        self.scheduler = Scheduler(
            self.kv,
            batch_size=recipe.scheduler.batch_size,
            max_prefill_tokens=recipe.max_prefill_tokens,
            context_length=self.model.architecture.context_length,
        )
        self._builder = BatchBuilder(self.kv, kv_read_costs(self.model))

    def new_request(
        self,
        prompt_token_ids: list[int],
        sampling: SamplingParams,
        *,
        prompt: str | None = None,
        truncated_tokens: int = 0,
    ) -> Request:
        """A request for `generate`, checked against the model.

        Raises:
            PromptError: the prompt is empty or has token ids outside the vocabulary, or stop texts are
                asked of a model without a tokenizer.
        """
        if not prompt_token_ids:
            raise PromptError("the prompt has no tokens", hint="give at least one token")
        vocab_size = self.model.architecture.vocab_size
        outside = [token for token in prompt_token_ids if not 0 <= token < vocab_size]
        if outside:
            raise PromptError(f"token id {outside[0]} is outside the vocabulary (0 to {vocab_size - 1})")
        if sampling.stop and self.model.tokenizer is None:
            raise PromptError("stop texts need a tokenizer", hint="set model_config.tokenizer_path")
        self._next_request_id += 1
        return Request(
            self._next_request_id, prompt, list(prompt_token_ids), sampling, truncated_tokens=truncated_tokens
        )

    def text_stream(self, stops: Sequence[str]) -> TextStream:
        """The text of one request."""
        tokenizer = self.model.tokenizer
        return TextStream(tokenizer.decode if tokenizer else None, self._byte_tokens, stops)

    @contextmanager
    def generating(self, requests: Sequence[Request], started: float | None = None) -> Iterator[Generation]:
        """Own the engine for one `Generation`.

        Args:
            requests: what to generate.
            started: when the call began, by ``time.perf_counter``; now, if ``None``.

        Raises:
            EngineError: this is a forked child of the process that loaded the model.
            EngineBusyError: another thread, or an unfinished iterator, is generating.
            StaleWeightsError: weights changed since they were bound.
        """
        if os.getpid() != self._process:
            raise EngineError(
                f"the model was loaded in process {self._process}; this is its child {os.getpid()}, where "
                "the threads of PyTorch do not exist",
                hint="load it in this process, or start processes with multiprocessing's 'spawn'",
            )
        if not self._lock.acquire(blocking=False):
            raise EngineBusyError(
                "this engine is already generating",
                hint="finish or close the other generation first, or give all prompts in one call",
            )
        try:
            self.weights.check()
            if self.scheduler.has_work or self.kv.num_free_blocks != self.capacity.num_blocks - 1:
                # An interrupt struck in the middle of bookkeeping; nobody owns what is left of it.
                self._reset()
            generation = Generation(self, requests, time.perf_counter() if started is None else started)
            try:
                with torch_threads(self.threads):
                    yield generation
            finally:
                generation.release()
        finally:
            self._lock.release()

    def build_batch(self, batch: ScheduledBatch) -> ForwardBatch:
        """The tensors of a scheduled step."""
        return (
            self._builder.prefill(batch.requests)
            if batch.is_prefill
            else self._builder.decode(batch.requests)
        )

    def warm_up(self) -> WarmupReport:
        """Check packing on the real weights, then run one prefill and one decode.

        Raises:
            UnsupportedModelError, NonFiniteLogitsError: see `check_packing`.
        """
        started = time.perf_counter()
        with torch_threads(self.threads):
            check_packing(self.model)
            tasks = self._one_prefill_and_one_decode()
        return WarmupReport(seconds=time.perf_counter() - started, tasks_per_step=tasks)

    def _one_prefill_and_one_decode(self) -> int:
        """Touch weights and KV cache; returns the operators that the decode dispatched."""
        length = min(
            WARMUP_PROMPT_TOKENS,
            self.recipe.max_prefill_tokens,
            self.kv.max_tokens - 1,
            self._longest_prompt(),
        )
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(
            self.model.architecture.vocab_size, (max(1, length),), generator=generator
        ).tolist()
        request = self.new_request(tokens, SamplingParams(max_new_tokens=1))
        self.kv.admit(request.request_id, request.num_tokens + 1)
        try:
            self.executor.forward(self._builder.prefill([request]))
            request.output_token_ids.append(tokens[0])
            return self.executor.count_dispatched_ops(self._builder.decode([request]))
        finally:
            self.kv.release(request.request_id)

    def _longest_prompt(self) -> int:
        context_length = self.model.architecture.context_length
        return context_length - 1 if context_length is not None else self.kv.max_tokens


def _plan_capacity(model: LoadedModel, recipe: Recipe, available_bytes: int) -> KVCapacity:
    specs = [
        KVCacheSpec(layer.num_kv_heads, layer.key_head_size, layer.value_head_size)
        for layer in model.architecture.layers
    ]
    capacity = plan_capacity(
        specs,
        model.dtype.itemsize,
        recipe.scheduler.block_size,
        kv_cache_gib=recipe.scheduler.kv_cache_gib,
        kv_cache_tokens=recipe.scheduler.kv_cache_tokens,
        default_tokens=default_kv_tokens(
            recipe.scheduler.batch_size,
            recipe.data.input_truncated_len,
            recipe.scheduler.max_new_tokens,
            recipe.scheduler.block_size,
            model.architecture.context_length,
        ),
        available_bytes=available_bytes,
        mem_fraction=recipe.scheduler.mem_fraction_static,
    )
    tokens = (capacity.num_blocks - 1) * recipe.scheduler.block_size
    if tokens < 2:
        raise CapacityError(
            "the KV cache must hold a prompt token and a new token",
            needed=2,
            available=tokens,
            unit="tokens",
            where="scheduler_config",
            hint="raise kv_cache_tokens, kv_cache_gib or block_size",
        )
    return capacity
