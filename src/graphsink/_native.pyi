"""
Native core of graphsink: processor facts, limits of this process, measurements.
"""

from collections.abc import Sequence


class CpuFeatures:
    """What this processor and operating system can run."""

    @property
    def architecture(self) -> str: ...

    @property
    def vendor(self) -> str: ...

    @property
    def brand(self) -> str: ...

    @property
    def features(self) -> list[str]:
        """Extensions that the processor has and the system enables."""

    @property
    def isa_level(self) -> str:
        """Highest level whose code runs here."""

def cpu_features() -> CpuFeatures:
    """
    Detected once per process. The first call asks Linux for permission to use AMX tiles.
    """

def isa_level_runs_here(level: str) -> bool:
    """
    Whether code built for a level runs here. ValueError for a name that is not a level.
    """

class CacheSizes:
    """Data cache sizes in bytes; 0 where unknown."""

    @property
    def l1d_bytes(self) -> int: ...

    @property
    def l2_bytes(self) -> int: ...

    @property
    def l3_bytes(self) -> int: ...

    @property
    def last_level_total_bytes(self) -> int:
        """Last level, summed over the instances behind the cores."""

def cache_sizes(cores: Sequence[int], sysfs_cpu: str = '/sys/devices/system/cpu') -> CacheSizes:
    """Caches behind the cores, from sysfs, else from the processor itself."""

class CpuQuota:
    """CPU time per period that a control group allows, in microseconds."""

    @property
    def quota_us(self) -> int: ...

    @property
    def period_us(self) -> int: ...

    @property
    def directory(self) -> str:
        """The group that sets it."""

class MemoryLimit:
    """Memory limit of a control group, in bytes."""

    @property
    def limit_bytes(self) -> int: ...

    @property
    def used_bytes(self) -> int:
        """Charged now, without file cache that can be dropped."""

    @property
    def directory(self) -> str:
        """The group that sets it."""

class AllowedCores:
    """The cores this process may use."""

    @property
    def affinity(self) -> list[int]:
        """Core ids, ascending."""

    @property
    def quota(self) -> CpuQuota | None:
        """Tightest CPU quota, or None."""

    @property
    def usable(self) -> int:
        """Threads worth starting: affinity capped by the quota, at least 1."""

def allowed_cores(proc_self: str = '/proc/self') -> AllowedCores:
    """
    Affinity of the calling thread and the tightest quota of its control groups.

    proc_self is the directory with `cgroup` and `mountinfo`; tests give a fake one.
    """

def tightest_memory_limit(proc_self: str = '/proc/self') -> MemoryLimit | None:
    """
    The memory limit with the least left, over the process's control group and its ancestors.
    """

class ReadBandwidth:
    """Result of `measure_read_bandwidth`; 1 GB is 1e9 bytes."""

    @property
    def best_gbps(self) -> float: ...

    @property
    def median_gbps(self) -> float: ...

    @property
    def bytes_per_round(self) -> int: ...

    @property
    def huge_pages_requested(self) -> bool: ...

def measure_read_bandwidth(cores: Sequence[int], buffer_bytes: int, rounds: int, level: str) -> ReadBandwidth:
    """
    Read a buffer with one pinned thread per core and time each round.

    Raises ValueError for a request that makes no sense, MemoryError if the buffer cannot be
    mapped, RuntimeError if a thread cannot be created or pinned. Releases the GIL.
    """
