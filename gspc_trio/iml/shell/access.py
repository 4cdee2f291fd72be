"""Access to the bytes of data for a client: by the server of its own host, or over the network."""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeAlias

import trio

from gspc_trio.iml import local
from gspc_trio.iml import messages as x
from gspc_trio.iml.errors import DataLost, ImlError, LayerGone, NoRoom, UnknownData
from gspc_trio.iml.layout import Range, extents
from gspc_trio.iml.local import Fields
from gspc_trio.iml.segment import read_full, write_all
from gspc_trio.iml.shell.store import IN_THREAD_BYTES_MIN
from gspc_trio.iml.shell.transfer import Into, ServerLink, ServerLinks, fetch, push

TRIES = 10
"""How often bytes are read again because a put came between."""


class Near(Protocol):
    """How a client reaches the server of its own host."""

    async def ask(self, operation: int, *fields: object) -> tuple[Fields, int]:
        """Ask for an operation of :mod:`gspc_trio.iml.local`; return its answer, and a descriptor or -1."""
        ...

    def tell_soon(self, operation: int, *fields: object) -> None:
        """Tell it something that has no answer, a little later."""
        ...

    async def tell_now(self) -> None:
        """Tell it what it has not been told yet."""
        ...


FindNear: TypeAlias = Callable[[str], Near | None]
"""Returns the server of a client's host, at this local address or where it was last; None: there is none."""


class Access:
    """Reads and writes the parts of data.

    Args:
        links: to the servers.
        host: the host of this client.
        near: finds the server of that host, also one that has taken the place of another.
    """

    def __init__(self, links: ServerLinks, host: str, near: FindNear) -> None:
        self.links = links
        self.host = host
        self.near = near

    async def read(self, found: x.Located, wanted: Range) -> bytes:
        """Return the bytes of a range.

        Raises:
            ImlError: a holder does not have them, or is gone.
        """
        pieces = list(extents(found.block_bytes, len(found.parts), wanted.offset, wanted.size_bytes))
        if len(pieces) == 1:
            return await self._read_part(found, pieces[0].part, pieces[0].part_offset, wanted.size_bytes)
        target = FreshBytes(wanted.size_bytes)
        stretches: dict[int, tuple[int, int]] = {}
        for piece in pieces:
            begin, size = stretches.get(piece.part, (piece.part_offset, 0))
            stretches[piece.part] = (begin, size + piece.size_bytes)
        parts: dict[int, bytes] = {}

        async def read(part: int, begin: int, size_bytes: int) -> None:
            parts[part] = await self._read_part(found, part, begin, size_bytes)

        await _together([partial(read, part, *stretch) for part, stretch in stretches.items()])
        for piece in pieces:
            begin = piece.part_offset - stretches[piece.part][0]
            at = piece.offset - wanted.offset
            target.view[at : at + piece.size_bytes] = parts[piece.part][begin : begin + piece.size_bytes]
        return target.take()

    async def _read_part(self, found: x.Located, part: int, offset: int, size_bytes: int) -> bytes:
        entries = {entry.rank: entry for entry in found.servers}
        holders = [entries[rank] for rank in found.parts[part]]
        for entry in holders:
            if entry.host == self.host and (near := self.near(entry.local_address)) is not None:
                return await self._read_near(near, found.data_id, part, offset, size_bytes)
        if not holders:
            raise UnknownData(f"nobody holds part {part} of data {found.data_id}")
        link = self.links.to(holders[0])
        target = FreshBytes(size_bytes)
        for _ in range(TRIES):
            if await fetch(link, found.data_id, part, offset, size_bytes, Into(target.view)) >= 0:
                return target.take()
        raise DataLost(f"data {found.data_id} changed again and again while it was read")

    async def _read_near(self, near: Near, data_id: str, part: int, offset: int, size_bytes: int) -> bytes:
        if size_bytes <= local.READ_BYTES_MAX:
            (data, _), _ = await near.ask(local.READ, data_id, part, offset, size_bytes)
            return bytes(data)
        try:
            _, descriptor = await near.ask(local.MAP, data_id, part)
        except NoRoom:  # it is on disk, and memory is full of what others use
            return await _read_in_pieces(near, data_id, part, offset, size_bytes)
        try:
            if size_bytes < IN_THREAD_BYTES_MIN:
                return os.pread(descriptor, size_bytes, offset)
            return await trio.to_thread.run_sync(_read_all, descriptor, size_bytes, offset)
        finally:
            os.close(descriptor)
            near.tell_soon(local.UNMAP, data_id, part)

    async def write(
        self, found: x.Located, layout: x.Located, offset: int, view: memoryview
    ) -> tuple[int, ...]:
        """Write bytes into what is being made, on every holder; return the ranks that were not reached.

        Args:
            found: where it lies.
            layout: the data that it is, or is for.
            offset: of the bytes in that data.
            view: the bytes.

        Raises:
            ImlError: a holder does not take them.
        """
        stretches: dict[int, list[memoryview]] = {}
        for piece in extents(layout.block_bytes, len(layout.parts), offset, len(view)):
            begin = piece.offset - offset
            stretches.setdefault(piece.part, []).append(view[begin : begin + piece.size_bytes])
        entries = {entry.rank: entry for entry in found.servers}
        missed: set[int] = set()
        jobs = [
            partial(self._write_part, entries[rank], found, part, pieces, missed)
            for part, pieces in stretches.items()
            for rank in found.parts[part]
        ]
        await _together(jobs)
        return tuple(sorted(missed))

    async def fill(
        self,
        ask: Callable[[x.LayerRequest], Awaitable[object]],
        found: x.Located,
        layout: x.Located,
        offset: int,
        view: memoryview,
    ) -> None:
        """Write what is being made and commit it; drop it if that fails.

        Args:
            ask: asks the coordinator.
            found, layout, offset, view: as for :meth:`write`.

        Raises:
            ImlError: a holder does not take the bytes, or the layer is gone.
        """
        try:
            missed = await self.write(found, layout, offset, view)
            await ask(x.CommitData(found.data_id, missed))
        except BaseException:
            with trio.CancelScope(shield=True), suppress(LayerGone):
                await ask(x.AbortData(found.data_id))
            raise

    async def _write_part(
        self, entry: x.ServerEntry, found: x.Located, part: int, pieces: list[memoryview], missed: set[int]
    ) -> None:
        try:
            await self._write_pieces(entry, found, part, pieces)
        except (LayerGone, UnknownData):  # the others may have it all
            missed.add(entry.rank)

    async def _write_pieces(
        self, entry: x.ServerEntry, found: x.Located, part: int, pieces: list[memoryview]
    ) -> None:
        if entry.host == self.host and (near := self.near(entry.local_address)) is not None:
            _, descriptor = await near.ask(local.WRITER, found.data_id, part, found.write_token)
            await _write_to(descriptor, pieces)
            return
        link = self.links.to(entry)
        size_bytes = sum(map(len, pieces))
        lends = size_bytes >= link.sizes.lent_bytes and link.sends_bulk
        if lends and (near := self.near("")) is not None:
            try:
                await self._lend(near, link, found, part, pieces, size_bytes)
                return
            except ImlError:
                pass  # there is no room to lend it, or no way between those two: there is a slower one
        whole = pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))
        await push(link, found, part, whole)

    async def _lend(
        self,
        near: Near,
        link: ServerLink,
        found: x.Located,
        part: int,
        pieces: list[memoryview],
        size_bytes: int,
    ) -> None:
        """Have a server fetch bytes from the one of this host."""
        (lent_id, lent_part, address, *_), descriptor = await near.ask(local.LEND, size_bytes)
        try:
            await _write_to(descriptor, pieces)
            await near.ask(local.SHOW, lent_id, lent_part)
            source = x.ServerEntry(-1, self.host, address, "", 0)
            token = found.write_token
            await link.call(x.PutFrom(found.data_id, part, size_bytes, source, lent_id, lent_part, token))
        finally:
            near.tell_soon(local.TAKE_BACK, lent_id, lent_part)


async def _write_to(descriptor: int, pieces: list[memoryview]) -> None:
    """Write the pieces, and close the descriptor."""
    try:
        if sum(map(len, pieces)) < IN_THREAD_BYTES_MIN:
            write_all(descriptor, pieces, 0)
        else:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(write_all, descriptor, pieces, 0)
    finally:
        os.close(descriptor)


async def _read_in_pieces(near: Near, data_id: str, part: int, offset: int, size_bytes: int) -> bytes:
    for _ in range(TRIES):
        pieces, versions = [], set()
        for begin in range(0, size_bytes, local.READ_BYTES_MAX):
            count = min(local.READ_BYTES_MAX, size_bytes - begin)
            (data, version), _ = await near.ask(local.READ, data_id, part, offset + begin, count)
            pieces.append(data)
            versions.add(version)
        if len(versions) == 1:
            return b"".join(pieces)
    raise DataLost(f"data {data_id} changed again and again while it was read")


def _read_all(descriptor: int, size_bytes: int, offset: int) -> bytes:
    target = FreshBytes(size_bytes)
    read_full(descriptor, target.view, offset)
    return target.take()


async def _together(jobs: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run these at the same time; the first error of the layer cancels the others and is raised as it is."""
    if len(jobs) == 1:
        await jobs[0]()
        return
    problems: list[ImlError] = []

    async def run(job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except ImlError as error:
            problems.append(error)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for job in jobs:
            nursery.start_soon(run, job)
    if problems:
        raise problems[0]


HUGE_BYTES_MIN = 1 << 22
"""From here on the kernel is asked for huge pages: to make small ones takes as long as to fill them."""


class _LentBytes(io.BytesIO):
    """Is not closed when it is collected: from Python 3.13 on that complains of memory that is still lent.

    In a cycle of references it is collected together with the view that it has lent.
    """

    __slots__ = ()

    def __del__(self) -> None:
        pass


class FreshBytes:
    """Bytes to be filled: not copied afterwards, nor zeroed before.

    To zero 64 MiB takes longer than to receive them. ``bytes(n)`` is memory that the kernel zeroes page by
    page when it is first touched, and a ``BytesIO`` that has the only reference to it lends it for writing.

    Args:
        size_bytes: how many.

    Attributes:
        view: where to write them.
    """

    def __init__(self, size_bytes: int) -> None:
        self._file = _LentBytes(bytes(size_bytes))
        self.view: memoryview = self._file.getbuffer()
        if size_bytes >= HUGE_BYTES_MIN:
            _ask_for_huge_pages(self.view)

    def take(self) -> bytes:
        """Return them; nothing is to be written from then on."""
        self.view.release()
        return self._file.getvalue()


def _ask_for_huge_pages(view: memoryview) -> None:
    """Do as NumPy does with its large arrays; a kernel that has none goes on with small ones."""
    import ctypes

    address = ctypes.addressof(ctypes.c_char.from_buffer(view))
    begin = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    size_bytes = (address + len(view) - begin) // mmap.PAGESIZE * mmap.PAGESIZE
    madvise = ctypes.CDLL(None).madvise
    madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size_bytes), mmap.MADV_HUGEPAGE)
