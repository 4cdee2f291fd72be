"""The directory's entries, and where new data goes."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from attrs import define, field

from gspc_trio.iml.errors import BadLayout, DataLost, UnknownData, UnknownHost, WrongJob
from gspc_trio.iml.layout import Layout, Range, check_layout, extents, part_sizes
from gspc_trio.iml.messages import Located, ServerEntry


class DataState(Enum):
    """Where data is in its life; only ``READY`` data is seen by others than its maker."""

    CREATING = "creating"
    WRITING = "writing"
    READY = "ready"
    LOST = "lost"
    GONE = "gone"


@define(eq=False)
class Part:
    """A part of some data; ``holders`` are the ranks that hold it, each with whether it may drop it again."""

    size_bytes: int
    holders: dict[int, bool] = field(factory=dict)


@define(eq=False)
class DataEntry:
    """What the directory knows of some data, or of the new bytes of a put.

    Attributes:
        data_id, job, size_bytes, block_bytes: as its maker said.
        parts: by number; a put has only those that it touches.
        client: who makes it; it goes with them until it is committed.
        published: its name, or "".
        state: see :class:`DataState`.
        why: why it was lost, also when it is made again.
        again: it is being made again, or has been.
        target: of a put, the data that it changes; "" for data.
        touched: of a put, part -> where in the target's part its bytes go.
        turns: operations that wait until those before have ended; the first of them is under way.
    """

    data_id: str
    job: str
    size_bytes: int
    block_bytes: int
    parts: dict[int, Part]
    client: int = 0
    published: str = ""
    state: DataState = DataState.CREATING
    why: str = ""
    again: bool = False
    target: str = ""
    touched: dict[int, int] = field(factory=dict)
    turns: deque[Callable[[], None]] = field(factory=deque)

    def holders(self) -> set[int]:
        """Return the ranks that hold any part."""
        return {rank for part in self.parts.values() for rank in part.holders}


class Server:
    """A server that is there: its entry, and how many bytes were put on it."""

    def __init__(self, entry: ServerEntry, spill_bytes: int) -> None:
        self.entry = entry
        self.spill_bytes = spill_bytes
        self.held_bytes = 0

    @property
    def free_bytes(self) -> int:
        """What is left of its quotas."""
        return self.entry.memory_bytes + self.spill_bytes - self.held_bytes


def owner_of(name: str, ranks: Iterable[int]) -> int:
    """Return the rank at which data of a name lies unless it was set: the highest hash of name and rank.

    When a server comes or goes, only the names that it owns change their owner.
    """
    return max(ranks, key=lambda rank: (zlib.crc32(f"{rank}:{name}".encode("utf-8", "surrogatepass")), rank))


def place(
    servers: Mapping[int, Server], layout: Layout, size_bytes: int, first: int | None
) -> list[list[int]]:
    """Return for each part of new data the ranks that are to hold it.

    Args:
        servers: those that are there, by rank.
        layout: what was asked for.
        size_bytes: of the data.
        first: the rank at which it is to begin if the layout names no hosts, or None.

    Raises:
        UnknownHost: a host has no server, or there are none.
        BadLayout: more copies than hosts, or it contradicts itself.
    """
    check_layout(layout)
    if not servers:
        raise UnknownHost("the memory layer has no server: start one with gspc-iml start")
    if layout.hosts:
        by_host = {server.entry.host: rank for rank, server in servers.items()}
        for host in layout.hosts:
            if host not in by_host:
                raise UnknownHost(f"no memory server on host {host!r}; there are: {', '.join(by_host)}")
        order = [by_host[host] for host in layout.hosts]
    else:
        order = sorted(servers, key=lambda rank: (rank != first, -servers[rank].free_bytes, rank))
    if layout.copies > len(order):
        raise BadLayout(f"{layout.copies} copies were asked for, but the layer has {len(order)} hosts")
    count = len(part_sizes(size_bytes, layout.block_bytes, len(order)))
    return [[order[(part + copy) % len(order)] for copy in range(layout.copies)] for part in range(count)]


def located(data: DataEntry, servers: Mapping[int, Server]) -> Located:
    """Return what a client is told of data."""
    parts = tuple(
        tuple(sorted(data.parts[number].holders, key=lambda rank: (data.parts[number].holders[rank], rank)))
        if number in data.parts
        else ()
        for number in range(max(data.parts, default=-1) + 1)
    )
    entries = tuple(servers[rank].entry for rank in sorted(data.holders()))
    job = "" if data.published else data.job
    return Located(data.data_id, job, data.published, data.size_bytes, data.block_bytes, parts, entries)


def visible(data: DataEntry | None, data_id: str, job: str) -> DataEntry:
    """Return the data if this job may use it.

    Raises:
        UnknownData, DataLost, WrongJob: it may not.
    """
    made_again = data is not None and data.why
    if (
        data is None
        or data.target
        or (data.state in (DataState.CREATING, DataState.WRITING) and not made_again)
    ):
        raise UnknownData(f"there is no data {data_id}: it was never made, or was freed")
    if job and data.job not in ("", job) and not data.published:
        raise WrongJob(f"data {data_id} belongs to job {data.job}, not to {job}, and is not published")
    if data.state is not DataState.READY:
        raise DataLost(f"data {data_id} was lost: {data.why}")
    return data


def partition(found: Located) -> dict[str, list[Range]]:
    """Return host -> ranges that lie there, in order; what has copies is on several hosts (IML-1)."""
    hosts = {entry.rank: entry.host for entry in found.servers}
    ranges: dict[str, list[Range]] = {}
    for extent in extents(found.block_bytes, len(found.parts), 0, found.size_bytes):
        for rank in found.parts[extent.part]:
            mine = ranges.setdefault(hosts[rank], [])
            if mine and mine[-1].offset + mine[-1].size_bytes == extent.offset:
                last = mine.pop()
                mine.append(Range(found.data_id, last.offset, last.size_bytes + extent.size_bytes))
            else:
                mine.append(Range(found.data_id, extent.offset, extent.size_bytes))
    return ranges
