"""Kernels by name, and kernels from shared objects that a compiler made."""

from __future__ import annotations

import gc
import shutil
import subprocess
from pathlib import Path

import pytest

from graphsink.errors import KernelLibraryError
from graphsink.runtime.device import Device
from graphsink.runtime.graph_instance import GraphInstance
from graphsink.runtime.kernel_library import KernelLibrary
from graphsink.runtime.tasks import KernelTask, prebuilt_kernel
from support.graphs import integers

INCLUDE = Path(__file__).resolve().parents[2] / "csrc" / "include"
VERSION = "const uint32_t gs_kernel_abi_version = GS_KERNEL_ABI_VERSION;"
KERNEL = """
void scale(const gs_args* args, uint32_t block, uint32_t block_dim) {
    int64_t* values = (int64_t*)args->slots[0].address;
    (void)block_dim;
    values[block] = (int64_t)((double)values[block] * args->slots[1].f64);
}
"""


def build(directory: Path, source: str) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    code, library = directory / "kernels.c", directory / "kernels.so"
    code.write_text(f"#include <graphsink/kernel_abi.h>\n{source}")
    command = [compiler, "-std=c99", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{INCLUDE}", str(code)]
    subprocess.run([*command, "-o", str(library)], check=True)
    return library


def test_a_library_of_the_user_runs(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaded by a relative path; the kernel outlives every other reference to its library."""
    build(tmp_path, VERSION + KERNEL)
    monkeypatch.chdir(tmp_path)
    buffer, values = integers(device, [2, 4, 6])
    kernel = KernelLibrary(Path("kernels.so")).kernel("scale")
    graph = GraphInstance(device, [KernelTask(kernel=kernel, slots=[buffer, 2.5], block_dim=3)])
    del kernel
    gc.collect()
    graph.execute()
    assert values.tolist() == [5, 10, 15]


def test_a_library_without_the_version_is_refused(tmp_path: Path) -> None:
    library = build(tmp_path, KERNEL)
    with pytest.raises(KernelLibraryError, match=r"kernels\.so' does not export 'gs_kernel_abi_version'"):
        KernelLibrary(library)


def test_a_library_for_another_version_is_refused(tmp_path: Path) -> None:
    library = build(tmp_path, VERSION.replace("GS_KERNEL_ABI_VERSION;", "99;") + KERNEL)
    with pytest.raises(KernelLibraryError, match="was built for kernel interface 99; this is 1"):
        KernelLibrary(library)


def test_a_kernel_that_is_not_there_is_refused(tmp_path: Path) -> None:
    library = KernelLibrary(build(tmp_path, VERSION + KERNEL))
    for name in ("scalar", "gs_kernel_abi_version"):
        with pytest.raises(KernelLibraryError, match=f"has no kernel '{name}'"):
            library.kernel(name)


def test_files_that_are_no_library_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.so"
    text.write_text("not a library")
    for path in (text, tmp_path / "absent.so"):
        with pytest.raises(KernelLibraryError, match=f"{path.name}' cannot be loaded"):
            KernelLibrary(path)


def test_unknown_names_and_levels_are_refused() -> None:
    with pytest.raises(KernelLibraryError, match="no_such_kernel"):
        prebuilt_kernel("no_such_kernel", "scalar")
    with pytest.raises(KernelLibraryError, match="unknown ISA level 'sse9'"):
        prebuilt_kernel("empty", "sse9")
    other = "neon" if prebuilt_kernel("empty", "scalar").address and _is_x86() else "avx2"
    with pytest.raises(KernelLibraryError, match=other):
        prebuilt_kernel("empty", other)


def _is_x86() -> bool:
    from graphsink import _native

    return _native.cpu_features().architecture == "x86_64"
