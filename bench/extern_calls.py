"""Cost of ATen operators called from native code, beside the same calls from Python.

``python -m bench.extern_calls``: the operators are small, so that the cost of calling shows. Both sides
write to the same memory and run in turn; one ATen thread. The bar says that a native call is not slower.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable

import torch

from bench.harness import Row, main
from graphsink.torch_bridge.extern_call import ExternCall, prepare

aten = torch.ops.aten
Case = tuple[str, ExternCall, Callable[[], object]]


def seconds_from_python(function: Callable[[], object], rounds: int) -> float:
    started = time.perf_counter()
    for _ in range(rounds):
        function()
    return (time.perf_counter() - started) / rounds


def elementwise(count: int, dtype: torch.dtype) -> list[Case]:
    a, b = torch.randn(count).to(dtype), torch.randn(count).to(dtype)
    out, mask = torch.empty_like(a), torch.empty(count, dtype=torch.bool)
    size = f"{count} x {str(dtype).removeprefix('torch.')}"
    total = out[:1].view(())
    return [
        (f"add, {size}", prepare(aten.add.Tensor, (a, b), {}, [out]), lambda: torch.add(a, b, out=out)),
        (f"mul, {size}", prepare(aten.mul.Tensor, (a, b), {}, [out]), lambda: torch.mul(a, b, out=out)),
        (f"lt 1, {size}", prepare(aten.lt.Scalar, (a, 1), {}, [mask]), lambda: torch.lt(a, 1, out=mask)),
        (f"sum, {size}", prepare(aten.sum.dim_IntList, (a, [0]), {}, [total]),
         lambda: torch.sum(a, [0], out=total)),
    ]  # fmt: skip


def others() -> list[Case]:
    a, b, out = torch.randn(16, 16), torch.randn(16, 16), torch.empty(16, 16)
    joined, table, ids = torch.empty(32, 16), torch.randn(100, 16), torch.arange(16)
    return [
        ("mm, 16 x 16", prepare(aten.mm.default, (a, b), {}, [out]), lambda: torch.mm(a, b, out=out)),
        ("cat, 2 tensors", prepare(aten.cat.default, ([a, b],), {}, [joined]),
         lambda: torch.cat([a, b], out=joined)),
        ("softmax, 16 x 16", prepare(aten._softmax.default, (a, 1, False), {}, [out]),
         lambda: aten._softmax.out(a, 1, False, out=out)),
        ("embedding, 16 rows", prepare(aten.embedding.default, (table, ids), {}, [out]),
         lambda: aten.embedding.out(table, ids, out=out)),
        ("index_put_, 16 rows", prepare(aten.index_put_.default, (table, [ids], a), {}, []),
         lambda: table.index_put_([ids], a)),
    ]  # fmt: skip


def row(case: Case, repeats: int, rounds: int) -> Row:
    name, call, from_python = case
    native, python = [], []
    for _ in range(repeats):
        native.append(call.seconds_per_call(rounds))
        python.append(seconds_from_python(from_python, rounds))
    # The least of several: other programs only ever add time.
    best, beside = min(native), min(python)
    figures = f"{best * 1e6:.2f} us, from Python {beside * 1e6:.2f} us"
    return Row(f"{name}, {call.route.kind}, {figures}: ratio", best / beside, "", 1, "lower")


def moving() -> Row:
    a, out = torch.randn(16), torch.empty(16)
    call = prepare(aten.neg.default, (a,), {}, [out])
    address = a.data_ptr()
    samples = [seconds_from_python(lambda: call.set_address(1, address), 1000) * 1e6 for _ in range(5)]
    return Row("set_address, from Python", statistics.median(samples), "us", 5, "lower")


def preparing() -> Row:
    a, b, out = torch.randn(16), torch.randn(16), torch.empty(16)
    samples = [
        seconds_from_python(lambda: prepare(aten.mul.Tensor, (a, b), {}, [out]), 200) * 1e6 for _ in range(5)
    ]
    return Row("prepare", statistics.median(samples), "us", 200, "lower")


def measure(quick: bool) -> Iterable[Row]:
    torch.set_num_threads(1)
    repeats, rounds = (5, 2000) if quick else (20, 5000)
    sizes = ((1, torch.float32), (1000, torch.float32), (1000, torch.bfloat16))
    cases = [case for count, dtype in sizes for case in elementwise(count, dtype)]
    for case in cases + others():
        yield row(case, repeats, rounds)
    yield moving()
    yield preparing()


if __name__ == "__main__":
    main("extern_calls", measure)
