"""Prepare an ATen operator once, call it many times from native code.

The prepared call has the address of a C function and of a context, which is all that a runtime needs;
results land at the addresses of the outputs that were given. Nothing here looks at autograd: native calls
compute values only, on tensors without history.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch._ops import OpOverload

from graphsink.errors import InternalError, NotSupportedError
from graphsink.torch_bridge.extern_arguments import TensorSpec, TensorTable, add_argument, bind, references_in
from graphsink.torch_bridge.extern_library import shim_library
from graphsink.torch_bridge.op_rewrites import REWRITES, Rewritten, TensorRef, exact_double
from graphsink.torch_bridge.op_routes import (
    COPY_KINDS,
    WRITES_ANY_STRIDES,
    Route,
    RouteKind,
    find_overload,
    routes_of,
    stored_signatures,
)
from graphsink.torch_bridge.op_signatures import call_order, schema_type

if TYPE_CHECKING:
    from graphsink import _native

AnyTensor = Tensor | TensorSpec
Outputs = Sequence[AnyTensor | Sequence[AnyTensor] | None]


@functools.cache
def native_routes(op: OpOverload) -> tuple[Route, ...]:
    """Routes of an operator with the loaded torch, best first."""
    library = shim_library()
    signatures = {s: word for s, word in stored_signatures().items() if library.has_symbol(s)}
    return routes_of(op, signatures)


class ExternCall:
    """A prepared call. Must outlive every runtime that holds its ``context``.

    Tensors are numbered: first the outputs, then the tensors in the arguments, in the order of the schema.

    Attributes:
        op: the operator that was asked for.
        route: how it is called.
        arguments: by name, with :class:`TensorRef` in place of tensors.
        outputs: one reference per returned value, or a list of them.
    """

    def __init__(
        self,
        op: OpOverload,
        route: Route,
        arguments: Mapping[str, object],
        outputs: Sequence[object],
        table: TensorTable,
        native: _native.ExternCall,
    ) -> None:
        self.op = op
        self.route = route
        self.arguments = arguments
        self.outputs = outputs
        self._table = table
        self._native = native

    @property
    def function(self) -> int:
        """Address of ``int32_t run(void* context, char* message, uint64_t capacity)``."""
        return self._native.function

    @property
    def context(self) -> int:
        """First argument of ``function``."""
        return self._native.context

    def run(self) -> None:
        """Run once, without the GIL.

        Raises:
            Exception: the exception that eager raises for the same arguments.
            InternalError: the native call fails where eager does not.
        """
        code, message = self._native.run()
        if code != 0:
            from graphsink.torch_bridge.extern_errors import raise_as_eager

            raise_as_eager(self, message)

    def seconds_per_call(self, rounds: int) -> float:
        """Mean seconds of ``rounds`` calls from native code."""
        return self._native.time(rounds)

    def set_address(self, tensor: int, address: int) -> None:
        """Move a tensor: sizes, strides and dtype stay. Not while the call runs.

        Raises:
            InternalError: there is no such tensor, or the address is 0 although it has elements.
        """
        if not 0 <= tensor < len(self._table.specs):
            raise InternalError(f"tensor {tensor} does not exist: the call has {len(self._table.specs)}")
        try:
            self._native.set_address(tensor, address)
        except ValueError as error:
            raise InternalError(str(error), where=self.op.name()) from error

    def tensor_spec(self, tensor: int) -> TensorSpec:
        """The tensor where it is now."""
        spec = self._table.specs[tensor]
        return TensorSpec(self._native.address(tensor), spec.dtype, spec.sizes, spec.strides)


def prepare(
    op: OpOverload, args: Sequence[object], kwargs: Mapping[str, object], outputs: Outputs
) -> ExternCall:
    """Prepare a call of ``op``.

    Args:
        op: an ATen overload; functional, in-place or ``.out``.
        args: positional arguments; tensors as tensors or as :class:`TensorSpec`.
        kwargs: arguments by name.
        outputs: where the results go, one entry per returned value that is not an argument: a tensor or
            spec of the size and dtype that eager gives, a list for a list, ``None`` to drop it. Empty for
            an operator that only writes its arguments.

    Raises:
        NotSupportedError: there is no native route for these arguments; the message says why not.
        InternalError: the arguments or outputs do not fit the schema.
    """
    table = TensorTable()
    references = [table.replace_tensors(output) for output in outputs]
    bound = {name: table.replace_tensors(value) for name, value in bind(op._schema, args, kwargs).items()}
    _check_outputs(op, references)
    refused = []
    for route in native_routes(op):
        try:
            description = _describe(op, route, bound, references, table)
            native = _native_call(description)
        except NotSupportedError as error:
            refused.append(f"{route.kind} {route.symbol or route.op}".strip() + f": {error.what}")
            continue
        return ExternCall(op, route, bound, references, table, native)
    raise NotSupportedError(
        "no native route: " + "; ".join(refused),
        where=op.name(),
        hint="run this operator as a host task",
    )


def _check_outputs(op: OpOverload, outputs: Sequence[object]) -> None:
    fresh = [
        value for value in op._schema.returns if value.alias_info is None or not value.alias_info.is_write
    ]
    if len(outputs) != len(fresh):
        raise InternalError(f"{len(outputs)} outputs for {len(fresh)} results", where=str(op._schema))
    for value, output in zip(fresh, outputs, strict=True):
        if isinstance(output, list) != (schema_type(value) == "List[Tensor]"):
            raise InternalError("a list of outputs belongs to a list of results", where=str(op._schema))


def _native_call(description: _native.ExternDescription) -> _native.ExternCall:
    from graphsink import _native

    try:
        return _native.ExternCall(shim_library(), description)
    except ValueError as error:
        raise NotSupportedError(str(error)) from error


def _describe(
    op: OpOverload,
    route: Route,
    bound: Mapping[str, object],
    outputs: Sequence[object],
    table: TensorTable,
) -> _native.ExternDescription:
    """The native description of one route.

    Raises:
        NotSupportedError: the route cannot carry these arguments.
    """
    from graphsink import _native

    if route.kind is RouteKind.HOST:
        raise NotSupportedError(route.reason)
    flat_outputs = list(references_in(list(outputs)))
    rewritten = _rewritten(op, route, bound, flat_outputs)
    _check_conditions(route, rewritten.arguments, outputs)
    called = find_overload(route.op)
    if called is None:
        raise InternalError(f"route to unknown operator {route.op}", where=op.name())
    name, _, overload = route.op.partition(".")
    description = _native.ExternDescription(route.symbol, route.signature, name, overload)
    for spec in table.specs:
        shown = spec.lifted() if rewritten.lift else spec
        description.add_tensor(shown.address, shown.dtype_name, list(shown.sizes), list(shown.strides))
    _add_arguments(description, called, route, rewritten.arguments, outputs)
    _add_returns(description, called, route, outputs)
    return description


def _rewritten(
    op: OpOverload, route: Route, bound: Mapping[str, object], outputs: list[TensorRef]
) -> Rewritten:
    if not route.rewrite:
        return Rewritten(bound)
    rewritten = REWRITES[op.name()].convert(bound, outputs)
    if rewritten is None:
        raise NotSupportedError("the values of its Scalars do not allow it")
    return rewritten


def _check_conditions(route: Route, arguments: Mapping[str, object], outputs: Sequence[object]) -> None:
    if None in outputs and route.kind not in COPY_KINDS:
        raise NotSupportedError("it writes all results, and one is not wanted")
    called = find_overload(route.op)
    if called is None:
        raise InternalError(f"route to unknown operator {route.op}")
    written = list(references_in(list(outputs)))
    trusted = torch.Tag.pointwise in called.tags or route.op in WRITES_ANY_STRIDES
    respects_strides = trusted or route.kind in COPY_KINDS or route.kind is RouteKind.DISPATCHER_IN_PLACE
    if not respects_strides and not all(reference.is_contiguous for reference in written):
        raise NotSupportedError("it may ignore the strides of its output")
    if not route.scalars_as_double:
        return
    for argument in called._schema.arguments:
        value = arguments.get(argument.name, argument.default_value)
        if "number" in schema_type(argument) and value is not None and exact_double(value) is None:
            raise NotSupportedError(f"Scalar '{argument.name}' is not exact in float64: {value!r}")
    written = written or list(references_in(list(arguments.values())))
    if written and not written[0].dtype.is_floating_point:
        raise NotSupportedError(f"a Scalar would be passed as float64, and the result is {written[0].dtype}")


def _add_arguments(
    description: _native.ExternDescription,
    called: OpOverload,
    route: Route,
    arguments: Mapping[str, object],
    outputs: Sequence[object],
) -> None:
    schema = called._schema
    planned = iter(outputs)
    values = {}
    for argument in schema.arguments:
        if argument.is_out and argument.name not in arguments:
            values[argument.name] = next(planned)
        else:
            values[argument.name] = arguments.get(argument.name, argument.default_value)
        if argument.is_write:
            for reference in references_in(values[argument.name]):
                description.writes(reference.index)
    for argument in call_order(schema) if route.symbol else schema.arguments:
        add_argument(description, argument, values[argument.name])


def _add_returns(
    description: _native.ExternDescription, called: OpOverload, route: Route, outputs: Sequence[object]
) -> None:
    if route.kind is RouteKind.TYPED:  # it returns nothing
        return
    planned = iter(outputs)
    for value in called._schema.returns:
        if value.alias_info is not None and value.alias_info.is_write:
            if schema_type(value) != "Tensor":
                raise NotSupportedError("it returns a list of its arguments")
            description.returns_alias()
            continue
        output = next(planned)
        if isinstance(output, list):
            description.returns_list([reference.index for reference in references_in(output)])
        else:
            description.returns_tensor(output.index if isinstance(output, TensorRef) else -1)
