"""Chunks that a process sends to another host while it makes them: unseen there until they become data."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol

import trio

from gspc_trio.iml.errors import ImlError, LayerGone
from gspc_trio.iml.layout import Layout
from gspc_trio.iml.messages import AbortData, Alloc, CommitData, LayerRequest, Located, PutWritten
from gspc_trio.iml.shell.access import Access
from gspc_trio.iml.shell.transfer import ServerLinks

JOINED_AT_ONCE = 64
"""So many chunks are put together by one call."""


class Server(Protocol):
    """What the memory server of the process does."""

    links: ServerLinks

    async def ask(self, request: LayerRequest) -> Any:
        """Ask the coordinator."""
        ...

    def abandon(self, data_ids: Iterable[str]) -> None:
        """Give up data whose writer is gone."""
        ...


class SentChunks:
    """What one process has sent and not joined yet.

    Args:
        server: the memory server of its host.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._chunks: list[Located] = []

    @property
    def data_ids(self) -> tuple[str, ...]:
        """The ids of what is being written for it."""
        return tuple(chunk.data_id for chunk in self._chunks)

    async def send(self, access: Access, job: str, host: str, view: memoryview) -> None:
        """Have these bytes on a host.

        Raises:
            ImlError: there is no such host, it has no room, or it is gone.
        """
        with trio.CancelScope(shield=True):  # else nobody would know what is to be given up
            made: Located = await self._server.ask(Alloc(job, len(view), Layout((host,)), writing=True))
        self._chunks.append(made)
        if await access.write(made, made, 0, view):
            raise LayerGone(f"the memory server of host {host} is gone")

    async def join(self, job: str, host: str) -> str:
        """Make data on a host of all that was sent there; return its id.

        Raises:
            ImlError: it has no room for that, or is gone; nothing is left of what was sent.
        """
        chunks, self._chunks = self._chunks, []
        size_bytes = sum(chunk.size_bytes for chunk in chunks)
        try:
            with trio.CancelScope(shield=True):
                made: Located = await self._server.ask(Alloc(job, size_bytes, Layout((host,)), writing=True))
            try:
                await self._put_together(made, chunks)
                await self._server.ask(CommitData(made.data_id))
            except BaseException:
                with trio.CancelScope(shield=True), suppress(ImlError):
                    await self._server.ask(AbortData(made.data_id))
                raise
        finally:
            self._server.abandon(chunk.data_id for chunk in chunks)
        return made.data_id

    async def _put_together(self, made: Located, chunks: list[Located]) -> None:
        link = self._server.links.to(made.servers[0])
        offset = 0
        for begin in range(0, len(chunks), JOINED_AT_ONCE):
            some = chunks[begin : begin + JOINED_AT_ONCE]
            sources = tuple((chunk.data_id, chunk.write_token) for chunk in some)
            await link.call(PutWritten(made.data_id, offset, made.write_token, sources))
            offset += sum(chunk.size_bytes for chunk in some)
