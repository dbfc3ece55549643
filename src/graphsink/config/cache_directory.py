"""The cache directory, and directories in it that appear whole or not at all.

What is kept there is loaded as weights and as machine code, so a directory that somebody else could
write to is refused. Entries are built aside and renamed into place: a reader sees a finished entry or
none, whatever is killed and however many processes build the same one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from graphsink.config.knobs import CACHE_DIRECTORY, XDG_CACHE_HOME
from graphsink.errors import CacheDirectoryError

_PARTIAL_SUFFIX: Final = ".partial"
_ABANDONED_AFTER_SECONDS: Final = 24 * 3600
"""Age at which an unfinished entry is removed where the file system has no locks to tell."""

_NAME_TAKEN: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})


def cache_directory(*parts: str) -> Path:
    """The cache directory, or a directory below it; created with mode 0700 if it is absent.

    It is ``$GRAPHSINK_CACHE_DIR``, else ``$XDG_CACHE_HOME/graphsink``, else ``~/.cache/graphsink``.

    Args:
        parts: names of nested directories; plain names, without separators or ``..``.

    Raises:
        CacheDirectoryError: a part is not a plain name; a level is not a directory, not ours,
            writable by others, or not writable by us.
        RecipeValueError: one of the variables is not an absolute path.
    """
    for part in parts:
        if part in ("", ".", "..") or "/" in part or "\0" in part:
            raise CacheDirectoryError(
                f"{part!r} is not a plain directory name", hint="use one name per level"
            )
    directory = _root()
    _create(directory, parents=True)
    directory = directory.resolve()
    _check_ancestors(directory)
    _check(directory)
    for part in parts:
        directory = directory / part
        _create(directory, parents=False)
        _check(directory)
    return directory


def _root() -> Path:
    chosen = CACHE_DIRECTORY.read()
    if chosen is not None:
        return chosen
    base = XDG_CACHE_HOME.read()
    if base is None:
        try:
            base = Path.home() / ".cache"
        except RuntimeError as error:
            raise CacheDirectoryError("this user has no home directory", hint=_CHOOSE_ANOTHER) from error
    return base / "graphsink"


_CHOOSE_ANOTHER: Final = f"set {CACHE_DIRECTORY.name} to a directory of your own"


def _create(directory: Path, *, parents: bool) -> None:
    try:
        if parents:
            directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError as error:
        raise CacheDirectoryError(
            "the cache directory cannot be created: there is a file in its place",
            where=str(error.filename or directory),
            hint=f"move the file away, or {_CHOOSE_ANOTHER}",
        ) from error
    except OSError as error:
        raise CacheDirectoryError(
            f"the cache directory cannot be created: {error.strerror}",
            where=str(directory),
            hint=_CHOOSE_ANOTHER,
        ) from error


def _check(directory: Path) -> None:
    """Refuse a directory that is not only ours."""
    status = directory.stat()
    mode = stat.S_IMODE(status.st_mode)
    what = hint = None
    if status.st_uid != os.geteuid():
        what = f"belongs to user {status.st_uid}, not to you (user {os.geteuid()})"
        hint = _CHOOSE_ANOTHER
    elif mode & (stat.S_IWGRP | stat.S_IWOTH):
        what = f"can be written by other users (mode {mode:04o})"
        hint = f"run: chmod go-w '{directory}'"
    elif mode & stat.S_IRWXU != stat.S_IRWXU:
        what = f"is not readable and writable by you (mode {mode:04o})"
        hint = f"run: chmod u+rwx '{directory}'"
    elif not os.access(directory, os.W_OK | os.X_OK):
        what = f"is on a read-only file system (mode {mode:04o})"
        hint = _CHOOSE_ANOTHER
    if what is not None:
        raise CacheDirectoryError(f"the cache directory {what}", where=str(directory), hint=hint)


def _check_ancestors(directory: Path) -> None:
    """Refuse a place where others could swap the directory for one of theirs.

    A directory that everybody may write is safe to be in only with the sticky bit, as on ``/tmp``.
    """
    for ancestor in directory.parents:
        mode = stat.S_IMODE(ancestor.stat().st_mode)
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise CacheDirectoryError(
                f"the cache directory could be replaced by other users: a directory above it can be written "
                f"by everybody (mode {mode:04o})",
                where=str(ancestor),
                hint=f"run: chmod o-w '{ancestor}', or {_CHOOSE_ANOTHER}",
            )


@contextmanager
def atomic_directory(final: Path) -> Iterator[Path]:
    """Build a directory that appears at ``final`` whole or not at all.

    Yields a new, empty directory beside ``final``. When the block ends without an exception, its
    content is flushed to the disk and renamed to ``final``; if another process was faster, its entry is kept
    and ours is dropped. After an exception nothing is left. What writers left that were killed is
    removed the next time somebody builds the same entry.

    Raises:
        CacheDirectoryError: the directory cannot be created, flushed or renamed (disk full,
            permissions). Exceptions of the block pass through unchanged.
    """
    _create(final.parent, parents=True)
    _remove_abandoned(final)
    partial, lock = _new_partial(final)
    try:
        yield partial
        _publish(partial, final)
    finally:
        # Absent after a successful rename.
        shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


@contextmanager
def scratch_directory(name: Path) -> Iterator[Path]:
    """A directory for work in progress; it is gone after the block.

    Like `atomic_directory` it is protected from other processes and threads while it is in use, and
    what a killed process left is removed the next time somebody works on the same ``name``.

    Raises:
        CacheDirectoryError: the directory cannot be created.
    """
    _create(name.parent, parents=True)
    _remove_abandoned(name)
    partial, lock = _new_partial(name)
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


def _new_partial(final: Path) -> tuple[Path, int]:
    """A new directory beside ``final``, and a descriptor that holds its lock.

    The lock says that the writer lives: the kernel drops it when the process dies in any way.
    """
    while True:
        partial = final.parent / f".{final.name}.{secrets.token_hex(8)}{_PARTIAL_SUFFIX}"
        try:
            partial.mkdir(mode=0o700)
            lock = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # a cleaner took it between the two calls
        except OSError as error:
            raise _failed("cannot be created", error, final) from error
        with suppress(OSError):  # no locks on this file system: cleaners then go by age
            fcntl.flock(lock, fcntl.LOCK_EX)
        if partial.exists():
            return partial, lock
        os.close(lock)  # a cleaner held the lock before us, and removed it


def _remove_abandoned(final: Path) -> None:
    """Remove unfinished versions of ``final`` whose writer is gone."""
    # Not a glob: a name may contain wildcard characters.
    prefix = f".{final.name}."
    for partial in sorted(final.parent.iterdir()):
        if partial.name.startswith(prefix) and partial.name.endswith(_PARTIAL_SUFFIX):
            _remove_if_abandoned(partial)


def _remove_if_abandoned(partial: Path) -> None:
    try:
        lock = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return  # gone meanwhile, or not a directory of ours
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        abandoned = True
    except BlockingIOError:
        abandoned = False
    except OSError:
        abandoned = time.time() - os.fstat(lock).st_mtime > _ABANDONED_AFTER_SECONDS
    try:
        if abandoned:
            shutil.rmtree(partial, ignore_errors=True)
    finally:
        os.close(lock)


def _publish(partial: Path, final: Path) -> None:
    try:
        _flush(partial)
        partial.rename(final)
        _flush_one(final.parent)
    except OSError as error:
        if error.errno in _NAME_TAKEN and final.is_dir():
            return
        raise _failed("cannot be completed", error, final) from error


def _flush(directory: Path) -> None:
    """Write files, then the directories that name them, to the disk."""
    for parent, _, names in os.walk(directory, topdown=False):
        for name in names:
            _flush_one(Path(parent, name))
        _flush_one(Path(parent))


def _flush_one(path: Path) -> None:
    if path.is_symlink():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(what: str, error: OSError, final: Path) -> CacheDirectoryError:
    hint = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else _CHOOSE_ANOTHER
    return CacheDirectoryError(f"a cache entry {what}: {error.strerror}", where=str(final), hint=hint)
