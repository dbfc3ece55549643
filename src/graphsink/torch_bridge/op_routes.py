"""Which way an ATen operator is called from native code: the routes, and the table of all core operators.

Routes, best first:

======================  ==================================================================================
``typed``               the operator's own C function; it writes to the planned addresses
``dispatcher_out``      the ``.out`` overload through the dispatcher's shim; the same, with lists and
                        strings made for each call
``dispatcher_in_place`` an operator that writes its argument, through the dispatcher's shim
``typed_copy``          the operator's own C function; its result is copied to the planned address
``dispatcher_copy``     through the dispatcher's shim; its result is copied to the planned address
``host``                none of these; the reason says why
======================  ==================================================================================

A functional shim allocates its result and costs a copy, so what writes in place goes first. An ``.out``
overload that torch generated does just that inside; it goes behind a typed function.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import resources

import torch
from torch import FunctionSchema
from torch._ops import OpOverload

from graphsink.errors import InternalError
from graphsink.torch_bridge.op_rewrites import REWRITES, view_copy_name
from graphsink.torch_bridge.op_signatures import (
    PARAMETERS,
    fresh_returns,
    has_scalar,
    schema_type,
    typed_prototype,
    typed_symbols,
)

TABLE_FILE = "op_routes.json"

NO_TASK = {
    "aten::_local_scalar_dense": "returns a number to the host",
    "aten::sym_is_contiguous": "a property that the plan knows",
    "aten::sym_numel": "a property that the plan knows",
    "aten::sym_size.int": "a property that the plan knows",
    "aten::sym_storage_offset": "a property that the plan knows",
    "aten::sym_stride.int": "a property that the plan knows",
    "aten::empty.memory_format": "only allocates: the planned address is the result",
    "aten::empty_strided": "only allocates: the planned address is the result",
    "aten::resize_": "resizes its argument, whose address and size are planned",
    "aten::as_strided": "addresses the storage behind a tensor, which a plan does not know",
    "aten::arange.start_step": "takes Scalars and has no tensor argument: a constant of the plan",
}
WRITES_ANY_STRIDES = frozenset(
    {"aten::mm.out", "aten::bmm.out", "aten::addmm.out", "aten::baddbmm.out", "aten::scatter.value_out"}
)
"""``.out`` overloads, besides pointwise ones, that may write to outputs with gaps or another order. Not all
may: ``_softmax.out`` writes contiguously whatever the strides say (seen in torch 2.13)."""
TENSOR_OPTIONS = frozenset({"dtype", "layout", "device", "pin_memory", "memory_format", "generator"})


class RouteKind(StrEnum):
    """See the table in the module docstring."""

    TYPED = "typed"
    DISPATCHER_OUT = "dispatcher_out"
    DISPATCHER_IN_PLACE = "dispatcher_in_place"
    TYPED_COPY = "typed_copy"
    DISPATCHER_COPY = "dispatcher_copy"
    HOST = "host"


COPY_KINDS = frozenset({RouteKind.TYPED_COPY, RouteKind.DISPATCHER_COPY})


@dataclass(frozen=True, slots=True)
class Route:
    """One way to call an operator.

    Attributes:
        kind: which way.
        op: overload that is called, as ``aten::mul.out``; empty for ``host``.
        symbol: C function of a typed route.
        signature: its parameters, see csrc/extern/typed_calls.h.
        rewrite: whether arguments go through ``REWRITES`` first.
        scalars_as_double: whether Scalars are passed as float64, so that integers would become floats.
        reason: why there is no native route.
    """

    kind: RouteKind
    op: str = ""
    symbol: str = ""
    signature: str = ""
    rewrite: bool = False
    scalars_as_double: bool = False
    reason: str = ""


SymbolSignatures = Mapping[str, str]
"""Typed functions that may be called: symbol -> signature, as checked against torch's headers."""


def find_overload(name: str) -> OpOverload | None:
    """The overload called ``aten::mul.out``; ``None`` if this torch has none."""
    base, _, overload = name.removeprefix("aten::").partition(".")
    packet = getattr(torch.ops.aten, base, None)
    found = getattr(packet, overload or "default", None)
    return found if isinstance(found, OpOverload) else None


def find_out_overload(op: OpOverload) -> OpOverload | None:
    """The overload that computes the same and writes its results into arguments.

    Its arguments equal those of ``op`` in name, type and order, but for options of the result (dtype,
    device, …), which the result itself tells.
    """
    functional = [(a.name, schema_type(a)) for a in op._schema.arguments]
    packet = op.overloadpacket
    for overload in packet.overloads():
        candidate = getattr(packet, overload)
        outs = [a for a in candidate._schema.arguments if a.is_out]
        if not outs or [schema_type(a) for a in outs] != [schema_type(r) for r in op._schema.returns]:
            continue
        rest = [(a.name, schema_type(a)) for a in candidate._schema.arguments if not a.is_out]
        names = {name for name, _ in rest}
        kept = [entry for entry in functional if entry[0] in names or entry[0] not in TENSOR_OPTIONS]
        if rest == kept and isinstance(candidate, OpOverload):
            return candidate
    return None


def unsupported_type(schema: FunctionSchema) -> str | None:
    """A type in the schema that extern calls cannot carry, or ``None``."""
    for argument in schema.arguments:
        if schema_type(argument) not in PARAMETERS:
            return schema_type(argument)
    for value in schema.returns:
        if schema_type(value) not in ("Tensor", "List[Tensor]"):
            return schema_type(value)
    return None


def _typed_route(op: OpOverload, signatures: SymbolSignatures, kind: RouteKind) -> Iterator[Route]:
    prototype = typed_prototype(op._schema)
    if prototype is None:
        return
    for symbol in typed_symbols(op._schema):
        # A schema that has changed since the function was generated has another signature: not called.
        if signatures.get(symbol) == prototype.word:
            scalar = has_scalar(op._schema)
            yield Route(kind, op.name(), symbol, prototype.word, scalars_as_double=scalar)
            return


def _dispatcher_route(op: OpOverload, kind: RouteKind) -> Iterator[Route]:
    if not has_scalar(op._schema) and unsupported_type(op._schema) is None:
        yield Route(kind, op.name())


def _direct_routes(op: OpOverload, signatures: SymbolSignatures) -> Iterator[Route]:
    """Routes that need no other arguments than the operator's own."""
    if not fresh_returns(op._schema):
        yield from _typed_route(op, signatures, RouteKind.TYPED)
        yield from _dispatcher_route(op, RouteKind.DISPATCHER_IN_PLACE)
        return
    out = None if op._schema.is_mutable else find_out_overload(op)
    generated = out is not None and torch.Tag.generated in out.tags
    if out is not None:
        yield from _typed_route(out, signatures, RouteKind.TYPED)
        if not generated:
            yield from _dispatcher_route(out, RouteKind.DISPATCHER_OUT)
    yield from _typed_route(op, signatures, RouteKind.TYPED_COPY)
    if out is not None and generated:
        yield from _dispatcher_route(out, RouteKind.DISPATCHER_OUT)
    yield from _dispatcher_route(op, RouteKind.DISPATCHER_COPY)


def _rewritten_routes(name: str, signatures: SymbolSignatures) -> Iterator[Route]:
    target = find_overload(name)
    if target is not None:
        for route in _direct_routes(target, signatures):
            yield Route(route.kind, route.op, route.symbol, route.signature, True, route.scalars_as_double)


def _host_reason(op: OpOverload) -> str:
    unsupported = unsupported_type(op._schema)
    if unsupported is not None:
        return f"the shim cannot carry {unsupported}"
    return "takes Scalars, which the dispatcher's shim refuses, and has no typed function"


def routes_of(op: OpOverload, signatures: SymbolSignatures) -> tuple[Route, ...]:
    """All routes of an operator, best first; one ``host`` route if there is none.

    Args:
        op: any overload; only ATen operators have native routes.
        signatures: typed functions that may be called.
    """
    name = op.name()
    if op.namespace != "aten":
        return (Route(RouteKind.HOST, reason="not an ATen operator: its kernel may be Python"),)
    if name in NO_TASK:
        return (Route(RouteKind.HOST, reason=NO_TASK[name]),)
    direct = list(_direct_routes(op, signatures))
    rewrite = REWRITES.get(name)
    if rewrite is not None:
        others = list(_rewritten_routes(rewrite.target, signatures))
        routes = others + direct if rewrite.preferred else direct + others
    elif op.is_view:
        routes = [*_view_copy_routes(op, signatures), *direct]
    else:
        routes = direct
    return tuple(routes) or (Route(RouteKind.HOST, reason=_host_reason(op)),)


def _view_copy_routes(op: OpOverload, signatures: SymbolSignatures) -> Iterator[Route]:
    """A view has nothing to compute; asked for all the same, it is a copy to the planned address."""
    target = find_overload(view_copy_name(op.name()))
    if target is not None:
        yield from (r for r in _direct_routes(target, signatures) if r.kind is RouteKind.DISPATCHER_OUT)


def core_operators() -> list[OpOverload]:
    """Every ATen overload with the tag ``core``, by name."""
    found = []
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if name.startswith("aten::"):
            op = find_overload(name)
            if op is not None and torch.Tag.core in op.tags:
                found.append(op)
    return found


def all_typed_signatures(declared: Mapping[str, str]) -> dict[str, str]:
    """Symbol -> signature of the typed functions whose declaration is what follows from an ATen schema.

    Args:
        declared: symbol -> C parameter list.
    """
    signatures: dict[str, str] = {}
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        op = find_overload(name) if name.startswith("aten::") else None
        prototype = typed_prototype(op._schema) if op is not None else None
        if op is None or prototype is None:
            continue
        matching = (s for s in typed_symbols(op._schema) if declared.get(s) == prototype.parameters)
        signatures |= dict.fromkeys(matching, prototype.word)
    return signatures


def build_table(declared: Mapping[str, str]) -> dict[str, object]:
    """The table of this torch, as stored in ``op_routes.json``.

    Args:
        declared: symbol -> C parameter list of the typed functions that the library exports.
    """
    signatures = all_typed_signatures(declared)
    routes = {op.name(): _compact(routes_of(op, signatures)[0]) for op in core_operators()}
    minor = ".".join(torch.__version__.split(".")[:2])
    return {"torch": minor, "signatures": signatures, "routes": routes}


def _compact(route: Route) -> dict[str, object]:
    return {name: value for name, value in asdict(route).items() if value and name != "signature"}


def table_text(table: Mapping[str, object]) -> str:
    """The table as JSON with one line per entry, so that a change reads well."""
    parts = []
    for key, value in table.items():
        if isinstance(value, dict):
            lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            parts.append(f"{json.dumps(key)}: {{\n{lines}\n}}")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


@functools.cache
def stored_table() -> Mapping[str, Mapping[str, object]]:
    """The table that is part of this package.

    Raises:
        InternalError: the file is absent or damaged.
    """
    try:
        text = resources.files(__package__).joinpath(TABLE_FILE).read_text(encoding="utf-8")
        table: Mapping[str, Mapping[str, object]] = json.loads(text)
    except (OSError, ValueError) as error:
        raise InternalError(
            f"the table of operator routes cannot be read: {error}", where=TABLE_FILE
        ) from error
    return table


def stored_signatures() -> SymbolSignatures:
    """Typed functions whose prototypes were checked against torch's headers."""
    return {symbol: str(word) for symbol, word in stored_table()["signatures"].items()}
