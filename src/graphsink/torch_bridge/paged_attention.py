"""The operator ``graphsink::paged_attention``: schema, fake kernel and a CPU kernel in torch ops.

The operator stores the keys and values of this step's tokens in the paged KV pool and returns the
attention of the packed queries over everything their sequences have stored so far. Graph modes trace
through it by its schema; the CPU kernel below is the reference that they are judged against.

Shapes (T tokens of B sequences, packed one after another; N blocks of S slots):

===============  =====================  ==========================================================
query            [T, H, Dk]             H query heads
key, value       [T, G, Dk], [T, G, Dv] G key-value heads, G divides H (grouped-query attention)
key_cache        [N, S, G, Dk]          written at ``slot_mapping``
value_cache      [N, S, G, Dv]          written at ``slot_mapping``
slot_mapping     int64 [T]              block * S + position % S of each token; never negative
block_table      int32 [B, M]           blocks of each sequence in order, padded with the null block 0
query_start      int32 [B + 1]          first token of each sequence in the packing; ends with T
seq_lens         int32 [B]              tokens of each sequence in the pool, this step included
===============  =====================  ==========================================================

Every sequence has at least one query token. Token i of a sequence with n query tokens stands at
position ``seq_lens - n + i`` and attends to positions up to its own; with ``window > 0`` only to the
last ``window`` of these. ``softcap > 0`` bounds the scores: ``softcap * tanh(score / softcap)``.
Returns [T, H, Dv] in the query's dtype.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

NAMESPACE = "graphsink"
SCHEMA = (
    "paged_attention(Tensor query, Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, "
    "Tensor slot_mapping, Tensor block_table, Tensor query_start, Tensor seq_lens, *, "
    "float scale, int window=0, float softcap=0.0) -> Tensor"
)

_LIBRARY = torch.library.Library(NAMESPACE, "DEF")
_LIBRARY.define(SCHEMA, tags=[torch.Tag.needs_fixed_stride_order])


def _paged_attention_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    block_table: Tensor,
    query_start: Tensor,
    seq_lens: Tensor,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> Tensor:
    """Reference kernel; see the module docstring."""
    flat_keys, flat_values = key_cache.flatten(0, 1), value_cache.flatten(0, 1)
    flat_keys.index_copy_(0, slot_mapping, key)
    flat_values.index_copy_(0, slot_mapping, value)
    output = query.new_empty(query.shape[0], query.shape[1], value.shape[2])
    block_size = key_cache.shape[1]
    starts = query_start.tolist()
    for row, (seq_len, blocks) in enumerate(zip(seq_lens.tolist(), block_table.tolist(), strict=True)):
        begin, end = starts[row], starts[row + 1]
        if seq_len == end - begin:
            # The whole sequence is in this step: its keys and values need not be read back.
            first, keys, values = 0, key[begin:end], value[begin:end]
        else:
            # Positions before the window of the first query are never looked at.
            first = max(0, seq_len - (end - begin) + 1 - window) if window else 0
            where = _stored_slots(blocks, first, seq_len, block_size)
            keys, values = flat_keys[where], flat_values[where]
        output[begin:end] = _attend(
            query[begin:end], keys, values, seq_len - first, scale=scale, window=window, softcap=softcap
        )
    return output


def _stored_slots(blocks: list[int], first: int, last: int, block_size: int) -> slice | Tensor:
    """Slots of positions ``first`` to ``last``: a slice (no copy) if the blocks lie one after another."""
    first_block = first // block_size
    wanted = blocks[first_block : -(-last // block_size)]
    offset, length = first - first_block * block_size, last - first
    if wanted == list(range(wanted[0], wanted[0] + len(wanted))):
        start = wanted[0] * block_size + offset
        return slice(start, start + length)
    slots = torch.tensor(wanted).unsqueeze(1) * block_size + torch.arange(block_size)
    return slots.flatten()[offset : offset + length]


def _attend(
    query: Tensor, keys: Tensor, values: Tensor, kv_len: int, *, scale: float, window: int, softcap: float
) -> Tensor:
    """Causal attention of the last ``n`` of ``kv_len`` positions: query [n, H, Dk] -> [n, H, Dv]."""
    tokens = query.shape[0]
    q = query.transpose(0, 1).unsqueeze(0)
    k = keys.transpose(0, 1).unsqueeze(0)
    v = values.transpose(0, 1).unsqueeze(0)
    windowed = 0 < window < kv_len
    if softcap:
        mask = _causal_mask(tokens, kv_len, window)
        return _attend_softcapped(q, k, v, mask, scale, softcap)[0].transpose(0, 1)
    if tokens == 1 and not windowed:
        attended = F.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=True)
    elif tokens == kv_len and not windowed:
        attended = F.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=True, is_causal=True)
    else:
        mask = _causal_mask(tokens, kv_len, window)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
    return attended[0].transpose(0, 1)


def _causal_mask(tokens: int, kv_len: int, window: int) -> Tensor:
    """Bool [tokens, kv_len]: what the last ``tokens`` of ``kv_len`` positions may look at."""
    distance = torch.arange(kv_len - tokens, kv_len).unsqueeze(1) - torch.arange(kv_len).unsqueeze(0)
    allowed = distance >= 0
    return allowed & (distance < window) if window else allowed


def _attend_softcapped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, softcap: float) -> Tensor:
    """Soft-capped attention, rounding where transformers' eager Gemma 2 rounds: [1, H, n, Dv]."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    scores = torch.matmul(q, k.transpose(2, 3)) * scale
    scores = torch.tanh(scores / softcap) * softcap
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(weights, v)


def _paged_attention_fake(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,  # noqa: ARG001 -- the signature is the schema's
    value_cache: Tensor,  # noqa: ARG001
    slot_mapping: Tensor,  # noqa: ARG001
    block_table: Tensor,  # noqa: ARG001
    query_start: Tensor,
    seq_lens: Tensor,
    **_: float,
) -> Tensor:
    """Shape and dtype of the result, for tracing; checks what the CPU kernel takes for granted."""
    torch._check(query.dim() == 3 and key.dim() == 3 and value.dim() == 3, lambda: "expected packed tokens")
    torch._check(query.shape[0] == key.shape[0], lambda: "query and key differ in their number of tokens")
    torch._check(query.shape[1] % key.shape[1] == 0, lambda: "key-value heads do not divide query heads")
    torch._check(query_start.shape[0] == seq_lens.shape[0] + 1, lambda: "query_start must have B + 1 entries")
    return query.new_empty(query.shape[0], query.shape[1], value.shape[2])


_LIBRARY.impl("paged_attention", _paged_attention_cpu, "CPU")
torch.library.register_fake(f"{NAMESPACE}::paged_attention", _paged_attention_fake, lib=_LIBRARY)

paged_attention = torch.ops.graphsink.paged_attention.default
"""The operator, callable from Python. See the module docstring for shapes."""
