"""Prepared native calls: errors, refusals, addresses, the C entry point, memory."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable
from typing import Any

import psutil
import pytest
import torch
from torch._ops import OpOverload

from graphsink import _native
from graphsink.errors import InternalError, NotSupportedError
from graphsink.torch_bridge import extern_call
from graphsink.torch_bridge.extern_arguments import TensorSpec
from graphsink.torch_bridge.extern_call import ExternCall, native_routes, prepare
from graphsink.torch_bridge.extern_library import shim_library
from graphsink.torch_bridge.op_routes import RouteKind

aten = torch.ops.aten
ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64)
OPERATOR_FAILED, RESULT_MISMATCH = 1, 2


def square(n: int = 4, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, n, generator=torch.Generator().manual_seed(seed))


def enter(call: ExternCall, capacity: int = 256) -> tuple[int, str]:
    """Run through the bare function pointer, as a runtime does."""
    message = ctypes.create_string_buffer(b"?" * capacity, capacity)
    code = ENTRY(call.function)(call.context, message, capacity)
    return code, message.value.decode()


FAILURES: list[tuple[OpOverload, Callable[[], tuple[Any, ...]], list[torch.Tensor]]] = [
    (aten.embedding.default, lambda: (square(), torch.tensor([1, 4])), [torch.empty(2, 4)]),
    (aten.index_select.default, lambda: (square(), 0, torch.tensor([-1])), [torch.empty(1, 4)]),
    (aten.gather.default, lambda: (square(), 0, torch.tensor([[9]])), [torch.empty(1, 1)]),
    (aten.index.Tensor, lambda: (square(), [torch.tensor([7])]), [torch.empty(1, 4)]),
    (aten.mm.default, lambda: (square(3), square(4)), [torch.empty(3, 4)]),
    (aten.mul.Tensor, lambda: (square(3), square(4)), [torch.empty(4, 4)]),
    (aten.cat.default, lambda: ([square(3), square(4)],), [torch.empty(7, 4)]),
    (aten._softmax.default, lambda: (square(), 5, False), [torch.empty(4, 4)]),
    (aten.add.Tensor, lambda: (square(3), square(4)), [torch.empty(4, 4)]),
    (aten.index_put.default, lambda: (square(), [torch.tensor([4])], torch.ones(4)), [torch.empty(4, 4)]),
    (aten.permute.default, lambda: (square(), [0, 0]), [torch.empty(4, 4)]),
    (aten.view.default, lambda: (square(), [3, 5]), [torch.empty(3, 5)]),
    (
        aten.scatter_reduce.two,
        lambda: (square(), 0, torch.tensor([[1]]), square(), "median"),
        [torch.empty(4, 4)],
    ),
]


@pytest.mark.parametrize(("op", "make", "outputs"), FAILURES, ids=[op.name() for op, *_ in FAILURES])
def test_a_failure_is_the_one_of_eager(
    op: OpOverload, make: Callable[[], tuple[Any, ...]], outputs: list[torch.Tensor]
) -> None:
    args = make()
    with pytest.raises(Exception) as eager:
        op(*args)
    call = prepare(op, args, {}, outputs)
    code, message = enter(call)
    assert code == OPERATOR_FAILED
    assert message != ""
    with pytest.raises(type(eager.value)) as native:
        call.run()
    assert type(native.value) is type(eager.value)
    assert str(native.value) == str(eager.value)


def test_a_call_can_fail_and_then_succeed() -> None:
    index, output = torch.tensor([1, 4]), torch.zeros(2, 4)
    call = prepare(aten.embedding.default, (square(), index), {}, [output])
    with pytest.raises(IndexError, match="index out of range in self"):
        call.run()
    index[1] = 2
    call.run()
    assert torch.equal(output, square()[[1, 2]])


def test_a_failed_write_is_not_repeated() -> None:
    """ATen adds the first row before it sees the wrong index; raising must not add it again."""
    native, python = torch.zeros(3, 2), torch.zeros(3, 2)
    args = (0, torch.tensor([[0, 0], [9, 9]]), torch.ones(2, 2))
    assert enter(prepare(aten.scatter_add_.default, (native, *args), {}, []))[0] == OPERATOR_FAILED
    with pytest.raises(RuntimeError, match="index 9 is out of bounds"):
        prepare(aten.scatter_add_.default, (python, *args), {}, []).run()
    assert torch.equal(native, python)


@pytest.mark.parametrize(("op", "sizes"), [(aten.add.Tensor, (4, 5)), (aten.add.Tensor, (16,))])
def test_a_result_of_another_size_is_refused(op: OpOverload, sizes: tuple[int, ...]) -> None:
    memory = torch.full((64,), 7.0)
    output = memory[:20].view(4, 5) if sizes == (4, 5) else memory[:16]
    call = prepare(op, (square(), square()), {}, [output])
    for _ in range(2):
        code, message = enter(call)
        assert code == RESULT_MISMATCH
        assert "[4, 4]" in message
    with pytest.raises(InternalError, match="failed where eager does not"):
        call.run()
    assert (memory == 7).all()


def test_an_output_that_would_be_resized_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    memory = torch.full((64,), 7.0)
    call = prepare(aten.mul.Tensor, (square(), square()), {}, [memory[:30]])
    for _ in range(2):  # the second time too: the tensor is made anew
        code, message = enter(call)
        assert code == RESULT_MISMATCH
        assert "resized planned tensor 0 to sizes [4, 4]" in message
    assert (memory[30:] == 7).all()
    capfd.readouterr()  # torch's own warning


def test_a_message_is_cut_to_the_capacity() -> None:
    call = prepare(aten.mm.default, (square(3), square(4)), {}, [torch.empty(3, 4)])
    code, message = enter(call, capacity=10)
    assert (code, message) == (OPERATOR_FAILED, "mat1 and ")
    assert ENTRY(call.function)(call.context, None, 0) == OPERATOR_FAILED


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "output", "words"),
    [
        (aten.elu.default, (square(),), {}, square(), "takes Scalars, which the dispatcher's shim refuses"),
        (aten.add.Tensor, (torch.arange(3),) * 2, {}, torch.arange(3), "the result is torch.int64"),
        (aten.pow.Tensor_Scalar, (torch.arange(3), 2**70), {}, torch.arange(3), "not exact in float64"),
        (aten.full.default, ([2], 1e10), {}, torch.ones(2, dtype=torch.int32), "values of its Scalars"),
        (aten.var.correction, (square(), [1]), {"correction": 2}, torch.ones(4), "values of its Scalars"),
        (aten.arange.start_step, (0, 3), {}, torch.arange(3), "a constant of the plan"),
        (torch.ops.prims.cos.default, (square(),), {}, square(), "not an ATen operator"),
    ],
)
def test_what_has_no_route_is_refused(
    op: OpOverload, args: Any, kwargs: dict[str, Any], output: torch.Tensor, words: str
) -> None:
    with pytest.raises(NotSupportedError) as refusal:
        prepare(op, args, kwargs, [output])
    assert words in refusal.value.what
    assert refusal.value.where == op.name()
    assert refusal.value.hint == "run this operator as a host task"


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.empty(2, device="meta"), "it is on meta"),
        (torch.eye(2).to_sparse(), "it has the layout torch.sparse_coo"),
        (torch.ones(2, dtype=torch.complex64).conj(), "lazily conjugated"),
    ],
)
def test_tensors_that_are_not_plain_are_refused(tensor: torch.Tensor, words: str) -> None:
    with pytest.raises(NotSupportedError, match=words):
        prepare(aten.abs.default, (tensor,), {}, [torch.empty(2)])


@pytest.mark.parametrize(
    ("args", "kwargs", "outputs", "words"),
    [
        ((square(),), {}, [square()], "argument 'other' is missing"),
        ((square(), square()), {"self": 1}, [square()], "arguments do not fit"),
        ((square(), square()), {"beta": 1}, [square()], "arguments do not fit"),
        ((square(), square()), {}, [], "0 outputs for 1 results"),
        ((square(), square()), {}, [[square()]], "belongs to a list"),
    ],
)
def test_arguments_must_fit_the_schema(args: Any, kwargs: dict[str, Any], outputs: Any, words: str) -> None:
    with pytest.raises(InternalError, match=words):
        prepare(aten.mul.Tensor, args, kwargs, outputs)


def test_addresses_can_move() -> None:
    for op in (aten.mul.Tensor, aten.add.Tensor, aten.mm.default):
        a, b, c, d = (square(seed=seed) for seed in range(4))
        first, second = torch.zeros(4, 4), torch.zeros(4, 4)
        call = prepare(op, (a, b), {}, [first])
        call.run()
        for tensor, place in enumerate((second, c, d)):
            call.set_address(tensor, place.data_ptr())
        call.run()
        assert torch.equal(first, op(a, b))
        assert torch.equal(second, op(c, d))


def test_a_moved_call_fails_like_eager_at_its_new_address() -> None:
    good, bad = torch.tensor([1]), torch.tensor([5])
    call = prepare(aten.embedding.default, (square(), good), {}, [torch.empty(1, 4)])
    call.run()
    call.set_address(2, bad.data_ptr())
    with pytest.raises(IndexError, match="index out of range in self"):
        call.run()


def test_addresses_are_checked() -> None:
    call = prepare(aten.eq.Scalar, (square(), 1), {}, [square() > 0])
    with pytest.raises(InternalError, match="tensor 2 does not exist: the call has 2"):
        call.set_address(2, 64)  # the constant of the call has no number
    with pytest.raises(InternalError, match="tensor 1 has elements but no address"):
        call.set_address(1, 0)
    call.run()


def test_specs_need_no_tensor() -> None:
    memory = torch.arange(12, dtype=torch.float32)
    spec = TensorSpec(memory.data_ptr() + 4, torch.float32, (2, 2), (5, 2))
    output = torch.empty(2, 2)
    prepare(aten.neg.default, (spec,), {}, [TensorSpec.of(output)]).run()
    assert output.tolist() == [[-1, -3], [-6, -8]]


def test_zero_dimensions_and_no_elements() -> None:
    for tensor in (torch.tensor(3.0), torch.empty(0, 3), torch.tensor(3)):
        for op, other in ((aten.mul.Scalar, 0.1), (aten.lt.Scalar, 5), (aten.mul.Tensor, tensor)):
            expected = op(tensor, other)
            output = torch.zeros_like(expected)
            prepare(op, (tensor, other), {}, [output]).run()
            assert torch.equal(output, expected)
            assert output.dtype == expected.dtype


def test_bfloat16_scalars_of_zero_dimensions_keep_their_dtype() -> None:
    tensor = torch.tensor(1.7, dtype=torch.bfloat16)
    output = torch.zeros_like(tensor)
    prepare(aten.mul.Scalar, (tensor, 0.1), {}, [output]).run()
    assert torch.equal(output, tensor * 0.1)


def test_unwanted_results_are_dropped() -> None:
    values = torch.empty(4)
    call = prepare(aten.max.dim, (square(), 1), {}, [values, None])
    assert call.route.kind is RouteKind.DISPATCHER_COPY
    call.run()
    assert torch.equal(values, square().amax(1))


def test_results_that_a_mask_turns_off() -> None:
    image, weight = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
    grad = torch.randn(1, 3, 3, 3)
    args = (grad, image, weight, [3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, True])
    outputs = [torch.empty_like(weight), torch.empty(3)]
    prepare(aten.convolution_backward.default, args, {}, [None, *outputs]).run()
    expected = aten.convolution_backward.default(*args)
    assert torch.equal(outputs[0], expected[1])
    assert torch.equal(outputs[1], expected[2])


def test_in_place_operators_write_their_argument() -> None:
    cache, expected = torch.zeros(4, 4), torch.zeros(4, 4)
    args = ([torch.tensor([2, 0])], torch.ones(2, 4), True)
    call = prepare(aten.index_put_.default, (cache, *args), {}, [])
    for _ in range(3):
        call.run()
        expected.index_put_(*args)
    assert torch.equal(cache, expected)


def test_mutated_arguments_beside_results() -> None:
    image, mean, variance = torch.randn(2, 3, 4), torch.zeros(3), torch.ones(3)
    expected_mean, expected_variance = mean.clone(), variance.clone()
    args = (image, None, None)
    expected = aten._native_batch_norm_legit.default(*args, expected_mean, expected_variance, True, 0.1, 1e-5)
    outputs = [torch.empty_like(tensor) for tensor in expected]
    prepare(
        aten._native_batch_norm_legit.default, (*args, mean, variance, True, 0.1, 1e-5), {}, outputs
    ).run()
    assert torch.equal(mean, expected_mean)
    assert torch.equal(variance, expected_variance)
    for output, wanted in zip(outputs, expected, strict=True):
        assert torch.equal(output, wanted)


def test_random_numbers_come_from_the_default_generator() -> None:
    output = torch.empty(5)
    call = prepare(aten.rand.default, ([5],), {}, [output])
    torch.manual_seed(3)
    call.run()
    torch.manual_seed(3)
    assert torch.equal(output, torch.rand(5))


def test_large_results_are_copied_by_aten() -> None:
    a, b = torch.randn(300, 1000), torch.randn(1000)
    output = torch.empty(300, 1000)
    prepare(aten.add.Tensor, (a, b), {}, [output]).run()
    assert torch.equal(output, a + b)


def test_parameters_that_require_gradients() -> None:
    weight = torch.nn.Parameter(square())
    output = torch.empty(4, 4)
    prepare(aten.mm.default, (weight, weight), {}, [output]).run()
    assert not output.requires_grad
    assert torch.equal(output, (weight @ weight).detach())


def test_calls_run_on_any_thread() -> None:
    outputs = [torch.zeros(4, 4) for _ in range(8)]
    calls = [prepare(aten.mul.Tensor, (square(), square()), {}, [output]) for output in outputs]
    threads = [threading.Thread(target=lambda c=call: [c.run() for _ in range(50)]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for output in outputs:
        assert torch.equal(output, square() * square())


def test_descriptions_are_checked() -> None:
    library_class, description_class = _native.ShimLibrary, _native.ExternDescription
    path = f"{torch.__path__[0]}/lib/libtorch_cpu.so"
    library = library_class(path)
    with pytest.raises(RuntimeError, match="has not loaded /nowhere"):
        library_class("/nowhere/libtorch_cpu.so")
    cases = [
        (
            description_class("aoti_torch_cpu_nothing", "PP", "aten::abs", ""),
            "no symbol aoti_torch_cpu_nothing",
        ),
        (description_class("aoti_torch_cpu_abs", "PDPDPDP", "aten::abs", ""), "no call was built"),
        (description_class("aoti_torch_cpu_abs", "PP", "aten::abs", ""), "its signature is PP"),
    ]
    negative = description_class("", "", "aten::abs", "")
    negative.add_tensor(64, "float32", [-1], [1])
    cases.append((negative, "negative size or stride in dimension 0"))
    uneven = description_class("", "", "aten::abs", "")
    uneven.add_tensor(64, "float32", [1, 2], [1])
    cases.append((uneven, "has 2 sizes but 1 strides"))
    unknown = description_class("", "", "aten::abs", "")
    unknown.add_tensor(64, "float33", [1], [1])
    cases.append((unknown, "no constant 'dtype_float33'"))
    for description, words in cases:
        with pytest.raises(ValueError, match=words):
            _native.ExternCall(library, description)


def leak_cases() -> list[ExternCall]:
    a, b, out = square(8), square(8), torch.empty(8, 8)
    values, indices = torch.empty(8, 2), torch.zeros(8, 2, dtype=torch.int64)
    return [
        prepare(aten.add.Tensor, (a, b), {}, [out]),
        prepare(aten.cat.default, ([a, b],), {}, [torch.empty(16, 8)]),
        prepare(aten.topk.default, (a, 2), {}, [values, indices]),
        prepare(aten.lt.Scalar, (a, 0.5), {}, [torch.empty(8, 8, dtype=torch.bool)]),
        prepare(aten.gelu.default, (a,), {"approximate": "tanh"}, [out]),
        prepare(aten.index.Tensor, (a, [None, indices[0]]), {}, [torch.empty(8, 2)]),
        prepare(
            aten.sum.dim_IntList, (a, [0]), {"dtype": torch.float64}, [torch.empty(8, dtype=torch.float64)]
        ),
        prepare(
            aten.native_layer_norm.default, (a, [8], None, None, 1e-5), {}, [out, *[torch.empty(8, 1)] * 2]
        ),
        prepare(aten.index_select.default, (a, 0, torch.tensor([99])), {}, [out[:1]]),  # always fails
    ]


def test_nothing_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 000 native calls of each kind made, run and destroyed."""
    descriptions: list[Any] = []
    original = extern_call._native_call
    monkeypatch.setattr(
        extern_call,
        "_native_call",
        lambda description: descriptions.append(description) or original(description),
    )
    kept = leak_cases()
    process, library = psutil.Process(), shim_library()

    def rounds(count: int) -> int:
        for description in descriptions:
            fails = description is descriptions[-1]
            # A failure costs milliseconds: torch records where it was thrown.
            codes = {
                _native.ExternCall(library, description).run()[0]
                for _ in range(count // 100 if fails else count)
            }
            assert codes == {OPERATOR_FAILED if fails else 0}
        gc.collect()
        return process.memory_info().rss

    before = rounds(1000)
    # One leaked tensor of 8 x 8 elements per call would be over 2.5 MB.
    assert rounds(10_000) - before < 1_000_000
    assert len(kept) == len(descriptions)


def test_preparing_does_not_leak() -> None:
    leak_cases()
    gc.collect()
    process = psutil.Process()
    for _ in range(100):
        leak_cases()
    gc.collect()
    before = process.memory_info().rss
    for _ in range(200):
        leak_cases()
    gc.collect()
    assert process.memory_info().rss - before < 1_000_000


def test_native_routes_are_those_of_the_table() -> None:
    assert native_routes(aten.mm.default)[0].symbol == "aoti_torch_cpu_mm_out"
