"""From a recipe to a `LoadedModel`: find, refuse, build, read, in this order.

Everything that can be refused is refused before the first weight is read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from graphsink.config import Recipe
from graphsink.engine.model.architecture_probe import probe_architecture
from graphsink.engine.model.attention import RUN_IMPLEMENTATION, AttentionBinding, register_run_implementation
from graphsink.engine.model.configuration import load_configuration
from graphsink.engine.model.gguf_conversion import materialize
from graphsink.engine.model.loaded_model import LoadedModel
from graphsink.engine.model.model_source import Progress
from graphsink.engine.model.source import resolve_source
from graphsink.engine.model.tokenizer import eos_token_ids, load_tokenizer
from graphsink.engine.model.weights import build_empty_model, load_weights

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def load_model(
    recipe: Recipe,
    base_directory: Path,
    *,
    available_bytes: Callable[[], int],
    progress: Progress | None = None,
) -> LoadedModel:
    """Load the model that a recipe names.

    Args:
        recipe: the effective recipe.
        base_directory: directory that relative paths of the recipe are relative to.
        available_bytes: memory that may be used, asked just before reading weights.
        progress: called while weights are read.

    Raises:
        RecipeValueError: the recipe names no model, or an unknown sample.
        ModelFileError, TokenizerError: files are missing, damaged or do not match.
        UnsupportedModelError: the model needs something that is not implemented.
        CapacityError: the weights do not fit into memory.
    """
    section = recipe.model
    dtype = DTYPES[section.dtype]
    source = materialize(resolve_source(recipe, base_directory), dtype, progress)
    configuration = load_configuration(source, section)
    config = configuration.config
    architecture = probe_architecture(
        lambda implementation: build_empty_model(
            config, dtype, attn_implementation=implementation, trust_remote_code=section.trust_remote_code
        ),
        config,
    )
    tokenizer = load_tokenizer(source, section, config)
    register_run_implementation()
    weights = load_weights(
        config,
        source,
        dtype,
        attn_implementation=RUN_IMPLEMENTATION,
        seed=section.weights_seed,
        trust_remote_code=section.trust_remote_code,
        available_bytes=available_bytes,
        progress=progress,
    )
    binding = AttentionBinding()
    binding.attach(weights.module)
    context_notes = (architecture.context_note,) if architecture.context_note else ()
    return LoadedModel(
        module=weights.module,
        binding=binding,
        architecture=architecture,
        config=config,
        generation_config=configuration.generation_config,
        tokenizer=tokenizer,
        eos_token_ids=eos_token_ids(config, configuration.generation_config, tokenizer),
        dtype=dtype,
        notes=(
            *source.notes,
            *configuration.notes,
            *(tokenizer.notes if tokenizer else ()),
            *weights.notes,
            *context_notes,
        ),
    )
