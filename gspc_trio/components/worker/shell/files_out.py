"""The files that a task leaves in its directory: as values, or on the host of its job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio
from msgspec import Struct

from gspc_trio.components.worker.shell.file_transfer import (
    Room,
    TaskFiles,
    check_size,
    checked_parts,
    for_each,
    read_exactly,
)
from gspc_trio.components.worker.shell.staging import StagingError
from gspc_trio.compute.folders import BadFile, Folder
from gspc_trio.core.file_sets import (
    NameClash,
    check_distinct,
    is_directory,
    is_glob,
    name_files,
    without_slash,
)
from gspc_trio.core.staging import FilePlan, Scatter, StageLimits
from gspc_trio.core.uri import name_in_uri
from gspc_trio.iml.errors import NoRoom
from gspc_trio.protocol.pieces import header, list_header, mapping_header
from gspc_trio.protocol.values import dumps

if TYPE_CHECKING:  # a job without a memory layer needs nothing of that
    from gspc_trio.components.worker.shell.iml_staging import DataStaging

VALUE_BYTES_MAX = 32 << 20
"""What files become in a job without memory layer has no more bytes: it travels in a message."""

FILES_AHEAD = 4
"""So many files of a task are stored at a time."""


class _File(Struct, frozen=True):
    """A file of the task.

    Attributes:
        path: in its directory.
        name: below the directory that was asked for, or its last part.
        size_bytes: its size.
    """

    path: str
    name: str
    size_bytes: int


class FilesOut:
    """Takes the files of one task out of its directory.

    Args:
        plan: of the task.
        folder: its directory.
        given: names of the files that were put there.
        limits: of the job.
        transfer: to the host of the job.
        data: for jobs that have a memory layer.
    """

    def __init__(
        self,
        plan: FilePlan,
        folder: Folder,
        given: frozenset[str],
        limits: StageLimits,
        transfer: TaskFiles,
        data: DataStaging | None,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._given = given
        self._limits = limits
        self._transfer = transfer
        self._data = data
        self._sent: list[tuple[_File, str]] = []

    async def values(self, first: int, restored: list[str]) -> list[tuple[bytes, ...]]:
        """Look at all files; return the values of the outputs that come from files.

        Args:
            first: the first of these outputs.
            restored: for each value the id under which it is to be had again, "" for one that travelled with
                its task; none if it does not run again.

        Raises:
            StagingError: one is not there, is no plain file, or there is too much.
        """
        try:
            return await self._values(first, restored)
        except BadFile as error:
            raise StagingError(str(error)) from None

    async def _values(self, first: int, restored: list[str]) -> list[tuple[bytes, ...]]:
        found: list[tuple[Scatter, list[_File]]] = []
        for name, target in self._plan.store:
            found.append((Scatter(name, target), await self._looked_at([name])))
        for one in self._plan.scatter:
            found.append((one, await self._matching(one)))
        number = sum(len(files) for _, files in found)
        if number > self._limits.files_max:
            raise StagingError(f"it has {number} files to store; at most {self._limits.files_max} may be")
        room = Room(self._limits.file_bytes_max)
        outputs: dict[int, tuple[Scatter, list[_File]]] = {}
        for one, files in found:
            for file in files:
                room.take(file.size_bytes)
            if isinstance(one.target, int):
                outputs[one.target] = (one, files)
            else:
                self._sent += zip(files, _names(one.target, files), strict=True)
        _check_distinct(self._sent)
        if sorted(outputs) != list(range(first, first + len(outputs))):
            raise StagingError("its outputs do not go with the plan of its files")
        ids = iter(restored)
        return [await self._value(*outputs[index], ids) for index in sorted(outputs)]

    async def send(self) -> None:
        """Send the files that go to the host of the job.

        Raises:
            StagingError: one cannot be written there.
        """

        async def send_one(sent: tuple[_File, str]) -> None:
            with self._opened(sent[0]) as source:
                await self._transfer.send(source, sent[0].size_bytes, sent[1])

        await for_each(FILES_AHEAD, iter(self._sent), send_one)

    async def _matching(self, one: Scatter) -> list[_File]:
        pattern, folder = one.pattern, self._folder
        begin = without_slash(pattern)
        if begin:
            checked_parts(begin)
        if not (is_glob(pattern) or is_directory(pattern)):
            try:
                return await self._looked_at([pattern])
            except StagingError:
                if one.is_optional and not await trio.to_thread.run_sync(folder.has, checked_parts(pattern)):
                    return []
                raise
        try:
            paths = await trio.to_thread.run_sync(folder.find, pattern, self._limits.files_max)
        except FileNotFoundError:
            paths = []
            is_there = False
        else:
            is_there = is_directory(pattern)
        if is_glob(pattern):
            paths = [path for path in paths if path not in self._given]
        if not paths and not is_there and not one.is_optional:
            there = await trio.to_thread.run_sync(folder.tell, pattern)
            raise StagingError(f"it has made no file that matches {pattern}: {there}")
        size = len(begin) + 1 if begin and is_directory(pattern) else 0
        files = await self._looked_at(paths)
        return [
            _File(file.path, file.path[size:], file.size_bytes) if is_directory(pattern) else file
            for file in files
        ]

    async def _looked_at(self, paths: Sequence[str]) -> list[_File]:
        """Return files that are there and plain."""

        def look() -> list[_File]:
            found = []
            for path in paths:
                try:
                    source, size_bytes = self._folder.open(checked_parts(path))
                except FileNotFoundError:
                    raise StagingError(f"it has not made the file {path}") from None
                os.close(source)
                found.append(_File(path, path.rpartition("/")[2], size_bytes))
            return found

        return await trio.to_thread.run_sync(look)

    @contextmanager
    def _opened(self, file: _File) -> Iterator[int]:
        """Have a descriptor of a file as it was when it was looked at."""
        source, size_bytes = self._folder.open(checked_parts(file.path))
        try:
            if size_bytes != file.size_bytes:
                raise StagingError(f"its file {file.path} has changed while it was staged")
            yield source
        finally:
            os.close(source)

    async def _value(self, one: Scatter, files: list[_File], restored: Iterator[str]) -> tuple[bytes, ...]:
        """Return the tokens of an output."""
        if self._data is None:
            check_size(sum(file.size_bytes for file in files), VALUE_BYTES_MAX)
        if one.is_each:
            return tuple([await self._content(file, restored) for file in files])
        if is_glob(one.pattern) or is_directory(one.pattern):
            return (await self._several(files, is_directory(one.pattern), restored),)
        if files:
            return (await self._content(files[0], restored),)
        next(restored, None)
        return (dumps(None),)

    async def _content(self, file: _File, restored: Iterator[str]) -> bytes:
        data_id = next(restored, None)
        with self._opened(file) as source:
            if self._data is not None and file.size_bytes >= self._data.bytes_min and data_id != "":
                try:
                    return await self._data.store(source, file.size_bytes, data_id or "")
                except (StagingError, OSError) as error:
                    if file.size_bytes > VALUE_BYTES_MAX or data_id or not _has_no_room(error):
                        raise StagingError(f"its file {file.path}: {_why(error)}") from None
            check_size(file.size_bytes, VALUE_BYTES_MAX)
            return dumps(await trio.to_thread.run_sync(read_exactly, source, 0, file.size_bytes))

    async def _several(self, files: list[_File], with_names: bool, restored: Iterator[str]) -> bytes:
        """Return the list of the contents of files, or the mapping of names to contents."""
        heads = [header(file.size_bytes) for file in files]
        if with_names:
            heads = [dumps(file.name) + head for file, head in zip(files, heads, strict=True)]
        begin = (mapping_header if with_names else list_header)(len(files))
        size_bytes = len(begin) + sum(map(len, heads)) + sum(file.size_bytes for file in files)

        async def write(target: int) -> None:
            assert self._data is not None
            await trio.to_thread.run_sync(os.write, target, begin)
            for file, head in zip(files, heads, strict=True):
                with self._opened(file) as source:
                    await trio.to_thread.run_sync(os.write, target, head)
                    await self._data.copy_bytes(source, target, 0, file.size_bytes)

        data_id = next(restored, None)
        if self._data is not None and size_bytes >= self._data.bytes_min and data_id != "":
            try:
                return await self._data.store_encoded(size_bytes, write, data_id or "")
            except (StagingError, OSError) as error:
                if size_bytes > VALUE_BYTES_MAX or data_id or not _has_no_room(error):
                    names = ", ".join(file.path for file in files[:3])
                    more = ", ..." if len(files) > 3 else ""
                    raise StagingError(f"its files {names}{more}: {_why(error)}") from None
        parts = [begin]
        for file, head in zip(files, heads, strict=True):
            with self._opened(file) as source:
                parts += head, await trio.to_thread.run_sync(read_exactly, source, 0, file.size_bytes)
        return b"".join(parts)


def _names(target: str, files: list[_File]) -> list[str]:
    try:
        return name_files(target, [name_in_uri(target, file.name) for file in files])
    except NameClash as error:
        raise StagingError(str(error)) from None


def _check_distinct(sent: list[tuple[_File, str]]) -> None:
    try:
        check_distinct((name, file.path) for file, name in sent)
    except NameClash as error:
        raise StagingError(str(error)) from None


def _has_no_room(error: Exception) -> bool:
    """Return whether a memory layer has no room for a value: it travels with its task, as others do."""
    return isinstance(error.__cause__, NoRoom)


def _why(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
