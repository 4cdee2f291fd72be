"""The host on which the commands of a batch system run, and where the files of blocks are."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

import trio

from gspc_trio.components.provision.batch import Command, CommandResult
from gspc_trio.components.provision.shell.block_folders import BlockFolder
from gspc_trio.components.provision.shell.commands import run_command

T = TypeVar("T")


class Folder(Protocol):
    """The directory of one block; see :class:`~.block_folders.BlockFolder`."""

    path: str

    def write(self, name: str, content: bytes) -> str:
        """Write a file; return its path."""
        ...

    def last_lines(self, name: str) -> list[str]:
        """Return the last lines of a file, if there are any."""
        ...

    def remove(self) -> None:
        """Remove it with all that is in it."""
        ...


StartSoon: TypeAlias = Callable[[Callable[[], Awaitable[object]]], None]
"""Starts a task that is cancelled, at the latest, with the run-time system."""


class BatchHost:
    """This host."""

    def begin(self, start_soon: StartSoon) -> None:
        """Take in how tasks are started that last longer than a command."""

    def in_use(self) -> AbstractContextManager[None]:
        """Return a block for the time in which commands may be run at any moment."""
        return nullcontext()

    async def command(self, command: Command, stdin: str = "") -> CommandResult | None:
        """Run a command to its end, or for so long and return None.

        Raises:
            OSError: it cannot be started.
        """
        return await run_command(command, stdin)

    async def in_thread(self, function: Callable[..., T], *args: object) -> T:
        """Do what may block for long on a shared file system, where nobody waits for it."""
        return await trio.to_thread.run_sync(partial(function, *args))

    def make_folder(self, shared: str, keep: bool) -> Folder:
        """Return a new directory; see :meth:`BlockFolder.make`."""
        return BlockFolder.make(shared, keep)

    def open_folder(self, path: str) -> Folder:
        """Return the directory of a block of an earlier run-time system.

        Raises:
            FileNotFoundError: it is gone.
        """
        return BlockFolder(path)

    def random_bytes(self, count: int) -> bytes:
        """Return so many bytes that nobody can guess."""
        return secrets.token_bytes(count)
