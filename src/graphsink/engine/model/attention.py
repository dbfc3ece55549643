"""Where transformers' models meet the paged attention operator.

``attention_forward`` is registered at the library's extension point (``AttentionInterface``). The state
of a step (block tables, lengths) reaches it through an ``AttentionBinding`` that every attention module
carries. A keyword argument of the forward would be simpler, but about one family in ten does not pass
unknown arguments down to its attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn
from transformers import AttentionInterface

from graphsink.errors import InternalError
from graphsink.torch_bridge.paged_attention import paged_attention

RUN_IMPLEMENTATION = "graphsink"
"""``attn_implementation`` of a model that runs. No mask function goes with it: masks are not built."""

BINDING_ATTRIBUTE = "graphsink_binding"
"""Attribute of the model's modules that holds its ``AttentionBinding``."""


@dataclass(frozen=True, slots=True)
class AttentionLayerSpec:
    """What one attention layer computes, as the probe found it.

    Attributes:
        num_query_heads, num_kv_heads: heads; the latter divides the former.
        key_head_size, value_head_size: elements per head.
        scale: factor of the scores.
        window: positions a query sees, itself included; 0 is all.
        softcap: bound of the scores; 0.0 is none.
    """

    num_query_heads: int
    num_kv_heads: int
    key_head_size: int
    value_head_size: int
    scale: float
    window: int
    softcap: float


class AttentionContext(Protocol):
    """What the attention function calls: the probe's recorder, or a step's paged KV."""

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        arguments: dict[str, Any],
    ) -> Tensor:
        """Attention of query [1, H, T, Dk] over key [1, G, T, Dk], value [1, G, T, Dv]: [1, T, H, Dv]."""


@dataclass(frozen=True, slots=True)
class PagedAttentionContext:
    """The paged KV of one forward; shapes as in `graphsink.torch_bridge.paged_attention`."""

    layers: tuple[AttentionLayerSpec, ...]
    key_caches: tuple[Tensor, ...]
    value_caches: tuple[Tensor, ...]
    slot_mapping: Tensor
    block_table: Tensor
    query_start: Tensor
    seq_lens: Tensor

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,  # noqa: ARG002 -- the probe recognised it
        arguments: dict[str, Any],  # noqa: ARG002 -- the probe checked them
    ) -> Tensor:
        """See `AttentionContext.attend`."""
        layer: int = module.layer_idx  # type: ignore[assignment]
        spec = self.layers[layer]
        output: Tensor = paged_attention(
            query[0].transpose(0, 1),
            key[0].transpose(0, 1),
            value[0].transpose(0, 1),
            self.key_caches[layer],
            self.value_caches[layer],
            self.slot_mapping,
            self.block_table,
            self.query_start,
            self.seq_lens,
            scale=spec.scale,
            window=spec.window,
            softcap=spec.softcap,
        )
        return output.unsqueeze(0)


class AttentionBinding:
    """Carries the context of the forward that is running from the executor to the attention modules."""

    __slots__ = ("_context",)

    def __init__(self) -> None:
        self._context: AttentionContext | None = None

    def attach(self, model: nn.Module) -> None:
        """Let every module that has a layer index find this binding."""
        for module in model.modules():
            if hasattr(module, "layer_idx"):
                module.__dict__[BINDING_ATTRIBUTE] = self

    @contextmanager
    def active(self, context: AttentionContext) -> Iterator[None]:
        """Use ``context`` for the forward inside the ``with`` block."""
        self._context = context
        try:
            yield
        finally:
            self._context = None

    @property
    def context(self) -> AttentionContext:
        """The context of the running forward; raises `InternalError` outside of one."""
        if self._context is None:
            raise InternalError("attention was called outside of a graphsink forward")
        return self._context


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **arguments: Any,
) -> tuple[Tensor, None]:
    """The attention function that transformers calls; hands everything to the context."""
    binding: AttentionBinding | None = module.__dict__.get(BINDING_ATTRIBUTE)
    if binding is None:
        raise InternalError(f"{type(module).__name__} has no layer index, so no KV cache can be found for it")
    return binding.context.attend(module, query, key, value, attention_mask, arguments), None


def register_run_implementation() -> None:
    """Make ``attn_implementation="graphsink"`` known to transformers. Idempotent."""
    AttentionInterface.register(RUN_IMPLEMENTATION, attention_forward)
