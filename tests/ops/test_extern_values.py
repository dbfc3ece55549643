"""Operators called from native code against the same operators in eager mode, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload

from graphsink.torch_bridge.extern_call import ExternCall, prepare

aten = torch.ops.aten
FLOAT, BFLOAT, INT, BOOL = torch.float32, torch.bfloat16, torch.int64, torch.bool
FLOATS = (FLOAT, BFLOAT)
GUARD = 32
POISON = 0x7F


def values(
    *sizes: int, dtype: torch.dtype = FLOAT, seed: int = 0, low: float = -3, high: float = 3
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    base = torch.rand(sizes, generator=generator, dtype=torch.float64) * (high - low) + low
    return base > 0 if dtype == BOOL else base.to(dtype)


def odd(tensor: Tensor) -> Tensor:
    """The same values with gaps and, from two dimensions on, with the order of dimensions turned round."""
    turned = tensor.permute(*reversed(range(tensor.dim())))
    spaced = torch.zeros(*turned.shape, 2, dtype=tensor.dtype)[..., 1]
    spaced.copy_(turned)
    return spaced.permute(*reversed(range(tensor.dim())))


class Guarded:
    """A tensor of NaN-like bytes with guard bytes around it."""

    def __init__(self, like: Tensor, *, strided: bool = False) -> None:
        item = like.dtype.itemsize
        self.strides = (
            tuple(2 * s for s in like.contiguous().stride()) if strided else like.contiguous().stride()
        )
        span = (
            1 + sum((n - 1) * s for n, s in zip(like.shape, self.strides, strict=True)) if like.numel() else 0
        )
        self.memory = torch.full((span * item + 2 * GUARD,), POISON, dtype=torch.uint8)
        inner = self.memory[GUARD : GUARD + span * item]
        self.tensor = inner.view(like.dtype).as_strided(like.shape, self.strides)

    def check(self) -> None:
        assert (self.memory[:GUARD] == POISON).all()
        assert (self.memory[-GUARD:] == POISON).all()
        if 2 in self.strides[-1:] and self.tensor.numel() > 1:
            elements = self.memory[GUARD:-GUARD].view(-1, self.tensor.dtype.itemsize)
            assert (elements[1::2] == POISON).all()


def same(a: Tensor, b: Tensor) -> bool:
    """Equal in dtype, sizes and bits of every element, NaNs of any kind being equal."""
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and bool(torch.equal(a.nan_to_num(7.25), b.nan_to_num(7.25)))
    )


def flat(results: Any) -> list[Tensor]:
    if isinstance(results, Tensor):
        return [results]
    return [tensor for result in results for tensor in flat(result)]


def prepared(
    op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], strided: bool
) -> tuple[ExternCall, Any, list[Guarded]]:
    expected = op(*args, **kwargs)
    guards = [Guarded(tensor, strided=strided) for tensor in flat(expected)]
    outputs: list[Any] = [guard.tensor for guard in guards]
    if isinstance(expected, list):
        outputs = [outputs]
    return prepare(op, args, kwargs, outputs), expected, guards


def check(
    op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], *, strided: bool = False
) -> ExternCall:
    call, expected, guards = prepared(op, args, kwargs, strided)
    for _ in range(2):
        for guard in guards:
            guard.tensor.view(
                guard.tensor.dtype
            ).zero_() if guard.tensor.dtype == BOOL else guard.tensor.fill_(77)
        call.run()
        for guard, wanted in zip(guards, flat(expected), strict=True):
            assert same(guard.tensor, wanted), f"{op} by {call.route}: {guard.tensor} instead of {wanted}"
            guard.check()
    return call


Case = tuple[OpOverload, Callable[[torch.dtype], tuple[Any, ...]], dict[str, Any], tuple[torch.dtype, ...]]


def unary(dtype: torch.dtype) -> tuple[Any, ...]:
    return (odd(values(3, 5, dtype=dtype)),)


def positive(dtype: torch.dtype) -> tuple[Any, ...]:
    return (values(17, dtype=dtype, low=0.1),)


def fraction(dtype: torch.dtype) -> tuple[Any, ...]:
    return (values(4, 7, dtype=dtype, low=-0.99, high=0.99),)


def pair(dtype: torch.dtype) -> tuple[Any, ...]:
    return odd(values(3, 5, dtype=dtype)), values(5, dtype=dtype, seed=1, low=1, high=4)


def scalar(value: Any) -> Callable[[torch.dtype], tuple[Any, ...]]:
    return lambda dtype: (odd(values(3, 5, dtype=dtype)), value)


def with_index(*extra: Any) -> Callable[[torch.dtype], tuple[Any, ...]]:
    index = torch.tensor([[0, 1, 2], [2, 0, 1]])
    return lambda dtype: (values(3, 3, dtype=dtype), 0, index, *extra)


def image(dtype: torch.dtype) -> Tensor:
    return values(2, 4, 6, 5, dtype=dtype)


ALL = (FLOAT, BFLOAT, INT, BOOL)
NUMBERS = (FLOAT, BFLOAT, INT)
UNARY_FLOAT = (
    "abs",
    "acosh",
    "asinh",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "exp",
    "expm1",
    "floor",
    "isinf",
)
UNARY_FLOAT += (
    "isnan",
    "neg",
    "reciprocal",
    "relu",
    "round",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "tan",
    "tanh",
)
UNARY_FLOAT += ("trunc", "log", "log10", "log1p", "log2", "rsqrt", "sqrt", "acos", "asin", "atanh")
SCALARS = (1, 0.1, True, 2**24 + 1, 1e300)
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

CASES: list[Case] = [
    *((getattr(aten, name).default, unary, {}, FLOATS) for name in UNARY_FLOAT),
    *((getattr(aten, name).default, unary, {}, (INT,)) for name in ("abs", "neg", "sign", "relu", "exp")),
    (aten.bitwise_not.default, unary, {}, (INT, BOOL)),
    (aten.logical_not.default, unary, {}, ALL),
    *((getattr(aten, name).Tensor, pair, {}, ALL) for name in COMPARISONS),
    *((getattr(aten, name).Tensor, pair, {}, NUMBERS) for name in ("mul", "div", "fmod", "remainder")),
    *(
        (getattr(aten, name).default, pair, {}, ALL)
        for name in ("maximum", "minimum", "logical_and", "logical_xor")
    ),
    *(
        (getattr(aten, name).Tensor, pair, {}, (INT, BOOL))
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
    ),
    *((aten.add.Tensor, pair, {"alpha": alpha}, FLOATS) for alpha in (1, 2, -0.3)),
    *((aten.sub.Tensor, pair, {"alpha": alpha}, FLOATS) for alpha in (1, 0.7)),
    (aten.atan2.default, pair, {}, FLOATS),
    *((aten.div.Tensor_mode, pair, {"rounding_mode": m}, NUMBERS) for m in (None, "floor", "trunc")),
    (aten.pow.Tensor_Tensor, lambda d: (values(6, dtype=d, low=0), values(6, dtype=d, low=0)), {}, FLOATS),
    (
        aten.where.self,
        lambda d: (values(3, 5) > 0, values(3, 5, dtype=d), values(5, dtype=d, seed=2)),
        {},
        ALL,
    ),
    (aten.clamp.Tensor, lambda d: (values(3, 5, dtype=d), None, values(5, dtype=d, seed=2)), {}, NUMBERS),
    # Scalars
    *(
        (getattr(aten, name).Scalar, scalar(v), {}, NUMBERS)
        for name in COMPARISONS
        for v in (1, 0.1, True, 2**24 + 1, 1e300)
    ),
    *(
        (getattr(aten, n).Scalar, scalar(v), {}, NUMBERS)
        for n in ("mul", "div", "remainder", "fmod")
        for v in (3, 0.1, -1.7)
    ),
    *((getattr(aten, n).Scalar, scalar(5), {}, (INT,)) for n in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    *((aten.div.Scalar_mode, scalar(0.7), {"rounding_mode": m}, NUMBERS) for m in ("floor", "trunc")),
    *((aten.add.Scalar, scalar(v), {}, FLOATS) for v in (1, -0.3)),
    (aten.add.Scalar, scalar(0.25), {}, (INT,)),
    *((aten.sub.Scalar, scalar(v), {}, FLOATS) for v in (1, -0.3)),
    (aten.add.Scalar, scalar(0.5), {"alpha": 3}, FLOATS),
    *((aten.pow.Tensor_Scalar, scalar(v), {}, FLOATS) for v in (2, 3.0, 2.5, 0.5, -1)),
    *((aten.pow.Tensor_Scalar, scalar(v), {}, (INT,)) for v in (0, 2, 3, 0.5)),
    *((aten.pow.Scalar, lambda d: (2.5, values(6, dtype=d)), {}, (d,)) for d in FLOATS),
    *(
        (aten.clamp.default, lambda d, a=a, b=b: (values(3, 5, dtype=d), a, b), {}, NUMBERS)
        for a, b in ((-1, 1), (None, 0.3), (0.1, None))
    ),
    (aten.hardtanh.default, scalar(-0.3), {}, FLOATS),
    *(
        (aten.full.default, lambda d, v=v: ([3, 2], v), {"dtype": t}, (t,))
        for v, t in ((2.5, FLOAT), (0.1, BFLOAT), (2**60 + 1, INT), (True, BOOL), (7, BFLOAT))
    ),
    (aten.full_like.default, scalar(3), {}, ALL),
    (aten.fill.Scalar, scalar(-4), {}, ALL),
    (aten.scalar_tensor.default, lambda d: (0.1,), {"dtype": BFLOAT}, (BFLOAT,)),
    (aten.constant_pad_nd.default, lambda d: (values(3, 4, dtype=d), [1, 2, 0, 1], 3), {}, NUMBERS),
    (aten.scatter.value, with_index(0.5), {}, FLOATS),
    *((aten.var.correction, unary, {"dim": [1], "correction": c}, (FLOAT,)) for c in (0, 1, None)),
    # reductions
    (aten.sum.dim_IntList, unary, {"dim": [0], "keepdim": True}, NUMBERS),
    (aten.sum.dim_IntList, unary, {"dim": None, "dtype": torch.float64}, NUMBERS),
    (aten.mean.dim, lambda d: (values(3, 5, 2, dtype=d), [0, 2]), {}, FLOATS),
    (aten.mean.default, unary, {}, FLOATS),
    (aten.prod.default, unary, {}, NUMBERS),
    (aten.prod.dim_int, lambda d: (values(3, 5, dtype=d), 1), {}, NUMBERS),
    *(
        (getattr(aten, name).default, lambda d: (values(3, 5, dtype=d), [1]), {}, NUMBERS)
        for name in ("amax", "amin")
    ),
    *(
        (getattr(aten, name).default, lambda d: (values(3, 5, dtype=d), 1), {"keepdim": True}, NUMBERS)
        for name in ("argmax", "argmin")
    ),
    (aten.argmax.default, unary, {}, NUMBERS),
    (aten.any.default, unary, {}, ALL),
    (aten.any.dim, lambda d: (values(3, 5, dtype=d), 1), {}, ALL),
    (aten.any.dims, lambda d: (values(3, 5, dtype=d), None), {}, ALL),
    (aten.var.dim, lambda d: (values(3, 5, dtype=d), [1]), {}, FLOATS),
    (aten.cumsum.default, lambda d: (values(3, 5, dtype=d), 1), {}, NUMBERS),
    (aten.cumsum.default, lambda d: (values(3, 5, dtype=d), 1), {"dtype": FLOAT}, NUMBERS),
    (aten.max.dim, lambda d: (values(3, 5, dtype=d), 1), {}, NUMBERS),
    (aten.min.dim, lambda d: (values(3, 5, dtype=d), 0, True), {}, NUMBERS),
    (aten.sort.default, lambda d: (values(3, 7, dtype=d), 1, True), {}, NUMBERS),
    (aten.topk.default, lambda d: (values(3, 7, dtype=d), 3), {}, NUMBERS),
    (aten._softmax.default, lambda d: (values(3, 7, dtype=d), 1, False), {}, FLOATS),
    (aten._log_softmax.default, lambda d: (values(3, 7, dtype=d), -1, False), {}, FLOATS),
    # products
    (aten.mm.default, lambda d: (odd(values(3, 5, dtype=d)), values(5, 4, dtype=d)), {}, NUMBERS),
    (aten.bmm.default, lambda d: (values(2, 3, 5, dtype=d), values(2, 5, 4, dtype=d)), {}, NUMBERS),
    (
        aten.addmm.default,
        lambda d: (values(4, dtype=d), values(3, 5, dtype=d), values(5, 4, dtype=d)),
        {"beta": 0.5},
        FLOATS,
    ),
    (
        aten.convolution.default,
        lambda d: (
            image(d),
            values(3, 4, 3, 3, dtype=d),
            values(3, dtype=d),
            [1, 1],
            [1, 1],
            [1, 1],
            False,
            [0, 0],
            1,
        ),
        {},
        FLOATS,
    ),
    (
        aten.convolution.default,
        lambda d: (image(d), values(3, 4, 3, 3, dtype=d), None, [2, 1], [0, 1], [1, 1], False, [0, 0], 1),
        {},
        FLOATS,
    ),
    # norms, activations, layers
    (aten.gelu.default, unary, {"approximate": "tanh"}, FLOATS),
    (aten.gelu.default, unary, {}, FLOATS),
    (
        aten.native_layer_norm.default,
        lambda d: (values(3, 5, dtype=d), [5], values(5, dtype=d), None, 1e-5),
        {},
        FLOATS,
    ),
    (
        aten.native_group_norm.default,
        lambda d: (image(d), values(4, dtype=d), None, 2, 4, 30, 2, 1e-5),
        {},
        (FLOAT,),
    ),
    (
        aten._native_batch_norm_legit_no_training.default,
        lambda d: (image(d), None, None, values(4), values(4, low=1), 0.1, 1e-5),
        {},
        (FLOAT,),
    ),
    (aten.avg_pool2d.default, lambda d: (image(d), [2, 2]), {"divisor_override": 3}, FLOATS),
    (aten.max_pool2d_with_indices.default, lambda d: (image(d), [2, 2]), {}, FLOATS),
    (aten.upsample_nearest2d.vec, lambda d: (image(d), None, [2.0, 1.5]), {}, FLOATS),
    (aten.upsample_bilinear2d.vec, lambda d: (image(d), [7, 8], False, None), {}, (FLOAT,)),
    (aten._adaptive_avg_pool2d.default, lambda d: (image(d), [3, 2]), {}, FLOATS),
    (aten.reflection_pad1d.default, lambda d: (values(2, 5, dtype=d), [2, 1]), {}, FLOATS),
    # indexing and moving
    (aten.embedding.default, lambda d: (values(7, 3, dtype=d), torch.tensor([[1, 6], [0, 1]])), {}, FLOATS),
    (aten.index_select.default, lambda d: (odd(values(3, 5, dtype=d)), 1, torch.tensor([4, 0, 4])), {}, ALL),
    (aten.gather.default, with_index(), {}, ALL),
    (aten.scatter.src, lambda d: (*with_index()(d), values(2, 3, dtype=d, seed=3)), {}, ALL),
    (aten.scatter_add.default, lambda d: (*with_index()(d), values(2, 3, dtype=d, seed=3)), {}, NUMBERS),
    (
        aten.scatter_reduce.two,
        lambda d: (*with_index()(d), values(2, 3, dtype=d, seed=3), "amax"),
        {"include_self": False},
        NUMBERS,
    ),
    (
        aten.index.Tensor,
        lambda d: (values(3, 4, 5, dtype=d), [None, torch.tensor([3, 0]), torch.tensor([1, 4])]),
        {},
        ALL,
    ),
    (
        aten.index_put.default,
        lambda d: (values(3, 5, dtype=d), [torch.tensor([2, 2]), None], values(2, 5, dtype=d), d != BOOL),
        {},
        ALL,
    ),
    (
        aten.masked_scatter.default,
        lambda d: (values(3, 5, dtype=d), values(3, 5) > 0, values(15, dtype=d)),
        {},
        ALL,
    ),
    (aten.cat.default, lambda d: ([values(3, 5, dtype=d), odd(values(3, 2, dtype=d))], 1), {}, ALL),
    (aten.flip.default, lambda d: (values(3, 5, dtype=d), [0, 1]), {}, ALL),
    (aten.repeat.default, lambda d: (values(3, 5, dtype=d), [2, 1, 3]), {}, ALL),
    (aten.nonzero.default, lambda d: (values(3, 5, dtype=d),), {}, ALL),
    (
        aten.slice_scatter.default,
        lambda d: (values(3, 5, dtype=d), values(3, 2, dtype=d), 1, 1, None, 2),
        {},
        ALL,
    ),
    (aten.select_scatter.default, lambda d: (values(3, 5, dtype=d), values(3, dtype=d), 1, -1), {}, ALL),
    (aten.clone.default, unary, {"memory_format": torch.contiguous_format}, ALL),
    *((aten._to_copy.default, unary, {"dtype": target}, NUMBERS) for target in (BFLOAT, FLOAT, INT, BOOL)),
    (aten.copy.default, lambda d: (values(3, 5), values(5, dtype=d)), {}, ALL),
    # views, asked for as copies
    (aten.permute.default, lambda d: (values(3, 5, dtype=d), [1, 0]), {}, ALL),
    (aten.view.default, lambda d: (values(3, 4, dtype=d), [2, -1]), {}, ALL),
    (aten.expand.default, lambda d: (values(3, 1, dtype=d), [2, 3, 4]), {}, ALL),
    (aten.select.int, lambda d: (values(3, 5, dtype=d), 1, -2), {}, ALL),
    (aten.slice.Tensor, lambda d: (values(3, 5, dtype=d), 1, None, -1, 2), {}, ALL),
    (aten.squeeze.dims, lambda d: (values(1, 3, 1, dtype=d), [0, 2]), {}, ALL),
    (aten.unsqueeze.default, lambda d: (values(3, dtype=d), -1), {}, ALL),
    (aten.diagonal.default, unary, {}, ALL),
    (aten.alias.default, unary, {}, ALL),
    (aten.split_with_sizes.default, lambda d: (values(3, 5, dtype=d), [2, 3], 1), {}, ALL),
]
RUNS = [(op, make, kwargs, dtype) for op, make, kwargs, dtypes in CASES for dtype in dtypes]


def ids(runs: list[Any]) -> list[str]:
    return [f"{op.name()[6:]}-{kwargs}-{str(dtype)[6:]}" for op, _, kwargs, dtype in runs]


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize(("op", "make", "kwargs", "dtype"), RUNS, ids=ids(RUNS))
def test_equals_eager(
    op: OpOverload, make: Callable[[torch.dtype], tuple[Any, ...]], kwargs: dict[str, Any], dtype: torch.dtype
) -> None:
    args = make(dtype)
    check(op, args, kwargs)
    check(op, args, kwargs, strided=True)


def test_the_sample_is_broad() -> None:
    assert len({op.name() for op, *_ in CASES if torch.Tag.core in op.tags}) >= 130
