"""A report never destroys what is at its place."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from graphsink.cli.report_file import ReportFile
from graphsink.errors import RecipeError


def test_a_pipe_gets_the_document_and_stays_a_pipe(tmp_path: Path) -> None:
    """Renaming a file over a device or a pipe would replace it: as root, /dev/null itself."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    seen: list[str] = []
    reader = threading.Thread(target=lambda: seen.append(pipe.read_text()))
    reader.start()
    report = ReportFile(pipe)
    report.write("{}")
    report.discard()
    reader.join()
    assert seen == ["{}\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_keeps_pointing_and_permissions_are_kept(tmp_path: Path) -> None:
    """The target of a link is replaced, not the link."""
    target, link = tmp_path / "private.json", tmp_path / "link.json"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    ReportFile(link).write("{}")
    assert link.is_symlink()
    assert target.read_text() == "{}\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_an_unfinished_run_leaves_the_old_report(tmp_path: Path) -> None:
    """And no file beside it."""
    path = tmp_path / "report.json"
    path.write_text("old")
    ReportFile(path).discard()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


def test_a_new_report_follows_the_umask(tmp_path: Path) -> None:
    """As a file that the shell makes."""
    before = os.umask(0o027)
    try:
        ReportFile(tmp_path / "new.json").write("{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new.json").stat().st_mode) == 0o640


def test_a_directory_is_refused(tmp_path: Path) -> None:
    """Before the run."""
    with pytest.raises(RecipeError, match="is a directory"):
        ReportFile(tmp_path)
