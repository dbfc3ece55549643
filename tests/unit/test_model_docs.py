"""docs/models.md says what the tables say."""

from __future__ import annotations

import re
from pathlib import Path

from graphsink.engine.model.gguf_architectures import ARCHITECTURES
from graphsink.engine.model.gguf_tokenizer import PRE_TOKENIZERS
from graphsink.engine.model.sample import SAMPLES

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


def test_every_gguf_architecture_has_its_row() -> None:
    rows = dict(re.findall(r"^\| `(\w+)`[^|]*\| `(\w+)` \|", TEXT, re.MULTILINE))
    assert rows == {name: row.model_type for name, row in ARCHITECTURES.items()}


def test_every_pre_tokenizer_is_listed() -> None:
    listed = TEXT.split("Known rules:")[1].split(". With another name")[0]
    assert re.findall(r"`([^`]+)`", listed) == list(PRE_TOKENIZERS)


def test_the_sample_is_described() -> None:
    for name, entry in SAMPLES.items():
        assert f"sample://{name}" in TEXT
        assert f"`{entry.package}` {entry.version}" in TEXT
