"""Files of a job's host that its tasks fetch and store, served to the RIFs: none outside of one directory."""

from __future__ import annotations

import errno
import os
import secrets
from bisect import bisect_right
from collections import deque
from contextlib import suppress
from pathlib import Path

import trio

from gspc_trio.compute.folders import enter, find_files, open_plain, tell_what_is_there
from gspc_trio.core.file_sets import fills, is_directory, matches
from gspc_trio.core.messages import Done
from gspc_trio.core.staging import (
    CHUNK_BYTES,
    STORED_AHEAD,
    DropFile,
    FileList,
    FilePatterns,
    FilePiece,
    ListFiles,
    ReadFile,
    StageLimits,
    WriteFile,
    parts_of,
    pattern_parts,
)
from gspc_trio.nursery.connections.buffers import Budget
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer

TRANSFERS_MAX = 1000
"""Files that may be on their way here at one time over one connection."""

LIST_BYTES = 1 << 18
"""Names of files travel in pieces of about so many bytes."""

_MODE = 0o666  # less what the umask takes away


class _Transfer:
    """A file that is being written: it has no name, or one of its own, until it is whole."""

    def __init__(self, directory: int, name: str, descriptor: int, own_name: str) -> None:
        self.directory = directory
        self.name = name
        self.descriptor = descriptor
        self.own_name = own_name
        self.size_bytes = 0
        self.buffers: Budget | None = None
        self.held_bytes = 0
        self.problem = ""  # why it was given up: the pieces that were under way then are refused with it


class JobFiles:
    """Reads and writes files below one directory, as RIFs ask.

    Args:
        directory: of the files; "" for the working directory.
        limits: no file that is written gets larger, and no pattern stands for more files.
        patterns: of the files that tasks of the job fetch and store.
        buffers: what this process has for transfers that others ask it for.
    """

    def __init__(self, directory: str, limits: StageLimits, patterns: FilePatterns, buffers: Budget) -> None:
        self._buffers = buffers
        self._directory = directory or "."
        self._file_bytes_max = limits.file_bytes_max
        self._files_max = limits.files_max
        self._patterns = patterns
        self._transfers: dict[tuple[Peer, int], _Transfer] = {}
        self._pieces: dict[tuple[Peer, int], deque[IncomingCall | None]] = {}

    def take(self, peer: Peer, message: IncomingCall | DropFile, nursery: trio.Nursery) -> None:
        """Have a message of a RIF seen to: what comes for one file that is written is taken in its order."""
        call: IncomingCall | None = None
        if isinstance(message, IncomingCall):
            call = message
            if not isinstance(call.body, WriteFile):
                nursery.start_soon(self.answer, call)
                return
            key = (peer, call.body.transfer)
        else:
            key = (peer, message.transfer)
        waiting = self._pieces.setdefault(key, deque())
        waiting.append(call)
        if len(waiting) == 1:
            nursery.start_soon(self._answer_in_order, key)

    async def _answer_in_order(self, key: tuple[Peer, int]) -> None:
        waiting = self._pieces[key]
        try:
            while waiting:
                if waiting[0] is not None:
                    await self.answer(waiting[0])
                elif (transfer := self._transfers.pop(key, None)) is not None:
                    _forget(transfer)
                waiting.popleft()
        finally:
            del self._pieces[key]

    async def answer(self, call: IncomingCall) -> None:
        """Answer a call of a RIF."""
        body = call.body
        try:
            if isinstance(body, ReadFile):
                async with self._buffers.hold(max(0, min(body.size_bytes, CHUNK_BYTES))):
                    call.reply(await trio.to_thread.run_sync(self._read, body))
                    await call.peer.sent()
            elif isinstance(body, ListFiles):
                call.reply(await trio.to_thread.run_sync(self._list, body))
            elif isinstance(body, WriteFile):
                await self._write(call.peer, body)
                call.reply(Done())
            else:
                call.fail(TypeError(f"a job server cannot be asked for {type(body).__name__} by a RIF"))
        except (OSError, ValueError, OverflowError) as error:
            why = _why(error)
            path = body.pattern if isinstance(body, ListFiles) else getattr(body, "path", "")
            call.fail(ValueError(why if path in why else f"{path}: {why}"))

    def forget(self, peer: Peer) -> None:
        """A RIF is gone: what it was writing is dropped."""
        for key in [key for key in self._transfers if key[0] is peer]:
            _forget(self._transfers.pop(key))

    def _read(self, wanted: ReadFile) -> FilePiece:
        *way, name = self._parts(wanted.path, self._patterns.fetch)
        where = self._enter(way)
        try:
            descriptor, size_bytes = open_plain(where, name, wanted.path, links=True)
        finally:
            os.close(where)
        try:
            found = os.fstat(descriptor)
            data = os.pread(descriptor, max(0, min(wanted.size_bytes, CHUNK_BYTES)), wanted.offset)
        finally:
            os.close(descriptor)
        return FilePiece(size_bytes, f"{found.st_dev}:{found.st_ino}:{found.st_mtime_ns}:{size_bytes}", data)

    def _list(self, wanted: ListFiles) -> FileList:
        pattern = wanted.pattern
        pattern_parts(pattern)
        if not any(fills(stated, pattern, escaped=True) for stated in self._patterns.fetch):
            raise ValueError(f"no task of the job states the files {pattern}")
        start = self._enter([])
        try:
            there = ""
            try:
                found = find_files(start, pattern, self._files_max)
            except FileNotFoundError:
                found, there = [], tell_what_is_there(start, pattern)
            if not found and not is_directory(pattern):
                there = tell_what_is_there(start, pattern)
        finally:
            os.close(start)
        paths: list[str] = []
        size_bytes = 0
        for path in found[bisect_right(found, wanted.after) :]:
            size_bytes += len(path.encode())
            if paths and size_bytes > LIST_BYTES:
                return FileList(tuple(paths), False)
            paths.append(path)
        return FileList(tuple(paths), there=there)

    async def _write(self, peer: Peer, piece: WriteFile) -> None:
        key = (peer, piece.transfer)
        transfer = self._transfers.pop(key, None)
        try:
            if transfer is None:
                if piece.offset or len(self._transfers) >= TRANSFERS_MAX:
                    raise ValueError("a piece of a file that was not begun, or too many files at one time")
                transfer = await trio.to_thread.run_sync(self._begin, piece.path)
            if transfer.problem:
                raise ValueError(transfer.problem)
            if piece.offset != transfer.size_bytes:
                raise ValueError("a piece of a file that does not go behind the last one")
            if piece.offset + len(piece.data) > self._file_bytes_max:
                raise ValueError(f"the file has more bytes than it may have ({self._file_bytes_max})")
            if not transfer.held_bytes and not piece.last:
                transfer.held_bytes = await self._buffers.take(STORED_AHEAD * CHUNK_BYTES)
                transfer.buffers = self._buffers
            transfer.size_bytes += len(piece.data)
            await trio.to_thread.run_sync(_append, transfer, piece)
        except BaseException as error:
            if transfer is not None:
                _forget(transfer)
                if isinstance(error, Exception):
                    transfer.problem = _why(error)
                    self._keep(key, transfer, piece)
            raise
        self._keep(key, transfer, piece)

    def _keep(self, key: tuple[Peer, int], transfer: _Transfer, piece: WriteFile) -> None:
        if not piece.last:
            self._transfers[key] = transfer
            if key[0].lost.is_set():
                self.forget(key[0])

    def _begin(self, path: str) -> _Transfer:
        *way, name = self._parts(path, self._patterns.store)
        where = self._enter(way, make=True)
        own_name = f".{name[:100]}.{secrets.token_hex(8)}"
        try:
            try:
                nameless = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
                return _Transfer(where, name, os.open(".", nameless, _MODE, dir_fd=where), "")
            except OSError as error:  # not every file system can do that
                if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
                    raise
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            return _Transfer(where, name, os.open(own_name, flags, _MODE, dir_fd=where), own_name)
        except BaseException:
            os.close(where)
            raise

    def _parts(self, path: str, patterns: tuple[str, ...]) -> tuple[str, ...]:
        parts = parts_of(path)
        if not any(matches(pattern, path) for pattern in patterns):
            raise ValueError(f"no task of the job states the file {path}")
        return parts

    def _enter(self, way: list[str], make: bool = False) -> int:
        start = os.open(Path(self._directory), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return enter(start, way, make)
        finally:
            os.close(start)


def _why(error: BaseException) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error) or repr(error)


def _append(transfer: _Transfer, piece: WriteFile) -> None:
    """Write a piece; with the last one the file gets its name, in the place of what had it."""
    view = memoryview(piece.data)
    while view:
        view = view[os.write(transfer.descriptor, view) :]
    if not piece.last:
        return
    if not transfer.own_name:
        own_name = f".{transfer.name[:100]}.{secrets.token_hex(8)}"
        os.link(f"/proc/self/fd/{transfer.descriptor}", own_name, dst_dir_fd=transfer.directory)
        transfer.own_name = own_name
    where = transfer.directory
    os.rename(transfer.own_name, transfer.name, src_dir_fd=where, dst_dir_fd=where)
    transfer.own_name = ""
    _forget(transfer)


def _forget(transfer: _Transfer) -> None:
    """Close what a transfer has open; nothing of it is seen unless it has got its name."""
    if transfer.buffers is not None:
        transfer.buffers.give_back(transfer.held_bytes)
        transfer.buffers = None
    if transfer.descriptor < 0:
        return
    if transfer.own_name:
        with suppress(OSError):
            os.unlink(transfer.own_name, dir_fd=transfer.directory)
    os.close(transfer.descriptor)
    os.close(transfer.directory)
    transfer.descriptor = -1


def take_message(files: JobFiles | None, nursery: trio.Nursery, peer: Peer | None, message: object) -> bool:
    """Have a message of a RIF answered; return False if it is not about files."""
    if files is None or peer is None:
        return False
    if not isinstance(message, IncomingCall | DropFile):
        return False
    files.take(peer, message, nursery)
    return True
