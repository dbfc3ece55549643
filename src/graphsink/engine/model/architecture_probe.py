"""Find out what a model asks of its attention before any weight is read, or refuse it by name.

The model is built on the ``meta`` device and called once on a few tokens. The probe's attention
function records what every layer passes; its mask function evaluates the mask that the model built at
sample positions and recognises it. Anything that the paged attention operator cannot express is
refused here: to ignore it would give plausible, wrong text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig

from graphsink.engine.model.attention import AttentionBinding, AttentionLayerSpec, attention_forward
from graphsink.errors import GraphsinkError, UnsupportedModelError

PROBE_IMPLEMENTATION = "graphsink_probe"
PROBE_TOKENS = 5
LARGEST_HORIZON = 262_144
"""Masks are evaluated up to this position (or the model's context, if that is shorter)."""

IGNORED_ARGUMENTS = frozenset(
    {
        "position_ids",  # already applied by the model (rotary or learned positions)
        "cache_position",
        "use_cache",
        "output_attentions",
        "output_hidden_states",
        "return_dict",
        "sliding_window",  # the mask says it; see `recognise_mask`
        "softcap",  # read below
        "scaling",  # read below
        "dropout",  # checked below
        "is_causal",  # the mask says it
    }
)
"""Keyword arguments of attention calls that the specification covers or that change no number."""

SEQUENCE_DEPENDENT_ROPE = frozenset({"longrope"})
"""Rotary embeddings whose frequencies change once a sequence outgrows the original context."""


@dataclass(frozen=True, slots=True)
class ArchitectureSpec:
    """What the engine needs to know of a model.

    Attributes:
        layers: one per attention layer, by ``layer_idx``.
        vocab_size: columns of the logits.
        context_length: longest sequence, or ``None`` if the configuration names no limit.
        context_note: why ``context_length`` is shorter than the configuration's, if it is.
    """

    layers: tuple[AttentionLayerSpec, ...]
    vocab_size: int
    context_length: int | None
    context_note: str | None = None


@dataclass(frozen=True, slots=True)
class MaskPattern:
    """A mask that was recognised: causal, over the last ``window`` positions (0: all)."""

    window: int


class _RefusedError(Exception):
    """Raised inside the model's forward to leave it; turned into `UnsupportedModelError` outside."""


@dataclass(slots=True)
class _Recorder:
    """The probe's `AttentionContext`."""

    calls: list[tuple[int, AttentionLayerSpec]] = field(default_factory=list)

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        arguments: dict[str, Any],
    ) -> Tensor:
        """Record the call; return an output of the right shape."""
        name = type(module).__name__
        layer = getattr(module, "layer_idx", None)
        if not isinstance(layer, int):
            raise _RefusedError(f"{name} has no layer index")
        for argument, given in arguments.items():
            if argument not in IGNORED_ARGUMENTS and given is not None and given is not False:
                raise _RefusedError(f"{name} passes '{argument}' to attention, which is not implemented")
        if arguments.get("dropout"):
            raise _RefusedError(f"{name} applies dropout in inference")
        pattern = getattr(attention_mask, "graphsink_pattern", None)
        if not isinstance(pattern, MaskPattern):
            raise _RefusedError(
                f"{name} uses an attention mask that was not built by the library's mask functions"
            )
        scale = arguments.get("scaling")
        softcap = arguments.get("softcap")
        spec = AttentionLayerSpec(
            num_query_heads=query.shape[1],
            num_kv_heads=key.shape[1],
            key_head_size=key.shape[3],
            value_head_size=value.shape[3],
            scale=float(scale) if scale is not None else query.shape[3] ** -0.5,
            window=pattern.window,
            softcap=float(softcap) if softcap is not None else 0.0,
        )
        if spec.num_query_heads % spec.num_kv_heads:
            raise _RefusedError(
                f"{name}: {spec.num_kv_heads} KV heads do not divide {spec.num_query_heads} heads"
            )
        self.calls.append((layer, spec))
        return query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])


def probe_architecture(
    build_on_meta: Callable[[str], nn.Module], config: PreTrainedConfig
) -> ArchitectureSpec:
    """Build the model on ``meta`` with the probing attention, call it once, and describe it.

    Args:
        build_on_meta: builds the module on the ``meta`` device with the given ``attn_implementation``.
        config: the model's configuration.

    Raises:
        UnsupportedModelError: naming the model type and what it needs.
    """
    if any(rope.get("rope_type") == "dynamic" for rope in _rope_parameters(config)):
        raise _refusal(config, "dynamic rotary scaling depends on what is packed beside a sequence")
    context_length, note = _context_length(config)
    _register_probe()
    recorder = _Recorder()
    try:
        model = build_on_meta(PROBE_IMPLEMENTATION)
        with torch.inference_mode():
            logits = _call_on_meta(model.eval(), recorder)
    except GraphsinkError:
        raise
    except _RefusedError as refusal:
        raise _refusal(config, str(refusal)) from None
    except KeyError as error:
        detail = "its attention cannot be replaced through the library's attention interface"
        raise _refusal(config, detail) from error
    except Exception as error:
        # Whatever the model raises means that it does not accept the packed, cache-free call.
        detail = f"it does not accept a packed forward ({type(error).__name__}: {_first_line(error)})"
        raise _refusal(config, detail) from error
    return ArchitectureSpec(
        layers=_layers_in_order(recorder, config),
        vocab_size=logits.shape[-1],
        context_length=context_length,
        context_note=note,
    )


def recognise_mask(mask_function: Callable[..., Tensor], horizon: int) -> MaskPattern:
    """Evaluate an index-based mask function and recognise causal and causal-window masks.

    Args:
        mask_function: transformers' ``(batch, head, query, key) -> bool`` on index tensors.
        horizon: positions to consider; queries are sampled below it, keys are all of them.

    Raises:
        _RefusedError: the mask is neither.
    """
    queries = sorted(
        {q for q in (0, 1, 2, 7, 63, 511, horizon // 2, horizon - 2, horizon - 1) if 0 <= q < horizon}
    )
    query = torch.tensor(queries).view(1, 1, -1, 1)
    keys = torch.arange(horizon).view(1, 1, 1, -1)
    zero = torch.zeros(1, 1, 1, 1, dtype=torch.int64)
    try:
        allowed = torch.as_tensor(mask_function(zero, zero, query, keys), dtype=torch.bool)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        raise _RefusedError(f"its attention mask could not be evaluated ({_first_line(error)})") from error
    allowed = allowed.expand(1, 1, len(queries), horizon)[0, 0]
    seen = allowed.sum(dim=1)
    window = int(seen.max())
    if window == 0:
        raise _RefusedError("its attention mask lets no position through")
    for row, position in enumerate(queries):
        expected = torch.zeros(horizon, dtype=torch.bool)
        expected[max(0, position + 1 - window) : position + 1] = True
        if not torch.equal(allowed[row], expected):
            raise _RefusedError("its attention mask is neither causal nor a causal sliding window")
    return MaskPattern(window=0 if window == horizon else window)


def _mask_forward(
    *,
    q_length: int,
    kv_length: int,
    mask_function: Callable[..., Tensor],
    config: PreTrainedConfig,
    **_: Any,
) -> Tensor:
    """The mask function that transformers calls: an empty mask that carries what was recognised."""
    horizon = min(_context_length(config)[0] or LARGEST_HORIZON, LARGEST_HORIZON)
    mask = torch.empty(1, 1, q_length, kv_length, dtype=torch.bool, device="meta")
    mask.graphsink_pattern = recognise_mask(mask_function, horizon)  # type: ignore[attr-defined]
    return mask


def _register_probe() -> None:
    """Make the probing pair known to transformers. Idempotent."""
    AttentionInterface.register(PROBE_IMPLEMENTATION, attention_forward)
    AttentionMaskInterface.register(PROBE_IMPLEMENTATION, _mask_forward)


def _call_on_meta(model: nn.Module, recorder: _Recorder) -> Tensor:
    """One forward in the form that the executor uses; the mask of ones keeps `meta` free of data checks."""
    ones = torch.ones(1, PROBE_TOKENS, dtype=torch.int64, device="meta")
    binding = AttentionBinding()
    binding.attach(model)
    with binding.active(recorder):
        output = model(
            input_ids=ones,
            position_ids=ones,
            attention_mask=ones,
            use_cache=False,
            logits_to_keep=torch.zeros(2, dtype=torch.int64, device="meta"),
        )
    logits: Tensor = output.logits
    if logits.shape[:2] != (1, 2):
        raise _RefusedError(f"it ignores 'logits_to_keep' (logits have shape {list(logits.shape)})")
    return logits


def _layers_in_order(recorder: _Recorder, config: PreTrainedConfig) -> tuple[AttentionLayerSpec, ...]:
    indices = [index for index, _ in recorder.calls]
    expected = int(getattr(config, "num_hidden_layers", len(indices)))
    if sorted(indices) != list(range(expected)):
        raise _refusal(
            config,
            f"{len(indices)} of its {expected} layers are attention layers of the supported kind "
            "(recurrent, convolutional and ALiBi layers are not implemented)",
        )
    return tuple(spec for _, spec in sorted(recorder.calls, key=lambda call: call[0]))


def _context_length(config: PreTrainedConfig) -> tuple[int | None, str | None]:
    """Longest sequence that the model computes the same way whatever is packed beside it."""
    declared = getattr(config, "max_position_embeddings", None)
    if not isinstance(declared, int):
        return None, None
    for rope in _rope_parameters(config):
        original = rope.get("original_max_position_embeddings") or getattr(
            config, "original_max_position_embeddings", None
        )
        if (
            rope.get("rope_type") in SEQUENCE_DEPENDENT_ROPE
            and isinstance(original, int)
            and original < declared
        ):
            reason = f"'{rope['rope_type']}' rotary embeddings change beyond {original} positions"
            return original, f"context limited to {original} of {declared}: {reason}"
    return declared, None


def _rope_parameters(config: PreTrainedConfig) -> list[dict[str, Any]]:
    """The rotary settings: one dictionary, or one per layer type."""
    parameters = getattr(config, "rope_parameters", None) or {}
    nested = [entry for entry in parameters.values() if isinstance(entry, dict)]
    return nested or [parameters]


def _refusal(config: PreTrainedConfig, detail: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"model type '{config.model_type}' is not supported: {detail}",
        where=getattr(config, "name_or_path", None) or None,
        hint="docs/models.md lists what works; exact support needs every attention feature to be implemented",
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
