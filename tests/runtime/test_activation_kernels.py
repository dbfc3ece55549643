"""Element-wise kernels against float64 closed forms and against eager PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from support.kernel_calls import (
    BAD_ARGUMENT,
    DTYPES,
    LEVELS,
    Guarded,
    all_bf16,
    for_every_block_dim,
    many_f32,
    odd_sizes,
    run,
    same_bits,
    ulp_of,
    worst_ulps,
)

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "tanh": torch.tanh,
    "erf": torch.erf,
}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_erf": F.gelu,
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"add": torch.add, "mul": torch.mul}


def unary(name: str, level: str, x: Tensor, block_dim: int = 1) -> Tensor:
    kind = "bf16" if x.dtype is torch.bfloat16 else "f32"
    output = Guarded(x.shape, x.dtype)
    assert run(f"{name}_{kind}", level, [x, output.tensor, x.numel()], block_dim=block_dim) == 0
    return output.check()


def inputs(dtype: torch.dtype) -> Tensor:
    return all_bf16() if dtype is torch.bfloat16 else many_f32()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_within_one_unit_in_the_last_place(name: str, dtype: torch.dtype, level: str) -> None:
    x = inputs(dtype)
    assert worst_ulps(unary(name, level, x), FUNCTIONS[name](x.double())) <= 1.0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_the_formula_of_eager(name: str, dtype: torch.dtype, level: str) -> None:
    # 1 + tanh and 1 + erf cancel for negative x, in eager as here: what is left of float32 there is a few
    # units of 2^-24 times x.
    x = inputs(dtype)
    # Beyond this x^3 or exp(-x) leaves float32, in eager as well.
    x = x[(x > -88) & (x < 1e12) & (x.abs() > 1e-30) | (x == 0)]
    got, eager = unary(name, level, x).double(), ACTIVATIONS[name](x).double()
    true = ACTIVATIONS[name](x.double())
    cancelled = x.double().abs() * 2.0**-24 if name != "silu" else torch.zeros_like(true)
    steps = 1.0 if dtype is torch.bfloat16 else 4.0
    assert ((got - true).abs() <= steps * ulp_of(true, dtype) + 3 * cancelled).all()
    # Eager's own erf (oneDNN) is the less exact one: six units of 2^-24 times x from the true value.
    assert ((got - eager).abs() <= steps * ulp_of(eager, dtype) + 8 * cancelled).all()
    if dtype is torch.bfloat16:
        assert (got != eager).double().mean() < 0.005


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_special_values_of_activations(name: str, dtype: torch.dtype, level: str) -> None:
    # What the formula gives in float64; eager's own gelu gives NaN for an infinity.
    x = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0], dtype=dtype)
    got, true = unary(name, level, x), ACTIVATIONS[name](x.double())
    assert torch.equal(got.double().nan_to_num(7.0), true.nan_to_num(7.0))
    assert torch.equal(got.signbit()[3:], true.signbit()[3:])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_binary_kernels_equal_eager(name: str, dtype: torch.dtype, level: str) -> None:
    kind = "bf16" if dtype is torch.bfloat16 else "f32"
    a = inputs(dtype)
    b = a[torch.randperm(len(a), generator=torch.Generator().manual_seed(1))]
    output = Guarded(a.shape, dtype)
    assert run(f"{name}_{kind}", level, [a, b, output.tensor, len(a)], block_dim=3) == 0
    eager = BINARY[name](a, b)
    got = output.check()
    assert torch.equal(got.isnan(), eager.isnan())
    assert same_bits(got[~got.isnan()], eager[~got.isnan()])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_sizes_and_blocks(dtype: torch.dtype, level: str) -> None:
    for size in odd_sizes():
        # 33 elements into a buffer: nothing is aligned.
        x = torch.randn(size + 33, generator=torch.Generator().manual_seed(size)).to(dtype)[33:]
        got = for_every_block_dim(lambda block_dim, x=x: unary("silu", level, x, block_dim))
        assert same_bits(got, unary("silu", level, x.repeat(3))[-size:])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gated_kernels_are_two_operations_of_eager(name: str, kind: str, level: str) -> None:
    dtype = DTYPES[kind]
    for rows, columns in ((1, 1), (1, 97), (3, 31), (5, 65), (2, 576)):
        generator = torch.Generator().manual_seed(columns)
        both = torch.randn(rows, 2 * columns, generator=generator).to(dtype)
        up = both[:, columns:]

        def gated(block_dim: int, both: Tensor = both, up: Tensor = up) -> Tensor:
            rows, columns = up.shape
            output = Guarded((rows, columns), dtype)
            strides = [2 * columns, 2 * columns, columns]
            slots = [both, up, output.tensor, rows, columns, *strides]
            assert run(f"{name}_mul_{kind}", level, slots, block_dim=block_dim) == 0
            return output.check()

        active = unary(name, level, both[:, :columns].contiguous())
        assert same_bits(for_every_block_dim(gated), active * up)


@pytest.mark.parametrize("level", LEVELS)
def test_result_may_replace_the_input_and_nothing_is_allowed(level: str) -> None:
    x = torch.randn(77)
    expected = unary("gelu_erf", level, x)
    assert run("gelu_erf_f32", level, [x, x, 77]) == 0
    assert same_bits(x, expected)
    assert run("silu_f32", level, [x, x, 0], block_dim=2) == 0
    assert run("silu_f32", level, [x, x, -1]) == BAD_ARGUMENT
    assert run("mul_f32", level, [x, x, x, -1]) == BAD_ARGUMENT
    assert run("silu_mul_f32", level, [x, x, x, -1, 3, 3, 3, 3]) == BAD_ARGUMENT
    assert same_bits(x, expected)
