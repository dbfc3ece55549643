"""Arguments of an ATen operator as plain data, and as the native module wants them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Argument, FunctionSchema, Tensor

from graphsink.errors import InternalError, NotSupportedError
from graphsink.torch_bridge.op_rewrites import ConstantTensor, TensorRef
from graphsink.torch_bridge.op_signatures import schema_type

if TYPE_CHECKING:
    from graphsink._native import ExternDescription


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A strided CPU tensor over memory that somebody else owns.

    Attributes:
        address: of the first element; 0 only if there are no elements.
        dtype: its dtype.
        sizes: elements per dimension.
        strides: in elements, never negative.
    """

    address: int
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def of(tensor: Tensor) -> TensorSpec:
        """Describe a tensor; its memory must outlive every use.

        Raises:
            NotSupportedError: the tensor is not plain: another device or layout, a subclass, or lazily
                conjugated or negated.
        """
        problem = _not_plain(tensor)
        if problem is not None:
            raise NotSupportedError(f"a native call cannot take this tensor: it {problem}")
        return TensorSpec(tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))

    @property
    def dtype_name(self) -> str:
        """The dtype as torch spells it, without ``torch.``."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements follow one another in row-major order."""
        expected = 1
        for size, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    def lifted(self) -> TensorSpec:
        """The same element as a tensor of one dimension, if it has none."""
        return self if self.sizes else replace(self, sizes=(1,), strides=(1,))


def _not_plain(tensor: Tensor) -> str | None:
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        return f"is a {type(tensor).__name__}"
    if tensor.device.type != "cpu":
        return f"is on {tensor.device}"
    if tensor.layout != torch.strided:
        return f"has the layout {tensor.layout}"
    if tensor.is_quantized:
        return "is quantised"
    if tensor.is_conj() or tensor.is_neg():
        return "is lazily conjugated or negated; call resolve_conj() or resolve_neg()"
    return None


def bind(schema: FunctionSchema, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    """Arguments by name, defaults filled in, lists of fixed length expanded.

    Raises:
        InternalError: the arguments do not fit the schema.
    """
    names = [argument.name for argument in schema.arguments]
    unknown = set(kwargs) - set(names)
    if len(args) > len(names) or unknown or set(names[: len(args)]) & set(kwargs):
        raise InternalError(
            f"arguments do not fit: {len(args)} by position and {sorted(kwargs)} by name", where=str(schema)
        )
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    bound = {}
    for argument in schema.arguments:
        if argument.name not in given and not argument.has_default_value():
            raise InternalError(f"argument '{argument.name}' is missing", where=str(schema))
        value = given.get(argument.name, argument.default_value)
        bound[argument.name] = _expanded(argument, value)
    return bound


def _expanded(argument: Argument, value: object) -> object:
    length: int | None = getattr(argument, "N", None)  # absent from torch's type information
    if length is not None and "List[" in schema_type(argument) and isinstance(value, int | float):
        return [value] * length
    return value


class TensorTable:
    """Collects the tensors of a call in order; equal indices in Python and in the native call."""

    def __init__(self) -> None:
        self.specs: list[TensorSpec] = []
        self.kept: list[Tensor] = []

    def add(self, value: Tensor | TensorSpec) -> TensorRef:
        """Add a tensor; keeps it alive if it is one."""
        spec = value if isinstance(value, TensorSpec) else TensorSpec.of(value)
        if isinstance(value, Tensor):
            self.kept.append(value)
        self.specs.append(spec)
        return TensorRef(len(self.specs) - 1, spec.dtype, len(spec.sizes), spec.is_contiguous)

    def replace_tensors(self, value: object) -> object:
        """The value with every tensor in it replaced by a reference."""
        if isinstance(value, Tensor | TensorSpec):
            return self.add(value)
        if isinstance(value, list | tuple):
            return [self.replace_tensors(item) for item in value]
        return value


def references_in(value: object) -> Iterator[TensorRef]:
    """All references in a value, lists included."""
    if isinstance(value, TensorRef):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from references_in(item)


def add_argument(description: ExternDescription, argument: Argument, value: Any) -> None:
    """Append one argument to a native description.

    Raises:
        NotSupportedError: the value has no native form.
    """
    kind = schema_type(argument)
    inner = kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional[") else kind
    optional = inner != kind
    if optional and (value is None or _is_default_option(inner, value)):
        _add_none(description, inner)
        return
    writer = _WRITERS.get(inner)
    try:
        if writer is None:
            raise TypeError(f"a {type(value).__name__} has no native form")
        writer(description, value, optional)
    except (TypeError, AttributeError, KeyError, OverflowError) as error:
        raise NotSupportedError(
            f"argument '{argument.name}' of type {kind} cannot be passed natively: {value!r} ({error})"
        ) from error


def _is_default_option(kind: str, value: Any) -> bool:
    """Whether an option says what holds on a CPU anyway."""
    if kind == "Device":
        return str(torch.device(value).type) == "cpu"
    return kind == "Layout" and value is torch.strided


def _add_none(description: ExternDescription, kind: str) -> None:
    if kind == "Device":
        description.no_device()
    elif kind.startswith("List["):
        description.no_list()
    else:
        description.none()


def _add_tensor(description: ExternDescription, value: Any, optional: bool) -> None:
    description.tensor(_index(description, value), optional)


def _index(description: ExternDescription, value: Any) -> int:
    if isinstance(value, ConstantTensor):
        return description.add_constant(str(value.dtype).removeprefix("torch."), value.value)
    index: int = value.index
    return index


def _add_dtype(description: ExternDescription, value: Any, optional: bool) -> None:
    description.constant(f"dtype_{str(value).removeprefix('torch.')}", optional)


def _add_memory_format(description: ExternDescription, value: Any, optional: bool) -> None:
    description.constant(f"memory_format_{str(value).removeprefix('torch.')}", optional)


def _add_number(description: ExternDescription, value: Any, optional: bool) -> None:
    description.real(float(value), optional)


def _whole(value: Any) -> int:
    """An int; a symbolic size or a float is not one."""
    if not isinstance(value, int):
        raise TypeError(f"{type(value).__name__} is not an int")
    return int(value)


_WRITERS: Mapping[str, Callable[[ExternDescription, Any, bool], None]] = {
    "Tensor": _add_tensor,
    "int": lambda d, v, o: d.integer(_whole(v), o),
    "bool": lambda d, v, o: d.boolean(bool(v), o),
    "float": _add_number,
    "number": _add_number,
    "str": lambda d, v, o: d.string(v, o),
    "ScalarType": _add_dtype,
    "MemoryFormat": _add_memory_format,
    "List[int]": lambda d, v, o: d.integers([_whole(item) for item in v], o),
    "List[bool]": lambda d, v, o: d.booleans([int(item) for item in v], o),
    "List[float]": lambda d, v, o: d.reals([float(item) for item in v], o),
    "List[Tensor]": lambda d, v, _o: d.tensor_list([_index(d, item) for item in v]),
    "List[Optional[Tensor]]": lambda d, v, _o: d.optional_tensor_list(
        [-1 if item is None else _index(d, item) for item in v]
    ),
}
