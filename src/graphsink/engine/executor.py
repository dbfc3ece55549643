"""Runs forwards of a loaded model in eager mode and owns its KV tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from graphsink.engine.forward_batch import ForwardBatch
from graphsink.engine.model.attention import AttentionLayerSpec, PagedAttentionContext
from graphsink.engine.model.loaded_model import LoadedModel


@dataclass(frozen=True, slots=True)
class KVTensors:
    """The KV pool: per layer, keys [N, S, G, Dk] and values [N, S, G, Dv], zeroed.

    N blocks (block 0 is the null block) of S slots, G key-value heads.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @classmethod
    def allocate(
        cls, layers: Sequence[AttentionLayerSpec], num_blocks: int, block_size: int, dtype: torch.dtype
    ) -> KVTensors:
        """Zeroed pools; the operating system backs the pages when they are first written."""
        return cls(
            keys=tuple(
                torch.zeros(num_blocks, block_size, layer.num_kv_heads, layer.key_head_size, dtype=dtype)
                for layer in layers
            ),
            values=tuple(
                torch.zeros(num_blocks, block_size, layer.num_kv_heads, layer.value_head_size, dtype=dtype)
                for layer in layers
            ),
        )

    @property
    def bytes(self) -> int:
        """Size of the whole pool in bytes."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values that one token occupies over all layers."""
        return sum(tensor[0, 0].nbytes for tensor in (*self.keys, *self.values))


class EagerExecutor:
    """Calls the unmodified transformers module op by op.

    Args:
        model: weights loaded, evaluation mode.
        kv: the KV pool that forwards read and write.
    """

    def __init__(self, model: LoadedModel, kv: KVTensors) -> None:
        self._model = model
        self._kv = kv

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch) -> Tensor:
        """Logits [B, vocabulary] of the last token of each sequence; writes K and V of all tokens."""
        context = PagedAttentionContext(
            layers=self._model.architecture.layers,
            key_caches=self._kv.keys,
            value_caches=self._kv.values,
            slot_mapping=batch.slot_mapping,
            block_table=batch.block_table,
            query_start=batch.query_start,
            seq_lens=batch.seq_lens,
        )
        with self._model.binding.active(context):
            output = self._model.module(
                input_ids=batch.input_ids,
                position_ids=batch.position_ids,
                use_cache=False,
                logits_to_keep=batch.logits_to_keep,
            )
        logits: Tensor = output.logits[0]
        return logits

    def count_dispatched_ops(self, batch: ForwardBatch) -> int:
        """How many operators one forward dispatches, views included: eager's tasks per step."""
        counter = _OpCounter()
        with counter:
            self.forward(batch)
        return counter.count


class _OpCounter(TorchDispatchMode):
    """Counts operators that reach the dispatcher from Python."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204
        self.count += 1
        return func(*args, **(kwargs or {}))
