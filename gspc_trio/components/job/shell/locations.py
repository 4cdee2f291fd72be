"""The run-time systems of a job that has several, on trio: one connection to each, and who gets what.

What is decided is in ``components.job.locations``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import trio
from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.job.locations.machine import Locations
from gspc_trio.components.job.locations.names import Location, location_of
from gspc_trio.components.job.locations.state import (
    LOOK_S,
    Away,
    Gone,
    LocationPolicy,
    LocationsEvent,
    Said,
    SchedulerSays,
    Tell,
    To,
)
from gspc_trio.components.job.messages import LocationStatus
from gspc_trio.components.job.scheduler.interface import Claims
from gspc_trio.components.job.shell.files import JobFiles
from gspc_trio.components.job.shell.nested import NestedHub
from gspc_trio.components.job.shell.scheduler import Joined, SchedulerRoutes, SentTo
from gspc_trio.components.rts.messages import JobEnd, LeaveJob, Lend
from gspc_trio.components.rts.shell.contact import RETRY_S, RtsContact
from gspc_trio.components.worker.messages import AttemptStatus, FromTask, GetAttempt, OpenJob, Submit
from gspc_trio.core.ids import Attempt, JobId, ResourceId, TaskId
from gspc_trio.core.machine import Tick
from gspc_trio.core.task import Shape
from gspc_trio.nursery.connections.rpc import Peer, PeerGone
from gspc_trio.nursery.scopes.drive import Put
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.records.facts import Record, ResourceChanged

log: logging.Logger = logging.getLogger(__name__)


class _Link(Struct, eq=False):
    """The connections to one location: its names, its routes, how it stays in touch, and when it is back."""

    at: Location
    joined: Joined
    routes: SchedulerRoutes
    contact: RtsContact
    back: trio.Event


class LocationRoutes:
    """The connections of a job to several run-time systems, and to their hosts.

    It looks like the routes to one of them.

    Args:
        joined: the run-time systems; the first one has named the job.
        opening: what each RIF is told first.
        code: returns entry ``code_id`` of the job's code table, encoded.
        put: takes an event for the job's machine, and who has said so if that is a RIF.
        hosts: filled with the host of each resource that was ever seen.
        nursery: in which the connections live.
        record: takes a record.
        sent_to: returns the attempts that are at some resources.
        files: of the job's host, for tasks that fetch or store some.
        policy: divides what is asked for.
    """

    def __init__(
        self,
        joined: Sequence[Joined],
        opening: OpenJob,
        code: Callable[[int], bytes],
        put: Put,
        hosts: dict[ResourceId, str],
        nursery: trio.Nursery,
        record: Callable[[Record], None],
        sent_to: SentTo,
        files: JobFiles | None,
        policy: LocationPolicy,
    ) -> None:
        self._put = put
        self._hosts = hosts
        self._nursery = nursery
        self._record = record
        self._sent_to = sent_to
        self._queue: deque[tuple[To | Tell, Peer | None]] = deque()
        self._performing = False
        self._leaving = False
        self._links: dict[str, _Link] = {}
        for number, one in enumerate(joined):
            at = Location(one.name, number, opening.job, one.registered.job)
            routes = SchedulerRoutes(
                one.rts.network,
                one.peer,
                replace(opening, job=at.job_there),
                code,
                partial(self._said, at),
                {},
                nursery,
                partial(self._note, at),
                partial(self._sent_there, at),
                files,
            )
            contact = routes.contact(one.joining, one.rts.join)
            self._links[one.name] = _Link(at, one, routes, contact, trio.Event())
        self._machine = Locations([link.at for link in self._links.values()], policy)
        self._nested: NestedHub | None = None

    @property
    def nested(self) -> NestedHub | None:
        """Who takes what tasks say to the job server."""
        return self._nested

    @nested.setter
    def nested(self, hub: NestedHub) -> None:
        self._nested = hub
        for link in self._links.values():
            link.routes.nested = _HubAt(hub, link.at)

    def explain(self, shape: Shape) -> str:
        """Return what is known of each location for tasks of a shape."""
        return self._machine.explain(shape)

    def statuses(self) -> tuple[LocationStatus, ...]:
        """Return how each location is, and what the job has there."""
        return self._machine.statuses(trio.current_time())

    def send(self, action: object) -> bool:
        """Send an action of the scheduler where it belongs; return False if it is not one that is sent."""
        if not isinstance(action, SchedulerSays):
            return False
        self._handle(action)
        return True

    def post(self, message: Lend) -> None:
        """Tell a run-time system how often a core of it is lent."""
        link = self._links[location_of(message.resource_id)]
        outward = link.at.outward(message)
        assert isinstance(outward, Lend)
        link.routes.post(outward)

    async def ask(self, resource_id: ResourceId, question: GetAttempt) -> AttemptStatus | None:
        """Return what the RIF of a resource says of an attempt, None if there is no answer within a bound."""
        link = self._links[location_of(resource_id)]
        outward = link.at.outward(question)
        assert isinstance(outward, GetAttempt)
        return await link.routes.ask(link.at.id_there(resource_id), outward)

    async def leave(self, adopted: JobId) -> None:
        """Do nothing: a job on several run-time systems adopts none."""

    # In place of the contact with one

    def contact(self, *_: object) -> LocationRoutes:
        """Return itself: it stays in touch with all of them."""
        return self

    @property
    def grace_s(self) -> float:
        """How long the run-time systems are awaited that can come back."""
        return max(link.contact.grace_s for link in self._links.values())

    @grace_s.setter
    def grace_s(self, grace_s: float) -> None:
        for link in self._links.values():
            link.contact.grace_s = grace_s

    async def run(self, _: Peer) -> str:
        """Take what the run-time systems say until none of them is there; return why the last one is not."""
        reasons: list[str] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tick)
            async with trio.open_nursery() as hearing:
                for link in self._links.values():
                    nursery.start_soon(self._watch, link)
                    hearing.start_soon(self._hear, link, reasons)
            nursery.cancel_scope.cancel()
        return "; ".join(reasons)

    async def wait_back(self) -> None:
        """Wait until one that is awaited is there again, as long as there is one."""
        while True:
            if not all(link.routes.rts.lost.is_set() for link in self._links.values()):
                return
            await trio.sleep(RETRY_S)

    async def leave_all(self, end: JobEnd) -> None:
        """Say goodbye to all that are there."""
        self._leaving = True
        await say_goodbye([link.routes.rts for link in self._links.values()], end)

    async def _hear(self, link: _Link, reasons: list[str]) -> None:
        gone = await link.contact.run(link.joined.peer)
        reasons.append(f"{link.at.name}: {gone}")
        if self._leaving:
            return
        log.warning("job %s: the run-time system %s has gone: %s", link.at.job, link.at.name, gone)
        link.routes.close(f"its run-time system has gone: {gone}")
        self._handle(Gone(link.at.name, gone))

    async def _watch(self, link: _Link) -> None:
        """Have others asked while a run-time system cannot be reached."""
        while True:
            link.back = trio.Event()
            await link.routes.rts.lost.wait()
            self._handle(Away(link.at.name))
            await link.back.wait()

    async def _tick(self) -> None:
        while True:
            await trio.sleep(LOOK_S / 2)
            deadline = self._machine.deadline()
            if deadline is not None and deadline <= trio.current_time():
                self._handle(Tick())

    # Between the machine and the routes

    def _said(self, at: Location, event: Any, by: Peer | None = None) -> None:
        self._handle(Said(at.name, event), by)

    def _handle(self, event: LocationsEvent, by: Peer | None = None) -> None:
        """Have the machine take an event, and do what follows, in order: the scheduler may answer at once."""
        actions = self._machine.handle(event, trio.current_time())
        self._queue.extend((action, by) for action in actions)
        if self._performing:
            return
        self._performing = True
        try:
            while self._queue:
                action, said_by = self._queue.popleft()
                if type(action) is Tell:
                    self._put(action.event, said_by)
                elif type(action) is To:
                    self._send(self._links[action.location], action.message)
        finally:
            self._performing = False

    def _send(self, link: _Link, message: object) -> None:
        if type(message) is Submit:
            for other in self._links.values():
                if other is not link:
                    other.routes.pass_over(len(message.submissions))
        link.routes.send(message)
        if type(message) is Claims:
            link.back.set()

    def _note(self, at: Location, record: Record) -> None:
        if type(record) is ResourceChanged:
            here, parents = at.id_here(record.resource_id), tuple(map(at.id_here, record.parents))
            if record.host:
                self._hosts[here] = record.host
            record = replace(record, resource_id=here, parents=parents)
        self._record(record)

    def _sent_there(
        self, at: Location, resource_ids: Sequence[ResourceId]
    ) -> list[tuple[ResourceId, TaskId, Attempt]]:
        sent = self._sent_to([at.id_here(name) for name in resource_ids])
        return [(at.id_there(name), task_id, attempt) for name, task_id, attempt in sent]


async def say_goodbye(systems: Iterable[Peer], end: JobEnd) -> None:
    """Tell all run-time systems at once how the job has ended: a slow one must not keep it from others."""

    async def tell(system: Peer) -> None:
        with suppress(PeerGone):
            await system.call(LeaveJob(end=end))

    async with open_scope() as nursery:
        for system in systems:
            nursery.start_soon(tell, system)


class _PeerAt:
    """A connection to a RIF of a location, to which the hub of nested tasks speaks in the job's own words."""

    def __init__(self, peer: Peer, at: Location) -> None:
        self._peer = peer
        self._at = at

    def post(self, message: object) -> None:
        """Send a message."""
        self._peer.post(self._at.outward(message))


class _HubAt:
    """The hub of nested tasks as the routes to one location see it."""

    def __init__(self, hub: NestedHub, at: Location) -> None:
        self._hub = hub
        self._at = at
        self._peers: dict[Peer, _PeerAt] = {}

    def take(self, peer: Peer, message: FromTask) -> None:
        """Take what a task says, by way of its RIF."""
        speaker = self._peers.setdefault(peer, _PeerAt(peer, self._at))
        self._hub.take(speaker, self._at.from_task(message))

    def forget(self, peer: Peer) -> None:
        """A RIF cannot be heard any more."""
        if (speaker := self._peers.pop(peer, None)) is not None:
            self._hub.forget(speaker)

    def restate(self, job: JobId) -> None:
        """Say again what the first job lends."""
        self._hub.restate(self._at.job if job == self._at.job_there else job)
