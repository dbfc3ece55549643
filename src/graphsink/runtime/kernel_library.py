"""Kernels from shared objects: generated ones, and those of users."""

from __future__ import annotations

import ctypes
from pathlib import Path

from graphsink import _native
from graphsink.errors import KernelLibraryError
from graphsink.runtime.tasks import Kernel

ABI_SYMBOL = "gs_kernel_abi_version"


class KernelLibrary:
    """A shared object that exports kernels and its interface version.

    The object must define ``const uint32_t gs_kernel_abi_version = GS_KERNEL_ABI_VERSION;`` with C linkage
    (csrc/include/graphsink/kernel_abi.h).

    Args:
        path: the shared object.

    Raises:
        KernelLibraryError: it cannot be loaded, lacks the version, or was built for another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._library = ctypes.CDLL(str(path.resolve()), mode=ctypes.RTLD_LOCAL)
        except OSError as error:
            raise KernelLibraryError(f"'{path}' cannot be loaded: {error}") from error
        try:
            version = ctypes.c_uint32.in_dll(self._library, ABI_SYMBOL).value
        except ValueError as error:
            raise KernelLibraryError(
                f"'{path}' does not export '{ABI_SYMBOL}'",
                hint="define it as graphsink/kernel_abi.h describes, and rebuild",
            ) from error
        if version != _native.KERNEL_ABI_VERSION:
            raise KernelLibraryError(
                f"'{path}' was built for kernel interface {version}; this is {_native.KERNEL_ABI_VERSION}",
                hint="rebuild it with this version's graphsink/kernel_abi.h",
            )

    def kernel(self, name: str) -> Kernel:
        """The exported kernel ``name``; it keeps the library loaded.

        Raises:
            KernelLibraryError: there is no such symbol.
        """
        try:
            if name == ABI_SYMBOL:
                raise AttributeError(name)  # data
            function = getattr(self._library, name)
        except AttributeError as error:
            raise KernelLibraryError(f"'{self.path}' has no kernel '{name}'") from error
        address = ctypes.cast(function, ctypes.c_void_p).value
        if address is None:
            raise KernelLibraryError(f"'{self.path}': '{name}' has no address")
        return Kernel(name, address, owner=self)
