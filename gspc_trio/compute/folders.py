"""Directories in which tasks with files run: made, read and removed without ever following a link.

Those of one owner (a RIF) lie in a directory of its own that it keeps locked, so that whoever comes later
knows what an owner has left that was killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from weakref import WeakSet

PREFIX = "gspc-files-"
REMOVE_TRIES = 3
"""How often to remove a directory in which something may still be written."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class BadFile(OSError):
    """What is there under a name is no plain file of the directory; the message says what it is."""


def sweep(parent: str = "", prefix: str = PREFIX) -> None:
    """Remove the directories of owners that are gone.

    Args:
        parent: where they are; "" for the system's directory for temporary files.
        prefix: with what their names begin.
    """
    parent = parent or tempfile.gettempdir()
    with suppress(OSError):
        for entry in os.scandir(parent):
            if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    _remove_if_left(entry.path)


def _remove_if_left(path: str) -> None:
    descriptor = os.open(path, _DIRECTORY)
    try:
        if os.fstat(descriptor).st_uid == os.getuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(path)
    finally:
        os.close(descriptor)


def remove_tree(path: str) -> None:
    """Remove a directory with all that is in it; links are removed, not followed."""

    def allow(function: Callable[..., object], name: str, _: object) -> None:
        with suppress(OSError):
            os.chmod(os.path.dirname(name), 0o700)
            if function is not os.rmdir and os.path.isdir(name) and not os.path.islink(name):
                os.chmod(name, 0o700)
                shutil.rmtree(name, ignore_errors=True)
            else:
                function(name)

    for _ in range(REMOVE_TRIES):
        shutil.rmtree(path, onerror=allow)
        if not os.path.lexists(path):
            return


class Folder:
    """A directory of one task.

    Attributes:
        path: its name.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, _DIRECTORY)

    def create(self, parts: Sequence[str]) -> int:
        """Return a descriptor for writing a new file; directories on the way are made.

        Raises:
            OSError: it is there already, or cannot be made.
        """
        where = self._enter(parts[:-1], make=True)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(parts[-1], flags, 0o666, dir_fd=where)
        finally:
            os.close(where)

    def open(self, parts: Sequence[str]) -> tuple[int, int]:
        """Return a descriptor for reading a plain file that has no other name, and its size.

        Raises:
            FileNotFoundError: there is none.
            BadFile: it is a link, a device or a directory, or lies behind a link.
        """
        where = self._enter(parts[:-1])
        try:
            return open_plain(where, parts[-1], "/".join(parts))
        finally:
            os.close(where)

    def remove(self) -> None:
        """Remove it with all that is in it."""
        self.close()
        remove_tree(self.path)

    def close(self) -> None:
        """Close it; it stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _enter(self, parts: Sequence[str], make: bool = False) -> int:
        return enter(self._descriptor, parts, make)


def enter(start: int, parts: Sequence[str], make: bool = False) -> int:
    """Return a descriptor of a directory below one, without following a link.

    Args:
        start: descriptor of the one.
        parts: the way there.
        make: make what is missing.

    Raises:
        BadFile: one of the parts is a link or no directory.
        OSError: it cannot be entered or made.
    """
    where = os.dup(start)
    for number, part in enumerate(parts):
        try:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=where)
            inner = os.open(part, _DIRECTORY, dir_fd=where)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                name = "/".join(parts[: number + 1])
                raise BadFile(error.errno, f"{name} is a link or no directory: it is not followed") from None
            raise
        finally:
            os.close(where)
        where = inner
    return where


def open_plain(where: int, name: str, shown: str, *, links: bool = False) -> tuple[int, int]:
    """Return a descriptor for reading a plain file of a directory, and its size.

    Args:
        where: descriptor of the directory.
        name: of the file in it.
        shown: how to call it in errors.
        links: whether it may have other names, too.

    Raises:
        FileNotFoundError: there is none.
        BadFile: it is a link, a device or a directory.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=where)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise BadFile(
                error.errno, f"{shown} is a link or a device: only plain files are staged"
            ) from None
        raise type(error)(error.errno, f"{shown}: {error.strerror}") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or (found.st_nlink != 1 and not links):
        os.close(descriptor)
        what = "has several names" if stat.S_ISREG(found.st_mode) else "is no plain file"
        raise BadFile(errno.EINVAL, f"{shown} {what}: only plain files of the task itself are staged")
    return descriptor, found.st_size


class Folders:
    """The directories of one owner's tasks, in one that is made when the first is wanted.

    Args:
        parent: where; "" for the system's directory for temporary files.
        prefix: with what the name of that one begins.
    """

    def __init__(self, parent: str = "", prefix: str = PREFIX) -> None:
        self._parent = parent or tempfile.gettempdir()
        self._prefix = prefix
        self._home = ""
        self._lock = -1
        self._number = 0
        self._one_at_a_time = Lock()
        self._made: WeakSet[Folder] = WeakSet()

    def make(self) -> Folder:
        """Return a new directory; from any thread.

        Raises:
            OSError: it cannot be made.
        """
        with self._one_at_a_time:
            if not self._home:
                sweep(self._parent, self._prefix)
                self._settle()
            self._number += 1
            path = os.path.join(self._home, str(self._number))
            os.mkdir(path, 0o700)
            folder = Folder(path)
            self._made.add(folder)
            return folder

    def _settle(self) -> None:
        while True:
            home = tempfile.mkdtemp(prefix=self._prefix, dir=self._parent)
            lock = os.open(home, _DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.lexists(home):
                    self._home, self._lock = home, lock
                    return
            except OSError:  # somebody takes it for left: so it is
                pass
            os.close(lock)

    def close(self) -> None:
        """Remove everything."""
        for folder in self._made:
            folder.close()
        if self._home:
            home, self._home = self._home, ""
            remove_tree(home)
            os.close(self._lock)
