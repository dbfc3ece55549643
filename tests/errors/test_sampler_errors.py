"""Rows that cannot be sampled end alone, and say why."""

from __future__ import annotations

import math

import pytest
import torch

from graphsink.config import SamplingParams
from graphsink.engine.request import Request
from graphsink.engine.sampler import SampledToken, Sampler
from graphsink.errors import InternalError, NonFiniteLogitsError


def make_requests(count: int, temperature: float) -> list[Request]:
    sampling = SamplingParams(temperature=temperature, seed=1)
    return [Request(10 + index, None, [1], sampling, output_token_ids=[4, 4]) for index in range(count)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("column", [0, 17, 999])
@pytest.mark.parametrize(
    ("value", "words"),
    [(math.nan, "1 NaN and 0 \\+inf among 1000"), (math.inf, "0 NaN and 1 \\+inf among 1000")],
)
def test_only_the_bad_row_ends(
    dtype: torch.dtype, temperature: float, column: int, value: float, words: str
) -> None:
    logits = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0)).to(dtype)
    requests = make_requests(3, temperature)
    clean = Sampler(1000).sample(logits, requests)
    logits[1, column] = value
    results = Sampler(1000).sample(logits, requests)
    assert (results[0], results[2]) == (clean[0], clean[2])
    assert isinstance(results[0], SampledToken)
    error = results[1]
    assert isinstance(error, NonFiniteLogitsError)
    with pytest.raises(NonFiniteLogitsError, match=f"request 11 for output token 2 hold {words}"):
        raise error
    assert error.hint is not None
    assert "float32" in error.hint


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_row_without_any_finite_value(temperature: float) -> None:
    (error,) = Sampler(8).sample(torch.full((1, 8), -math.inf), make_requests(1, temperature))
    assert isinstance(error, NonFiniteLogitsError)
    assert "hold only -inf among 8 values" in error.what


def test_nan_beside_infinities_is_found() -> None:
    logits = torch.tensor([[math.inf, math.nan, -math.inf, 1.0], [math.nan, math.inf, math.inf, math.nan]])
    first, second = Sampler(4).sample(logits, make_requests(2, 0.0))
    assert isinstance(first, NonFiniteLogitsError)
    assert isinstance(second, NonFiniteLogitsError)
    assert "1 NaN and 1 +inf" in first.what
    assert "2 NaN and 2 +inf" in second.what


@pytest.mark.parametrize("shape", [(2, 8), (1, 9), (8,)])
def test_shape_mismatch_is_a_bug_of_ours(shape: tuple[int, ...]) -> None:
    with pytest.raises(InternalError, match=r"logits have shape .*, expected \[1, 8\]"):
        Sampler(8).sample(torch.zeros(shape), make_requests(1, 0.0))
