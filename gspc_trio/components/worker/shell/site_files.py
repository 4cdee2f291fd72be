"""Files by way of a directory that all hosts of a site see: each comes once, tasks link or copy it (SWF-3).

In the site directory each job has a directory of its own: ``in`` has the files that its tasks fetch, by what
they are, ``out`` those that tasks have made until the host of the job has them, ``results`` a file for each
attempt that says how it ended. Directories of tasks lie beside them, so that files can be linked. A shared
file system may be slow, so all that touches it is done in threads.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio
from trio.to_thread import run_sync

from gspc_trio.components.provision.messages import FileMove, TurnOver, WantTurn
from gspc_trio.components.provision.throttle import DEFAULTS, Limit
from gspc_trio.components.worker.shell.file_transfer import FileTransfer, Room
from gspc_trio.components.worker.shell.staging import StagingError
from gspc_trio.compute.folders import Folder
from gspc_trio.core.ids import Counter, JobId

COPY_BYTES = 16 << 20
"""So much is copied between two files before whoever wants to cancel that can."""

SUCCESS = "success\n"

_NEW = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
"""A new file, which this process alone has open."""


class FileTurns:
    """Lets file transfers and file operations begin when the run-time system says so, which knows all hosts.

    Args:
        limits: throttles by name; what none of them limits begins at once.
        tell: tells the run-time system.
    """

    def __init__(self, limits: Mapping[str, Limit], tell: Callable[[WantTurn | TurnOver], None]) -> None:
        known = {**DEFAULTS, **limits}
        self._limited = {
            move for move in FileMove if any(known[name] is not None for name in known if move in name)
        }
        self._tell = tell
        self._turns: dict[int, tuple[FileMove, trio.Event]] = {}
        self._numbers = Counter()

    @asynccontextmanager
    async def turn(self, move: FileMove) -> AsyncIterator[None]:
        """Wait for a turn, and have it for as long as the block lasts."""
        if move not in self._limited:
            yield
            return
        number, began = self._numbers.next(), trio.Event()
        self._turns[number] = move, began
        self._tell(WantTurn(number, move))
        try:
            await began.wait()
            yield
        finally:
            del self._turns[number]
            self._tell(TurnOver(number))

    def begins(self, number: int) -> None:
        """The run-time system lets one begin; it may not be wanted any more."""
        if number in self._turns:
            self._turns[number][1].set()

    def tell_again(self) -> None:
        """Tell a run-time system that may know nothing of those that there are."""
        for number, (move, began) in self._turns.items():
            self._tell(WantTurn(number, move, began.is_set()))


class Site:
    """The site directory, as one host sees it.

    Args:
        directory: of the site.
        turns: let transfers and operations there begin.
    """

    def __init__(self, directory: str, turns: FileTurns) -> None:
        self._directory = directory
        self._turns = turns

    def files_of(self, job: JobId, transfer: FileTransfer) -> SiteFiles:
        """Return the files of one job there."""
        return SiteFiles(self._directory, job, transfer, self._turns)


class SiteFiles:
    """The files of one job in the site directory.

    Args:
        directory: of the site; it is made when the first task with files comes.
        job: the job.
        transfer: to the host of the job.
        turns: lets transfers and operations begin.
    """

    def __init__(self, directory: str, job: JobId, transfer: FileTransfer, turns: FileTurns) -> None:
        self._home = Path(directory) / f"job-{job}"
        self._transfer = transfer
        self._turns = turns
        self._arriving: dict[str, trio.Lock] = {}
        self._is_made = False

    async def find(self, pattern: str, files_max: int) -> tuple[list[str], str]:
        """Return the files of the job's host that match a pattern, see :class:`FileTransfer`."""
        return await self._transfer.find(pattern, files_max)

    async def link(self, folder: Folder, parts: tuple[str, ...], path: str) -> int | None:
        """Link a file of the job's host into the directory of a task; None if it can only be copied.

        Raises:
            StagingError: it is not to be had.
        """
        there, size_bytes = await self._arrived(path)
        async with self._turns.turn(FileMove.OPERATION):
            is_linked = await run_sync(folder.link, parts, str(there))
        return size_bytes if is_linked else None

    async def fetch(self, target: int, path: str, room: Room) -> None:
        """Write what is in a file of the job's host to a descriptor.

        Raises:
            StagingError: it is not to be had, or too large.
        """
        there, size_bytes = await self._arrived(path)
        room.take(size_bytes)
        async with self._turns.turn(FileMove.OPERATION):
            await _copy(there, target)

    async def send(self, source: int, size_bytes: int, path: str) -> None:
        """Put a file into the site directory, and from there to the host of the job.

        Raises:
            StagingError: it cannot be written there.
        """
        there = self._home / "out" / secrets.token_hex(8)
        async with self._turns.turn(FileMove.OPERATION):
            copy = await run_sync(os.open, there, os.O_RDWR | _NEW, 0o600)
            try:
                await _copy(f"/proc/self/fd/{source}", copy)
            except BaseException:
                await _clear(copy, there)
                raise
        try:
            async with self._turns.turn(FileMove.TRANSFER):
                await self._transfer.send(copy, size_bytes, path)
        finally:
            await _clear(copy, there)

    async def ended(self, attempt: str, problem: str = "") -> None:
        """Write the result file of an attempt: that it has succeeded, or why not.

        Raises:
            StagingError: it cannot be written, or does not say what it was told.
        """
        path = self._home / "results" / attempt
        text = f"error: {problem}\n" if problem else SUCCESS
        async with self._turns.turn(FileMove.OPERATION):
            try:
                await run_sync(_write_whole, path, text)
                said = await run_sync(path.read_text)
            except OSError as error:
                raise StagingError(f"the result file {path}: {error.strerror}", of_host=True) from None
        if said != text:
            why = f"the result file {path} says something else than was written"
            raise StagingError(why, of_host=True)

    async def _arrived(self, path: str) -> tuple[Path, int]:
        """Have a file of the job's host in the site directory; return where it is, and its size."""
        size_bytes, mark = await self._transfer.look(path)
        name = hashlib.sha256(f"{path}\0{mark}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
        there = self._home / "in" / name
        turn = self._arriving.setdefault(name, trio.Lock())
        try:
            async with turn:
                if not await trio.Path(there).exists():
                    async with self._turns.turn(FileMove.TRANSFER):
                        await self._bring(path, there, size_bytes)
        finally:
            if not turn.locked():  # nobody waits for it
                self._arriving.pop(name, None)
        return there, size_bytes

    async def _bring(self, path: str, there: Path, size_bytes: int) -> None:
        """Fetch a file; it is seen under its name when it is whole, whoever else does the same."""
        arriving = there.with_name(f".{there.name}.{secrets.token_hex(4)}")
        target = await run_sync(os.open, arriving, os.O_WRONLY | _NEW, 0o600)
        try:
            await self._transfer.fetch(target, path, Room(size_bytes))
            await run_sync(os.fchmod, target, 0o400)  # tasks have it under names of their own
            await run_sync(os.rename, arriving, there)
        finally:
            await _clear(target, arriving)

    async def prepare(self) -> None:
        """Make the directories of the site and of the job, before the first task with files.

        Raises:
            StagingError: they cannot be made here: another host may see them.
        """
        if self._is_made:
            return
        async with self._turns.turn(FileMove.OPERATION):
            for name in ("in", "out", "results"):
                try:
                    await trio.Path(self._home, name).mkdir(mode=0o700, parents=True, exist_ok=True)
                except OSError as error:
                    why = f"the site directory {self._home}: {error.strerror}"
                    raise StagingError(why, returned=True, of_host=True) from None
            self._is_made = True


async def _copy(source: Path | str, target: int) -> None:
    """Write what is in a file to a descriptor, from where that stands."""
    opened = await run_sync(os.open, source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        left = (await run_sync(os.fstat, opened)).st_size
        offset = 0
        while left:
            done = await run_sync(os.sendfile, target, opened, offset, min(COPY_BYTES, left))
            if not done:
                raise OSError("the file has become shorter while it was staged")
            offset, left = offset + done, left - done
    finally:
        await _clear(opened)


async def _clear(opened: int, path: Path | None = None) -> None:
    """Close a file, and remove it if it is there under this name; also when this task is cancelled."""
    with trio.CancelScope(shield=True):
        await run_sync(_close, opened, path)


def _close(opened: int, path: Path | None) -> None:
    os.close(opened)
    if path is not None:
        with suppress(OSError):
            path.unlink()


def _write_whole(path: Path, text: str) -> None:
    made = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    made.write_text(text)
    made.rename(path)
