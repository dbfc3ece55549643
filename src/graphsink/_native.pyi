"""
Native core of graphsink: processor facts, limits of this process, measurements.
"""

from collections.abc import Sequence
from typing import Final


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

class ShimLibrary:
    """The C interface of the libtorch that this process has loaded."""

    def __init__(self, path: str) -> None:
        """
        `path` is that of libtorch_cpu.so. RuntimeError if it is not loaded or lacks symbols.
        """

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor version of torch as the library reports them."""

    def has_symbol(self, name: str) -> bool: ...

def extern_signatures() -> list[str]:
    """Signatures of typed shims that can be called."""

class ExternDescription:
    """Arguments and results of an extern call."""

    def __init__(self, symbol: str, signature: str, op: str, overload: str) -> None:
        """An empty symbol means the dispatcher."""

    def add_tensor(self, address: int, dtype: str, sizes: Sequence[int], strides: Sequence[int]) -> int:
        """A tensor over memory of the caller. Returns its index."""

    def add_constant(self, dtype: str, value: object) -> int:
        """A 0-dimensional tensor that the call owns. Returns its index."""

    def none(self) -> None: ...

    def no_list(self) -> None: ...

    def no_device(self) -> None: ...

    def tensor(self, index: int, optional: bool) -> None: ...

    def integer(self, value: int, optional: bool) -> None: ...

    def boolean(self, value: bool, optional: bool) -> None: ...

    def real(self, value: float, optional: bool) -> None: ...

    def string(self, value: str, optional: bool) -> None: ...

    def constant(self, name: str, optional: bool) -> None:
        """A number that only the library knows, such as `dtype_float32`."""

    def integers(self, values: Sequence[int], optional: bool) -> None: ...

    def booleans(self, values: Sequence[int], optional: bool) -> None: ...

    def reals(self, values: Sequence[float], optional: bool) -> None: ...

    def tensor_list(self, indices: Sequence[int]) -> None: ...

    def optional_tensor_list(self, indices: Sequence[int]) -> None:
        """-1 stands for None."""

    def returns_alias(self) -> None: ...

    def returns_tensor(self, index: int) -> None:
        """-1 ignores the value."""

    def returns_list(self, indices: Sequence[int]) -> None: ...

    def writes(self, index: int) -> None:
        """The operator writes this tensor itself."""

class ExternCall:
    """One ATen operator with its arguments, callable without Python."""

    def __init__(self, library: ShimLibrary, description: ExternDescription) -> None:
        """ValueError for a description that cannot be called."""

    def set_address(self, tensor: int, address: int) -> None:
        """
        Moves a tensor. ValueError for address 0 and for a constant, IndexError for an unknown tensor.
        """

    def address(self, tensor: int) -> int: ...

    @property
    def tensor_count(self) -> int: ...

    @property
    def context(self) -> int:
        """First argument of `function`; valid as long as this object."""

    function: Final[int] = ...
    """
    Address of int32_t run(void* context, char* message, uint64_t capacity).
    """

    def run(self) -> tuple[int, str]:
        """Runs once, without the GIL. Returns a code, 0 for success, and a text."""

    def time(self, rounds: int) -> float:
        """Mean seconds per call over `rounds` calls from native code."""

KERNEL_ABI_VERSION: int = 1

def kernel_levels(level: str) -> dict:
    """
    Prebuilt kernels to use at a level: name -> level that it was built for.
    """

def kernel_address(name: str, level: str) -> int:
    """
    Address of the build to use at a level. IndexError for an unknown name.
    """

def call_kernel(name: str, level: str, slots: list, block_dim: int = 1, scratch_bytes: int = 1048576) -> int:
    """
    Run all blocks of a kernel on this thread; slots are ints and floats. Returns the error code.
    """

def time_kernel(name: str, level: str, slots: list, block_dim: int, cores: Sequence[int], rounds: int, scratch_bytes: int = 1048576) -> list[float]:
    """Seconds of each of `rounds` runs with one pinned thread per core."""
