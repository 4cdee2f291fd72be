"""The files that a task finds in its directory: where each comes from, and what it is called there."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, TypeAlias

import trio
from msgspec import Struct

from gspc_trio.components.worker.shell.file_transfer import (
    Room,
    TaskFiles,
    checked_parts,
    for_each,
    write_all,
)
from gspc_trio.components.worker.shell.staging import StagingError
from gspc_trio.compute.folders import Folder
from gspc_trio.core.file_sets import (
    NameClash,
    check_distinct,
    is_directory,
    name_files,
    takes_several,
    without_slash,
)
from gspc_trio.core.staging import FilePlan, Gather, StageLimits
from gspc_trio.core.uri import file_name, mask_uri, set_of
from gspc_trio.protocol.pieces import Piece, pieces_of
from gspc_trio.protocol.values import (
    BadValue,
    decode_reference,
    is_encoded,
    is_plain,
    is_reference,
    loads,
)

if TYPE_CHECKING:  # a job without a memory layer needs nothing of that
    from gspc_trio.components.worker.shell.iml_staging import DataStaging

FILES_AHEAD = 8
"""So many files of a task are fetched at a time: with one alone a link would rest between them."""


class _Part(Struct, frozen=True):
    """A part of a value that becomes a file of its own.

    Attributes:
        piece: the part.
        memory: what it is a part of, or a descriptor of that.
    """

    piece: Piece
    memory: memoryview | int


_Source: TypeAlias = "str | int | _Part"


class FilesIn:
    """Puts the files of one task into its directory.

    Args:
        plan: of the task.
        values: its arguments.
        limits: of the job.
        transfer: to the host of the job.
        data: for jobs that have a memory layer.
    """

    def __init__(
        self,
        plan: FilePlan,
        values: tuple[bytes, ...],
        limits: StageLimits,
        transfer: TaskFiles,
        data: DataStaging | None,
    ) -> None:
        self._plan = plan
        self._values = values
        self._limits = limits
        self._transfer = transfer
        self._data = data
        self._room = Room(limits.file_bytes_max)
        self._opened = AsyncExitStack()

    async def put(self, folder: Folder) -> frozenset[str]:
        """Put the files into a directory; return their names.

        Raises:
            StagingError: one is not to be had, too large, or its name leads out of the directory; or two
                would have the same name.
        """
        async with self._opened:
            files: list[tuple[str, _Source]] = list(self._plan.fetch)
            for one in self._plan.gather:
                files += await self._resolve(one)
            if len(files) > self._limits.files_max:
                raise StagingError(
                    f"it has {len(files)} files to fetch; at most {self._limits.files_max} may be"
                )
            try:
                check_distinct((name, self._shown(source)) for name, source in files)
            except NameClash as error:
                raise StagingError(str(error)) from None
            for one in self._plan.gather:
                if is_directory(one.target) and without_slash(one.target):
                    parts = checked_parts(without_slash(one.target))
                    await trio.to_thread.run_sync(folder.make_directory, parts)

            async def create(file: tuple[str, _Source]) -> None:
                await self._create(folder, *file)

            await for_each(FILES_AHEAD, iter(files), create)
            return frozenset(name for name, _ in files)

    async def _resolve(self, one: Gather) -> list[tuple[str, _Source]]:
        """Return the files of a set: what each is called, and where it comes from."""
        found: list[tuple[str, _Source]] = []
        for source in one.sources:
            if isinstance(source, int):
                found += await self._parts(source)
            elif one.is_optional or set_of(source):
                found += await self._matching(source, one.is_optional)
            else:
                found.append((file_name(source), source))
        try:
            names = name_files(one.target, [name for name, _ in found])
        except NameClash as error:
            raise StagingError(str(error)) from None
        if len(found) > 1 and not takes_several(one.target):
            raise StagingError(f"{one.target} would be {len(found)} files")
        return [(name, source) for name, (_, source) in zip(names, found, strict=True)]

    async def _matching(self, pattern: str, is_optional: bool) -> list[tuple[str, _Source]]:
        paths, there = await self._transfer.find(pattern, self._limits.files_max)
        if there and not paths and not is_optional:
            raise StagingError(f"no file of the job matches {mask_uri(pattern)}: {there}")
        stated = set_of(pattern)
        return [(file_name(path, stated), path) for path in paths]

    async def _parts(self, index: int) -> list[tuple[str, _Source]]:
        """Return the parts of a value that become files: all of it, or what is in a list or mapping."""
        value = self._values[index]
        try:
            if not is_reference(value):
                if not is_plain(value):
                    raise BadValue("it is neither bytes nor text, nor a list or mapping of these")
                view = memoryview(value)
                pieces = pieces_of(view, self._limits.files_max)
                return [(piece.name, _Part(piece, view)) for piece in pieces]
            reference = decode_reference(value)
            if not is_encoded(reference):
                return [("", index)]
            data = self._layer()
            size_bytes, there = await self._opened.enter_async_context(data.opened(reference.data_id))
            pieces = data.pieces(there, size_bytes, self._limits.files_max)
            return [(piece.name, _Part(piece, there)) for piece in pieces]
        except BadValue as error:
            raise StagingError(f"a value that is to become files: {error}") from None

    def _shown(self, source: _Source) -> str:
        if isinstance(source, str):
            return source
        if isinstance(source, int) or not source.piece.name:
            return "the value of an input"
        return f"{source.piece.name} of the value of an input"

    async def _create(self, folder: Folder, name: str, source: _Source) -> None:
        parts = checked_parts(name)
        try:
            if isinstance(source, str) and not self._is_stored(name):
                size_bytes = await self._transfer.link(folder, parts, source)
                if size_bytes is not None:
                    self._room.take(size_bytes)
                    return
            target = await trio.to_thread.run_sync(folder.create, parts)
            try:
                await self._fill(target, source)
            finally:
                os.close(target)
        except (BadValue, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            raise StagingError(f"its file {name}: {why or error}") from None

    def _is_stored(self, name: str) -> bool:
        """Return whether a file is to be stored under the name that it has: a link is nothing of the task."""
        stored = [pattern for pattern, _ in self._plan.store]
        stored += [one.pattern for one in self._plan.scatter]
        within = [without_slash(pattern) for pattern in stored if is_directory(pattern)]
        return name in stored or any(not begin or name.startswith(f"{begin}/") for begin in within)

    async def _fill(self, target: int, source: _Source) -> None:
        """Write a file."""
        if isinstance(source, str):
            await self._transfer.fetch(target, source, self._room)
        elif isinstance(source, _Part):
            begin, end = source.piece.begin, source.piece.end
            self._room.take(end - begin)
            if isinstance(source.memory, int):
                await self._layer().copy_bytes(source.memory, target, begin, end - begin)
            else:
                await trio.to_thread.run_sync(write_all, target, source.memory[begin:end])
        elif is_reference(self._values[source]):
            await self._layer().read_into(decode_reference(self._values[source]), target, self._room)
        else:
            content = bytes_of(self._values[source])
            self._room.take(len(content))
            await trio.to_thread.run_sync(write_all, target, content)

    def _layer(self) -> DataStaging:
        if self._data is None:
            raise StagingError("its data lies in a memory layer, of which the job is no part")
        return self._data


_HINTS: dict[type, str] = {
    list: ", but a list: several files have {index} in their name",
    tuple: ", but a tuple: several files have {index} in their name",
    dict: ", but a mapping: that is a directory, whose name ends with /",
}


def bytes_of(value: bytes) -> bytes:
    """Return the bytes that an encoded value stands for; a text is UTF-8.

    Raises:
        BadValue: it is neither bytes nor text.
    """
    found = loads(value) if is_plain(value) else None  # nothing is unpickled here
    if isinstance(found, str):
        return found.encode("utf-8", "surrogateescape")
    if not isinstance(found, bytes):
        hint = _HINTS.get(type(found), "")
        raise BadValue(f"it is neither bytes nor text nor a range of data{hint}")
    return found
