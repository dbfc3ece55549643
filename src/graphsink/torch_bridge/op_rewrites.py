"""Operators whose Scalar arguments, views or allocation are put in another form before they are called.

The dispatcher's shim refuses Scalars and typed shims take them as float64. Most operators with a Scalar
have an overload that takes a 0-dimensional tensor instead, and ATen itself implements the one by the
other; then the constant becomes such a tensor, owned by the call. Each rewrite here gives eager's values
bit for bit; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

LARGEST_EXACT_INTEGER = 2**53
"""Every integer up to this one is a float64."""

Scalar = bool | int | float


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A tensor of the call: index in its table, and what the rewrites need to know of it."""

    index: int
    dtype: torch.dtype
    dim: int
    is_contiguous: bool


@dataclass(frozen=True, slots=True)
class ConstantTensor:
    """A 0-dimensional tensor with a known value, owned by the call."""

    dtype: torch.dtype
    value: Scalar


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Arguments of the operator that is called instead, by name.

    Attributes:
        arguments: arguments by name; what is absent has its default.
        lift: whether 0-dimensional tensors are described as one-dimensional ones with one element. A
            0-dimensional constant then cannot decide the dtype of the result.
    """

    arguments: Mapping[str, object]
    lift: bool = False


Convert = Callable[[Mapping[str, object], list[TensorRef]], Rewritten | None]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """How one operator is called as another one.

    Attributes:
        target: overload that is called.
        convert: makes its arguments from the original's and the outputs; ``None`` where it cannot.
        preferred: whether it comes before a typed shim of the operator itself.
    """

    target: str
    convert: Convert
    preferred: bool = True


def exact_double(value: object) -> float | None:
    """A real Scalar as float64, or ``None`` if that would change it."""
    if isinstance(value, bool | int) and abs(value) <= LARGEST_EXACT_INTEGER:
        return float(value)
    return value if isinstance(value, float) else None


def constant_like(value: object, tensor: TensorRef) -> ConstantTensor | None:
    """The constant that promotes with a tensor of at least one dimension as the number itself would.

    A number of a higher category than the tensor decides the dtype of the result: a float takes the
    default dtype. Else any type of the tensor's category does. That is float32 for narrow floats too,
    because kernels for them compute in float32 and read a constant unrounded.
    """
    if not isinstance(value, bool | int | float) or tensor.dtype.is_complex:
        return None
    if tensor.dtype.is_floating_point:
        number = exact_double(value)
        dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        return None if number is None else ConstantTensor(dtype, number)
    if isinstance(value, float):
        dtype = torch.get_default_dtype()
        return ConstantTensor(dtype, value) if dtype in (torch.float32, torch.float64) else None
    if isinstance(value, bool):
        return ConstantTensor(torch.bool, value)
    return ConstantTensor(torch.int64, value) if -(2**63) <= value < 2**63 else None


def _tensor_form(*scalars: str, beside: str = "self", floating_only: bool = False) -> Convert:
    """Scalars with these names become constants; ``beside`` names the tensor that they meet."""

    def convert(arguments: Mapping[str, object], _outputs: list[TensorRef]) -> Rewritten | None:
        tensor = arguments[beside]
        if not isinstance(tensor, TensorRef) or (floating_only and not tensor.dtype.is_floating_point):
            return None
        changed = dict(arguments)
        for name in scalars:
            if changed[name] is None:
                continue
            changed[name] = constant_like(changed[name], tensor)
            if changed[name] is None:
                return None
        return Rewritten(changed, lift=True)

    return convert


def _hardtanh(arguments: Mapping[str, object], outputs: list[TensorRef]) -> Rewritten | None:
    renamed = {"self": arguments["self"], "min": arguments["min_val"], "max": arguments["max_val"]}
    return _tensor_form("min", "max", floating_only=True)(renamed, outputs)


def _integral_pow(arguments: Mapping[str, object], outputs: list[TensorRef]) -> Rewritten | None:
    exponent = arguments["exponent"]
    # Eager refuses negative integer exponents of integers, the tensor form does not.
    if not isinstance(exponent, int) or exponent < 0 or outputs[0].dtype.is_floating_point:
        return None
    return _tensor_form("exponent")(arguments, outputs)


def _fill(value_name: str) -> Convert:
    """Fill the output; the value is converted to its dtype once, by eager."""

    def convert(arguments: Mapping[str, object], outputs: list[TensorRef]) -> Rewritten | None:
        value, output = arguments[value_name], outputs[0]
        if output.dtype.is_complex or not isinstance(value, bool | int | float):
            return None
        try:
            converted = torch.full((), value, dtype=output.dtype).item()
        except RuntimeError:  # out of range: eager has to say so
            return None
        kind = (
            torch.bool
            if isinstance(converted, bool)
            else torch.int64
            if isinstance(converted, int)
            else torch.float64
        )
        return Rewritten({"self": output, "value": ConstantTensor(kind, converted)})

    return convert


def _copy_from(source: str) -> Convert:
    def convert(arguments: Mapping[str, object], outputs: list[TensorRef]) -> Rewritten | None:
        return Rewritten({"self": outputs[0], "src": arguments[source]})

    return convert


def _variance(arguments: Mapping[str, object], _outputs: list[TensorRef]) -> Rewritten | None:
    correction = 1 if arguments["correction"] is None else arguments["correction"]
    if correction not in (0, 1):
        return None
    kept = {name: arguments[name] for name in ("self", "dim", "keepdim")}
    return Rewritten({**kept, "unbiased": correction == 1})


def _pad(arguments: Mapping[str, object], outputs: list[TensorRef]) -> Rewritten | None:
    value = exact_double(arguments["value"])
    floating = outputs[0].dtype.is_floating_point
    if value is None or (
        not floating and (isinstance(arguments["value"], float) or outputs[0].dtype.is_complex)
    ):
        return None
    return Rewritten({"self": arguments["self"], "pad": arguments["pad"], "mode": "constant", "value": value})


def _subtract_number(arguments: Mapping[str, object], outputs: list[TensorRef]) -> Rewritten | None:
    """``x - s`` is ``x + (-s)`` exactly; a factor would be rounded at another place."""
    other = exact_double(arguments["other"])
    if other is None or arguments["alpha"] != 1 or not outputs[0].dtype.is_floating_point:
        return None
    return Rewritten({"self": arguments["self"], "other": -other, "alpha": 1})


def _same(arguments: Mapping[str, object], _outputs: list[TensorRef]) -> Rewritten | None:
    return Rewritten(arguments)


REWRITES: Mapping[str, Rewrite] = {
    **{
        f"aten::{name}.Scalar": Rewrite(f"aten::{name}.Tensor", _tensor_form("other"))
        for name in (
            *("eq", "ne", "lt", "le", "gt", "ge"),
            *("bitwise_and", "bitwise_or", "bitwise_xor"),
            *("mul", "div", "fmod", "remainder"),
        )
    },
    "aten::div.Scalar_mode": Rewrite("aten::div.Tensor_mode", _tensor_form("other")),
    "aten::clamp": Rewrite("aten::clamp.Tensor", _tensor_form("min", "max")),
    "aten::hardtanh": Rewrite("aten::clamp.Tensor", _hardtanh),
    "aten::pow.Tensor_Scalar": Rewrite("aten::pow.Tensor_Tensor", _integral_pow, preferred=False),
    "aten::full": Rewrite("aten::fill_.Tensor", _fill("fill_value")),
    "aten::full_like": Rewrite("aten::fill_.Tensor", _fill("fill_value")),
    "aten::fill.Scalar": Rewrite("aten::fill_.Tensor", _fill("value")),
    "aten::scalar_tensor": Rewrite("aten::fill_.Tensor", _fill("s")),
    "aten::_to_copy": Rewrite("aten::copy_", _copy_from("self")),
    "aten::clone": Rewrite("aten::copy_", _copy_from("self")),
    "aten::alias": Rewrite("aten::copy_", _copy_from("self")),
    "aten::expand": Rewrite("aten::copy_", _copy_from("self")),
    "aten::copy": Rewrite("aten::copy_", _copy_from("src")),
    "aten::var.correction": Rewrite("aten::var.dim", _variance),
    "aten::constant_pad_nd": Rewrite("aten::pad", _pad),
    "aten::sub.Tensor": Rewrite("aten::subtract.Tensor", _same),
    "aten::sub.Scalar": Rewrite("aten::add.Scalar", _subtract_number),
}


def view_copy_name(name: str) -> str:
    """The operator that copies what a view operator with this name views: ``permute`` → ``permute_copy``."""
    base, dot, overload = name.partition(".")
    return f"{base}_copy{dot}{overload}"
