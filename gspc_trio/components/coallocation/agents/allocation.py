"""One request of parts that run at one time: the request agent and the barrier agent (COA-2).

Sites are asked one after the other, in the order of their names. So no two requests wait for each other:
the one that holds the site of the highest name waits for nothing that is held. Below a service its sites
come together, and so the order is one for the whole tree. When all are ready, all start. Else all is given
back: after ``barrier_timeout_s`` since something was held, or as soon as a site says no.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.components.coallocation.agents.delegation import Credential, CredentialLimit, restrict
from gspc_trio.components.coallocation.agents.selection import Places, at_steps, choose, lower
from gspc_trio.components.coallocation.agents.words import (
    CancelParts,
    DownMessage,
    PartNeed,
    PartOutputs,
    PartResources,
    PartsAccepted,
    PartsDone,
    PartsGo,
    PartsReady,
    PartsRequest,
    PlacedPart,
    SiteOffer,
    SubmitParts,
    UpMessage,
    batch_queue,
)
from gspc_trio.core.machine import MachineBase, Tick, handles

RETRY_S = 1.0
RETRY_S_MAX = 60.0
"""A try that has failed is followed by the next one after 1 s, then 2 s, and so on up to this."""


class RequestPhase(Enum):
    """Where a request stands."""

    PAUSED = "paused"
    TRYING = "trying"
    IN_DOUBT = "in doubt"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


class DoorState(Enum):
    """How far a site or a service below is."""

    WAITING = "waiting"
    ASKED = "asked"
    ACCEPTED = "accepted"
    READY = "ready"
    STARTED = "started"
    STOPPING = "stopping"
    DONE = "done"


class RequestBegun(Struct, frozen=True):
    """It begins."""


class DoorSaid(Struct, frozen=True):
    """A site or service below has said something, in the words of :data:`Up`."""

    door: str
    said: UpMessage


class DoorGone(Struct, frozen=True):
    """A site or service below is gone, with all that it held."""

    door: str
    reason: str


class CredentialHere(Struct, frozen=True):
    """The credential of a site for this request is there, or there is none.

    Attributes:
        path: the way to the site.
        credential: it.
        error: why there is none.
    """

    path: tuple[str, ...]
    credential: Credential | None
    error: str = ""


class WantCredential(Struct, frozen=True):
    """Have the credential of a site for this request; :class:`CredentialHere` answers."""

    path: tuple[str, ...]


class TellDoor(Struct, frozen=True):
    """Say something to a site or service below."""

    door: str
    said: DownMessage


class AnswerAsker(Struct, frozen=True):
    """Say something to whom the request came from."""

    said: UpMessage | PartsGo


AllocationEvent: TypeAlias = (
    RequestBegun | DoorSaid | DoorGone | CredentialHere | PartsGo | CancelParts | Tick
)
AllocationAction: TypeAlias = TellDoor | WantCredential | AnswerAsker

_LIVE = (DoorState.ASKED, DoorState.ACCEPTED, DoorState.READY, DoorState.STARTED)


class PartsAllocation(MachineBase[AllocationEvent, AllocationAction]):
    """One request at one service.

    Args:
        request: what those below know it by; the number of the try is added.
        wanted: what a client has submitted, or a service above has asked for: that one decides itself when
            all start, and how often it is tried.
        offers: returns what sites can be asked.
        place: returns the names of the services from the top to this one.

    Attributes:
        phase: where it stands.
        placed: way to a site -> class -> how many this try wants there; another object for each try.
        doors: site or service below -> how far it is, of this try, in the order of names.
        tries: number of the present try, from 1.
        steps: how far each ladder was lowered.
        go_s: when all were started.
        id_below: what those below know the present try by.
    """

    noun = "a co-allocation request"

    def __init__(
        self,
        request: str,
        wanted: SubmitParts | PartsRequest,
        offers: Callable[[], Sequence[SiteOffer]],
        place: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        super().__init__()
        self.request = request
        self.wanted = wanted
        self.phase: RequestPhase = RequestPhase.PAUSED
        self.doors: dict[str, DoorState] = {}
        self.tries: int = 0
        self.go_s: float | None = None
        self.placed: dict[tuple[str, ...], dict[str, int]] = {}
        self._place = place
        self._resources: PartResources = ()
        self._outputs: PartOutputs = ()
        self._ladders = wanted.ladders if isinstance(wanted, SubmitParts) else ()
        self.steps: tuple[int, ...] = (0,) * len(self._ladders)
        self._offers = offers
        self._parts: Mapping[str, tuple[PlacedPart, ...]] = {}
        self._lend: frozenset[tuple[str, ...]] = frozenset()
        self._lent: dict[tuple[str, ...], Credential] = {}
        self._awaited: set[tuple[str, ...]] = set()
        self._more: int | None = wanted.on_error if isinstance(wanted, SubmitParts) else 0
        self._pause_s = RETRY_S
        self._due_s: float | None = None
        self._held_s: float | None = None
        self._told: set[type] = set()
        self._error = ""
        self._cancelled = False
        self._count = 0
        self.id_below: str = f"{request}/0"

    def deadline(self) -> float | None:
        """Return when the barrier is over, or the next try begins."""
        return self._due_s

    def check(self) -> None:
        """Assert that all started or none, that sites are asked in order, and that nothing is left."""
        states = list(self.doors.values())
        assert list(self.doors) == sorted(self.doors), f"{list(self.doors)} are not in order"
        started = DoorState.STARTED in states
        assert not (started and self.phase is RequestPhase.TRYING), f"{self.doors} before all are ready"
        if self.phase is RequestPhase.TRYING:
            asked = [state for state in states if state is not DoorState.WAITING]
            assert states[: len(asked)] == asked, f"{self.doors} were not asked in order"
            assert states.count(DoorState.ASKED) <= 1, f"more than one of {self.doors} is asked"
        asks = self.phase is RequestPhase.TRYING and DoorState.ASKED in states
        assert asks or not self._awaited, f"credentials of {self._awaited} are waited for by nobody"
        if self.phase in (RequestPhase.ENDED, RequestPhase.PAUSED):
            assert all(state is DoorState.DONE for state in states), f"{self.doors} at the end of a try"
        if self.phase is RequestPhase.IN_DOUBT:
            assert set(states) <= {DoorState.READY}, f"{self.doors} are said to be ready"
        assert (self.go_s is None) or self.phase in (
            RequestPhase.RUNNING,
            RequestPhase.STOPPING,
            RequestPhase.ENDED,
        )

    # Events

    @handles(RequestBegun)
    def _begin(self, _event: RequestBegun) -> None:
        self._try()

    @handles(Tick)
    def _tick(self, _event: Tick) -> None:
        self._look_at_time()

    @handles(DoorSaid)
    def _heard(self, event: DoorSaid) -> None:
        self._look_at_time()
        state = self.doors.get(event.door)
        if state is None or state is DoorState.DONE or event.said.request != self.id_below:
            return  # of an earlier try
        if isinstance(event.said, PartsDone):
            self._outputs = (*self._outputs, *event.said.outputs)
            self._door_done(event.door, event.said.error or "")
        elif state is not DoorState.STOPPING and self.phase is RequestPhase.TRYING:
            if isinstance(event.said, PartsAccepted):
                self._accepted(event.door)
            else:
                self._resources = (*self._resources, *event.said.resources)
                self._ready(event.door)

    @handles(DoorGone)
    def _gone(self, event: DoorGone) -> None:
        self._look_at_time()
        state = self.doors.get(event.door)
        if state is DoorState.WAITING or state in _LIVE or state is DoorState.STOPPING:
            self._door_done(event.door, f"{event.door} is gone: {event.reason}")

    @handles(PartsGo)
    def _go(self, event: PartsGo) -> None:
        if self.phase is RequestPhase.IN_DOUBT:
            self._resources = event.resources
            self._start()

    @handles(CancelParts)
    def _cancel(self, _event: CancelParts) -> None:
        if self.phase is RequestPhase.ENDED or self._cancelled:
            return
        self._cancelled = True
        self._stop("cancelled")

    # Trying

    def _try(self) -> None:
        self.tries += 1
        needs_of = self.wanted
        if isinstance(needs_of, PartsRequest):
            self._ask_all(needs_of.parts)
            return
        while True:
            needs = at_steps(needs_of.needs, self._ladders, self.steps)
            offers = self._offers()
            places = self._choose(needs, offers, needs_of.credentials)
            if not isinstance(places, str):
                break
            steps = lower(self._ladders, self.steps)
            if steps is None:
                self._error = places
                self._hopeless()
                return
            self.steps = steps
        # A site of this very service asks it for none: the service has the secret of its run-time system.
        brought = needs_of.credentials
        self._lend = frozenset(
            offer.path
            for offer in offers
            if len(offer.path) > 1 and offer.lends and offer.name not in brought
        )
        found = [
            PlacedPart(part, need, places[part], brought.get(places[part][-1]))
            for part, need in enumerate(needs)
        ]
        self._ask_all(found)

    def _hopeless(self) -> None:
        """What is wanted is more than there is: at first only who waits without a bound waits for it."""
        if self._more is None:
            self._pause()
        elif self.tries > 1 and self._more > 0:
            self._more -= 1
            self._pause()
        else:
            self._end()

    def _choose(
        self, needs: Sequence[PartNeed], offers: Sequence[SiteOffer], brought: Collection[str]
    ) -> Places | str:
        """Return the site of each part: one that refuses who brings no credential only if no other can be."""
        asking = [offer for offer in offers if offer.lends or offer.name in brought]
        if asking:
            places = choose(needs, asking)
            if len(asking) == len(offers) or not isinstance(places, str):
                return places
        return choose(needs, offers)

    def _ask_all(self, parts: Sequence[PlacedPart]) -> None:
        doors: dict[str, list[PlacedPart]] = {}
        placed: dict[tuple[str, ...], dict[str, int]] = {}
        if len(parts) > 1:
            parts = sorted(parts, key=lambda one: (one.path, one.part))
        for part in parts:
            doors.setdefault(part.path[0], []).append(part)
            there, kind = placed.setdefault(part.path, {}), part.need.resource_class
            if batch_queue(part.need.contact) is None:  # else it takes nothing of what is there
                there[kind] = there.get(kind, 0) + part.need.count
        self.placed = placed
        self._resources, self._outputs = (), ()
        self._count += 1
        self.id_below = f"{self.request}/{self._count}"
        self._parts = {door: tuple(doors[door]) for door in sorted(doors)}
        self.doors = dict.fromkeys(self._parts, DoorState.WAITING)
        self._held_s = None
        self._lent = {}
        self.phase = RequestPhase.TRYING
        self._ask_next()

    def _ask_next(self) -> None:
        for door, state in self.doors.items():
            if state is DoorState.ASKED:
                return
            if state is DoorState.WAITING:
                self.doors[door] = DoorState.ASKED
                self._awaited = {part.path for part in self._parts[door]} & self._lend
                self.actions.extend(map(WantCredential, sorted(self._awaited)))
                if not self._awaited:
                    self._ask(door)
                return

    def _ask(self, door: str) -> None:
        self.actions.append(TellDoor(door, PartsRequest(self.id_below, self._below(door))))

    @handles(CredentialHere)
    def _take_credential(self, event: CredentialHere) -> None:
        self._look_at_time()
        if event.path not in self._awaited:
            return
        door = event.path[0]
        if event.credential is None:
            self._door_done(door, event.error)
            return
        self._lent[event.path] = event.credential
        self._awaited.discard(event.path)
        if not self._awaited:
            self._ask(door)

    def _below(self, door: str) -> tuple[PlacedPart, ...]:
        """Return the parts as the next one on the way sees them, each credential good for these alone."""
        if len(self._parts[door]) == 1:  # as most jobs have
            (part,) = self._parts[door]
            if part.credential is None and not self._lent:
                return (PlacedPart(part.part, part.need, part.path[1:]),)
        sites: dict[tuple[str, ...], list[PlacedPart]] = {}
        for part in self._parts[door]:
            sites.setdefault(part.path, []).append(part)
        told = []
        for path, parts in sites.items():
            credential = parts[0].credential or self._lent.get(path)
            if credential is not None:
                with suppress(ValueError):  # it does not allow this: its run-time system will say so
                    credential = restrict(credential, self._limit(door, path, parts))
            told += [PlacedPart(part.part, part.need, path[1:], credential) for part in parts]
        return tuple(told)

    def _limit(self, door: str, path: tuple[str, ...], parts: Sequence[PlacedPart]) -> CredentialLimit:
        classes = frozenset(part.need.resource_class for part in parts)
        count = sum(part.need.count for part in parts)
        if isinstance(self.wanted, PartsRequest):
            return CredentialLimit(path[-1], classes, count)
        place = self._place()
        subtree = (*place, door) if place and len(path) > 1 else None
        return CredentialLimit(path[-1], classes, count, subtree=subtree, request=self.id_below)

    def _accepted(self, door: str) -> None:
        if self.doors[door] is not DoorState.ASKED:
            return
        self.doors[door] = DoorState.ACCEPTED
        if self._held_s is None:
            self._held_s = self.now
            if isinstance(self.wanted, SubmitParts):
                self._due_s = self.now + self.wanted.barrier_timeout_s
        self._ask_next()
        if isinstance(self.wanted, PartsRequest) and not self._any(DoorState.WAITING, DoorState.ASKED):
            self.actions.append(AnswerAsker(PartsAccepted(self.wanted.request)))

    def _ready(self, door: str) -> None:
        self._accepted(door)  # who is ready has all of it, whether or not that was said
        if self.doors[door] is not DoorState.ACCEPTED:
            return
        self.doors[door] = DoorState.READY
        if all(state is DoorState.READY for state in self.doors.values()):
            self.phase = RequestPhase.IN_DOUBT
            if len(self._resources) > 1:
                self._resources = tuple(sorted(self._resources))
            if isinstance(self.wanted, SubmitParts):
                self._start()
                self.actions.append(AnswerAsker(PartsGo(self.wanted.request, self._resources)))
            else:
                told = PartsReady(self.wanted.request, self._resources)
                self.actions.append(AnswerAsker(told))

    def _start(self) -> None:
        self.phase = RequestPhase.RUNNING
        self._due_s = None
        self.go_s = self.now
        for door in self.doors:
            self.doors[door] = DoorState.STARTED
            self.actions.append(TellDoor(door, PartsGo(self.id_below, self._resources)))

    # Ending

    def _look_at_time(self) -> None:
        if self._due_s is None or self.now < self._due_s:
            return
        self._due_s = None
        if self.phase is RequestPhase.PAUSED:
            self._try()
        elif self.phase is RequestPhase.TRYING:
            late = [door for door, state in self.doors.items() if state is not DoorState.READY]
            self._stop(f"not ready in time: {', '.join(late)}")

    def _door_done(self, door: str, error: str) -> None:
        if self.doors[door] is DoorState.ASKED:
            self._awaited.clear()
        self.doors[door] = DoorState.DONE
        if error and not self._error:
            self._error = error
        if self.phase in (RequestPhase.TRYING, RequestPhase.IN_DOUBT):
            self._stop(error or f"{door} has ended before its start")
        elif error and self.phase is RequestPhase.RUNNING:
            self._stop(error)  # the other programs of a job end with one that has failed
        elif all(state is DoorState.DONE for state in self.doors.values()):
            self._all_done()

    def _stop(self, error: str) -> None:
        """Have all given back; what follows is decided when nothing is held any more."""
        self._error = error if self._cancelled else self._error or error
        self._due_s = None
        self.phase = RequestPhase.STOPPING
        for door, state in self.doors.items():
            if state is DoorState.WAITING or (state is DoorState.ASKED and self._awaited):
                self.doors[door] = DoorState.DONE  # it was not asked for anything yet
            elif state in _LIVE:
                self.doors[door] = DoorState.STOPPING
                self.actions.append(TellDoor(door, CancelParts(self.id_below)))
        self._awaited.clear()
        if all(state is DoorState.DONE for state in self.doors.values()):
            self._all_done()

    def _all_done(self) -> None:
        if self._cancelled or self.go_s is not None or isinstance(self.wanted, PartsRequest):
            self._end()
            return
        steps = lower(self._ladders, self.steps)
        if steps is not None:
            self.steps, self._error = steps, ""
            self.tries -= 1
            self._try()
        elif self._more is None:
            self._pause()
        elif self._more > 0:
            self._more -= 1
            self._pause()
        else:
            self._end()

    def _pause(self) -> None:
        """The next try begins from the top, later."""
        self.phase = RequestPhase.PAUSED
        self.placed = {}
        self.steps, self._error = (0,) * len(self._ladders), ""
        self._due_s = self.now + self._pause_s
        self._pause_s = min(2 * self._pause_s, RETRY_S_MAX)

    def _end(self) -> None:
        self.phase = RequestPhase.ENDED
        self._due_s = None
        self.placed = {}
        told = PartsDone(
            self.wanted.request, self._error, self.go_s is not None, tuple(sorted(self._outputs))
        )
        self.actions.append(AnswerAsker(told))

    def _any(self, *states: DoorState) -> bool:
        return any(state in states for state in self.doors.values())
