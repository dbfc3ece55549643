"""Sampler: closed forms, distributions, and independence of a request from its batch."""

from __future__ import annotations

import math

import pytest
import torch

from graphsink.config import SamplingParams
from graphsink.engine.request import Request
from graphsink.engine.sampler import SampledToken, Sampler
from graphsink.errors import NonFiniteLogitsError

NEG_INF = float("-inf")


def make_request(request_id: int = 0, **sampling: object) -> Request:
    return Request(request_id, None, [1], SamplingParams.model_validate(sampling))


def sample_tokens(sampler: Sampler, logits: torch.Tensor, requests: list[Request]) -> list[int]:
    results = sampler.sample(logits, requests)
    assert all(isinstance(result, SampledToken) for result in results)
    return [result.token_id for result in results if isinstance(result, SampledToken)]


def draws(logits: list[float], count: int, **sampling: object) -> list[int]:
    """Tokens of one request over ``count`` steps with the same logits."""
    sampler, request = Sampler(len(logits)), make_request(**sampling)
    row = torch.tensor([logits])
    return [sample_tokens(sampler, row, [request])[0] for _ in range(count)]


def assert_distribution(tokens: list[int], probabilities: list[float]) -> None:
    """Chi-square test at p = 0.001 (the seed is fixed, so this cannot flicker)."""
    support = [index for index, probability in enumerate(probabilities) if probability > 0]
    assert set(tokens) <= set(support)
    statistic = sum(
        (tokens.count(index) - len(tokens) * probabilities[index]) ** 2 / (len(tokens) * probabilities[index])
        for index in support
    )
    critical = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 7: 24.32}
    assert statistic < critical[len(support) - 1]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_greedy_is_argmax_with_the_lowest_index_on_ties(dtype: torch.dtype) -> None:
    logits = torch.tensor(
        [[0.0, 3.0, 3.0, -1.0], [-5.0, -5.0, -5.0, -5.0], [NEG_INF, NEG_INF, -7.0, NEG_INF]], dtype=dtype
    )
    requests = [make_request(0), make_request(1, temperature=9e-6, top_k=3), make_request(2)]
    assert sample_tokens(Sampler(4), logits, requests) == [1, 0, 2]


def test_greedy_agrees_with_torch_on_large_rows() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(8, 5003, generator=generator).bfloat16()
    tokens = sample_tokens(Sampler(5003), logits, [make_request(index) for index in range(8)])
    first_of_ties = [int((row == row.max()).nonzero()[0]) for row in logits.float()]
    assert tokens == first_of_ties


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature_distribution(temperature: float) -> None:
    logits = [1.0, 0.0, 2.0, NEG_INF, -1.0]
    weights = [math.exp(value / temperature) for value in logits]
    tokens = draws(logits, 6000, temperature=temperature, seed=5)
    assert_distribution(tokens, [weight / sum(weights) for weight in weights])


def test_top_k_renormalises_and_breaks_ties_by_index() -> None:
    logits = [0.0, math.log(3.0), 0.0, 0.0]
    assert_distribution(draws(logits, 4000, temperature=1.0, top_k=2, seed=6), [0.25, 0.75, 0.0, 0.0])


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    logits = [math.log(value) for value in (0.15, 0.5, 0.05, 0.3)]
    assert_distribution(draws(logits, 4000, temperature=1.0, top_p=0.79, seed=7), [0, 5 / 8, 0, 3 / 8])
    expected = [0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95]
    assert_distribution(draws(logits, 4000, temperature=1.0, top_p=0.81, seed=8), expected)


def test_top_p_reached_exactly_keeps_no_more() -> None:
    assert set(draws([0.0, 0.0, 0.0, 0.0], 200, temperature=1.0, top_p=0.5, seed=1)) == {0, 1}


def test_top_p_applies_to_what_top_k_left() -> None:
    logits = [math.log(value) for value in (0.4, 0.3, 0.2, 0.1)]
    # Of the two best, 4/7 of the probability is the first; over all four it is only 0.4.
    assert set(draws(logits, 300, temperature=1.0, top_k=2, top_p=0.55, seed=1)) == {0}
    assert set(draws(logits, 300, temperature=1.0, top_p=0.55, seed=1)) == {0, 1}


def test_top_k_1_and_top_p_0_are_greedy_and_huge_top_k_is_off() -> None:
    logits = [0.0, 1.0, 0.9]
    assert set(draws(logits, 100, temperature=3.0, top_k=1, seed=1)) == {1}
    assert set(draws(logits, 100, temperature=3.0, top_p=0.0, seed=1)) == {1}
    assert set(draws(logits, 300, temperature=3.0, top_k=1000, seed=1)) == {0, 1, 2}


def test_large_vocabulary_without_limits_draws_from_all_of_it() -> None:
    """Half of the probability lies outside of the tokens that are sorted first."""
    logits = torch.zeros(1, 4000)
    logits[0, 2000] = math.log(1999.0)
    logits[0, 2001:] = NEG_INF
    sampler, request = Sampler(4000), make_request(temperature=1.0, seed=3)
    tokens = [sample_tokens(sampler, logits, [request])[0] for _ in range(2000)]
    assert max(tokens) == 2000
    quarters = [min(token // 500, 4) if token != 2000 else 4 for token in tokens]
    share = 500 / 3999
    assert_distribution(quarters, [share, share, share, share, 1999 / 3999])


@pytest.mark.parametrize("top_p", [0.5, 0.9])
def test_large_vocabulary_with_wide_top_p(top_p: float) -> None:
    """The nucleus is larger than the tokens that are sorted first, and is cut by index among equals.

    Odd tokens weigh 1, even ones 1/e; 0.5 is reached within the odd ones, 0.9 within the even ones.
    """
    logits = torch.zeros(1, 4000)
    logits[0, ::2] = -1.0
    sampler, request = Sampler(4000), make_request(temperature=1.0, top_p=top_p, seed=3)
    mass = top_p * 2000 * (1 + math.exp(-1.0))
    odd = min(math.ceil(mass), 2000)
    even = math.ceil((mass - odd) * math.e) if mass > 2000 else 0
    tokens = [sample_tokens(sampler, logits, [request])[0] for _ in range(3000)]
    drawn_odd, drawn_even = [t for t in tokens if t % 2], [t for t in tokens if t % 2 == 0]
    assert 2 * (odd - 40) < max(drawn_odd) <= 2 * odd - 1
    assert len(drawn_even) / len(tokens) == pytest.approx(even * math.exp(-1.0) / mass, abs=0.02)
    if even:
        assert 2 * (even - 40) < max(drawn_even) <= 2 * even - 2


def test_top_k_of_the_internal_head_size_is_not_widened_by_top_p() -> None:
    sampler, request = Sampler(4000), make_request(temperature=1.0, top_k=512, top_p=0.9999999, seed=3)
    logits = torch.zeros(1, 4000)
    assert max(sample_tokens(sampler, logits, [request])[0] for _ in range(2000)) <= 511


@pytest.mark.parametrize("temperature", [1e-5, 1e-3, 1e10, 1e300])
def test_extreme_logits_and_temperatures_stay_finite(temperature: float) -> None:
    assert set(draws([2.9e38, -3e38, NEG_INF, 3e38], 200, temperature=temperature, seed=2)) == {3}


def test_very_hot_is_uniform_over_unmasked_tokens() -> None:
    tokens = draws([5.0, NEG_INF, -5.0], 4000, temperature=1e300, seed=4)
    assert_distribution(tokens, [0.5, 0.0, 0.5])


MIXED = [
    {"temperature": 1.0, "seed": 11},
    {},
    {"temperature": 0.7, "top_k": 20, "seed": 12},
    {"temperature": 1.3, "top_p": 0.9, "seed": 13},
    {"temperature": 1.0, "top_k": 50, "top_p": 0.8, "seed": 14, "logprobs": 2},
]


def test_tokens_do_not_depend_on_the_neighbours() -> None:
    steps = [torch.randn(len(MIXED), 1500, generator=torch.Generator().manual_seed(s)) for s in range(12)]
    together, alone = Sampler(1500), [Sampler(1500) for _ in MIXED]
    requests = [make_request(index, **sampling) for index, sampling in enumerate(MIXED)]
    for step in steps:
        batch = sample_tokens(together, step, requests)
        single = [
            sample_tokens(sampler, step[index : index + 1], [requests[index]])[0]
            for index, sampler in enumerate(alone)
        ]
        assert batch == single
    order = [3, 0, 4, 2, 1]
    shuffled = Sampler(1500)
    results = [sample_tokens(shuffled, step[order], [requests[index] for index in order]) for step in steps]
    again = Sampler(1500)
    assert results == [
        [tokens[index] for index in order]
        for tokens in (sample_tokens(again, step, requests) for step in steps)
    ]


def test_seed_repeats_and_other_seeds_differ() -> None:
    logits = [0.0] * 100
    first = draws(logits, 20, temperature=1.0, seed=1)
    assert draws(logits, 20, temperature=1.0, seed=1) == first
    assert draws(logits, 20, temperature=1.0, seed=2) != first
    assert draws(logits, 20, temperature=1.0) != draws(logits, 20, temperature=1.0)


def test_forget_restarts_the_generator() -> None:
    sampler, request, row = Sampler(100), make_request(temperature=1.0, seed=1), torch.zeros(1, 100)
    first = [sample_tokens(sampler, row, [request])[0] for _ in range(10)]
    sampler.forget(0)
    sampler.forget(77)
    assert [sample_tokens(sampler, row, [request])[0] for _ in range(10)] == first
    assert [sample_tokens(sampler, row, [request])[0] for _ in range(10)] != first


def test_logprobs_are_of_the_raw_distribution() -> None:
    logits = torch.randn(2, 300, generator=torch.Generator().manual_seed(9)).bfloat16()
    requests = [
        make_request(0, logprobs=3),
        make_request(1, temperature=0.5, top_k=5, seed=1, logprobs=300 - 200),
    ]
    expected = torch.log_softmax(logits.double(), dim=-1)
    for row, result in zip(expected, Sampler(300).sample(logits, requests), strict=True):
        assert isinstance(result, SampledToken)
        assert result.logprobs is not None
        assert result.logprobs.chosen == pytest.approx(float(row[result.token_id]), abs=1e-5)
        values, _ = row.topk(len(result.logprobs.top))
        assert [value for _, value in result.logprobs.top] == pytest.approx(values.tolist(), abs=1e-5)
        assert all(
            value == pytest.approx(float(row[token]), abs=1e-5) for token, value in result.logprobs.top
        )
    assert len(result.logprobs.top) == 100


def test_logprobs_ties_masks_and_absence() -> None:
    logits = torch.tensor([[NEG_INF, 1.0, 1.0, NEG_INF]] * 2)
    with_logprobs, without = Sampler(4).sample(logits, [make_request(0, logprobs=4), make_request(1)])
    assert isinstance(with_logprobs, SampledToken)
    assert with_logprobs.logprobs is not None
    assert [token for token, _ in with_logprobs.logprobs.top] == [1, 2]
    assert with_logprobs.logprobs.chosen == pytest.approx(-math.log(2.0))
    assert without == SampledToken(1, None)


def test_no_requests() -> None:
    assert Sampler(10).sample(torch.empty(0, 10), []) == []


def test_logits_are_left_alone_and_may_need_grad_or_be_strided() -> None:
    storage = torch.randn(40, 2, generator=torch.Generator().manual_seed(2))
    logits = storage.t().requires_grad_()
    before = storage.clone()
    requests = [make_request(0), make_request(1, temperature=1.0, seed=1)]
    tokens = sample_tokens(Sampler(40), logits, requests)
    assert tokens[0] == int(storage[:, 0].argmax())
    assert torch.equal(storage, before)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([0.5, 2.0, 2.0, -9.0], 1),
        ([NEG_INF, 2.0, NEG_INF, 1.0], 1),
        ([-0.0, 0.0, -1.0, -2.0], 0),
        ([-3.0, -1.0, -2.0, -1.0], 1),
        ([1e-40, 0.0, -0.0, -1.0], 0),
        ([1.0, float("nan"), 2.0, 0.0], None),
        ([1.0, float("inf"), 2.0, 0.0], None),
        ([NEG_INF, NEG_INF, NEG_INF, NEG_INF], None),
    ],
)
def test_bfloat16_bit_patterns_order_as_numbers_do(row: list[float], expected: int | None) -> None:
    """The integer comparison of the greedy path agrees with float32, also where signs and NaN interfere."""
    logits = torch.tensor([row, [0.0, 0.0, 0.0, 1.0]], dtype=torch.bfloat16)
    requests = [make_request(0), make_request(1)]
    first, second = Sampler(4).sample(logits, requests)
    assert getattr(first, "token_id", None) == expected
    assert second == SampledToken(3)
    in_float32 = Sampler(4).sample(logits.float(), requests)[0]
    assert getattr(in_float32, "token_id", None) == expected


def test_a_nan_with_sign_is_found_in_bfloat16() -> None:
    """Processors make NaN with the sign bit set; as an integer it is smaller than every positive number."""
    logits = torch.tensor([[1.0, 0.0, 2.0, -1.0]], dtype=torch.bfloat16)
    logits.view(torch.int16)[0, 1] = 0xFFC0 - 0x10000
    assert torch.isnan(logits[0]).tolist() == [False, True, False, False]
    (result,) = Sampler(4).sample(logits, [make_request(0)])
    assert isinstance(result, NonFiniteLogitsError)
