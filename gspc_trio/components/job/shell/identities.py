"""What tasks were made of: the code of their transitions, and the files on the host of the job."""

from __future__ import annotations

import os
import stat
import time
from hashlib import blake2b, file_digest
from pathlib import Path

from gspc_trio.components.job.cache import CompareFiles, NotCacheable, StoredFiles
from gspc_trio.components.job.task_key import Mark, files_named
from gspc_trio.compute.code import read_source
from gspc_trio.compute.folders import find_files
from gspc_trio.core.code import Program, SourceFile, Variants
from gspc_trio.core.code_identity import (
    IDENTITY_BYTES,
    Unidentifiable,
    code_identity,
    source_identity,
    value_identity,
)
from gspc_trio.core.file_sets import is_directory, is_glob
from gspc_trio.core.staging import DEFAULT_LIMITS
from gspc_trio.workflow.calls import runs_of
from gspc_trio.workflow.net import Net, Transition

CONTENT_BYTES_MAX = 64 << 20
"""Larger files are told apart by modification time and size, unless it is stated how: reading takes long."""

SETTLED_NS = 100_000_000
"""A file may be written again without another time if it was written less than so long ago."""

FILES_MAX = 10_000
"""Of so many files the content is remembered."""


def identities_of(net: Net) -> dict[str, bytes]:
    """Return the identity of the code of each transition that makes tasks.

    It changes with the code, and with what becomes of its arguments and of what it returns. It is empty where
    the code cannot be told from others.
    """
    found, files = {}, FileIdentities("", "auto")
    for transition in net.all_transitions:
        if transition.is_inline or transition.subnet is not None:
            continue
        try:
            digest = blake2b(_identity_of(transition, files), digest_size=IDENTITY_BYTES)
        except (Unidentifiable, OSError, SyntaxError, ValueError):
            found[transition.name] = b""
            continue
        digest.update(repr((transition.parameters, transition.outputs)).encode("utf-8", "surrogatepass"))
        found[transition.name] = digest.digest()
    return found


def _identity_of(transition: Transition, files: FileIdentities) -> bytes:
    """Return the identity of what tasks run; scripts count by their content."""
    if isinstance(transition.run, Variants):
        return b"".join(_identity_of_code(run, transition, files) for run in runs_of(transition.run))
    return _identity_of_code(transition.run, transition, files)


def _identity_of_code(run: object, transition: Transition, files: FileIdentities) -> bytes:
    if isinstance(run, SourceFile):
        return source_identity(read_source(run.path), run.path, run.function)
    if isinstance(run, Program):
        in_folder = transition.stage is not None and transition.stage.has_files
        scripts = tuple(map(files.plain_identity, files_named(run, in_folder=in_folder)))
        told = (run.arguments, sorted(run.environment.items()), run.working_directory, run.check)
        return value_identity((told, scripts))
    assert callable(run), "only inline transitions run nothing"
    return code_identity(run)


class FileContents:
    """Knows the files below the directory of a job by their content; one that has not changed is read once.

    Args:
        directory: of the files; "" for the working directory.
    """

    def __init__(self, directory: str = "") -> None:
        self._directory = Path(directory or ".")
        self._known: dict[str, tuple[Mark, bytes]] = {}

    def mark(self, path: str) -> Mark | None:
        """Return what changes when a file does; None if there is no plain file."""
        try:
            found = os.stat(self._directory / path)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size

    def digest(self, path: str) -> bytes | None:
        """Return the digest of what a file has; None if it cannot be read, or changes meanwhile."""
        mark = self.mark(path)
        known = self._known.get(path)
        if mark is None or (known is not None and known[0] == mark):
            return None if mark is None or known is None else known[1]
        try:
            with open(self._directory / path, "rb") as file:
                digest = file_digest(file, lambda: blake2b(digest_size=IDENTITY_BYTES)).digest()
        except OSError:
            return None
        if self.mark(path) != mark:
            return None
        if time.time_ns() < mark[2] + SETTLED_NS:
            return digest
        if len(self._known) >= FILES_MAX:
            self._known.clear()
        self._known[path] = (mark, digest)
        return digest


class FileIdentities:
    """Tells files apart.

    Args:
        directory: of files whose name is relative.
        compare: how.
        files_max: more files are no set.
    """

    def __init__(
        self, directory: str, compare: CompareFiles, files_max: int = DEFAULT_LIMITS.files_max
    ) -> None:
        self._files_max = files_max
        self._directory = directory
        self._compare = compare
        self._contents = FileContents(directory)

    def identity(self, name: str) -> bytes:
        """Return the identity of what a name stands for now.

        A pattern, or a name with a slash at its end, stands for all files that match, or that are in there.
        A directory named without the slash counts by its name alone.

        Raises:
            NotCacheable: it is a device or a pipe, or cannot be read.
        """
        if is_directory(name):
            return self._identity_of_set(name)
        path = os.path.join(self._directory, name)
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            is_set = is_glob(name) and not os.path.isabs(name)
            return self._identity_of_set(name) if is_set else b"absent".ljust(IDENTITY_BYTES)
        except (OSError, ValueError) as error:
            raise NotCacheable(f"the file {name} cannot be read: {error}") from error
        if stat.S_ISDIR(found.st_mode):
            return b"directory".ljust(IDENTITY_BYTES)
        if not stat.S_ISREG(found.st_mode):
            raise NotCacheable(f"{name} is no plain file")
        if self._compare == "time" or (self._compare == "auto" and found.st_size > CONTENT_BYTES_MAX):
            text = f"{found.st_mtime_ns} {found.st_size}".encode()
            return blake2b(text, digest_size=IDENTITY_BYTES, person=b"time").digest()
        identity = self._contents.digest(name)
        if identity is None:
            raise NotCacheable(f"the file {name} cannot be read, or changes meanwhile")
        return identity

    def plain_identity(self, name: str) -> bytes | None:
        """Return the identity of a plain file, None if the name stands for none; NotCacheable as above."""
        return None if self._contents.mark(name) is None else self.identity(name)

    def names_in(self, pattern: str) -> list[str]:
        """Return the files that match a pattern, or are in a directory, sorted; NotCacheable as above."""
        try:
            start = os.open(self._directory or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return find_files(start, pattern, self._files_max)
            finally:
                os.close(start)
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise NotCacheable(f"the files {pattern} cannot be listed: {error}") from error

    def _identity_of_set(self, pattern: str) -> bytes:
        names = self.names_in(pattern)
        digest = blake2b(digest_size=IDENTITY_BYTES, person=b"set")
        for name in names:
            digest.update(blake2b(os.fsencode(name), digest_size=IDENTITY_BYTES).digest())
            digest.update(self.identity(name))
        return digest.digest()

    def are_same(self, files: StoredFiles) -> bool:
        """Return whether all these files are as they were."""
        return all(self.identity(name) == identity for name, identity in files)


class TaskFiles:
    """Tells whether the files that tasks read and store are as they were, by their content.

    Args:
        directory: of the files; "" for the working directory.
        files_max: a set of more files is never as it was.
    """

    def __init__(self, directory: str = "", files_max: int = DEFAULT_LIMITS.files_max) -> None:
        self._identities = FileIdentities(directory, "content", files_max)
        self._contents = FileContents(directory)

    def mark(self, name: str) -> Mark | None:
        """Return what :meth:`is_same` wants to know: of a file its mark, of a set the time of now."""
        if is_directory(name) or is_glob(name):
            return (time.time_ns(),)
        return self._contents.mark(name)

    def is_same(self, name: str, mark: Mark | None) -> bool:
        """Return whether files are as they were when they had this mark."""
        if not (is_directory(name) or is_glob(name)):
            return self._contents.mark(name) == mark
        try:
            marks = list(map(self._contents.mark, self._identities.names_in(name)))
        except NotCacheable:
            return False
        return mark is not None and all(one is not None and one[2] < mark[0] for one in marks)

    def digest(self, name: str) -> bytes | None:
        """Return the digest of what files have; None if one cannot be read, or changes meanwhile."""
        try:
            return self._identities.identity(name)
        except NotCacheable:
            return None
