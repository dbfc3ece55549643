"""
Native core of graphsink: processor facts, limits of this process, measurements.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final


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

def kernel_levels(level: str) -> dict[str, str]:
    """
    Prebuilt kernels to use at a level: name -> level that it was built for.
    """

def kernel_address(name: str, level: str) -> int:
    """
    Address of the build to use at a level. IndexError for an unknown name.
    """

def call_kernel(name: str, level: str, slots: list[int | float], block_dim: int = 1, scratch_bytes: int = 1048576) -> int:
    """
    Run all blocks of a kernel on this thread; slots are ints and floats. Returns the error code.
    """

def time_kernel(name: str, level: str, slots: list[int | float], block_dim: int, cores: Sequence[int], rounds: int, scratch_bytes: int = 1048576) -> list[float]:
    """Seconds of each of `rounds` runs with one pinned thread per core."""

class HostCall:
    """A Python callable as a task."""

    def __init__(self, function: Callable[[], object]) -> None: ...

    @property
    def entry(self) -> int: ...

    @property
    def context(self) -> int: ...

    def take_error(self) -> object:
        """The exception of the last run, or None; clears it."""

class Outcome:
    """How an execution ended."""

    @property
    def result(self) -> int:
        """
        0 ok, 1 failed, 2 aborted, 3 timed out, 4 refused (`code` is the state that forbids it).
        """

    @property
    def task_id(self) -> int: ...

    @property
    def core(self) -> int: ...

    @property
    def code(self) -> int: ...

    @property
    def message(self) -> str: ...

class Instance:
    """A lowered program with its parameters."""

    @property
    def state(self) -> str: ...

    @property
    def num_steps(self) -> int: ...

    @property
    def num_waits(self) -> int: ...

    @property
    def num_regions(self) -> int: ...

    @property
    def id(self) -> int: ...

    def label(self, task_id: int) -> tuple[str, str, str]:
        """
        (kind, name, module path) of a task; ids count all tasks, bodies included.
        """

    @property
    def num_tasks(self) -> int: ...

    def set_parameter(self, index: int, value: object) -> bool:
        """False, without a change, while the instance runs."""

    def fault(self) -> Outcome:
        """The fault of a submitted run that nobody has taken yet."""

    def clear_fault(self) -> bool:
        """FAULT -> READY; False if somebody else has done it."""

    def end_run(self) -> None:
        """RUNNING -> READY, after `Device.execute` gave a fault."""

    def destroy(self) -> bool:
        """False while the instance runs."""

    def wait(self, spin_s: float, timeout_s: float) -> bool:
        """False after the time-out; a negative one never ends. Signals are seen."""

def lower_tasks(tasks: list[dict[str, Any]], num_cores: int, num_parameters: int, id: int) -> Instance:
    """
    Turn a task list into an instance. ValueError, naming the task, for a list that cannot run.
    """

class ArenaStatistics:
    """Memory of a device, in bytes."""

    @property
    def mapped_bytes(self) -> int: ...

    @property
    def used_bytes(self) -> int: ...

    @property
    def peak_used_bytes(self) -> int: ...

    @property
    def allocations(self) -> int: ...

    @property
    def huge_pages(self) -> bool: ...

class Arena:
    """64-byte aligned memory on 2 MiB pages."""

    def __init__(self) -> None: ...

    def allocate(self, bytes: int) -> int:
        """Address; MemoryError if the system gives no more."""

    def free(self, address: int) -> None:
        """ValueError for an address that is not allocated."""

    def poison(self, byte: int) -> None:
        """Fill everything that is not handed out."""

    def statistics(self) -> ArenaStatistics: ...

class Device:
    """Cores that run instances one after another."""

    def __init__(self, cores: Sequence[int], pin: bool, idle_spin_s: float, call_spin_s: float, scratch_bytes: int) -> None: ...

    @property
    def num_cores(self) -> int: ...

    @property
    def runs(self) -> int:
        """Executions so far."""

    @property
    def parks(self) -> int:
        """How often a core slept while another ran a call."""

    @property
    def belongs_to_this_process(self) -> bool: ...

    @property
    def runs_on_this_thread(self) -> bool:
        """True inside of a call that a run of this device makes on this thread."""

    def execute(self, instance: Instance, timeout_s: float) -> Outcome | None:
        """
        Run on all cores, this thread included. None after a good run. After a fault the instance stays
        RUNNING until `Instance.end_run`; a refused run changes nothing.
        """

    def submit(self, instance: Instance) -> int:
        """Queue a run; 1 if it was queued, else the state that forbids it."""

    def abort(self, instance: Instance) -> None: ...

    def shutdown(self) -> None: ...

    def start_trace(self, events_per_core: int) -> bool:
        """False if a trace is on already."""

    def stop_trace(self) -> None: ...

    def set_poison(self, poison: bool) -> None: ...

    def step_events(self) -> list[tuple[int, int, int, int, int, int, int, int]]:
        """
        (run, instance, task id, core, ready, begin, end in ns, task waited for or -1), per core in order.
        """

    def host_events(self) -> list[tuple[int, int, int, int, int]]:
        """(run, instance, submit, start, end in ns)."""

    def dropped_events(self) -> int:
        """Older events that made room for newer ones."""
