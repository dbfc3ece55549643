"""Machine facts and the bandwidth measurement as the Python layers see them."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from graphsink import _native
from graphsink.errors import CapacityError, DeviceError, IsaError
from graphsink.runtime.machine import default_buffer_bytes, machine_facts, memory_facts, read_bandwidth
from graphsink.runtime.toolchain import Toolchain, check_toolchain, find_toolchain
from graphsink.target import CacheBytes, IsaLevel

MIB = 1 << 20


def fake_v2_group(root: Path, **files: str) -> str:
    """A /proc/self whose only control group is ``root / "fs"`` with the given files."""
    group = root / "fs"
    group.mkdir()
    (root / "mountinfo").write_text(f"31 22 0:28 / {group} rw - cgroup2 cgroup2 rw\n")
    (root / "cgroup").write_text("0::/\n")
    for name, text in files.items():
        (group / name.replace("__", ".")).write_text(text)
    return str(root)


def test_facts_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHSINK_ISA", raising=False)
    facts = machine_facts()
    assert facts.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert 1 <= facts.threads <= len(facts.cores)
    assert facts.isa is facts.isa_detected is IsaLevel(_native.cpu_features().isa_level)
    assert facts.brand and facts.vendor and facts.architecture == os.uname().machine
    assert facts.memory.total_bytes <= psutil.virtual_memory().total
    assert 0 < facts.memory.available_bytes <= facts.memory.total_bytes


def test_the_knob_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHSINK_ISA", "scalar")
    assert machine_facts().isa is IsaLevel.SCALAR
    assert machine_facts(choose_isa=False).isa is machine_facts().isa_detected
    monkeypatch.setenv("GRAPHSINK_ISA", "sse9")
    with pytest.raises(IsaError, match="unknown instruction-set level 'sse9'"):
        machine_facts()


def test_target_has_as_many_cores_as_threads(tmp_path: Path) -> None:
    facts = machine_facts(proc_self=fake_v2_group(tmp_path, cpu__max="150000 100000"))
    assert facts.quota is not None
    assert (facts.quota.cores, facts.threads) == (1.5, 1)
    target = facts.target()
    assert (target.name, target.isa, target.cores, target.caches) == (
        "cpu",
        facts.isa,
        facts.cores[:1],
        facts.caches,
    )


def test_memory_limit_of_a_control_group(tmp_path: Path) -> None:
    proc_self = fake_v2_group(
        tmp_path,
        memory__max=str(64 * MIB),
        memory__current=str(40 * MIB),
        memory__stat=f"inactive_file {MIB}\n",
    )
    memory = memory_facts(proc_self=proc_self)
    assert memory.total_bytes == 64 * MIB
    assert memory.available_bytes == min(25 * MIB, psutil.virtual_memory().available)
    assert memory.limited_by == str(tmp_path / "fs")


def test_limit_above_the_machine_does_not_count(tmp_path: Path) -> None:
    proc_self = fake_v2_group(tmp_path, memory__max=str(1 << 61), memory__current="0")
    memory = memory_facts(proc_self=proc_self)
    assert (memory.total_bytes, memory.limited_by) == (psutil.virtual_memory().total, None)


def test_group_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    proc_self = fake_v2_group(tmp_path, memory__max="4096", memory__current="8192")
    assert memory_facts(proc_self=proc_self).available_bytes == 0


@pytest.mark.parametrize(
    ("last_level", "available", "expected"),
    [
        (300 * MIB, 16384 * MIB, 900 * MIB),
        (8 * MIB, 16384 * MIB, 256 * MIB),
        (0, 16384 * MIB, 256 * MIB),
        (300 * MIB, 2600 * MIB, 650 * MIB),
    ],
)
def test_default_buffer(last_level: int, available: int, expected: int) -> None:
    facts = machine_facts(choose_isa=False)
    facts = replace(
        facts,
        caches=CacheBytes(0, 0, 0, last_level),
        memory=replace(facts.memory, available_bytes=available),
    )
    assert default_buffer_bytes(facts) == expected


def test_no_bandwidth_is_better_than_that_of_the_cache() -> None:
    """With little free memory the buffer would stay in the last-level cache."""
    facts = machine_facts(choose_isa=False)
    facts = replace(
        facts,
        caches=CacheBytes(0, 0, 0, 300 * MIB),
        memory=replace(facts.memory, available_bytes=1024 * MIB),
    )
    with pytest.raises(CapacityError, match="beyond the last-level cache") as error:
        default_buffer_bytes(facts)
    assert (error.value.needed, error.value.available) == (2400 * MIB, 1024 * MIB)


def test_read_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHSINK_ISA", "scalar")
    result = read_bandwidth(1, buffer_bytes=9 * MIB, rounds=2)
    assert (result.buffer_bytes, result.threads, result.isa) == (8 * MIB, 1, IsaLevel.SCALAR)
    assert result.best_gbps >= result.median_gbps > 0


@pytest.mark.parametrize("threads", [0, -1, 100_000])
def test_read_bandwidth_with_a_wrong_number_of_threads(threads: int) -> None:
    cores = len(os.sched_getaffinity(0))
    with pytest.raises(DeviceError, match=f"asked for {threads} threads; {cores} cores are allowed"):
        read_bandwidth(threads, buffer_bytes=16 * MIB)


@pytest.mark.parametrize(("size", "rounds"), [(MIB, 1), (16 * MIB, 0), (-1, 1)])
def test_read_bandwidth_with_too_little(size: int, rounds: int) -> None:
    with pytest.raises(DeviceError, match="at least 1 round and 2,097,152 bytes"):
        read_bandwidth(1, buffer_bytes=size, rounds=rounds)


def test_read_bandwidth_over_more_than_there_is() -> None:
    with pytest.raises(CapacityError) as caught:
        read_bandwidth(1, buffer_bytes=1 << 60)
    assert caught.value.needed == 1 << 60
    assert 0 < caught.value.available <= psutil.virtual_memory().total
    assert "1,152,921,504,606,846,976 bytes" in str(caught.value)


def test_missing_native_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphsink._native", None)
    with pytest.raises(DeviceError, match="the native module cannot be loaded") as caught:
        machine_facts()
    assert caught.value.hint is not None
    assert "pip" in caught.value.hint


def write_compiler(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_compiler_is_found_and_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    toolchain = find_toolchain()
    assert Path(toolchain.command[0]).is_absolute()
    assert toolchain.version
    check_toolchain(toolchain)


def test_words_around_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = write_compiler(tmp_path / "wrapper", 'echo "wrapped $1 $2"')
    monkeypatch.setenv("CXX", f"{compiler} g++")
    assert find_toolchain() == Toolchain((compiler, "g++"), "wrapped g++ --version")


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError, match=r"no C\+\+ compiler found \(looked for g\+\+, clang\+\+, c\+\+\)"):
        find_toolchain()
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(DeviceError, match="looked for no-such-compiler") as caught:
        find_toolchain()
    assert caught.value.where == "environment variable CXX"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'probe.cpp: too old' >&2; exit 3", r"cannot compile .* \(exit code 3\): probe.cpp: too old"),
        ('for last; do :; done; : > "$last"', "cannot be loaded"),
        ('for last; do :; done; echo "extern \\"C\\" int graphsink_probe() { return 7; }" '
         '| g++ -x c++ - -shared -fPIC -o "$last"', "wrong answer: 7, not 42"),
    ],
)  # fmt: skip
def test_compilers_that_do_not_work(tmp_path: Path, script: str, message: str) -> None:
    compiler = write_compiler(tmp_path / "compiler", script)
    with pytest.raises(DeviceError, match=message):
        check_toolchain(Toolchain((compiler,), "fake"))


def test_a_compiler_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="cannot compile"):
        check_toolchain(Toolchain((str(tmp_path / "absent"),), "fake"))
