"""Weights into memory: from safetensors, or random from a seed. Never a mixture of both.

`transformers` places the tensors (it knows renamed keys and tied weights); this module reads them,
checks that each parameter of the model got one, and turns everything else into an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from graphsink.engine.model.files import first_names
from graphsink.engine.model.model_source import ModelSource, Progress, SourceKind
from graphsink.engine.model.safetensors_reading import FLOAT_TYPES, StoredTensor, read_headers, read_tensor
from graphsink.engine.model.transformers_output import quiet_transformers
from graphsink.errors import CapacityError, InternalError, ModelFileError, UnsupportedModelError

LOADING_OVERHEAD_BYTES = 64 * 2**20
"""Beside the weights: Python objects, small buffers."""

EXPERT_CLASSES = re.compile(r"(Experts|SparseMoe|MoeBlock|MoE)")
LAYER_INDEX = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class LoadedWeights:
    """A model that is ready to be called.

    Attributes:
        module: in ``eval`` mode, on the CPU, no gradients.
        weight_bytes: bytes of its parameters, tied ones counted once.
        notes: what the user should know, one sentence each.
    """

    module: PreTrainedModel
    weight_bytes: int
    notes: tuple[str, ...]


def build_empty_model(
    config: PreTrainedConfig, dtype: torch.dtype, *, attn_implementation: str, trust_remote_code: bool = False
) -> PreTrainedModel:
    """Build the model on the ``meta`` device: every shape, no memory.

    Raises:
        UnsupportedModelError: transformers cannot build it, or it contains experts.
    """
    try:
        with quiet_transformers(), torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                config,
                dtype=dtype,
                attn_implementation=attn_implementation,
                trust_remote_code=trust_remote_code,
            )
    except Exception as error:  # model code raises what it likes
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UnsupportedModelError(
            f"transformers cannot build this '{config.model_type}' model: {reason}",
            where=config.name_or_path or None,
        ) from error
    for name, module in model.named_modules():
        if EXPERT_CLASSES.search(type(module).__name__):
            raise UnsupportedModelError(
                f"'{config.model_type}' is a mixture-of-experts model ({name}: {type(module).__name__}); "
                "mixture of experts is not supported yet",
                where=config.name_or_path or None,
            )
    model.train(False)
    return model


def load_weights(
    config: PreTrainedConfig,
    source: ModelSource,
    dtype: torch.dtype,
    *,
    attn_implementation: str,
    seed: int = 0,
    trust_remote_code: bool = False,
    available_bytes: Callable[[], int] | None = None,
    progress: Progress | None = None,
) -> LoadedWeights:
    """Build the model and fill it.

    Args:
        config: from `load_configuration`.
        source: from `resolve_source` (and `materialize`, for GGUF).
        dtype: ``torch.bfloat16`` or ``torch.float32``, of all floating-point parameters.
        attn_implementation: registered attention function.
        seed: of random weights.
        trust_remote_code: see `build_empty_model`.
        available_bytes: memory that may be used; ``None`` skips the check.
        progress: called while weights are read.

    Raises:
        CapacityError: the weights do not fit; nothing was read.
        ModelFileError: files missing or damaged, tensors missing, wrong shapes.
        UnsupportedModelError: see `build_empty_model`.
    """
    empty = build_empty_model(
        config, dtype, attn_implementation=attn_implementation, trust_remote_code=trust_remote_code
    )
    needed = parameter_bytes(empty)
    _check_memory(needed, available_bytes)
    if source.kind is SourceKind.RANDOM:
        module = _random_module(empty, config, dtype, seed)
        notes = [f"weights are random (seed {seed}); the text will not make sense"]
        if progress is not None:
            progress(1.0)
    else:
        module, notes = _stored_module(empty, config, source, dtype, progress)
    module.requires_grad_(False)
    module.train(False)
    module.config.name_or_path = config.name_or_path
    _check_materialized(module)
    return LoadedWeights(module, parameter_bytes(module), tuple(notes))


def parameter_bytes(module: nn.Module) -> int:
    """Bytes of all parameters, tied ones once."""
    return sum(parameter.numel() * parameter.element_size() for parameter in module.parameters())


def _check_memory(needed: int, available_bytes: Callable[[], int] | None) -> None:
    if available_bytes is None:
        return
    available = available_bytes()
    if needed + LOADING_OVERHEAD_BYTES > available:
        raise CapacityError(
            "the weights do not fit into memory",
            needed=needed + LOADING_OVERHEAD_BYTES,
            available=available,
            hint="use a smaller model, dtype: bfloat16, or fewer layers (custom_params.num_hidden_layers)",
        )


def _random_module(
    empty: PreTrainedModel, config: PreTrainedConfig, dtype: torch.dtype, seed: int
) -> PreTrainedModel:
    """Fill the model by its own initialisation, straight in ``dtype``.

    A checkpoint without tensors makes transformers initialise every parameter in place. Building the
    model on the CPU instead would draw each weight twice and hold the head beside the embedding it is
    tied to. The caller's random state is left as it was; the draw does not depend on threads.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module, _ = _place(empty, config, dtype, {})
    return module


def _stored_module(
    empty: PreTrainedModel,
    config: PreTrainedConfig,
    source: ModelSource,
    dtype: torch.dtype,
    progress: Progress | None,
) -> tuple[PreTrainedModel, list[str]]:
    """Read the source's files into the model; what does not fit exactly is an error or a note."""
    if source.directory is None:
        raise InternalError(f"the {source.kind} source '{source.written}' was not materialized first")
    stored = read_headers(source.directory)
    layers = int(config.num_hidden_layers)
    wanted = {name: tensor for name, tensor in stored.items() if not _beyond_last_layer(name, layers)}
    _check_shapes(empty, wanted)
    module, information = _place(empty, config, dtype, _read_all(wanted, dtype, progress))
    _check_information(information, source.directory)
    notes = []
    if len(wanted) < len(stored):
        notes.append(f"{len(stored) - len(wanted)} tensors of layers from {layers} on were not read")
    if information["unexpected_keys"]:
        names = first_names(information["unexpected_keys"])
        count = len(information["unexpected_keys"])
        notes.append(f"{count} tensors in the files are not part of the model: {names}")
    return module, notes


def _place(
    empty: PreTrainedModel, config: PreTrainedConfig, dtype: torch.dtype, state: dict[str, torch.Tensor]
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Let transformers build the model around ``state``; it takes the tensors as they are, without a copy.

    Returns:
        The model, and what transformers reports: missing, unexpected and mismatched keys.
    """
    try:
        with quiet_transformers():
            placed: Any = type(empty).from_pretrained(
                None,
                config=config,
                state_dict=state,
                dtype=dtype,
                attn_implementation=empty.config._attn_implementation,
                local_files_only=True,
                ignore_mismatched_sizes=True,  # to get them all by name; they are errors in the caller
                output_loading_info=True,
            )
    except Exception as error:  # model code raises what it likes
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UnsupportedModelError(
            f"transformers cannot fill this '{config.model_type}' model: {reason}",
            where=config.name_or_path or None,
        ) from error
    module, information = placed
    return module, information


def _beyond_last_layer(name: str, layers: int) -> bool:
    """Whether a tensor belongs to a layer that ``num_hidden_layers`` cut off."""
    match = LAYER_INDEX.search(name)
    return match is not None and int(match.group(1)) >= layers


def _check_shapes(empty: PreTrainedModel, stored: dict[str, StoredTensor]) -> None:
    """Compare what can be compared by name before gigabytes are read."""
    wrong = [
        f"'{name}' is {list(stored[name].shape)}, the model needs {list(parameter.shape)}"
        for name, parameter in empty.state_dict().items()
        if name in stored and stored[name].shape != tuple(parameter.shape)
    ]
    if wrong:
        raise _wrong_shapes(wrong, str(next(iter(stored.values())).file.parent))
    for name, parameter in empty.named_parameters():
        if name in stored and parameter.is_floating_point() and stored[name].type_name not in FLOAT_TYPES:
            raise ModelFileError(
                f"the weight '{name}' has the type {stored[name].type_name}, not a floating-point type",
                where=str(stored[name].file),
                hint="use the float16, bfloat16 or float32 version of the checkpoint",
            )


def _wrong_shapes(wrong: list[str], where: str) -> ModelFileError:
    more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
    return ModelFileError(
        f"{len(wrong)} tensors have the wrong shape: {'; '.join(wrong[:3])}{more}",
        where=where,
        hint="config.json and the weights do not belong together",
    )


def _check_information(information: dict[str, Any], directory: Path) -> None:
    """Turn what transformers only reports into errors."""
    wrong = [
        f"'{name}' is {list(found)}, the model needs {list(needed)}"
        for name, found, needed in sorted(information["mismatched_keys"])
    ]
    if wrong:
        raise _wrong_shapes(wrong, str(directory))
    missing = information["missing_keys"]
    if missing:
        raise ModelFileError(
            f"{len(missing)} tensors that the model needs are not in its files: {first_names(missing)}",
            where=str(directory),
            hint="download the model again; config.json and the weights may not belong together",
        )
    if information.get("error_msgs"):
        raise ModelFileError(
            f"transformers could not place the weights: {information['error_msgs']}", where=str(directory)
        )


def _read_all(
    tensors: dict[str, StoredTensor], dtype: torch.dtype, progress: Progress | None
) -> dict[str, torch.Tensor]:
    total = sum(tensor.size for tensor in tensors.values())
    done = 0
    state = {}
    with ExitStack() as stack:
        files: dict[Path, BinaryIO] = {}
        for name, tensor in tensors.items():
            if tensor.file not in files:
                files[tensor.file] = stack.enter_context(tensor.file.open("rb", buffering=0))
            state[name] = read_tensor(files[tensor.file], tensor, dtype)
            done += tensor.size
            if progress is not None:
                progress(done / total)
    return state


def _check_materialized(module: nn.Module) -> None:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.device.type != "cpu" or tensor.is_inference():
            inference = tensor.is_inference()
            raise InternalError(f"after loading, '{name}' is on {tensor.device} (inference: {inference})")
