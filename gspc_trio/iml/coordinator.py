"""The coordinator of a memory layer: allocations, layouts, names, jobs and copies (GSPC19 2.7).

What takes several servers is an operation: it calls them, and ends when all have answered or are gone. The
operations that change the bytes or the holders of some data take turns.
"""

from __future__ import annotations

from collections.abc import Mapping

from gspc_trio.core.ids import Counter
from gspc_trio.core.machine import ComposedMachine, IllegalEvent, Tick, handles
from gspc_trio.iml import events
from gspc_trio.iml import messages as x
from gspc_trio.iml.directory import DataEntry, Directory, Part, Server
from gspc_trio.iml.errors import DuplicateData
from gspc_trio.iml.requests import LayerRequests


class Coordinator(ComposedMachine[events.LayerEvent, events.LayerAction]):
    """Machine of a memory layer.

    Args:
        instance: names the layer.
    """

    noun = "a memory layer"

    def __init__(self, instance: str = "") -> None:
        self._directory = Directory()
        super().__init__(self._directory)
        self.instance = instance
        self._requests = LayerRequests(self._directory)
        self._ranks: dict[str, int] = {}  # host -> rank, also of those that are gone
        self._prefixes = Counter("s")  # a server that comes again gives no id again

    # The machine's contract

    def settle(self) -> None:
        """Tell the clients of a job which of its data was lost; copy what was made where it is not safe."""
        directory = self._directory
        self._requests.vacating.follow()
        for job, data_ids in directory.take_losses().items():
            lost = x.LostData(job, tuple(data_ids), directory.data[data_ids[0]].why)
            directory.actions += [events.TellClient(client, lost) for client in directory.jobs.get(job, ())]

    def deadline(self) -> float | None:
        """Nothing here waits for the clock."""
        return None

    def check(self) -> None:
        """Assert every invariant."""
        self._directory.check()
        for rank, server in self._directory.servers.items():
            assert self._ranks[server.entry.host] == rank, "a host under another's rank"

    def status(self) -> x.LayerStatus:
        """Return the state of the layer."""
        directory = self._directory
        host_of = {rank: server.entry.host for rank, server in directory.servers.items()}
        servers = [
            x.ServerStatus(
                rank,
                server.entry.host,
                server.entry.address,
                server.entry.memory_bytes,
                server.spill_bytes,
                server.held_bytes,
            )
            for rank, server in sorted(directory.servers.items())
        ]
        data = [_status_of(entry, host_of) for entry in directory.data.values() if not entry.target]
        transfers = [
            x.TransferStatus(copy.data_id, copy.part, copy.size_bytes, copy.source.host, host_of[rank])
            for rank, copy in directory.copies_under_way()
        ]
        jobs = tuple(sorted(directory.jobs))
        return x.LayerStatus(self.instance, tuple(servers), tuple(data), tuple(transfers), jobs)

    @property
    def size(self) -> int:
        """How much it knows of: data, servers and clients; puts that are being written do not count."""
        data = sum(not entry.target for entry in self._directory.data.values())
        return data + len(self._directory.servers) + len(self._directory.clients)

    # Servers

    @handles(events.ServerUp)
    def _server_up(self, event: events.ServerUp) -> None:
        hello, directory = event.hello, self._directory
        if event.link in directory.links.values():
            raise IllegalEvent(f"the server at link {event.link} has come before")
        rank = self._ranks.setdefault(hello.host, len(self._ranks))
        if rank in directory.servers:
            error = DuplicateData(
                f"host {hello.host!r} has a memory server already: name this one with --host"
            )
            directory.refuse(event.ask, error)
            return
        entry = x.ServerEntry(rank, hello.host, hello.address, hello.local_address, hello.memory_bytes)
        directory.servers[rank] = Server(entry, hello.spill_bytes)
        directory.links[rank] = event.link
        directory.reply(event.ask, x.ServerJoined(rank, self._prefixes.next_name()))

    @handles(events.ServerDown)
    def _server_down(self, event: events.ServerDown) -> None:
        rank = self._directory.rank_at(event.link)
        if rank is not None:
            host = self._directory.servers[rank].entry.host
            self._directory.server_gone(rank, f"host {host} is gone ({event.reason})")
            for data in self._directory.data.values():
                self._directory.note_ready(data)  # its copy that was safe may be gone

    @handles(events.ServerSays)
    def _server_says(self, event: events.ServerSays) -> None:
        rank = self._directory.rank_at(event.link)
        data = self._directory.data.get(event.message.data_id)
        if rank is None or data is None:
            return
        part = data.parts.get(event.message.part)
        if part is not None and rank in part.holders:
            host = self._directory.servers[rank].entry.host
            self._directory.remove_holder(data, event.message.part, rank)
            self._directory.note_loss(data, f"host {host} had to make room")

    @handles(events.Answered)
    def _answered(self, event: events.Answered) -> None:
        rank = self._directory.asked(event.call)
        if event.link is not None and rank is not None and self._directory.links[rank] != event.link:
            raise IllegalEvent(f"call {event.call} was not made to the server at link {event.link}")
        self._directory.answered(event.call, event.kind, event.message)

    # Clients and jobs

    @handles(events.ClientUp)
    def _client_up(self, event: events.ClientUp) -> None:
        if event.client in self._directory.clients:
            raise IllegalEvent(f"client {event.client} has come before")
        job = event.join.job
        self._directory.clients[event.client] = job
        if job:
            self._directory.jobs.setdefault(job, {})[event.client] = None
        self._directory.reply(event.ask, x.LayerJoined(self.instance))

    @handles(events.ClientDown)
    def _client_down(self, event: events.ClientDown) -> None:
        directory = self._directory
        self._requests.vacating.client_gone(event.client)
        for data in list(directory.data.values()):
            if data.client == event.client:
                directory.give_up(data)
        job = self._directory.clients.pop(event.client, "")
        if not job:
            return
        del self._directory.jobs[job][event.client]
        if not self._directory.jobs[job]:
            del self._directory.jobs[job]
            for data in list(directory.data.values()):
                if data.job == job and not data.published:
                    directory.discard(data)

    @handles(events.Asked)
    def _asked(self, event: events.Asked) -> None:
        self._requests.answer(event.request, event.client, event.ask, event.write_token)

    @handles(Tick)
    def _tick(self, event: Tick) -> None:
        """Nothing waits for the clock."""


def _status_of(entry: DataEntry, host_of: Mapping[int, str]) -> x.DataStatus:
    return x.DataStatus(
        entry.data_id,
        entry.job,
        entry.published,
        entry.size_bytes,
        entry.state,
        tuple(sorted(host_of[rank] for rank in entry.holders())),
        entry.block_bytes,
        tuple([_part_status(part, host_of) for part in entry.parts.values()]),
    )


def _part_status(part: Part, host_of: Mapping[int, str]) -> x.PartStatus:
    hosts = tuple([host_of[rank] for rank, cached in part.holders.items() if not cached])
    cached = tuple([host_of[rank] for rank, cached in part.holders.items() if cached])
    return x.PartStatus(part.size_bytes, hosts, cached)
