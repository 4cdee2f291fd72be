"""Jobs, clients and calls of the engine as a launcher keeps them; jobs wait for a place in order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Sequence
from typing import TypeVar

from msgspec import Struct

from gspc_trio.components.launcher.events import (
    CLIENT_TRANSITIONS,
    CancelClient,
    ClientMoved,
    ClientState,
    SubmitClients,
    SubmitToEngine,
)
from gspc_trio.components.provision.batch import BatchState
from gspc_trio.components.provision.site import (
    AskJob,
    CancelAnswered,
    CancelJob,
    JobAnswered,
    JobsListed,
    ListQueue,
    SiteEvent,
    SubmitAnswered,
    SubmitJob,
)
from gspc_trio.core.machine import IllegalEvent

T = TypeVar("T")

POSTPONED_MAX = 100_000
"""Jobs of clients that may wait for a place; more are refused."""

POSTPONED_CHARACTERS_MAX = 64 << 20
"""Of the commands of all of them."""

COMMAND_CHARACTERS_MAX = 64 << 10
"""Of the program and the arguments of a client; the system takes little more."""

RETURN_KEPT = 100_000
"""So many requests and so many states of clients, the last ones, are kept for a server that comes back.

What is older has reached it: it answers pings, and reads in order.
"""


SERVERS_KEPT = 100
"""Jobs of the last servers are kept, and cancelled once more should their servers connect.

That those before them are gone was confirmed long ago.
"""

_UNANSWERED: dict[type[object], Callable[[str], SiteEvent]] = {
    SubmitJob: lambda name: SubmitAnswered(name, None),
    CancelJob: CancelAnswered,
    ListQueue: lambda _: JobsListed(None),
    AskJob: lambda name: JobAnswered(name, None),
}
"""Kind of a call of the engine -> what is said of it when nobody hears its answer."""


CLIENT_STATES = {
    BatchState.QUEUED: ClientState.QUEUED,
    BatchState.HELD: ClientState.HELD,
    BatchState.RUNNING: ClientState.RUNNING,
}
"""Where a job is at its engine -> where its clients are."""


class EngineCalls:
    """Calls of the engine that have not ended; each has a number of its own."""

    def __init__(self) -> None:
        self._next = 0
        self._calls: dict[int, tuple[type[object], str]] = {}
        """Number of a call -> its kind, and the job that it is about, "" for none."""

    def __bool__(self) -> bool:
        return bool(self._calls)

    def next_uid(self) -> int:
        """Return a number that no call has."""
        self._next += 1
        return self._next - 1

    def begin(self, kind: type[object], name: str) -> int:
        """Return the number of a call that begins."""
        uid = self.next_uid()
        self.begin_as(uid, kind, name)
        return uid

    def begin_as(self, uid: int, kind: type[object], name: str) -> None:
        """Begin a call by a number."""
        self._calls[uid] = kind, name

    def is_under_way(self, kind: type[object], name: str) -> bool:
        """Return whether there is a call of this kind about a job."""
        return (kind, name) in self._calls.values()

    def end(self, uid: int, *kinds: type[object]) -> tuple[type[object], str]:
        """Return what a call was, which has ended.

        Raises:
            IllegalEvent: there is none by this number, or it is of another kind.
        """
        if self._calls.get(uid, (None,))[0] not in kinds:
            raise IllegalEvent(f"no such call of the engine is under way with the number {uid}")
        return self._calls.pop(uid)

    def state(self) -> tuple[int, dict[int, tuple[str, str]]]:
        """Return all of this; see :meth:`restore`."""
        return self._next, {uid: (kind.__name__, name) for uid, (kind, name) in self._calls.items()}

    def restore(self, state: tuple[int, dict[int, tuple[str, str]]]) -> None:
        """Be as calls were that have returned this state."""
        kinds = {kind.__name__: kind for kind in _UNANSWERED}
        self._next, calls = state
        self._calls = {uid: (kinds[kind], name) for uid, (kind, name) in calls.items()}

    def end_all(self) -> list[SiteEvent]:
        """Return what is to be said of all calls, whose answers nobody hears any more."""
        calls, self._calls = self._calls, {}
        return [_UNANSWERED[kind](name) for kind, name in calls.values()]


class LaunchedClient(Struct, eq=False):
    """A client that has not ended."""

    client_id: int
    state: ClientState = ClientState.POSTPONED
    is_cancelling: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether it goes nowhere any more."""
        return not CLIENT_TRANSITIONS[self.state]


class LaunchedJob(Struct, eq=False):
    """A job, from the time it is wanted.

    Attributes:
        incarnation: of the server that it is, or that has asked for it.
        clients: those of its clients that have not ended; none for a server, and when their server is over.
        command: of each client.
        client_ids: of all its clients; none for a server.
        uid, name, job_id: of its submission, of the job, and what the engine calls it.
        told: its state and its id, as the last record of it says.
    """

    incarnation: int
    clients: list[LaunchedClient]
    command: tuple[str, ...]
    client_ids: tuple[int, ...]
    uid: int = -1
    name: str = ""
    job_id: str = ""
    told: tuple[str, str] = ("", "")

    @property
    def asked(self) -> SubmitToEngine:
        """Return what was submitted."""
        return SubmitToEngine(self.uid, self.name, self.incarnation, self.client_ids, self.command)

    def submission(self, is_from_checkpoint: bool) -> SubmitToEngine:
        """Return what submits the job.

        Args:
            is_from_checkpoint: whether the first server, too, goes on from a checkpoint.
        """
        ids = tuple(client.client_id for client in self.clients)
        again = not ids and (self.incarnation > 0 or is_from_checkpoint)
        return SubmitToEngine(self.uid, self.name, self.incarnation, ids, self.command, from_checkpoint=again)


class JobsAtEngine(dict[str, LaunchedJob]):
    """Jobs that were submitted and are not known to be gone, by name.

    Args:
        job_limit: the most jobs of the engine at a time.
        per_server: how many of them there are for a server.
    """

    def __init__(self, job_limit: int, per_server: int) -> None:
        super().__init__()
        self.per_server = per_server
        self._job_limit = job_limit

    @property
    def free(self) -> int:
        """Number of jobs of clients that there may be more."""
        count = len(self)
        if self.per_server > 1:
            count += (self.per_server - 1) * sum(not job.client_ids for job in self.values())
        return self._job_limit - count


class PostponedJobs:
    """Jobs that wait for a place; who came first gets the first."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[LaunchedJob, int] = OrderedDict()
        self._characters = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: LaunchedJob) -> bool:
        return job in self._jobs

    @property
    def is_full(self) -> bool:
        """Whether no more may wait."""
        return len(self._jobs) >= POSTPONED_MAX or self._characters >= POSTPONED_CHARACTERS_MAX

    @property
    def problem(self) -> str:
        """Why no more may wait, or ""."""
        if not self.is_full:
            return ""
        return f"{len(self)} jobs of clients wait for a place: ask for more when some have ended"

    def add(self, job: LaunchedJob) -> None:
        """Let a job wait, as the last one."""
        self._jobs[job] = size = sum(map(len, job.command))
        self._characters += size

    def __iter__(self) -> Iterator[LaunchedJob]:
        return iter(self._jobs)

    def take_first(self) -> LaunchedJob:
        """Return the first of them, which waits no longer."""
        job, size = self._jobs.popitem(last=False)
        self._characters -= size
        return job

    def remove(self, job: LaunchedJob) -> None:
        """Forget one of them."""
        self._characters -= self._jobs.pop(job)

    def clear(self) -> None:
        """Forget all of them."""
        self._jobs.clear()
        self._characters = 0


class LastByNumber(OrderedDict[int, T]):
    """What was kept last, by number.

    Args:
        most: so many are kept; the oldest is forgotten when there are more.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, number: int, value: T) -> None:
        """Keep a value as the newest, in the place of an earlier one of this number."""
        self[number] = value
        self.move_to_end(number)
        if len(self) > self._most:
            self.popitem(last=False)


class ServerLiveness(Struct):
    """When a server that is connected was heard of, and when it is asked for a sign of life.

    Attributes:
        interval_s: between two such questions; it is dead after twice that in silence.
        heard_at: when something was heard of it.
        ping_at: when it is asked next.
    """

    interval_s: float
    heard_at: float = 0.0
    ping_at: float = 0.0

    @property
    def silent_s(self) -> float:
        """So long a server may be silent."""
        return 2 * self.interval_s

    @property
    def due_at(self) -> float:
        """When to look."""
        return min(self.ping_at, self.heard_at + self.silent_s)

    def begin(self, now: float) -> None:
        """Note that it has connected."""
        self.heard_at, self.ping_at = now, now + self.interval_s

    def is_over(self, now: float) -> bool:
        """Return whether it is dead."""
        if now - self.ping_at > self.interval_s:  # the launcher could not listen itself
            self.heard_at = max(self.heard_at, now - self.interval_s)
        return now >= self.heard_at + self.silent_s

    def wants_ping(self, now: float) -> bool:
        """Return whether to ask it now."""
        is_due = now >= self.ping_at
        if is_due:
            self.ping_at = now + self.interval_s
        return is_due


def last_servers() -> LastByNumber[LaunchedJob]:
    """Return a place for the jobs of servers, of which the last are kept."""
    return LastByNumber(SERVERS_KEPT)


class KeptForServer:
    """What a server asks for, and is told, when it comes back to a launcher that goes on.

    Args:
        resumable: whether that may be; else nothing is kept.

    Attributes:
        accepted: requests of the server that were accepted.
        told: client -> what the server was told of it last.
    """

    def __init__(self, *, resumable: bool) -> None:
        most = RETURN_KEPT if resumable else 0
        self.accepted: LastByNumber[None] = LastByNumber[None](most)
        self.told: LastByNumber[ClientMoved] = LastByNumber[ClientMoved](most)

    def has_accepted(self, asked: SubmitClients | CancelClient) -> bool:
        """Return whether this request is one of those that were accepted."""
        return asked.request in self.accepted

    def clear(self) -> None:
        """Forget all of it."""
        self.accepted.clear()
        self.told.clear()


def request_problem(asked: SubmitClients, group_size: int, running: Container[int]) -> str:
    """Return why there can be no such job of clients, or "".

    Args:
        asked: by the server.
        group_size: the most clients that share one job.
        running: clients that have not ended.
    """
    ids = asked.client_ids
    if not ids or len(set(ids)) < len(ids):
        return "a job has one client or more, and none twice"
    if len(ids) > group_size:
        return f"{len(ids)} clients are too many for one job: group_size is {group_size}"
    busy = next((client_id for client_id in ids if client_id in running), None)
    if busy is not None:
        return f"client {busy} has not ended yet"
    return _command_problem(asked.command)


def _command_problem(command: Sequence[str]) -> str:
    """Return why nobody can start a command, or ""."""
    size = sum(map(len, command))
    if not command or not command[0]:
        return "there is no command"
    if size > COMMAND_CHARACTERS_MAX:
        return (
            f"a command of {size} characters is too long, {COMMAND_CHARACTERS_MAX} are the most: write what "
            "it is to know into a file, and pass its name"
        )
    wrong = next((word for word in command if not _can_be_argument(word)), None)
    return "" if wrong is None else f"the command has {wrong[:40]!r}, which cannot be passed to a program"


def _can_be_argument(word: str) -> bool:
    try:
        return b"\0" not in word.encode("utf-8")
    except UnicodeEncodeError:
        return False
