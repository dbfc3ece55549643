"""Cache directories that are refused, with the reason and the way out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphsink.config.cache_directory import atomic_directory, cache_directory
from graphsink.errors import CacheDirectoryError, RecipeValueError


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o702])
def test_writable_by_others(cache_root: Path, mode: int) -> None:
    cache_root.mkdir()
    cache_root.chmod(mode)
    with pytest.raises(CacheDirectoryError) as caught:
        cache_directory()
    assert f"can be written by other users (mode {mode:04o})" in str(caught.value)
    assert caught.value.where == str(cache_root)
    assert caught.value.hint == f"run: chmod go-w '{cache_root}'"


def test_the_fix_that_is_named_works(cache_root: Path) -> None:
    cache_root.mkdir()
    cache_root.chmod(0o777)
    with pytest.raises(CacheDirectoryError):
        cache_directory()
    cache_root.chmod(0o755)
    assert cache_directory() == cache_root


def test_a_level_below_is_checked_too(cache_root: Path) -> None:
    cache_directory("models").chmod(0o777)
    with pytest.raises(CacheDirectoryError) as caught:
        cache_directory("models", "entry")
    assert caught.value.where == str(cache_root / "models")


def test_directory_of_somebody_else(cache_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_root.mkdir(mode=0o700)
    owner = cache_root.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(CacheDirectoryError) as caught:
        cache_directory()
    assert f"belongs to user {owner}, not to you (user {owner + 1})" in str(caught.value)
    assert caught.value.hint == "set GRAPHSINK_CACHE_DIR to a directory of your own"


@pytest.mark.parametrize("mode", [0o500, 0o600, 0o300])
def test_not_usable_by_us(cache_root: Path, mode: int) -> None:
    cache_root.mkdir()
    cache_root.chmod(mode)
    with pytest.raises(CacheDirectoryError) as caught:
        cache_directory()
    cache_root.chmod(0o700)
    assert f"is not readable and writable by you (mode {mode:04o})" in str(caught.value)
    assert caught.value.hint == f"run: chmod u+rwx '{cache_root}'"


def test_read_only_file_system(cache_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_root.mkdir(mode=0o700)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(CacheDirectoryError, match="is on a read-only file system"):
        cache_directory()


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_in_its_place(cache_root: Path, monkeypatch: pytest.MonkeyPatch, below: str) -> None:
    cache_root.write_text("a file")
    monkeypatch.setenv("GRAPHSINK_CACHE_DIR", str(cache_root / below))
    with pytest.raises(CacheDirectoryError) as caught:
        cache_directory()
    assert "cannot be created" in str(caught.value)
    assert "GRAPHSINK_CACHE_DIR" in str(caught.value)
    assert cache_root.read_text() == "a file"


def test_a_link_to_nowhere(cache_root: Path) -> None:
    cache_root.symlink_to(cache_root.parent / "absent")
    with pytest.raises(CacheDirectoryError, match="cannot be created"):
        cache_directory()


def test_a_place_where_it_could_be_swapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("GRAPHSINK_CACHE_DIR", str(shared / "cache"))
    with pytest.raises(CacheDirectoryError) as caught:
        cache_directory()
    assert "could be replaced by other users" in str(caught.value)
    assert caught.value.where == str(shared)
    shared.chmod(0o1777)  # sticky, as /tmp
    assert cache_directory() == shared / "cache"


@pytest.mark.parametrize("part", ["", ".", "..", "a/b", "/etc", "a\0b"])
def test_parts_are_plain_names(cache_root: Path, part: str) -> None:
    with pytest.raises(CacheDirectoryError, match="is not a plain directory name"):
        cache_directory("models", part)
    assert not cache_root.exists()


def test_relative_path_in_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHSINK_CACHE_DIR", "cache")
    with pytest.raises(RecipeValueError, match="not an absolute path") as caught:
        cache_directory()
    assert caught.value.key == "GRAPHSINK_CACHE_DIR"


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("GRAPHSINK_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", staticmethod(no_home))
    with pytest.raises(CacheDirectoryError, match="this user has no home directory"):
        cache_directory()


def test_full_disk_while_flushing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(CacheDirectoryError, match="cannot be completed: No space left on device") as caught,
        atomic_directory(tmp_path / "entry") as partial,
    ):
        (partial / "file").write_text("content")
    assert (caught.value.where, caught.value.hint) == (str(tmp_path / "entry"), "free some space")
    assert os.listdir(tmp_path) == []


def test_a_file_where_the_entry_should_be(tmp_path: Path) -> None:
    (tmp_path / "entry").write_text("a file")
    with (
        pytest.raises(CacheDirectoryError, match="cannot be completed: Not a directory"),
        atomic_directory(tmp_path / "entry"),
    ):
        pass
    assert os.listdir(tmp_path) == ["entry"]
