"""Models that end-to-end tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsink.engine.model.sample import fetch_sample

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def sample_directory() -> Path:
    """The sample model with real weights; fetched on the first run on a machine."""
    return fetch_sample("smollm2-135m")


@pytest.fixture(scope="session")
def recipes() -> Path:
    """The directory of shipped recipes."""
    return REPOSITORY / "recipes"
