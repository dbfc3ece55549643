"""A sample model of a few kilobytes in a wheel, in place of the real one."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from types import MappingProxyType

import pytest

from graphsink.engine.model import sample
from graphsink.engine.model.sample import Sample
from support.tiny_gguf import write_gguf
from support.tiny_models import build_model, family_values

NAME = "smollm2-135m"
MEMBER = "tiny_package/tiny.gguf"


def install(monkeypatch: pytest.MonkeyPatch, directory: Path) -> Path:
    """Make the tiny model the sample, use a fresh cache in ``directory``, and return the wheel."""
    monkeypatch.setenv("GRAPHSINK_CACHE_DIR", str(directory / "cache"))
    gguf_path = directory / "tiny.gguf"
    write_gguf(gguf_path, build_model(family_values("llama")))
    content = gguf_path.read_bytes()
    entry = Sample("tiny-package", "1.2.3", MEMBER, hashlib.sha256(content).hexdigest(), len(content), "tiny")
    monkeypatch.setattr(sample, "SAMPLES", MappingProxyType({NAME: entry}))
    return write_wheel(directory / "tiny_package-1.2.3-py3-none-any.whl", {MEMBER: content})


def write_wheel(path: Path, members: dict[str, bytes]) -> Path:
    """A wheel with these files and one that must never run."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_package/__init__.py", "raise SystemExit('the package was run')\n")
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def fake_python(path: Path, script: str) -> Path:
    """An executable that takes the place of the Python interpreter which runs pip."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
