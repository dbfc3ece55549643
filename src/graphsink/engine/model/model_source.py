"""What a recipe's model is, as data. Finding it is `source`, converting a GGUF file `gguf_conversion`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

Progress = Callable[[float], None]
"""Called with the share of the work that is done, 0 to 1."""


class SourceKind(StrEnum):
    """Where the weights come from."""

    DIRECTORY = "directory"
    GGUF = "gguf"
    RANDOM = "random"
    SAMPLE = "sample"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model that exists, as far as its paths go.

    Attributes:
        kind: where the weights come from.
        written: ``model_path`` as the user wrote it; empty with an inline configuration.
        directory: the Hugging Face directory with ``config.json``. ``None`` for an inline
            configuration, and for a GGUF file until `gguf_conversion.materialize` has converted it.
        gguf: the GGUF file, for that kind.
        tokenizer_directory: where the tokenizer is looked for; ``None`` if there is no directory.
        notes: what happened on the way that the user should know.
    """

    kind: SourceKind
    written: str
    directory: Path | None = None
    gguf: Path | None = None
    tokenizer_directory: Path | None = None
    notes: tuple[str, ...] = ()
