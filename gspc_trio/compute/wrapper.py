"""Staging by the process that runs a task, from and to a directory of the job that it sees itself (SWF-3).

It makes the directory of the task, copies files there, runs the task in it, copies what the task has made
back, and removes the directory, whatever has become of the task.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from gspc_trio.compute.errors import TaskFailure
from gspc_trio.compute.folders import Folder, enter, find_files, open_plain, remove_tree, whole_file
from gspc_trio.core.file_sets import (
    NameClash,
    check_distinct,
    is_directory,
    is_glob,
    name_files,
    takes_several,
    without_slash,
)
from gspc_trio.core.staging import parts_of

COPY_BYTES = 16 << 20


class Wrapped:
    """The files of one task.

    Args:
        said: what :func:`~gspc_trio.core.staging.wrapper_order` has returned, without its mark.
    """

    def __init__(self, said: bytes) -> None:
        self._home, self._directory, self._fetch, self._store, self._files_max, self._bytes_max = json.loads(
            said
        )
        self._given: set[str] = set()

    def stage_in(self) -> str:
        """Make the directory of the task with its files; return its name.

        Raises:
            TaskFailure: a file is not there, or too large.
        """
        with _failing(), self._opened() as home:
            os.mkdir(self._directory, 0o700)
            folder = Folder(self._directory)
            files = [
                file
                for target, sources, optional in self._fetch
                for file in self._found(home, target, sources, optional)
            ]
            check_distinct(files)
            for name, path in self._bounded(files):
                with _open(home, path) as (source, size_bytes):
                    target = folder.create(parts_of(name))
                    try:
                        _copy(source, target, self._taken(size_bytes))
                    finally:
                        os.close(target)
                self._given.add(name)
            folder.close()
        return str(self._directory)

    def stage_out(self) -> None:
        """Copy what the task has made to the directory of the job; each file is seen there when it is whole.

        Raises:
            TaskFailure: a file is not there, or too large.
        """
        with _failing(), self._opened() as home:
            task = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                files = [
                    (name, path)
                    for pattern, target, optional in self._store
                    for name, path in self._found(task, target, [pattern], optional)
                    if not (is_glob(pattern) and path in self._given)
                ]
                check_distinct(files)
                for name, path in self._bounded(files):
                    with _open(task, path) as (source, size_bytes):
                        self._put(home, name, source, self._taken(size_bytes))
            finally:
                os.close(task)

    def remove(self) -> None:
        """Remove the directory of the task."""
        if os.path.lexists(self._directory):
            remove_tree(self._directory)

    def _bounded(self, files: list[tuple[str, str]]) -> list[tuple[str, str]]:
        if len(files) > self._files_max:
            raise ValueError(f"it has {len(files)} files; at most {self._files_max} may be")
        self._left = self._bytes_max
        return files

    def _taken(self, size_bytes: int) -> int:
        if size_bytes > self._left:
            raise ValueError(f"{size_bytes} bytes in a file are more than it may have ({self._left})")
        self._left -= size_bytes
        return size_bytes

    def _found(self, where: int, target: str, sources: list[str], optional: bool) -> list[tuple[str, str]]:
        """Return the files of a set: what each is to be called, and which it is."""
        found: list[tuple[str, str]] = []
        for source in sources:
            begin = without_slash(source)
            if not (is_glob(source) or is_directory(source) or optional):
                found.append((source.rpartition("/")[2], source))
                continue
            try:
                paths = find_files(where, source, self._files_max)
            except FileNotFoundError:
                paths = []
            if not paths and not optional:
                raise FileNotFoundError(2, f"no file matches {source}")
            size = len(begin) + 1 if is_directory(source) and begin else 0
            found += [
                (path[size:] if is_directory(source) else path.rpartition("/")[2], path) for path in paths
            ]
        if len(found) > 1 and not takes_several(target):
            raise ValueError(f"{target} would be {len(found)} files")
        names = name_files(target, [name for name, _ in found])
        return [(name, path) for name, (_, path) in zip(names, found, strict=True)]

    @contextmanager
    def _opened(self) -> Iterator[int]:
        try:
            home = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            why = f"its wrapper does not see the directory of the job {self._home}: {error.strerror}"
            raise ValueError(f"{why}; use staging=provider there") from None
        try:
            yield home
        finally:
            os.close(home)

    @staticmethod
    def _put(home: int, path: str, source: int, size_bytes: int) -> None:
        *way, name = parts_of(path)
        where, own_name = enter(home, way, make=True), f".{name[:100]}.{secrets.token_hex(8)}"
        try:
            with whole_file(where, name, own_name) as target:
                _copy(source, target, size_bytes)
        finally:
            os.close(where)


@contextmanager
def _open(start: int, path: str) -> Iterator[tuple[int, int]]:
    *way, name = parts_of(path)
    where = enter(start, way)
    try:
        source, size_bytes = open_plain(where, name, path, links=True)
    finally:
        os.close(where)
    try:
        yield source, size_bytes
    finally:
        os.close(source)


def _copy(source: int, target: int, size_bytes: int) -> None:
    offset = 0
    while offset < size_bytes:
        done = os.sendfile(target, source, offset, min(COPY_BYTES, size_bytes - offset))
        if not done:
            raise ValueError("a file has become shorter while it was staged")
        offset += done


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, NameClash) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TaskFailure("staging", why) from None
