"""`TargetSpec`: the facts about a target that compiler passes and kernels may ask for."""

from __future__ import annotations

from dataclasses import dataclass

from graphsink.target.isa import IsaLevel


@dataclass(frozen=True, slots=True)
class CacheBytes:
    """Data cache sizes in bytes; 0 where the system does not tell.

    Attributes:
        l1d: first level of one core.
        l2: the second-level instance behind the first allowed core.
        l3: the third-level instance behind the first allowed core.
        last_level_total: last level, summed over the instances behind the allowed cores.
    """

    l1d: int
    l2: int
    l3: int
    last_level_total: int


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """A processor target.

    Attributes:
        name: name of the target (``"cpu"``).
        isa: level that code is generated and kernels are chosen for.
        cores: operating-system ids of the cores that work is spread over.
        caches: data cache sizes.
    """

    name: str
    isa: IsaLevel
    cores: tuple[int, ...]
    caches: CacheBytes
