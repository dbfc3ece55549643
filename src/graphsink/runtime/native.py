"""Access to the compiled module ``graphsink._native``."""

from __future__ import annotations

from importlib import import_module

from graphsink.errors import DeviceError


def require_native_module() -> None:
    """Make sure that ``graphsink._native`` can be imported.

    Functions that need it call this first and import it afterwards, where they use it: so importing
    graphsink works without it, and `graphsink doctor` can say what is wrong.

    Raises:
        DeviceError: the module is absent or cannot be loaded; the message says why.
    """
    try:
        import_module("graphsink._native")
    except ImportError as error:
        raise DeviceError(
            f"the native module cannot be loaded: {error}",
            where="graphsink._native",
            hint="install graphsink again with pip, from a wheel or with a C++20 compiler",
        ) from error
