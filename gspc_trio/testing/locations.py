"""One job on several run-time systems in a simulated world, without processes (SCH-6).

Scheduler, locations and resource managers are those of the product. What they say takes time to arrive. A
location can be cut off (its manager cannot be reached, while its hosts work on) and come back, as another
manager that knows nothing, or not; or be killed with all that runs there. The world checks what must hold:
each task ends once and none is lost, those bound to a location run there alone, and each resource has one
grant.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import TypeAlias

from attrs import define, field

from gspc_trio.components.job.locations.machine import Locations
from gspc_trio.components.job.locations.names import Location, location_of
from gspc_trio.components.job.locations.state import Away, Gone, LocationsEvent, Said, SchedulerSays, Tell, To
from gspc_trio.components.job.scheduler.interface import (
    Claims,
    GivenUp,
    OutsideEvent,
    Reclaim,
    ResourcesLost,
    ResourcesUp,
    SchedulerEvent,
    Stop,
    Stopped,
    TaskDone,
    TasksReady,
    Withheld,
)
from gspc_trio.components.job.scheduler.machine import Scheduler
from gspc_trio.components.rif.messages import Hold
from gspc_trio.components.rm.events import Added, Claimed, JobJoined, RmEvent
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Grant, Lapsed, Recall, Refuse, Release
from gspc_trio.components.worker.messages import Cancel, Finished, Submit, TakeBack
from gspc_trio.core.ids import NO_GRANT, Attempt, GrantId, ResourceId, TaskId
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Reason, Requirement, Shape, Task, TaskOptions, TaskState
from gspc_trio.policies.scheduling import USUAL
from gspc_trio.testing.checkers.base import Broken

NAMES = ("here", "there", "yonder")
TASKS = 60
END_S = 600.0
"""Simulated seconds within which everything has ended."""

GRACE_S = 5.0
"""How long a location that cannot be reached is awaited."""

NOTICE_S = 0.2
"""After so long at most it is known that a location was killed."""

GONE = "it was killed"

_OPTIONS = TaskOptions(loss_attempts=20)
_GANG = (Requirement("core"), Requirement("core"))

Attempted: TypeAlias = tuple[TaskId, Attempt]


@define(eq=False)
class Site:
    """A run-time system: its resource manager, and the workers of its hosts.

    Attributes:
        at: its names.
        cores: what it has.
        rm: its manager.
        life: number of its connection to the job: what was said over an older one does not arrive.
        lives: whether its hosts work; ``reached`` whether its manager hears the job.
        queues: resource -> attempts at its worker, the running one first.
        newest: resource -> newest grant under which something was submitted.
    """

    at: Location
    cores: tuple[Resource, ...]
    rm: ResourceManager
    life: int = 0
    lives: bool = True
    reached: bool = True
    queues: dict[ResourceId, deque[Attempted]] = field(factory=dict)
    newest: dict[ResourceId, GrantId] = field(factory=dict)


class LocationsWorld:
    """A job on three locations, with what happens to them, from a seed.

    Args:
        seed: of everything.
        faults: whether anything happens to the locations.

    Attributes:
        happened: what has happened to them, and when.
        ran: where how many attempts have ended that finished.
        events: number of events that machines have taken.
    """

    def __init__(self, seed: int, faults: bool = True) -> None:
        self._random = Random(seed)
        self.now: float = 0.0
        self.events: int = 0
        self.happened: list[str] = []
        self.ran: Counter[str] = Counter()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._submitted = 0
        self._arrives: dict[tuple[str, str], float] = {}
        self._queue: deque[To | Tell] = deque()
        self._performing = False
        self._stopped = False
        self._tasks: dict[TaskId, Task] = {}
        self._ended: dict[TaskId, TaskDone] = {}
        self.scheduler: Scheduler = USUAL.scheduler("j1")
        names = [Location(name, number, "j1", f"j{number + 1}") for number, name in enumerate(NAMES)]
        self.machine: Locations = Locations(names, USUAL.locations)
        self.sites: dict[str, Site] = {at.name: self._site(at) for at in names}
        for site in self.sites.values():
            self._from_host(site, ResourcesUp(site.cores))
        self._add_tasks()
        if faults:
            self._plan()

    def run(self) -> None:
        """Run to the end of the job.

        Raises:
            Broken: something does not hold.
        """
        while not self._stopped:
            due = min((at for at in self._deadlines() if at is not None), default=END_S)
            if self._heap and self._heap[0][0] <= due:
                self.now, _, call = heappop(self._heap)
                call()
            else:
                self.now = max(self.now, due)
                self._tick()
            held = sum(len(place.held) for place in self.machine.places.values())
            if held != self.scheduler.statistics().grants:
                raise Broken(f"{self.scheduler.statistics().grants} grants are held, {held} are counted")
            if self.now >= END_S:
                left = sorted(set(self._tasks) - set(self._ended))
                raise Broken(f"after {END_S:g} s tasks {left} have not ended", f"task {left[:1]} of j1")
            if len(self._ended) == len(self._tasks) and not self.scheduler.live:
                self._schedule(Stop("all is done"))
        self._check_end()

    # What there is, and what happens to it

    def _site(self, at: Location) -> Site:
        cores = tuple(Resource(f"r1.core{one}", "core") for one in range(self._random.choice((1, 2, 4))))
        site = Site(at, cores, ResourceManager(1))
        site.rm.handle(Added(cores), 0.0)
        site.rm.handle(JobJoined(at.job_there), 0.0)
        return site

    def _add_tasks(self) -> None:
        for number in range(1, TASKS + 1):
            at = self._random.choice(NAMES) if self._random.random() < 0.3 else ""
            gang = (
                not at and self._random.random() < 0.1 and any(len(s.cores) > 1 for s in self.sites.values())
            )
            shape = Shape(_GANG, at=at) if gang else Shape(at=at)
            self._tasks[number] = Task(number, "one", 0, shape=shape, options=_OPTIONS)
        rest = list(self._tasks.values())
        while rest:
            some, rest = rest[:7], rest[7:]
            ready = partial(self._schedule, TasksReady(tuple(some)))
            self._at(self._random.uniform(0.0, 4.0), ready)

    def _plan(self) -> None:
        """Say what happens to which location; the first one stays."""
        for site in list(self.sites.values())[1:]:
            begin_s = self._random.uniform(0.0, 8.0)
            kind = self._random.choice(("nothing", "kill", "cut", "cut and back", "cut and back"))
            if kind == "kill":
                self._at(begin_s, partial(self._kill, site))
            elif kind != "nothing":
                away_s = self._random.uniform(0.1, GRACE_S) if kind != "cut" else 0.0
                self._at(begin_s, partial(self._cut, site, away_s))

    def _kill(self, site: Site) -> None:
        """All that runs there ends at once, and is reported by nobody."""
        self.happened.append(f"{self.now:.3f} s: {site.at.name} was killed")
        site.lives = site.reached = False
        site.life += 1
        site.queues.clear()
        self._at(self.now + self._random.uniform(0.0, NOTICE_S), partial(self._lose, site))

    def _cut(self, site: Site, away_s: float) -> None:
        """Its manager cannot be reached; it is back after a while, or never (0)."""
        self.happened.append(f"{self.now:.3f} s: {site.at.name} was cut off for {away_s:.3f} s")
        site.reached = False
        site.life += 1
        self._tell(Away(site.at.name))
        if away_s:
            self._at(self.now + away_s, partial(self._back, site))
        else:
            self._at(self.now + GRACE_S, partial(self._lose, site))

    def _back(self, site: Site) -> None:
        site.rm = ResourceManager(site.rm.newest[0] + 1)
        site.reached = True
        site.life += 1
        site.rm.handle(Added(site.cores), self.now)
        site.rm.handle(JobJoined(site.at.job_there), self.now)
        self._tell(Said(site.at.name, Reclaim()))

    def _lose(self, site: Site) -> None:
        """It is known to have gone: as the shell does, hosts first."""
        ids = tuple(one.resource_id for one in site.cores)
        site.lives = False
        site.queues.clear()
        self._tell(Said(site.at.name, Withheld(ids, self._submitted)))
        self._tell(Said(site.at.name, ResourcesLost(ids, GONE)))
        self._tell(Gone(site.at.name, GONE))

    # The machines

    def _deadlines(self) -> list[float | None]:
        managers = [site.rm.deadline() for site in self.sites.values() if site.reached]
        return [self.scheduler.deadline(), self.machine.deadline(), *managers]

    def _tick(self) -> None:
        self._schedule(Tick())
        self._tell(Tick())
        for site in self.sites.values():
            if site.reached:
                self._manage(site, Tick())

    def _schedule(self, event: SchedulerEvent) -> None:
        self.events += 1
        actions = self.scheduler.handle(event, self.now)
        self.scheduler.check()
        for action in actions:
            if isinstance(action, TaskDone):
                self._done(action)
            elif isinstance(action, Stopped):
                self._stopped = True
            elif isinstance(action, SchedulerSays):
                self._tell(action)

    def _tell(self, event: LocationsEvent) -> None:
        """Have the locations take an event, and do what follows in order, as their shell does."""
        self.events += 1
        actions = self.machine.handle(event, self.now)
        self.machine.check()
        self._queue.extend(actions)
        if self._performing:
            return
        self._performing = True
        while self._queue:
            action = self._queue.popleft()
            if isinstance(action, Tell):
                self._schedule(action.event)
            else:
                self._send(self.sites[action.location], action.message)
        self._performing = False

    def _send(self, site: Site, message: object) -> None:
        if isinstance(message, Submit):
            self._submitted += len(message.submissions)
        if isinstance(message, Submit | Cancel | TakeBack):
            self._later(site, "host", partial(self._work, site, message))
        elif isinstance(message, Demand | Release | Claims):
            self._later(site, "manager", partial(self._hear, site, site.life, message))
        elif not isinstance(message, GivenUp | Hold):
            raise Broken(f"{site.at.name} is told {message}")

    def _hear(self, site: Site, life: int, message: Demand | Release | Claims) -> None:
        if not site.reached or site.life != life:
            return
        if isinstance(message, Claims):
            self._manage(site, Claimed(message.job, message.grants, whole=True))
        else:
            self._manage(site, message)

    def _manage(self, site: Site, event: RmEvent) -> None:
        self.events += 1
        for said in site.rm.handle(event, self.now):
            if isinstance(said, Grant | Recall | Refuse | Lapsed):
                self._later(site, "job", partial(self._heard, site, site.life, said))
        site.rm.check()

    def _heard(self, site: Site, life: int, said: OutsideEvent) -> None:
        if site.life == life:
            self._tell(Said(site.at.name, said))

    def _from_host(self, site: Site, event: OutsideEvent) -> None:
        if site.lives:
            self._tell(Said(site.at.name, event))

    # Workers

    def _work(self, site: Site, message: Submit | Cancel | TakeBack) -> None:
        if not site.lives:
            return
        if isinstance(message, Submit):
            name = message.resources[0]
            for one in message.resources:
                if message.grant_id < site.newest.get(one, NO_GRANT):
                    raise Broken(f"{one} at {site.at.name} gets work under {message.grant_id}", one)
                site.newest[one] = message.grant_id
            queue = site.queues.setdefault(name, deque())
            for submission in message.submissions:
                at = self._tasks[submission.task_id].shape.at
                if at not in ("", site.at.name):
                    raise Broken(f"task {submission.task_id} is for {at}, and runs at {site.at.name}")
                queue.append((submission.task_id, submission.attempt))
                if len(queue) == 1:
                    self._begin(site, name)
            return
        queue = site.queues.get(message.resource_id, deque())
        first = next(iter(queue), None)
        for attempt in message.attempts:
            if attempt not in queue or (attempt == first and isinstance(message, TakeBack)):
                continue
            reason = Reason.CANCELLED if isinstance(message, Cancel) else Reason.RETURNED
            queue.remove(attempt)
            self._report(site, message.resource_id, Outcome(*attempt, reason))
            if attempt == first and queue:
                self._begin(site, message.resource_id)

    def _begin(self, site: Site, name: ResourceId) -> None:
        task_id = site.queues[name][0][0]
        for other in self.sites.values():
            for place, queue in other.queues.items():
                if queue and queue[0][0] == task_id and (other is not site or place != name):
                    where = f"{other.at.name}/{place} and {site.at.name}/{name}"
                    raise Broken(
                        f"task {task_id} runs twice at one time: at {where}", f"task {task_id} of j1"
                    )
        run_s = self._random.choice((0.001, 0.05, 0.5, 2.0))
        self._at(self.now + run_s, partial(self._end, site, name, site.queues[name][0], run_s))

    def _end(self, site: Site, name: ResourceId, attempt: Attempted, run_s: float) -> None:
        queue = site.queues.get(name)
        if not site.lives or not queue or queue[0] != attempt:
            return
        queue.popleft()
        self.ran[site.at.name] += 1
        self._report(site, name, Outcome(*attempt, Reason.FINISHED, duration_s=run_s))
        if queue:
            self._begin(site, name)

    def _report(self, site: Site, name: ResourceId, outcome: Outcome) -> None:
        said = Finished(site.at.job_there, name, (outcome,))
        self._later(site, "job from a host", partial(self._from_host, site, said))

    # What must hold

    def _done(self, done: TaskDone) -> None:
        if done.task_id in self._ended:
            raise Broken(f"task {done.task_id} has ended twice", f"task {done.task_id} of j1")
        self._ended[done.task_id] = done
        at = self._tasks[done.task_id].shape.at
        if done.state is TaskState.FINISHED:
            if at not in ("", location_of(done.resource_id)):
                raise Broken(f"task {done.task_id} is for {at}, and ran on {done.resource_id}")
        elif not at or not self.machine.places[at].gone:
            if not (at or len(self._tasks[done.task_id].shape.requirements) > 1):
                raise Broken(f"task {done.task_id} has {done.state}: {done.outcome.error}")
            self._check_refused(done)

    def _check_refused(self, done: TaskDone) -> None:
        """A task for several cores may fail when no location is left that has so many."""
        needed = len(self._tasks[done.task_id].shape.requirements)
        left = [s for s in self.sites.values() if not self.machine.places[s.at.name].gone]
        if any(len(site.cores) >= needed for site in left):
            raise Broken(f"task {done.task_id} has {done.state}: {done.outcome.error}")

    def _check_end(self) -> None:
        if len(self._ended) != len(self._tasks):
            raise Broken("the job has ended before its tasks")
        for place in self.machine.places.values():
            if place.held:
                raise Broken(f"the job still holds {sorted(place.held)} at {place.at.name}")
        while self._heap:  # what is on its way arrives
            self.now, _, call = heappop(self._heap)
            call()
        for site in self.sites.values():
            held = sum(one.held for one in site.rm.status().classes.values())
            if site.reached and held:
                raise Broken(f"{site.at.name} holds {held} resources for a job that has given all back")

    # Time

    def _at(self, at_s: float, call: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._heap, (at_s, self._count, call))

    def _later(self, site: Site, where: str, call: Callable[[], None]) -> None:
        """Have it arrive after what was sent there before."""
        lane = site.at.name, f"{where} {site.life}"
        arrives = max(self.now + self._random.uniform(0.0001, 0.02), self._arrives.get(lane, 0.0))
        self._arrives[lane] = arrives
        self._at(arrives, call)


def locations_broken(seed: int) -> str:
    """Simulate a job on several run-time systems, and return what did not hold, or ""."""
    try:
        LocationsWorld(seed).run()
    except Exception as error:
        return f"{type(error).__name__}: {error} (of a job on several run-time systems)"
    return ""
