"""Studies: one server at a time, no more jobs than may be, all told once and truly, nothing left."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from attrs import define, field

from gspc_trio.components.launcher.events import (
    CLIENT_TRANSITIONS,
    CancelAtEngine,
    CancelClient,
    ClientMoved,
    ClientState,
    CloseConnection,
    ConnectionShutdown,
    EndClient,
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
    Submitted,
    SubmitToEngine,
    ToServer,
)
from gspc_trio.components.launcher.options import LauncherOptions
from gspc_trio.components.provision.batch import BatchState
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.simulated.process import SimulatedProcess

SLACK_S = 0.001

SERVERS_MAX = 3
"""So many servers in a row that end unconnected stop a study."""

_TOLD = {
    BatchState.QUEUED: ClientState.QUEUED,
    BatchState.HELD: ClientState.HELD,
    BatchState.RUNNING: ClientState.RUNNING,
}


@define(eq=False)
class _Job:
    """A job that the launcher has asked for.

    Attributes:
        asked: how.
        told_at: when the launcher heard its id, None as long as it has not.
        has_cancel: the launcher has cancelled it at least once.
        there: it is at the batch system; ``was_there``: it was at some time.
        exits: client -> statuses of its command; None: the server.
    """

    asked: SubmitToEngine
    told_at: float | None = None
    has_cancel: bool = False
    there: bool = False
    was_there: bool = False
    exits: dict[int | None, list[int]] = field(factory=dict)


class StudyChecks:
    """Sees what the launcher takes and does, and what really becomes of its jobs.

    Args:
        options: of the study.
        fail: told of what does not hold.
        unclear: tells whether the batch system has failed to answer between now and an earlier time.
    """

    def __init__(
        self,
        options: LauncherOptions,
        fail: Callable[[BaseException], None],
        unclear: Callable[[float], bool],
    ) -> None:
        self.stop: Stop | None = None
        self.connections: int = 0
        self.told: int = 0
        self._options = options
        self._fail = fail
        self._unclear = unclear
        self._jobs: dict[str, _Job] = {}
        self._names: dict[str, str] = {}
        """Id at the batch system -> name."""
        self._uid = -1
        self._newest = -1
        self._accepted: tuple[int, int] | None = None
        """Connection and incarnation of the server that is accepted."""
        self._were_accepted: set[int] = set()
        self._returning = False
        """The launcher was killed while a server was accepted: that may connect once more."""
        self._told_again: set[int] | None = None
        """Clients of which a server that has come back was told, as long as it is being told."""
        self._done: set[int] = set()
        """Requests of the server that were accepted."""
        self._heard_at = 0.0
        self._clients: dict[int, ClientState] = {}
        self._job_of: dict[int, _Job] = {}
        self._cancelled: set[int] = set()
        self._waiting: list[list[int]] = []
        """Clients that wait for a place, job by job."""
        self._request: SubmitClients | CancelClient | None = None
        """What the server has asked for, as long as it is not answered."""
        self._is_stale = self._is_told_stale = False
        self._lists: dict[int, float] = {}
        """Lists under way -> when they were asked for."""
        self._ends_at = self._grace_from = math.inf
        self._status = 1
        """Why the study ends, as an exit status, since when, and since when the launcher waits for that."""

    # What really is -----------------------------------------------------------------------------------------

    def submitted(self, owner: SimulatedProcess, job_id: str, name: str) -> None:
        """A job is in the queue."""
        del owner
        job = self._jobs[name]
        self._names[job_id] = name
        if job.was_there:
            self._fail(Broken(f"{name} was submitted twice", name))
        job.there = job.was_there = True
        if (count := len(self.there())) > self._options.job_limit:
            self._fail(Broken(f"{count} jobs are there, and {self._options.job_limit} may be", name))

    def excuse(self, job_id: str) -> None:
        """Nothing is excused: the launcher has to find out."""

    def ended(self, job_id: str) -> None:
        """It is over with a job."""
        self._jobs[self._names[job_id]].there = False

    def exited(self, name: str, client_id: int | None, status: int) -> None:
        """The command of a client, or of a server, has ended."""
        self._jobs[name].exits.setdefault(client_id, []).append(status)

    def there(self) -> list[str]:
        """Return the names of the jobs that are at the batch system."""
        return [name for name, job in self._jobs.items() if job.there]

    # What the launcher sees and does ------------------------------------------------------------------------

    def saw(self, event: LauncherEvent, now: float, actions: Sequence[LauncherAction]) -> None:
        """Take an event of the launcher.

        Raises:
            Broken: something does not hold.
        """
        self._take(event, now, actions)
        for action in actions:
            if self.stop is not None:
                raise Broken("something follows the stop")
            self._perform(action, event, now)
        if self._request is not None:
            raise Broken(f"{self._request} is not answered")
        if self._told_again is not None:
            self._all_is_told_again(self._told_again)
        if isinstance(event, Listed):
            self._states_are_told(event)
        if isinstance(event, Listed | ListFailed):
            self._lists.pop(event.uid, None)
        self._old_ones_are_cancelled(now)
        if self._accepted is not None:
            if now > self._heard_at + self._dead_s + SLACK_S:
                raise Broken(f"a server is silent since {self._heard_at:.3f} s, and is not given up")
            if self._is_stale != self._is_told_stale:
                raise Broken("the server is not told whether states are stale")

    def _old_ones_are_cancelled(self, now: float) -> None:
        # A server that has said that it is done has half the grace to end by itself.
        ends_at = self._ends_at if self._status else self._grace_from + self._options.stop_grace_s / 2
        for name, job in self._jobs.items():
            lasts_until = self._ends_at if job.asked.client_ids else ends_at
            is_wanted = job.asked.incarnation == self._newest and now < lasts_until
            if job.there and job.told_at is not None and not (is_wanted or job.has_cancel):
                raise Broken(f"nobody cancels {name}", name)

    def _all_is_told_again(self, told: set[int]) -> None:
        known = {one for one, state in self._clients.items() if state is not ClientState.POSTPONED}
        if known - told:
            raise Broken(f"the server is not told again of {sorted(known - told)}")
        self._told_again = None

    @property
    def _dead_s(self) -> float:
        return 2 * self._options.timer_interval_s

    def _take(self, event: LauncherEvent, now: float, actions: Sequence[LauncherAction]) -> None:
        match event:
            case NewConnection():
                refused = any(isinstance(one, RefuseConnection) for one in actions)
                if not refused and self.stop is None:
                    self._accept(event, now)
            case Message(connection=connection, body=body):
                if self._accepted is not None and connection == self._accepted[0]:
                    self._heard_at = now
                    self._request = body if isinstance(body, SubmitClients | CancelClient) else None
                    if isinstance(body, StudyDone):
                        self._ends(0, now)
            case Submitted(job_id=str()):
                for job in self._jobs.values():
                    if job.asked.uid == event.uid:
                        job.told_at = now
            case Listed():
                self._is_stale = False
            case ListFailed():
                self._is_stale = True
            case Signal(number=number):
                self._ends(128 + number, now)
            case LauncherResumed():
                self._returning = self._returning or self._accepted is not None
                self._accepted = None
                self._grace_from = now

    def _ends(self, status: int, now: float) -> None:
        if self._ends_at == math.inf:
            self._ends_at, self._grace_from, self._status = now, now, status

    def _accept(self, event: NewConnection, now: float) -> None:
        self.connections += 1
        if self._accepted is not None:
            raise Broken("two servers are accepted at once")
        if event.incarnation is None or event.incarnation != self._newest:
            raise Broken(f"server {event.incarnation} is accepted, and the newest is {self._newest}")
        if event.incarnation in self._were_accepted and not self._returning:
            raise Broken(f"server {event.incarnation} is accepted a second time")
        if self._ends_at < math.inf:
            raise Broken("a server is accepted while the study stops")
        self._were_accepted.add(event.incarnation)
        self._told_again = set() if self._returning else None
        self._returning = False
        self._accepted, self._heard_at = (event.connection, event.incarnation), now
        self._is_told_stale = False

    def _perform(self, action: LauncherAction, event: LauncherEvent, now: float) -> None:
        match action:
            case SubmitToEngine():
                self._submit(action)
            case ListEngine(uid=uid):
                self._call(uid)
                if not action.job_id:
                    self._lists[uid] = now
            case CancelAtEngine(uid=uid, name=name):
                self._call(uid)
                self._jobs[name].has_cancel = True
            case EndClient(uid=uid):
                self._call(uid)
            case SendToServer(connection=connection):
                self._is_to_server(connection)
                self._tell(action.body)
            case PingServer(connection=connection):
                self._is_to_server(connection)
            case CloseConnection(connection=connection):
                self._is_to_server(connection)
                self._closed(action, event, now)
            case Stop():
                self._stopped(action, now)

    def _is_to_server(self, connection: int) -> None:
        if self._accepted is None or connection != self._accepted[0]:
            raise Broken(f"connection {connection} is not that of the server")

    def _call(self, uid: int) -> None:
        if uid <= self._uid:
            raise Broken(f"call {uid} of the engine comes after {self._uid}")
        self._uid = uid

    def _submit(self, action: SubmitToEngine) -> None:
        self._call(action.uid)
        if action.name in self._jobs:
            raise Broken(f"two jobs are called {action.name}", action.name)
        job = self._jobs[action.name] = _Job(action)
        if self._ends_at < math.inf:
            raise Broken(f"{action.name} is submitted while the study stops", action.name)
        if not action.client_ids:
            if self._accepted is not None:
                raise Broken("a server is submitted while there is one")
            if action.incarnation != self._newest + 1:
                raise Broken(f"server {action.incarnation} follows server {self._newest}")
            if action.from_checkpoint != (action.incarnation > 0):
                raise Broken(f"server {action.incarnation} goes on from a checkpoint, or does not")
            self._newest = action.incarnation
            self._forget()
            return
        has_server = self._accepted is not None or self._returning
        if not has_server or action.incarnation != self._newest:
            raise Broken("clients are submitted without the server that wants them")
        self._submit_clients(action, job)

    def _submit_clients(self, action: SubmitToEngine, job: _Job) -> None:
        ids = self._waiting.pop(0) if self._waiting else []
        if list(action.client_ids) != ids:
            raise Broken(f"clients {action.client_ids} are submitted, and not {ids}")
        for client_id in ids:
            self._job_of[client_id] = job

    # The server ---------------------------------------------------------------------------------------------

    def _closed(self, action: CloseConnection, event: LauncherEvent, now: float) -> None:
        assert self._accepted is not None
        is_silent = now >= self._heard_at + self._dead_s - SLACK_S
        is_shut = isinstance(event, ConnectionShutdown) and event.connection == action.connection
        is_over = not self._server(self._accepted[1]).there
        is_to_stop = self._ends_at < math.inf or not self._options.fault_tolerance
        if not (is_silent or is_shut or is_over or is_to_stop):
            raise Broken(f"a server is closed that lives: {action.reason}")
        self._forget()

    def _forget(self) -> None:
        """It is over with a server, and with all that it has asked for."""
        self._accepted, self._returning = None, False
        for kept in (self._clients, self._job_of, self._cancelled, self._waiting, self._done):
            kept.clear()

    def _server(self, incarnation: int) -> _Job:
        """Return the job of a server."""
        servers = [job for job in self._jobs.values() if not job.asked.client_ids]
        return servers[incarnation]

    def _tell(self, body: ToServer) -> None:
        match body:
            case ClientMoved(client_id=client_id, state=state):
                self.told += 1
                before = self._clients.get(client_id)
                is_again = self._told_again is not None
                if self._told_again is not None:
                    self._told_again.add(client_id)
                if before is None or not may_follow(before, state, is_again):
                    raise Broken(f"client {client_id} is told to be {state} after {before}")
                self._clients[client_id] = state
                if not CLIENT_TRANSITIONS[state] and CLIENT_TRANSITIONS[before]:
                    self._check_end(client_id, state)
            case StatesStale() | StatesFresh():
                is_stale = isinstance(body, StatesStale)
                if is_stale is self._is_told_stale:
                    raise Broken("the server is told twice whether states are stale")
                self._is_told_stale = is_stale
            case RequestAccepted() | RequestRefused():
                asked, self._request = self._request, None
                if asked is None or asked.request != body.request:
                    raise Broken(f"request {body.request} is answered, and was not made")
                is_done = asked.again and asked.request in self._done
                if isinstance(body, RequestAccepted) != (is_done or self._may(asked)):
                    raise Broken(f"{asked} is answered with {body}")
                if isinstance(body, RequestAccepted) and not is_done:
                    self._done.add(asked.request)
                    self._accepts(asked)

    def _may(self, asked: SubmitClients | CancelClient) -> bool:
        """Return whether what was asked can be done."""
        if isinstance(asked, CancelClient):
            return self._lives(asked.client_id)
        ids = asked.client_ids
        are_few = 0 < len(set(ids)) == len(ids) <= self._options.group_size
        return are_few and bool(asked.command) and not any(map(self._lives, ids))

    def _lives(self, client_id: int) -> bool:
        state = self._clients.get(client_id)
        return state is not None and bool(CLIENT_TRANSITIONS[state])

    def _accepts(self, asked: SubmitClients | CancelClient) -> None:
        if isinstance(asked, CancelClient):
            self._cancelled.add(asked.client_id)
        else:
            self._clients |= dict.fromkeys(asked.client_ids, ClientState.POSTPONED)
            self._waiting.append(list(asked.client_ids))

    def _check_end(self, client_id: int, state: ClientState) -> None:
        """What is told of the end of a client is true."""
        was_cancelled = client_id in self._cancelled
        self._cancelled.discard(client_id)
        if state is ClientState.CANCELLED and not was_cancelled:
            raise Broken(f"client {client_id} is told to be cancelled, and nobody has asked for that")
        if was_cancelled and state not in (ClientState.CANCELLED, ClientState.COMPLETED):
            raise Broken(f"client {client_id} is told to be {state}, and was cancelled")
        if client_id not in self._job_of:
            waiting = next(ids for ids in self._waiting if client_id in ids)
            waiting.remove(client_id)
            if not waiting:
                self._waiting.remove(waiting)
            return
        job = self._job_of.pop(client_id)
        exits, name = job.exits.get(client_id, ()), job.asked.name
        if state is ClientState.COMPLETED and 0 not in exits:
            raise Broken(f"client {client_id} is told to have completed, and has not", name)
        if state is not ClientState.COMPLETED and job.there and not any(exits):
            raise Broken(f"client {client_id} is told to be {state}, and may run", name)
        # Of a job that ends before any list has it nobody hears but by the answer to its submission.
        is_known = job.there or job.told_at is not None
        if state is ClientState.NOT_SUBMITTED and job.was_there and is_known:
            raise Broken(f"client {client_id} is told not to have been submitted, and was", name)

    def _states_are_told(self, event: Listed) -> None:
        """After a list of all jobs each client is where the list says."""
        began = self._lists.get(event.uid)
        states = {told.name: _TOLD.get(told.state) for told in event.jobs}
        if began is None or self._accepted is None:
            return
        for client_id, job in self._job_of.items():
            state = states.get(job.asked.name)
            is_old = job.told_at is not None and job.told_at <= began
            if is_old and state is not None and self._clients[client_id] is not state:
                raise Broken(f"client {client_id} is {state}, and is told to be {self._clients[client_id]}")

    # The end ------------------------------------------------------------------------------------------------

    def _stopped(self, stop: Stop, now: float) -> None:
        self.stop = stop
        last = range(max(0, self._newest - SERVERS_MAX + 1), self._newest + 1)
        is_given_up = len(last) == SERVERS_MAX and not self._were_accepted.intersection(last)
        if stop.status == 1 and not (is_given_up or not self._options.fault_tolerance):
            raise Broken(f"the study is given up too early: {stop.reason}")
        if stop.status not in (1, self._status):
            raise Broken(f"the study ends with status {stop.status}, and not {self._status}: {stop.reason}")
        grace_s = self._options.stop_grace_s
        began = (
            self._grace_from if stop.status == self._status and self._ends_at < math.inf else now - grace_s
        )
        named = {name.partition(" ")[0] for name in stop.left}
        if now > began + grace_s + SLACK_S or (named and now < began + grace_s - SLACK_S):
            raise Broken(f"the study begins to end at {began:.3f} s, and ends with {len(named)} jobs left")
        for name in self.there():
            if name not in named:
                raise Broken(f"{name} is left, and nobody says so", name)
            if not self._unclear(began):
                raise Broken(f"{name} is left, though the batch system has answered", name)


def may_follow(before: ClientState, state: ClientState, is_again: bool) -> bool:
    """Return whether a client may be told to be in a state.

    Args:
        before: what was told last.
        state: the other.
        is_again: all is told again, and only where each client is now.
    """
    there, more = {before}, [before]
    while is_again and more:
        follow = CLIENT_TRANSITIONS[more.pop()] - there
        there |= follow
        more += follow
    return state in there if is_again else state in CLIENT_TRANSITIONS[before]
