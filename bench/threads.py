"""How our cores and ATen's threads share a machine: a chain of our kernel, ATen's mm, our kernel, and so on.

    python -m bench.threads            all variants, each setting of OpenMP in a process of its own
    python -m bench.threads --here     the variants in this process

Needs a C compiler. Prints microseconds per pair (ours, mm); the findings are in docs/design/threads.md.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from graphsink.runtime.device import Device
from graphsink.runtime.graph_instance import GraphInstance
from graphsink.runtime.kernel_library import KernelLibrary
from graphsink.runtime.tasks import CallTask, KernelTask, Task

REPOSITORY = Path(__file__).resolve().parents[1]
PAIRS = 20
ROUNDS = 9
SHAPES = ((1, 256, 256), (1, 1024, 1024), (8, 1024, 4096))
# Floats that our kernel changes: some microseconds, and about a millisecond.
COUNTS = (64 << 10, 2 << 20)
OPENMP = (
    {},
    {"OMP_WAIT_POLICY": "active"},
    {"OMP_WAIT_POLICY": "passive"},
    {"GOMP_SPINCOUNT": "1000"},
    {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"},
)


class Chain(ctypes.Structure):
    """`chain` of threads_probe.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("product", "out", "a", "b", "values")),
        ("count", ctypes.c_int64),
        ("run_parallel", ctypes.c_void_p),
        ("threads", ctypes.c_int64),
    )


@dataclass(frozen=True)
class Call:
    """A prepared call."""

    entry: int
    context: int


class Probe:
    """The chain for one shape."""

    def __init__(self, library: KernelLibrary, shape: tuple[int, int, int], count: int, threads: int) -> None:
        rows, inner, columns = shape
        self.library, self.threads = library, threads
        self.torch = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        self.values = torch.ones(count)
        self.a, self.weight = torch.randn(rows, inner), torch.randn(columns, inner)
        self.out = torch.empty(rows, columns)
        half = columns // threads
        self.outs = [torch.empty(rows, half) for _ in range(threads)]
        self.chain = Chain(
            self.address("aoti_torch_cpu_mm_out"), self.handle(self.out), self.handle(self.a),
            self.handle(self.weight.T), self.values.data_ptr(), self.values.numel(),
            self.address("torch_parallel_for"), threads,
        )  # fmt: skip
        pointers = ctypes.c_void_p * threads
        self.out_handles = pointers(*(self.handle(out) for out in self.outs))
        slices = [self.weight[i * half : (i + 1) * half].T for i in range(threads)]
        self.slice_handles = pointers(*(self.handle(one) for one in slices))

    def address(self, name: str, library: ctypes.CDLL | None = None) -> int:
        """Of a C function of libtorch, or of another library."""
        return ctypes.cast(getattr(library or self.torch, name), ctypes.c_void_p).value or 0

    def handle(self, tensor: torch.Tensor) -> int:
        """A tensor of the stable C interface on the same memory."""
        dimensions = ctypes.c_int64 * tensor.dim()
        result = ctypes.c_void_p()
        code = self.torch.aoti_torch_create_tensor_from_blob(
            ctypes.c_void_p(tensor.data_ptr()), ctypes.c_int64(tensor.dim()), dimensions(*tensor.shape),
            dimensions(*tensor.stride()), ctypes.c_int64(0), self.torch.aoti_torch_dtype_float32(), 0, 0,
            ctypes.byref(result),
        )  # fmt: skip
        if code != 0 or result.value is None:
            raise RuntimeError("aoti_torch_create_tensor_from_blob failed")
        return result.value

    def ours(self) -> KernelTask:
        """Our kernel, a block per core."""
        slots = [self.values.data_ptr(), self.values.numel()]
        return KernelTask(kernel=self.library.kernel("ours"), slots=slots, block_dim=self.threads)

    def exclusive(self) -> list[Task]:
        """ATen on its own threads, alone on the device."""
        entry = self.address("call_product", self.library._library)
        return [self.ours(), CallTask(call=Call(entry, ctypes.addressof(self.chain)))] * PAIRS

    def sliced(self) -> list[Task]:
        """ATen on one thread within a kernel of ours, a slice of the result per core."""
        slots = [
            self.chain.product, self.address("omp_set_num_threads"), ctypes.addressof(self.out_handles),
            self.chain.a, ctypes.addressof(self.slice_handles), self.address("omp_get_max_threads"),
        ]  # fmt: skip
        kernel = self.library.kernel("product_of_slice")
        return [self.ours(), KernelTask(kernel=kernel, slots=slots, block_dim=self.threads)] * PAIRS

    def team(self) -> None:
        """Our kernel inside of a parallel region of ATen; no device takes part."""
        run = self.library._library.run_on_team
        if run(ctypes.byref(self.chain), ctypes.c_int64(PAIRS)) != 0:
            raise RuntimeError("torch_parallel_for failed")

    def eager(self) -> None:
        """The same through Python."""
        for _ in range(PAIRS):
            self.values.mul_(0.5).add_(1.0)
            torch.mm(self.a, self.weight.T, out=self.out)


def build(directory: str) -> KernelLibrary:
    path = Path(directory) / "threads_probe.so"
    source = REPOSITORY / "bench" / "threads_probe.c"
    flags = ["-std=c99", "-O3", "-mavx2", "-shared", "-fPIC", f"-I{REPOSITORY / 'csrc' / 'include'}"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(path)], check=True)
    return KernelLibrary(path)


def measure_here() -> None:
    """One line per shape and variant: microseconds per pair, median and best of interleaved rounds."""
    # OMP_PROC_BIND binds this thread, too, when torch is imported; a device would see one core only.
    os.sched_setaffinity(0, os.sched_getaffinity(os.getppid()))
    threads = torch.get_num_threads()
    spins = (0.0, 20e-6, 200e-6)
    with tempfile.TemporaryDirectory() as directory:
        library = build(directory)
        devices = {
            f"exclusive, call_spin {spin * 1e6:.0f} us": Device(threads, call_spin_s=spin) for spin in spins
        }
        slice_device = Device(threads)
        for shape, count in itertools.product(SHAPES, COUNTS):
            probe = Probe(library, shape, count, threads)
            variants: dict[str, Callable[[], None]] = {
                "op by op from Python": probe.eager,
                "ours in ATen's team": probe.team,
            }
            for name, device in devices.items():
                variants[name] = GraphInstance(device, probe.exclusive()).execute
            variants["each core its slice"] = GraphInstance(slice_device, probe.sliced()).execute
            report(f"{'x'.join(map(str, shape))} + {count >> 10}k", variants)


def report(what: str, variants: dict[str, Callable[[], None]]) -> None:
    times: dict[str, list[float]] = {name: [] for name in variants}
    for round_number in range(ROUNDS + 2):
        for name, run in variants.items():
            begin = time.perf_counter()
            run()
            if round_number >= 2:
                times[name].append((time.perf_counter() - begin) / PAIRS * 1e6)
    for name, values in times.items():
        print(f"{what:>20}  {name:28} {statistics.median(values):9.1f} {min(values):9.1f}", flush=True)


if __name__ == "__main__":
    if "--here" in sys.argv:
        with torch.inference_mode():
            measure_here()
    else:
        for setting in OPENMP:
            print("OpenMP:", setting or "default", flush=True)
            command = [sys.executable, "-m", "bench.threads", "--here"]
            subprocess.run(command, check=True, env={**os.environ, **setting})
