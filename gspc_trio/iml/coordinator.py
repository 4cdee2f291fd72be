"""The directory of a memory layer: allocations, layouts, names, jobs and copies (GSPC19 2.7).

What takes several servers is an operation: it calls them, and ends when all have answered or are gone. The
operations that change the bytes or the holders of some data take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.iml import events
from gspc_trio.iml import messages as x
from gspc_trio.iml.directory import DataEntry, DataState, Part, Server, located, owner_of, visible
from gspc_trio.iml.errors import (
    BadLayout,
    DuplicateData,
    ImlError,
    UnknownData,
    UnknownHost,
    UnknownName,
    WrongJob,
    error_of,
)
from gspc_trio.iml.ledger import Ledger, Operation
from gspc_trio.iml.writes import Writes


class Coordinator:
    """Machine of a memory layer.

    Args:
        instance: names the layer.
    """

    def __init__(self, instance: str = "") -> None:
        self.instance = instance
        self._ledger = Ledger()
        self._writes = writes = Writes(self._ledger)
        self._set_ranks: dict[str, int] = {}
        self._ranks: dict[str, int] = {}  # host -> rank, also of those that are gone
        self._clients: dict[int, str] = {}
        self._jobs: dict[str, dict[int, None]] = {}
        self._events: dict[type, Callable[[Any], None]] = {
            events.ServerUp: self._server_up,
            events.ServerDown: self._server_down,
            events.ServerSays: self._server_says,
            events.ClientUp: self._client_up,
            events.ClientDown: self._client_down,
            events.Asked: self._asked,
            events.Answered: self._answered,
            Tick: lambda _: None,
        }
        self._requests: dict[type, Callable[[int, int, Any], None]] = {
            x.Alloc: self._alloc,
            x.BeginPut: writes.begin_put,
            x.CommitData: writes.commit,
            x.AbortData: writes.abort,
            x.Locate: self._locate,
            x.LookUp: self._look_up,
            x.Free: self._free,
            x.Replicate: self._replicate,
            x.Publish: self._publish,
            x.GetRank: self._get_rank,
            x.SetRank: self._set_rank,
            x.GetServers: self._get_servers,
        }

    # The machine's contract

    def handle(self, event: Any, now: float) -> list[Any]:
        """Take one event; see :class:`~gspc_trio.core.machine.Machine`."""
        del now
        handler = self._events.get(type(event))
        if handler is None:
            raise IllegalEvent(f"{type(event).__name__} is no event of a memory layer")
        handler(event)
        ledger = self._ledger
        for job, data_ids in ledger.take_losses().items():
            reason = ledger.data[data_ids[0]].why
            for client in self._jobs.get(job, ()):
                ledger.actions.append(events.TellClient(client, x.LostData(job, tuple(data_ids), reason)))
        actions, ledger.actions = ledger.actions, []
        return actions

    def deadline(self) -> float | None:
        """Nothing here waits for the clock."""
        return None

    def check(self) -> None:
        """Assert every invariant."""
        self._ledger.check()
        for job, clients in self._jobs.items():
            assert clients, f"job {job} has no client"
            assert all(self._clients[client] == job for client in clients), "a client in two jobs"
        for rank, server in self._ledger.servers.items():
            assert self._ranks[server.entry.host] == rank, "a host under another's rank"

    def status(self) -> dict[str, Any]:
        """Return the state as plain data: ``servers``, ``data`` with its parts, and ``transfers``."""
        ledger = self._ledger
        host_of = {rank: server.entry.host for rank, server in ledger.servers.items()}
        servers = [
            {
                "rank": rank,
                "host": server.entry.host,
                "address": server.entry.address,
                "memory_bytes": server.entry.memory_bytes,
                "spill_bytes": server.spill_bytes,
                "held_bytes": server.held_bytes,
            }
            for rank, server in sorted(ledger.servers.items())
        ]
        data = [
            {
                "data_id": entry.data_id,
                "job": entry.job,
                "name": entry.published,
                "size_bytes": entry.size_bytes,
                "state": entry.state.value,
                "hosts": sorted(host_of[rank] for rank in entry.holders()),
                "block_bytes": entry.block_bytes,
                "parts": [_describe_part(part, host_of) for part in entry.parts.values()],
            }
            for entry in ledger.data.values()
            if not entry.target
        ]
        transfers = [
            {
                "data_id": copy.data_id,
                "part": copy.part,
                "size_bytes": copy.size_bytes,
                "source": copy.source.host,
                "host": host_of[rank],
            }
            for rank, copy in ledger.copies_under_way()
        ]
        told = {"instance": self.instance, "servers": servers, "data": data, "transfers": transfers}
        return told | {"jobs": sorted(self._jobs)}

    @property
    def size(self) -> int:
        """How much it knows of: data, servers and clients; puts that are being written do not count."""
        data = sum(not entry.target for entry in self._ledger.data.values())
        return data + len(self._ledger.servers) + len(self._clients)

    # Servers

    def _server_up(self, event: events.ServerUp) -> None:
        hello, ledger = event.hello, self._ledger
        if event.link in ledger.links.values():
            raise IllegalEvent(f"the server at link {event.link} has come before")
        rank = self._ranks.setdefault(hello.host, len(self._ranks))
        if rank in ledger.servers:
            error = DuplicateData(
                f"host {hello.host!r} has a memory server already: name this one with --host"
            )
            ledger.refuse(event.ask, error)
            return
        entry = x.ServerEntry(rank, hello.host, hello.address, hello.local_address, hello.memory_bytes)
        ledger.servers[rank] = Server(entry, hello.spill_bytes)
        ledger.links[rank] = event.link
        ledger.reply(event.ask, x.ServerJoined(rank))

    def _rank_at(self, link: int) -> int | None:
        return next((rank for rank, other in self._ledger.links.items() if other == link), None)

    def _server_down(self, event: events.ServerDown) -> None:
        rank = self._rank_at(event.link)
        if rank is not None:
            host = self._ledger.servers[rank].entry.host
            self._ledger.server_gone(rank, f"host {host} is gone ({event.reason})")

    def _server_says(self, event: events.ServerSays) -> None:
        rank = self._rank_at(event.link)
        data = self._ledger.data.get(event.message.data_id)
        if rank is None or data is None:
            return
        part = data.parts.get(event.message.part)
        if part is not None and rank in part.holders:
            host = self._ledger.servers[rank].entry.host
            self._ledger.remove_holder(data, event.message.part, rank)
            self._ledger.note_loss(data, f"host {host} had to make room")

    def _answered(self, event: events.Answered) -> None:
        rank = self._ledger.asked(event.call)
        if event.link is not None and rank is not None and self._ledger.links[rank] != event.link:
            raise IllegalEvent(f"call {event.call} was not made to the server at link {event.link}")
        self._ledger.answered(event.call, event.kind, event.message)

    # Clients and jobs

    def _client_up(self, event: events.ClientUp) -> None:
        if event.client in self._clients:
            raise IllegalEvent(f"client {event.client} has come before")
        job = event.join.job
        self._clients[event.client] = job
        if job:
            self._jobs.setdefault(job, {})[event.client] = None
        self._ledger.reply(event.ask, x.LayerJoined(self.instance))

    def _client_down(self, event: events.ClientDown) -> None:
        ledger = self._ledger
        for data in list(ledger.data.values()):
            if data.client == event.client:
                ledger.give_up(data)
        job = self._clients.pop(event.client, "")
        if not job:
            return
        del self._jobs[job][event.client]
        if not self._jobs[job]:
            del self._jobs[job]
            for data in list(ledger.data.values()):
                if data.job == job and not data.published:
                    ledger.discard(data)

    def _asked(self, event: events.Asked) -> None:
        handler = self._requests.get(type(event.request))
        if handler is None:
            raise IllegalEvent(f"{type(event.request).__name__} is nothing to ask a memory layer for")
        try:
            self._check_job(event.client, getattr(event.request, "job", None))
            handler(event.client, event.ask, event.request)
        except ImlError as error:
            self._ledger.refuse(event.ask, error)

    def _check_job(self, client: int, job: str | None) -> None:
        """See that a client that speaks for a job speaks for no other."""
        own = self._clients.get(client, "")
        if own and job is not None and job != own:
            raise WrongJob(f"a client of job {own} asks for job {job or '(none)'}")

    def _visible(self, data_id: str, job: str) -> DataEntry:
        return visible(self._ledger.data.get(data_id), data_id, job)

    def _alloc(self, client: int, ask: int, request: x.Alloc) -> None:
        before = self._ledger.data.get(request.data_id)
        if before is not None and before.state is DataState.LOST and before.turns:
            # A server that still copies it from who is gone would say that it has it.
            self._ledger.take_turn(before, lambda: self._alloc_again(client, ask, request, before))
        else:
            self._make(client, ask, request)

    def _alloc_again(self, client: int, ask: int, request: x.Alloc, before: DataEntry) -> None:
        """Nothing is done any more with data that was lost: make it again, if somebody still wants that."""
        try:
            if client not in self._clients and self._rank_at(client) is None:
                raise UnknownData(f"who was to make data {request.data_id} again is gone")
            self._make(client, ask, request)
        except ImlError as error:
            self._ledger.refuse(ask, error)
        self._ledger.end_turn(before)

    def _make(self, client: int, ask: int, request: x.Alloc) -> None:
        if request.job and request.job not in self._jobs:  # e.g. of a task that has not heard of its end
            raise WrongJob(f"job {request.job} is no client, or not any more: its data would never go")
        first = None
        if request.name:
            self._check_name(request.name, request.data_id)
            first = self._rank_of(request.name)
        self._writes.alloc(client, ask, request, first)

    def _locate(self, _client: int, ask: int, request: x.Locate) -> None:
        self._reply_located(ask, self._visible(request.data_id, request.job))

    def _look_up(self, _client: int, ask: int, request: x.LookUp) -> None:
        data_id = self._ledger.names.get(request.name)
        if data_id is None:
            raise UnknownName(f"no data is published under the name {request.name!r}")
        self._reply_located(ask, self._visible(data_id, ""))

    def _reply_located(self, ask: int, data: DataEntry) -> None:
        self._ledger.reply(ask, located(data, self._ledger.servers))

    def _get_servers(self, _client: int, ask: int, _request: x.GetServers) -> None:
        servers = self._ledger.servers
        self._ledger.reply(ask, x.ServerList(tuple(servers[rank].entry for rank in sorted(servers))))

    # Names and ranks (ASP-7)

    def _publish(self, _client: int, ask: int, request: x.Publish) -> None:
        data = self._visible(request.data_id, request.job)
        self._check_name(request.name, request.data_id)
        if data.published and data.published != request.name:
            raise DuplicateData(f"data {data.data_id} is published under the name {data.published!r} already")
        data.published = request.name
        self._ledger.names[request.name] = data.data_id
        self._ledger.reply(ask, x.ImlDone())

    def _check_name(self, name: str, data_id: str) -> None:
        if not name:
            raise UnknownName("publish under a name that is not empty")
        other = self._ledger.names.get(name, data_id)
        if other != data_id:
            raise DuplicateData(f"the name {name!r} is that of data {other} already")

    def _get_rank(self, _client: int, ask: int, request: x.GetRank) -> None:
        rank = self._rank_of(request.name)
        self._ledger.reply(ask, x.RankOf(rank, self._ledger.servers[rank].entry.host))

    def _rank_of(self, name: str) -> int:
        """Where data of the name lies, or else was told to, or else belongs by its hash."""
        servers = self._ledger.servers
        data = self._ledger.data.get(self._ledger.names.get(name, ""))
        if data is not None and data.parts[0].holders:
            return next(iter(data.parts[0].holders))
        rank = self._set_ranks.get(name, -1)
        if rank in servers:
            return rank
        if not servers:
            raise UnknownHost("the memory layer has no server: start one with gspc-iml start")
        return owner_of(name, servers)

    def _set_rank(self, _client: int, ask: int, request: x.SetRank) -> None:
        if request.rank not in self._ledger.servers:
            there = ", ".join(map(str, sorted(self._ledger.servers))) or "none"
            raise UnknownHost(f"no memory server has the rank {request.rank}; there are: {there}")
        self._set_ranks[request.name] = request.rank
        self._ledger.reply(ask, x.ImlDone())

    # The end of data, and copies

    def _free(self, _client: int, ask: int, request: x.Free) -> None:
        ledger = self._ledger
        data = ledger.data.get(request.data_id)
        if data is None or data.state is not DataState.LOST or data.target:
            data = self._visible(request.data_id, request.job)
        # Whoever knows where it lay could still read it: the answer waits for all to have dropped it.
        operation = Operation(lambda _: ledger.reply(ask, x.ImlDone()))
        for rank, number in ledger.remove(data):
            ledger.call(operation, rank, number, x.DropPart(data.data_id, number))
        ledger.finish_if_done(operation)

    def _replicate(self, _client: int, ask: int, request: x.Replicate) -> None:
        data = self._visible(request.data_id, request.job)
        self._check_copies(request)
        by_host = {server.entry.host: rank for rank, server in self._ledger.servers.items()}
        for host in request.hosts:
            if host not in by_host:
                raise UnknownHost(f"no memory server on host {host!r}; there are: {', '.join(by_host)}")
        self._ledger.take_turn(data, lambda: self._copy(ask, request, data))

    def _check_copies(self, request: x.Replicate) -> None:
        there = len(self._ledger.servers)
        if request.copies > there:
            raise BadLayout(f"{request.copies} copies were asked for, but the layer has {there} hosts")

    def _copy(self, ask: int, request: x.Replicate, data: DataEntry) -> None:
        """Have it copied, now that nothing else happens to it; again if copies go meanwhile."""
        ledger = self._ledger
        operation = Operation(lambda done: self._copied(ask, request, data, done))
        if data.state is DataState.READY:
            named = [rank for rank, server in ledger.servers.items() if server.entry.host in request.hosts]
            others = sorted(ledger.servers, key=lambda rank: (-ledger.servers[rank].free_bytes, rank))
            for number, part in data.parts.items():
                wanted = list(named)
                missing = request.copies - len(part.holders.keys() | set(named))
                wanted += [rank for rank in others if rank not in part.holders and rank not in named][
                    : max(missing, 0)
                ]
                source = ledger.servers[next(iter(part.holders))].entry
                for rank in wanted:
                    if rank not in part.holders:
                        message = x.CopyPart(data.data_id, number, part.size_bytes, source, request.cached)
                        ledger.call(operation, rank, number, message)
                    elif part.holders[rank] and not request.cached:
                        part.holders[rank] = False
                        ledger.tell(rank, x.KeepPart(data.data_id, number))
        ledger.finish_if_done(operation)

    def _copied(self, ask: int, request: x.Replicate, data: DataEntry, operation: Operation) -> None:
        ledger = self._ledger
        for rank, number in operation.done:
            if data.state is DataState.READY and rank in ledger.servers:
                ledger.add_holder(data, number, rank, cached=request.cached)
            else:
                ledger.tell(rank, x.DropPart(data.data_id, number))
        try:
            if data.state is DataState.GONE:
                raise ledger.why_gone(data)
            visible(data, data.data_id, "")
            for kind, message in operation.failed.values():
                raise error_of(kind, message)
            if any(len(part.holders) < request.copies for part in data.parts.values()):
                self._check_copies(request)
                self._copy(ask, request, data)
                return
            self._reply_located(ask, data)
        except ImlError as error:
            ledger.refuse(ask, error)
        ledger.end_turn(data)


def _describe_part(part: Part, host_of: Mapping[int, str]) -> dict[str, Any]:
    """Return size and hosts of a part; ``cached`` are those that may drop it again."""
    return {
        "size_bytes": part.size_bytes,
        "hosts": [host_of[rank] for rank, cached in part.holders.items() if not cached],
        "cached": [host_of[rank] for rank, cached in part.holders.items() if cached],
    }
