"""A handle on a run-time system, in this process or elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import trio

from gspc_trio.components.job.messages import ApplicationCall, ApplicationReply
from gspc_trio.components.monitor.messages import (
    GetHardware,
    GetNodeStats,
    GetSystemStats,
    HostHardware,
    NodeFrame,
    SystemStats,
)
from gspc_trio.components.rif.messages import DagReport, MemoryServer
from gspc_trio.components.rts.messages import (
    AddDag,
    Bootstrap,
    BootstrapReport,
    EndedJob,
    Explain,
    GetEndedJob,
    GetHostToResource,
    GetStatus,
    HostToResource,
    JobEntry,
    JobList,
    ListJobs,
    RemoveDag,
    RequestExplanation,
    RtsStatus,
    StartIml,
    StopIml,
    StopRts,
    Teardown,
    TeardownReport,
)
from gspc_trio.components.rts.site_messages import (
    AddSite,
    BlockOutput,
    BlockStatus,
    ChangeSite,
    EndBlock,
    GetBlockOutput,
    ListSites,
    SiteChange,
    SiteStatus,
)
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.ids import JobId, ResourceId, RifId
from gspc_trio.core.resources import Resource, checked_cores
from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.nursery.connections.connection_file import read_connection_file
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer, RemoteError
from gspc_trio.protocol.values import dumps, loads


class Home(NamedTuple):
    """Where in a run of trio tasks for other threads run, until its block is left."""

    token: trio.lowlevel.TrioToken
    nursery: trio.Nursery


class JobOver(LookupError):
    """The job is over, and nobody is there to ask; ``ended`` says how it ended."""

    def __init__(self, ended: EndedJob) -> None:
        detail = f": {ended.detail}" if ended.detail else ""
        super().__init__(f"job {ended.job} ({ended.name}) is over ({ended.state}){detail}")
        self.ended = ended


class RunTimeSystem:
    """What a user can ask of a run-time system (GSPC19 2.1), over a connection of role ``control``.

    Args:
        network: through which the RTS, its RIFs and other jobs are reached.
        address: of the RTS.
        peer: the open connection.
        published: whether programs outside this process can find it though it lives here.
        outside: address at which other processes reach it; "": ``address``, if that can be.

    Attributes:
        outside: address at which other processes reach it, "" for none.
        data: the memory layer that jobs use unless they name another one; None: there is none.
        home: where jobs of other threads of this process run; None: such threads have to join it themselves.
    """

    def __init__(
        self, network: Network, address: str, peer: Peer, *, published: bool = False, outside: str = ""
    ) -> None:
        self.network = network
        self.address = address
        self.peer = peer
        self._published = published
        self.outside: str = outside or ("" if address.startswith("memory:") else address)
        self.data: DataLayer | None = None
        self.home: Home | None = None

    @property
    def embedded(self) -> bool:
        """Whether the run-time system lives in this process."""
        return self.address.startswith("memory:")

    @property
    def has_outsiders(self) -> bool:
        """Whether clients outside this process can reach it, and may want to reach the jobs on it."""
        return self._published or not self.embedded

    def join(self) -> AbstractAsyncContextManager[Peer]:
        """Open a connection for a job."""
        return self.network.connect(self.address, role="job", name="job", expect="rts")

    async def status(self) -> RtsStatus:
        """Return the state: RIFs, hosts, resource classes, memories and jobs."""
        return await self.peer.call(GetStatus())

    async def explain(self, job: JobId) -> tuple[RequestExplanation, ...]:
        """Return why each request of a job waits: what it needs, who holds it, its place, what blocks it.

        Raises:
            RemoteError: there is no such job.
        """
        return (await self.peer.call(Explain(job))).waiting

    async def bootstrap(
        self,
        hosts: Sequence[str],
        strategy: str = "local",
        *,
        cores: int = 0,
        options: dict[str, str] | None = None,
        nodes: int = 0,
    ) -> BootstrapReport:
        """Start a RIF on each host (RTS-1); those that fail are in the report beside those that came up.

        Args:
            hosts: names of hosts; logical names for the strategy ``local``.
            strategy: name of a strategy.
            cores: number of cores each is to offer; 0 for what its hardware has.
            options: of the strategy.
            nodes: each name is that of a block, one batch job of so many nodes, with a RIF on
                each; 0: of a host.

        Raises:
            TypeError: the number of cores is no whole number.
            ValueError: it is negative, or the number of nodes is.
        """
        if nodes < 0:
            raise ValueError(f"the number of nodes is not negative: {nodes}")
        order = Bootstrap(tuple(hosts), strategy, checked_cores(cores), dict(options or {}), nodes)
        report: BootstrapReport = await self.peer.call(order)
        return report

    async def teardown(self, rif_ids: Sequence[RifId]) -> tuple[RifId, ...]:
        """Stop these RIFs and return the ids of those that were taken down."""
        report: TeardownReport = await self.peer.call(Teardown(tuple(rif_ids)))
        return report.stopped

    async def sites(self, planned: bool = False, check: bool = False) -> tuple[SiteStatus, ...]:
        """Return how the sites are, and their blocks.

        Args:
            planned: with the blocks that would be asked for now, and their scripts.
            check: with what the batch systems say of these, without asking for them.
        """
        return (await self.peer.call(ListSites(planned, check))).sites

    async def blocks(self) -> tuple[BlockStatus, ...]:
        """Return how the blocks are: those of all sites, then those that were started by hand."""
        told = await self.peer.call(ListSites())
        return (*(block for site in told.sites for block in site.blocks), *told.blocks)

    async def add_site(self, name: str, settings: Mapping[str, object]) -> None:
        """Ask for blocks at this site from now on, as tasks need them.

        Args:
            name: of the site.
            settings: key -> value, as in a file of sites.

        Raises:
            RemoteError: there is such a site already, or it cannot be had like this.
        """
        await self.peer.call(AddSite(name, {key: _as_text(value) for key, value in settings.items()}))

    async def change_site(self, name: str, change: SiteChange) -> None:
        """Pause, resume or remove a site.

        Raises:
            RemoteError: there is no such site, or one to be removed has blocks.
        """
        await self.peer.call(ChangeSite(name, change))

    async def block_output(self, block_id: str) -> BlockOutput:
        """Return the last lines that the batch job of a block has printed, also of one that is over.

        Raises:
            RemoteError: there is no such block.
        """
        return await self.peer.call(GetBlockOutput(block_id))

    async def end_block(self, block_id: str) -> None:
        """End a block, whatever runs there.

        Raises:
            RemoteError: there is no such block.
        """
        await self.peer.call(EndBlock(block_id))

    async def start_iml(self, rif_id: RifId, *, memory_bytes: int = 0, spill_bytes: int = 0) -> MemoryServer:
        """Run a memory server on the host of a RIF, until :meth:`stop_iml` or the end of the RIF (RIF-1).

        The first one makes a memory layer, which lives as long as it; others join that. Jobs keep large
        values there with ``JobSettings(data=server.layer)``.

        Args:
            rif_id: of the RIF.
            memory_bytes: what it may use; 0: what the RIF was told, or a quarter of the memory of its host.
            spill_bytes: disk that it may use when that is full; 0: what the RIF was told.

        Raises:
            RemoteError: the RIF is not up, runs one already, or its host has not so much memory.
            ValueError: a number is negative.
        """
        if memory_bytes < 0 or spill_bytes < 0:
            raise ValueError(f"a number of bytes is not negative: {min(memory_bytes, spill_bytes)}")
        return await self.peer.call(StartIml(rif_id, memory_bytes, spill_bytes))

    async def stop_iml(self, rif_id: RifId) -> None:
        """End the memory server that a RIF runs on request; what only that has is lost.

        Raises:
            RemoteError: the RIF is not up, or runs none.
        """
        await self.peer.call(StopIml(rif_id))

    async def add(self, rif_id: RifId, resources: Iterable[Resource]) -> DagReport:
        """Add resources to a RIF and return how to reach their workers (RTS-2).

        Their parents are among them or were added before.
        """
        report: DagReport = await self.peer.call(AddDag(rif_id, tuple(resources)))
        return report

    async def remove(
        self, rif_id: RifId, resource_ids: Sequence[ResourceId], policy: str = "lose"
    ) -> DagReport:
        """Remove resources from a RIF and return which were removed (RTS-2)."""
        report: DagReport = await self.peer.call(RemoveDag(rif_id, tuple(resource_ids), policy))
        return report

    async def host_to_resource(self) -> dict[str, set[ResourceId]]:
        """Return host -> ids of its resources (RTS-3)."""
        answer: HostToResource = await self.peer.call(GetHostToResource())
        return {host: set(ids) for host, ids in answer.hosts.items()}

    async def hw_info(self, host: str) -> HostHardware:
        """Return what a host has: cores, sockets, memory, disks, GPUs (ASP-3, getHWInfo).

        Raises:
            RemoteError: there is no such host, or the run-time system was started without ``monitor``.
        """
        return (await self.peer.call(GetHardware(host))).hosts[host]

    async def node_stats(self, host: str) -> NodeFrame:
        """Return the metrics of a host in its last frame of 5 s (ASP-3, getNodeStats).

        Raises:
            RemoteError: there is no such host, it has told nothing yet, or the run-time system was started
                without ``monitor``.
        """
        return await self.peer.call(GetNodeStats(host))

    async def sys_stats(self) -> SystemStats:
        """Return the metrics of all hosts, and their sums (ASP-3, getSysStats).

        Raises:
            RemoteError: the run-time system was started without ``monitor``.
        """
        return await self.peer.call(GetSystemStats())

    async def jobs(self) -> tuple[JobEntry, ...]:
        """Return the jobs registered now, oldest first."""
        return (await self._list_jobs()).jobs

    async def ended_jobs(self) -> tuple[EndedJob, ...]:
        """Return the jobs that are over, in the order in which they ended; :meth:`ended_job` tells more."""
        return (await self._list_jobs(ended=True)).ended

    async def ended_job(self, job: JobId, *, wait: bool = False) -> EndedJob:
        """Return what is kept of a job that is over.

        Args:
            job: its id.
            wait: wait for its end if it is running.

        Raises:
            RemoteError: there is no such job, or it is running.
        """
        answer: EndedJob = await self.peer.call(GetEndedJob(job, wait))
        return answer

    async def _list_jobs(self, *, ended: bool = False) -> JobList:
        answer: JobList = await self.peer.call(ListJobs(ended))
        return answer

    async def stop(self) -> None:
        """Take the run-time system down."""
        await self.peer.call(StopRts())

    @asynccontextmanager
    async def connect_to_job(self, job: JobId) -> AsyncIterator[Peer]:
        """Open a connection to the job server of a registered job.

        Raises:
            JobOver: it is over.
            LookupError: there is no such job, or it does not listen.
        """
        listed = await self._list_jobs()
        entries = {entry.job: entry for entry in listed.jobs}
        entry = entries.get(job)
        if entry is None:
            with suppress(RemoteError):  # nobody knows it
                raise JobOver(await self.ended_job(job))
            there = ", ".join(f"{e.job} ({e.name})" for e in entries.values()) or "none"
            raise LookupError(
                f"there is no job {job!r}, and none of this name is kept among those that are over; "
                f"registered: {there}"
            )
        if not entry.address:
            raise LookupError(f"job {job!r} ({entry.name}) does not listen")
        async with self.network.connect(entry.address, role="control", name="client", expect="job") as peer:
            yield peer

    async def call(self, job: JobId, name: str, *arguments: Any, **named: Any) -> Any:
        """Call a function that a job serves (APP-2) and return its value.

        Args:
            job: id of a registered job that listens.
            name: under which the job offers the function, by ``Job.serve`` or by ``rpc`` in a workflow file.
            arguments: of the function, by position.
            named: by name.

        Raises:
            LookupError: there is no such job, or it does not listen.
            RemoteError: the job serves no such function, or the function raised.
            BadValue: an argument cannot be sent.
        """
        async with self.connect_to_job(job) as peer:
            call = ApplicationCall(name, dumps([list(arguments), named]))
            answer: ApplicationReply = await peer.call(call)
            return loads(answer.value)


def _as_text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@asynccontextmanager
async def join_rts(connection_file: Path) -> AsyncIterator[RunTimeSystem]:
    """Connect to a running RTS by its connection file.

    Raises:
        ConnectionFileError: the file is missing, unsafe or not a connection file.
        ConnectFailed: nobody answers there, or the one who does is not ours.
    """
    info = read_connection_file(connection_file)
    network = Network(wire_codec, info.token, credentials=info.credentials)
    async with network.connect(info.address, role="control", name="client", expect="rts") as peer:
        yield RunTimeSystem(network, info.address, peer)
