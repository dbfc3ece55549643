"""Facts about this machine and this process, and the measured read bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import psutil

from graphsink.config.knobs import ISA
from graphsink.errors import CapacityError, DeviceError
from graphsink.runtime.native import require_native_module
from graphsink.target import CacheBytes, IsaLevel, TargetSpec, select_isa_level

MEBIBYTE: Final = 1 << 20
SMALLEST_BUFFER_BYTES: Final = 256 * MEBIBYTE
LEAST_BYTES_PER_THREAD: Final = 2 * MEBIBYTE


@dataclass(frozen=True, slots=True)
class CpuQuota:
    """CPU time that the control groups allow.

    Attributes:
        cores: quota divided by period; 1.5 is one and a half cores.
        directory: the control group that sets it.
    """

    cores: float
    directory: str


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """Memory in bytes.

    Attributes:
        total_bytes: physical memory, or the tightest control-group limit if that is less.
        available_bytes: what can be allocated now without swapping, under the same limit.
        limited_by: the control group whose limit counts, or ``None``.
    """

    total_bytes: int
    available_bytes: int
    limited_by: str | None


@dataclass(frozen=True, slots=True)
class Machine:
    """What the processor is and how much of it this process may use.

    Attributes:
        architecture: ``x86_64`` or ``aarch64``.
        vendor: vendor of the processor.
        brand: its marketing name.
        features: instruction-set extensions that can be used, in a fixed order.
        isa_detected: highest level that runs here.
        isa: the level in use; lower than detected when ``GRAPHSINK_ISA`` says so.
        cores: ids of the cores that the affinity of the calling thread allows, ascending.
        quota: CPU quota of the control groups, if there is one.
        threads: threads worth starting: the cores, capped by the whole cores in the quota.
        caches: data cache sizes in bytes.
        memory: memory when the facts were taken.
    """

    architecture: str
    vendor: str
    brand: str
    features: tuple[str, ...]
    isa_detected: IsaLevel
    isa: IsaLevel
    cores: tuple[int, ...]
    quota: CpuQuota | None
    threads: int
    caches: CacheBytes
    memory: MemoryFacts

    def target(self) -> TargetSpec:
        """The processor as a compiler target, with as many cores as threads."""
        return TargetSpec("cpu", self.isa, self.cores[: self.threads], self.caches)


@dataclass(frozen=True, slots=True)
class BandwidthResult:
    """Measured read bandwidth; 1 GB is 1e9 bytes.

    Attributes:
        best_gbps: fastest round.
        median_gbps: median round.
        buffer_bytes: bytes read per round, by all threads together.
        threads: threads that read, each pinned to one core.
        isa: level of the loads.
    """

    best_gbps: float
    median_gbps: float
    buffer_bytes: int
    threads: int
    isa: IsaLevel


def memory_facts(*, proc_self: str = "/proc/self") -> MemoryFacts:
    """Memory of the machine, as far as the control groups let this process have it.

    Args:
        proc_self: directory with ``cgroup`` and ``mountinfo``; tests give another one.
    """
    require_native_module()
    from graphsink import _native

    machine = psutil.virtual_memory()
    limit = _native.tightest_memory_limit(proc_self)
    if limit is None or limit.limit_bytes >= machine.total:
        return MemoryFacts(machine.total, machine.available, None)
    left = max(0, limit.limit_bytes - limit.used_bytes)
    return MemoryFacts(limit.limit_bytes, min(machine.available, left), limit.directory)


def machine_facts(*, choose_isa: bool = True, proc_self: str = "/proc/self") -> Machine:
    """Take the facts now; affinity, quota, memory and knobs may change between calls.

    Args:
        choose_isa: whether ``GRAPHSINK_ISA`` counts; without it, ``isa`` is what was detected.
        proc_self: directory with ``cgroup`` and ``mountinfo``; tests give another one.

    Raises:
        DeviceError: the native module is missing.
        IsaError: ``GRAPHSINK_ISA`` names a level that is unknown or does not run here.
    """
    require_native_module()
    from graphsink import _native

    features = _native.cpu_features()
    allowed = _native.allowed_cores(proc_self)
    caches = _native.cache_sizes(allowed.affinity)
    detected = IsaLevel(features.isa_level)
    quota = allowed.quota
    return Machine(
        architecture=features.architecture,
        vendor=features.vendor,
        brand=features.brand,
        features=tuple(features.features),
        isa_detected=detected,
        isa=select_isa_level(detected, ISA.read() if choose_isa else None),
        cores=tuple(allowed.affinity),
        quota=None if quota is None else CpuQuota(quota.quota_us / quota.period_us, quota.directory),
        threads=allowed.usable,
        caches=CacheBytes(caches.l1d_bytes, caches.l2_bytes, caches.l3_bytes, caches.last_level_total_bytes),
        memory=memory_facts(proc_self=proc_self),
    )


def default_buffer_bytes(machine: Machine) -> int:
    """Buffer for `read_bandwidth`: three times the last-level cache, at least 256 MiB.

    Three times, because a cache that keeps a part of the buffer between rounds would flatter the
    result. Never more than a quarter of the available memory.

    Raises:
        CapacityError: that quarter is less than twice the last-level cache: what would be measured is
            not memory.
    """
    last_level = machine.caches.last_level_total
    wanted = max(3 * last_level, SMALLEST_BUFFER_BYTES)
    allowed = machine.memory.available_bytes // 4
    if allowed < min(wanted, 2 * last_level):
        raise CapacityError(
            "too little free memory to measure beyond the last-level cache",
            needed=4 * 2 * last_level,
            available=machine.memory.available_bytes,
            hint="free some memory",
        )
    return min(wanted, allowed)


def read_bandwidth(threads: int, *, buffer_bytes: int | None = None, rounds: int = 7) -> BandwidthResult:
    """Measure how fast ``threads`` cores together read memory. Takes about a second.

    Args:
        threads: number of threads, each pinned to one of the allowed cores.
        buffer_bytes: bytes read per round, at least 2 MiB per thread; by default well above the
            last-level cache (see `default_buffer_bytes`). Rounded down to 2 MiB per thread.
        rounds: timed rounds.

    Raises:
        DeviceError: more threads than allowed cores, an argument below its minimum, or a thread that
            cannot be started.
        CapacityError: the buffer does not fit into the available memory.
        IsaError: see `machine_facts`.
    """
    machine = machine_facts()
    from graphsink import _native

    if not 1 <= threads <= len(machine.cores):
        raise DeviceError(
            f"read bandwidth was asked for {threads} threads; {len(machine.cores)} cores are allowed",
            hint=f"give 1 to {len(machine.cores)} threads, or widen the affinity (taskset, cpuset)",
        )
    wanted = default_buffer_bytes(machine) if buffer_bytes is None else buffer_bytes
    least = threads * LEAST_BYTES_PER_THREAD
    if wanted < least or rounds < 1:
        raise DeviceError(
            f"read bandwidth was asked for {rounds} rounds over {wanted:,} bytes",
            hint=f"give at least 1 round and {least:,} bytes (2 MiB per thread)",
        )
    available = machine.memory.available_bytes
    hint = "give a smaller buffer_bytes, or free some memory"
    if wanted > available:
        raise CapacityError(
            "the bandwidth buffer does not fit", needed=wanted, available=available, hint=hint
        )
    try:
        measured = _native.measure_read_bandwidth(
            list(machine.cores[:threads]), wanted, rounds, str(machine.isa)
        )
    except MemoryError as error:
        raise CapacityError(
            "the system refused the bandwidth buffer (a limit of this process, see ulimit -v)",
            needed=wanted,
            available=available,
            hint=hint,
        ) from error
    except RuntimeError as error:
        raise DeviceError(f"read bandwidth cannot be measured: {error}") from error
    return BandwidthResult(
        measured.best_gbps, measured.median_gbps, measured.bytes_per_round, threads, machine.isa
    )
