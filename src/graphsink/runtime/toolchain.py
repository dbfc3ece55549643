"""The C++ compiler of ``compile`` mode: finding it, and trying it out."""

from __future__ import annotations

import ctypes
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphsink.config.knobs import CXX
from graphsink.errors import DeviceError

COMPILER_NAMES: Final = ("g++", "clang++", "c++")
"""Tried in this order when ``CXX`` is not set."""

INSTALL_HINT: Final = (
    f"install g++ (Debian and Ubuntu: apt-get install g++), or set {CXX.name} to a C++20 compiler"
)

_TIME_LIMIT_SECONDS: Final = 60
_EXPECTED: Final = 42
_PROGRAM: Final = f"""\
#include <span>
extern "C" int graphsink_probe() {{
    const int values[] = {{{_EXPECTED - 2}, 2}};
    int sum = 0;
    for (const int value : std::span(values)) sum += value;
    return sum;
}}
"""
"""A small C++20 program; its answer is `_EXPECTED`."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A C++ compiler that was found.

    Attributes:
        command: the program, and what ``CXX`` puts before or after it (``ccache g++``, ``g++ -m64``).
        version: first line of what it says about itself.
    """

    command: tuple[str, ...]
    version: str


def find_toolchain() -> Toolchain:
    """Find the compiler: ``CXX`` if it is set, else the first known name on ``PATH``.

    Raises:
        DeviceError: there is none, or it does not answer.
    """
    forced = CXX.read()
    candidates = [[name] for name in COMPILER_NAMES] if forced is None else [shlex.split(forced)]
    for program, *options in candidates:
        path = shutil.which(program)
        if path is not None:
            lines = _run([path, *options, "--version"], "does not answer to --version").splitlines()
            return Toolchain((path, *options), lines[0] if lines else "version unknown")
    names = ", ".join(program for program, *_ in candidates)
    raise DeviceError(
        f"no C++ compiler found (looked for {names})",
        where="PATH" if forced is None else f"environment variable {CXX.name}",
        hint=INSTALL_HINT,
    )


def check_toolchain(toolchain: Toolchain) -> None:
    """Compile a tiny shared object, load it and call it.

    Raises:
        DeviceError: one of the steps failed; the message has the compiler's last words.
    """
    with tempfile.TemporaryDirectory(prefix="graphsink-") as directory:
        source = Path(directory, "probe.cpp")
        library = Path(directory, "probe.so")
        source.write_text(_PROGRAM, encoding="utf-8")
        options = ["-std=c++20", "-O1", "-shared", "-fPIC", str(source), "-o", str(library)]
        _run([*toolchain.command, *options], "cannot compile a C++20 shared object")
        try:
            answer = ctypes.CDLL(str(library)).graphsink_probe()
        except (OSError, AttributeError) as error:
            raise DeviceError(
                f"what {toolchain.command[0]} compiled cannot be loaded: {error}",
                where=directory,
                hint="allow execution in the temporary directory, or set TMPDIR to one that allows it",
            ) from error
    if answer != _EXPECTED:
        raise DeviceError(
            f"what {toolchain.command[0]} compiled gives a wrong answer: {answer}, not {_EXPECTED}",
            hint=INSTALL_HINT,
        )


def _run(command: list[str], failure: str) -> str:
    """Run the compiler and return what it printed; ``failure`` says what went wrong otherwise."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIME_LIMIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"{command[0]} {failure}: {error}", hint=INSTALL_HINT) from error
    if done.returncode != 0:
        last_words = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        raise DeviceError(
            f"{command[0]} {failure} (exit code {done.returncode}): {last_words}", hint=INSTALL_HINT
        )
    return done.stdout
