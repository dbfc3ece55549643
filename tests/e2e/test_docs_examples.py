"""The examples of the README and of docs/cli.md run as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from graphsink.recipe.loader import recipe_from_dict

REPOSITORY = Path(__file__).resolve().parents[2]


def code_blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/cli.md"])
def test_python_examples_run(
    page: str, sample_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the repository's root, with the sample model that the recipe names."""
    monkeypatch.chdir(REPOSITORY)
    (example,) = code_blocks(page, "python")
    scope: dict[str, object] = {}
    exec(compile(example, page, "exec"), scope)
    assert len(scope["outputs"]) == 2  # type: ignore[arg-type]
    assert len(capsys.readouterr().out) > 20
    assert sample_directory.is_dir()


def test_the_recipe_of_the_readme_is_valid() -> None:
    """It loads as it is printed."""
    (example,) = code_blocks("README.md", "yaml")
    loaded = recipe_from_dict(yaml.safe_load(example))
    assert loaded.recipe.scheduler.max_new_tokens == 64
    assert loaded.notes == ()


def test_links_of_the_readme_exist() -> None:
    """Pages move; links should not rot."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+)\)", text)
    assert len(targets) >= 8
    assert [target for target in targets if not (REPOSITORY / target).exists()] == []
