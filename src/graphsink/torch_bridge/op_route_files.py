"""Writes the generated files of extern calls into a checkout; scripts/generate_op_routes runs it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

import torch

from graphsink.torch_bridge.extern_library import shim_library
from graphsink.torch_bridge.op_routes import TABLE_FILE, build_table, table_text

TABLE_PATH = Path("src/graphsink/torch_bridge") / TABLE_FILE
SIGNATURES_PATH = Path("csrc/extern/typed_signatures.inc")


def signatures_text(signatures: Mapping[str, str]) -> str:
    """C++ lines, one for each signature that occurs, for ``typed_calls.cpp``."""
    lines = ["// Written by scripts/generate_op_routes: the signatures of all typed shims."]
    lines += [f'GS_TYPED_SIGNATURE("{word}")' for word in sorted(set(signatures.values()))]
    return "\n".join(lines) + "\n"


def declared_parameters() -> dict[str, str]:
    """Symbol -> C parameter list of the typed functions, from the headers of the installed torch."""
    folder = Path(torch.__file__).parent / "include/torch/csrc/inductor/aoti_torch/generated"
    text = "".join((folder / name).read_text() for name in ("c_shim_cpu.h", "c_shim_aten.h"))
    return dict(re.findall(r"AOTITorchError (aoti_torch_\w+)\((.*?)\);", text))


def generated_files() -> dict[Path, str]:
    """Path below the checkout -> text, for the torch that is installed."""
    library, declared = shim_library(), declared_parameters()
    usable = {s: parameters for s, parameters in declared.items() if library.has_symbol(s)}
    table = build_table(usable)
    signatures = table["signatures"]
    if not isinstance(signatures, dict):
        raise TypeError("the table has no signatures")
    return {TABLE_PATH: table_text(table), SIGNATURES_PATH: signatures_text(signatures)}


def main() -> None:
    """Write the files into a checkout."""
    parser = argparse.ArgumentParser(prog="python -m graphsink.torch_bridge.op_route_files")
    parser.add_argument("checkout", type=Path, help="root of the repository")
    checkout = parser.parse_args().checkout
    for path, text in generated_files().items():
        (checkout / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
