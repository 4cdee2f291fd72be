"""Launcher as a pure machine (MEL-1 to MEL-3): one server at a time, its clients in order, few enough jobs.

A server job has an incarnation, from 0. Each incarnation may connect once: what comes later, from it or from
an earlier one, is refused. When its connection ends, when it is silent for two intervals, or when its job is
over, all jobs are cancelled and the next incarnation is submitted at once, as soon as there is a place.

What is known of jobs is decided by a :class:`BatchSite`, whose questions become calls of the engine here.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from gspc_trio.components.launcher.events import (
    CLIENT_TRANSITIONS,
    CancelAtEngine,
    CancelClient,
    Cancelled,
    ClientMoved,
    ClientState,
    CloseConnection,
    CommandExited,
    ConnectionShutdown,
    EndClient,
    KillCommands,
    LauncherAction,
    LauncherEvent,
    LauncherResumed,
    Listed,
    ListEngine,
    ListFailed,
    Message,
    NewConnection,
    PingServer,
    RefuseConnection,
    RequestAccepted,
    RequestRefused,
    SendToServer,
    Signal,
    StatesFresh,
    StatesStale,
    Stop,
    StudyDone,
    SubmitClients,
    SubmitFailed,
    Submitted,
    SubmitToEngine,
    ToServer,
)
from gspc_trio.components.launcher.facts import StudyFacts
from gspc_trio.components.launcher.jobs import (
    CLIENT_STATES,
    EngineCalls,
    JobsAtEngine,
    KeptForServer,
    LaunchedClient,
    LaunchedJob,
    PostponedJobs,
    ServerLiveness,
    last_servers,
    request_problem,
)
from gspc_trio.components.launcher.options import LauncherOptions
from gspc_trio.components.launcher.states import RETURN_S, TRANSITIONS, UNCONNECTED_MAX, LauncherState
from gspc_trio.components.provision.batch import BatchJob, BatchState
from gspc_trio.components.provision.site import (
    AskJob,
    BatchSite,
    CancelAnswered,
    CancelJob,
    JobAnswered,
    JobContact,
    JobEnding,
    JobMoved,
    JobOver,
    JobRuns,
    JobsListed,
    JobUnwanted,
    JobWanted,
    ListQueue,
    QueryTimes,
    SiteEvent,
    SubmitAnswered,
    SubmitJob,
    SubmitRefused,
)
from gspc_trio.core.machine import IllegalEvent, MachineBase, Tick, handles


class Launcher(MachineBase[LauncherEvent, LauncherAction]):
    """The launcher of one study.

    Args:
        options: of the study.
        study: names of jobs begin so; letters, digits and "-"; no other study has it.
        records: whether records of all that happens are among the actions.
        resumable: whether another launcher may go on for this one, so that its server comes back.
        jobs_per_server: how many jobs of the engine there are for a server.
    """

    noun = "a launcher"

    def __init__(
        self,
        options: LauncherOptions,
        study: str,
        *,
        records: bool = False,
        resumable: bool = True,
        jobs_per_server: int = 1,
    ) -> None:
        super().__init__()
        self.state: LauncherState = LauncherState.IDLE
        self._options = options
        self._study = study
        every = options.job_update_interval_s
        self._site = BatchSite(options.scheduler, QueryTimes(list_s=every, list_max_s=every))
        self._calls = EngineCalls()
        self._jobs = JobsAtEngine(options.job_limit, jobs_per_server)
        """Jobs that were submitted and are not known to be gone."""
        self._postponed = PostponedJobs()
        """Jobs that wait for a place, in order."""
        self._clients: dict[int, LaunchedJob] = {}
        """Client that has not ended -> its job."""
        self._incarnation = 0
        self._servers = last_servers()
        self._restart_at = 0.0
        """When the next server may be submitted."""
        self._unconnected = 0
        """Number of servers in a row that ended without having connected."""
        self._connection: int | None = None
        self._liveness = ServerLiveness(options.timer_interval_s)
        self._return_at: float | None = None
        """When a server that is to come back is given up."""
        self._kept = KeptForServer(resumable=resumable)
        self._stale = ""
        self._facts = StudyFacts(self, study, options.job_limit, wanted=records)
        self._stop = Stop(0, "")
        self._stop_at = 0.0
        self._cancel_at: float | None = None
        """When to cancel the job of a server that has said that the study is done."""

    @property
    def connected(self) -> tuple[int, int] | None:
        """The server that is connected, and its connection."""
        return None if self._connection is None else (self._incarnation, self._connection)

    def deadline(self) -> float | None:
        """Return when to begin, ping, give the server up, ask the engine, or stop."""
        return min(self._dates(), default=None)

    def _dates(self) -> Iterator[float]:
        if self.state is LauncherState.STOPPED:
            return
        if self.state is LauncherState.IDLE:
            yield self.now
        if self.state is LauncherState.SERVING:
            yield self._liveness.due_at
        if self.state is LauncherState.AWAITING and self._return_at is not None:
            yield self._return_at
        if self.state is LauncherState.RESTARTING and self._restart_at > self.now:
            yield self._restart_at
        if self.state is LauncherState.STOPPING:
            yield self._stop_at if self._cancel_at is None else min(self._cancel_at, self._stop_at)
        if (due := self._site.deadline()) is not None:
            yield due

    def check(self) -> None:
        """Assert every invariant."""
        self._site.check()
        assert self._jobs.free >= 0
        assert (self.state is LauncherState.SERVING) == (self._connection is not None)
        assert self.state.has_server == (self._incarnation in self._servers) or self.state.is_over
        assert self.state is LauncherState.AWAITING or self._return_at is None
        assert self.state is LauncherState.SERVING or self._return_at is not None or not self._clients
        assert not self._postponed or self._jobs.free == 0
        for client_id, job in self._clients.items():
            assert [one.client_id for one in job.clients].count(client_id) == 1
            assert self._jobs.get(job.name) is job or job in self._postponed
        for name, job in self._jobs.items():
            assert job.name == name
            for client in job.clients:
                assert self._clients[client.client_id] is job
                assert not client.has_ended
                assert client.state is not ClientState.POSTPONED

    @property
    def end(self) -> Stop | None:
        """How the study has ended; None: it goes on."""
        return self._stop if self.state is LauncherState.STOPPED else None

    @property
    def incarnation(self) -> int:
        """Number of the server."""
        return self._incarnation

    def jobs(self) -> list[tuple[SubmitToEngine, str]]:
        """Return what was submitted and is not known to be gone, each with its id, or ""."""
        return [(job.asked, job.job_id) for job in self._jobs.values()]

    # Time and signals ---------------------------------------------------------------------------------------

    @handles(Tick)
    def _tick(self, _event: Tick) -> None:
        if self.state is LauncherState.STOPPED:
            return
        if self.state is LauncherState.IDLE:
            self._submit_server()
        if self.state is LauncherState.SERVING:
            self._look_for_life()
        elif self._return_at is not None and self.now >= self._return_at:
            self._server_lost(f"the server has not come back within {RETURN_S:g} s")
        elif self._cancel_at is not None and self.now >= self._cancel_at:
            self._cancel_spared()
        self._tell_site(Tick())

    def _look_for_life(self) -> None:
        assert self._connection is not None
        if self._liveness.is_over(self.now):
            self._server_lost(f"nothing was heard of the server for {self._liveness.silent_s:g} s")
        elif self._liveness.wants_ping(self.now):
            self.actions.append(PingServer(self._connection))

    @handles(Signal)
    def _signal(self, event: Signal) -> None:
        self._cancel_spared()
        self._end_study(Stop(128 + event.number, f"it got the signal {event.number}"))

    def _cancel_spared(self) -> None:
        """Cancel the job of a server that has said that the study is done, and has not ended."""
        if self._cancel_at is not None:
            self._cancel_at = None
            self._cancel_all()

    def settle(self) -> None:
        """Submit what has a place; stop when nothing is left."""
        has_place = self._jobs.free >= self._jobs.per_server
        if self.state is LauncherState.RESTARTING and has_place and self.now >= self._restart_at:
            self._submit_server()
        while self._postponed and self._jobs.free > 0:
            self._submit(self._postponed.take_first())
        if self.state is LauncherState.STOPPING and (not self._jobs or self.now >= self._stop_at):
            self._enter(LauncherState.STOPPED, self._stop.reason)
            left = tuple(f"{name} ({job.job_id})" if job.job_id else name for name, job in self._jobs.items())
            self._stop = structs.replace(self._stop, left=left)
            self.actions.append(self._stop)

    def _enter(self, state: LauncherState, reason: str = "") -> None:
        assert state in TRANSITIONS[self.state], f"the launcher from {self.state} to {state}"
        self.state = state
        self._facts.study(state, self._incarnation, reason)

    def _end_study(self, stop: Stop, spared: LaunchedJob | None = None) -> None:
        """Cancel everything, and stop when it is gone; nothing, if that was decided before.

        Args:
            stop: what follows.
            spared: the job of a server that ends by itself, and is cancelled when it does not.
        """
        if self.state.is_over:
            return
        self._stop, self._stop_at = stop, self.now + self._options.stop_grace_s
        self._enter(LauncherState.STOPPING, stop.reason)
        self._close(f"the study stops: {stop.reason}")
        if self._calls:
            self.actions.append(KillCommands())
        self._cancel_all(spared)

    # The server ---------------------------------------------------------------------------------------------

    def _submit_server(self) -> None:
        self._enter(LauncherState.SUBMITTING)
        job = LaunchedJob(self._incarnation, [], (), ())
        self._servers.keep(self._incarnation, job)
        self._submit(job)

    def _server_lost(self, reason: str, pause_s: float = 0.0) -> None:
        """Cancel all jobs, and submit the next server after a pause, unless the study stops for that."""
        if self.state.is_over:
            return
        uid = self._servers[self._incarnation].uid
        if self.state is not LauncherState.SERVING and self._return_at is None:
            self._unconnected += 1
        if not self._options.fault_tolerance:
            self._end_study(Stop(1, reason, output_uid=uid))
        elif self._unconnected >= UNCONNECTED_MAX:
            words = f"{UNCONNECTED_MAX} servers in a row have ended before they connected, the last one"
            self._end_study(Stop(1, f"{words}: {reason}", output_uid=uid))
        else:
            self._incarnation += 1
            self._restart_at = self.now + pause_s
            self._enter(LauncherState.RESTARTING, reason)
            self._close(f"another server takes over: {reason}")
            self._cancel_all()

    def _close(self, reason: str) -> None:
        """End the connection of the server, if it has one."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self.actions.append(CloseConnection(connection, reason))

    def _cancel_all(self, spared: LaunchedJob | None = None) -> None:
        """Cancel all jobs but one; nobody is told any more what becomes of their clients."""
        for one in (self._clients, self._postponed, self._kept):
            one.clear()
        self._return_at = None
        for job in list(self._jobs.values()):
            job.clients.clear()
            self._tell_site(JobContact(job.name, 0))
            if job is spared:
                self._tell_site(JobEnding(job.name))
            else:
                self._facts.job(job, "cancelling")
                self._tell_site(JobUnwanted(job.name))

    @handles(NewConnection)
    def _connected(self, event: NewConnection) -> None:
        if self.state is LauncherState.STOPPED:
            return
        known = self._incarnation + (self._incarnation in self._servers)
        if event.incarnation is not None and event.incarnation >= known:
            raise IllegalEvent(f"there was no server {event.incarnation}")
        if event.connection == self._connection:
            raise IllegalEvent(f"there is a connection {event.connection} already")
        reason = self._refusal(event)
        if reason:
            self._facts.refused(reason)
            self.actions.append(RefuseConnection(event.connection, reason))
            return
        job = self._servers[self._incarnation]
        self._enter(LauncherState.SERVING)
        self._facts.connected(job)
        self._connection, self._unconnected = event.connection, 0
        self._liveness.begin(self.now)
        self._tell_site(JobRuns(job.name, event.job_id))
        self._tell_site(JobContact(job.name, 1))
        if self._stale:
            self._send(StatesStale(self._stale))
        if self._return_at is not None:
            self._return_at = None
            for moved in self._kept.told.values():
                self._send(moved)

    @handles(LauncherResumed)
    def _resumed(self, _event: LauncherResumed) -> None:
        was_serving = self.state is LauncherState.SERVING
        if was_serving:
            self._connection, self._return_at = None, self.now
            self._enter(LauncherState.AWAITING)
        if self._return_at is not None:
            self._return_at = self.now + RETURN_S
        self._stop_at = self.now + self._options.stop_grace_s
        for unanswered in self._calls.end_all():
            self._tell_site(unanswered)
        if was_serving:
            self._tell_site(JobContact(self._servers[self._incarnation].name, 0))
        for job in self._jobs.values():
            for client in job.clients:
                if client.is_cancelling:
                    self._end_client(job, client)

    def _refusal(self, event: NewConnection) -> str:
        """Return why a connection is refused, or ""; an earlier server is cancelled once more."""
        if event.incarnation is None:
            return "it has not proved to be a server of this study"
        if event.incarnation < self._incarnation:
            self._cancel_again(event.incarnation)
            return f"server {event.incarnation} is over: server {self._incarnation} has taken over"
        if self.state is LauncherState.SERVING:
            return f"server {event.incarnation} is connected already, and connects once"
        if self.state is LauncherState.STOPPING:
            self._cancel_again(event.incarnation)
            return f"the study stops: {self._stop.reason}"
        return ""

    def _cancel_again(self, incarnation: int) -> None:
        job = self._servers.get(incarnation)
        if job is not None and not self._calls.is_under_way(CancelJob, job.name):
            self.actions.append(CancelAtEngine(self._calls.begin(CancelJob, job.name), job.name, job.job_id))

    @handles(ConnectionShutdown)
    def _shut(self, event: ConnectionShutdown) -> None:
        if event.connection == self._connection:
            self._server_lost("the server has ended its connection")

    # What the server says -----------------------------------------------------------------------------------

    @handles(Message)
    def _message(self, event: Message) -> None:
        if event.connection != self._connection:
            return  # it was closed
        self._liveness.heard_at = self.now
        self._facts.said(event.body)
        match event.body:
            case SubmitClients(again=True) | CancelClient(again=True) if self._kept.has_accepted(event.body):
                self._send(RequestAccepted(event.body.request))
            case SubmitClients():
                self._clients_wanted(event.body)
            case CancelClient():
                self._client_unwanted(event.body)
            case StudyDone():
                self._cancel_at = self.now + self._options.stop_grace_s / 2
                self._end_study(
                    Stop(0, "the server says that the study is done"), self._servers[self._incarnation]
                )

    def _clients_wanted(self, asked: SubmitClients) -> None:
        ids = asked.client_ids
        reason = request_problem(asked, self._options.group_size, self._clients) or self._postponed.problem
        if reason:
            self._send(RequestRefused(asked.request, reason, self._postponed.is_full))
            return
        clients = [LaunchedClient(client_id) for client_id in ids]
        job = LaunchedJob(self._incarnation, clients, asked.command, ids)
        self._clients |= dict.fromkeys(ids, job)
        for client_id in ids:  # what was told of an earlier client by this id is told no more
            self._kept.told.pop(client_id, None)
        self._postponed.add(job)
        self._accept(asked)
        self._facts.wanted(job)

    def _client_unwanted(self, asked: CancelClient) -> None:
        job = self._clients.get(asked.client_id)
        if job is None:
            reason = f"there is no client {asked.client_id}: it has ended, or was never asked for"
            self._send(RequestRefused(asked.request, reason))
            return
        self._accept(asked)
        client = next(one for one in job.clients if one.client_id == asked.client_id)
        if client.is_cancelling:
            return
        client.is_cancelling = True
        if client.state is ClientState.POSTPONED:
            self._move(job, client, ClientState.CANCELLED, "")
            if not job.clients:
                self._postponed.remove(job)
        elif all(one.is_cancelling for one in job.clients):
            self._facts.job(job, "cancelling")
            self._tell_site(JobUnwanted(job.name))
        else:
            self._end_client(job, client)

    def _end_client(self, job: LaunchedJob, client: LaunchedClient) -> None:
        self.actions.append(EndClient(self._calls.next_uid(), job.uid, job.job_id, client.client_id))

    def _accept(self, asked: SubmitClients | CancelClient) -> None:
        self._kept.accepted.keep(asked.request, None)
        self._send(RequestAccepted(asked.request))

    def _send(self, body: ToServer) -> None:
        if self._connection is not None:
            self.actions.append(SendToServer(self._connection, body))

    def _move(self, job: LaunchedJob, client: LaunchedClient, state: ClientState, text: str) -> None:
        """Bring a client to a state, and tell the server, unless it is there."""
        if state is client.state or self._clients.get(client.client_id) is not job:
            return
        assert state in CLIENT_TRANSITIONS[client.state], f"client {client.client_id} to {state}"
        client.state = state
        if client.has_ended:
            job.clients.remove(client)
            del self._clients[client.client_id]
        moved = ClientMoved(client.client_id, state, job.job_id, text)
        self._kept.told.keep(client.client_id, moved)
        self._send(moved)
        self._facts.client(job, client, text)
        is_failure = state in (ClientState.FAILED, ClientState.NOT_SUBMITTED)
        if is_failure and not self._options.fault_tolerance:
            self._end_study(Stop(1, f"client {client.client_id} is {state}: {text}", output_uid=job.uid))

    # Calls of the engine ------------------------------------------------------------------------------------

    def _submit(self, job: LaunchedJob) -> None:
        job.uid = self._calls.next_uid()
        job.name = f"{self._study}-{job.uid}"
        self._calls.begin_as(job.uid, SubmitJob, job.name)
        self._jobs[job.name] = job
        self._facts.job(job, "submitted")
        self._tell_site(JobWanted(job.name))
        for client in list(job.clients):
            self._move(job, client, ClientState.SUBMITTED, "")

    @handles(Submitted)
    def _submitted(self, event: Submitted) -> None:
        name = self._calls.end(event.uid, SubmitJob)[1]
        if event.is_running and event.job_id is not None:
            self._tell_site(JobRuns(name, event.job_id))
        self._tell_site(SubmitAnswered(name, event.job_id))

    @handles(SubmitFailed)
    def _submit_failed(self, event: SubmitFailed) -> None:
        self._tell_site(SubmitRefused(self._calls.end(event.uid, SubmitJob)[1], event.reason))

    @handles(Cancelled)
    def _cancelled(self, event: Cancelled) -> None:
        self._tell_site(CancelAnswered(self._calls.end(event.uid, CancelJob)[1]))

    @handles(Listed, ListFailed)
    def _listed(self, event: Listed | ListFailed) -> None:
        kind, name = self._calls.end(event.uid, ListQueue, AskJob)
        jobs = event.jobs if isinstance(event, Listed) else None
        if isinstance(event, ListFailed) and not self._stale:
            self._stale = event.reason or "the engine does not tell of its jobs"
            self._send(StatesStale(self._stale))
            self._facts.stale(self._stale)
        elif isinstance(event, Listed) and self._stale:
            self._stale = ""
            self._send(StatesFresh())
            self._facts.stale("")
        self._tell_site(JobsListed(jobs) if kind is ListQueue else JobAnswered(name, jobs))

    @handles(CommandExited)
    def _exited(self, event: CommandExited) -> None:
        job = self._jobs.get(f"{self._study}-{event.uid}")
        if job is None:
            return  # it is gone
        state = ClientState.FAILED if event.status else ClientState.COMPLETED
        text = f"exit status {event.status}"
        for client in list(job.clients):
            if event.client_id in (None, client.client_id):
                is_cancelled = client.is_cancelling and event.status != 0
                self._move(job, client, ClientState.CANCELLED if is_cancelled else state, text)
        if event.is_gone:
            told = BatchJob(job.job_id, job.name, BatchState.ENDED, text)
            self._tell_site(JobAnswered(job.name, (told,)))
        elif not job.clients:
            self._tell_site(JobEnding(job.name))

    # What is known of jobs ----------------------------------------------------------------------------------

    def _tell_site(self, event: SiteEvent) -> None:
        if self.state is LauncherState.STOPPED:
            return
        for action in self._site.handle(event, self.now):
            match action:
                case SubmitJob(name=name):
                    job = self._jobs[name]
                    self.actions.append(job.submission(self._options.load_from_checkpoint))
                case ListQueue():
                    self.actions.append(ListEngine(self._calls.begin(ListQueue, "")))
                case AskJob(name=name, job_id=job_id):
                    self.actions.append(ListEngine(self._calls.begin(AskJob, name), job_id))
                case CancelJob(name=name, job_id=job_id):
                    self.actions.append(CancelAtEngine(self._calls.begin(CancelJob, name), name, job_id))
                case JobMoved():
                    self._job_moved(action)
                case JobOver():
                    self._job_over(action)

    def _job_moved(self, action: JobMoved) -> None:
        job = self._jobs[action.name]
        job.job_id = action.job_id
        if action.state is None:
            return
        self._facts.job(job, CLIENT_STATES[action.state], action.text)
        if job is self._servers.get(self._incarnation) and self.state is LauncherState.SUBMITTING:
            self._enter(LauncherState.AWAITING)
        for client in list(job.clients):
            self._move(job, client, CLIENT_STATES[action.state], action.text)

    def _job_over(self, action: JobOver) -> None:
        job = self._jobs.pop(action.name)
        self._facts.job(job, "gone", action.reason)
        if job is self._servers.get(self._incarnation):
            # An engine that refuses a job may take one when the jobs are gone that are just being cancelled.
            pause_s = self._options.timer_interval_s if action.how == "refused" else 0.0
            self._server_lost(action.reason, pause_s)
        for client in list(job.clients):
            if client.is_cancelling:
                state = ClientState.CANCELLED
            elif action.how == "refused":
                state = ClientState.NOT_SUBMITTED
            else:
                state = ClientState.FAILED
            self._move(job, client, state, action.reason)
