"""From a failed native call to the exception that eager raises.

The shim passes on a text but not the class of an exception, and users of graph modes should see what they
see in eager mode. So the operator runs once more, in eager, on the same memory.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NoReturn

import torch
from torch import Tensor

from graphsink.errors import InternalError
from graphsink.torch_bridge.extern_arguments import TensorSpec, references_in
from graphsink.torch_bridge.op_rewrites import TensorRef

if TYPE_CHECKING:
    from graphsink.torch_bridge.extern_call import ExternCall


def tensor_over(spec: TensorSpec) -> Tensor:
    """A tensor over the memory that a spec describes; it does not keep that memory alive."""
    if 0 in spec.sizes:
        return torch.empty_strided(spec.sizes, spec.strides, dtype=spec.dtype)
    last = sum((size - 1) * stride for size, stride in zip(spec.sizes, spec.strides, strict=True))
    memory = (ctypes.c_char * ((last + 1) * spec.dtype.itemsize)).from_address(spec.address)
    return torch.frombuffer(memory, dtype=spec.dtype).as_strided(spec.sizes, spec.strides)


def raise_as_eager(call: ExternCall, message: str) -> NoReturn:
    """Raise what eager raises for the arguments of a call that failed.

    What the operator would write is a copy here, so that nothing is written twice.

    Args:
        call: the call that failed; its tensors must still be alive.
        message: text of the native failure.

    Raises:
        Exception: eager's own exception.
        InternalError: eager accepts the arguments, so the failure is graphsink's.
    """
    schema = call.op._schema
    written = {
        reference.index
        for argument in schema.arguments
        if argument.is_write
        for reference in references_in(call.arguments[argument.name])
    }

    def concrete(value: object) -> object:
        if isinstance(value, TensorRef):
            tensor = tensor_over(call.tensor_spec(value.index))
            return tensor.clone() if value.index in written else tensor
        return [concrete(item) for item in value] if isinstance(value, list) else value

    values = {name: concrete(value) for name, value in call.arguments.items()}
    positional = [values[a.name] for a in schema.arguments if not a.kwarg_only]
    named = {a.name: values[a.name] for a in schema.arguments if a.kwarg_only}
    with torch.no_grad():
        call.op(*positional, **named)
    raise InternalError(
        f"the native call failed where eager does not: {message}",
        where=f"{call.op.name()} by {call.route.kind} {call.route.symbol or call.route.op}",
        hint="report this with the sizes and dtypes of the arguments",
    )
