"""What is asked of a memory layer, and how the coordinator answers it."""

from __future__ import annotations

from msgspec.structs import replace

from gspc_trio.core.machine import handles
from gspc_trio.iml import messages as x
from gspc_trio.iml.directory import DataEntry, DataTurn, Directory, Operation, located, owner_of, visible
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
from gspc_trio.iml.messages import DataState
from gspc_trio.iml.vacating import Vacating
from gspc_trio.iml.writes import Writer, Writes


class LayerRequests(Writes):
    """The part of a coordinator that answers requests.

    A request that cannot be met raises an ImlError; nothing was changed then. The actions gather in the
    directory.

    Args:
        directory: of all data.
    """

    def __init__(self, directory: Directory) -> None:
        super().__init__(directory)
        self.vacating: Vacating = Vacating(directory)
        self._set_ranks: dict[str, tuple[int, int]] = {}
        """Name -> rank of a server, and number of a worker on its host, or -1."""
        self.client: int
        self.ask: int
        self.write_token: str

    def answer(self, request: x.LayerRequest, client: int, ask: int, write_token: str) -> None:
        """Answer a request of a client, now or when all servers that it takes have answered."""
        try:
            self._check_job(client, request)
            self.client, self.ask, self.write_token = client, ask, write_token
            self.handle(request, self._directory.now)
        except ImlError as error:
            self._directory.refuse(ask, error)

    def _check_job(self, client: int, request: x.LayerRequest) -> None:
        """See that a client that speaks for a job speaks for no other."""
        own = self._directory.clients.get(client, "")
        if own and isinstance(request, x.JobRequest) and request.job != own:
            raise WrongJob(f"a client of job {own} asks for job {request.job or '(none)'}")

    def _visible(self, data_id: str, job: str) -> DataEntry:
        found = self._directory.data.get(data_id)
        gone = self._directory.replaced(data_id) if found is None else None
        if gone is not None:
            raise gone
        return visible(found, data_id, job)

    @handles(x.Alloc)
    def _alloc(self, request: x.Alloc) -> None:
        self._make_when_idle(Writer(request, self.client, self.ask, self.write_token))

    def _make_when_idle(self, writer: Writer) -> None:
        """Make data once no server does anything more for data that had its id before.

        What such a server says it has, or is told to drop, would be taken for the new data.
        """
        data_id = writer.request.data_id
        if self._directory.is_busy(data_id):
            self._directory.when_idle(data_id, lambda: self._make_later(writer))
        else:
            self._make(writer)

    def _make_later(self, writer: Writer) -> None:
        """The id is free: make the data, if somebody still wants that."""
        client, data_id = writer.client, writer.request.data_id
        try:
            if client not in self._directory.clients and self._directory.rank_at(client) is None:
                raise UnknownData(f"who was to make data {data_id} is gone")
            self._make_when_idle(writer)
        except ImlError as error:
            self._directory.refuse(writer.ask, error)

    def _make(self, writer: Writer) -> None:
        request = writer.request
        if request.job and request.job not in self._directory.jobs:
            # For example, its task has not heard yet that the job has ended.
            raise WrongJob(f"job {request.job} is no client, or not any more: its data would never go")
        first = None
        if request.name:
            self._check_name(request.name, request.data_id)
            first = self._rank_of(request.name)
        self.make(writer, first)

    @handles(x.Locate)
    def _locate(self, request: x.Locate) -> None:
        self._reply_located(self.ask, self._visible(request.data_id, request.job))

    @handles(x.LookUp)
    def _look_up(self, request: x.LookUp) -> None:
        data_id = self._directory.names.get(request.name)
        if data_id is None:
            raise UnknownName(f"no data is published under the name {request.name!r}")
        self._reply_located(self.ask, self._visible(data_id, ""))

    def _reply_located(self, ask: int, data: DataEntry) -> None:
        self._directory.reply(ask, located(data, self._directory.servers))

    @handles(x.GetServers)
    def _get_servers(self, _: x.GetServers) -> None:
        servers = self._directory.servers
        self._directory.reply(self.ask, x.ServerList(tuple(servers[rank].entry for rank in sorted(servers))))

    # Names and ranks (ASP-7)

    @handles(x.Publish)
    def _publish(self, request: x.Publish) -> None:
        data = self._visible(request.data_id, request.job)
        before = self._directory.data.get(self._directory.names.get(request.name, ""))
        if not (request.replaces and request.name and before is not None):
            self._check_name(request.name, request.data_id)
        if data.published and data.published != request.name:
            raise DuplicateData(f"data {data.data_id} is published under the name {data.published!r} already")
        if before is not None and before is not data:
            self._directory.replace(before)
        data.published = request.name
        self._directory.names[request.name] = data.data_id
        self._directory.reply(self.ask, x.ImlDone())

    def _check_name(self, name: str, data_id: str) -> None:
        if not name:
            raise UnknownName("publish under a name that is not empty")
        other = self._directory.names.get(name, data_id)
        if other != data_id:
            raise DuplicateData(f"the name {name!r} is that of data {other} already")

    @handles(x.GetRank)
    def _get_rank(self, request: x.GetRank) -> None:
        rank = self._rank_of(request.name)
        there, worker = self._set_ranks.get(request.name, (-1, -1))
        host = self._directory.servers[rank].entry.host
        self._directory.reply(self.ask, x.RankOf(rank, host, worker if there == rank else -1))

    def _rank_of(self, name: str) -> int:
        """Where data of the name lies, or else was told to, or else belongs by its hash."""
        servers = self._directory.servers
        data = self._directory.data.get(self._directory.names.get(name, ""))
        if data is not None and data.parts[0].holders:
            return next(iter(data.parts[0].holders))
        rank, _ = self._set_ranks.get(name, (-1, -1))
        if rank in servers:
            return rank
        if not servers:
            raise UnknownHost("the memory layer has no server: start one with gspc-iml start")
        return owner_of(name, servers)

    @handles(x.SetRank)
    def _set_rank(self, request: x.SetRank) -> None:
        if request.rank not in self._directory.servers:
            there = ", ".join(map(str, sorted(self._directory.servers))) or "none"
            raise UnknownHost(f"no memory server has the rank {request.rank}; there are: {there}")
        self._set_ranks[request.name] = request.rank, request.worker
        self._directory.reply(self.ask, x.ImlDone())

    # The end of data, and copies

    @handles(x.Free)
    def _free(self, request: x.Free) -> None:
        directory, ask = self._directory, self.ask
        data = directory.data.get(request.data_id)
        if data is None or data.state is not DataState.LOST or data.target:
            data = self._visible(request.data_id, request.job)
        # Whoever knows where it lay could still read it: the answer waits for all to have dropped it.
        operation = Operation(lambda _: directory.reply(ask, x.ImlDone()))
        for rank, number in directory.remove(data):
            directory.call(operation, rank, number, x.DropPart(data.data_id, number))
        directory.finish_if_done(operation)

    @handles(x.Replicate)
    def _replicate(self, request: x.Replicate) -> None:
        ask = self.ask
        data = self._visible(request.data_id, request.job)
        if request.undivided and len(data.parts) > 1:
            self._reply_located(ask, data)
            return
        self._check_copies(request)
        by_host = {server.entry.host: rank for rank, server in self._directory.servers.items()}
        for host in request.hosts:
            if host not in by_host:
                raise UnknownHost(f"no memory server on host {host!r}; there are: {', '.join(by_host)}")
        targets = frozenset() if request.copies else frozenset(by_host[host] for host in request.hosts)
        self._directory.take_turn(data, lambda turn: self._copy(ask, request, data, turn), targets)

    def _check_copies(self, request: x.Replicate) -> None:
        there = len(self._directory.servers)
        if request.copies > there:
            raise BadLayout(f"{request.copies} copies were asked for, but the layer has {there} hosts")

    def _copy(self, ask: int, request: x.Replicate, data: DataEntry, turn: DataTurn) -> None:
        """Have it copied, now that its bytes stay as they are; again if copies go meanwhile."""
        directory = self._directory
        operation = Operation(lambda done: self._copied(ask, request, data, turn, done))
        readers = "" if len(data.parts) > 1 else ("" if data.published else data.job) or x.EVERY_JOB
        if data.state is DataState.READY:
            named = [rank for rank, server in directory.servers.items() if server.entry.host in request.hosts]
            others = sorted(directory.servers, key=lambda rank: (-directory.servers[rank].free_bytes, rank))
            for number, part in data.parts.items():
                wanted = list(named)
                missing = request.copies - len(part.holders.keys() | set(named))
                wanted += [rank for rank in others if rank not in part.holders and rank not in named][
                    : max(missing, 0)
                ]
                source = directory.servers[next(iter(part.holders))].entry
                for rank in wanted:
                    if rank not in part.holders:
                        message = x.CopyPart(data.data_id, number, part.size_bytes, source, request.cached)
                        directory.call(operation, rank, number, replace(message, readers=readers))
                    elif part.holders[rank] and not request.cached:
                        part.holders[rank] = False
                        directory.tell(rank, x.KeepPart(data.data_id, number))
        directory.finish_if_done(operation)

    def _copied(
        self, ask: int, request: x.Replicate, data: DataEntry, turn: DataTurn, operation: Operation
    ) -> None:
        directory = self._directory
        for rank, number in operation.done:
            if data.state is DataState.READY and rank in directory.servers:
                directory.add_holder(data, number, rank, cached=request.cached)
            else:
                directory.tell(rank, x.DropPart(data.data_id, number))
        try:
            if data.state is DataState.GONE:
                raise directory.why_gone(data)
            visible(data, data.data_id, "")
            for kind, message in operation.failed.values():
                raise error_of(kind, message)
            if any(len(part.holders) < request.copies for part in data.parts.values()):
                self._check_copies(request)
                self._copy(ask, request, data, turn)
                return
            self._reply_located(ask, data)
        except ImlError as error:
            directory.refuse(ask, error)
        directory.end_turn(data, turn)

    @handles(x.Vacate)
    def _vacate(self, request: x.Vacate) -> None:
        act = self.vacating.end if request.is_over else self.vacating.begin
        act(self.ask, self.client, request.host)
