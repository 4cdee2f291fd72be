"""State of the RIFs of a run-time system, folded from events and actions: other checkers build on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import define, field

from gspc_trio.components.rif.messages import RemoveResources, StopRif
from gspc_trio.components.rm.events import Added, Removed
from gspc_trio.components.rts import events
from gspc_trio.components.rts.actions import (
    Answer,
    AskRif,
    DropLink,
    KillRif,
    QuestionRefused,
    RtsAction,
    StartRif,
    TellRif,
    TellRm,
)
from gspc_trio.components.rts.events import RtsEvent
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.state import RifState
from gspc_trio.core.ids import ResourceId, RifId
from gspc_trio.records.facts import RifChanged

UP = ("up", "quarantined")
"""States of a RIF that can be heard and has its resources."""

STOPPING = "stopping"
"""The state of one that is taken down, of which records say nothing."""


@define(eq=False)
class Host:
    """A RIF.

    Attributes:
        state: as the last record says, or :data:`STOPPING`.
        incarnation: the newest that was started.
        running: a strategy has something of it; ``killed``: and was told to end it.
        adrift: it may run though no strategy knows of it.
        doubled: another process of this incarnation has asked for its place.
        fresh: an earlier run-time system did not see it up.
        proven: the resource manager has once taken what it has.
        link: its connection, or None.
        there: its resources that the resource manager has.
        leaving: those that were to be removed, until the RIF has them no more.
        removed: those that somebody has removed, and nobody has added again.
        is_of_block: its process comes when its batch job runs; it is not started again when it is lost.
        ordered: such a process has come.
    """

    rif_id: RifId
    host: str
    incarnation: int = 0
    state: str = ""
    running: bool = False
    killed: bool = False
    adrift: bool = False
    doubled: bool = False
    fresh: bool = False
    proven: bool = False
    link: int | None = None
    there: set[ResourceId] = field(factory=set)
    leaving: set[ResourceId] = field(factory=set)
    removed: set[ResourceId] = field(factory=set)
    is_of_block: bool = False
    ordered: bool = False

    @property
    def is_up(self) -> bool:
        """Whether it can be heard, and is used."""
        return self.state in UP


class Rifs:
    """The RIFs of one run-time system.

    Args:
        machine: of the run-time system, before its first event.

    Attributes:
        stopping: whether all is being taken down.
        asks: question for adding or removing that is not answered yet -> RIF that it is put to.
    """

    def __init__(self, machine: Rts) -> None:
        self._hosts: dict[RifId, Host] = {}
        self._clearing: dict[tuple[int, int], tuple[ResourceId, ...]] = {}
        self.asks: dict[int, RifId] = {}
        self.stopping: bool = False
        for rif in machine.rifs:  # an earlier run-time system had them
            host = self._hosts[rif.rif_id] = Host(rif.rif_id, rif.host, rif.incarnation, str(rif.state))
            host.adrift, host.fresh, host.proven = rif.adrift, rif.fresh, True
            host.is_of_block = bool(rif.block)

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def get(self, rif_id: RifId) -> Host | None:
        """Return a RIF, None if there is no such one."""
        return self._hosts.get(rif_id)

    def at(self, link: int) -> Host | None:
        """Return the RIF at a connection."""
        return next((host for host in self if host.link == link), None)

    def of(self, name: ResourceId) -> Host | None:
        """Return the RIF to which a resource belongs."""
        return self._hosts.get(name.partition(".")[0])

    def take(self, event: RtsEvent, actions: Sequence[RtsAction]) -> None:
        """The run-time system took an event."""
        self._take_event(event, actions)
        for action in actions:
            self._take_action(action)
        for action in actions:
            self._take_removal(action)
        for host in self:
            if not host.is_up and host.state != "away":
                host.there.clear()
                host.leaving.clear()

    def _take_event(self, event: RtsEvent, actions: Sequence[RtsAction]) -> None:
        refused = is_refused(event, actions)
        if type(event) is events.Stop or (type(event) is events.TeardownAsked and not refused):
            self.stopping = self.stopping or type(event) is events.Stop
            for host in self:
                if isinstance(event, events.Stop) or host.rif_id in event.rif_ids:
                    host.state = STOPPING
        elif type(event) is events.AddAsked or type(event) is events.RemoveAsked:
            self.asks[event.ask] = event.rif_id
        elif type(event) is events.RifConnected:
            self._spoke(event, actions)
        elif type(event) is events.RifLost:
            host_there = self.at(event.link)
            if host_there is not None:
                host_there.link = None
        elif type(event) is events.RifOrdered:
            ordered = self._hosts.get(event.rif_id)
            if ordered is not None and ordered.incarnation == event.incarnation and ordered.link is None:
                ordered.ordered = ordered.state == RifState.STARTING
        elif type(event) is events.RifEnded:
            self._ended(self._hosts[event.rif_id], event)
        elif type(event) is events.RifAnswered:
            host_there = self.at(event.link)
            gone = self._clearing.pop((event.link, event.call), ())
            if host_there is not None:
                host_there.leaving.difference_update(gone)
        elif type(event) is events.RmAnswered:
            self._answered(event)
        elif type(event) is events.ResourcesLeft:
            for name in event.resource_ids:
                host_there = self.of(name)
                if host_there is not None:
                    host_there.there.discard(name)

    def _spoke(self, event: events.RifConnected, actions: Sequence[RtsAction]) -> None:
        hello = event.hello
        host = self._hosts.get(hello.rif_id)
        is_taken = not any(sends_away(action, event.link) for action in actions)
        if host is None or is_taken:
            if host is not None:
                host.link, host.fresh = event.link, False
        elif hello.claims is None and hello.incarnation == host.incarnation:
            host.doubled = host.link is not None or host.state == RifState.AWAY

    def _ended(self, host: Host, event: events.RifEnded) -> None:
        host.running = False
        host.adrift = host.adrift or (event.adrift and (host.is_up or host.state == RifState.AWAY))
        host.adrift = host.adrift or (host.state == STOPPING and host.doubled)

    def _answered(self, event: events.RmAnswered) -> None:
        told = event.event
        names = [one.resource_id for one in told.resources] if isinstance(told, Added) else told.resource_ids
        host = self.of(names[0])
        if host is None:
            return
        if isinstance(told, Added):
            host.proven = host.proven or not event.refusal
            if event.refusal:
                host.there.difference_update(names)
                host.leaving.update(names)
        elif event.refusal:
            host.leaving.difference_update(names)
            host.removed.difference_update(names)

    def _take_action(self, action: RtsAction) -> None:
        if type(action) is StartRif:
            host = self._hosts.setdefault(action.rif_id, Host(action.rif_id, action.host))
            host.incarnation, host.running = action.incarnation, True
            host.killed = host.adrift = host.doubled = host.fresh = host.ordered = False
            host.is_of_block = bool(action.block)
        elif type(action) is KillRif:
            self._hosts[action.rif_id].killed = True
        elif type(action) is RifChanged:
            self._hosts[action.rif_id].state = action.state
            if action.state == RifState.LOST:
                self._hosts[action.rif_id].link = None  # nothing that is said there counts any more
            if action.state == "down":
                del self._hosts[action.rif_id]
        elif isinstance(action, DropLink | TellRif) and sends_away(action, action.link):
            found = self.at(action.link)
            if found is not None and (type(action) is DropLink or found.state != STOPPING):
                found.link = None
        elif type(action) is Answer or type(action) is QuestionRefused:
            self.asks.pop(action.ask, None)
        elif type(action) is AskRif and isinstance(action.message, RemoveResources):
            self._clearing[action.link, action.call] = action.message.resource_ids
        elif type(action) is TellRm and isinstance(action.event, Added):
            for resource in action.event.resources:
                found = self.of(resource.resource_id)
                assert found is not None
                found.there.add(resource.resource_id)
                found.removed.discard(resource.resource_id)

    def _take_removal(self, action: RtsAction) -> None:
        """What is removed of a RIF that stays up somebody has asked for; else all of it goes."""
        if type(action) is TellRm and isinstance(action.event, Removed):
            for name in action.event.resource_ids:
                host = self.of(name)
                if host is not None and host.is_up:
                    host.leaving.add(name)
                    host.removed.add(name)


def sends_away(action: RtsAction, link: int) -> bool:
    """Whether the RIF at this connection is dropped, or told to stop."""
    if type(action) is TellRif:
        return action.link == link and isinstance(action.message, StopRif)
    return type(action) is DropLink and action.link == link


def is_refused(event: RtsEvent, actions: Sequence[RtsAction]) -> bool:
    """Whether a question is refused at once."""
    ask = getattr(event, "ask", None)
    return any(type(action) is QuestionRefused and action.ask == ask for action in actions)
