"""A co-allocation service: its place in the tree of services, and the requests that it has (COA-3, COA-7).

It registers with its parent, and does so again and again: who has not been heard of for :data:`LEASE_S` is
gone. A service looks at these times before it takes what is said, so that one that was suspended for long
does not obey what was said to it in the meantime. All that its parent has asked for is stopped when the
parent is gone, and all that a client has asked for when the client is.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.coallocation.agents.allocation import (
    AllocationEvent,
    CredentialHere,
    DoorGone,
    DoorSaid,
    PartsAllocation,
    RequestBegun,
    RequestPhase,
    TellDoor,
    WantCredential,
)
from gspc_trio.components.coallocation.agents.delegation import EXPIRY_S_MAX, Credential
from gspc_trio.components.coallocation.agents.words import (
    LEASE_S,
    REGISTER_S,
    CancelParts,
    CredentialLent,
    CredentialWanted,
    DownMessage,
    PartsAccepted,
    PartsDone,
    PartsGo,
    PartsReady,
    PartsRequest,
    RegisterService,
    RequestMessage,
    ServiceRefused,
    ServiceRegistered,
    SiteOffer,
    SubmitParts,
    UpMessage,
)
from gspc_trio.core.machine import MachineBase, Tick, handles

PARENT = "^"
"""Whom a service calls its parent, beside the names of its sites, children and clients."""

OF_PARTS = (PartsAccepted, PartsReady, PartsDone)
"""What comes from below of what was placed there; a union would be made anew for each message."""

LENT_S = EXPIRY_S_MAX / 2
"""For a request that runs for longer a new credential is asked for."""

ServiceMessage: TypeAlias = (
    SubmitParts
    | DownMessage
    | UpMessage
    | CredentialWanted
    | CredentialLent
    | RegisterService
    | ServiceRegistered
    | ServiceRefused
    | RequestMessage
)


class PeerSaid(Struct, frozen=True):
    """Someone has said something: the parent, a child, a site or a client."""

    who: str
    message: ServiceMessage


class ParentLinked(Struct, frozen=True):
    """There is a connection to the parent."""


class PeerGone(Struct, frozen=True):
    """The connection to someone has ended."""

    who: str
    reason: str = "its connection has ended"


class SiteOffered(Struct, frozen=True):
    """A site of this service has this now; a path of its name alone."""

    offer: SiteOffer


class ToPeer(Struct, frozen=True):
    """Say something to someone."""

    who: str
    message: ServiceMessage


class DropPeer(Struct, frozen=True):
    """End the connection to someone."""

    who: str
    reason: str


ServiceEvent: TypeAlias = PeerSaid | ParentLinked | PeerGone | SiteOffered | Tick
ServiceAction: TypeAlias = ToPeer | DropPeer


class _Child(Struct):
    """A service below, when it was last heard of, and which of its names others had first."""

    registered: RegisterService
    heard_s: float
    doubled: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        """The names of its subtree that are its own."""
        return self.registered.names - self.doubled


class _Lent(Struct):
    """The credential of a site for a request, since when it is there, and which allocations wait for it."""

    credential: Credential | None = None
    since_s: float = 0.0
    waiting: tuple[tuple[str, str], ...] = ()


class CoallocationService(MachineBase[ServiceEvent, ServiceAction]):
    """One service. Who speaks to it has a name: :data:`PARENT`, that of a site or child, any of a client.

    Another one has the name of one that is gone only after :class:`PeerGone` was taken.

    Args:
        name: its name in the tree.
        instance: of its process; another one for each start.

    Attributes:
        sites: name -> what a site of its own has.
        children: name -> service below.
        above: names of the services above, from its parent up; () without one.
        allocations: (who asked, their name of it) -> request that has not ended.
    """

    noun = "a co-allocation service"

    def __init__(self, name: str, instance: str) -> None:
        super().__init__()
        self.name = name
        self.instance = instance
        self.sites: dict[str, SiteOffer] = {}
        self.children: dict[str, _Child] = {}
        self.above: tuple[str, ...] = ()
        self.allocations: dict[tuple[str, str], PartsAllocation] = {}
        self._by_id: dict[str, tuple[str, str]] = {}
        self._placed: dict[tuple[str, ...], dict[str, int]] = {}
        self._placed_here: dict[tuple[str, ...], dict[str, int]] = {}
        self._dues: list[tuple[float, tuple[str, str]]] = []
        self._lent: dict[tuple[str, tuple[str, ...]], _Lent] = {}
        self._passed: list[CredentialWanted] = []
        self._numbers = 0
        self._linked = False
        self._parent_heard_s = 0.0
        self._register_s: float | None = None
        self._doubled: frozenset[str] = frozenset()
        self._tree_due_s: float | None = None
        self._is_tree_due_known = False

    @property
    def is_linked(self) -> bool:
        """Whether it has a parent, which was heard of."""
        return self._linked

    def deadline(self) -> float | None:
        """Return when to register, to give up a child or parent, or to look at a request."""
        due_s, tree_due_s = self._next_due(), self._tree_due()
        if due_s is None or tree_due_s is None:
            return tree_due_s if due_s is None else due_s
        return min(due_s, tree_due_s)

    def _tree_due(self) -> float | None:
        """Return when to register, or to give up a child or the parent; it is asked for at each event."""
        if self._is_tree_due_known:
            return self._tree_due_s
        times = [child.heard_s + LEASE_S for child in self.children.values()]
        if self._register_s is not None:
            times.append(self._register_s)
        if self._linked:
            times.append(self._parent_heard_s + LEASE_S)
        self._tree_due_s, self._is_tree_due_known = min(times, default=None), True
        return self._tree_due_s

    def check(self) -> None:
        """Assert that names are there once, and that every request stands as it should."""
        names: list[str] = [self.name, *self.sites, *self.above]
        for child in self.children.values():
            names += child.names
        assert len(names) == len(set(names)), f"{self.name} has names twice: {sorted(names)}"
        known_s, self._is_tree_due_known = self._tree_due(), False
        assert known_s == self._tree_due(), "a time of the tree was not looked at anew"
        assert set(self._by_id.values()) == set(self.allocations), "requests and their ids differ"
        for key, allocation in self.allocations.items():
            allocation.check()
            assert allocation.phase is not RequestPhase.ENDED, f"{key} has ended, and is kept"
            due_s = allocation.deadline()
            assert due_s is None or (due_s, key) in self._dues, f"{key} is never looked at"
            stops = allocation.phase is RequestPhase.STOPPING
            assert key[0] != PARENT or self._linked or stops, f"{key} is of a parent that is gone"

    @property
    def place(self) -> tuple[str, ...]:
        """The names of the services from the top to this one."""
        return (*reversed(self.above), self.name)

    def offers(self) -> list[SiteOffer]:
        """Return what all sites of its subtree have; what its requests want of them is not free."""
        return self._offers(self._placed)

    def _offers(self, placed: Mapping[tuple[str, ...], Mapping[str, int]]) -> list[SiteOffer]:
        found = list(self.sites.values())
        for name, child in self.children.items():
            for offer in child.registered.offers:
                if not child.doubled.intersection(offer.path):
                    found.append(replace(offer, path=(name, *offer.path)))
        for number, offer in enumerate(found):
            if wanted := placed.get(offer.path):
                free = {kind: count - wanted.get(kind, 0) for kind, count in offer.free.items()}
                found[number] = replace(offer, free=free)
        return sorted(found, key=lambda offer: offer.path)

    # Events

    @handles(Tick)
    def _tick(self, _event: Tick) -> None:
        self._look_at_time()

    @handles(ParentLinked)
    def _link(self, _event: ParentLinked) -> None:
        self._look_at_time()
        self._linked = True
        self._parent_heard_s = self.now
        self._register()  # which lets all times be looked at anew

    @handles(SiteOffered)
    def _site_is(self, event: SiteOffered) -> None:
        self._look_at_time()
        self.sites[event.offer.name] = event.offer

    @handles(PeerGone)
    def _gone(self, event: PeerGone) -> None:
        self._look_at_time()
        self._lose(event.who, event.reason)

    @handles(PeerSaid)
    def _said(self, event: PeerSaid) -> None:
        self._look_at_time()
        who, message = event.who, event.message
        if isinstance(message, RegisterService):
            self._take_register(who, message)
        elif who == PARENT:
            self._from_parent(message)
        elif isinstance(message, OF_PARTS):
            self._from_below(who, message)
        elif isinstance(message, CredentialLent):
            self._take_lent(who, message)
        elif isinstance(message, SubmitParts):
            self._admit(who, message)
        elif isinstance(message, CancelParts) and (key := (who, message.request)) in self.allocations:
            self._feed(key, message)

    # The tree

    def _look_at_time(self) -> None:
        """Give up who was silent for too long, before anything that they have said is taken."""
        tree_due_s = self._tree_due()
        if tree_due_s is not None and self.now >= tree_due_s:
            self._look_at_tree()
        while (due_s := self._next_due()) is not None and self.now >= due_s:
            self._feed(heappop(self._dues)[1], Tick())

    def _look_at_tree(self) -> None:
        if self._linked and self.now >= self._parent_heard_s + LEASE_S:
            self._leave(f"it was silent for {LEASE_S:g} s")
        for name in [n for n, one in self.children.items() if self.now >= one.heard_s + LEASE_S]:
            self._drop(name, f"it was silent for {LEASE_S:g} s")
        if self._register_s is not None and self.now >= self._register_s:
            self._register()

    def _next_due(self) -> float | None:
        """Return when the next request is to be looked at; what was noted of others by now is forgotten."""
        while self._dues:
            due_s, key = self._dues[0]
            allocation = self.allocations.get(key)
            if allocation is not None and allocation.deadline() == due_s:
                return due_s
            heappop(self._dues)
        return None

    def _register(self) -> None:
        names = {self.name, *self.sites}
        for child in self.children.values():
            names |= child.names
        # What its parent has placed here the parent itself takes off.
        offers = tuple(self._offers(self._placed_here))
        told = RegisterService(self.name, self.instance, frozenset(names), offers)
        self.actions.append(ToPeer(PARENT, told))
        self._register_s = self.now + REGISTER_S
        self._is_tree_due_known = False

    def _take_register(self, who: str, said: RegisterService) -> None:
        known = self.children.get(said.name)
        if reason := self._objection(who, said, known):
            self.actions.append(ToPeer(who, ServiceRefused(reason)))
            if who in self.children:
                self._lose(who, reason)
            return
        doubled = said.names & (self._taken(said.name) | self._doubled)
        self.children[said.name] = _Child(said, self.now, doubled)
        self._is_tree_due_known = False
        self.actions.append(ToPeer(who, ServiceRegistered((self.name, *self.above), doubled)))

    def _taken(self, name: str) -> frozenset[str]:
        """Return all names that are known here without those below one child."""
        taken = {self.name, *self.sites, *self.above}
        for other, child in self.children.items():
            if other != name:
                taken |= child.names
        return frozenset(taken)

    def _objection(self, who: str, said: RegisterService, known: _Child | None) -> str:
        if said.name == self.name:
            return f"no service is below one of its own name, {self.name}: services make a tree"
        if self.name in said.names or said.names.intersection(self.above):
            return f"{self.name} is below {said.name} already: services make a tree"
        changed = known is not None and known.registered.instance != said.instance
        if said.name != who or said.name in self._taken(said.name) or changed:
            return f"there is another {said.name} already"
        return ""

    def _from_parent(self, message: ServiceMessage) -> None:
        if not self._linked:
            return
        if isinstance(message, ServiceRegistered):
            self._parent_heard_s = self.now
            self._is_tree_due_known = False
            if self.name in message.above:
                self._leave(f"{self.name} would be below itself: services make a tree")
                return
            self.above, self._doubled = message.above, message.doubled
            for name, child in list(self.children.items()):
                if name in message.doubled or child.registered.names.intersection(message.above):
                    reason = f"there is another {name} already"
                    self.actions.append(ToPeer(name, ServiceRefused(reason)))
                    self._drop(name, reason)
        elif isinstance(message, ServiceRefused):
            self._leave(message.reason)
        elif isinstance(message, PartsRequest):
            bare = [part.path[-1] for part in message.parts if part.credential is None]
            if bare:
                reason = f"site {bare[0]} gives resources only to requests with a credential for it"
                self.actions.append(ToPeer(PARENT, PartsDone(message.request, reason)))
            else:
                self._admit(PARENT, message)
        elif isinstance(message, CredentialWanted):
            self._pass_down(message)
        elif isinstance(message, PartsGo | CancelParts) and (PARENT, message.request) in self.allocations:
            self._feed((PARENT, message.request), message)

    def _leave(self, reason: str) -> None:
        """The parent is gone, or does not want this service."""
        self.actions.append(DropPeer(PARENT, reason))
        self._lose(PARENT, reason)

    def _drop(self, who: str, reason: str) -> None:
        self.actions.append(DropPeer(who, reason))
        self._lose(who, reason)

    def _lose(self, who: str, reason: str) -> None:
        self._is_tree_due_known = False
        if who == PARENT:
            self._linked, self._register_s, self.above = False, None, ()
            self._passed = []
            self._doubled = frozenset()
        else:
            self.children.pop(who, None)
            self.sites.pop(who, None)
            self._lent = {key: lent for key, lent in self._lent.items() if key[1][0] != who}
            for asked in [one for one in self._passed if one.path[0] == who]:
                self._passed.remove(asked)
                self._tell_lent(CredentialLent(asked.request, asked.path, error=f"{who} is gone: {reason}"))
        for key, allocation in list(self.allocations.items()):
            if who in allocation.doors:
                self._feed(key, DoorGone(who, reason))
        for key in [key for key in self.allocations if key[0] == who]:
            self._feed(key, CancelParts(key[1]))

    # Requests

    def _admit(self, who: str, wanted: SubmitParts | PartsRequest) -> None:
        key = who, wanted.request
        if key in self.allocations:
            if who != PARENT:
                self.actions.append(
                    ToPeer(who, PartsDone(wanted.request, f"there is a request {wanted.request}"))
                )
            return
        self._numbers += 1
        request = f"{self._whole(who)}/{self._numbers}"
        self.allocations[key] = PartsAllocation(request, wanted, self.offers, lambda: self.place)
        self._by_id[request] = key
        self._feed(key, RequestBegun())

    def _from_below(self, who: str, message: UpMessage) -> None:
        key = self._by_id.get(message.request.rpartition("/")[0])
        if key is not None:
            if isinstance(message, PartsDone) and message.error and not message.ran:
                self._forget_lent(self._whole(key[0]), who)  # perhaps its run-time system does not know it
            self._feed(key, DoorSaid(who, message))

    def _feed(self, key: tuple[str, str], event: AllocationEvent) -> None:
        allocation = self.allocations.get(key)
        if allocation is None:
            return
        missing = []
        placed = allocation.placed
        due_s = allocation.deadline()
        actions = allocation.handle(event, self.now)
        later_s = allocation.deadline()
        if later_s is not None and later_s != due_s:
            heappush(self._dues, (later_s, key))
        if placed is not allocation.placed:
            self._note_placed(key[0], placed, -1)
            self._note_placed(key[0], allocation.placed, 1)
        for action in actions:
            if isinstance(action, TellDoor):
                if action.door in self.sites or action.door in self.children:
                    self.actions.append(ToPeer(action.door, action.said))
                else:
                    missing.append(action.door)
            elif isinstance(action, WantCredential):
                self._lend(key, action.path)
            elif key[0] != PARENT or self._linked:
                self.actions.append(ToPeer(key[0], action.said))
        if allocation.phase is RequestPhase.ENDED and self.allocations.pop(key, None) is not None:
            del self._by_id[allocation.request]
        for door in missing:  # the one who asks has not heard of it yet
            self._feed(key, DoorGone(door, "it is not there any more"))

    # Credentials

    def _whole(self, who: str) -> str:
        """Return what those below know all by that someone asks for."""
        return f"{self.name}.{self.instance}.{who.lstrip('=')}"

    def forget(self, who: str) -> None:
        """Someone asks for nothing more."""
        self._forget_lent(self._whole(who))

    def _forget_lent(self, request: str, door: str = "") -> None:
        for one, path in [key for key in self._lent if key[0] == request and door in ("", key[1][0])]:
            if not self._lent[one, path].waiting:
                del self._lent[one, path]

    def _lend(self, key: tuple[str, str], path: tuple[str, ...]) -> None:
        """An allocation wants the credential of a site; for all of a request there is one."""
        request, door = self._whole(key[0]), path[0]
        lent = self._lent.setdefault((request, path), _Lent())
        if lent.credential is not None and self.now < lent.since_s + LENT_S:
            self._feed(key, CredentialHere(path, lent.credential))
            return
        lent.credential = None
        if not lent.waiting:
            self.actions.append(ToPeer(door, CredentialWanted(request, path[1:])))
        lent.waiting = (*lent.waiting, key)

    def _take_lent(self, who: str, message: CredentialLent) -> None:
        """A site or service below lends a credential: to a request here, or to one of the parent."""
        path = (who, *message.path)
        lent = self._lent.get((message.request, path))
        if lent is None:
            asked = CredentialWanted(message.request, path)
            if asked in self._passed:  # else a parent that is gone has asked for it
                self._passed.remove(asked)
                self._tell_lent(replace(message, path=path))
            return
        keys, lent.waiting = lent.waiting, ()
        lent.credential, lent.since_s = message.credential, self.now
        for key in keys:
            self._feed(key, CredentialHere(path, message.credential, message.error))

    def _pass_down(self, asked: CredentialWanted) -> None:
        door, *rest = asked.path
        if door in self.sites or door in self.children:
            self._passed.append(asked)
            self.actions.append(ToPeer(door, replace(asked, path=tuple(rest))))
        else:
            self._tell_lent(CredentialLent(asked.request, asked.path, error=f"{door} is not there any more"))

    def _tell_lent(self, message: CredentialLent) -> None:
        self.actions.append(ToPeer(PARENT, message))

    def _note_placed(self, who: str, placed: Mapping[tuple[str, ...], Mapping[str, int]], sign: int) -> None:
        counters = [self._placed] if who == PARENT else [self._placed, self._placed_here]
        for path, wanted in placed.items():
            for counter in counters:
                there = counter.setdefault(path, {})
                for kind, count in wanted.items():
                    there[kind] = there.get(kind, 0) + sign * count
