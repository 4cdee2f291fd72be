"""What the server of a study uses: its connection with the launcher that has started it."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType

import trio

from gspc_trio.components.launcher.events import ClientMoved, ClientState
from gspc_trio.study.blocking import BlockingStudy
from gspc_trio.study.server import Study, StudyOver, StudyRefused, open_study

__all__ = [
    "BlockingStudy",
    "ClientMoved",
    "ClientState",
    "Connecting",
    "Study",
    "StudyOver",
    "StudyRefused",
    "connect",
]


def connect(file: str | os.PathLike[str] | None = None) -> Connecting:
    """Return a server's connection with its launcher, which lasts for a block.

    ``with connect() as study`` gives a :class:`BlockingStudy`, ``async with connect() as study`` a
    :class:`Study` under trio. Pings of the launcher are answered by themselves. The blocking form has a
    thread for that, so that the program may compute for as long as it likes. A trio program computes in
    threads (``trio.to_thread.run_sync``) as always.

    When the block is left and :meth:`Study.done` was not called, the launcher starts another server.

    Args:
        file: that says where the launcher is; None: the one that the variable GSPC_SERVER_FILE names, as the
            launcher has set it.

    Raises:
        StudyOver: there is no launcher, or it refuses; raised where the block begins.
        RuntimeError: ``with`` in a task of trio.
    """
    return Connecting(None if file is None else Path(file))


class Connecting:
    """A connection that is not there yet; see :func:`connect`.

    Args:
        file: that says where the launcher is; None: the one in the environment.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._blocking: BlockingStudy | None = None
        self._opened: AbstractAsyncContextManager[Study] | None = None

    def __enter__(self) -> BlockingStudy:
        """Connect, in a thread."""
        if trio.lowlevel.in_trio_task():
            raise RuntimeError(
                "'with gspc_trio.study.connect()' blocks, and here runs trio: use 'async with', or call the "
                "function in a thread (await trio.to_thread.run_sync)"
            )
        self._blocking = BlockingStudy(self._file)
        self._blocking.start()
        return self._blocking

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the connection."""
        assert self._blocking is not None
        self._blocking.close()

    async def __aenter__(self) -> Study:
        """Connect, in trio."""
        self._opened = open_study(self._file)
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """End the connection."""
        assert self._opened is not None
        return await self._opened.__aexit__(kind, error, trace)
