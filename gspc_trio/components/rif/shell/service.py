"""The shell of a RIF: its connections to the RTS and to schedulers, and the shells of its workers.

It is the proxy for all workers of its host (RIF-4): one connection per scheduler, one loop that feeds the
machines.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio
from msgspec.structs import replace

from gspc_trio.components.monitor.messages import Echo, StartMonitoring
from gspc_trio.components.provision.messages import TurnBegins
from gspc_trio.components.rif.events import (
    Called,
    CheckGrant,
    DropJob,
    EndJob,
    ForgetJob,
    GrantChecked,
    HostAction,
    HostEvent,
    ReplyError,
    ReplyToCall,
    StartWorker,
    Stop,
    Stopped,
    StopWorker,
    Unfit,
)
from gspc_trio.components.rif.host import RifHost
from gspc_trio.components.rif.messages import (
    AddResources,
    CannotStart,
    Claim,
    CloseJobEverywhere,
    OpenEndpoint,
    RemoveResources,
    RifHello,
    StartServer,
    StopRif,
    StopServer,
    WorkBack,
)
from gspc_trio.components.rif.shell.endpoints import Endpoints, WorkerEndpoint
from gspc_trio.components.rif.shell.host_staging import HostStaging, OwnServer, make_layers, measured
from gspc_trio.components.rif.shell.load import LoadReport, report_load
from gspc_trio.components.rif.shell.result_router import (
    FROM_SCHEDULER,
    ResultRouter,
    TaskRelay,
    answer_job,
    job_of,
)
from gspc_trio.components.rm.messages import GetNewestGrant, GrantsAhead, NewestGrant, Revoke, Revoked
from gspc_trio.components.rts.shell.contact import RtsContact
from gspc_trio.components.worker.events import (
    Abort,
    Compute,
    ComputeAction,
    ForgetCompute,
    Kill,
    Retract,
    StageIn,
    StageOut,
    begun_with,
)
from gspc_trio.components.worker.messages import DefineCode, Finished, OpenJob, Submit, ToTask
from gspc_trio.components.worker.shell.compute import ComputeBackend
from gspc_trio.components.worker.shell.staging import Staging
from gspc_trio.components.worker.shell.task_listener import TaskConnection
from gspc_trio.components.worker.shell.worker import JobCode, WorkerShell
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, ResourceId, RifId
from gspc_trio.core.machine import Performer, performs
from gspc_trio.core.messages import Done
from gspc_trio.core.resources import BadResources, Resource
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone, RemoteError, drop_offender
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.nursery.scopes.scope import open_scope, open_service
from gspc_trio.records.facts import StreamOpened, WorkerChanged
from gspc_trio.records.messages import RecordBatch
from gspc_trio.version import VERSION

if TYPE_CHECKING:  # a host without a site needs nothing of that
    from gspc_trio.components.provision.staging import StagingSettings

log: logging.Logger = logging.getLogger(__name__)

STOP_S = 2.0
"""How long the workers may take to end when the RIF is to stop; then the rest is killed."""

KILL_S = 6.0
"""How long killing what is left may take at most."""

CHECK_S = 10.0
"""How long the answer about a grant in doubt may take; when it is missing the next submit asks again."""

CHECKS_MAX = 64
"""So many grants are asked about at a time."""

RECORDS_INTERVAL_S = 0.2
"""Seconds between two batches of records; of what changes more often only the last state is sent."""


class RifService(Performer[HostAction]):
    """A running RIF; made by :func:`open_rif`.

    Attributes:
        rif_id, incarnation, host: what it is called, and where it runs.
        address: where schedulers reach it.
        outside: where those of other processes do, if ``address`` is in memory; or "".
        machine: decides.
        until_s: when its host ends, None if nobody knows.
    """

    machine: RifHost
    address: str
    outside: str = ""

    def __init__(
        self,
        network: Network,
        backend: ComputeBackend,
        staging: Staging | None,
        rif_id: RifId,
        incarnation: int,
        host: str,
        report_load: LoadReport,
        clock: Callable[[], float],
        files: StagingSettings | None,
    ) -> None:
        self.rif_id = rif_id
        self.incarnation = incarnation
        self.host = host
        self._network = network
        self._backend = backend
        self._staging = HostStaging(staging, network.buffers.asked, files, rif_id, host, backend)
        self._clock = clock
        self._report_load = report_load
        self._inbox: Inbox[HostEvent] = Inbox()
        self._contact: RtsContact
        self._own_server: OwnServer
        self._endpoints: Endpoints
        self._nursery: trio.Nursery
        self._router = ResultRouter(lambda job, why: self._inbox.put(EndJob(job, why)))
        self._relay = TaskRelay(self._router.peers)
        self._jobs: dict[JobId, JobCode] = {}
        self._shells: dict[ResourceId, WorkerShell] = {}
        self._closing: dict[WorkerShell, None] = {}
        self._calls: dict[int, IncomingCall] = {}
        self._call_number = 0
        self._checks: set[CheckGrant] = set()
        self._records: dict[ResourceId, WorkerChanged] = {}
        self._news = trio.Event()
        self._sampling = trio.CancelScope()
        self.until_s: float | None = None
        self._ended = trio.Event()
        self._reason = ""

    def stop(self, reason: str = "its scope was left") -> None:
        """Have the RIF end all work and then itself."""
        self._inbox.put(Stop(reason))

    async def wait_ended(self) -> str:
        """Wait until the RIF has ended, and return why."""
        await self._ended.wait()
        return self._reason

    async def run(
        self,
        listen: str,
        rts: str,
        hardware: tuple[Resource, ...],
        grace_s: float = 0.0,
        outside: str = "",
        *,
        task_status: trio.TaskStatus[RifService] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until stopped; nothing is left then."""
        try:
            async with open_scope() as nursery:
                self._nursery = nursery
                self._own_server = OwnServer(self.host, self._network, rts, lambda said: self._rts.post(said))
                self._staging.tell = lambda said: self._rts.post(said)
                self._staging.make_layers = partial(make_layers, self.host, nursery, self._network, rts)
                serve = partial(self._network.listen, role="rif", name=self.rif_id)
                self.address = await nursery.start(serve, listen, self._serve_scheduler)
                if outside:
                    self.outside = await nursery.start(serve, outside, self._serve_scheduler)
                self.machine = RifHost(self.rif_id, self.host, self.address)
                door = (self._network, self.outside or self.address)
                self._endpoints = Endpoints(*door, self._objection, self._serve_scheduler)
                connect = partial(self._network.connect, rts, role="rif", name=self.rif_id, expect="rts")
                self._router.grace_s = grace_s
                # Before it has been let in it awaits nobody; then a little less long than its RTS awaits it.
                self._contact = RtsContact(connect, self._take_from_rts, self._greet_again, 0.0, obeys=True)
                async with connect() as peer:
                    self._contact.peer = peer
                    peer.post(self._hello(hardware))
                    nursery.start_soon(self._listen_to_rts, peer)
                    nursery.start_soon(self._send_records)
                    nursery.start_soon(self._end_in_time)
                    task_status.started(self)
                    await drive(self.machine, self._inbox, self)
                    with trio.move_on_after(STOP_S):
                        await self._router.wait_told()
                    self._post_records()
                    self._sampling.cancel()
                    for _ in range(2):  # it tells what it has measured last
                        await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        finally:
            self._inbox.close()
            with trio.CancelScope(shield=True), trio.move_on_after(KILL_S):
                await self._kill_all()
                self._staging.close()
            self._reason = self._reason or "it was cancelled"
            self._ended.set()

    @property
    def _rts(self) -> Peer:
        return self._contact.peer

    def _hello(self, hardware: tuple[Resource, ...]) -> RifHello:
        pid = self._network.process_info().pid
        left_s = None if self.until_s is None else max(0.0, self.until_s - trio.current_time())
        known = (self.rif_id, self.incarnation, pid, self.host, self.address, hardware)
        return RifHello(*known, ends_in_s=left_s, outside=self.outside)

    def _greet_again(self, rts: Peer) -> None:
        """Say what there is to a run-time system that may know nothing of it."""
        rif = self.machine.rif
        kept = tuple(Claim(job, NO_GRANT, ()) for job in self._router.orphaned)
        rts.post(replace(self._hello(rif.resources), claims=(*rif.claims, *kept)))
        if self._own_server.running is not None:
            rts.post(self._own_server.running)
        self._staging.tell_again()
        self._open_records(rts)

    def _objection(self, resource_id: ResourceId, grant_id: GrantId) -> str:
        """Return why a grant is not honoured on a resource, or ""."""
        fence = self.machine.rif.fence
        if resource_id not in fence:
            return f"{self.rif_id} has no resource {resource_id}"
        return fence.objection(resource_id, grant_id)

    async def _kill_all(self) -> None:
        async with trio.open_nursery() as nursery:
            for shell in (*self._shells.values(), *self._closing):
                nursery.start_soon(shell.aclose)

    async def _serve_scheduler(self, peer: Peer, endpoint: WorkerEndpoint | None = None) -> None:
        """Take what a job's scheduler says until it is gone; then its work is ended at once.

        Over an endpoint only what that allows is taken.
        """
        if peer.role != "job":
            drop_offender(peer, f"a RIF serves jobs, not {peer.role}")
            return
        job: JobId | None = None
        put = self._inbox.put

        def take(message: object) -> None:
            nonlocal job
            if endpoint is not None and not endpoint.allows(message):
                what = type(message).__name__
                drop_offender(peer, f"this {what} is not for {endpoint}")
                return
            if isinstance(message, FROM_SCHEDULER):
                if message.job != job:
                    what = type(message).__name__
                    drop_offender(peer, f"{what} of job {message.job} instead of {job}")
                    return
                if type(message) is Submit:
                    message = measured(message)
                    self._router.submitted(message)
                put(message, peer)
            elif isinstance(message, ToTask) and message.job == job:
                self._relay.tell(message)
            elif isinstance(message, OpenJob | WorkBack):
                job = self._begin_job(message, peer, job)
            elif isinstance(message, IncomingCall):
                self._nursery.start_soon(answer_job, message, job, self.machine.workers, self._shells)
            else:
                drop_offender(peer, f"a RIF does not understand {type(message).__name__}")

        try:
            await peer.listen(take)
        finally:
            if endpoint is not None:
                self._router.dismiss(endpoint.job, "its endpoint was closed")
            elif job is not None:
                self._relay.forget(job)
                self._router.detach(job, peer, self._nursery)

    def _begin_job(self, first: OpenJob | WorkBack, peer: Peer, job: JobId | None) -> JobId | None:
        """Take the first word of a job server; return which job it is, ``job`` if that was clear."""
        if job is not None:
            drop_offender(peer, f"{type(first).__name__} of job {job_of(first)} instead of {job}")
            return job
        if self._router.is_anothers(first, peer):
            what = type(first).__name__
            drop_offender(peer, f"{what} of a job that is connected from another process")
            return None
        entered, opening = self._router.enter(first, peer, self._jobs, self.machine.workers)
        if opening is not None:
            self._inbox.put(opening, peer)
        return entered

    async def _listen_to_rts(self, peer: Peer) -> None:
        """Do what the RTS says; without it a RIF ends, in the end."""
        gone = await self._contact.run(peer)
        self._inbox.put(Stop(f"its run-time system is gone: {gone}"))
        self._nursery.start_soon(self._cancel_later)

    def _take_from_rts(self, message: object) -> None:
        if isinstance(message, IncomingCall):
            if isinstance(message.body, AddResources | RemoveResources):
                self._contact.grace_s = max(0.0, self._router.grace_s - STOP_S)
                self._call_number += 1
                self._calls[self._call_number] = message
                self._inbox.put(Called(self._call_number, message.body))
            elif isinstance(message.body, StartServer):
                self._nursery.start_soon(self._own_server.run, message, message.body)
            elif isinstance(message.body, OpenEndpoint):
                self._nursery.start_soon(self._endpoints.open, message, message.body)
            elif isinstance(message.body, StopServer):
                self._nursery.start_soon(self._own_server.stop, message)
            elif isinstance(message.body, StopRif):
                message.reply(Done())
                self._take_from_rts(message.body)
            else:
                message.fail(TypeError(f"a RIF cannot be asked for {type(message.body).__name__}"))
        elif isinstance(message, Revoke | GrantsAhead):
            self._inbox.put(message)
            self._endpoints.check_fences()
        elif isinstance(message, TurnBegins):
            self._staging.turn_begins(message)
        elif isinstance(message, StartMonitoring):
            self._sampling.cancel()  # its run-time system was started again, and knows nothing
            self._sampling = trio.CancelScope()
            self._nursery.start_soon(self._sample, self._sampling, message.probe)
        elif isinstance(message, CloseJobEverywhere):
            self._endpoints.close_of(message.job)
            self._router.dismiss(message.job, "its job is over")
        elif isinstance(message, StopRif):
            self._inbox.put(Stop("it was told to stop"))
            self._nursery.start_soon(self._cancel_later)
        else:
            drop_offender(self._rts, f"a RIF does not understand {type(message).__name__}")

    async def _sample(self, scope: trio.CancelScope, probe: bool) -> None:
        """Measure this host until its run-time system asks anew, or the RIF ends."""
        from gspc_trio.components.monitor.shell.sampling import sample  # only if asked

        with scope:
            trip = self._round_trip if probe else None
            await sample(lambda said: self._rts.post(said), self._staging.reads, round_trip=trip)

    async def _round_trip(self) -> bool:
        """Ask the RTS something that takes it no time; return whether it has answered."""
        try:
            await self._rts.call(Echo(), CHECK_S)
        except (PeerGone, RemoteError, trio.TooSlowError):
            return False
        return True

    @performs(CheckGrant)
    def _check_grant(self, action: CheckGrant) -> None:
        if action not in self._checks and len(self._checks) < CHECKS_MAX:
            self._checks.add(action)
            self._nursery.start_soon(self._ask_about, action)

    @performs(DropJob)
    def _drop_job(self, action: DropJob) -> None:
        self._router.drop(action.job, action.reason)

    async def _ask_about(self, doubt: CheckGrant) -> None:
        """Ask the RTS whether a grant was given; without it who waits for the answer asks again."""
        try:
            answer = await self._rts.call(GetNewestGrant(doubt.resource_id, doubt.grant_id), CHECK_S)
        except (PeerGone, RemoteError, trio.TooSlowError) as error:
            log.info("%s: nobody says if %s was given: %r", self.rif_id, doubt, error)
        else:
            if isinstance(answer, NewestGrant):
                self._inbox.put(GrantChecked(doubt, answer.grant_id))
            else:
                drop_offender(self._rts, f"{type(answer).__name__} does not say which grants there are")
        finally:
            self._checks.discard(doubt)

    async def _end_in_time(self) -> None:
        """End with the host, should the RTS not have ended it before."""
        if self.until_s is not None:
            await trio.sleep_until(self.until_s)
            self.stop("its host ends")
            await self._cancel_later()

    async def _cancel_later(self) -> None:
        """Workers that do not end in time are killed with everything."""
        await trio.sleep(STOP_S)
        log.warning("%s: its workers did not end within %g s", self.rif_id, STOP_S)
        self._nursery.cancel_scope.cancel()

    # Actions

    @performs(Compute, Retract, Kill, ForgetCompute, StageIn, StageOut, Abort)
    def _perform_at_worker(self, action: ComputeAction) -> None:
        self._shells[action.resource_id].perform(action)
        if type(action) is StageIn or type(action) is Compute:
            job = self._jobs.get(action.job)
            begun = begun_with(action, job is not None and job.opening.stage.attempts_max > 1)
            if begun is not None:
                self._router.begun(begun)

    @performs(Unfit)
    def _unfit(self, action: Unfit) -> None:
        self._rts.post(CannotStart(action.reason))

    @performs(Revoked)
    def _revoked(self, action: Revoked) -> None:
        self._rts.post(action)

    @performs(ReplyToCall)
    def _reply_to_call(self, action: ReplyToCall) -> None:
        self._calls.pop(action.call).reply(action.report)

    @performs(ReplyError)
    def _reply_error(self, action: ReplyError) -> None:
        self._calls.pop(action.call).fail(BadResources(action.message))

    @performs(StartWorker)
    def _start_worker(self, action: StartWorker) -> None:
        put, nursery, speaks = self._inbox.put, self._nursery, self._task_speaks
        shell = WorkerShell(
            action.resource, self._jobs, self._backend, put, nursery, self._clock, put, speaks
        )
        self._shells[action.resource.resource_id] = shell

    def _task_speaks(self, resource_id: ResourceId, line: TaskConnection) -> None:
        self._nursery.start_soon(self._relay.run, resource_id, line)

    @performs(Finished)
    def _deliver(self, finished: Finished) -> None:
        if self._staging.reads.is_wanted:
            self._staging.reads.ended(finished.outcomes)
        shell = self._shells.get(finished.resource_id)
        job = self._jobs.get(finished.job)
        reported = finished if shell is None else shell.reported(finished)
        self._router.report(reported, None if job is None else job.settled(reported), self._nursery)

    @performs(StopWorker)
    def _stop_worker(self, action: StopWorker) -> None:
        shell = self._shells.pop(action.resource_id)
        self._closing[shell] = None
        self._nursery.start_soon(self._close_shell, shell)

    async def _close_shell(self, shell: WorkerShell) -> None:
        await shell.aclose()
        del self._closing[shell]

    @performs(OpenJob)
    def _open_job(self, opening: OpenJob) -> None:
        server = partial(self._router.peers.get, opening.job)
        self._jobs[opening.job] = self._staging.open_job(opening, server)

    @performs(DefineCode)
    def _define_code(self, define: DefineCode) -> None:
        self._jobs[define.job].codes[define.code_id] = define.data

    @performs(ForgetJob)
    def _forget_job(self, action: ForgetJob) -> None:
        self._staging.forget_job(self._jobs.pop(action.job))
        self._router.forget(action.job)
        for shell in self._shells.values():
            shell.forget_job(action.job)

    @performs(Stopped)
    def _stopped(self, action: Stopped) -> None:
        self._reason = action.reason
        self._inbox.close()

    # Records

    @performs(WorkerChanged)
    def _note_record(self, record: WorkerChanged) -> None:
        before = self._records.get(record.resource_id)
        if before is not None and before.state == "lost":
            self._rts.post(RecordBatch((before,)))
        self._records[record.resource_id] = record
        self._news.set()

    @staticmethod
    def _open_records(rts: Peer) -> None:
        now = trio.current_time()
        rts.post(RecordBatch((StreamOpened(now, time.time() - now, VERSION),)))

    async def _send_records(self) -> None:
        """Tell the RTS, for watchers, how workers are; never faster than anybody can look."""
        self._open_records(self._rts)
        self._nursery.start_soon(
            self._report_load, self.rif_id, self.host, lambda load: self._rts.post(RecordBatch((load,)))
        )
        self._nursery.start_soon(self._backend.tell_io, lambda io: self._rts.post(io))
        while True:
            await self._news.wait()
            self._news = trio.Event()
            self._post_records()
            await trio.sleep(RECORDS_INTERVAL_S)

    def _post_records(self) -> None:
        records = tuple(map(self._with_pid, self._records.values()))
        self._records.clear()
        if records:
            self._rts.post(RecordBatch(records))

    def _with_pid(self, record: WorkerChanged) -> WorkerChanged:
        shell = self._shells.get(record.resource_id)
        pid = shell.pid_for(record.job) if shell is not None and record.job else 0
        return replace(record, pid=pid) if pid else record


@asynccontextmanager
async def open_rif(
    network: Network,
    *,
    rif_id: RifId,
    incarnation: int,
    host: str,
    hardware: tuple[Resource, ...],
    backend: ComputeBackend,
    listen: str,
    rts: str,
    staging: Staging | None = None,
    load: LoadReport = report_load,
    clock: Callable[[], float] = time.time,
    grace_s: float = 0.0,
    ends_in_s: float | None = None,
    outside: str = "",
    files: StagingSettings | None = None,
) -> AsyncIterator[RifService]:
    """Run a RIF for as long as the block lasts, or until its RTS is gone or tells it to stop.

    Args:
        network: where it listens, and reaches its RTS.
        rif_id, incarnation: as the RTS named it.
        host: where it runs, for people.
        hardware: what the host has; nothing is added before the RTS says so.
        backend: computes what the workers are given; whoever opened it closes it.
        listen: address for schedulers, ``memory:rif-r1`` or ``ws://127.0.0.1:0``.
        rts: address of the RTS.
        staging: brings data to the workers and takes it away; None: what stages files and data in a layer.
        load: reports the load of the host.
        clock: seconds since 1970, as compute processes of the host count them.
        grace_s: how long the RTS is awaited when it is gone, with all that runs here; 0: the RIF ends.
        ends_in_s: when the host ends; the RIF tells its RTS, and ends then itself. None: nobody knows.
        outside: address for schedulers of other processes, if ``listen`` is in memory; "": there are none.
        files: how files get to the tasks; None: straight from the host of their job.

    Raises:
        ConnectionProblem: the RTS cannot be reached.
        OSError: the address is taken.
    """
    service = RifService(network, backend, staging, rif_id, incarnation, host, load, clock, files)
    if ends_in_s is not None:
        service.until_s = trio.current_time() + ends_in_s
    run = partial(service.run, listen, rts, hardware, grace_s, outside)
    async with open_service(run, stop=service.stop, grace_s=STOP_S) as rif:
        yield rif
