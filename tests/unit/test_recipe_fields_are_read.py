"""Every field that is documented as used is read by code outside of its definition."""

from __future__ import annotations

import re
from pathlib import Path

import graphsink
from graphsink.recipe.field_catalog import field_catalog

PACKAGE = Path(graphsink.__file__).parent
DEFINITIONS = {"sections.py", "custom_params.py", "field_catalog.py", "documentation.py"}


def test_used_fields_have_a_reader() -> None:
    """A switch that nothing reads would be accepted and silently do nothing."""
    sources = [
        path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py") if path.name not in DEFINITIONS
    ]
    code = "\n".join(sources)
    used = [row for row in field_catalog().values() if row.effect == "used"]
    assert len(used) > 25
    unread = [row.key for row in used if not re.search(rf"\.{row.name}\b", code)]
    assert unread == []
