"""The run-time system as a service (GSPC19 2.1, 4.1): the shell of the RTS machine, the RM beside it."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio
from msgspec import Struct, structs
from msgspec.structs import replace

from gspc_trio.components.managers.messages import MANAGER_ROLE, StartManager
from gspc_trio.components.provision.blocks import ENROL_ROLE, SavedBlock
from gspc_trio.components.provision.strategy import (
    Strategy,
    come_up_times,
)
from gspc_trio.components.rif.messages import CloseJobEverywhere, DagReport, StopRif
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import GrantsAhead, Revoke
from gspc_trio.components.rm.shell.service import RmShell
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.history import NOTHING
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import (
    BootstrapReport,
    EndedJob,
    JobEntry,
    RequestExplanation,
    RtsStatus,
    TeardownReport,
)
from gspc_trio.components.rts.shell.peers import CANCELLED, PeerServer, RtsError, as_message
from gspc_trio.components.rts.shell.site_service import SiteRunner, SiteService
from gspc_trio.components.rts.shell.strategy_runs import Blocks, StrategyRuns
from gspc_trio.components.rts.state import Limits
from gspc_trio.components.rts.status import describe, explained
from gspc_trio.core.ids import Counter, JobId, ResourceId, RifId
from gspc_trio.core.machine import Performer, performs
from gspc_trio.core.resources import Resource
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import PeerGone, RemoteError, drop_offender
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.policies.placement import FIFO
from gspc_trio.records.facts import JobChanged, RifChanged, TaskCounts
from gspc_trio.records.shell.stream import RecordStream
from gspc_trio.version import VERSION

if TYPE_CHECKING:
    from gspc_trio.components.managers.members import Managers
    from gspc_trio.components.managers.shell.group import AnyManager, ManagerGroup
    from gspc_trio.components.monitor.shell.collector import Collector
    from gspc_trio.components.provision.shell.enrolments import EnrolmentService
    from gspc_trio.components.rm.shell.remote import Connect

log: logging.Logger = logging.getLogger(__name__)


class SeveralManagers(Struct, frozen=True):
    """Resource managers that share the hosts.

    Attributes:
        count: how many, more than 1.
        start: runs one of them.
        placement: which free resource each of them uses next.
        sharing: how they share the hosts, one of ``SHARINGS``.
    """

    count: int
    start: StartManager
    placement: str = FIFO
    sharing: str = "pessimistic"

    def machine(self, epoch: int) -> Managers:
        """Return what decides between them; only then it is loaded."""
        if self.sharing == "pessimistic":
            from gspc_trio.components.managers.partitions import Partitions

            return Partitions(self.count, epoch)
        from random import Random

        from gspc_trio.components.managers.claims import OptimisticManagers

        return OptimisticManagers(self.count, epoch, Random(epoch))


STOP_TIMEOUT_S = 3.0
"""How long a service that is left may take to stop its RIFs in good order; the rest is killed."""


class RtsService(Performer[actions.RtsAction]):
    """A running run-time system: the handle that :func:`open_rts_service` yields.

    Attributes:
        addresses: where it listens, ``address`` the first of them.
        records: of RIFs, resources, grants and jobs.
        stopped: set when a client has asked it to stop; its owner then leaves the block.
        blocks: batch jobs that host RIFs.
        monitor: takes the metrics of hosts, None if nobody wants them.
        rm: the resource manager, or ``group``, if there are several.
    """

    def __init__(
        self,
        network: Network,
        strategies: Mapping[str, Strategy],
        limits: Limits,
        epoch: int,
        issue: Callable[[RifId], str],
        placement: str = FIFO,
        manager: Connect | None = None,
        managers: SeveralManagers | None = None,
    ) -> None:
        self.addresses: tuple[str, ...] = ()
        self.records: RecordStream = RecordStream(VERSION)
        self.stopped: trio.Event = trio.Event()
        self.machine: Rts = Rts(frozenset(strategies), limits)
        self.inbox: Inbox[events.RtsEvent] = Inbox()
        self.rm: AnyManager
        self.group: ManagerGroup | None = None
        if managers is not None:
            from gspc_trio.components.managers.shell.group import ManagerGroup  # only here: few have several

            self.rm = self.group = ManagerGroup(
                managers.machine(epoch),
                managers.start,
                managers.placement,
                issue,
                self.inbox.put,
                self.records.append,
            )
        elif manager is None:
            machine = ResourceManager(epoch, None, placement)
            self.rm = RmShell(machine, self.inbox.put, self.records.append)
        else:
            from gspc_trio.components.rm.shell.remote import RemoteManager  # only here: most have their own

            here = network.process_info()
            name = f"process {here.pid} on {here.host}"
            self.rm = RemoteManager(manager, name, epoch, self.inbox.put, self.records.append)
        self.sites: SiteService = SiteService(
            self._load_sites, lambda: self.blocks.by_hand(), lambda: self.machine.rifs
        )
        self.monitor: Collector | None = None
        self.peers: PeerServer = PeerServer(self)
        self._network = network
        self._issue = issue
        self._enrolments: EnrolmentService | None = None
        network.token_of = self._token_of
        self._runs = StrategyRuns(
            strategies, network.token, issue, limits.grace_s, self.inbox.put, lambda: self.enrolments
        )
        self.blocks: Blocks = Blocks(self, self._runs)
        self._to_start: list[actions.StartRif] | None = []
        self._started_s = trio.current_time()
        self._asks = Counter()
        self._answers: dict[int, Callable[[actions.Answer | actions.QuestionRefused], None]] = {}
        self._losses: dict[RifId, int] = {}
        self._over = trio.Event()
        self._nursery: trio.Nursery

    @property
    def address(self) -> str:
        """The first address at which it listens."""
        return self.addresses[0]

    @property
    def enrolments(self) -> EnrolmentService:
        """Where the RIFs of blocks enrol; what it needs is loaded when there is a block."""
        if self._enrolments is None:
            from gspc_trio.components.provision.shell.enrolments import EnrolmentService

            self._enrolments = EnrolmentService(self._issue)
            self._enrolments.told = self.blocks.told
            if self._to_start is None:
                self._enrolments.open(self._nursery)
        return self._enrolments

    def saved_blocks(self) -> tuple[SavedBlock, ...]:
        """Return what the next run-time system is to know of the blocks that there are."""
        return () if self._enrolments is None else self._enrolments.saved_blocks()

    def _token_of(self, role: str, name: str) -> bytes | None:
        """Return what a dialer of this role and name has to know; None for the token of the network."""
        if role == MANAGER_ROLE and self.group is not None:
            return self.group.token_of(name)
        return self.enrolments.token_of(role, name) if role == ENROL_ROLE else None

    # What a user can ask, in this process -------------------------------------------------------------------

    async def bootstrap(
        self,
        hosts: Sequence[str],
        strategy: str = "local",
        cores: int = 0,
        options: Mapping[str, str] | None = None,
        nodes: int = 0,
    ) -> BootstrapReport:
        """Start a RIF on each host (RTS-1); those that fail are in the report beside those that came up.

        Args:
            hosts: names of hosts; logical names for the strategies ``local`` and ``embedded``.
            strategy: name of a strategy.
            cores: number of cores each is to offer; 0 for what its hardware has.
            options: of the strategy.
            nodes: each name is that of a block, one batch job of so many nodes, with a RIF on
                each; 0: of a host.

        Raises:
            RtsError: there is no such strategy, it has no blocks, or a host is named twice.
        """
        plain = dict(options or {})
        report: BootstrapReport = await self._asked(
            lambda ask: events.BootstrapAsked(ask, tuple(hosts), strategy, cores, plain, nodes)
        )
        return report

    async def teardown(self, rif_ids: Sequence[RifId]) -> tuple[RifId, ...]:
        """Stop these RIFs and return their ids when nothing is left of them (RTS-1).

        Raises:
            RtsError: one is unknown; then none is stopped.
        """
        report: TeardownReport = await self._asked(lambda ask: events.TeardownAsked(ask, tuple(rif_ids)))
        return report.stopped

    async def add(self, rif_id: RifId, resources: Sequence[Resource]) -> DagReport:
        """Add resources to a RIF and return how to reach their workers (RTS-2).

        Raises:
            RtsError: they do not fit to what it has, or hang below a resource that is held.
        """
        report: DagReport = await self._asked(lambda ask: events.AddAsked(ask, rif_id, tuple(resources)))
        return report

    async def remove(
        self, rif_id: RifId, resource_ids: Sequence[ResourceId], policy: str = "lose"
    ) -> DagReport:
        """Remove resources and all below them from a RIF and return which were removed (RTS-2, RM-11).

        Args:
            rif_id: of the RIF.
            resource_ids: of its resources.
            policy: when one is held: ``lose``: its job loses it; ``wait`` until it is released; ``refuse``:
                nothing is removed.

        Raises:
            RtsError: a resource is not there, or is held and the policy is ``refuse``.
        """
        report: DagReport = await self._asked(
            lambda ask: events.RemoveAsked(ask, rif_id, tuple(resource_ids), policy)
        )
        return report

    def host_to_resource(self) -> dict[str, tuple[ResourceId, ...]]:
        """Return host -> ids of its resources (RTS-3)."""
        return self.machine.host_to_resource()

    def jobs(self) -> tuple[JobEntry, ...]:
        """Return the jobs registered now, oldest first."""
        return tuple(
            JobEntry(job.job, job.name, job.pid, job.host, job.address, job.weight)
            for job in self.machine.jobs
        )

    def ended_jobs(self) -> tuple[EndedJob, ...]:
        """Return the jobs that are over, in the order in which they ended, without what is kept of them."""
        return tuple(replace(self._dated(job), summary=NOTHING) for job in self.machine.history.jobs)

    def ended_job(self, job: JobId) -> EndedJob | None:
        """Return what is kept of a job that is over, or None."""
        kept = self.machine.history.find(job)
        return None if kept is None else self._dated(kept)

    def _dated(self, job: EndedJob) -> EndedJob:
        """Return a job of the machine's with the time of its end on the wall clock."""
        return replace(job, ended_s=job.ended_s + self.records.opened.wall_offset_s)

    def resources(self, rif_id: RifId) -> tuple[Resource, ...]:
        """Return what a RIF has, parents before children.

        Raises:
            RtsError: there is no such RIF.
        """
        for rif in self.machine.rifs:
            if rif.rif_id == rif_id:
                return rif.usable()
        there = ", ".join(rif.rif_id for rif in self.machine.rifs) or "none"
        raise RtsError(f"there is no RIF {rif_id}; there are: {there}")

    def explain(self, job: JobId) -> tuple[RequestExplanation, ...]:
        """Return why each request of a job waits, see :func:`explained`; IllegalEvent without job."""
        return explained(self.machine, self.rm, job, trio.current_time(), self.sites.why)

    def status(self) -> RtsStatus:
        """Return the state."""
        now = trio.current_time()
        pid = self._network.process_info().pid
        told = describe(self.machine, self.rm, self.addresses, pid, now - self._started_s, now)
        if self.group is not None:
            told = replace(told, managers=self.group.entries())
        return self.peers.servers.shown(told)

    def ask(
        self,
        event: Callable[[int], events.RtsEvent],
        answered: Callable[[actions.Answer | actions.QuestionRefused], None],
    ) -> None:
        """Give a question to the machine; ``answered`` is called once."""
        ask = self._asks.next()
        self._answers[ask] = answered
        self.inbox.put(event(ask))

    def _load_sites(self, throttles: Mapping[str, int | None]) -> SiteRunner:
        from gspc_trio.components.rts.shell.sites import SiteRuns  # only here: few have sites

        return SiteRuns(self, throttles, self.sites.is_attended)

    def start_soon(self, task: Callable[[], Awaitable[object]]) -> None:
        """Run a task for as long as this is there."""
        self._nursery.start_soon(task)

    async def _asked(self, event: Callable[[int], Any]) -> Any:
        done = trio.Event()
        answers: list[actions.Answer | actions.QuestionRefused] = []

        def answered(answer: actions.Answer | actions.QuestionRefused) -> None:
            answers.append(answer)
            done.set()

        self.ask(event, answered)
        await done.wait()
        if isinstance(answers[0], actions.QuestionRefused):
            raise RtsError(answers[0].reason)
        return as_message(answers[0].result)

    # Running it ---------------------------------------------------------------------------------------------

    def restore(self, event: events.RifRestored | events.JobServerEnded) -> None:
        """Take in what an earlier run-time system had; before this one is started."""
        for action in self.machine.handle(event, trio.current_time()):
            self.perform(action)

    def restore_ended(self, job: EndedJob) -> EndedJob:
        """Take in a job that ended under an earlier run-time system; return it as it is kept."""
        at_s = job.ended_s - self.records.opened.wall_offset_s
        kept = replace(job, ended_s=at_s)
        self.machine.history.add(kept)
        if job.tasks:
            self.records.append(TaskCounts(at_s, job.job, job.tasks, first_s=at_s - job.elapsed_s))
        self.records.append(JobChanged(at_s, job.job, job.state, job.name, job.detail))
        return kept

    async def start(self, nursery: trio.Nursery, listen: Sequence[str]) -> None:
        """Listen and serve in the nursery."""
        self._nursery = nursery
        if self.group is None:
            await nursery.start(self.rm.run)
        addresses = []
        for address in listen:
            addresses.append(await nursery.start(self._listen, address))
        self.addresses = tuple(addresses)
        if self.group is not None:  # they connect to it
            self.group.addresses = self.addresses
            await nursery.start(self.group.run)
        if self._enrolments is not None:
            self._enrolments.open(nursery)
        restored, self._to_start = self._to_start or (), None
        for action in restored:
            self._start_rif(action)
        nursery.start_soon(self._drive)

    async def _listen(
        self, address: str, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        await self._network.listen(address, self.peers.serve, role="rts", name="rts", task_status=task_status)

    async def _drive(self) -> None:
        try:
            await drive(self.machine, self.inbox, self)
        finally:
            self._over.set()

    async def stop(self) -> None:
        """Let jobs go, take RIFs down in good order, and return when nothing is left of them."""
        self.sites.stop()
        await self.peers.dismiss_jobs("the run-time system was stopped")
        self.inbox.put(events.Stop())
        await self._over.wait()
        await self.peers.say_goodbye()

    # Actions ------------------------------------------------------------------------------------------------

    @performs(actions.StartRif)
    def _start_rif(self, action: actions.StartRif) -> None:
        if self._to_start is not None:  # it does not run yet
            self._to_start.append(action)
        else:
            self._nursery.start_soon(self._runs.run, action, self.addresses)

    @performs(actions.TellStrategy)
    def _tell_strategy(self, action: actions.TellStrategy) -> None:
        said = action.is_connected, action.lost
        self.enrolments.rif_seen(action.block, action.node, action.incarnation, *said)

    @performs(actions.KillRif)
    def _kill_rif(self, action: actions.KillRif) -> None:
        self._runs.kill(action)

    @performs(actions.AskRif)
    def _ask_rif(self, action: actions.AskRif) -> None:
        self._nursery.start_soon(self._call_rif, action)

    async def _call_rif(self, action: actions.AskRif) -> None:
        peer = self.peers.rifs.get(action.link)
        if peer is None:
            return
        try:
            report = await peer.call(action.message, self.machine.limits.bootstrap_timeout_s)
        except PeerGone:
            return  # RifLost says so
        except (RemoteError, trio.TooSlowError, ValueError) as error:
            reason = str(error) or "it did not answer in time"
            self.inbox.put(events.RifRefused(action.link, action.call, reason))
            return
        if isinstance(report, DagReport):
            self.inbox.put(events.RifAnswered(action.link, action.call, report), peer)
        else:
            drop_offender(peer, f"a RIF does not answer {type(report).__name__}")

    @performs(actions.TellRif)
    def _tell_rif(self, action: actions.TellRif) -> None:
        self._post(action.link, action.message)

    @performs(actions.CloseJobAt)
    def _close_job(self, action: actions.CloseJobAt) -> None:
        for link in action.links:
            self._post(link, CloseJobEverywhere(action.job))

    def _post(self, link: int, message: Revoke | GrantsAhead | StopRif | CloseJobEverywhere) -> None:
        peer = self.peers.rifs.get(link)
        if peer is not None:
            peer.post(message)

    @performs(actions.DropLink)
    def _drop_link(self, action: actions.DropLink) -> None:
        peer = self.peers.rifs.get(action.link)
        if peer is not None:
            peer.drop(action.reason)

    @performs(actions.TellJobs)
    def _tell_jobs(self, action: actions.TellJobs) -> None:
        for job in action.jobs:
            peer = self.rm.peers.get(job)
            if peer is not None:
                peer.post(action.message)

    @performs(actions.Answer, actions.QuestionRefused)
    def _answer(self, action: actions.Answer | actions.QuestionRefused) -> None:
        self._answers.pop(action.ask)(action)

    @performs(actions.AcceptJob)
    def _accept_job(self, action: actions.AcceptJob) -> None:
        self.peers.accept_job(action)

    @performs(actions.RefuseJob)
    def _refuse_job(self, action: actions.RefuseJob) -> None:
        self.peers.refuse_job(action.link, action.reason)

    @performs(actions.TellRm)
    def _tell_rm(self, action: actions.TellRm) -> None:
        self.rm.tell(action.event)

    @performs(actions.Stopped)
    def _stopped(self, _: actions.Stopped) -> None:
        self._over.set()

    @performs(TaskCounts)
    def _record(self, record: TaskCounts) -> None:
        self.records.append(record)

    @performs(JobChanged)
    def _record_job(self, record: JobChanged) -> None:
        self.records.append(record)
        self.peers.tell_end(record.job)
        if record.state != "running":
            self.sites.job_gone(record.job)

    @performs(RifChanged)
    def _record_rif(self, record: RifChanged) -> None:
        bad = record.state in ("quarantined", "away", "lost", "failed") and record.detail != CANCELLED
        bad = bad and not self.sites.has_told(record.host)
        if record.state == "lost":
            self._losses[record.rif_id] = self._losses.get(record.rif_id, 0) + 1
        if record.state == "failed" and self._losses.pop(record.rif_id, 0) == 1:
            bad = False  # it never came up: that was said when it was lost
        log.log(
            logging.WARNING if bad else logging.INFO,
            "%s on %s is %s%s",
            record.rif_id,
            record.host,
            record.state,
            record.detail and f": {record.detail}",
        )
        self.records.append(record)
        self.sites.rif_changed(record)


@asynccontextmanager
async def open_rts_service(
    network: Network,
    *,
    listen: Sequence[str],
    strategies: Mapping[str, Strategy],
    limits: Limits | None = None,
    epoch: int | None = None,
    issue: Callable[[RifId], str] = lambda _: "",
    placement: str = FIFO,
    manager: Connect | None = None,
    managers: SeveralManagers | None = None,
    prepare: Callable[[RtsService], None] = lambda _: None,
) -> AsyncIterator[RtsService]:
    """A run-time system for as long as the block runs; no host has a RIF yet.

    On exit jobs lose it, RIFs are asked to stop, and what has not stopped after a second is killed.

    Args:
        network: in which it listens.
        listen: addresses; RIFs in processes of their own need one that begins with ``ws:``.
        strategies: name -> how RIFs are started.
        limits: times and sizes.
        epoch: first part of all grant ids, higher than that of any RM before; None for the time in seconds.
        issue: returns credentials for the TLS of a RIF, "" for none.
        placement: of jobs that ask for none, a name in ``policies.placement``.
        manager: opens a connection to a resource manager that runs elsewhere (RTS-4); None: one begins here.
        managers: how many resource managers there are, and how they are started; None: one, in this process.
        prepare: tells the service what it is to know before it listens.

    Raises:
        OSError: it cannot listen at one of the addresses, or the resource manager cannot be reached.
        ManagerGone: the resource manager serves another run-time system, or has gone.
        ManagersFailed: no resource manager came up.
    """
    epoch = int(time.time()) if epoch is None else epoch
    limits = structs.replace(limits or Limits(), come_up_s=come_up_times(strategies))
    service = RtsService(network, strategies, limits, epoch, issue, placement, manager, managers)
    prepare(service)
    async with open_scope() as nursery:
        await service.start(nursery, listen)
        try:
            yield service
        finally:
            with trio.move_on_after(STOP_TIMEOUT_S, shield=True):
                await service.stop()
            nursery.cancel_scope.cancel()
