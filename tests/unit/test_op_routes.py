"""The table of operator routes against the torch that is installed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import torch

from graphsink import _native
from graphsink.errors import NotSupportedError
from graphsink.torch_bridge.extern_library import check_version, shim_library
from graphsink.torch_bridge.op_rewrites import REWRITES
from graphsink.torch_bridge.op_route_files import TABLE_PATH, declared_parameters, generated_files
from graphsink.torch_bridge.op_routes import (
    NO_TASK,
    WRITES_ANY_STRIDES,
    RouteKind,
    all_typed_signatures,
    core_operators,
    find_out_overload,
    find_overload,
    routes_of,
    stored_signatures,
    stored_table,
)
from graphsink.torch_bridge.op_signatures import typed_prototype

ROOT = Path(__file__).parents[2]
TABLE_TORCH = str(stored_table()["torch"])
THIS_TORCH = ".".join(torch.__version__.split(".")[:2])
COUNTS = {
    "typed": 6,
    "dispatcher_out": 145,
    "dispatcher_in_place": 10,
    "typed_copy": 18,
    "dispatcher_copy": 1,
    "host": 13,
}
same_torch = pytest.mark.skipif(THIS_TORCH != TABLE_TORCH, reason=f"the table is that of torch {TABLE_TORCH}")


@same_torch
def test_generating_again_gives_the_same_files() -> None:
    for path, text in generated_files().items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"run scripts/generate_op_routes: {path}"


def test_typed_signatures_are_those_of_the_headers() -> None:
    """In every torch: a function that is declared differently would be called with wrong arguments."""
    declared = declared_parameters()
    derived = all_typed_signatures(declared)
    present = {symbol: word for symbol, word in stored_signatures().items() if symbol in declared}
    assert len(present) >= 150
    assert {symbol: derived.get(symbol) for symbol in present} == present


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        (
            "aten::add.Tensor",
            "AtenTensorHandle self, AtenTensorHandle other, double alpha, AtenTensorHandle* ret0",
        ),
        ("aten::mm.out", "AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2"),
        ("aten::fill_.Scalar", "AtenTensorHandle self, double value"),
        (
            "aten::sum.dim_IntList",
            "AtenTensorHandle self, const int64_t** dim, int64_t dim_len_, int32_t keepdim, int32_t* dtype, "
            "AtenTensorHandle* ret0",
        ),
    ],
)
def test_prototypes(name: str, parameters: str) -> None:
    op = find_overload(name)
    assert op is not None
    prototype = typed_prototype(op._schema)
    assert prototype is not None
    assert prototype.parameters == parameters


def test_every_signature_can_be_called() -> None:
    assert set(stored_signatures().values()) == set(_native.extern_signatures())


@same_torch
def test_counts() -> None:
    routes = stored_table()["routes"]
    assert isinstance(routes, dict)
    kinds = Counter(str(route["kind"]) for route in routes.values())
    assert kinds == COUNTS
    assert len(routes) == len(core_operators())
    text = (ROOT / "docs/design/extern.md").read_text(encoding="utf-8")
    for kind, count in kinds.items():
        assert re.search(rf"\| `{kind}` \| {count} \|", text), f"docs/design/extern.md: {kind} {count}"


def test_every_core_operator_has_a_route_or_a_reason() -> None:
    signatures = stored_signatures()
    for op in core_operators():
        for route in routes_of(op, signatures):
            assert (route.kind is RouteKind.HOST) == bool(route.reason), op
            if route.kind is not RouteKind.HOST:
                assert find_overload(route.op) is not None


def test_without_typed_functions_the_dispatcher_remains() -> None:
    """A torch that lacks a symbol takes the next route; nothing breaks."""
    kinds = {op.name(): routes_of(op, {})[0].kind for op in core_operators()}
    assert kinds["aten::mm"] is RouteKind.DISPATCHER_OUT
    assert kinds["aten::convolution"] is RouteKind.DISPATCHER_OUT
    assert kinds["aten::add.Tensor"] is RouteKind.HOST  # alpha is a Scalar
    assert RouteKind.TYPED not in kinds.values()


def test_a_changed_signature_is_not_called() -> None:
    op = torch.ops.aten.mm.default
    assert routes_of(op, {"aoti_torch_cpu_mm_out": "PPPL"})[0].kind is RouteKind.DISPATCHER_OUT
    assert routes_of(op, {"aoti_torch_cpu_mm_out": "PPP"})[0].kind is RouteKind.TYPED


@pytest.mark.parametrize(
    ("name", "out"),
    [
        ("aten::add.Tensor", "aten::add.out"),
        ("aten::sum.dim_IntList", "aten::sum.IntList_out"),
        ("aten::max.dim", "aten::max.dim_max"),
        ("aten::any", "aten::any.all_out"),
        ("aten::full", "aten::full.out"),
        ("aten::split_with_sizes_copy", "aten::split_with_sizes_copy.out"),
    ],
)
def test_out_overloads(name: str, out: str) -> None:
    op = find_overload(name)
    assert op is not None
    found = find_out_overload(op)
    assert found is not None
    assert found.name() == out


def test_tables_name_operators_that_exist() -> None:
    names = {*REWRITES, *(rewrite.target for rewrite in REWRITES.values()), *NO_TASK, *WRITES_ANY_STRIDES}
    assert [name for name in names if find_overload(name) is None] == []


def test_the_library_is_the_torch_that_is_loaded() -> None:
    assert ".".join(map(str, shim_library().version)) == THIS_TORCH
    assert TABLE_PATH.name == "op_routes.json"


@pytest.mark.parametrize("version", [(2, 11), (2, 15), (3, 0), (1, 13)])
def test_unchecked_versions_are_refused(version: tuple[int, int]) -> None:
    words = rf"torch {version[0]}\.{version[1]} was not checked"
    with pytest.raises(NotSupportedError, match=words) as refusal:
        check_version(*version)
    assert refusal.value.hint == "install torch 2.12 to 2.14"


@pytest.mark.parametrize("version", [(2, 12), (2, 13), (2, 14)])
def test_checked_versions(version: tuple[int, int]) -> None:
    check_version(*version)
