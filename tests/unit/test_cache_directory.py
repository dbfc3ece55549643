"""Where the cache is, and entries that appear whole or not at all, with writers that race and die."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphsink.config.cache_directory import atomic_directory, cache_directory

WRITERS = 8


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_created_for_us_alone(cache_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        assert cache_directory("models", "abc") == cache_root / "models" / "abc"
    finally:
        os.umask(before)
    assert [mode_of(path) for path in (cache_root, cache_root / "models", cache_root / "models" / "abc")] == [
        0o700
    ] * 3


def test_order_of_the_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GRAPHSINK_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_directory() == tmp_path / "home" / ".cache" / "graphsink"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "graphsink"
    monkeypatch.setenv("GRAPHSINK_CACHE_DIR", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"


def test_second_call_finds_the_same(cache_root: Path) -> None:
    (cache_directory("models") / "file").write_text("kept")
    assert (cache_directory("models") / "file").read_text() == "kept"


def test_a_link_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("GRAPHSINK_CACHE_DIR", str(tmp_path / "link"))
    assert cache_directory("models") == tmp_path / "real" / "models"


def test_entry_appears_at_the_end(tmp_path: Path) -> None:
    final = tmp_path / "entry"
    with atomic_directory(final) as partial:
        assert partial.parent == final.parent
        assert mode_of(partial) == 0o700
        (partial / "deep").mkdir()
        (partial / "deep" / "file").write_text("content")
        assert not final.exists()
    assert (final / "deep" / "file").read_text() == "content"
    assert os.listdir(tmp_path) == ["entry"]


def test_nothing_is_left_after_an_exception(tmp_path: Path) -> None:
    for error in (ValueError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)), atomic_directory(tmp_path / "entry") as partial:
            (partial / "file").write_text("half")
            raise error
    assert os.listdir(tmp_path) == []


def test_the_first_to_finish_wins(tmp_path: Path) -> None:
    final = tmp_path / "entry"
    with atomic_directory(final) as slow:
        (slow / "who").write_text("slow")
        with atomic_directory(final) as fast:
            (fast / "who").write_text("fast")
    assert (final / "who").read_text() == "fast"
    assert os.listdir(tmp_path) == ["entry"]


def test_a_living_writer_is_not_disturbed(tmp_path: Path) -> None:
    with atomic_directory(tmp_path / "entry") as first:
        (first / "file").write_text("first")
        with pytest.raises(ValueError, match="second"), atomic_directory(tmp_path / "entry"):
            raise ValueError("second")
        assert (first / "file").read_text() == "first"


def test_other_entries_and_strange_names_are_left_alone(tmp_path: Path) -> None:
    for name in (".entry2.0.partial", ".entry", "entry.partial"):
        (tmp_path / name).mkdir()
    with atomic_directory(tmp_path / "entry[1]*"):
        pass
    with atomic_directory(tmp_path / "entry"):
        pass
    assert sorted(os.listdir(tmp_path)) == [
        ".entry",
        ".entry2.0.partial",
        "entry",
        "entry.partial",
        "entry[1]*",
    ]


RACER = """
import sys, time
from pathlib import Path
from graphsink.config.cache_directory import atomic_directory
final, me, start = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
time.sleep(max(0, start - time.time()))
for round in range(20):
    with atomic_directory(final / str(round)) as partial:
        for index in range(5):
            (partial / f"file{index}").write_text(me)
    seen = {(final / str(round) / f"file{index}").read_text() for index in range(5)}
    assert len(seen) == 1, seen
"""


def test_eight_processes_build_the_same_entries(tmp_path: Path) -> None:
    final = tmp_path / "entries"
    start = str(time.time() + 1.0)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(final), str(me), start], stderr=subprocess.PIPE, text=True
        )
        for me in range(WRITERS)
    ]
    failures = [racer.communicate(timeout=60)[1] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * WRITERS, failures
    assert sorted(os.listdir(final)) == sorted(str(number) for number in range(20))
    assert all(len(os.listdir(final / str(number))) == 5 for number in range(20))


VICTIM = """
import sys, time
from pathlib import Path
from graphsink.config.cache_directory import atomic_directory
with atomic_directory(Path(sys.argv[1])) as partial:
    (partial / "file").write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    final = tmp_path / "entry"
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(final)], stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    assert victim.stdout.readline() == "writing\n"
    assert len(os.listdir(tmp_path)) == 1
    with atomic_directory(tmp_path / "unrelated"):
        pass
    victim.send_signal(signal.SIGKILL)
    victim.communicate(timeout=10)
    assert not final.exists()
    assert len([name for name in os.listdir(tmp_path) if name.endswith(".partial")]) == 1
    with atomic_directory(final) as partial:
        assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".partial")] == [partial.name]
        (partial / "file").write_text("whole")
    assert (final / "file").read_text() == "whole"
    assert sorted(os.listdir(tmp_path)) == ["entry", "unrelated"]


@pytest.mark.parametrize(("age_hours", "left"), [(23, True), (25, False)])
def test_without_locks_age_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_hours: int, left: bool
) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", no_locks)
    leftover = tmp_path / ".entry.0123.partial"
    leftover.mkdir()
    written = time.time() - age_hours * 3600
    os.utime(leftover, (written, written))
    with atomic_directory(tmp_path / "entry") as partial:
        (partial / "file").write_text("whole")
    assert leftover.exists() is left
    assert (tmp_path / "entry" / "file").exists()
