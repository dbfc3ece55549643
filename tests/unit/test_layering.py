"""The rules about modules that design.md sets: who imports whom, and what no module may do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import graphsink

PACKAGE = Path(graphsink.__file__).parent

# Bottom first. A layer imports lower rows only; entries of one row do not import each other.
LAYERS = (
    ("errors",),
    ("config",),
    ("records", "target"),
    ("ir",),
    ("frontend", "graph", "autofuse", "codegen", "planner", "runtime"),
    ("torch_bridge",),
    ("compiler",),
    ("engine",),
    ("recipe", "report"),
    ("llm",),
    ("run_reporting",),
    ("cli", "server"),
    ("__main__",),
)
RANK = {layer: rank for rank, row in enumerate(LAYERS) for layer in row}

NATIVE_MODULE = "_native"
IMPORTS_NATIVE_MODULE = {"runtime", "torch_bridge"}
KNOWS_NO_TORCH = {"errors", "config", "records", "target", "runtime", "recipe"}
PICKLE_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
MUTABLE_CALLS = {"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict"}
MUTABLE_LITERALS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
LONGEST_MODULE = 600

MODULES = sorted(PACKAGE.rglob("*.py"))


def layer_of(path: Path, package: Path = PACKAGE) -> str:
    """The top-level name of a module below graphsink; empty for the package itself."""
    first = path.relative_to(package).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def imported_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that is imported, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            prefix = "." * node.level + (node.module or "")
            for alias in node.names:
                yield node.lineno, f"{prefix}.{alias.name}"


def layering_faults(layer: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    for line, name in imported_names(tree):
        top, _, rest = name.partition(".")
        if top == "":
            yield line, f"relative import {name}"
        if top == "torch" and layer in KNOWS_NO_TORCH:
            yield line, f"{layer} imports torch"
        if top != "graphsink" or not rest or rest == "__version__" or layer == "":
            continue
        target = rest.partition(".")[0]
        if layer not in RANK:
            yield line, f"{layer} is in no layer"
        elif target == NATIVE_MODULE:
            if layer not in IMPORTS_NATIVE_MODULE:
                yield line, f"{layer} imports the native module"
        elif target not in RANK:
            yield line, f"{name} belongs to no layer"
        elif target != layer and RANK[target] >= RANK[layer]:
            yield line, f"{layer} imports {name}"


def pickle_faults(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for line, name in imported_names(tree):
        if name.partition(".")[0] in PICKLE_MODULES:
            yield line, f"imports {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.load", "torch.save"):
            yield node.lineno, f"{ast.unparse(node)} unpickles"
        if (
            isinstance(node, ast.keyword)
            and node.arg == "allow_pickle"
            and ast.unparse(node.value) != "False"
        ):
            yield node.value.lineno, "allow_pickle"


def global_state_faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield node.lineno, f"global {', '.join(node.names)}"
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        else:
            continue
        called = value.func if isinstance(value, ast.Call) else None
        called_name = ast.unparse(called).rpartition(".")[2] if called is not None else ""
        if not isinstance(value, MUTABLE_LITERALS) and called_name not in MUTABLE_CALLS:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and target.id != "__all__" and not target.id.isupper():
                yield statement.lineno, f"{target.id} is mutable and global"


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def report(path: Path, faults: Iterator[tuple[int, str]]) -> list[str]:
    return [f"{path.relative_to(PACKAGE)}:{line}: {text}" for line, text in faults]


def test_every_module_belongs_to_a_layer() -> None:
    layers = {layer_of(path) for path in MODULES} - {""}
    assert layers <= set(RANK)
    assert {"errors", "config", "records", "target", "runtime", "engine", "cli"} <= layers


def test_every_folder_is_a_package() -> None:
    """Without an ``__init__.py`` a folder is a namespace package, which tools treat in different ways."""
    folders = {path.parent for path in MODULES}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_layers_import_downwards_only() -> None:
    assert [
        fault for path in MODULES for fault in report(path, layering_faults(layer_of(path), parse(path)))
    ] == []


def test_no_pickle() -> None:
    assert [fault for path in MODULES for fault in report(path, pickle_faults(parse(path)))] == []


def test_no_mutable_global_state() -> None:
    assert [fault for path in MODULES for fault in report(path, global_state_faults(parse(path)))] == []


def test_modules_are_short() -> None:
    lengths = {
        path.relative_to(PACKAGE): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES
    }
    assert {path: length for path, length in lengths.items() if length > LONGEST_MODULE} == {}


@pytest.mark.parametrize(
    ("layer", "source", "fault"),
    [
        ("runtime", "import torch.nn", "runtime imports torch"),
        (
            "runtime",
            "def f():\n    from graphsink.planner import plan",
            "runtime imports graphsink.planner.plan",
        ),
        ("config", "from graphsink.records import Decision", "config imports graphsink.records.Decision"),
        ("engine", "from graphsink import LLM", "graphsink.LLM belongs to no layer"),
        ("engine", "from graphsink import _native", "engine imports the native module"),
        ("engine", "from . import model", "relative import ..model"),
        ("records", "import graphsink.target", "records imports graphsink.target"),
    ],
)
def test_the_rules_catch(layer: str, source: str, fault: str) -> None:
    assert [text for _, text in layering_faults(layer, ast.parse(source))] == [fault]


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("engine", "import torch\nfrom graphsink.runtime.machine import machine_facts"),
        ("runtime", "from graphsink import _native"),
        ("report", "from graphsink import __version__"),
        ("cli", "import graphsink"),
        ("engine", "from graphsink.engine.model import loading"),
    ],
)
def test_the_rules_allow(layer: str, source: str) -> None:
    assert list(layering_faults(layer, ast.parse(source))) == []


@pytest.mark.parametrize(
    "source", ["cache = {}", "seen: set[int] = set()", "def f():\n    global x", "q = collections.deque()"]
)
def test_global_state_is_found(source: str) -> None:
    assert len(list(global_state_faults(ast.parse(source)))) == 1


def test_constants_are_not_state() -> None:
    source = "__all__ = ['a']\nTABLE = {'a': 1}\nname = 'text'\npair = (1, 2)\n"
    assert list(global_state_faults(ast.parse(source))) == []


@pytest.mark.parametrize(
    "source", ["import pickle", "from pickle import loads", "torch.load(f)", "np.load(f, allow_pickle=True)"]
)
def test_pickle_is_found(source: str) -> None:
    assert len(list(pickle_faults(ast.parse(source)))) == 1
