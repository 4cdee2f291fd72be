"""A tree of co-allocation services in a simulated world, without processes (COA-2, COA-3, COA-7).

The services are those of the product. What they say takes time to arrive. A service can be killed and started
again, or suspended for three leases; any connection can end at any of its messages; a site can fail a part,
and credentials can expire. The world checks what must hold: programs start only after all of a request were
ready and before its barrier is over, each request is answered once, and in the end nothing is held.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from random import Random

from attrs import define, field

from gspc_trio.components.coallocation.agents.delegation import (
    ID_BYTES,
    Credential,
    CredentialLimit,
    CredentialUse,
    CredentialVerifier,
    NotDelegated,
    mint,
)
from gspc_trio.components.coallocation.agents.service import (
    PARENT,
    CoallocationService,
    DropPeer,
    ParentLinked,
    PeerGone,
    PeerSaid,
    ServiceMessage,
    SiteOffered,
    ToPeer,
)
from gspc_trio.components.coallocation.agents.words import (
    LEASE_S,
    CancelParts,
    CredentialLent,
    CredentialWanted,
    DownMessage,
    OptionLadder,
    PartNeed,
    PartsAccepted,
    PartsDone,
    PartsGo,
    PartsReady,
    PartsRequest,
    PlacedPart,
    SiteOffer,
    SubmitParts,
)
from gspc_trio.components.coallocation.host import (
    CoallocationHost,
    HostAction,
    HostEvent,
    NoteRecords,
    RequestRead,
    RequestRestored,
    RequestStopped,
)
from gspc_trio.core.machine import Tick
from gspc_trio.testing.checkers.base import Broken

PARENTS = {"top": "", "left": "top", "low": "left", "right": "top"}
SITES = {"a": "left", "b": "low", "c": "right", "d": "top", "e": "left"}
"""Name -> its service."""

REQUESTS = 12
FAULTS_UNTIL_S = 40.0
END_S = 2000.0
"""Simulated seconds within which everything has ended."""

LATE_S = 1.0
"""So long after a client was told that its request has ended nothing more of it starts."""

SECRET = b"the secret of all sites"


@define(eq=False)
class Connection:
    """A connection of two that are called by these names by the other one.

    Attributes:
        ends: (who, what the other one is called there), of both.
        open: whether anything arrives any more.
        cut_after: number of messages after which it ends.
        killed: who was killed, and so ended it: what that has said before is on its way to the other one.
        noticed: the other one knows.
    """

    ends: tuple[tuple[str, str], tuple[str, str]]
    open: bool = True
    cut_after: int = -1
    killed: str = ""
    noticed: bool = False

    def reaches(self, who: str) -> bool:
        """Whether what was said over it arrives at someone now."""
        return self.open or (self.killed not in ("", who) and not self.noticed)


@define(eq=False)
class Host:
    """A service as the world has it: its machine, and what waits while it is suspended."""

    machine: CoallocationService | CoallocationHost
    paused: bool = False
    waiting: deque[HostEvent] = field(factory=deque)
    peers: dict[str, Connection] = field(factory=dict)

    @property
    def service(self) -> CoallocationService:
        """Its place in the tree."""
        return self.machine if isinstance(self.machine, CoallocationService) else self.machine.service


@define(eq=False)
class Held:
    """What a site knows of a request."""

    request: PartsRequest
    count: int
    state: str = "queued"


@define(eq=False)
class SimulatedSite:
    """A run-time system with some cores, which gives them in the order in which they were asked for."""

    name: str
    cores: int
    verifier: CredentialVerifier
    held: dict[str, Held] = field(factory=dict)
    connection: Connection | None = None


class CoallocationWorld:
    """A tree of services, sites and one client of the top, with what happens to them, from a seed.

    Args:
        seed: of everything.
        faults: whether anything happens to them.
        cut_at: number of the message at which its connection ends, -1 for none.

    Attributes:
        now: simulated seconds.
        happened: what has happened, and when.
        messages: number of messages by type.
        answers: request -> what the client was told in the end.
    """

    def __init__(self, seed: int, faults: bool = True, cut_at: int = -1) -> None:
        self._random = Random(seed)
        self._cut_at = cut_at
        self.now: float = 0.0
        self.happened: list[str] = []
        self.messages: Counter[str] = Counter()
        self.answers: dict[str, PartsDone] = {}
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._arrives: dict[tuple[int, str], float] = {}
        self._lives: Counter[str] = Counter()
        self._submits: dict[str, SubmitParts] = {}
        self._ready: dict[str, set[int]] = {}
        self._held_s: dict[str, float] = {}
        self._go: set[str] = set()
        self._told_s: dict[str, float] = {}
        self._faults = faults
        self.hosts: dict[str, Host] = {}
        self.sites: dict[str, SimulatedSite] = {
            name: SimulatedSite(name, self._random.choice((2, 4, 8)), CredentialVerifier(SECRET))
            for name in SITES
        }
        for name in PARENTS:
            self._start(name)
        for number in range(REQUESTS):
            self._at(self._random.uniform(3.0, 30.0), partial(self._submit, f"q{number}"))
        if faults:
            for _ in range(self._random.randint(1, 6)):
                self._plan()

    def run(self) -> None:
        """Run until everything has ended.

        Raises:
            Broken: something does not hold.
        """
        while len(self.answers) < REQUESTS or self.now < FAULTS_UNTIL_S or self._is_busy():
            due = [(self._due(host), name) for name, host in self.hosts.items() if not host.paused]
            due_s, name = min(due, default=(END_S, ""))
            if self._heap and self._heap[0][0] <= due_s:
                self.now, _, call = heappop(self._heap)
                call()
            else:
                self.now = max(self.now, due_s)
                if name:
                    self._feed(name, Tick())
            if self.now >= END_S:
                left = [name for name in self._submits if name not in self.answers]
                held = {site.name: list(site.held) for site in self.sites.values() if site.held}
                raise Broken(f"after {END_S:g} s requests {left} have no answer, and {held} are held")

    def _due(self, host: Host) -> float:
        due_s = host.machine.deadline()
        return END_S if due_s is None else due_s

    def _is_busy(self) -> bool:
        if any(site.held for site in self.sites.values()):
            return True
        return any(host.service.allocations for host in self.hosts.values())

    # What happens

    def _plan(self) -> None:
        at_s = self._random.uniform(2.0, FAULTS_UNTIL_S - 25.0)
        name = self._random.choice([one for one in PARENTS if one != "top"])
        kind = self._random.choice(("kill", "pause", "cut", "cut", "cut"))
        if kind == "kill":
            self._at(at_s, partial(self._kill, name))
        elif kind == "pause":
            self._at(at_s, partial(self._pause, name, self._random.choice((0.5, 3.0)) * LEASE_S))
        else:
            self._at(at_s, partial(self._cut_soon, self._random.randint(0, 12)))

    def _note(self, what: str) -> None:
        self.happened.append(f"{self.now:.3f} s: {what}")

    def _start(self, name: str) -> None:
        self._lives[name] += 1
        self.hosts[name] = Host(self._machine(name, f"i{self._lives[name]}"))
        for site, service in SITES.items():
            if service == name:
                self._attach(site)
        self._link(name)

    def _machine(self, name: str, instance: str) -> CoallocationService | CoallocationHost:
        return CoallocationService(name, instance)

    def _attach(self, name: str) -> None:
        """A site connects to its service."""
        site, service = self.sites[name], SITES[name]
        if service not in self.hosts or (site.connection is not None and site.connection.open):
            return
        if name in self.hosts[service].peers:
            self._at(self.now + 1.0, partial(self._attach, name))
            return
        site.connection = Connection(((service, name), (name, service)))
        self.hosts[service].peers[name] = site.connection
        cores = {"core": site.cores}
        self._hand(service, SiteOffered(SiteOffer((name,), cores, cores, lends=True)))

    def _link(self, name: str) -> None:
        """A service connects to its parent, again and again."""
        parent = PARENTS[name]
        host = self.hosts.get(name)
        if not parent or host is None or (PARENT in host.peers and host.peers[PARENT].open):
            return
        free = parent in self.hosts and name not in self.hosts[parent].peers
        if PARENT not in host.peers and not host.paused and free:
            host.peers[PARENT] = self.hosts[parent].peers[name] = Connection(((name, PARENT), (parent, name)))
            self._hand(name, ParentLinked())
        else:
            self._at(self.now + 1.0, partial(self._link, name))

    def _kill(self, name: str) -> None:
        host = self.hosts.pop(name, None)
        if host is None:
            return
        self._note(f"{name} was killed")
        for connection in list(host.peers.values()):
            if connection.open:
                connection.killed = name
            self._cut(connection)
        self._at(self.now + 1.0, partial(self._start, name))

    def _pause(self, name: str, time_s: float) -> None:
        if name in self.hosts and not self.hosts[name].paused:
            self._note(f"{name} was suspended for {time_s:g} s")
            self.hosts[name].paused = True
            self._at(self.now + time_s, partial(self._resume, name, self.hosts[name]))

    def _resume(self, name: str, host: Host) -> None:
        host.paused = False
        while host.waiting and self.hosts.get(name) is host and not host.paused:
            self._feed(name, host.waiting.popleft())

    def _cut_soon(self, messages: int) -> None:
        every = {id(one): one for host in self.hosts.values() for one in host.peers.values() if one.open}
        self._random.choice(list(every.values())).cut_after = messages

    def _cut(self, connection: Connection) -> None:
        """End a connection: what is on its way is lost, and both learn of it."""
        if not connection.open:
            return
        connection.open = False
        for who, other in connection.ends:
            self._at(self.now + self._random.uniform(0.0, 0.2), partial(self._lost, connection, who, other))

    def _lost(self, connection: Connection, who: str, other: str) -> None:
        connection.noticed = connection.noticed or who != connection.killed
        if who in self.sites:
            site = self.sites[who]
            for request in list(site.held):
                self._cancel(site, request)
            self._at(self.now + 1.0, partial(self._attach, who))
        elif who in self.hosts and self.hosts[who].peers.get(other) is connection:
            self._hand(who, PeerGone(other))
            if other == PARENT:
                self._at(self.now + 1.0, partial(self._link, who))

    # Services

    def _hand(self, name: str, event: HostEvent) -> None:
        host = self.hosts.get(name)
        if host is not None and host.paused:
            host.waiting.append(event)
        elif host is not None:
            self._feed(name, event)

    def _feed(self, name: str, event: HostEvent) -> None:
        host = self.hosts[name]
        if isinstance(event, PeerGone):
            host.peers.pop(event.who, None)  # by now another one may have this name
        if isinstance(event, PeerSaid) and isinstance(event.message, PartsAccepted):
            self._held_s.setdefault(event.message.request, self.now)
        actions: Sequence[HostAction]
        if isinstance(host.machine, CoallocationHost):
            actions = host.machine.handle(event, self.now)
        else:
            assert not isinstance(event, RequestRead | RequestRestored | RequestStopped)
            actions = host.machine.handle(event, self.now)
        host.machine.check()
        for action in actions:
            if self.hosts.get(name) is not host:
                return  # it was killed meanwhile
            if isinstance(action, DropPeer):
                if action.who in host.peers:
                    self._cut(host.peers[action.who])
            elif isinstance(action, ToPeer):
                self._say(name, action)
            elif isinstance(action, NoteRecords):
                self._write(name, action)

    def _write(self, _name: str, _action: NoteRecords) -> None:
        """A service writes into its journal; here none has one."""

    def _say(self, name: str, action: ToPeer) -> None:
        if name == "top" and action.who == "client":
            self._tell_client(action.message)
            return
        if name == "top":
            self._check_said(name, action)
        self._send(name, action.who, action.message)

    def _connection(self, name: str, to: str) -> Connection | None:
        """Return how someone reaches another one."""
        host = self.hosts.get(name)
        return self.sites[name].connection if host is None else host.peers.get(to)

    def _send(self, name: str, to: str, message: ServiceMessage) -> None:
        self.messages[type(message).__name__] += 1
        connection = self._connection(name, to)
        if connection is None or not connection.open:
            return
        if connection.cut_after == 0 or self.messages.total() == self._cut_at:
            self._note(f"the connection {connection.ends} ended at {message}")
            self._cut(connection)
            return
        connection.cut_after -= 1
        number = 1 if connection.ends[0] == (name, to) else 0
        lane = id(connection), name
        arrives_s = max(self.now + self._random.uniform(0.0001, 0.02), self._arrives.get(lane, 0.0))
        self._arrives[lane] = arrives_s
        self._at(arrives_s, partial(self._arrive, connection, *connection.ends[number], message))

    def _arrive(self, connection: Connection, who: str, other: str, message: ServiceMessage) -> None:
        if connection.reaches(who):
            if who in self.sites:
                assert isinstance(message, PartsRequest | PartsGo | CancelParts | CredentialWanted)
                self._site(self.sites[who], message)
            else:
                self._hand(who, PeerSaid(other, message))

    # The client

    def _submit(self, name: str) -> None:
        random = self._random
        offers = [site.cores for site in self.sites.values()]
        needs, ladders = [], []
        for part in range(random.choice((1, 1, 2, 3))):
            contact = random.choice((*SITES, "", "", ""))
            most = self.sites[contact].cores if contact else min(offers)
            needs.append(
                PartNeed(
                    "core", max(1, random.randint(1, most) // 2), 0, contact=contact, payload=name.encode()
                )
            )
            if random.random() < 0.2:
                ladders.append(OptionLadder(part, "count", (needs[part].count + 1, needs[part].count)))
                needs[part] = PartNeed(
                    "core", needs[part].count + 1, 0, contact=contact, payload=name.encode()
                )
        lives_s, minted = self._brought()
        on_error = random.choice((0, 2, 5)) if lives_s < 60.0 or len(needs) > 1 else None
        told = SubmitParts(name, tuple(needs), tuple(ladders), on_error, random.choice((2.0, 60.0)), minted)
        self._submits[name] = told
        self._feed("top", PeerSaid("client", told))
        if self._faults and random.random() < 0.15:
            self._at(
                self.now + random.uniform(0.0, 2.0),
                partial(self._feed, "top", PeerSaid("client", CancelParts(name))),
            )

    def _brought(self) -> tuple[float, dict[str, Credential]]:
        """Return the credentials that a client brings, and how long they live; half of them bring none."""
        lives_s = self._random.choice((5.0, 3600.0, 3600.0)) if self._faults else 3600.0
        if self._random.random() < 0.5:
            return 3600.0, {}
        return lives_s, {site: self._mint(site, lives_s) for site in SITES}

    def _mint(self, site: str, lives_s: float, request: str | None = None) -> Credential:
        limit = CredentialLimit(site, expires_s=self.now + lives_s, request=request)
        return mint(SECRET, self._random.randbytes(ID_BYTES), limit, self.now)

    def _tell_client(self, message: ServiceMessage) -> None:
        if isinstance(message, PartsGo):
            if message.request in self.answers:
                raise Broken(f"{message.request} starts after its end")
        elif isinstance(message, PartsDone):
            if message.request in self.answers:
                raise Broken(f"{message.request} is answered twice: {message}")
            self.answers[message.request] = message
            self._told_s[message.request] = self.now

    def _check_said(self, _name: str, action: ToPeer) -> None:
        """All that the top says: go only when all are ready, and in time."""
        message = action.message
        if not isinstance(message, PartsRequest | PartsGo):
            return
        allocation = next(
            one for one in self.hosts["top"].service.allocations.values() if one.id_below == message.request
        )
        name = allocation.wanted.request
        submit = self._submits[name]
        if isinstance(message, PartsRequest):
            if next(iter(allocation.doors)) == action.who:
                self._ready[name] = set()
            return
        missing = set(range(len(submit.needs))) - self._ready[name]
        if missing:
            raise Broken(f"{name} starts while its parts {sorted(missing)} are not ready")
        if self.now >= self._held_s[message.request] + submit.barrier_timeout_s:
            raise Broken(f"{name} starts after its barrier was over")
        self._go.add(name)

    # Sites

    def _site(self, site: SimulatedSite, message: DownMessage | CredentialWanted) -> None:
        if isinstance(message, CredentialWanted):
            lives_s = self._random.choice((5.0, 3600.0)) if self._faults else 3600.0
            lent = self._mint(site.name, lives_s, message.request)
            self._from_site(site, CredentialLent(message.request, (), lent))
        elif isinstance(message, PartsRequest) and SITES[site.name] not in self.hosts:
            pass  # the service that asks was killed: this goes with its connection
        elif isinstance(message, PartsRequest):
            count = sum(part.need.count for part in message.parts)
            try:
                place = self.hosts[SITES[site.name]].service.place
                for credential in _credentials(message):
                    use = CredentialUse(site.name, frozenset(["core"]), count, place)
                    site.verifier.accept(credential, use, self.now)
            except NotDelegated as error:
                self._from_site(site, PartsDone(message.request, str(error)))
                return
            site.held[message.request] = Held(message, count)
            self._serve(site)
        elif message.request in site.held and isinstance(message, CancelParts):
            self._cancel(site, message.request)
        elif message.request in site.held:
            held = site.held[message.request]
            if held.state == "ready":
                self._check_start(held)
                held.state = "running"
                run_s = self._random.choice((0.01, 0.5, 3.0))
                self._at(self.now + run_s, partial(self._end, site, held, self._failure(), True))
            elif held.state != "stopping":
                raise Broken(f"{message} comes to {site.name} when it is {held.state}")

    def _key(self, part: PlacedPart) -> str:
        """Return what is allocated together with a part."""
        return part.need.payload.decode()

    def _check_start(self, held: Held) -> None:
        name = self._key(held.request.parts[0])
        if name not in self._go:
            raise Broken(f"parts of {name} start, and nobody has said so")
        if self.now > self._told_s.get(name, END_S) + LATE_S:
            raise Broken(f"parts of {name} start after its end was told")

    def _failure(self) -> str:
        """Return how a program ends."""
        return ""

    def _serve(self, site: SimulatedSite) -> None:
        free = site.cores - sum(held.count for held in site.held.values() if held.state != "queued")
        for held in list(site.held.values()):
            if held.state != "queued":
                continue
            if held.count > free:
                break
            free -= held.count
            held.state = "held"
            self._from_site(site, PartsAccepted(held.request.request))
            ready_s = self._random.choice((0.01, 0.1, 1.999, 2.0))
            fails = self._faults and self._random.random() < 0.05
            call = (
                partial(self._end, site, held, "cannot start", False)
                if fails
                else partial(self._is_ready, site, held)
            )
            self._at(self.now + ready_s, call)

    def _is_ready(self, site: SimulatedSite, held: Held) -> None:
        if site.held.get(held.request.request) is held and held.state == "held":
            held.state = "ready"
            for part in held.request.parts:
                self._ready.setdefault(self._key(part), set()).add(part.part)
            self._from_site(site, PartsReady(held.request.request))

    def _cancel(self, site: SimulatedSite, request: str) -> None:
        held = site.held[request]
        if held.state != "stopping":
            ran, held.state = held.state == "running", "stopping"
            self._at(self.now + 0.05, partial(self._end, site, held, "cancelled", ran))

    def _end(self, site: SimulatedSite, held: Held, error: str, ran: bool) -> None:
        if site.held.get(held.request.request) is not held or (
            held.state == "stopping" and error != "cancelled"
        ):
            return
        del site.held[held.request.request]
        if not ran:
            for credential in _credentials(held.request):
                site.verifier.give_back(credential)
        self._from_site(site, PartsDone(held.request.request, error, ran))
        self._serve(site)

    def _from_site(self, site: SimulatedSite, message: ServiceMessage) -> None:
        self._send(site.name, SITES[site.name], message)

    def _at(self, at_s: float, call: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._heap, (at_s, self._count, call))


def _credentials(request: PartsRequest) -> set[Credential]:
    """Return what is brought with a request; a service brings none to a site of its own."""
    return {part.credential for part in request.parts if part.credential is not None}
