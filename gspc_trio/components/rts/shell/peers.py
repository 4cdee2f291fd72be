"""Connections to the run-time system, by role: RIFs, jobs, and clients that control it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import trio
from msgspec import Struct, field
from msgspec.structs import replace

from gspc_trio.components.managers.messages import MANAGER_ROLE
from gspc_trio.components.monitor.io_frames import IoTold
from gspc_trio.components.monitor.messages import (
    Echo,
    GetHardware,
    GetNodeStats,
    GetSystemStats,
    MonitorTold,
    NoMetrics,
)
from gspc_trio.components.monitor.reports import GetIo
from gspc_trio.components.provision.blocks import ENROL_ROLE
from gspc_trio.components.provision.messages import FilesFailed, TurnOver, WantTurn
from gspc_trio.components.rif.messages import (
    CannotStart,
    DagReport,
    MemoryServer,
    OpenEndpoint,
    RifHello,
    ServerEnded,
)
from gspc_trio.components.rm.messages import GetNewestGrant, NewestGrant, Revoked
from gspc_trio.components.rm.shell.service import FROM_JOBS, FromJob, RmShell
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import (
    AddDag,
    Await,
    Bootstrap,
    BootstrapReport,
    EndedJob,
    Explain,
    Explanation,
    GetEndedJob,
    GetHostToResource,
    GetResources,
    GetStatus,
    HostToResource,
    JobEnd,
    JobEntry,
    JobList,
    JobRegistered,
    LeaveJob,
    Lend,
    ListJobs,
    RegisterJob,
    RemoveDag,
    RequestExplanation,
    ResourceList,
    RtsStatus,
    SetWeight,
    StartIml,
    StopIml,
    StopRts,
    Teardown,
    TeardownReport,
)
from gspc_trio.components.rts.shell.delegation import CREDENTIAL_QUESTIONS, Delegation
from gspc_trio.components.rts.shell.memory_servers import MemoryServers
from gspc_trio.components.rts.shell.site_service import SITE_QUESTIONS, SiteService
from gspc_trio.core.demand import TaskDemand
from gspc_trio.core.ids import Counter, JobId, ResourceId, RifId, host_name
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.messages import Done
from gspc_trio.core.resources import Resource
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone, RemoteError, drop_offender
from gspc_trio.nursery.scopes.drive import Inbox
from gspc_trio.protocol.limits import NUMBER_MAX
from gspc_trio.protocol.session import SILENT
from gspc_trio.records.facts import HostLoad, Record, StreamOpened, WorkerChanged
from gspc_trio.records.messages import RecordBatch, Watch
from gspc_trio.records.shell.stream import RecordStream, Watcher

if TYPE_CHECKING:
    from gspc_trio.components.managers.shell.group import AnyManager, ManagerGroup
    from gspc_trio.components.monitor.shell.collector import Collector
    from gspc_trio.components.provision.shell.enrolments import EnrolmentService
    from gspc_trio.components.rm.shell.remote import RemoteManager

log: logging.Logger = logging.getLogger(__name__)

CANCELLED = "the run-time system goes"
"""Why RIFs and jobs are lost when the service is cancelled: of that nobody needs a warning."""

GOODBYE_TIMEOUT_S = 0.2
"""How long the last words to clients and jobs may take to be sent when the run-time system goes."""


NOT_MONITORED = "this run-time system measures no hosts: start it with gspc-rts start --monitor DIR"


class RtsError(Exception):
    """The run-time system cannot do what was asked; the message is one line for people."""


def as_message(
    result: actions.Result,
) -> BootstrapReport | TeardownReport | Done | DagReport:
    """Return an answer of the RTS machine as it travels."""
    if isinstance(result, actions.Bootstrapped):
        return BootstrapReport(result.started, result.failed)
    if isinstance(result, actions.TornDown):
        return TeardownReport(result.stopped)
    if isinstance(result, actions.Weighed):
        return Done()
    return result


class _JobLink(Struct, eq=False):
    """A job server and its wish to join."""

    peer: Peer
    call: IncomingCall | None
    answered: trio.Event = field(default_factory=trio.Event)
    job: JobId = ""
    left: JobEnd | None = None


class Service(Protocol):
    """What the service does for those who connect."""

    inbox: Inbox[events.RtsEvent]
    records: RecordStream
    rm: AnyManager
    group: ManagerGroup | None
    machine: Rts
    sites: SiteService
    stopped: trio.Event
    monitor: Collector | None

    @property
    def enrolments(self) -> EnrolmentService:
        """Where the RIFs of blocks enrol."""
        ...

    def ask(
        self,
        event: Callable[[int], events.RtsEvent],
        answered: Callable[[actions.Answer | actions.QuestionRefused], None],
    ) -> None:
        """Put a question to the machine, whose answer comes later."""
        ...

    def status(self) -> RtsStatus:
        """Return the state."""
        ...

    def host_to_resource(self) -> dict[str, tuple[ResourceId, ...]]:
        """Return host -> ids of its resources."""
        ...

    def jobs(self) -> tuple[JobEntry, ...]:
        """Return the jobs registered now."""
        ...

    def ended_jobs(self) -> tuple[EndedJob, ...]:
        """Return the jobs that are over."""
        ...

    def ended_job(self, job: JobId) -> EndedJob | None:
        """Return what is kept of a job that is over."""
        ...

    def resources(self, rif_id: RifId) -> tuple[Resource, ...]:
        """Return what a RIF has."""
        ...

    def explain(self, job: JobId) -> tuple[RequestExplanation, ...]:
        """Return why each request of a job waits."""
        ...


class PeerServer:
    """Serves every connection according to the role of its other end.

    Args:
        service: to which what they say goes.
    """

    def __init__(self, service: Service) -> None:
        self.rifs: dict[int, Peer] = {}
        self.servers: MemoryServers = MemoryServers(lambda: self.rifs.values())
        self._service = service
        self._delegation = Delegation()
        self._links = Counter()
        self._jobs: dict[int, _JobLink] = {}
        self._clients: dict[Peer, None] = {}
        self._waiting: dict[JobId, list[IncomingCall]] = {}
        self._dismissed = ""  # why all jobs were

    async def serve(self, peer: Peer) -> None:
        """Serve one connection until it is over."""
        if peer.role == "rif":
            await self._serve_rif(peer)
        elif peer.role == "job":
            await self._serve_job(peer)
        elif peer.role == "control":
            await self._serve_client(peer)
        elif peer.role == ENROL_ROLE:
            await self._service.enrolments.serve(peer)
        elif peer.role == MANAGER_ROLE and self._service.group is not None:
            await self._service.group.serve(peer)
        else:
            drop_offender(peer, f"a run-time system serves rif, job, control and enrol, not {peer.role}")

    # RIFs ---------------------------------------------------------------------------------------------------

    async def _serve_rif(self, peer: Peer) -> None:
        hello, *more = await peer.receive()
        if not isinstance(hello, RifHello):
            drop_offender(peer, f"a RIF begins with its hello, not with {_name_of(hello)}")
            return
        if hello.rif_id != peer.name:
            drop_offender(peer, f"{peer.name} says hello as {hello.rif_id}")
            return
        others = [rif for rif in self.rifs.values() if rif.name == peer.name and rif.is_held_by_another(peer)]
        if hello.claims is not None and others:
            drop_offender(peer, f"{peer.name} is connected from another process")
            return
        put = self._service.inbox.put
        link = self._links.next()
        self.rifs[link] = peer
        put(events.RifConnected(link, hello), peer)
        monitor = self._service.monitor
        if monitor is not None:
            options = next((it.options for it in self._service.machine.rifs if it.rif_id == hello.rif_id), {})
            monitor.greet(peer, hello.host, options.get("rack", ""))
        try:
            late_s = 0.0
            while True:
                for message in more:
                    if isinstance(message, Revoked):
                        put(events.RevokedBy(link, message), peer)
                    elif isinstance(message, RecordBatch):
                        late_s = self._take_records(peer, message, late_s)
                    elif isinstance(message, IoTold):
                        if monitor is not None:
                            monitor.heard_io(peer, hello.host, message)
                    elif isinstance(message, MonitorTold) and monitor is not None:
                        monitor.heard(peer, hello.host, message)
                    elif isinstance(message, CannotStart):
                        put(events.RifUnfit(link, message.detail), peer)
                    elif isinstance(message, MemoryServer | ServerEnded):
                        self.servers.heard(peer, message)
                    elif isinstance(message, WantTurn | TurnOver | FilesFailed):
                        self._service.sites.heard(peer, message)
                    elif isinstance(message, IncomingCall) and isinstance(message.body, GetNewestGrant):
                        asked, rm = message.body, self._service.rm
                        message.reply(NewestGrant(rm.newest_given(asked.resource_id, asked.grant_id)))
                    elif isinstance(message, IncomingCall) and isinstance(message.body, Echo):
                        message.reply(Done())
                    else:
                        drop_offender(peer, f"a RIF does not say {_name_of(message)}")
                more = await peer.receive()
        finally:
            del self.rifs[link]
            if monitor is not None and all(rif.name != peer.name for rif in self.rifs.values()):
                monitor.gone(hello.host, peer.reason)
            self.servers.gone(peer)
            self._service.sites.host_gone(peer)
            put(events.RifLost(link, peer.reason or CANCELLED))

    def _take_records(self, rif: Peer, batch: RecordBatch, late_s: float) -> float:
        """Add records of a RIF, on this process's clock; return the difference between the clocks."""
        records = self._service.records
        for record in batch.records:
            if isinstance(record, StreamOpened):
                late_s = record.wall_offset_s - records.opened.wall_offset_s
                continue
            if _teller_of(record) != rif.name:
                drop_offender(rif, f"a RIF tells of itself, not {type(record).__name__} of others")
                break
            if isinstance(record, WorkerChanged):
                there = self._service.machine.may_have(rif.name, record.resource_id)
                if not there:  # not any more
                    continue
            at_s = max(-NUMBER_MAX, min(record.at_s + late_s, NUMBER_MAX))
            records.append(replace(record, at_s=at_s) if late_s else record)
        return late_s

    # Jobs ---------------------------------------------------------------------------------------------------

    async def _serve_job(self, peer: Peer) -> None:
        first, *more = await peer.receive()
        call = first if isinstance(first, IncomingCall) else None
        wish = first if call is None else call.body
        if not isinstance(wish, RegisterJob) or bool(wish.job) == (call is not None):
            drop_offender(peer, f"a job begins with its registration, not with {_name_of(first)}")
            return
        before = self._service.rm.peers.get(wish.job)
        if before is not None and before.is_held_by_another(peer):
            drop_offender(peer, f"job {wish.job} is connected from another process")
            return
        link = self._links.next()
        joining = self._jobs[link] = _JobLink(peer, call)
        put = self._service.inbox.put
        put(events.JobConnected(link, wish), peer)
        try:
            await joining.answered.wait()
            if joining.job:
                joining.left = await self._listen_to_job(joining, more)
        finally:
            del self._jobs[link]
            if joining.job:
                if self._service.rm.peers.get(joining.job) is peer:
                    del self._service.rm.peers[joining.job]
                gone = peer.reason or CANCELLED
                reason = self._dismissed or f"its job server was lost: {gone}"
                silent = joining.left is None and not self._dismissed and gone.startswith(SILENT)
                reason = reason if joining.left is None else ""
                put(events.JobServerGone(joining.job, reason, joining.left, silent, link))

    async def _listen_to_job(self, joined: _JobLink, more: list[object]) -> JobEnd:
        """Take what a job says until it leaves; return how it has ended."""
        peer, job, take = joined.peer, joined.job, self._service.rm.take
        while True:
            said: list[FromJob] = []
            for message in more:
                if isinstance(message, FROM_JOBS):
                    said.append(message)
                    continue
                take(peer, job, said)
                said = []
                if isinstance(message, Lend) and message.job == job:
                    lend = events.LendAsked(job, message.resource_id, message.count)
                    self._service.inbox.put(lend, peer)
                    continue
                if isinstance(message, TaskDemand):
                    self._service.sites.demand(peer, job, message)
                elif isinstance(message, IncomingCall) and isinstance(message.body, LeaveJob):
                    message.reply(Done())
                    if not message.body.adopted:
                        return message.body.end
                    self._service.inbox.put(events.TakeoverDone(job, message.body.adopted), peer)
                else:
                    drop_offender(peer, f"job {job} may not say {_name_of(message)} here")
            take(peer, job, said)
            more = await peer.receive()

    def accept_job(self, accepted: actions.AcceptJob) -> None:
        """Tell the job server its id; it may be gone already."""
        joining, job = self._jobs.get(accepted.link), accepted.job
        if joining is None:
            gone = events.JobServerGone(job, "it went before it was registered", silent=accepted.back)
            self._service.inbox.put(gone)
            return
        joining.job = job
        before = self._service.rm.peers.get(job if accepted.back else accepted.adopted)
        if before is not None:
            before.drop(f"job {job} has connected again" if accepted.back else f"job {job} goes on for it")
        self._service.rm.peers[job] = joining.peer
        registered = JobRegistered(job, bool(accepted.adopted), accepted.rifs)
        if joining.call is None:
            joining.peer.post(registered)
        else:
            joining.call.reply(registered)
        grace_s = self._service.machine.limits.grace_s
        if grace_s:
            joining.peer.post(Await(grace_s))
        self._service.sites.greet(joining.peer)
        joining.answered.set()

    def refuse_job(self, link: int, reason: str) -> None:
        """Tell the job server why it cannot join."""
        joining = self._jobs.get(link)
        if joining is not None and joining.call is not None:
            joining.call.fail(PermissionError(reason))
            joining.answered.set()
        elif joining is not None:
            joining.peer.drop(reason)
            joining.answered.set()

    async def dismiss_jobs(self, reason: str) -> None:
        """End the connections of all jobs; those who were to wait for this run-time system do not."""
        self._dismissed = reason
        joined = [joining.peer for joining in self._jobs.values()]
        if self._service.machine.limits.grace_s:
            for peer in joined:
                peer.post(Await(0.0))
            await _close_all(joined)
        for peer in joined:
            peer.drop(reason)

    # Clients ------------------------------------------------------------------------------------------------

    async def _serve_client(self, peer: Peer) -> None:
        self._clients[peer] = None
        watcher: Watcher | None = None
        try:
            async with trio.open_nursery() as nursery:
                try:
                    while True:
                        for message in await peer.receive():
                            if isinstance(message, Watch):
                                if watcher is None:
                                    watcher = Watcher()
                                    nursery.start_soon(self._service.records.feed, peer, watcher)
                                watcher.add_credit(message.credit)
                            elif isinstance(message, IncomingCall) and isinstance(
                                message.body, StartIml | StopIml
                            ):
                                nursery.start_soon(self.servers.answer, message, message.body)
                            elif isinstance(message, IncomingCall) and isinstance(message.body, OpenEndpoint):
                                nursery.start_soon(self.servers.open_endpoint, message, message.body)
                            elif isinstance(message, IncomingCall) and isinstance(
                                message.body, SITE_QUESTIONS
                            ):
                                self._service.sites.answer(message, message.body)
                            elif isinstance(message, IncomingCall) and isinstance(
                                message.body, CREDENTIAL_QUESTIONS
                            ):
                                self._delegation.answer(message, message.body)
                            elif isinstance(message, IncomingCall) and isinstance(message.body, GetIo):
                                if self._service.monitor is None:
                                    message.fail(RtsError(NOT_MONITORED))
                                else:
                                    answer_io = self._service.monitor.answer_io
                                    nursery.start_soon(answer_io, message, message.body)
                            elif isinstance(message, IncomingCall):
                                if not isinstance(self._service.rm, RmShell):
                                    nursery.start_soon(self._look_and_answer, message, self._service.rm)
                                else:
                                    self._answer(message)
                            else:
                                drop_offender(peer, f"a client does not say {_name_of(message)}")
                except PeerGone:
                    nursery.cancel_scope.cancel()
        finally:
            del self._clients[peer]

    async def _look_and_answer(self, call: IncomingCall, rm: RemoteManager | ManagerGroup) -> None:
        """Answer a call for which the resource manager elsewhere may have to be asked."""
        if isinstance(call.body, GetStatus | Explain):
            try:
                await rm.look(call.body.job if isinstance(call.body, Explain) else None)
            except RemoteError as error:
                call.fail(error)
                return
        if not call.peer.reason:
            self._answer(call)

    def _answer(self, call: IncomingCall) -> None:
        """Answer a call of a client, now or when the machine has its answer."""
        body = call.body
        question = _QUESTIONS.get(type(body))
        if question is not None:
            self._service.ask(lambda ask: question(ask, body), lambda answer: _reply(call, answer))
            return
        if isinstance(body, GetEndedJob):
            self._answer_of_end(call, body)
            return
        known = _ANSWERS.get(type(body))
        if known is None:
            call.fail(TypeError(f"a run-time system does not answer {_name_of(body)}"))
            return
        try:
            call.reply(known(self._service, body))
        except (IllegalEvent, RtsError, NoMetrics) as error:
            call.fail(error)
            return
        if isinstance(body, StopRts):
            self._service.stopped.set()

    def _answer_of_end(self, call: IncomingCall, asked: GetEndedJob) -> None:
        """Say how a job has ended, or has when it does."""
        ended = self._service.ended_job(asked.job)
        there = [job.job for job in self._service.jobs()]
        if asked.job in there:
            if asked.wait:
                waiting = (one for one in self._waiting.get(asked.job, ()) if not one.peer.lost.is_set())
                self._waiting[asked.job] = [*waiting, call]
            else:
                call.fail(RtsError(f"job {asked.job} is still running"))
        elif ended is not None:
            call.reply(ended)
        else:
            call.fail(RtsError(_unknown_job(asked.job, there)))

    def tell_end(self, job: JobId) -> None:
        """Answer those who wait for the end of a job, if it is over."""
        ended = self._service.ended_job(job) if job in self._waiting else None
        if ended is not None:
            for call in self._waiting.pop(job):
                call.reply(ended)

    async def say_goodbye(self) -> None:
        """Send clients what is still to be sent; all jobs are over."""
        for job in list(self._waiting):
            self.tell_end(job)
        await _close_all(list(self._clients))


async def _close_all(peers: list[Peer]) -> None:
    """Send these what is still to be sent, and end their connections."""
    with trio.move_on_after(GOODBYE_TIMEOUT_S):
        async with trio.open_nursery() as nursery:
            for peer in peers:
                nursery.start_soon(peer.aclose)


def _reply(call: IncomingCall, answer: actions.Answer | actions.QuestionRefused) -> None:
    if isinstance(answer, actions.QuestionRefused):
        call.fail(RtsError(answer.reason))
    else:
        call.reply(as_message(answer.result))


def _unknown_job(job: JobId, there: Sequence[JobId]) -> str:
    return (
        f"there is no job {job!r}, and none of this name is kept among those that are over; "
        f"registered: {', '.join(there) or 'none'}"
    )


def _teller_of(record: Record) -> RifId:
    """Return which RIF may say so, or ""."""
    if isinstance(record, WorkerChanged):
        return host_name(record.resource_id)
    return record.rif_id if isinstance(record, HostLoad) else ""


def _name_of(message: object) -> str:
    return type(message.body if isinstance(message, IncomingCall) else message).__name__


_QUESTIONS: dict[type, Callable[[int, Any], events.RtsEvent]] = {
    Bootstrap: lambda ask, body: events.BootstrapAsked(
        ask, body.hosts, body.strategy, body.cores, body.options, body.nodes
    ),
    Teardown: lambda ask, body: events.TeardownAsked(ask, body.rif_ids),
    AddDag: lambda ask, body: events.AddAsked(ask, body.rif_id, body.resources),
    RemoveDag: lambda ask, body: events.RemoveAsked(ask, body.rif_id, body.resource_ids, body.policy),
    SetWeight: lambda ask, body: events.WeightAsked(ask, body.job, body.weight),
}


def _monitored(service: Service, question: GetHardware | GetNodeStats | GetSystemStats) -> object:
    """Answer a question about hosts.

    Raises:
        RtsError: nobody measures them.
        NoMetrics: there is no such host.
    """
    if service.monitor is None:
        raise RtsError(NOT_MONITORED)
    return service.monitor.answer(question)


_ANSWERS: dict[type, Callable[[Service, Any], object]] = {
    GetStatus: lambda service, _: service.status(),
    GetHostToResource: lambda service, _: HostToResource(service.host_to_resource()),
    ListJobs: lambda service, body: JobList(service.jobs(), service.ended_jobs() if body.ended else ()),
    GetResources: lambda service, body: ResourceList(service.resources(body.rif_id)),
    Explain: lambda service, body: Explanation(service.explain(body.job)),
    StopRts: lambda _, __: Done(),
    GetHardware: _monitored,
    GetNodeStats: _monitored,
    GetSystemStats: _monitored,
}
