"""The table of slots against the kernels that are built in and the comments of their sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphsink import _native
from graphsink.runtime.kernel_signatures import (
    KERNEL_SIGNATURES,
    decode_scratch_bytes,
    prefill_scratch_bytes,
)
from support.kernel_calls import LEVELS, SCRATCH_TOO_SMALL, run

SOURCES = Path(__file__).parents[2] / "csrc" / "kernels" / "isa"
# "//     silu, add   [input, output]", where the list of slots may go on in the lines below.
DOCUMENTED = re.compile(r"^//     (?P<names>\w[\w, ]*?)  +\[(?P<slots>[\w,\s/]*)\]", re.MULTILINE)


@pytest.mark.parametrize("level", LEVELS)
def test_names_are_those_of_the_registry(level: str) -> None:
    assert sorted(KERNEL_SIGNATURES) == sorted(_native.kernel_levels(level))


def test_every_kernel_is_built_for_every_level() -> None:
    for level in LEVELS:
        assert set(_native.kernel_levels(level).values()) == {level}


def test_slots_are_those_of_the_sources() -> None:
    documented: dict[str, list[str]] = {}
    for source in SOURCES.glob("*.cpp"):
        for match in DOCUMENTED.finditer(source.read_text()):
            slots = re.sub(r"[\s/]+", " ", match["slots"]).strip()
            for name in match["names"].split(", "):
                documented[name.strip()] = slots.split(", ")
    families = {name.rsplit("_", 1)[0] for name in KERNEL_SIGNATURES if name.endswith(("_bf16", "_f32"))}
    assert sorted(documented) == sorted(families)
    for family, names in documented.items():
        for suffix in ("bf16", "f32"):
            assert [slot.name for slot in KERNEL_SIGNATURES[f"{family}_{suffix}"].slots] == names


def test_slots_are_described() -> None:
    assert KERNEL_SIGNATURES["embedding_bf16"].slots[0].dtype == "int64"
    assert KERNEL_SIGNATURES["embedding_bf16"].slots[1].dtype == "bfloat16"
    assert KERNEL_SIGNATURES["embedding_f32"].slots[2].dtype == "float32"
    for signature in KERNEL_SIGNATURES.values():
        for slot in signature.slots:
            assert (slot.kind == "address") == bool(slot.dtype) == bool(slot.access)
            assert slot.name and slot.shape


@pytest.mark.parametrize("level", LEVELS)
def test_scratch_sizes_are_enough(level: str) -> None:
    layers = ((1, 1, 1, 1), (9, 3, 64, 64), (71, 1, 33, 17), (32, 8, 128, 256))
    for heads, kv_heads, key_size, value_size in layers:
        # No sequences: only the sizes are looked at.
        sizes = [heads, kv_heads, key_size, value_size, 1, 16, 1, heads * key_size, 1.0, 0, 0.0]
        enough = prefill_scratch_bytes(heads, kv_heads, key_size, value_size)
        for suffix in ("bf16", "f32"):
            prefill = [0, 0, 0, 0, 0, 0, 0, 0, 0, *sizes]
            name = f"paged_attention_prefill_{suffix}"
            assert run(name, level, prefill, scratch_bytes=enough) == 0
            assert run(name, level, prefill, scratch_bytes=enough // 8) == SCRATCH_TOO_SMALL
            decode = [0, 0, 0, 0, 0, 0, 0, *sizes]
            name = f"paged_attention_decode_{suffix}"
            assert run(name, level, decode, scratch_bytes=decode_scratch_bytes(heads)) == 0
