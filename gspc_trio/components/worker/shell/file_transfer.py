"""Files between a RIF and the host of a job: asked for, fetched and sent in pieces."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol, TypeVar

import trio

from gspc_trio.components.worker.shell.staging import StagingError
from gspc_trio.compute.folders import BadFile, Folder
from gspc_trio.core.messages import Done
from gspc_trio.core.staging import (
    CHUNK_BYTES,
    FETCHED_AHEAD,
    FIRST_BYTES,
    STORED_AHEAD,
    BadFileName,
    DropFile,
    FileList,
    FilePiece,
    ListFiles,
    ReadFile,
    WriteFile,
    parts_of,
)
from gspc_trio.nursery.connections.buffers import Budget
from gspc_trio.nursery.connections.rpc import Peer, PeerGone, RemoteError
from gspc_trio.nursery.scopes.scope import leaves

AnswerT = TypeVar("AnswerT")
ItemT = TypeVar("ItemT")


class Room:
    """What the files of one task, one way, may still have.

    Args:
        bytes_max: all of them together.

    Attributes:
        left_bytes: what there is room for.
    """

    def __init__(self, bytes_max: int) -> None:
        self.left_bytes: int = bytes_max

    def take(self, size_bytes: int) -> None:
        """Take room for a file.

        Raises:
            StagingError: there is not enough.
        """
        check_size(size_bytes, self.left_bytes)
        self.left_bytes -= size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Give back what was taken for a file that has not come."""
        self.left_bytes += size_bytes


class TaskFiles(Protocol):
    """Moves files between the directories of a job's tasks on this host and the host of the job."""

    async def prepare(self) -> None:
        """Make what has to be there before the directory of the first task.

        Raises:
            StagingError: it cannot be made.
        """
        ...

    async def find(self, pattern: str, files_max: int) -> tuple[list[str], str]:
        """Return the files of the job's host that match a pattern, and what there is if there are none.

        Raises:
            StagingError: there are more than there may be, or they cannot be asked for.
        """
        ...

    async def link(self, folder: Folder, parts: tuple[str, ...], path: str) -> int | None:
        """Link a file of the job's host into a directory; return its size, None if it can only be fetched.

        Raises:
            StagingError: it is not to be had.
        """
        ...

    async def fetch(self, target: int, path: str, room: Room) -> None:
        """Write what is in a file of the job's host to a descriptor.

        Raises:
            StagingError: it is not to be had, too large, or has changed.
        """
        ...

    async def send(self, source: int, size_bytes: int, path: str) -> None:
        """Write a file of the job's host.

        Raises:
            StagingError: it cannot be written there.
        """
        ...

    async def ended(self, attempt: str, problem: str = "") -> None:
        """Told that an attempt has ended, and why it has not succeeded, before its files are sent.

        Raises:
            StagingError: that cannot be noted.
        """
        ...


class FileTransfer:
    """Moves files between this host and that of one job.

    Args:
        server: returns the connection to its job server, None if there is none now.
        buffers: what this process has for transfers that it asks for.
    """

    def __init__(self, server: Callable[[], Peer | None], buffers: Budget) -> None:
        self._server = server
        self._buffers = buffers
        self._transfer = 0

    async def find(self, pattern: str, files_max: int) -> tuple[list[str], str]:
        """Return the files of the job's host that match a pattern, and what there is if there are none.

        Raises:
            StagingError: there are more than there may be, or they cannot be asked for.
        """
        found: list[str] = []
        while True:
            answer = await self._ask(ListFiles(pattern, found[-1] if found else ""), FileList)
            if answer.paths and found and answer.paths[0] <= found[-1]:
                raise StagingError(f"its job server named files that match {pattern} twice")
            found += answer.paths
            if len(found) > files_max:
                raise StagingError(f"{len(found)} files match {pattern}; at most {files_max} may be")
            if answer.is_whole or not answer.paths:
                return found, answer.there

    async def look(self, path: str) -> tuple[int, str]:
        """Return the size of a file of the job's host, and a mark that changes when the file does.

        Raises:
            StagingError: it is not to be had.
        """
        checked_parts(path)
        first = await self._ask(ReadFile(path, 0, 0), FilePiece)
        return first.size_bytes, first.mark

    async def prepare(self) -> None:
        """Nothing is to be made."""

    async def link(self, folder: Folder, parts: tuple[str, ...], path: str) -> int | None:
        """Return None: files of another host cannot be linked."""
        del folder, parts, path
        return None

    async def ended(self, attempt: str, problem: str = "") -> None:
        """Nobody wants to know."""
        del attempt, problem

    async def fetch(self, target: int, path: str, room: Room) -> None:
        """Write what is in a file of the job's host to a descriptor; that must not change meanwhile.

        Raises:
            StagingError: it is not to be had, too large, or has changed.
        """
        checked_parts(path)
        async with self._buffers.hold(CHUNK_BYTES):
            first = await self._ask(ReadFile(path, 0, CHUNK_BYTES), FilePiece)
            size_bytes, mark = first.size_bytes, first.mark
            room.take(size_bytes)
            await trio.to_thread.run_sync(write_all, target, first.data, 0)
            begun = len(first.data)
            del first
        offsets = range(begun, size_bytes, CHUNK_BYTES)
        left = iter(offsets)
        if begun < min(CHUNK_BYTES, size_bytes):
            raise StagingError(f"the file {path} has become shorter while it was fetched")

        async def fetch_pieces() -> None:
            for offset in left:
                async with self._buffers.hold(CHUNK_BYTES):
                    piece = await self._ask(ReadFile(path, offset, CHUNK_BYTES), FilePiece)
                    if piece.mark != mark:
                        raise StagingError(f"the file {path} has changed while it was fetched")
                    if len(piece.data) != min(CHUNK_BYTES, size_bytes - offset):
                        raise StagingError(f"the file {path} has become shorter while it was fetched")
                    await trio.to_thread.run_sync(write_all, target, piece.data, offset)
                    del piece

        await _side_by_side(min(FETCHED_AHEAD, len(offsets)), fetch_pieces)

    async def send(self, source: int, size_bytes: int, path: str) -> None:
        """Write a file of the job's host; it is seen when it is whole.

        Raises:
            StagingError: it cannot be written there.
        """
        checked_parts(path)
        self._transfer += 1
        transfer, reading = self._transfer, trio.Lock()
        offsets = range(FIRST_BYTES, size_bytes, CHUNK_BYTES)
        left = iter(offsets)

        async def send_piece(offset: int, size_max: int) -> None:
            async with reading:
                count = min(size_max, size_bytes - offset)
                data = await trio.to_thread.run_sync(read_exactly, source, offset, count)
            # From here to the call nothing waits: the pieces go out in their order.
            is_last = offset + count >= size_bytes
            await self._ask(WriteFile(transfer, path, offset, is_last, data), Done)

        async def send_pieces() -> None:
            for offset in left:
                await send_piece(offset, CHUNK_BYTES)

        ahead = min(STORED_AHEAD, len(offsets))
        try:
            # Room for all that is under way is taken at once, here before there: so nobody who has some of it
            # waits for others who have the rest.
            async with self._buffers.hold(max(FIRST_BYTES, ahead * CHUNK_BYTES)):
                await send_piece(0, FIRST_BYTES)
                await _side_by_side(ahead, send_pieces)
        except BaseException:
            server = self._server()
            if server is not None:
                server.post(DropFile(transfer))
            raise

    async def _ask(self, message: ReadFile | WriteFile | ListFiles, answer: type[AnswerT]) -> AnswerT:
        server = self._server()
        try:
            if server is None:
                raise PeerGone("not there")
            found: object = await server.call(message)
        except PeerGone as gone:
            raise StagingError(f"its job server is gone: {gone}", returned=True) from None
        except RemoteError as refused:
            raise StagingError(f"on the host of the job: {refused.message}") from None
        if not isinstance(found, answer):
            raise StagingError(f"its job server answered {type(found).__name__}, not {answer.__name__}")
        return found


async def for_each(number: int, items: Iterator[ItemT], move: Callable[[ItemT], Awaitable[None]]) -> None:
    """Have so many items moved at a time; of several errors one is raised."""

    async def move_items() -> None:
        for item in items:
            await move(item)

    await _side_by_side(number, move_items)


async def _side_by_side(number: int, move_pieces: Callable[[], Awaitable[None]]) -> None:
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(number):
                nursery.start_soon(move_pieces)
    except BaseExceptionGroup as group:
        errors = list(leaves(group))  # when a connection goes all fail alike
        raise next((error for error in errors if not isinstance(error, trio.Cancelled)), errors[0]) from None


def checked_parts(name: str) -> tuple[str, ...]:
    """Return the parts of a name.

    Raises:
        StagingError: it leads out of its directory, or is none.
    """
    try:
        return parts_of(name)
    except BadFileName as error:
        raise StagingError(str(error)) from None


def check_size(size_bytes: int, bytes_max: int) -> None:
    """Raise StagingError if there are more bytes than there may be."""
    if size_bytes > bytes_max:
        raise StagingError(f"{size_bytes} bytes in a file are more than it may have ({bytes_max})")


def write_all(target: int, data: bytes | memoryview, offset: int = 0) -> None:
    """Write data to a descriptor at an offset."""
    view = memoryview(data)
    while view:
        count = os.pwrite(target, view, offset)
        view, offset = view[count:], offset + count


def read_exactly(source: int, offset: int, size_bytes: int) -> bytes:
    """Return so many bytes of a descriptor.

    Raises:
        BadFile: it has fewer.
    """
    data = os.pread(source, size_bytes, offset)
    if len(data) < size_bytes:
        raise BadFile("a file has become shorter while it was staged")
    return data
