"""Processor facts of the native module against what Linux says."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from graphsink import _native

X86 = platform.machine() == "x86_64"
LEVELS = ("scalar", "avx2", "avx512", "avx512_bf16", "amx", "neon")

# The definition of the levels once more, in the names of /proc/cpuinfo.
X86_LADDER = (
    ("avx2", {"avx2", "fma", "f16c"}),
    ("avx512", {"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    ("avx512_bf16", {"avx512_bf16"}),
    ("amx", {"amx_tile", "amx_bf16"}),
)


def cpuinfo(key: str) -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


@pytest.mark.skipif(not X86, reason="x86 names")
def test_features_are_those_of_the_kernel() -> None:
    flags = set(cpuinfo("flags").split())
    found = set(_native.cpu_features().features)
    # Tiles also need a permission, so AMX may be absent although the flag is there.
    assert {f for f in found if not f.startswith("amx")} <= flags
    named = {"fma", "avx", "f16c", "avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"}
    assert found & named == flags & named


@pytest.mark.skipif(not X86, reason="x86 levels")
def test_level_follows_from_the_features() -> None:
    features = set(_native.cpu_features().features)
    expected = "scalar"
    for level, needs in X86_LADDER:
        if not needs <= features:
            break
        expected = level
    assert _native.cpu_features().isa_level == expected


def test_names() -> None:
    features = _native.cpu_features()
    assert features.architecture == platform.machine()
    assert features.brand
    if X86:
        assert features.vendor == cpuinfo("vendor_id")
        assert features.brand == cpuinfo("model name")


def test_levels_up_to_the_detected_one_run_here() -> None:
    detected = _native.cpu_features().isa_level
    runs = [level for level in LEVELS if _native.isa_level_runs_here(level)]
    ladder = ("scalar", "neon") if detected == "neon" else LEVELS[:5]
    assert runs == list(ladder[: ladder.index(detected) + 1])
    with pytest.raises(ValueError, match="unknown ISA level 'sse9'"):
        _native.isa_level_runs_here("sse9")


@pytest.mark.skipif(not X86, reason="tiles are an x86 feature")
def test_an_amx_level_has_the_permission_to_use_tiles() -> None:
    # LDTILECFG alone needs none; the kernel's answer to ARCH_GET_XCOMP_PERM is what counts.
    program = (
        "import ctypes; from graphsink import _native; level = _native.cpu_features().isa_level;"
        "mask = ctypes.c_uint64(); libc = ctypes.CDLL(None);"
        "code = libc.syscall(158, 0x1022, ctypes.byref(mask));"
        "print(level, bool(mask.value >> 18 & 1) if code == 0 else False)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    level, permitted = done.stdout.split()
    assert (level == "amx") <= (permitted == "True")


def write_cache(cpu: Path, index: int, level: int, kind: str, size: str, shared: str) -> None:
    entry = cpu / "cache" / f"index{index}"
    entry.mkdir(parents=True)
    for name, value in (("level", str(level)), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
        (entry / name).write_text(value + "\n")


def test_cache_sizes_from_sysfs(tmp_path: Path) -> None:
    # Four cores in two clusters; each cluster has an L3 of its own.
    for core in range(4):
        cpu = tmp_path / f"cpu{core}"
        cluster = "0-1" if core < 2 else "2-3"
        write_cache(cpu, 0, 1, "Data", "48K", str(core))
        write_cache(cpu, 1, 1, "Instruction", "64K", str(core))
        write_cache(cpu, 2, 2, "Unified", "2M", str(core))
        write_cache(cpu, 3, 3, "Unified", "32768K", cluster)
    sizes = _native.cache_sizes([0, 1, 2, 3], str(tmp_path))
    assert (sizes.l1d_bytes, sizes.l2_bytes, sizes.l3_bytes) == (48 << 10, 2 << 20, 32 << 20)
    assert sizes.last_level_total_bytes == 64 << 20
    assert _native.cache_sizes([0, 1], str(tmp_path)).last_level_total_bytes == 32 << 20


def test_last_level_may_be_the_second(tmp_path: Path) -> None:
    for core in range(2):
        write_cache(tmp_path / f"cpu{core}", 0, 1, "Data", "32K", str(core))
        write_cache(tmp_path / f"cpu{core}", 1, 2, "Unified", "1024K", "0-1")
    sizes = _native.cache_sizes([0, 1], str(tmp_path))
    assert (sizes.l2_bytes, sizes.l3_bytes, sizes.last_level_total_bytes) == (1 << 20, 0, 1 << 20)


def test_damaged_sysfs_entries_are_skipped(tmp_path: Path) -> None:
    write_cache(tmp_path / "cpu0", 0, 1, "Data", "lots", "0")
    write_cache(tmp_path / "cpu0", 1, 2, "Unified", "512K", "0")
    sizes = _native.cache_sizes([0], str(tmp_path))
    assert (sizes.l1d_bytes, sizes.l2_bytes) == (0, 512 << 10)


@pytest.mark.skipif(not X86, reason="cpuid")
def test_cache_sizes_without_sysfs_come_from_the_processor(tmp_path: Path) -> None:
    sizes = _native.cache_sizes([0], str(tmp_path))
    assert sizes.l1d_bytes >= 8 << 10
    assert sizes.last_level_total_bytes >= sizes.l2_bytes


def test_the_type_stub_is_what_the_module_gives(tmp_path: Path) -> None:
    made = tmp_path / "made.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "graphsink._native", "-o", str(made)]
    subprocess.run(command, check=True)
    import graphsink

    committed = Path(graphsink.__file__).with_name("_native.pyi")
    assert committed.read_text() == made.read_text(), (
        "run: python -m nanobind.stubgen -m graphsink._native -o src/graphsink/_native.pyi"
    )
