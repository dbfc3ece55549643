"""From logits to tokens.

Runs on numpy: its operations stay on the calling thread, so sampling does not wake the worker pool of
PyTorch between two forwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from graphsink.config import SamplingParams
from graphsink.engine.request import Request, TokenLogprobs
from graphsink.errors import InternalError, NonFiniteLogitsError

_FloatRow = NDArray[np.float32]
_IdRow = NDArray[np.int64]

_HEAD_SIZE = 512
"""Tokens that are looked at first: sorting the whole vocabulary for top-p takes milliseconds."""
_MAX_TEMPERATURE = 1e30
"""Hotter is uniform already; keeps -inf / temperature from becoming NaN in float32."""

_BFLOAT16_INFINITY = 0x7F80
_BFLOAT16_MINUS_INFINITY = 0xFF80
"""Bit patterns above these, in their half of the range, are NaN."""


@dataclass(frozen=True, slots=True)
class SampledToken:
    """The token of one request; ``logprobs`` is set when the request asked for them."""

    token_id: int
    logprobs: TokenLogprobs | None = None


SampleResult = SampledToken | NonFiniteLogitsError
"""Per row: a token, or the error with which this request alone ends."""


class Sampler:
    """Chooses one token per request.

    Greedy requests take the largest float32 logit, the lowest id on ties. The others divide by the
    temperature, keep the ``top_k`` largest, then the smallest set of these whose probability reaches
    ``top_p``, and draw by an exponential race: the token with the largest weight / Exp(1) noise. The noise
    comes from a generator of the request alone, so neighbours in the batch do not change its tokens.

    Args:
        vocab_size: width of the logits.
    """

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._generators: dict[int, torch.Generator] = {}

    def sample(self, logits: torch.Tensor, requests: Sequence[Request]) -> list[SampleResult]:
        """Choose the next token of each request.

        Args:
            logits: ``[len(requests), vocab_size]``, any float dtype. ``-inf`` masks a token.
            requests: one per row.

        Returns:
            One entry per row. A row with NaN, with ``+inf``, or without any finite value gives a
            `NonFiniteLogitsError` (not raised), and the other rows their tokens.

        Raises:
            InternalError: the shape does not match.
        """
        if tuple(logits.shape) != (len(requests), self._vocab_size):
            raise InternalError(
                f"logits have shape {list(logits.shape)}, expected {[len(requests), self._vocab_size]}"
            )
        if not requests:
            return []
        if all(request.sampling.is_greedy and not request.sampling.logprobs for request in requests):
            tokens = _positive_bfloat16_peaks(logits)
            if tokens is not None:
                return [SampledToken(token) for token in tokens]
        rows = _float32_rows(logits)
        best = rows.argmax(axis=1)
        # numpy's argmax stops at the first NaN, so a finite peak proves a row without NaN and +inf.
        peaks_finite = np.isfinite(rows[np.arange(len(requests)), best]).tolist()
        return [
            self._sample_row(row, token, request) if finite else _non_finite_error(row, request)
            for row, token, finite, request in zip(rows, best.tolist(), peaks_finite, requests, strict=True)
        ]

    def forget(self, request_id: int) -> None:
        """Drop the generator of a request that has ended; unknown ids are fine."""
        self._generators.pop(request_id, None)

    def _sample_row(self, row: _FloatRow, best: int, request: Request) -> SampledToken:
        """Sample one row ``[V]`` without NaN and +inf, whose largest logit is at ``best``."""
        sampling = request.sampling
        token = best
        if not sampling.is_greedy:
            with np.errstate(over="ignore"):
                scaled = (row - row[best]) / np.float32(min(sampling.temperature, _MAX_TEMPERATURE))
            token = _draw(scaled, sampling, self._generator(request))
        return SampledToken(token, _logprobs(row, token, sampling.logprobs) if sampling.logprobs else None)

    def _generator(self, request: Request) -> torch.Generator:
        """The request's own generator, made when it is first needed."""
        generator = self._generators.get(request.request_id)
        if generator is None:
            generator = self._generators[request.request_id] = torch.Generator()
            if request.sampling.seed is None:
                generator.seed()
            else:
                generator.manual_seed(request.sampling.seed)
        return generator


def _float32_rows(logits: torch.Tensor) -> NDArray[np.float32]:
    """``[B, V]`` of any float dtype as float32; shares memory if it is float32 on the CPU already."""
    logits = logits.detach().cpu()
    if logits.dtype is not torch.bfloat16:
        return logits.numpy().astype(np.float32, copy=False)
    # A bfloat16 is the upper half of a float32. (A cast by PyTorch would start its worker pool.)
    bits = logits.view(torch.int16).numpy().view(np.uint16).astype(np.uint32)
    return np.left_shift(bits, 16, out=bits).view(np.float32)


def _positive_bfloat16_peaks(logits: torch.Tensor) -> list[int] | None:
    """Arg-max of each row of bfloat16 logits ``[B, V]``, or ``None`` where only float32 comparison can tell.

    Positive bfloat16 numbers compare as their bit patterns do, and above every negative number, so the
    common case needs no conversion (which would touch three times as much memory). ``None`` if a row has a
    peak that is not positive and finite, or a NaN.
    """
    if logits.dtype is not torch.bfloat16 or logits.device.type != "cpu" or not logits.is_contiguous():
        return None
    tokens = []
    for row in logits.detach().view(torch.int16).numpy():
        token = int(row.argmax())
        # The largest of the negative patterns, unless there is none; then a positive one, which is smaller.
        if not 0 < row[token] < _BFLOAT16_INFINITY or row.view(np.uint16).max() > _BFLOAT16_MINUS_INFINITY:
            return None
        tokens.append(token)
    return tokens


def _draw(scaled: _FloatRow, sampling: SamplingParams, generator: torch.Generator) -> int:
    """Draw from ``exp(scaled)`` ``[V]`` (largest value 0) after top-k and top-p."""
    weights: _FloatRow = np.exp(scaled)
    if sampling.top_k:
        kept = _largest(scaled, sampling.top_k)
        total = float(weights[kept].sum(dtype=np.float64))
    else:
        kept = _largest(scaled, _HEAD_SIZE)
        total = float(weights.sum(dtype=np.float64))
    if sampling.top_p < 1.0:
        exceeds_head = not sampling.top_k and len(kept) < len(scaled)
        kept = _nucleus(scaled, weights, kept, sampling.top_p * total, exceeds_head)
        return int(kept[_race(weights[kept], generator)])
    if sampling.top_k:
        return int(kept[_race(weights[kept], generator)])
    return _draw_untruncated(weights, kept, generator)


def _nucleus(scaled: _FloatRow, weights: _FloatRow, head: _IdRow, mass: float, exceeds_head: bool) -> _IdRow:
    """The smallest set of the best tokens whose weights reach ``mass``; at least one token.

    ``head`` holds the best tokens in order. If it falls short, the whole vocabulary is searched, unless
    ``head`` is all there is to choose from: then it falls short by rounding only.
    """
    cumulated = np.cumsum(weights[head], dtype=np.float64)
    if cumulated[-1] >= mass or not exceeds_head:
        return head[: int(np.searchsorted(cumulated, mass, side="left")) + 1]
    # Sorting values is many times faster than sorting ids by value, and a race needs no order.
    descending = -np.sort(-scaled)
    cumulated = np.cumsum(np.exp(descending), dtype=np.float64)
    count = min(int(np.searchsorted(cumulated, mass, side="left")) + 1, len(scaled))
    smallest = descending[count - 1]
    better = np.flatnonzero(scaled > smallest)
    return np.concatenate((better, np.flatnonzero(scaled == smallest)[: count - len(better)]))


def _draw_untruncated(weights: _FloatRow, head: _IdRow, generator: torch.Generator) -> int:
    """Draw from the whole vocabulary.

    The tokens outside of ``head`` first race as one runner with their joint weight. Only if that wins, one
    of them is drawn. The distribution is that of a race over everything, without its noise for each token.
    """
    head_weights = weights[head].astype(np.float64)
    outside = weights.copy()
    outside[head] = 0.0
    joint = outside.sum(dtype=np.float64)
    winner = _race(np.append(head_weights, joint), generator)
    return int(head[winner]) if winner < len(head) else _race(outside, generator)


def _race(weights: NDArray[np.floating], generator: torch.Generator) -> int:
    """Index drawn with probability proportional to ``weights``: the largest weight / Exp(1) wins."""
    noise = torch.empty(len(weights), dtype=torch.float64).exponential_(generator=generator).numpy()
    return int(np.argmax(weights / np.maximum(noise, np.finfo(np.float64).tiny)))


def _largest(values: _FloatRow, count: int) -> _IdRow:
    """Indices of the ``count`` largest values, best first, the lowest index first on ties."""
    if count >= len(values):
        return np.argsort(-values, kind="stable")
    threshold = np.partition(values, len(values) - count)[len(values) - count]
    candidates = np.flatnonzero(values >= threshold)
    return candidates[np.argsort(-values[candidates], kind="stable")[:count]]


def _logprobs(row: _FloatRow, token: int, count: int) -> TokenLogprobs:
    """Log-probabilities under the model's own distribution; masked tokens are left out."""
    values = torch.log_softmax(torch.from_numpy(row), dim=-1).numpy()
    top = tuple((index, float(values[index])) for index in _largest(row, count).tolist())
    return TokenLogprobs(float(values[token]), tuple(entry for entry in top if entry[1] != -np.inf))


def _non_finite_error(row: _FloatRow, request: Request) -> NonFiniteLogitsError:
    """The error for a row whose peak is NaN, +inf or -inf."""
    num_nan = int(np.isnan(row).sum())
    num_inf = int(np.isposinf(row).sum())
    found = f"{num_nan} NaN and {num_inf} +inf" if num_nan or num_inf else "only -inf"
    return NonFiniteLogitsError(
        f"the logits of request {request.request_id} for output token {len(request.output_token_ids)}"
        f" hold {found} among {len(row)} values",
        hint="try model_config.dtype: float32 with exe_mode: eager; if it stays, the weights are damaged",
    )
