"""The client of a memory layer (IML-1): applications allocate, get and put anywhere, map what is near."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from msgspec import Struct

from gspc_trio.components.rts.messages import StopRts
from gspc_trio.iml import local
from gspc_trio.iml import messages as x
from gspc_trio.iml.directory import partition
from gspc_trio.iml.errors import DataLost, LayerGone, UnknownData, UnknownHost, error_of
from gspc_trio.iml.layout import ONE_HOST, Layout, Range, check_range, check_size
from gspc_trio.iml.segment import map_readonly
from gspc_trio.iml.shell.access import Access, FindNear, Near
from gspc_trio.iml.shell.transfer import ServerLinks
from gspc_trio.nursery.connections.rpc import Peer, PeerGone, RemoteError
from gspc_trio.protocol.values import Placed

TRIES = 10
"""How often a get looks for the data again when a holder does not have it, or it changes meanwhile."""

LOCATIONS_MAX = 10_000
"""How many locations of data a client remembers."""


class Allocation(Struct, frozen=True):
    """Data in the global address space.

    Attributes:
        data_id: its id.
        size_bytes: how many bytes it has.
    """

    data_id: str
    size_bytes: int

    @property
    def all(self) -> Range:
        """All of it."""
        return Range(self.data_id, 0, self.size_bytes)

    def range(self, offset: int, size_bytes: int) -> Range:
        """Return a stretch of it.

        Raises:
            BadRange: it has no such stretch.
        """
        check_range(self.data_id, self.size_bytes, offset, size_bytes)
        return Range(self.data_id, offset, size_bytes)


class Iml:
    """A client of a memory layer; made by :func:`gspc_trio.open_iml`.

    Args:
        peer: the coordinator.
        links: to the servers.
        job: for which it makes and reads data; "" speaks for no job, and sees everything.
        host: the host it is on.
        near: finds the server of that host.

    Attributes:
        lost: ids of data of the job that was lost with a host, and why.
        on_loss: told of them.
    """

    def __init__(self, peer: Peer, links: ServerLinks, job: str, host: str, near: FindNear) -> None:
        self.job = job
        self.host = host
        self.lost: dict[str, str] = {}
        self.on_loss: Callable[[tuple[str, ...]], None] = lambda _: None
        self._peer = peer
        self._access = Access(links, host, near)
        self._known: dict[str, x.Located] = {}

    # Memory (GSPC19 2.7)

    async def alloc(
        self,
        size_bytes: int,
        data: Any = None,
        *,
        layout: Layout = ONE_HOST,
        name: str = "",
        data_id: str = "",
    ) -> Allocation:
        """Allocate memory in the layer; it is there whole or not at all.

        Args:
            size_bytes: how much.
            data: what it is to hold, of just so many bytes; None: zeros.
            layout: where it is to lie.
            name: to publish it under, or "".
            data_id: the id of data that was lost, to have it again; "" for a new one.

        Raises:
            BadSize: less than 1 byte, or ``data`` has another size.
            BadLayout, UnknownHost: the layout does not go with the hosts of the layer.
            NoRoom: a host has no room for it.
            DuplicateData: the name or the id is taken.
        """
        check_size(size_bytes)
        view = None
        if data is not None:
            view = memoryview(data).cast("B")
            if len(view) != size_bytes:
                raise error_of("BadSize", f"{len(view)} bytes of data for an allocation of {size_bytes}")
        request = x.Alloc(self.job, size_bytes, layout, name, view is not None, data_id)
        found: x.Located = await self._ask(request)
        if view is not None:
            await self._fill(found, found, 0, view)
        return Allocation(found.data_id, size_bytes)

    async def free(self, data: Allocation | str) -> None:
        """Free data: its id is unknown when this returns; what is mapped stays readable until it is unmapped.

        Raises:
            UnknownData: there is no such data.
            WrongJob: it belongs to another job.
        """
        data_id = _id_of(data)
        self._known.pop(data_id, None)
        await self._ask(x.Free(self.job, data_id))

    async def partition(self, data: Allocation | str) -> dict[str, list[Range]]:
        """Return host -> ranges of the data that lie there; what has copies is on several hosts.

        Raises:
            ImlError: there is no such data, or not for this job.
        """
        return partition(await self._locate(_id_of(data)))

    async def get(self, where: Range | Allocation | str) -> bytes:
        """Return a copy of bytes from wherever they lie: those of the last put that has returned.

        Of a put that is under way, what lies in one part is there whole or not at all.

        Raises:
            BadRange: the data has no such range.
            UnknownData, DataLost, WrongJob: there is no such data (any more).
        """
        data_id = where.data_id if isinstance(where, Range) else _id_of(where)
        for attempt in range(TRIES):
            found = self._known.get(data_id) or await self._locate(data_id)
            wanted = where if isinstance(where, Range) else Range(data_id, 0, found.size_bytes)
            check_range(data_id, found.size_bytes, wanted.offset, wanted.size_bytes)
            try:
                return await self._access.read(found, wanted)
            except (UnknownData, LayerGone, DataLost):
                if attempt == TRIES - 1:
                    raise
                # Its holders have changed, or it is gone: the coordinator knows.
                self._known.pop(data_id, None)
                await self._locate(data_id)
        raise AssertionError("unreachable")

    async def put(self, where: Range, data: Any) -> None:
        """Overwrite a range; when this has returned every get finds the new bytes.

        The bytes are written aside first and then applied: when it fails, the old ones are as they were, or
        the data is lost.

        Raises:
            BadRange, BadSize: the data has no such range, or ``data`` another size.
            UnknownData, DataLost, WrongJob: there is no such data (any more).
            NoRoom: a host has no room to take them aside.
        """
        view = memoryview(data).cast("B")
        if len(view) != where.size_bytes:
            raise error_of("BadSize", f"{len(view)} bytes of data for a range of {where.size_bytes}")
        request = x.BeginPut(self.job, where.data_id, where.offset, where.size_bytes)
        begun: x.PutBegun = await self._ask(request)
        target = self._known.get(where.data_id) or await self._locate(where.data_id)
        await self._fill(begun.located, target, where.offset, view)

    def map(self, where: Range | Allocation | str) -> AbstractAsyncContextManager[memoryview]:
        """See data as read-only memory for the time of a block, without a copy if it lies on this host.

        What lies elsewhere is copied to this host first, and stays there as long as there is room; what lies
        in stripes is copied for this block alone, and does not show what is put meanwhile. The view
        must not be used after the block; memory of data that is freed meanwhile stays as it is.

        Raises:
            ImlError: there is no such data, no room for it here, or no server on this host.
        """
        near = self._access.near("")
        if near is None:
            raise UnknownHost(f"host {self.host} has no memory server, so that nothing can be mapped: get it")
        return _Mapping(near, self.job, where)

    async def placed(self, where: Range | Allocation | str) -> Placed:
        """Return a range as a value for a workflow or an executor: its task sees it as read-only memory.

        The data must be published, or belong to no job, for the job to read it; and it has to stay.

        Raises:
            ImlError: there is no such data or range.
        """
        data_id = where.data_id if isinstance(where, Range) else _id_of(where)
        found = await self._locate(data_id)
        wanted = where if isinstance(where, Range) else Range(data_id, 0, found.size_bytes)
        check_range(data_id, found.size_bytes, wanted.offset, wanted.size_bytes)
        end = wanted.offset + wanted.size_bytes
        places: dict[str, int] = {}
        for host, ranges in partition(found).items():
            parts = (min(r.offset + r.size_bytes, end) - max(r.offset, wanted.offset) for r in ranges)
            size_bytes = sum(part for part in parts if part > 0)
            if size_bytes:
                places[host] = size_bytes
        return Placed(data_id, wanted.offset, wanted.size_bytes, found.size_bytes, tuple(places.items()))

    async def replicate(
        self, data: Allocation | str, copies: int = 0, *, hosts: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Have the data on so many hosts, or on these besides; return the hosts that hold all of it.

        Raises:
            ImlError: there is no such data or host, or no room; copies that were made stay.
        """
        data_id = _id_of(data)
        self._known.pop(data_id, None)
        found: x.Located = await self._ask(x.Replicate(self.job, data_id, copies, tuple(hosts)))
        return _hosts_of_all(found)

    async def vacate(self, host: str, *, is_over: bool = False) -> tuple[int, int]:
        """Have what lies on a host alone copied to others; return how much was, and how much could not be.

        What comes there later is copied, too, until it is over or this client goes.

        Args:
            host: that is not to be relied on.
            is_over: it is as any other again.
        """
        done: x.Vacated = await self._ask(x.Vacate(host, is_over))
        return done.copied, done.left

    # Names, places, sizes (ASP-4, ASP-7)

    async def publish(self, data: Allocation | str, name: str, *, replace: bool = False) -> None:
        """Give data a name, under which every job finds it; it stays when its job goes.

        Args:
            data: which.
            name: not empty.
            replace: free the data that has the name now.

        Raises:
            DuplicateData: the name is taken, or the data has another one.
            UnknownData, WrongJob: there is no such data.
        """
        await self._ask(x.Publish(self.job, _id_of(data), name, replace))

    async def look_up(self, name: str) -> Allocation:
        """Return the data that was published under a name.

        Raises:
            UnknownName: there is none.
        """
        found: x.Located = await self._ask(x.LookUp(name))
        return Allocation(found.data_id, found.size_bytes)

    async def get_rank(self, name: str) -> int:
        """Return the rank of the server where data of this name lies, or will lie (ASP-7).

        Raises:
            UnknownHost: the layer has no server.
        """
        rank, _ = await self.get_place(name)
        return rank

    async def get_place(self, name: str) -> tuple[int, int]:
        """Return the rank as :meth:`get_rank` does, and the number of the worker on that host that
        :meth:`set_rank` has named, or -1.

        Raises:
            UnknownHost: the layer has no server.
        """
        found: x.RankOf = await self._ask(x.GetRank(name))
        return found.rank, found.worker

    async def set_rank(self, name: str, rank: int, worker: int = -1) -> None:
        """Let data of this name, made later without a layout, lie on the server of this rank (ASP-7).

        Args:
            name: of the data.
            rank: of the server.
            worker: number of the worker on its host that is meant; -1: none in particular.

        Raises:
            UnknownHost: no server has this rank.
        """
        await self._ask(x.SetRank(name, rank, worker))

    async def data_location(self, data: Allocation | str) -> tuple[str, ...]:
        """Return the hosts that hold any of the data, all copies counted (ASP-4)."""
        found = await self._locate(_id_of(data))
        hosts = {entry.rank: entry.host for entry in found.servers}
        return tuple(dict.fromkeys(hosts[rank] for part in found.parts for rank in part))

    async def data_size(self, data: Allocation | str) -> int:
        """Return how many bytes the data has (ASP-4)."""
        return (await self._locate(_id_of(data))).size_bytes

    async def servers(self) -> tuple[x.ServerEntry, ...]:
        """Return the servers of the layer, by rank."""
        found: x.ServerList = await self._ask(x.GetServers())
        return found.servers

    async def status(self) -> x.LayerStatus:
        """Return the state of the layer: its servers, the data in them, and what is being copied."""
        found: x.LayerStatus = await self._ask(x.GetLayerStatus())
        return found

    def bandwidth_of(self, host: str) -> float:
        """Return the measured bytes per second from a host, 0 if none was measured yet."""
        return self._access.links.bandwidth_of(host)

    async def stop_layer(self) -> None:
        """End the whole layer, with all data in it."""
        await self._ask(StopRts())

    @property
    def is_over(self) -> bool:
        """Whether the layer has ended, or cannot be heard any more."""
        return self._peer.lost.is_set()

    async def wait_ended(self) -> None:
        """Wait until the layer has ended."""
        await self._peer.lost.wait()

    # Within

    async def listen(self) -> None:
        """Take what the coordinator tells, until it is gone."""
        with suppress(PeerGone):
            while True:
                for message in await self._peer.receive():
                    if isinstance(message, x.LostData):
                        self.on_loss(message.data_ids)
                        for data_id in message.data_ids:
                            self._known.pop(data_id, None)
                            self.lost[data_id] = message.reason

    async def _ask(self, request: object) -> Any:
        try:
            if (near := self._access.near("")) is not None:
                await near.tell_now()  # what is not mapped any more makes room
            return await self._peer.call(request)
        except PeerGone as gone:
            raise LayerGone(f"the memory layer is gone: {gone}") from gone
        except RemoteError as refused:
            raise error_of(refused.kind, refused.message) from None

    async def _locate(self, data_id: str) -> x.Located:
        found: x.Located = await self._ask(x.Locate(self.job, data_id))
        if len(self._known) >= LOCATIONS_MAX:
            self._known.pop(next(iter(self._known)))
        self._known[data_id] = found
        return found

    async def _fill(self, found: x.Located, layout: x.Located, offset: int, view: memoryview) -> None:
        await self._access.fill(self._ask, found, layout, offset, view)


def _id_of(data: Allocation | str) -> str:
    return data if isinstance(data, str) else data.data_id


def _hosts_of_all(found: x.Located) -> tuple[str, ...]:
    return tuple(entry.host for entry in found.servers if all(entry.rank in part for part in found.parts))


class _Mapping:
    """Data as memory for the time of a block."""

    __slots__ = ("_data_id", "_job", "_mapped", "_near", "_part", "_view", "_where", "_whole")

    def __init__(self, near: Near, job: str, where: Range | Allocation | str) -> None:
        self._near = near
        self._job = job
        self._where = where
        self._data_id = where.data_id if isinstance(where, Range) else _id_of(where)

    async def __aenter__(self) -> memoryview:
        data_id = self._data_id
        (size_bytes, self._part, *_), descriptor = await self._near.ask(local.BRING, self._job, data_id)
        try:
            try:
                where = self._where
                wanted = where if isinstance(where, Range) else Range(data_id, 0, size_bytes)
                check_range(data_id, size_bytes, wanted.offset, wanted.size_bytes)
                self._mapped = map_readonly(descriptor, size_bytes)
            finally:
                os.close(descriptor)
        except BaseException:
            self._near.tell_soon(local.UNMAP, data_id, self._part)
            raise
        self._whole = memoryview(self._mapped)
        self._view = self._whole[wanted.offset : wanted.offset + wanted.size_bytes]
        return self._view

    async def __aexit__(self, *_: object) -> None:
        """Unmap; what was made of the view, an array say, keeps it mapped until that is gone, too."""
        try:
            self._view.release()
            self._whole.release()
            self._mapped.close()
        except BufferError:
            pass
        self._near.tell_soon(local.UNMAP, self._data_id, self._part)
