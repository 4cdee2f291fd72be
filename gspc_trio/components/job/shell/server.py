"""The job server: one application's workflow on a run-time system (GSPC19 4.3.1)."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import trio
from msgspec.structs import replace

from gspc_trio.components.job.engine_wrapper import Engine
from gspc_trio.components.job.machine import (
    Begin,
    JobAction,
    JobEnded,
    JobEvent,
    JobMachine,
    JobState,
    Kept,
    LookedUp,
    LookUpTasks,
)
from gspc_trio.components.job.messages import JobStatus
from gspc_trio.components.job.scheduler.interface import AttemptEnded, EndedItems, TaskDone
from gspc_trio.components.job.scheduler.machine import Scheduler
from gspc_trio.components.job.shell.clients import JobClients
from gspc_trio.components.job.shell.files import JobFiles
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.nested import (
    NestedHub,
    OpenBeside,
    beside_settings,
    lend_while_starved,
    nested_code,
)
from gspc_trio.components.job.shell.output import OutputFollower, attempt_output_of, output_of
from gspc_trio.components.job.shell.scheduler import Joined, SchedulerRoutes
from gspc_trio.components.job.shell.settings import (
    RESUME_GRACE_S,
    JobSettings,
    is_traced,
    registration,
    stage_limits,
)
from gspc_trio.components.job.shell.summary import summary_of
from gspc_trio.components.rts.messages import (
    EndState,
    JobEnd,
    JobSummary,
)
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.rts.shell.contact import RtsContact
from gspc_trio.components.rts.shell.several import LocationError, RunTimeSystems
from gspc_trio.components.worker.messages import OpenJob
from gspc_trio.core.current import current_place
from gspc_trio.core.ids import JobId, ResourceId, RifId
from gspc_trio.core.staging import FilePatterns
from gspc_trio.core.task import TaskState
from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.nursery.connections.buffers import Budget
from gspc_trio.nursery.connections.network import ProcessInfo
from gspc_trio.nursery.connections.rpc import SIGNED_OFF, Peer, PeerGone
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.policies.performance_model import PerformanceModel
from gspc_trio.policies.scheduling import blamed, find_policy
from gspc_trio.protocol.values import dumps
from gspc_trio.records.facts import Fact, FactColumns, Record
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.graph import TaskGraph
from gspc_trio.workflow.tokens import Outputs

if TYPE_CHECKING:
    from gspc_trio.components.job.scheduler.plans import Plans
    from gspc_trio.components.job.shell.cache import ResultCache
    from gspc_trio.components.job.shell.data import JobData
    from gspc_trio.components.job.shell.journal import Journal, Takeover
    from gspc_trio.components.job.shell.locations import LocationRoutes
    from gspc_trio.components.job.shell.planning import GraphAhead
    from gspc_trio.components.job.shell.recovery import ResultReader
    from gspc_trio.components.job.tracing import JobTracer

LEAVE_TIMEOUT_S = 1.0
"""How long a job may take to stop what runs and say goodbye to the RTS when its scope is left."""


@asynccontextmanager
async def run_job(
    engine: Engine,
    code: Callable[[int], bytes],
    outputs: Callable[[], Outputs],
    rts: RunTimeSystem,
    settings: JobSettings,
    *,
    open_ended: bool = False,
    on_done: Callable[[TaskDone], None] | None = None,
    records_path: Path | None = None,
    journal: Journal | None = None,
    patterns: FilePatterns | None = None,
    finished_before: int = 0,
    nested: NestedHub | None = None,
) -> AsyncIterator[Job]:
    """Run an engine's tasks on a run-time system.

    Leaving the block waits for the job to end, as a nursery would; an exception or a cancellation in it stops
    the job. It listens where the run-time system has clients outside this process.

    Args:
        engine: says what is ready.
        code: returns an entry of the code table, encoded.
        outputs: returns the values at the output ports.
        rts: where to run; ``RunTimeSystems`` for several at a time.
        settings: of the job.
        open_ended: tasks may be added until ``Job.close``.
        on_done: told each task that ends for good.
        records_path: file for the records, or None.
        journal: makes results durable before the engine takes them in; the engine is the one it has made.
        patterns: of files on this host that tasks fetch and store.
        finished_before: tasks that had finished when the engine's state was dumped.
        nested: takes what its tasks say, for this job runs nested tasks of another; None: it is a first job.

    Raises:
        WorkflowError, UnknownName: there is no memory layer with the published data that it takes.
        JobFailed: the job failed or was stopped, or the RTS went away.
        JournalError: the journal cannot be written any more.
        OSError: the file for the records cannot be written.
        CacheError, PolicyError, BadModel, OtelMissing: what is named so cannot be used.
    """
    settings = settings.found_by_clients_of(rts)
    async with open_scope() as nursery:
        layer = _layer_of(rts, settings) if nested is None else None
        patterns = patterns or FilePatterns()
        given = (engine, code, outputs, settings, open_ended, on_done, journal, patterns, layer)
        server = _JobServer(*given)
        server.prepare(rts, nursery, nested, finished_before)
        here = rts.network.process_info()
        async with AsyncExitStack() as stack:
            await server.open_kept(stack)  # a bad file is told before anybody knows of the job
            joined = await server.join(stack, rts, nursery)
            job_id = joined[0].registered.job
            await server.open_data(stack, rts, job_id, here.host)
            await server.open_kept(stack, job_id)
            job = server.start(joined, rts, nursery)
            if records_path is not None:
                job.records.open_file(records_path)
            try:
                nursery.start_soon(job.records.flush_regularly)
                job.inbox.put(Begin())
                yield job
                await job.wait()
            finally:
                with trio.CancelScope(shield=True), trio.move_on_after(LEAVE_TIMEOUT_S):
                    await server.leave()
                job.records.close_file()
        nursery.cancel_scope.cancel()


def _layer_of(rts: RunTimeSystem, settings: JobSettings) -> DataLayer | None:
    layer = settings.data or rts.data
    if layer is not None and isinstance(rts, RunTimeSystems):
        raise LocationError("a job on several run-time systems has no memory layer: leave it out")
    return layer


class _JobServer:
    """The parts of one job server and how they are joined."""

    def __init__(
        self,
        engine: Engine,
        code: Callable[[int], bytes],
        outputs: Callable[[], Outputs],
        settings: JobSettings,
        open_ended: bool,
        on_done: Callable[[TaskDone], None] | None,
        journal: Journal | None,
        patterns: FilePatterns,
        layer: DataLayer | None,
    ) -> None:
        self.nested: NestedHub | None = None
        self.journal = journal
        self.engine = engine
        self.code = code
        self.outputs = outputs
        self.settings = settings
        self.policy = find_policy(settings.policy, settings.assign)
        self.open_ended = open_ended
        self.on_done = on_done
        self.patterns = patterns
        self.layer = layer
        self.finished_before = 0
        self.inbox: Inbox[JobEvent] = Inbox()
        self.data: JobData | None = None
        self.reader: ResultReader | None = None
        self.cache: ResultCache | None = None
        self.routes: SchedulerRoutes | LocationRoutes
        self.contact: RtsContact | LocationRoutes
        self.job: Job | None = None
        self.hosts: dict[ResourceId, str] = {}
        self.traced = False
        self.tracer: JobTracer | None = None
        self.model: PerformanceModel | None = None
        self.clients: JobClients | None = None
        self.started = trio.Event()
        self.machine: Callable[..., JobMachine] = JobMachine
        self.told = False  # whether anybody can ask the run-time system for what is kept of the job

    async def join(self, stack: AsyncExitStack, rts: RunTimeSystem, nursery: trio.Nursery) -> list[Joined]:
        """Register the job with its run-time systems, or the only one; listen where their clients look."""
        here, journal = rts.network.process_info(), self.journal
        systems = rts.named if isinstance(rts, RunTimeSystems) else {"": rts}
        peers = [await stack.enter_async_context(one.join()) for one in systems.values()]
        joined: list[Joined] = []
        for peer, (name, one) in zip(peers, systems.items(), strict=True):
            address = await nursery.start(self.listen, one) if self.settings.listen else ""
            kept = journal if one is rts else None  # nobody keeps what runs on several
            joining = registration(self.settings, here, address, kept, peer, self.layer is not None)
            joined.append(Joined(name, one, peer, joining, await peer.call(joining)))
        if isinstance(rts, RunTimeSystems):
            rts.job_ids = {one.name: one.registered.job for one in joined}
        elif journal is not None:
            journal.note_job(joined[0].registered.job, joined[0].peer.instance)
        return joined

    async def listen(
        self, rts: RunTimeSystem, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        await rts.network.listen(
            self.settings.listen,
            self._serve_peer,
            role="job",
            name=self.settings.name,
            task_status=task_status,
        )

    async def _serve_peer(self, peer: Peer) -> None:
        await self.started.wait()
        assert self.clients is not None
        await self.clients.serve(peer)

    def prepare(
        self, rts: RunTimeSystem, nursery: trio.Nursery, nested: NestedHub | None, finished_before: int
    ) -> None:
        """See who is told of the job; use its cache, if it has one, until the nursery ends."""
        self.nested, self.told = nested, rts.has_outsiders
        settings = self.settings
        self.traced = is_traced(settings)
        is_watched = self.journal or self.layer or nested
        if settings.may_have_ranges and not (is_watched or isinstance(self.engine, TaskGraph)):
            from gspc_trio.components.job.ranged import machine_for  # only here: executors need it not

            self.machine, self.code = machine_for(self.engine, self.code, self.traced)
        self.finished_before = finished_before if self.journal is None else self.journal.finished_before
        if settings.cache is None:
            return
        from gspc_trio.components.job.shell.cache import ResultCache

        directory = settings.directory or rts.network.process_info().directory
        put, initializer, files_max = self.inbox.put, settings.initializer, settings.stage.files_max
        self.cache = ResultCache(settings.cache, self.code, directory, put, initializer, files_max)
        nursery.start_soon(self.cache.run)

    def _may_end(self, finished: bool) -> bool:
        """Return whether the job may end now; if not, its machine is told to look again."""
        if self.cache is not None and not self.cache.may_end():
            return False
        ports = None if self.job is None else self.job.ports
        if ports is not None and not ports.is_stopped:
            is_ending = self.job is not None and self.job.machine.state is JobState.STOPPING
            if ports.ports.waits if finished else ports.ports.takes_more and not is_ending:
                return False
        return self.reader is None or self.reader.may_end(finished)

    async def open_kept(self, stack: AsyncExitStack, job_id: JobId = "") -> None:
        """Keep run times, if that is wanted, before the job has an id; send spans of it when it has one."""
        if self.settings.model and not job_id:
            from gspc_trio.components.job.shell.model_file import open_model_file

            self.model = (await stack.enter_async_context(open_model_file(self.settings.model))).model
        if self.traced and job_id:
            from gspc_trio.components.job.shell.span_export import open_tracer

            tracing = open_tracer(self.settings, job_id, self.hosts, self.status)
            self.tracer = await stack.enter_async_context(tracing)

    def status(self) -> JobStatus | None:
        """Return how the job is; None if it has not begun."""
        return None if self.job is None else self.job.status()

    async def open_data(self, stack: AsyncExitStack, rts: RunTimeSystem, job_id: JobId, host: str) -> None:
        """Take part in the job's memory layer, if it has one, for as long as the stack is open."""
        engine, named = self.engine, self.engine.named
        if self.layer is None or (named and self.journal is not None):
            if named:
                raise WorkflowError(
                    f"the workflow takes published data, {min(named)!r}, but the job has no memory layer: "
                    "give --iml, JobSettings(data=...) or open_rts(data_bytes=...); a journal excludes it"
                )
            return
        from gspc_trio.components.job.shell.data import open_job_data
        from gspc_trio.iml.shell.arena import arena_at
        from gspc_trio.iml.shell.platform import platform

        settings = self.settings
        bytes_min = self.layer.bytes_min if settings.large_bytes_min is None else settings.large_bytes_min
        self.layer = replace(self.layer, job=f"{job_id}@{rts.network.instance}", bytes_min=bytes_min)
        arena = arena_at(rts.network, rts.address)
        opened = open_job_data(
            self.layer,
            host,
            self.inbox.put,
            settings.lineage_bytes_max,
            arena,
            near_data=settings.near_data and not settings.plan,
        )
        self.data = await stack.enter_async_context(opened)
        await self.data.hosts.learn(rts)
        if self.journal is not None:
            self.journal.open_data = self.data.open_data
            if self.journal.stored.has_some:
                await platform().in_thread(self.journal.stored.move, self.data.put)
        if named:
            engine.resolve({name: await self.data.find(name) for name in sorted(named)})

    def start(self, joined: Sequence[Joined], rts: RunTimeSystem, nursery: trio.Nursery) -> Job:
        """Make the parts of the job, each with what it needs, and let them run."""
        settings, journal, data, inbox = self.settings, self.journal, self.data, self.inbox
        registered, joining, peer = joined[0].registered, joined[0].joining, joined[0].peer
        here, hosts = rts.network.process_info(), self.hosts
        earlier = joining.adopts if registered.adopted else ""
        adopts = earlier if journal is None or journal.takes_over else ""
        self.reader = None if data is None else data.reader(self.outputs, nursery)
        plans, ahead = self._planning()
        machine = self.machine(
            registered.job,
            settings.name,
            self.engine if data is None else data.staging(self.engine),
            self._scheduler(registered.job, plans),
            settings.keep_going,
            self.open_ended or bool(adopts),
            journaled=journal is not None,
            finished_before=self.finished_before,
            clock=trio.current_time,
            recalled=journal is not None and journal.has_rest,
            may_end=self._may_end,
            cached=self.cache is not None,
            ready_max=self.policy.ready_max,
            ahead=ahead,
        )
        job = self.job = Job(
            machine,
            self.outputs if self.reader is None else self.reader.outputs,
            hosts,
            here.pid,
            inbox,
            dumps if data is None else data.encode,
            None if data is None else data.status,
        )
        job.data, job.tracer = data, self.tracer
        takeover = self._takeover(adopts, registered.rifs) if adopts else None
        routes = self.routes = self._routes(joined, rts, job, adopts, takeover, nursery)
        routes.nested = self.nested or NestedHub(job, nursery, self._beside(rts), routes.post)
        follower = OutputFollower(job, routes.ask)
        self.clients = JobClients(job, follower, routes.explain, routes.statuses)
        if journal is not None:
            nursery.start_soon(journal.run, lambda count: inbox.put(Kept(count)))
        nursery.start_soon(self._drive, job, routes, nursery)
        nursery.start_soon(follower.run)
        if current_place() is not None and not rts.embedded:
            nursery.start_soon(lend_while_starved, job)
        contact = self.contact = routes.contact(joining, rts.join)
        if takeover is not None:
            nursery.start_soon(takeover.run, routes.leave)
        elif earlier:
            nursery.start_soon(routes.leave, earlier)
        nursery.start_soon(self._listen_to_rts, job, contact, peer)
        self.started.set()
        return job

    def _routes(
        self,
        joined: Sequence[Joined],
        rts: RunTimeSystem,
        job: Job,
        adopts: JobId,
        takeover: Takeover | None,
        nursery: trio.Nursery,
    ) -> SchedulerRoutes | LocationRoutes:
        """Return the connections of the job to its run-time systems, or to the only one."""
        data, put, hosts, here = self.data, self.inbox.put, self.hosts, rts.network.process_info()
        opening, record = self._opening(job.job_id, here, adopts), job.records.append
        files = self._files(self.settings.directory or here.directory, rts.network.buffers.served)
        if isinstance(rts, RunTimeSystems):
            from gspc_trio.components.job.shell.locations import LocationRoutes  # only here: few have several

            given = (opening, self.code, put, hosts, nursery, record, job.machine.scheduler.sent_to, files)
            return LocationRoutes(joined, *given, blamed(self.policy.locations))
        return SchedulerRoutes(
            rts.network,
            joined[0].peer,
            opening,
            self.code,
            put if data is None else data.taking(hosts),
            hosts,
            nursery,
            record,
            job.machine.scheduler.sent_to,
            files,
            None if takeover is None else takeover.report,
        )

    def _scheduler(self, job: JobId, plans: Plans | None) -> Scheduler:
        kept, traced, model = self.settings.failed_max, self.tracer is not None, self.model
        known = None if self.data or self.cache or self.settings.process_tasks_max else self.engine.dependents
        return self.policy.scheduler(
            job, failed_max=kept, recording=False, tracing=traced, model=model, plans=plans, dependents=known
        )

    def _planning(self) -> tuple[Plans | None, GraphAhead | None]:
        """Return the plan of the job, and what says which tasks will be ready later; None: not known."""
        if not self.settings.plan:
            return None, None
        from gspc_trio.components.job.shell.planning import plan_job  # only here: few jobs are planned

        return plan_job(self.settings, self.engine, self.hosts, self.data)

    def _files(self, directory: str, buffers: Budget) -> JobFiles:
        return JobFiles(directory, self.settings.stage, self.patterns, buffers)

    def _takeover(self, adopts: JobId, rifs: tuple[RifId, ...]) -> Takeover:
        from gspc_trio.components.job.shell.journal import Takeover  # only here: few jobs go on for others

        engine = self.journal.engine if self.journal is not None else None
        assert engine is not None, "only a journal names an earlier job"
        return Takeover(engine, adopts, rifs, self.inbox.put)

    def _beside(self, rts: RunTimeSystem) -> OpenBeside:
        """Return what opens the job that runs the nested tasks of this one."""
        beside = beside_settings(self.settings, self.policy, self.tracer)

        def open_beside(
            graph: TaskGraph, /, *, on_done: Callable[[TaskDone], None], nested: NestedHub
        ) -> AbstractAsyncContextManager[Job]:
            return run_job(
                graph, nested_code, dict, rts, beside, open_ended=True, on_done=on_done, nested=nested
            )

        return open_beside

    def _opening(self, job_id: JobId, here: ProcessInfo, adopts: JobId) -> OpenJob:
        """Return what RIFs are told of the job."""
        settings = self.settings
        return OpenJob(
            job_id,
            here.search_path,
            here.directory,
            settings.modules,
            settings.fate,
            settings.threads,
            self.layer,
            grace_s=0.0 if self.journal is None or self.layer is not None else RESUME_GRACE_S,
            adopts=adopts,
            stage=stage_limits(settings),
            process_key=settings.process_key,
            initializer=settings.initializer,
            process_tasks_max=settings.process_tasks_max,
            directory=os.path.abspath(settings.directory or here.directory),
            traceparent="" if self.tracer is None else str(self.tracer.context),
        )

    async def _recall(self, journal: Journal, wanted: LookUpTasks) -> None:
        """Look tasks up among results of an earlier version, then in the cache; tell the job's machine."""
        known, cache = await journal.recall(wanted.tasks), self.cache
        names = {outcome.task_id for outcome in known}
        rest = [task for task in wanted.tasks if task.task_id not in names]
        cached = [task for task in rest if cache is not None and task.options.cache is not False]
        if cache is not None and cached:
            cache.look_up(LookUpTasks(tuple(cached)))
        names = {task.task_id for task in cached}
        missed = tuple(task.task_id for task in rest if task.task_id not in names)
        self.inbox.put(LookedUp((), missed, tuple(known)))

    async def _drive(self, job: Job, routes: SchedulerRoutes | LocationRoutes, nursery: trio.Nursery) -> None:
        send, append, on_done = routes.send, job.records.append, self.on_done
        if self.data is not None and on_done is not None:
            on_done = self.data.but_for_again(on_done)
        if self.tracer is not None:
            on_done = self.tracer.before(on_done, time.time)
        keep = None if self.journal is None else self.journal.keep
        job.journaled = None if self.journal is None else self.journal.wait_noted
        cache = job.cache = self.cache
        recalling = self.journal if job.machine.recalled else None
        printing = job.printed.running

        def perform(action: JobAction) -> None:
            if type(action) is TaskDone:
                if action.outcome.stdout or action.outcome.stderr or printing:
                    output_of(job, action, trio.current_time())
                if keep is not None and action.state is TaskState.FINISHED:
                    keep(action)
                if cache is not None:
                    cache.ended(action)
                if on_done is not None:
                    on_done(action)
                if job.news is not None:
                    job.news.set()
            elif isinstance(action, Fact):
                append(cast("Record | FactColumns", action))
            elif not send(action):
                if type(action) is JobEnded:
                    job.end(action)
                elif type(action) is EndedItems:
                    job.items_ended(action)
                elif type(action) is AttemptEnded:
                    attempt_output_of(job, action, trio.current_time())
                elif type(action) is LookUpTasks:
                    if recalling is not None:
                        nursery.start_soon(self._recall, recalling, action)
                    elif cache is not None:
                        cache.look_up(action)

        try:
            await drive(job.machine, job.inbox, perform)
        except (
            trio.Cancelled,
            KeyboardInterrupt,
        ):  # nobody drives it any more: there is no other end to wait for
            if not job.has_ended:
                job.end(JobEnded("stopped", "its scope was cancelled"))
            raise

    async def _listen_to_rts(self, job: Job, contact: RtsContact | LocationRoutes, peer: Peer) -> None:
        job.await_rts = self._await_rts
        gone = await contact.run(peer)
        if job.machine.ended is None:
            if self.reader is not None:
                await self.reader.open_now()
            how = "this job server was" if gone.startswith(SIGNED_OFF) else "the run-time system has gone:"
            job.end(JobEnded("failed", f"{how} {gone}"), rts_lost=True)

    async def _await_rts(self) -> None:
        """Wait for a run-time system that is to come back, as long as it is awaited."""
        with trio.move_on_after(self.contact.grace_s):
            await self.routes.wait_back()

    async def leave(self) -> None:
        """End the job if it has not ended, say goodbye to the RTS, and answer the clients."""
        job = self.job
        assert job is not None
        assert self.clients is not None
        try:
            if not job.has_ended:
                job.stop("its scope was left")
            result = await job.wait_ended()
            end = JobEnd(
                EndState(result.state),
                result.detail,
                {TaskState(state): number for state, number in result.tasks.items() if number},
                result.elapsed_s,
                summary_of(job, result) if self.told else JobSummary(),
            )
            self.contact.grace_s = 0.0  # it ends this connection then
            await self.routes.leave_all(end)
        except PeerGone:
            pass
        job.records.send_the_rest()
        await self.clients.see_off()
        await job.wait_journaled()
