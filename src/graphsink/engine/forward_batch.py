"""The tensors of one forward, built from what the scheduler chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphsink.engine.kv_cache import KVCacheManager
from graphsink.engine.model.loaded_model import LoadedModel
from graphsink.engine.request import Request


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """Inputs of one forward over T packed tokens of B sequences.

    Attributes:
        input_ids: int64 [1, T].
        position_ids: int64 [1, T], position of each token in its own sequence.
        slot_mapping: int64 [T], KV slot of each token.
        block_table: int32 [B, M], blocks of each sequence, padded with the null block 0.
        query_start: int32 [B + 1], first token of each sequence; ends with T.
        seq_lens: int32 [B], tokens in the KV cache after this forward.
        logits_to_keep: int64 [B], index of the last token of each sequence.
        is_prefill: whether the sequences start in this forward.
        kv_bytes: bytes of stored keys and values that attention has to read.
    """

    input_ids: Tensor
    position_ids: Tensor
    slot_mapping: Tensor
    block_table: Tensor
    query_start: Tensor
    seq_lens: Tensor
    logits_to_keep: Tensor
    is_prefill: bool
    kv_bytes: int

    @property
    def num_tokens(self) -> int:
        """T."""
        return self.input_ids.shape[1]


@dataclass(frozen=True, slots=True)
class KVReadCost:
    """What layers with the same window read: ``bytes_per_token`` for the last ``window`` tokens (0: all)."""

    window: int
    bytes_per_token: int

    def bytes_for(self, length: int) -> int:
        """Bytes read for a sequence of ``length`` tokens."""
        return self.bytes_per_token * (min(length, self.window) if self.window else length)


def kv_read_costs(model: LoadedModel) -> tuple[KVReadCost, ...]:
    """The costs of a model, one per window that its layers have."""
    per_window: dict[int, int] = {}
    for layer in model.architecture.layers:
        elements = layer.num_kv_heads * (layer.key_head_size + layer.value_head_size)
        bytes_per_token = elements * model.dtype.itemsize
        per_window[layer.window] = per_window.get(layer.window, 0) + bytes_per_token
    return tuple(KVReadCost(window, size) for window, size in per_window.items())


class BatchBuilder:
    """Builds forward batches; remembers the block table while the same requests decode.

    Block tables only change when requests join or leave, because admission reserves all blocks of a
    request: see `graphsink.engine.kv_cache`.
    """

    def __init__(self, kv: KVCacheManager, read_costs: tuple[KVReadCost, ...]) -> None:
        self._kv, self._read_costs = kv, read_costs
        self._decode_ids: tuple[int, ...] = ()
        self._decode_table = torch.empty(0, 0, dtype=torch.int32)
        self._decode_start = torch.empty(0, dtype=torch.int32)
        self._decode_rows = torch.empty(0, dtype=torch.int64)

    def prefill(self, requests: Sequence[Request]) -> ForwardBatch:
        """All prompt tokens of ``requests``, packed one after another."""
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[Tensor] = []
        starts = [0]
        for request in requests:
            length = len(request.prompt_token_ids)
            token_ids += request.prompt_token_ids
            positions += range(length)
            slots.append(torch.from_numpy(self._kv.slots(request.request_id, 0, length)))
            starts.append(starts[-1] + length)
        query_start = torch.tensor(starts, dtype=torch.int32)
        return ForwardBatch(
            input_ids=torch.tensor(token_ids).unsqueeze(0),
            position_ids=torch.tensor(positions).unsqueeze(0),
            slot_mapping=torch.cat(slots),
            block_table=self._block_table(requests),
            query_start=query_start,
            seq_lens=query_start.diff(),
            logits_to_keep=query_start[1:].long() - 1,
            is_prefill=True,
            kv_bytes=self._kv_bytes([len(request.prompt_token_ids) for request in requests]),
        )

    def decode(self, requests: Sequence[Request]) -> ForwardBatch:
        """The newest token of each request, which is not in the KV cache yet."""
        request_ids = tuple(request.request_id for request in requests)
        if request_ids != self._decode_ids:
            self._decode_ids = request_ids
            self._decode_table = self._block_table(requests)
            self._decode_start = torch.arange(len(requests) + 1, dtype=torch.int32)
            self._decode_rows = torch.arange(len(requests))
        lengths = [request.num_tokens for request in requests]
        tokens = [request.output_token_ids[-1] for request in requests]
        slots = [
            self._kv.slot_for(r.request_id, length - 1) for r, length in zip(requests, lengths, strict=True)
        ]
        # One tensor for the three int64 inputs: making a tensor costs more than filling it.
        packed = torch.tensor([tokens, [length - 1 for length in lengths], slots])
        return ForwardBatch(
            input_ids=packed[0:1],
            position_ids=packed[1:2],
            slot_mapping=packed[2],
            block_table=self._decode_table,
            query_start=self._decode_start,
            seq_lens=torch.tensor(lengths, dtype=torch.int32),
            logits_to_keep=self._decode_rows,
            is_prefill=False,
            kv_bytes=self._kv_bytes(lengths),
        )

    def _kv_bytes(self, lengths: Sequence[int]) -> int:
        return sum(cost.bytes_for(length) for cost in self._read_costs for length in lengths)

    def _block_table(self, requests: Sequence[Request]) -> Tensor:
        tables = [self._kv.block_table(request.request_id) for request in requests]
        width = max(len(table) for table in tables)
        return torch.tensor([table + [0] * (width - len(table)) for table in tables], dtype=torch.int32)
