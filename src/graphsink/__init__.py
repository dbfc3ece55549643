"""Graph-mode compiler and runtime for PyTorch LLM inference.

``graphsink.LLM`` runs a recipe from Python; the ``graphsink`` command does the same from a shell. The
map of the layers below is ``docs/architecture.md``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from graphsink.config import SamplingParams as SamplingParams
    from graphsink.llm import LLM as LLM

__version__ = "0.1.0"

__all__ = ["LLM", "SamplingParams", "__version__"]

_LAZY: Final = {"LLM": "graphsink.llm", "SamplingParams": "graphsink.config"}


def __dir__() -> list[str]:
    """The public names, also before their first use."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import the public names on first use.

    Loading PyTorch takes seconds and can fail on a broken installation; `graphsink doctor` must start
    without it, and say what is wrong.
    """
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'graphsink' has no attribute {name!r}")
