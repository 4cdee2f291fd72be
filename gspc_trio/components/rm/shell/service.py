"""The shell of the resource manager: it lives with the RTS and speaks to jobs over their connections."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gspc_trio.components.rm.ahead import GrantsAheadOf
from gspc_trio.components.rm.events import Added, Removed
from gspc_trio.components.rm.machine import Aside, ResourceManager
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
from gspc_trio.core.ids import JobId
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.nursery.connections.rpc import Peer, drop_offender
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.records.facts import RECORD_TYPES, Record, ResourceChanged

log = logging.getLogger(__name__)

FromJob: TypeAlias = Demand | Release | Interrupt
"""What a job may say to the resource manager."""

FROM_JOBS = (Demand, Release, Interrupt)
"""The same, as kinds."""


class RmShell:
    """Drives the resource manager's machine.

    Args:
        machine: the resource manager.
        tell_rts: takes an event for the RTS machine.
        record: takes a record.
    """

    def __init__(
        self, machine: ResourceManager, tell_rts: Callable[[Any], None], record: Callable[[Record], None]
    ) -> None:
        self.machine = machine
        self.inbox: Inbox[Any] = Inbox()
        self.peers: dict[JobId, Peer] = {}
        self._tell_rts = tell_rts
        self._answering = _Answering(machine)
        tell_rts(GrantsAhead(self._answering.ahead.newest))
        self._performers: dict[type, Callable[[Any], None]] = {
            **dict.fromkeys((Grant, Recall, Refuse, Lapsed), self._tell_job),
            **dict.fromkeys((Revoke, ResourcesLeft, RmAnswered, GrantsAhead), tell_rts),
            **dict.fromkeys(RECORD_TYPES, record),
        }

    async def run(self) -> None:
        """Drive the machine until cancelled."""
        await drive(self._answering, self.inbox, self._perform, refused=self._refused)

    def take(self, peer: Peer, job: JobId, said: Sequence[FromJob]) -> None:
        """Take what a job says; one that speaks for another job loses its connection."""
        for place, message in enumerate(said):
            if message.job != job:
                self.inbox.put_all(said[:place], peer)
                what = type(message).__name__
                drop_offender(peer, f"job {job} sent {what} in the name of {message.job}")
                return
        self.inbox.put_all(said, peer)

    def _perform(self, action: Any) -> None:
        self._performers[type(action)](action)

    def _tell_job(self, action: Grant | Recall | Refuse | Lapsed) -> None:
        peer = self.peers.get(action.job)
        if peer is not None:  # who is gone hears nothing any more
            peer.post(action)

    def _refused(self, event: Any, error: IllegalEvent) -> None:
        """The RTS has said what cannot be, which has changed nothing: tell it."""
        if isinstance(event, Added | Removed):
            self._tell_rts(RmAnswered(event, str(error)))
        elif isinstance(event, Revoked):
            log.info("%s is late: %s", event, error)
        else:
            raise error


class _Answering:
    """The machine, which also tells the RTS what it has taken in, what it has no more, and what RIFs hear."""

    def __init__(self, machine: ResourceManager) -> None:
        self.ahead = GrantsAheadOf(machine.newest[0])
        self._machine = machine
        self.deadline = machine.deadline
        self.check = machine.check
        self._handle = machine.handle

    @property
    def aside(self) -> Aside | None:
        return self._machine.aside

    def handle(self, event: Any, now: float) -> list[Any]:
        actions = self._handle(event, now)
        left = [
            action.resource_id
            for action in actions
            if action.__class__ is ResourceChanged and action.state == "removed"
        ]
        if left:
            actions.append(ResourcesLeft(tuple(left)))
        if event.__class__ is Added or event.__class__ is Removed:
            actions.append(RmAnswered(event))
        if self.ahead.look(self._machine.newest, now):
            actions.insert(0, GrantsAhead(self.ahead.newest))
        return actions
