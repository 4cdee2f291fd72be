"""The launcher under arbitrary events, beside an engine of which it sees only what the engine says.

The engine takes jobs or not, lets them run and end; its answers come late, or say nothing. Servers connect,
come back, fall silent and ask for clients.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

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
    ServerPing,
    Signal,
    Stop,
    StudyDone,
    SubmitClients,
    SubmitFailed,
    Submitted,
    SubmitToEngine,
    ToServer,
)
from gspc_trio.components.launcher.machine import Launcher
from gspc_trio.components.launcher.options import LauncherOptions
from gspc_trio.components.launcher.snapshot import decode_snapshot, encode_snapshot, restore, snapshot_of
from gspc_trio.components.launcher.states import LauncherState
from gspc_trio.components.provision.batch import BatchJob, BatchState
from gspc_trio.core.machine import Tick
from gspc_trio.records.facts import StudyChanged, StudyClientChanged, StudyJobChanged
from gspc_trio.records.study import StudyProgress

LIMIT = 3
ALIVE = (BatchState.QUEUED, BatchState.HELD, BatchState.RUNNING)
ids = st.integers(1, 4)


class LauncherModel(RuleBasedStateMachine):
    """What really is: the jobs of the engine, open connections, what servers were told."""

    def __init__(self) -> None:
        super().__init__()
        self.options = LauncherOptions(scheduler="slurm", job_limit=LIMIT, group_size=2)
        self.machine = Launcher(self.options, "s", records=True)
        self.fold = StudyProgress()
        self.now = 0.0
        self.connections = 0
        self.requests = 0
        self.calls: dict[int, SubmitToEngine | ListEngine | CancelAtEngine] = {}
        self.there: dict[str, BatchJob] = {}
        self.submissions: dict[str, SubmitToEngine] = {}
        self.accepted: int | None = None
        self.served: list[int] = []
        self.clients: dict[int, ClientState] = {}
        self.open_requests: dict[int, SubmitClients | CancelClient] = {}
        self.stop: Stop | None = None

    @initialize()
    def start(self) -> None:
        self.give(Tick())

    # What the launcher does ---------------------------------------------------------------------------------

    def give(self, event: LauncherEvent) -> None:
        actions = self.machine.handle(event, self.now)
        self.machine.check()
        refused = any(isinstance(one, RefuseConnection) for one in actions)
        if isinstance(event, NewConnection) and not refused and self.stop is None:
            self.accept(event)
        for action in actions:
            assert self.stop is None, "something follows the stop"
            self.perform(action)

    def accept(self, event: NewConnection) -> None:
        assert self.accepted is None, "two servers at once"
        assert event.incarnation is not None
        assert not self.served or self.served[-1] < event.incarnation, "an old server"
        self.accepted = event.connection
        self.served.append(event.incarnation)

    def perform(self, action: LauncherAction) -> None:
        match action:
            case SubmitToEngine(uid=uid, name=name):
                assert action.client_ids == () or self.served[-1:] == [action.incarnation]
                assert name not in self.submissions
                self.submissions[name] = self.calls[uid] = action
            case ListEngine(uid=uid) | CancelAtEngine(uid=uid):
                assert uid not in self.calls
                self.calls[uid] = action
            case SendToServer(connection=connection, body=body):
                assert connection == self.accepted, "told to a server that is none"
                self.told(body)
            case PingServer(connection=connection) | CloseConnection(connection=connection):
                assert connection == self.accepted
                if isinstance(action, CloseConnection):
                    self.server_gone()
            case Stop():
                self.stop = action
            case StudyChanged() | StudyJobChanged() | StudyClientChanged():
                self.fold.apply(action)
            case RefuseConnection() | KillCommands() | EndClient():
                pass

    def told(self, body: ToServer) -> None:
        match body:
            case ClientMoved(client_id=client_id, state=state):
                assert state in CLIENT_TRANSITIONS[self.clients[client_id]], "told twice, or out of order"
                self.clients[client_id] = state
            case RequestAccepted(request=request):
                asked = self.open_requests.pop(request)
                if isinstance(asked, SubmitClients):
                    assert all(self.has_ended(one) for one in asked.client_ids), "runs already"
                    self.clients |= dict.fromkeys(asked.client_ids, ClientState.POSTPONED)
                else:
                    assert not self.has_ended(asked.client_id)
            case RequestRefused(request=request):
                asked = self.open_requests.pop(request)
                if isinstance(asked, CancelClient):
                    assert self.has_ended(asked.client_id)

    @invariant()
    def records_tell_the_same(self) -> None:
        changed = self.fold.changed
        assert changed is not None
        assert changed.state == self.machine.state
        told = {client_id: client.state for client_id, client in self.fold.clients.items()}
        if self.accepted is not None:
            live = {one: state for one, state in self.clients.items() if not self.has_ended(one)}
            assert told == live
            assert changed.incarnation == self.served[-1]
        assert len(self.fold.jobs) <= LIMIT
        assert {job.uid for job in self.fold.jobs.values()} <= {one.uid for one in self.submissions.values()}

    def has_ended(self, client_id: int) -> bool:
        state = self.clients.get(client_id)
        return state is None or not CLIENT_TRANSITIONS[state]

    def server_gone(self) -> None:
        self.accepted = None
        self.clients.clear()

    # The engine ---------------------------------------------------------------------------------------------

    def answer(self, uid: int, is_taken: bool, is_told: bool) -> None:
        """Answer a call.

        Args:
            uid: of the call.
            is_taken: whether the engine does what it was asked for.
            is_told: whether it says so.
        """
        call = self.calls.pop(uid)
        match call:
            case SubmitToEngine(name=name):
                job_id = str(1000 + uid)
                if is_taken:
                    self.there.setdefault(name, BatchJob(job_id, name, BatchState.QUEUED))
                if is_taken or not is_told:
                    self.give(Submitted(uid, job_id if is_told else None))
                else:
                    self.give(SubmitFailed(uid, "no"))
            case ListEngine(job_id=job_id):
                jobs = tuple(job for job in self.there.values() if job_id in ("", job.job_id))
                self.give(Listed(uid, jobs) if is_told else ListFailed(uid, "busy"))
            case CancelAtEngine(name=name):
                if is_taken:
                    self.there.pop(name, None)
                self.give(Cancelled(uid))

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), is_taken=st.booleans(), is_told=st.booleans())
    def call_ends(self, data: st.DataObject, is_taken: bool, is_told: bool) -> None:
        self.answer(data.draw(st.sampled_from(sorted(self.calls))), is_taken, is_told)

    @rule()
    def another_program_goes_on(self) -> None:
        """It knows what this one has known, and so does what this one would have done."""
        known = encode_snapshot(snapshot_of(self.machine))
        other = Launcher(self.options, "s", records=True)
        restore(other, decode_snapshot(known))
        other.check()
        assert encode_snapshot(snapshot_of(other)) == known
        assert other.deadline() == self.machine.deadline()
        assert vars(other).keys() == vars(self.machine).keys()
        self.machine = other

    @precondition(lambda self: self.calls)
    @rule()
    def calls_end(self) -> None:
        for uid in sorted(self.calls):
            self.answer(uid, is_taken=True, is_told=True)

    @precondition(lambda self: self.there)
    @rule(data=st.data(), state=st.sampled_from(ALIVE))
    def job_moves(self, data: st.DataObject, state: BatchState) -> None:
        name = data.draw(st.sampled_from(sorted(self.there)))
        self.there[name] = BatchJob(self.there[name].job_id, name, state)

    @precondition(lambda self: self.there)
    @rule(data=st.data(), status=st.integers(0, 1), says=st.booleans(), is_gone=st.booleans())
    def job_ends(self, data: st.DataObject, status: int, says: bool, is_gone: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.there)))
        del self.there[name]
        if says:
            self.give(CommandExited(self.submissions[name].uid, status, None, is_gone))

    @precondition(lambda self: self.there)
    @rule(data=st.data(), status=st.integers(0, 1))
    def member_ends(self, data: st.DataObject, status: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.there)))
        if members := self.submissions[name].client_ids:
            self.give(CommandExited(self.submissions[name].uid, status, data.draw(st.sampled_from(members))))

    # Servers ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.submissions)
    @rule(data=st.data(), is_newest=st.booleans())
    def connect(self, data: st.DataObject, is_newest: bool) -> None:
        servers = [one.incarnation for one in self.submissions.values() if not one.client_ids]
        incarnation = max(servers) if is_newest else data.draw(st.sampled_from([None, *servers]))
        self.connections += 1
        self.give(NewConnection(self.connections, incarnation))

    @precondition(lambda self: self.accepted)
    @rule()
    def connection_ends(self) -> None:
        connection = self.accepted
        assert connection is not None
        self.give(ConnectionShutdown(connection))
        assert self.accepted is None

    def say(self, body: SubmitClients | CancelClient) -> None:
        assert self.accepted is not None
        self.open_requests[body.request] = body
        self.give(Message(self.accepted, body))
        assert body.request not in self.open_requests, "a request without an answer"

    @precondition(lambda self: self.accepted)
    @rule(client_ids=st.lists(ids, max_size=3))
    def want(self, client_ids: list[int]) -> None:
        self.requests += 1
        self.say(SubmitClients(self.requests, tuple(client_ids), ("solve",)))

    @precondition(lambda self: self.accepted)
    @rule(client_id=ids)
    def cancel(self, client_id: int) -> None:
        self.requests += 1
        self.say(CancelClient(self.requests, client_id))

    @precondition(lambda self: self.accepted)
    @rule()
    def ping(self) -> None:
        assert self.accepted is not None
        self.give(Message(self.accepted, ServerPing()))

    @precondition(lambda self: self.connections)
    @rule(data=st.data())
    def late(self, data: st.DataObject) -> None:
        connection = data.draw(st.integers(1, self.connections))
        if connection != self.accepted:
            self.give(Message(connection, StudyDone()))
            self.give(ConnectionShutdown(connection))

    # Time ---------------------------------------------------------------------------------------------------

    @rule(more_s=st.sampled_from([0.0, 0.0, 0.0, 1.0, 100.0]))
    def tick(self, more_s: float) -> None:
        due = self.machine.deadline()
        if due is not None:
            self.now = max(self.now, due) + more_s
            self.give(Tick())

    @invariant()
    def no_more_jobs_than_allowed(self) -> None:
        under_way = {one.name for one in self.calls.values() if isinstance(one, SubmitToEngine)}
        assert len(under_way | self.there.keys()) <= LIMIT

    @invariant()
    def a_server_is_connected_if_and_only_if_the_launcher_serves(self) -> None:
        assert (self.accepted is not None) == (self.machine.state is LauncherState.SERVING)

    @precondition(lambda self: self.accepted)
    @rule()
    def what_was_told_is_true_after_a_list(self) -> None:
        for _ in range(3):
            self.calls_end()
        while not any(isinstance(call, ListEngine) and not call.job_id for call in self.calls.values()):
            if self.accepted is not None:
                self.ping()
            self.tick(0.0)
        self.calls_end()
        real = {name: job.state.value for name, job in self.there.items() if name in self.submissions}
        newest = {one: call for call in self.submissions.values() for one in call.client_ids}
        for client_id, state in self.clients.items():
            if not self.has_ended(client_id) and state is not ClientState.POSTPONED:
                assert state.value == real.get(newest[client_id].name, state.value)

    # The end ------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """After a signal, and with an engine that answers, nothing of the study is left in the end."""
        self.give(Signal(2))
        end = self.now + 30
        while self.stop is None:
            while self.calls:
                uid = min(self.calls)
                self.answer(uid, is_taken=not isinstance(self.calls[uid], SubmitToEngine), is_told=True)
            due = self.machine.deadline()
            if self.stop is None and due is not None:
                self.now = max(self.now, due)
                self.give(Tick())
        assert self.now <= end
        assert not self.there, "jobs are left"
        self.give(Signal(15))


LauncherModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestLauncher = LauncherModel.TestCase
