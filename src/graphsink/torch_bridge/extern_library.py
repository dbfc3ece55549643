"""The C shim of the torch that this process has loaded, with a check of its version."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from graphsink.errors import NotSupportedError
from graphsink.runtime.native import require_native_module

if TYPE_CHECKING:
    from graphsink import _native

SUPPORTED_MINORS = ((2, 12), (2, 14))
"""First and last minor version of torch whose shim was checked; docs/design/extern.md says how."""


@functools.cache
def shim_library() -> _native.ShimLibrary:
    """The loaded libtorch.

    Raises:
        DeviceError: the native module cannot be loaded.
        NotSupportedError: this torch has no usable shim; the message names what is missing.
    """
    require_native_module()
    from graphsink import _native

    path = Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"
    try:
        library = _native.ShimLibrary(str(path))
    except RuntimeError as error:
        raise NotSupportedError(
            f"ATen operators cannot be called from native code: {error}",
            where=f"torch {torch.__version__}",
            hint=_version_hint(),
        ) from error
    check_version(*library.version)
    return library


def check_version(major: int, minor: int) -> None:
    """Refuse a torch whose shim was not checked.

    Raises:
        NotSupportedError: the version is outside of ``SUPPORTED_MINORS``.
    """
    first, last = SUPPORTED_MINORS
    if not first <= (major, minor) <= last:
        raise NotSupportedError(
            f"the C shim of torch {major}.{minor} was not checked for extern calls", hint=_version_hint()
        )


def _version_hint() -> str:
    (major, first), (_, last) = SUPPORTED_MINORS
    return f"install torch {major}.{first} to {major}.{last}"
