"""A model that is ready to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers import GenerationConfig, PreTrainedConfig

from graphsink.engine.model.architecture_probe import ArchitectureSpec
from graphsink.engine.model.attention import AttentionBinding

if TYPE_CHECKING:
    from graphsink.engine.model.tokenizer import TokenizerHandle


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """An unmodified transformers module with its weights, and what graphsink found out about it.

    Attributes:
        module: evaluation mode, ``attn_implementation="graphsink"``, weights on the CPU.
        binding: attached to ``module``; carries the KV cache of a forward to its attention.
        architecture: attention layers, vocabulary, context length.
        config, generation_config: as transformers read them.
        tokenizer: ``None`` if the model has none.
        eos_token_ids: tokens that end a request, from all places that name them.
        dtype: of weights and activations.
        notes: what the user should know (ignored tensors, remote code, shortened context).
    """

    module: nn.Module
    binding: AttentionBinding
    architecture: ArchitectureSpec
    config: PreTrainedConfig
    generation_config: GenerationConfig | None
    tokenizer: TokenizerHandle | None
    eos_token_ids: frozenset[int]
    dtype: torch.dtype
    notes: tuple[str, ...] = ()

    @property
    def weight_bytes(self) -> int:
        """Bytes of all parameters; tied ones count once."""
        return sum(parameter.nbytes for parameter in self.module.parameters())

    @property
    def weight_bytes_per_decode_step(self) -> int:
        """Bytes of weights that a decode step reads in full.

        An input embedding that is not also the output head is left out: a step reads a few rows of it.
        """
        embedding = self.module.get_input_embeddings().weight  # type: ignore[operator]
        head = self.module.get_output_embeddings()  # type: ignore[operator]
        tied = head is not None and head.weight is embedding
        return self.weight_bytes - (0 if tied else embedding.nbytes)
