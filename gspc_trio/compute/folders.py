"""Directories in which tasks with files run: made, read and removed without ever following a link.

Those of one owner (a RIF) lie in a directory of its own that it keeps locked, so that whoever comes later
knows what an owner has left that was killed.
"""

from __future__ import annotations

import errno
import fcntl
import fnmatch
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from weakref import WeakSet

from gspc_trio.compute.channel import FOLDER_PREFIX as PREFIX
from gspc_trio.core.file_sets import is_directory, is_glob, without_slash

REMOVE_TRIES = 3
"""How often to remove a directory in which something may still be written."""

DEPTH_MAX = 100
"""Directories nested deeper are not searched for files."""

ENTRIES_MAX = 1_000_000
"""So many entries of directories are looked at in one search."""

SHOWN_MAX = 10
"""So many entries of a directory are named in an error."""

_ALL = ""
"""As the last part of a pattern: all that is there."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class BadFile(OSError):
    """What is there under a name is no plain file of the directory; the message says what it is."""

    def __str__(self) -> str:
        return self.strerror or super().__str__()


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

    def link(self, parts: Sequence[str], source: str) -> bool:
        """Give a file elsewhere a name here, too; False if it lies where that cannot be.

        Raises:
            OSError: something of this name is there already, or it cannot be made.
        """
        where = self._enter(parts[:-1], make=True)
        try:
            os.link(source, parts[-1], dst_dir_fd=where, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
                return False
            raise
        finally:
            os.close(where)
        return True

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

    def find(self, pattern: str, files_max: int) -> list[str]:
        """Return the plain files that match a pattern, see :func:`find_files`."""
        return find_files(self._descriptor, pattern, files_max)

    def tell(self, pattern: str) -> str:
        """Say what there is where a pattern finds nothing, see :func:`tell_what_is_there`."""
        return tell_what_is_there(self._descriptor, pattern)

    def has(self, parts: Sequence[str]) -> bool:
        """Return whether there is something of this name."""
        try:
            where = self._enter(parts[:-1])
        except FileNotFoundError:
            return False
        try:
            os.stat(parts[-1], dir_fd=where, follow_symlinks=False)
        except FileNotFoundError:
            return False
        finally:
            os.close(where)
        return True

    def make_directory(self, parts: Sequence[str]) -> None:
        """Make a directory, and those on the way."""
        os.close(self._enter(parts, make=True))

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


@contextmanager
def whole_file(where: int, name: str, own_name: str) -> Iterator[int]:
    """A new file to write to; it is called ``name`` when the block has ended, and gone if that fails.

    Args:
        where: descriptor of its directory.
        name: of the file, which is replaced.
        own_name: what it is called before that, where a file system wants a name.
    """
    target = _new_file(where, own_name)
    try:
        yield target
        with suppress(FileExistsError):  # it has had its name from the beginning
            os.link(f"/proc/self/fd/{target}", own_name, dst_dir_fd=where)
        os.rename(own_name, name, src_dir_fd=where, dst_dir_fd=where)
    except BaseException:
        with suppress(OSError):
            os.unlink(own_name, dir_fd=where)
        raise
    finally:
        os.close(target)


def _new_file(where: int, own_name: str) -> int:
    """Return a new file without a name, or with its own where a file system wants one."""
    try:
        return os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=where)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(own_name, flags, 0o666, dir_fd=where)


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


def find_files(start: int, pattern: str, files_max: int) -> list[str]:
    """Return the plain files below a directory that match a pattern, sorted.

    No link is followed. As in a shell, ``*`` matches no name that begins with a dot.

    Args:
        start: descriptor of the directory.
        pattern: path with ``*``, ``?``, ``[...]`` or ``**`` in it; with a slash at its end a directory with
            all that is in it.
        files_max: no more may match.

    Raises:
        FileNotFoundError: the directory that is meant is not there.
        BadFile: one that matches is a link or a device; there are too many, or their names are no UTF-8.
        OSError: a directory cannot be read.
    """
    search = _Search(files_max, pattern)
    path = without_slash(pattern)
    parts = path.split("/") if path else []
    if is_directory(pattern):
        parts.append(_ALL)
    elif parts[-1] == "**":
        parts.append("*")
    try:
        search.below(start, "", parts)
    except FileNotFoundError:
        if is_directory(pattern):
            raise
    return sorted(search.found)


def tell_what_is_there(start: int, pattern: str) -> str:
    """Say, for people, what there is where a pattern finds nothing.

    Args:
        start: descriptor of the directory where it begins.
        pattern: see :func:`find_files`.
    """
    where, entered = os.dup(start), ""
    try:
        parts = pattern.split("/")[:-1]
        for part in parts:
            if is_glob(part):
                break
            try:
                inner = enter(where, [part])
            except OSError:
                return f"there is no directory {entered}{part}"
            os.close(where)
            where, entered = inner, f"{entered}{part}/"
        names = sorted(os.listdir(where))
    except OSError as error:
        return f"{entered or 'the directory'} cannot be read: {error.strerror}"
    finally:
        os.close(where)
    shown = ", ".join(name if name.isprintable() else ascii(name) for name in names[:SHOWN_MAX])
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return f"in {entered or 'the directory'} there is {shown or 'nothing'}{more}"


class _Search:
    """Finds the files that match a pattern.

    Args:
        files_max: no more may match.
        pattern: for errors.
    """

    def __init__(self, files_max: int, pattern: str) -> None:
        self.found: set[str] = set()
        self._files_max = files_max
        self._pattern = pattern
        self._seen = 0

    def below(self, where: int, prefix: str, parts: Sequence[str]) -> None:
        """Find what matches the parts of a pattern in a directory."""
        if prefix.count("/") > DEPTH_MAX:
            raise BadFile(errno.ELOOP, f"{prefix[:100]} is nested too deep: at most {DEPTH_MAX} directories")
        first, *rest = parts
        if first in ("**", _ALL):
            self._everywhere(where, prefix, first, rest)
        elif rest and not is_glob(first):
            self._inside(where, prefix, first, rest)
        elif is_glob(first):
            self._matching(where, prefix, first, rest)
        else:
            self._note(first, prefix, os.stat(first, dir_fd=where, follow_symlinks=False).st_mode)

    def _everywhere(self, where: int, prefix: str, first: str, rest: Sequence[str]) -> None:
        if first:
            with suppress(FileNotFoundError):
                self.below(where, prefix, rest)
        for name, mode in self._entries(where):
            if stat.S_ISDIR(mode):
                if not (first and name.startswith(".")):
                    with suppress(FileNotFoundError):
                        self._inside(where, prefix, name, (first, *rest))
            elif not first:
                self._note(name, prefix, mode)

    def _matching(self, where: int, prefix: str, first: str, rest: Sequence[str]) -> None:
        for name, mode in self._entries(where):
            if not fnmatch.fnmatchcase(name, first) or (name[0] == "." and first[0] != "."):
                continue
            if rest and (stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                with suppress(FileNotFoundError):
                    self._inside(where, prefix, name, rest)
            elif not rest and not stat.S_ISDIR(mode):
                self._note(name, prefix, mode)

    def _inside(self, where: int, prefix: str, name: str, parts: Sequence[str]) -> None:
        try:
            inner = enter(where, [name])
        except OSError as error:
            if isinstance(error, BadFile):
                raise BadFile(
                    error.errno, f"{prefix}{name} is a link or no directory: it is not followed"
                ) from None
            raise type(error)(error.errno, f"{prefix}{name}: {error.strerror}") from None
        try:
            self.below(inner, f"{prefix}{name}/", parts)
        finally:
            os.close(inner)

    def _entries(self, where: int) -> list[tuple[str, int]]:
        found = []
        with os.scandir(where) as entries:
            for entry in entries:
                self._seen += 1
                if self._seen > ENTRIES_MAX:
                    raise BadFile(errno.EMFILE, f"{self._pattern} looks at more than {ENTRIES_MAX} files")
                with suppress(FileNotFoundError):  # it has just gone
                    found.append((entry.name, entry.stat(follow_symlinks=False).st_mode))
        return found

    def _note(self, name: str, prefix: str, mode: int) -> None:
        path = prefix + name
        if not stat.S_ISREG(mode):
            what = "is a directory" if stat.S_ISDIR(mode) else "is a link or a device"
            raise BadFile(errno.EINVAL, f"{path} {what}: only plain files are staged")
        try:
            path.encode()
        except UnicodeEncodeError:
            raise BadFile(errno.EILSEQ, f"the name {path!a} is no text in UTF-8") from None
        self.found.add(path)
        if len(self.found) > self._files_max:
            raise BadFile(
                errno.EMFILE,
                f"{self._pattern} stands for more files than a task may have "
                f"({self._files_max}, StageLimits.files_max)",
            )


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
        self._lent = 0
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

    def name(self) -> str:
        """Return the name of a directory that somebody else makes; from any thread.

        Raises:
            OSError: it could not be made.
        """
        folder = self.make()
        folder.remove()
        return folder.path

    @contextmanager
    def lent(self) -> Iterator[str]:
        """Return a new directory for the block; when nobody has one any more, nothing is left.

        Raises:
            OSError: it cannot be made.
        """
        folder = self.make()
        self._lent += 1
        try:
            yield folder.path
        finally:
            folder.close()
            remove_tree(folder.path)
            self._lent -= 1
            if not self._lent:
                self.close()

    def _settle(self) -> None:
        while True:
            home = tempfile.mkdtemp(prefix=self._prefix, dir=self._parent)
            try:
                lock = os.open(home, _DIRECTORY)
            except FileNotFoundError:  # somebody has taken it for left
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.lexists(home):
                    self._home, self._lock = home, lock
                    return
            except OSError:  # somebody takes it for left
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
