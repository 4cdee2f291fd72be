"""The directory of a memory layer: its data and servers, the calls under way, and where new data goes."""

from __future__ import annotations

import zlib
from collections import Counter as Multiset
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Set

from attrs import define, field

from gspc_trio.core.ids import Counter
from gspc_trio.core.machine import Turn
from gspc_trio.iml import events
from gspc_trio.iml import messages as x
from gspc_trio.iml.errors import BadLayout, DataLost, ImlError, UnknownData, UnknownHost, WrongJob
from gspc_trio.iml.layout import Layout, Range, check_layout, extents, part_sizes
from gspc_trio.iml.messages import DataState


@define(eq=False)
class Part:
    """A part of some data; ``holders`` are the ranks that hold it, each with whether it may drop it again."""

    size_bytes: int
    holders: dict[int, bool] = field(factory=dict)


@define(eq=False)
class DataTurn:
    """An operation on the bytes or the holders of some data; those before it may have to end first.

    Attributes:
        start: called when it may begin.
        targets: of a copy, the ranks that get it: copies to others may be under way at the same time. Empty:
            nothing else may.
        begun: it is under way.
    """

    start: Callable[[DataTurn], None]
    targets: Set[int] = frozenset()
    begun: bool = False


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
        turns: operations that are under way or wait, in order.
        begins: some of them are just being begun.
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
    turns: deque[DataTurn] = field(factory=deque)
    begins: bool = False

    def holders(self) -> set[int]:
        """Return the ranks that hold any part."""
        return {rank for part in self.parts.values() for rank in part.holders}


class Server:
    """A server that is there: its entry, and how many bytes were put on it."""

    def __init__(self, entry: x.ServerEntry, spill_bytes: int) -> None:
        self.entry = entry
        self.spill_bytes = spill_bytes
        self.held_bytes = 0

    @property
    def free_bytes(self) -> int:
        """What is left of its quotas."""
        return self.entry.memory_bytes + self.spill_bytes - self.held_bytes


@define(eq=False)
class Operation:
    """Calls to servers that belong together.

    Attributes:
        finish: called when all have answered, or are gone.
        calls: those not answered: call -> (rank, part).
        done: (rank, part) of what was done.
        failed: (rank, part) of what was not -> error and message.
    """

    finish: Callable[[Operation], None]
    calls: dict[int, tuple[int, int]] = field(factory=dict)
    done: list[tuple[int, int]] = field(factory=list)
    failed: dict[tuple[int, int], tuple[str, str]] = field(factory=dict)


REPLACED_MAX = 1_000
"""Of so much data it is remembered that other data was published in its place."""


class Directory(Turn[events.LayerAction]):
    """State that the parts of a coordinator share, and the steps that all its operations take.

    Attributes:
        data: by id, puts that are being written among them.
        names: name -> id of what was published under it.
        servers: those that are there, by rank.
        links: rank -> link.
        clients: number -> job, or "".
        jobs: job -> its clients.
        vacated: hosts that are not to be relied on -> clients that have said so.
    """

    def __init__(self) -> None:
        super().__init__()
        self.data: dict[str, DataEntry] = {}
        self.names: dict[str, str] = {}
        self.servers: dict[int, Server] = {}
        self.links: dict[int, int] = {}
        self.clients: dict[int, str] = {}
        self.jobs: dict[str, dict[int, None]] = {}
        self.vacated: dict[str, set[int]] = {}
        self._ready: list[DataEntry] = []
        self._ids = Counter("d")
        self._calls = Counter()
        self._pending: dict[int, tuple[Operation, str]] = {}  # call -> with the id of its data
        self._busy: Multiset[str] = Multiset()  # id -> calls that are not answered
        self._waiting: dict[str, list[Callable[[], None]]] = {}  # id -> what starts when it is not busy
        self._copies: dict[int, tuple[int, x.CopyPart]] = {}
        self._lost: dict[str, list[str]] = {}
        self._replaced: dict[str, str] = {}

    def rank_at(self, link: int) -> int | None:
        """Return the rank of the server at a link, None if none is there."""
        return next((rank for rank, other in self.links.items() if other == link), None)

    def new_id(self) -> str:
        """Return an id that nothing has: clients give ids of their own, too."""
        while (name := self._ids.next_name()) in self.data or self.is_busy(name):
            pass
        return name

    # Answers

    def reply(self, ask: int, message: x.LayerAnswer) -> None:
        """Answer."""
        self.actions.append(events.AnswerRequest(ask, message))

    def refuse(self, ask: int, error: ImlError) -> None:
        """Refuse."""
        self.actions.append(events.RefuseRequest(ask, type(error).__name__, str(error)))

    # Servers

    def tell(self, rank: int, message: x.ServerNotice) -> None:
        """Tell a server, if it is there."""
        if rank in self.links:
            self.actions.append(events.TellServer(self.links[rank], message))

    def call(self, operation: Operation, rank: int, part: int, message: x.ServerCall) -> None:
        """Call a server for an operation."""
        call = self._calls.next()
        operation.calls[call] = (rank, part)
        self._pending[call] = (operation, message.data_id)
        self._busy[message.data_id] += 1
        if isinstance(message, x.CopyPart):
            self._copies[call] = (rank, message)
        self.actions.append(events.CallServer(self.links[rank], call, message))

    def finish_if_done(self, operation: Operation) -> None:
        """End an operation that has nothing (more) to wait for."""
        if not operation.calls:
            operation.finish(operation)

    def asked(self, call: int) -> int | None:
        """Return the rank of the server that has yet to answer a call, None if nobody has."""
        found = self._pending.get(call)
        return None if found is None else found[0].calls[call][0]

    def answered(self, call: int, kind: str, message: str) -> bool:
        """Take a server's answer; return False if nobody waits for it."""
        found = self._pending.pop(call, None)
        self._copies.pop(call, None)
        if found is None:
            return False
        operation, data_id = found
        key = operation.calls.pop(call)
        if kind:
            operation.failed[key] = (kind, message)
        else:
            operation.done.append(key)
        self.finish_if_done(operation)
        self._busy[data_id] -= 1
        if not self._busy[data_id]:
            del self._busy[data_id]
            for start in self._waiting.pop(data_id, ()):
                start()
        return True

    def is_busy(self, data_id: str) -> bool:
        """Return whether a server has yet to answer something about data of this id, also if that is gone."""
        return data_id in self._busy

    def when_idle(self, data_id: str, start: Callable[[], None]) -> None:
        """Start something once an id that is busy is so no more; others that waited may be faster."""
        self._waiting.setdefault(data_id, []).append(start)

    def copies_under_way(self) -> list[tuple[int, x.CopyPart]]:
        """Return what servers are fetching from others now, each with the rank of who fetches."""
        return list(self._copies.values())

    def server_gone(self, rank: int, reason: str) -> None:
        """Forget what a server held, and fail the calls that it has not answered."""
        del self.links[rank]
        for data in list(self.data.values()):
            for number, part in data.parts.items():
                if rank in part.holders:
                    self.remove_holder(data, number, rank)
            self.note_loss(data, reason)
        del self.servers[rank]
        for call, (operation, _) in list(self._pending.items()):
            if call in self._pending and operation.calls[call][0] == rank:
                self.answered(call, "DataLost", reason)

    # Holders

    def add_holder(self, data: DataEntry, number: int, rank: int, *, cached: bool) -> None:
        """The server holds the part from now on."""
        part = data.parts[number]
        if rank not in part.holders:
            self.servers[rank].held_bytes += part.size_bytes
        part.holders[rank] = cached

    def remove_holder(self, data: DataEntry, number: int, rank: int) -> None:
        """The server holds the part no more."""
        part = data.parts[number]
        del part.holders[rank]
        self.servers[rank].held_bytes -= part.size_bytes

    def remove(self, data: DataEntry) -> list[tuple[int, int]]:
        """Take data out of the directory; return the (rank, part) that are to be dropped."""
        places = [(rank, number) for number, part in data.parts.items() for rank in part.holders]
        for rank, number in places:
            self.remove_holder(data, number, rank)
        if self.is_busy(data.data_id):  # a copy that is under way would be read as soon as it is whole
            copies = self.copies_under_way()
            places += [(rank, copy.part) for rank, copy in copies if copy.data_id == data.data_id]
        data.state = DataState.GONE
        if self.data.get(data.data_id) is data:
            del self.data[data.data_id]
            if self.names.get(data.published) == data.data_id:
                del self.names[data.published]
        return places

    def why_gone(self, data: DataEntry) -> ImlError:
        """Return why data that is gone cannot be used: it was freed, or was lost and is made again."""
        if data.data_id in self.data:
            return DataLost(f"data {data.data_id} was lost meanwhile, and is made again")
        return self.replaced(data.data_id) or UnknownData(f"data {data.data_id} was freed meanwhile")

    def replace(self, data: DataEntry) -> None:
        """Free published data, in whose place other data gets its name."""
        self._replaced[data.data_id] = data.published
        if len(self._replaced) > REPLACED_MAX:
            del self._replaced[next(iter(self._replaced))]
        self.discard(data)

    def replaced(self, data_id: str) -> UnknownData | None:
        """Return the error of data that was replaced; None if nobody knows of that."""
        name = self._replaced.get(data_id)
        if name is None:
            return None
        return UnknownData(
            f"data {data_id} was published as {name!r}, and is gone: other data was published under this name"
        )

    def discard(self, data: DataEntry) -> None:
        """Remove data, without waiting for the servers."""
        for rank, number in self.remove(data):
            self.tell(rank, x.DropPart(data.data_id, number))

    def give_up(self, data: DataEntry) -> None:
        """Remove data that nobody goes on making; what was lost before is lost still."""
        self.discard(data)
        if not data.again:
            return
        parts = {number: Part(part.size_bytes) for number, part in data.parts.items()}
        lost = DataEntry(data.data_id, data.job, data.size_bytes, data.block_bytes, parts, 0, data.published)
        lost.state, lost.why = DataState.LOST, data.why
        self.data[data.data_id] = lost
        if data.published:
            self.names[data.published] = data.data_id

    def note_loss(self, data: DataEntry, reason: str) -> None:
        """See whether a part of the data has no holder left, or only such as may drop it."""
        if data.state not in (DataState.READY, DataState.WRITING):
            return
        if all(part.holders for part in data.parts.values()):
            for number, part in data.parts.items():
                if all(part.holders.values()):
                    rank = next(iter(part.holders))
                    part.holders[rank] = False
                    self.tell(rank, x.KeepPart(data.data_id, number))
            return
        if data.state is DataState.READY and not data.target:
            self._lost.setdefault(data.job, []).append(data.data_id)
        data.state, data.why = DataState.LOST, reason
        for number, part in data.parts.items():
            for rank in list(part.holders):
                self.remove_holder(data, number, rank)
                self.tell(rank, x.DropPart(data.data_id, number))

    def take_losses(self) -> dict[str, list[str]]:
        """Return job -> ids of data lost since the last call."""
        lost, self._lost = self._lost, {}
        return lost

    def note_ready(self, data: DataEntry) -> None:
        """Some data has become complete."""
        if self.vacated:
            self._ready.append(data)

    def take_ready(self) -> list[DataEntry]:
        """Return data that was completed since the last call, while hosts are not to be relied on."""
        ready, self._ready = self._ready, []
        return ready

    # Turns

    def take_turn(
        self, data: DataEntry, start: Callable[[DataTurn], None], targets: Set[int] = frozenset()
    ) -> None:
        """Start an operation on the bytes or holders of the data when those before it allow that.

        Args:
            data: which.
            start: starts it.
            targets: of a copy to these ranks alone; see :class:`DataTurn`.
        """
        data.turns.append(DataTurn(start, targets))
        self._begin_turns(data)

    def end_turn(self, data: DataEntry, turn: DataTurn) -> None:
        """An operation has ended."""
        data.turns.remove(turn)
        self._begin_turns(data)

    def _begin_turns(self, data: DataEntry) -> None:
        if data.begins:
            return  # whoever begins them looks again: many that end at once would need a deep stack
        data.begins = True
        while (turn := _next_turn(data.turns)) is not None:
            turn.begun = True
            turn.start(turn)
        data.begins = False

    def check(self) -> None:
        """Assert every invariant."""
        held = dict.fromkeys(self.servers, 0)
        for data_id, data in self.data.items():
            assert data.data_id == data_id, "an entry under another's id"
            assert data.state is not DataState.GONE, f"{data_id} is gone, and yet there"
            for part in data.parts.values():
                for rank in part.holders:
                    held[rank] += part.size_bytes  # KeyError: held by a server that is gone
                if data.state is DataState.READY:
                    assert part.holders, f"nobody holds a part of {data_id}"
                    assert not all(part.holders.values()), f"only cached copies of {data_id} are left"
            assert data.state is not DataState.LOST or not data.holders(), f"{data_id} is lost, and yet held"
        for rank, server in self.servers.items():
            assert server.held_bytes == held[rank], f"the bytes at rank {rank} are miscounted"
        for name, data_id in self.names.items():
            assert self.data[data_id].published == name, f"{name} is the name of something else"
        for call, (operation, _) in self._pending.items():
            assert operation.calls[call][0] in self.servers, "a call to a server that is gone"
        busy = Multiset(data_id for _, data_id in self._pending.values())
        assert self._busy == busy, "calls are miscounted"
        assert self._waiting.keys() <= busy.keys(), "something waits for no call"
        assert self._copies.keys() <= self._pending.keys(), "a copy that nobody waits for"
        assert not self.actions, "an action was not returned"
        assert not self._lost, "a loss was not told"
        for job, clients in self.jobs.items():
            assert clients, f"job {job} has no client"
            assert all(self.clients[client] == job for client in clients), "a client in two jobs"


def _next_turn(turns: Iterable[DataTurn]) -> DataTurn | None:
    """Return the operation that may begin now, None if none may."""
    before: set[int] = set()
    for place, turn in enumerate(turns):
        if not turn.begun:
            return turn if not place or (turn.targets and before.isdisjoint(turn.targets)) else None
        if not turn.targets:
            return None
        before |= turn.targets
    return None


def owner_of(name: str, ranks: Iterable[int]) -> int:
    """Return the rank at which data of a name lies unless it was set: the highest hash of name and rank.

    When a server comes or goes, only the names that it owns change their owner.
    """
    return max(ranks, key=lambda rank: (zlib.crc32(f"{rank}:{name}".encode("utf-8", "surrogatepass")), rank))


def place(
    servers: Mapping[int, Server],
    layout: Layout,
    size_bytes: int,
    first: int | None,
    vacated: Container[str] = (),
) -> list[list[int]]:
    """Return for each part of new data the ranks that are to hold it.

    Args:
        servers: those that are there, by rank.
        layout: what was asked for.
        size_bytes: of the data.
        first: the rank at which it is to begin if the layout names no hosts, or None.
        vacated: hosts that are not to be relied on: they come last.

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
        order = sorted(
            servers,
            key=lambda rank: (
                rank != first,
                servers[rank].entry.host in vacated,
                -servers[rank].free_bytes,
                rank,
            ),
        )
    if layout.copies > len(order):
        raise BadLayout(f"{layout.copies} copies were asked for, but the layer has {len(order)} hosts")
    count = len(part_sizes(size_bytes, layout.block_bytes, len(order)))
    return [[order[(part + copy) % len(order)] for copy in range(layout.copies)] for part in range(count)]


def located(data: DataEntry, servers: Mapping[int, Server]) -> x.Located:
    """Return what a client is told of data."""
    parts = tuple(
        tuple(sorted(data.parts[number].holders, key=lambda rank: (data.parts[number].holders[rank], rank)))
        if number in data.parts
        else ()
        for number in range(max(data.parts, default=-1) + 1)
    )
    entries = tuple(servers[rank].entry for rank in sorted(data.holders()))
    job = "" if data.published else data.job
    return x.Located(data.data_id, job, data.published, data.size_bytes, data.block_bytes, parts, entries)


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


def partition(found: x.Located) -> dict[str, list[Range]]:
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
