"""Files that URIs name, beside those of the host of a job: processes fetch and store them.

A process (``compute.uri_transfers``) moves one file at a time. It is killed when its transfer is cancelled or
nothing moves any more; else the next transfer of its job has it, with the drivers that it has loaded. What
may pass is tried again.
"""

from __future__ import annotations

import os
import socket
from array import array
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

import trio
from msgspec import Struct

from gspc_trio.components.worker.shell.compute_template import ComputeError, Forked
from gspc_trio.components.worker.shell.file_transfer import Room, TaskFiles
from gspc_trio.components.worker.shell.staging import StagingError
from gspc_trio.compute.channel import (
    CONTROL_BYTES_MAX,
    DONE,
    FAILED,
    FETCH,
    FOUND,
    LIST,
    MOVED,
    STORE,
    pack,
    unpack,
)
from gspc_trio.compute.folders import Folder, Folders
from gspc_trio.core.uri import (
    FILE_SCHEMES,
    BadUri,
    is_uri,
    mask_text,
    mask_uri,
    parts_of_uri,
    path_of,
    unfinished,
)

PAUSES_S = (0.5, 2.0, 8.0)
"""What may pass is tried again after so long, and then no more."""

SILENCE_S = 60.0
"""A transfer of which nothing has moved for so long is given up."""

LEAST_BYTES_PER_S = 1024
"""So is one that is slower than this over that time. What a task may stage (``StageLimits``) bounds by this
how long it takes, whatever a server does; a driver that tells of large pieces alone has as long for each."""

EXIT_S = 2.0
"""So long a process whose channel has ended may take to be seen to end."""

TRANSFERS_MAX = 8
"""So many transfers are under way on one host."""

Fork = Callable[[int], Awaitable[Forked]]
"""Starts a process, given the descriptor of its end of the channel."""


class TransferFailed(Exception):
    """A transfer has failed once.

    Args:
        message: one line for people, without the URI.
        may_pass: whether it may be tried again.
    """

    def __init__(self, message: str, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class _Process(Struct, eq=False):
    """A process that moves files, and our end of its channel."""

    channel: trio.socket.SocketType
    forked: Forked
    is_used: bool = False


class UriTransfers:
    """Moves what URIs name, for the tasks of one job.

    Args:
        fork: starts a process.
        folders: of this host.
        host: its name, for errors about drivers.
        allowed: directories of this host of which URIs may name files.
        turns: how many transfers may be under way.
        pauses_s: how long to wait before each new try, seconds.
        silence_s: a try has failed that moves less than :data:`LEAST_BYTES_PER_S` for so many seconds.
    """

    def __init__(
        self,
        fork: Fork,
        folders: Folders,
        host: str,
        allowed: Iterable[str],
        turns: trio.CapacityLimiter,
        pauses_s: Sequence[float] = PAUSES_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._fork = fork
        self._folders = folders
        self._host = host
        self._allowed = [directory for directory in allowed if directory]
        self._turns = turns
        self._pauses_s = pauses_s
        self._silence_s = silence_s
        self._idle: list[_Process] = []
        self._is_closed = False

    async def fetch(self, target: int, uri: str, room: Room) -> None:
        """Write what a URI names to a descriptor.

        Raises:
            StagingError: it is not to be had, or too large.
        """
        taken_bytes = 0

        def moved(size_bytes: int) -> None:
            nonlocal taken_bytes
            room.take(size_bytes - taken_bytes)
            taken_bytes = size_bytes

        def again() -> int:
            nonlocal taken_bytes
            room.give_back(taken_bytes)
            taken_bytes = 0
            return room.left_bytes

        await self._carry_out(FETCH, uri, again, (target,), moved)

    async def store(self, source: int, size_bytes: int, uri: str) -> None:
        """Store a file under a URI; it is seen there when it is whole.

        Raises:
            StagingError: it cannot be stored there.
        """
        await self._carry_out(STORE, uri, lambda: size_bytes, (source,), lambda _: None)

    async def find(self, uri: str, files_max: int) -> list[str]:
        """Return the URIs of the files that one stands for.

        Raises:
            StagingError: there are more than there may be, or that cannot be found out.
        """
        return await self._carry_out(LIST, uri, lambda: files_max, (), lambda _: None)

    def close(self) -> None:
        """Let the processes go that have nothing to do; they end."""
        self._is_closed = True
        for process in self._idle:
            process.channel.close()
        self._idle.clear()

    async def _carry_out(
        self,
        kind: int,
        uri: str,
        amount: Callable[[], int],
        descriptors: Sequence[int],
        moved: Callable[[int], None],
    ) -> list[str]:
        """Try it until it succeeds or there is no point in it; return what was found."""
        try:
            parts_of_uri(uri)
        except BadUri as error:
            raise StagingError(str(error)) from None
        tries = 0
        for pause_s in (*self._pauses_s, None):
            tries += 1
            try:
                async with self._turns:
                    return await self._try(kind, uri, amount(), descriptors, moved)
            except TransferFailed as failed:
                if failed.may_pass and pause_s is not None:
                    await trio.sleep(pause_s)
                    continue
                often = f", tried {tries} times" if tries > 1 else ""
                why = mask_text(str(failed), uri)
                raise StagingError(f"{mask_uri(uri)}: {why}{often}") from None
        raise AssertionError("the last try has no pause")

    async def _try(
        self, kind: int, uri: str, amount: int, descriptors: Sequence[int], moved: Callable[[int], None]
    ) -> list[str]:
        temporary = await trio.to_thread.run_sync(self._folders.make)
        try:
            order = pack([kind, uri, self._host, self._allowed, temporary.path, amount])
            while True:
                process = await self._process()
                was_used, process.is_used = process.is_used, True
                try:
                    found = await self._ask(process, order, descriptors, moved)
                except _Unheard as unheard:
                    await self._end(process)
                    if was_used:  # it had just ended because nothing was wanted
                        continue
                    raise TransferFailed(f"its process has ended: {unheard}", True) from None
                except TransferFailed as failed:
                    if isinstance(failed, _Silent):
                        await self._end(process)
                    else:
                        self._put_back(process)
                    raise
                except BaseException:
                    await self._end(process)
                    raise
                self._put_back(process)
                return found
        finally:
            left = _left_by(uri, temporary.path) if kind == STORE else ""
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(_clear, temporary, left)

    async def _ask(
        self, process: _Process, order: bytes, descriptors: Sequence[int], moved: Callable[[int], None]
    ) -> list[str]:
        """Have a process carry out an order; return what it has found.

        Raises:
            TransferFailed: it could not, and waits for the next order.
            _Unheard: it has ended without an answer.
            _Silent: nothing moves, or next to nothing.
        """
        found: list[str] = []
        pace = _Pace(self._silence_s, trio.current_time())
        attached = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
        try:
            await process.channel.sendmsg([order], attached)
            while True:
                with trio.CancelScope(deadline=pace.due_s) as silence:
                    data = await process.channel.recv(CONTROL_BYTES_MAX)
                if silence.cancelled_caught:
                    raise _Silent(pace.told(), True)
                if not data:
                    break
                said, *fields = unpack(data)
                if said == FAILED:
                    raise TransferFailed(fields[1], fields[0])
                if said == FOUND:
                    found += fields[1]
                    pace.restart(trio.current_time())
                    if not fields[0]:
                        return found
                elif said == MOVED:
                    pace.moved(fields[0], trio.current_time())
                    moved(fields[0])
                elif said == DONE:
                    moved(fields[0])
                    return found
        except OSError as error:
            raise _Unheard(str(error)) from None
        with trio.move_on_after(EXIT_S):
            await process.forked.exited.wait()
        raise _Unheard(process.forked.why())

    async def _process(self) -> _Process:
        if self._idle:
            return self._idle.pop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                forked = await self._fork(theirs.fileno())
            except ComputeError as error:
                ours.close()
                raise TransferFailed(str(error), True) from None
            except BaseException:
                ours.close()
                raise
        return _Process(trio.socket.from_stdlib_socket(ours), forked)

    def _put_back(self, process: _Process) -> None:
        if self._is_closed:
            process.channel.close()
        else:
            self._idle.append(process)

    async def _end(self, process: _Process) -> None:
        process.channel.close()
        with trio.CancelScope(shield=True):
            await process.forked.end(process.forked.exited)


def _left_by(uri: str, temporary: str) -> str:
    """Return what a killed process may have left of a file of this host that it was writing, or ""."""
    first, *behind = parts_of_uri(uri)
    return "" if behind or first.scheme not in FILE_SCHEMES else unfinished(path_of(first), temporary)


def _clear(temporary: Folder, left: str) -> None:
    temporary.remove()
    if left:
        with suppress(OSError):
            os.unlink(left)


class _Pace:
    """Whether a transfer is fast enough.

    Args:
        silence_s: seconds in which it must move something, see :data:`LEAST_BYTES_PER_S`.
        now: when it begins.

    Attributes:
        due_s: when it is given up unless it has moved enough before.
    """

    def __init__(self, silence_s: float, now: float) -> None:
        self._silence_s = silence_s
        self._bytes = self._counted_bytes = 0
        self.due_s: float = 0.0
        self.restart(now)

    def restart(self, now: float) -> None:
        """It is fast enough: count anew from now on."""
        self._counted_bytes = self._bytes
        self.due_s = now + self._silence_s

    def moved(self, size_bytes: int, now: float) -> None:
        """Take how many bytes have moved in all."""
        self._bytes = size_bytes
        if size_bytes - self._counted_bytes >= self._silence_s * LEAST_BYTES_PER_S:
            self.restart(now)

    def told(self) -> str:
        """Return what is wrong with it."""
        size_bytes = self._bytes - self._counted_bytes
        amount = f"only {size_bytes} bytes have" if size_bytes > 0 else "nothing has"
        return f"{amount} moved for {self._silence_s:g} s"


class _Unheard(Exception):
    """A process has ended without an answer."""


class _Silent(TransferFailed):
    """Nothing moves any more."""


class UriFiles:
    """The files of one job's tasks: those of its host, and those that URIs name.

    Args:
        files: moves those of its host.
        transfers: moves the others.
    """

    def __init__(self, files: TaskFiles, transfers: UriTransfers) -> None:
        self._files = files
        self._transfers = transfers

    async def prepare(self) -> None:
        """See ``TaskFiles``."""
        await self._files.prepare()

    async def ended(self, attempt: str, problem: str = "") -> None:
        """See ``TaskFiles``."""
        await self._files.ended(attempt, problem)

    async def find(self, pattern: str, files_max: int) -> tuple[list[str], str]:
        """Return the files that match a pattern, and what there is if there are none, see ``TaskFiles``."""
        if not is_uri(pattern):
            return await self._files.find(pattern, files_max)
        found = await self._transfers.find(pattern, files_max)
        return found, "" if found else "there is nothing"

    async def link(self, folder: Folder, parts: tuple[str, ...], path: str) -> int | None:
        """Link a file of the job's host into a directory, see ``TaskFiles``; None for a URI."""
        return None if is_uri(path) else await self._files.link(folder, parts, path)

    async def fetch(self, target: int, path: str, room: Room) -> None:
        """Write what is in a file to a descriptor, see ``TaskFiles``."""
        if is_uri(path):
            await self._transfers.fetch(target, path, room)
        else:
            await self._files.fetch(target, path, room)

    async def send(self, source: int, size_bytes: int, path: str) -> None:
        """Write a file, see ``TaskFiles``."""
        if is_uri(path):
            await self._transfers.store(source, size_bytes, path)
        else:
            await self._files.send(source, size_bytes, path)
