"""The resource managers of a run-time system, and which of them serves which job: common to both ways."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from msgspec import Struct

from gspc_trio.components.managers.messages import (
    JobWord,
    ManagersAction,
    ManagersEvent,
    TellManager,
    WordToJob,
)
from gspc_trio.components.rm.events import (
    Added,
    Advanced,
    Awaited,
    Coming,
    Numbering,
    Removed,
    Rested,
    Resumed,
    RmEvent,
    Settled,
)
from gspc_trio.components.rm.messages import Checkpoint, Demand, Grant, GrantsAhead, Recall
from gspc_trio.components.rm.replay_log import ReplayLog
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, ResourceId, host_name
from gspc_trio.core.machine import IllegalEvent, MachineBase
from gspc_trio.core.resources import Resource
from gspc_trio.policies.partitions import WantView

UNREAD_MANY = 50
"""So much that is unread is not read at each look, unless nothing has come since the last one."""


OF_HOSTS = (Added, Removed, Rested, Resumed, Coming, Settled, Advanced, Awaited)
"""What is said of these can be noted before what jobs have said is read."""


class Member(Struct, eq=False):
    """A resource manager.

    What is said of grants is passed on without a look at it, and kept in ``unread`` until somebody asks what
    is held, or until a checkpoint of the manager says it: then nobody has to read it.

    Attributes:
        number: from 0.
        noted: what it has been told and has said, but for what is unread; see :attr:`log`.
        is_up: it can be told something.
        quiet: what it was told, and whose answer is nobody else's business.
        losses: how often it was lost.
        told: number of events that it was told since it is up.
        read: of these, how many ``noted`` has for certain.
        unread: words, and with how many events it was told of them; 0: it has said them itself.
        newest: the newest grant of it that was seen.
        glanced: how much was unread at the last look.
    """

    number: int
    noted: ReplayLog
    is_up: bool = False
    quiet: list[RmEvent] = []
    losses: int = 0
    told: int = 0
    read: int = 0
    unread: list[tuple[int, Sequence[JobWord | WordToJob]]] = []
    newest: GrantId = NO_GRANT
    glanced: int = 0

    @property
    def log(self) -> ReplayLog:
        """What it has been told and has said."""
        if self.unread:
            self._read()
        return self.noted

    def _read(self) -> None:
        said, heard = self.noted.said, self.noted.heard
        for _, words in self.unread:
            for word in words:
                if isinstance(word, JobWord):
                    said(word)
                elif not isinstance(word, Recall):
                    heard(word)
                    if type(word) is Grant:
                        self.newest = max(self.newest, word.grant_id)
        self.unread.clear()
        self.read = self.told

    def roughly(self) -> ReplayLog:
        """Return the log as it was a short time ago, while so much is said that reading it would take long.

        The next checkpoint then comes soon. When nothing new has been said since this was last asked, it
        is as it is now.
        """
        before, self.glanced = self.glanced, len(self.unread)
        is_busy = self.glanced > UNREAD_MANY and self.glanced != before
        return self.noted if is_busy else self.log

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take what it says that jobs hold and wait for, unless it had not heard by then what was read."""
        self.newest = max(self.newest, checkpoint.newest)
        if checkpoint.told >= self.read:
            self.noted.restore(checkpoint)
            self.read = checkpoint.told
            self.unread = [one for one in self.unread if one[0] > checkpoint.told]

    def is_anew(self) -> None:
        """It is up, and has been told nothing."""
        self.is_up = True
        self.told = self.read = 0


class Managers(MachineBase[ManagersEvent, ManagersAction], ABC):
    """What both ways to share hosts have in common.

    Grants of all managers are of one epoch. Each manager gives numbers of its own (:class:`Numbering`), for
    a resource always a newer one than any before it.

    Args:
        count: how many resource managers there are, more than 1.
        epoch: of all grants.

    Attributes:
        job_of: job -> the manager that serves it; ``why``: job -> for what reason that one does.
        newest: of all grants.
    """

    noun = "the resource managers"

    def __init__(self, count: int, epoch: int) -> None:
        super().__init__()
        self.epoch = epoch
        self.job_of: dict[JobId, int] = {}
        self.why: dict[JobId, str] = {}
        self.newest: GrantId = (epoch, 0)
        self._members = [Member(number, ReplayLog(epoch)) for number in range(count)]
        self._ahead = NO_GRANT

    @property
    def members(self) -> Sequence[Member]:
        """The resource managers."""
        return self._members

    def numbering(self, number: int) -> Numbering:
        """Return which numbers the grants of a manager have that begins now."""
        step = len(self._members)
        self.see_newest()
        return Numbering(self.newest[1] + (number - self.newest[1]) % step, step)

    def hosts_of(self, number: int) -> list[str]:
        """Return the hosts whose resources a manager gives out."""
        return list(self._members[number].log.hosts)

    @abstractmethod
    def deadline(self) -> float | None:
        """Return when a Tick is due."""
        ...

    @abstractmethod
    def check(self) -> None:
        """Assert every invariant."""
        ...

    def note_newest(self, grant_id: GrantId) -> None:
        """A manager has given this grant."""
        self.newest = max(self.newest, grant_id)

    def see_newest(self) -> None:
        """Bring ``newest`` up to date with what is unread."""
        for member in self._members:
            if member.log is member.noted:  # which reads it
                self.newest = max(self.newest, member.newest)

    @abstractmethod
    def newest_given(self, resource_id: ResourceId, grant_id: GrantId) -> GrantId:
        """Return the newest grant of a resource that was given, or ``grant_id`` if that cannot be known."""
        ...

    def _tell(self, number: int, event: RmEvent) -> None:
        """Tell a manager, now or when it is there."""
        member = self._members[number]
        of_hosts = isinstance(event, OF_HOSTS)
        (member.noted if of_hosts else member.log).said(event)
        if member.is_up:
            member.told += 1
            self.actions.append(TellManager(number, event))
        if not of_hosts:
            member.read = member.told

    def _serving(self, job: JobId) -> int:
        """Return which manager serves a job.

        Raises:
            IllegalEvent: it has not joined, or has gone.
        """
        try:
            return self.job_of[job]
        except KeyError:
            raise IllegalEvent(f"job {job} has not joined, or has gone") from None

    def _grants_ahead(self, word: GrantsAhead) -> None:
        """Hosts hear the highest number that any manager may give."""
        if word.newest > self._ahead:
            self._ahead = word.newest
            self.actions.append(word)


def room_of(log: ReplayLog) -> int:
    """Return how many leaves of the hierarchy of a manager's hosts nobody holds, less what is waited for."""
    held = set(log.held())
    free = 0
    for _, there in log.hosts.values():
        above: dict[ResourceId, set[ResourceId]] = {}
        for name, resource in there.items():
            above[name] = {name}.union(*(above.get(parent, ()) for parent in resource.parents))
        inner = {parent for resource in there.values() for parent in resource.parents}
        free += sum(name not in inner and not above[name] & held for name in there)
    return free - sum(left for _, _, left in log.unmet())


def tops(there: Sequence[Resource]) -> tuple[ResourceId, ...]:
    """Return those resources that hang below no other."""
    return tuple(resource.resource_id for resource in there if not resource.parents)


# Hosts that go from one to another, and the requests for which they do -----------------------------------

AGAIN_S = 2.0
"""How long a host that has moved for a request, in vain, does not do so again."""


class MovingHost(Struct, eq=False):
    """A host that is to go to another manager.

    Attributes:
        source, target: from which, to which.
        rested: its resources that are kept free meanwhile; () if it was idle.
        asked: what the source was asked, None as long as the host is emptied.
        pending: what was said of it meanwhile.
    """

    source: int
    target: int
    rested: tuple[ResourceId, ...] = ()
    asked: Removed | None = None
    pending: list[RmEvent] = []


class UnmetRequest(Struct, eq=False):
    """A request that was not met at the last look: since when, and which hosts have moved for it when."""

    since_s: float
    had: dict[str, float]


def host_of(event: Added | Removed) -> str:
    """Return whose resources these are."""
    return host_name(event.resources[0].resource_id if isinstance(event, Added) else event.resource_ids[0])


def want_view(demand: Demand, left: int, entry: UnmetRequest, now: float) -> WantView:
    """Return a request as the policy sees it."""
    least: dict[str, int] = {}
    hosts: set[str] = set()
    features: list[tuple[str, frozenset[str]]] = []
    for need in demand.shape.requirements:
        features.append((need.resource_class, frozenset(need.features)))
        least[need.resource_class] = least.get(need.resource_class, 0) + 1
        if need.hard:
            hosts.update(map(host_name, need.preferences))
    missing = {name: count * left for name, count in least.items()}
    had = frozenset(host for host, moved_s in entry.had.items() if now - moved_s < AGAIN_S)
    return WantView(entry.since_s, missing, least, features, frozenset(hosts), had)
