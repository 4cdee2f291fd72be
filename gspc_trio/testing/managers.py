"""Several resource managers, jobs and hosts in one simulated world, without processes (ASP-11).

The machines are those of the product. What they say takes time to arrive, every one of them works on one
thing at a time, and managers can be killed. The world checks what must hold: no resource in two live grants
over all managers, newer grants only, and every task gets done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from random import Random

from attrs import define, field
from msgspec import structs

from gspc_trio.components.managers.claims import OptimisticManagers
from gspc_trio.components.managers.member import MemberManager, Outgoing
from gspc_trio.components.managers.members import Managers
from gspc_trio.components.managers.messages import (
    JobWord,
    JobWords,
    ManagerDown,
    ManagerEvent,
    ManagersAction,
    ManagerSaid,
    ManagersEvent,
    ManagerUp,
    TellJob,
    TellManager,
)
from gspc_trio.components.managers.partitions import Partitions
from gspc_trio.components.rm.events import Added, JobGone, JobJoined, Removed
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import (
    Demand,
    Grant,
    Lapsed,
    Offence,
    Recall,
    Refuse,
    Release,
    Revoke,
    Revoked,
)
from gspc_trio.components.rm.shell.service import AnsweringManager
from gspc_trio.components.rts.events import ResourcesLeft, RmAnswered
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, ResourceId
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.policies.placement import FIFO
from gspc_trio.testing.checkers.base import Broken, Family

RESTART_S = 0.5
"""How long it takes until another manager is there in place of one that was killed."""

END_S = 200.0
"""Simulated seconds after the last thing that happens within which all tasks have ended."""

REST_S = 20.0
"""Simulated seconds after the end of all jobs within which nothing is held any more."""

HOST_BYTES = 7
"""Memory of a host: what tasks ask for does not fit twice in some ways."""

_SHAPES = (
    CORE,
    CORE,
    Shape((Requirement("node"),)),
    Shape((Requirement("node"),) * 2),
    Shape((Requirement("core"),) * 2),
    Shape((Requirement("core"),), memory_bytes=3),
    Shape((Requirement("core"),), memory_bytes=2, memories=(1,)),
)


@define(eq=False)
class Work:
    """A job: tasks of one shape, and what it holds.

    Attributes:
        job, shape: which.
        left: tasks that have not begun.
        task_s: how long each takes.
        at_once: how many it would run at one time.
        done: how many have ended.
    """

    job: JobId
    shape: Shape
    left: int
    task_s: float
    at_once: int = 1_000_000
    weight: float = 1.0
    done: int = 0
    seen: GrantId = NO_GRANT
    held: dict[GrantId, Grant] = field(factory=dict)
    refused: list[Refuse] = field(factory=list)
    is_gone: bool = False


@define(eq=False)
class _Manager:
    """The process of a manager: its machine, what it has not taken yet, and when it is free to do so."""

    number: int
    life: int
    machine: MemberManager | None = None
    outgoing: Outgoing | None = None
    inbox: list[ManagerEvent] = field(factory=list)
    free_at: float = 0.0
    tick_at: float | None = None


class ManagersWorld:
    """Managers, jobs and hosts; :meth:`run` lets time pass.

    Args:
        managers: says who decides what.
        random: for delays.
        latency_s: longest time that a message takes.
        clock: an event keeps whoever handles it as long as this says; by default for no time.
        checks: the machines check themselves after each event.
        placement: which host a resource comes from.
        checkpoint_words: see :class:`Outgoing`.

    Attributes:
        now: the time.
        grants, kills: how many there were.
        busy_s: manager (or -1: the run-time system) -> how long it worked.
    """

    def __init__(
        self,
        managers: Managers,
        *,
        random: Random,
        latency_s: float = 0.001,
        clock: Callable[[], float] = lambda: 0.0,
        checks: bool = True,
        placement: str = FIFO,
        checkpoint_words: int = 0,
    ) -> None:
        self.managers = managers
        self.now: float = 0.0
        self.grants: int = 0
        self.kills: int = 0
        self.busy_s: dict[int, float] = {}
        self.jobs: dict[JobId, Work] = {}
        self._random, self._latency_s = random, latency_s
        self._clock, self._checks = clock, checks
        self._placement = placement
        self._checkpoint_words = checkpoint_words
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._arrivals: dict[tuple[int, int], float] = {}
        self._family = Family()
        self._live: dict[ResourceId, GrantId] = {}
        self._newest: dict[ResourceId, GrantId] = {}
        self._there: set[ResourceId] = set()
        self._bytes: dict[GrantId, set[tuple[str, int]]] = {}
        self._rts_inbox: list[ManagersEvent] = []
        self._unheard: dict[JobId, int] = {}
        self._rts_free_at = 0.0
        self._rts_tick: float | None = None
        self._processes = [_Manager(member.number, 0) for member in managers.members]
        for process in self._processes:
            self._start(process)

    # What people do -----------------------------------------------------------------------------------------

    def add_host(self, name: str, cores: int = 2, more: Sequence[Resource] = ()) -> None:
        """A host comes, with a node and so many cores."""
        node = Resource(f"{name}.node", "node", memory_bytes=HOST_BYTES)
        below = [Resource(f"{name}.core{number}", "core", (node.resource_id,)) for number in range(cores)]
        event = Added((node, *below, *more), name)
        self._family.add(event)
        self._there.update(one.resource_id for one in event.resources)
        self.tell(event)

    def lose_host(self, name: str) -> None:
        """A host is gone, with all that runs there."""
        names = tuple(sorted(one for one in self._there if one.startswith(f"{name}.")))
        for one in names:
            self._live.pop(one, None)
            self._newest.pop(one, None)
            self._there.discard(one)
        self.tell(Removed(names, "lose"))

    def begin(self, work: Work) -> None:
        """A job comes."""
        self.jobs[work.job] = work
        self.tell(JobJoined(work.job, work.weight))
        self._demand(work)

    def end(self, work: Work) -> None:
        """A job server is gone; what it ran is fenced when its hosts say so."""
        if not work.is_gone:
            work.is_gone = True
            self.tell(JobGone(work.job))

    def kill(self, number: int) -> None:
        """End the process of a manager, and start another one."""
        process = self._processes[number]
        if process.machine is None:
            return
        self.kills += 1
        process.machine = None
        process.life += 1
        self._later(self._latency_s, lambda: self.tell(ManagerDown(number, "killed")))
        self._later(self._latency_s + RESTART_S, lambda: self._start(process))

    # Time ---------------------------------------------------------------------------------------------------

    def run(self, until_s: float, done: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until then, or until it is done."""
        while self._queue and self._queue[0][0] <= until_s and not done():
            self.now, _, act = heappop(self._queue)
            act()
        if not done():
            self.now = max(self.now, until_s)

    def is_done(self) -> bool:
        """Whether all jobs have done all."""
        return all(work.is_gone or not (work.left or work.held) for work in self.jobs.values())

    def _at(self, time_s: float, act: Callable[[], None]) -> None:
        self._number += 1
        heappush(self._queue, (max(time_s, self.now), self._number, act))

    def _later(self, delay_s: float, act: Callable[[], None]) -> None:
        self._at(self.now + delay_s, act)

    def _send(self, source: int, target: int, act: Callable[[], None]) -> None:
        """Deliver in order: nothing overtakes what the same one has said to the same one."""
        busy = self._rts_free_at if source < 0 else self._processes[source].free_at
        arrives = max(self.now, busy) + self._random.uniform(0.2, 1.0) * self._latency_s
        arrives = max(arrives, self._arrivals.get((source, target), 0.0))
        self._arrivals[source, target] = arrives
        self._at(arrives, act)

    # The run-time system ------------------------------------------------------------------------------------

    def tell(self, event: ManagersEvent) -> None:
        """Have the run-time system take an event, when it is free to."""
        if not self._rts_inbox:
            self._at(self._rts_free_at, self._rts_turn)
        self._rts_inbox.append(event)

    def _say(self, work: Work, *words: JobWord) -> None:
        """Have a job say something; what it has said while nobody had time is taken together."""
        place = self._unheard.get(work.job, -1)
        if place >= 0:
            before = self._rts_inbox[place]
            assert isinstance(before, JobWords)
            self._rts_inbox[place] = JobWords(work.job, before.words + words)
        else:
            self._unheard[work.job] = len(self._rts_inbox)
            self.tell(JobWords(work.job, words))

    def _rts_turn(self) -> None:
        """Take all that has come."""
        events, self._rts_inbox = self._rts_inbox, []
        self._unheard.clear()
        for event in events:
            self._handle(event)

    def _handle(self, event: ManagersEvent) -> None:
        managers = self.managers
        began_s = self._clock()
        actions = managers.handle(event, max(self.now, self._rts_free_at))
        self._spend(-1, self._clock() - began_s)
        if self._checks:
            managers.check()
        for action in actions:
            self._perform(action)
        due_s = managers.deadline()
        if due_s is not None and due_s != self._rts_tick:
            self._rts_tick = due_s
            self._at(due_s, self._rts_ticks)

    def _rts_ticks(self) -> None:
        due_s, self._rts_tick = self.managers.deadline(), None
        if due_s is not None:
            if due_s <= self.now:
                self.tell(Tick())
            elif due_s != self._rts_tick:
                self._rts_tick = due_s
                self._at(due_s, self._rts_ticks)

    def _perform(self, action: ManagersAction) -> None:
        if isinstance(action, TellManager):
            process = self._processes[action.number]
            life, event = process.life, action.event
            self._send(-1, action.number, lambda: self._arrive(process, life, event))
        elif isinstance(action, TellJob):
            for word in action.words:
                self._perform(word)
        elif isinstance(action, Grant):
            self._given(action)
        elif isinstance(action, Recall):
            work = self.jobs[action.job]
            ids = action.grant_ids
            self._send(-1, -2, lambda: self._recalled(work, ids))
        elif isinstance(action, Lapsed):
            lapsed = action
            self._send(-1, -2, lambda: self._lapsed(self.jobs[lapsed.job], lapsed))
        elif isinstance(action, Refuse):
            self.jobs[action.job].refused.append(action)
        elif isinstance(action, Revoke):
            self._later(self._latency_s, lambda: self._revoked(action))
        elif isinstance(action, ResourcesLeft):
            self._there.difference_update(action.resource_ids)
        elif isinstance(action, Offence):
            raise Broken(f"{action.job} is told of an offence: {action.reason}")
        elif isinstance(action, RmAnswered) and action.refusal:
            raise Broken(f"refused: {action.refusal}")

    def _revoked(self, revoke: Revoke) -> None:
        self._free(revoke.grant_id, revoke.resources)
        self.tell(Revoked(revoke.grant_id, revoke.resources))

    # Jobs ---------------------------------------------------------------------------------------------------

    def _demand(self, work: Work, *before: Release) -> None:
        if not work.is_gone:
            credit = max(0, min(work.left, work.at_once - len(work.held)))
            self._say(work, *before, Demand(work.job, work.shape, credit, work.seen))

    def _given(self, grant: Grant) -> None:
        """A grant is on its way to a job.

        Raises:
            Broken: something of it is in use, or it is older than another grant of that.
        """
        self.grants += 1
        for name in grant.resources:
            for near in self._family.near(name):
                if near in self._live:
                    raise Broken(f"{name} is in {grant.grant_id}, and {near} in {self._live[near]}")
                if self._newest.get(near, NO_GRANT) >= grant.grant_id:
                    raise Broken(f"{grant.grant_id} of {name} is older than {self._newest[near]} of {near}")
        self._check_memory(grant)
        for name in grant.resources:
            if name in self._there:  # else it was lost while this was on its way, and the grant will lapse
                self._live[name] = self._newest[name] = grant.grant_id
        work = self.jobs[grant.job]
        self._send(-1, -2, lambda: self._got(work, grant))

    def _check_memory(self, grant: Grant) -> None:
        """Nobody else has a byte of its memory."""
        sizes = [size for size in (grant.shape.memory_bytes, *grant.shape.memories) if size]
        if len(grant.memories) != len(sizes):
            raise Broken(f"{grant.grant_id} has not the memory that was asked for: {grant}")
        mine = {
            (name, offset + at)
            for (name, offset), size in zip(grant.memories, sizes, strict=True)
            for at in range(size)
        }
        live = set(self._live.values())
        for other in [one for one in self._bytes if one not in live]:
            del self._bytes[other]
        for other, bytes_there in self._bytes.items():
            if both := mine & bytes_there:
                raise Broken(f"{grant.grant_id} and {other} have the same memory: {sorted(both)[0]}")
        if mine:
            self._bytes[grant.grant_id] = mine

    def _lapsed(self, work: Work, lapsed: Lapsed) -> None:
        for grant_id in lapsed.grant_ids:
            grant = work.held.pop(grant_id, None)
            if grant is not None:
                work.left += 1
        self._demand(work)

    def _got(self, work: Work, grant: Grant) -> None:
        work.seen = max(work.seen, grant.grant_id)
        if work.is_gone or any(self._live.get(name) != grant.grant_id for name in grant.resources):
            return  # its host is gone meanwhile
        work.held[grant.grant_id] = grant
        if work.left <= 0:
            self._say(work, self._give_back(work, grant.grant_id))
            return
        work.left -= 1
        self._later(work.task_s, lambda: self._ended(work, grant.grant_id))

    def _ended(self, work: Work, grant_id: GrantId) -> None:
        if grant_id in work.held and not work.is_gone:
            work.done += 1
            self._demand(work, self._give_back(work, grant_id))

    def _give_back(self, work: Work, grant_id: GrantId) -> Release:
        grant = work.held.pop(grant_id)
        self._free(grant_id, grant.resources)
        return Release(work.job, grant_id)

    def _recalled(self, work: Work, grant_ids: Sequence[GrantId]) -> None:
        """Tasks are as short as one grant: each comes back by itself."""

    def _free(self, grant_id: GrantId, names: Sequence[ResourceId]) -> None:
        for name in names:
            if self._live.get(name) == grant_id:
                del self._live[name]

    # Managers -----------------------------------------------------------------------------------------------

    def _start(self, process: _Manager) -> None:
        number = process.number
        numbers = self.managers.numbering(number)
        claims = isinstance(self.managers, OptimisticManagers)
        rm = ResourceManager(
            self.managers.epoch, None, self._placement, structs.replace(numbers, own_first=claims)
        )
        machine = process.machine = MemberManager(rm, AnsweringManager(rm), claims=claims)
        process.outgoing = Outgoing(machine, self._checkpoint_words)
        process.inbox = []
        process.free_at, process.tick_at = self.now, None
        self.tell(ManagerUp(number))

    def _arrive(self, process: _Manager, life: int, event: ManagerEvent) -> None:
        if process.machine is None or process.life != life:
            return
        if not process.inbox:
            self._at(process.free_at, lambda: self._turn(process, life))
        process.inbox.append(event)

    def _turn(self, process: _Manager, life: int) -> None:
        """Have a manager take all that has come, and then say what it has decided."""
        machine, outgoing = process.machine, process.outgoing
        if machine is None or outgoing is None or process.life != life:
            return
        events, process.inbox = process.inbox, []
        began_s = self._clock()
        for event in events:
            try:
                outgoing.add(machine.handle(event, self.now))
            except IllegalEvent as error:
                if isinstance(event, Added | Removed):
                    outgoing.add([RmAnswered(event, str(error))])
            if self._checks:
                machine.check()
        words = outgoing.take()
        self._spend(process.number, self._clock() - began_s)
        for word in words:
            heard = ManagerSaid(process.number, word)
            self._send(process.number, -1, partial(self._hear, process, life, heard))
        due_s = machine.deadline()
        if due_s is not None and due_s != process.tick_at:
            process.tick_at = due_s
            self._at(due_s, lambda: self._tick(process, life))

    def _hear(self, process: _Manager, life: int, heard: ManagerSaid) -> None:
        if process.life == life:
            self.tell(heard)

    def _tick(self, process: _Manager, life: int) -> None:
        machine = process.machine
        if machine is None or process.life != life:
            return
        due_s, process.tick_at = machine.deadline(), None
        if due_s is not None and due_s <= self.now:
            self._arrive(process, life, Tick())
        elif due_s is not None:
            process.tick_at = due_s
            self._at(due_s, lambda: self._tick(process, life))

    def _spend(self, number: int, cost_s: float) -> None:
        """Have somebody be busy."""
        self.busy_s[number] = self.busy_s.get(number, 0.0) + cost_s
        if number < 0:
            self._rts_free_at = max(self._rts_free_at, self.now) + cost_s
        else:
            self._processes[number].free_at = max(self._processes[number].free_at, self.now) + cost_s


def live(seed: int, managers: Managers) -> ManagersWorld:
    """Have jobs and hosts come and go, and managers killed, as a seed says; return the world at the end.

    Args:
        seed: of what happens, and when.
        managers: who decides.

    Raises:
        Broken: something does not hold.
    """
    random = Random(f"managers of {seed}")
    latency_s = random.choice((0.001, 0.01, 0.05))
    world = ManagersWorld(
        managers,
        random=Random(f"delays of {seed}"),
        latency_s=latency_s,
        checkpoint_words=random.choice((1, 7, 40, 0)),
    )
    world.run(0.1)
    names = [f"r{number + 1}" for number in range(random.randint(3, 6))]
    for name in names:
        world.add_host(name, random.randint(1, 4))
        world.run(world.now + random.random() * 0.05)
    world.run(world.now + 0.3)
    for _ in range(random.randint(5, 20)):
        kind = random.random()
        if kind < 0.45 and len(world.jobs) < 8:
            shape, tasks = random.choice(_SHAPES), random.randint(1, 40)
            task_s, at_once = random.choice((0.002, 0.05, 0.3)), random.choice((2, 1000))
            world.begin(Work(f"j{len(world.jobs) + 1}", shape, tasks, task_s, at_once))
        elif kind < 0.6 and world.jobs:
            world.end(random.choice(list(world.jobs.values())))
        elif kind < 0.85:
            world.kill(random.randrange(len(managers.members)))
        elif len(names) > 2 and random.random() < 0.4:
            world.lose_host(names.pop(0))
        world.run(world.now + random.choice((0.0, 0.01, 0.1, 0.6)))
    world.run(world.now + END_S, world.is_done)
    for job in world.jobs.values():
        if not job.is_gone and (job.left or job.held):
            why = f", and it is refused: {job.refused[-1].reason}" if job.refused else ""
            raise Broken(f"after {END_S:g} s {job.left} tasks of {job.job} have not begun{why}", job.job)
        world.end(job)
    world.run(world.now + REST_S)
    for member in managers.members:
        for name in member.log.held():
            raise Broken(f"{name} is still held {REST_S:g} s after the end of all jobs", name)
    return world


def managers_broken(seed: int) -> str:
    """Simulate several resource managers, of both kinds in turn, and return what did not hold, or ""."""
    count = 2 + seed // 2 % 3
    random = Random(f"pauses of {seed}")
    optimistic = bool(seed % 2)
    try:
        live(seed, OptimisticManagers(count, 7, random) if optimistic else Partitions(count, 7))
    except Exception as error:
        sharing = "optimistic" if optimistic else "pessimistic"
        return f"{type(error).__name__}: {error} (of {count} {sharing} resource managers)"
    return ""
