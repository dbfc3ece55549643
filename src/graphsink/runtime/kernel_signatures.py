"""What each prebuilt kernel expects in its argument slots.

One table for everyone who fills slots or reads about them: the planner, checks, tests and
``docs/design/kernels.md``. A test compares its names with the kernels that are built in, and its slots with
the comments of the sources. Semantics are described in the sources, ``csrc/kernels/isa/*.cpp``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Kind = Literal["address", "int", "float"]
Access = Literal["read", "write", "update", ""]

# What `Slot.dtype` says where it is the dtype that the kernel's name ends with.
OWN_DTYPE = "T"
_DTYPES = {"bf16": "bfloat16", "f32": "float32"}


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument of eight bytes.

    Attributes:
        name: as in the comment of the kernel's source.
        kind: an address, a signed 64-bit integer or a double.
        dtype: of the elements behind an address, as torch names it; empty for scalars.
        shape: of what is behind an address, in words; for a scalar what it counts or chooses.
        access: whether the kernel reads, writes or updates what is behind an address.
    """

    name: str
    kind: Kind
    dtype: str
    shape: str
    access: Access = ""


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """Slots of one kernel, in order.

    Attributes:
        name: as registered, for example ``rms_norm_bf16``.
        slots: what `gs_args.slots` holds.
    """

    name: str
    slots: tuple[Slot, ...]


def _read(name: str, shape: str, dtype: str = OWN_DTYPE) -> Slot:
    return Slot(name, "address", dtype, shape, "read")


def _write(name: str, shape: str, dtype: str = OWN_DTYPE) -> Slot:
    return Slot(name, "address", dtype, shape, "write")


def _update(name: str, shape: str, dtype: str = OWN_DTYPE) -> Slot:
    return Slot(name, "address", dtype, shape, "update")


def _int(name: str, meaning: str) -> Slot:
    return Slot(name, "int", "", meaning)


def _float(name: str, meaning: str) -> Slot:
    return Slot(name, "float", "", meaning)


# Kernels without a dtype in their name.
_ELEMENTARY: dict[str, tuple[Slot, ...]] = {
    "empty": (),
    "count_block": (_update("counters", "[block_dim]", "int64"),),
    "add_to": (_update("target", "one element", "int64"), _int("value", "is added")),
    "combine": (
        _write("destination", "[length]", "uint64"),
        _read("a", "[length]", "uint64"),
        _read("b", "[length]", "uint64"),
        _int("constant", "is added"),
        _int("length", "elements"),
    ),
    "delay": (_int("core", "is kept busy; others return"), _int("nanoseconds", "how long")),
    "fail": (_int("code", "is reported as the error"),),
    "fail_on_core": (_int("core", "reports the number of the block as a fault"),),
    "meet": (
        _update("flags", "[block_dim]", "int64"),
        _int("nanoseconds", "after which not having met is a fault"),
    ),
    "meet_tasks": (
        _update("flags", "[count]", "int64"),
        _int("index", "of this task"),
        _int("count", "tasks that meet"),
        _int("nanoseconds", "after which not having met is a fault"),
    ),
}

_UNARY = (_read("input", "[count]"), _write("output", "[count]"), _int("count", "elements"))
_BINARY = (
    _read("a", "[count]"),
    _read("b", "[count]"),
    _write("output", "[count]"),
    _int("count", "elements"),
)
_GATED = (
    _read("gate", "[rows, columns], rows gate_stride apart"),
    _read("up", "[rows, columns], rows up_stride apart"),
    _write("output", "[rows, columns], rows output_stride apart"),
    _int("rows", "rows"),
    _int("columns", "elements of a row"),
    _int("gate_stride", "elements from row to row"),
    _int("up_stride", "elements from row to row"),
    _int("output_stride", "elements from row to row"),
)
_EPSILON = _float("epsilon", "is added to the mean square")
_FLAGS = _int("flags", "1: weight + 1; 2: round before the weight; 3: both")
_POOL = (
    _read("key_cache", "[blocks, block_size, kv_heads, key_size]"),
    _read("value_cache", "[blocks, block_size, kv_heads, value_size]"),
    _read("block_table", "[sequences, table_columns]", "int32"),
)
_POOL_SIZES = (
    _int("sequences", "sequences"),
    _int("heads", "query heads; a multiple of kv_heads"),
    _int("kv_heads", "key-value heads"),
    _int("key_size", "elements of a key"),
    _int("value_size", "elements of a value"),
    _int("blocks", "blocks in the pool"),
    _int("block_size", "tokens of a block"),
    _int("table_columns", "blocks in a row of block_table"),
    _int("query_stride", "elements from token to token of query"),
    _float("scale", "of the scores"),
    _int("window", "positions that a token sees; 0 for all"),
    _float("softcap", "bound of the scores; 0 for none"),
)
_SEQ_LENS = _read("seq_lens", "[sequences]: tokens in the pool, this step's included", "int32")
_WORKSPACE_SHAPE = "[sequences, chunks, heads, round_up(value_size, 16) + 16], see decode_workspace_floats"

# Kernels that exist once per dtype; "T" stands for it.
_FAMILIES: dict[str, tuple[Slot, ...]] = {
    "linear": (
        _read("x", "[M, K], rows x_row_stride apart"),
        _read("packed", "a packed weight, see docs/design/linear.md", "uint8"),
        _read("bias", "[N], or null"),
        _write("y", "[M, N], rows y_row_stride apart"),
        _int("M", "rows"),
        _int("N", "outputs"),
        _int("K", "inputs"),
        _int("x_row_stride", "elements from row to row"),
        _int("y_row_stride", "elements from row to row"),
    ),
    "pack_linear": (
        _read("rows", "rows first to last - 1 of W[N, K], row_stride apart"),
        _write("packed", "the whole packed weight", "uint8"),
        _int("first", "first row; a multiple of 16"),
        _int("last", "one past the last row; a multiple of 16, or N"),
        _int("N", "outputs"),
        _int("K", "inputs"),
        _int("row_stride", "elements from row to row"),
    ),
    "dot_peak": (
        _int("iterations", "rounds of the register loop"),
        _write("flops", "[block_dim]", "float64"),
    ),
    **dict.fromkeys(("exp", "tanh", "erf", "silu", "gelu_tanh", "gelu_erf"), _UNARY),
    **dict.fromkeys(("add", "mul"), _BINARY),
    **dict.fromkeys(("silu_mul", "gelu_tanh_mul", "gelu_erf_mul"), _GATED),
    "rms_norm": (
        _read("input", "[rows, columns], rows input_stride apart"),
        _read("weight", "[columns], or null"),
        _write("output", "[rows, columns]"),
        _int("rows", "rows"),
        _int("columns", "elements of a row"),
        _int("input_stride", "elements from row to row"),
        _EPSILON,
        _FLAGS,
    ),
    "add_rms_norm": (
        _read("input", "[rows, columns]"),
        _read("residual", "[rows, columns]"),
        _read("weight", "[columns], or null"),
        _write("sum", "[rows, columns]; may be input or residual"),
        _write("output", "[rows, columns]"),
        _int("rows", "rows"),
        _int("columns", "elements of a row"),
        _EPSILON,
        _FLAGS,
    ),
    "layer_norm": (
        _read("input", "[rows, columns]"),
        _read("weight", "[columns], or null"),
        _read("bias", "[columns], or null"),
        _write("output", "[rows, columns]"),
        _int("rows", "rows"),
        _int("columns", "elements of a row"),
        _float("epsilon", "is added to the variance"),
    ),
    "rope": (
        _update("query", "[tokens, query_heads, head_size], tokens query_stride apart"),
        _update("key", "[tokens, key_heads, head_size], tokens key_stride apart"),
        _read("cosine", "[tokens, rotary_size]"),
        _read("sine", "[tokens, rotary_size]"),
        _int("tokens", "tokens"),
        _int("query_heads", "heads of query"),
        _int("key_heads", "heads of key"),
        _int("head_size", "elements of a head"),
        _int("rotary_size", "elements of a head that turn; even"),
        _int("query_stride", "elements from token to token"),
        _int("key_stride", "elements from token to token"),
    ),
    "embedding": (
        _read("ids", "[tokens]", "int64"),
        _read("table", "[vocabulary, width]"),
        _write("output", "[tokens, width]"),
        _int("tokens", "tokens"),
        _int("vocabulary", "rows of the table"),
        _int("width", "elements of a row"),
    ),
    "argmax": (
        _read("input", "[rows, columns], rows input_stride apart"),
        _write("output", "[rows]", "int64"),
        _int("rows", "rows"),
        _int("columns", "elements of a row"),
        _int("input_stride", "elements from row to row"),
    ),
    "top_k": (
        _read("input", "[rows, columns], rows input_stride apart"),
        _write("values", "[rows, k], greatest first"),
        _write("indices", "[rows, k]", "int64"),
        _int("rows", "rows"),
        _int("columns", "elements of a row"),
        _int("input_stride", "elements from row to row"),
        _int("k", "elements to select; at most columns"),
    ),
    "kv_write": (
        _read("key", "[tokens, kv_heads, key_size], tokens key_stride apart"),
        _read("value", "[tokens, kv_heads, value_size], tokens value_stride apart"),
        _update("key_cache", "[slots, kv_heads, key_size]"),
        _update("value_cache", "[slots, kv_heads, value_size]"),
        _read("slot_mapping", "[tokens]", "int64"),
        _int("tokens", "tokens"),
        _int("kv_heads", "key-value heads"),
        _int("key_size", "elements of a key"),
        _int("value_size", "elements of a value"),
        _int("slots", "tokens that the pool holds"),
        _int("key_stride", "elements from token to token"),
        _int("value_stride", "elements from token to token"),
    ),
    "paged_attention_decode": (
        _read("query", "[sequences, heads, key_size], tokens query_stride apart"),
        *_POOL,
        _SEQ_LENS,
        _write("workspace", _WORKSPACE_SHAPE, "float32"),
        *_POOL_SIZES,
    ),
    "paged_attention_combine": (
        _read("workspace", _WORKSPACE_SHAPE, "float32"),
        _SEQ_LENS,
        _write("output", "[sequences, heads, value_size]"),
        _int("sequences", "sequences"),
        _int("heads", "query heads"),
        _int("value_size", "elements of a value"),
        _int("block_size", "tokens of a block"),
        _int("table_columns", "blocks in a row of block_table"),
        _int("window", "positions that a token sees; 0 for all"),
    ),
    "paged_attention_prefill": (
        _read("query", "[tokens, heads, key_size], tokens query_stride apart"),
        *_POOL,
        _read("query_start", "[sequences + 1]: first token of each sequence", "int32"),
        _SEQ_LENS,
        _write("output", "[tokens, heads, value_size]"),
        _int("tokens", "tokens of the packing"),
        *_POOL_SIZES,
    ),
}


def _expanded() -> dict[str, KernelSignature]:
    signatures = {name: KernelSignature(name, slots) for name, slots in _ELEMENTARY.items()}
    for family, slots in _FAMILIES.items():
        for suffix, dtype in _DTYPES.items():
            name = f"{family}_{suffix}"
            signatures[name] = KernelSignature(name, _with_dtype(slots, dtype))
    return signatures


def _with_dtype(slots: Sequence[Slot], dtype: str) -> tuple[Slot, ...]:
    return tuple(
        Slot(slot.name, slot.kind, dtype if slot.dtype == OWN_DTYPE else slot.dtype, slot.shape, slot.access)
        for slot in slots
    )


KERNEL_SIGNATURES: Mapping[str, KernelSignature] = MappingProxyType(_expanded())
"""Name of each prebuilt kernel -> its slots."""

_DECODE_CHUNK = 256


def decode_workspace_floats(
    sequences: int, heads: int, value_size: int, block_size: int, table_columns: int
) -> int:
    """Float32 elements of the workspace from ``paged_attention_decode`` to ``paged_attention_combine``."""
    chunks = -(-table_columns * block_size // _DECODE_CHUNK)
    return sequences * chunks * heads * (_round_up(value_size, 16) + 16)


def decode_scratch_bytes(heads: int) -> int:
    """Scratch per core with which ``paged_attention_decode`` takes all heads at once; it can do with less."""
    return heads * _DECODE_CHUNK * 4


def prefill_scratch_bytes(heads: int, kv_heads: int, key_size: int, value_size: int) -> int:
    """Scratch per core that is enough for ``paged_attention_prefill``, whatever the dtype and the level."""
    group, keys = heads // kv_heads, 64
    rows = _round_up(max(1, keys // group) * group, 16)
    depth, width = _round_up(key_size, 32), _round_up(value_size, 16)
    elements = rows * depth + keys * depth + rows * keys + keys * width + max(depth, width)
    sums = rows * keys + rows * width + 3 * rows
    return 4 * (elements + sums) + 10 * 64


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
