"""What the machine that code is made for can do, as data.

Everything that differs between targets is a value in a `TargetSpec`; no pass asks which target it
works for. Today there is one target, the processor; cost-model inputs and further targets join here.
"""

from graphsink.target.isa import LEVELS, IsaLevel, parse_isa_level, select_isa_level
from graphsink.target.specification import CacheBytes, TargetSpec

__all__ = ["LEVELS", "CacheBytes", "IsaLevel", "TargetSpec", "parse_isa_level", "select_isa_level"]
