"""The shell of the resource manager: it lives with the RTS and speaks to jobs over their connections."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import trio
from msgspec.structs import replace

from gspc_trio.components.rm.events import Added, Removed, RmAction, RmEvent
from gspc_trio.components.rm.explain import ExplainedRequest, ManagerStatus
from gspc_trio.components.rm.machine import Aside, GrantsAheadOf, ResourceManager
from gspc_trio.components.rm.messages import (
    Demand,
    Grant,
    GrantsAhead,
    Interrupt,
    Lapsed,
    Recall,
    Refuse,
    Release,
    Revoke,
    Revoked,
)
from gspc_trio.components.rts.events import ResourcesLeft, RmAnswered
from gspc_trio.core.ids import GrantId, JobId, ResourceId
from gspc_trio.core.machine import IllegalEvent, Performer, performs
from gspc_trio.nursery.connections.rpc import Peer, drop_offender
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.records.facts import GrantChanged, Record, ResourceChanged

log: logging.Logger = logging.getLogger(__name__)

FromJob: TypeAlias = Demand | Release | Interrupt
"""What a job may say to the resource manager."""

ToRts: TypeAlias = Revoke | ResourcesLeft | RmAnswered | GrantsAhead
"""What the RTS hears."""

FROM_JOBS = (Demand, Release, Interrupt)
"""The same, as kinds."""


class RmShell(Performer[RmAction | ToRts]):
    """Drives the resource manager's machine.

    Args:
        machine: the resource manager.
        tell_rts: takes an event for the RTS machine.
        record: takes a record.

    Attributes:
        peers: job -> its connection.
        record: takes a record; whoever replaces it passes on what it takes.
        why_refused: returns what a job is told of a refusal besides its reason, or "".
    """

    def __init__(
        self, machine: ResourceManager, tell_rts: Callable[[ToRts], None], record: Callable[[Record], None]
    ) -> None:
        self.machine = machine
        self.inbox: Inbox[RmEvent] = Inbox()
        self.peers: dict[JobId, Peer] = {}
        self._tell_rts = tell_rts
        self.record = record
        self.why_refused: Callable[[], str] = str
        self._answering = AnsweringManager(machine)
        tell_rts(GrantsAhead(self._answering.ahead.newest))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Drive the machine until cancelled."""
        task_status.started()
        await drive(self._answering, self.inbox, self, refused=self._refused)

    def tell(self, event: RmEvent) -> None:
        """Take what the RTS says."""
        self.inbox.put(event)

    def newest_given(self, resource_id: ResourceId, grant_id: GrantId) -> GrantId:
        """Return the newest grant of a resource, see the machine."""
        return self.machine.newest_given(resource_id, grant_id)

    def status(self) -> ManagerStatus:
        """Return how much there is, and who has it."""
        return self.machine.status()

    def explain(self, job: JobId) -> Sequence[ExplainedRequest]:
        """Return why each waiting request of the job waits; UnknownJob without it."""
        return self.machine.explain(job)

    def check(self) -> None:
        """Assert every invariant of the machine."""
        self.machine.check()

    def take(self, peer: Peer, job: JobId, said: Sequence[FromJob]) -> None:
        """Take what a job says; one that speaks for another job loses its connection."""
        self.inbox.put_all(own_words(peer, job, said), peer)

    @performs(Grant, Recall, Lapsed)
    def _tell_job(self, action: Grant | Recall | Lapsed) -> None:
        peer = self.peers.get(action.job)
        if peer is not None:  # who is gone hears nothing any more
            peer.post(action)

    @performs(Refuse)
    def _refuse(self, action: Refuse) -> None:
        peer = self.peers.get(action.job)
        if peer is not None:
            peer.post(with_reason(action, self.why_refused()))

    @performs(Revoke, ResourcesLeft, RmAnswered, GrantsAhead)
    def _tell(self, action: ToRts) -> None:
        self._tell_rts(action)

    @performs(GrantChanged, ResourceChanged)
    def _note(self, record: GrantChanged | ResourceChanged) -> None:
        self.record(record)

    def _refused(self, event: RmEvent, error: IllegalEvent) -> None:
        """The RTS has said what cannot be, which has changed nothing: tell it."""
        if isinstance(event, Added | Removed):
            self._tell_rts(RmAnswered(event, str(error)))
        elif isinstance(event, Revoked):
            log.info("%s is late: %s", event, error)
        else:
            raise error


def with_reason(refusal: Refuse, more: str) -> Refuse:
    """Return a refusal with another reason besides its own, if there is one and nobody wanted it."""
    if not more or refusal.kind == "interrupted":
        return refusal
    return replace(refusal, reason=f"{refusal.reason}; {more}")


def own_words(peer: Peer, job: JobId, said: Sequence[FromJob]) -> Sequence[FromJob]:
    """Return what a job says of itself, up to the first word for another one: that ends its connection."""
    for place, message in enumerate(said):
        if message.job != job:
            drop_offender(peer, f"job {job} sent {type(message).__name__} in the name of {message.job}")
            return said[:place]
    return said


class AnsweringManager:
    """The machine, which also tells the RTS what it has taken in, what it has no more, and what RIFs hear."""

    def __init__(self, machine: ResourceManager) -> None:
        self.ahead: GrantsAheadOf = GrantsAheadOf(machine.newest)
        self._machine = machine
        self.deadline: Callable[[], float | None] = machine.deadline
        self.check: Callable[[], None] = machine.check
        # Nobody else keeps the list that it returns: what the RTS hears is added there.
        self._handle = cast("Callable[[RmEvent, float], list[RmAction | ToRts]]", machine.handle)

    @property
    def aside(self) -> Aside | None:
        """What is put aside, if anything is."""
        return self._machine.aside

    def handle(self, event: RmEvent, now: float) -> list[RmAction | ToRts]:
        """Take one event; see :class:`gspc_trio.core.machine.Machine`."""
        actions = self._handle(event, now)
        left: list[ResourceId] = []
        for action in actions:
            if type(action) is ResourceChanged and action.state == "removed":
                left.append(action.resource_id)
        if left:
            actions.append(ResourcesLeft(tuple(left)))
        if type(event) is Added or type(event) is Removed:
            actions.append(RmAnswered(event))
        newest = self._machine.newest
        if newest[1] >= self.ahead.due_from and self.ahead.look(newest, now):
            actions.insert(0, GrantsAhead(self.ahead.newest))
        return actions
