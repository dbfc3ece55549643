"""Set-up shared by all tests."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import settings

# No deadline: the machines that run the tests are shared, and time is never asserted. A failing example
# is printed with the seed of the run (see the report header).
settings.register_profile("graphsink", deadline=None, print_blob=True, derandomize=False)
settings.load_profile("graphsink")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of hypothesis here, so that it can be printed before anything can hang or crash."""
    if config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))


def pytest_report_header(config: pytest.Config) -> str:
    return f"to repeat the random tests: --hypothesis-seed={config.option.hypothesis_seed}"


@pytest.fixture
def cache_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory for one test; the path does not exist yet."""
    root = tmp_path / "cache"
    monkeypatch.setenv("GRAPHSINK_CACHE_DIR", str(root))
    return root
