"""Workflows on simulated hosts: the real scheduler and resource manager, a simulated clock, simulated links.

A host has cores of one speed, and a copy of each file that it has made or fetched. A core fetches the files
of its task that its host does not have, one after the other, each from where that is fastest; then it
computes. What its host is fetching already it waits for. A copy can be fetched once it is whole. Links are
not shared. Nothing is charged for messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from gspc_trio.components.job.plan import PlanData, PlanHost, PlanPolicy
from gspc_trio.components.job.scheduler.interface import (
    KnownTask,
    ResourcesUp,
    TasksKnown,
    TasksReady,
)
from gspc_trio.components.job.scheduler.machine import Scheduler
from gspc_trio.components.job.scheduler.plans import Plans
from gspc_trio.components.rm.events import Added, JobJoined, Rested
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Grant, Lapsed, Recall, Refuse, Release
from gspc_trio.components.worker.messages import Finished, Submission, Submit, TakeBack
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import (
    CORE,
    DEFAULT_OPTIONS,
    Outcome,
    Reason,
    Shape,
    Task,
    TaskOptions,
)
from gspc_trio.policies.scheduling import USUAL
from gspc_trio.workflow.formats.format import Source
from gspc_trio.workflow.formats.wfformat.read import read_trace

JOB = "j1"
RESULT = ((b"\xc0",),)
FROM_RM = (Grant, Recall, Refuse, Lapsed)
NEAR_BYTES_PER_S = 1e9
"""Between hosts of one rack or site."""
FAR_BYTES_PER_S = 1e8
"""Between racks."""
SITE_BYTES_PER_S = 1e7
"""Between sites."""


class Skipped(Exception):
    """A part cannot be measured here; the message says why."""


class WorkTask(Struct, frozen=True):
    """A task of a workflow that is replayed.

    Attributes:
        task_id: counted from 1, parents before children.
        run_s: seconds on a core of speed 1.
        parents: ids of the tasks that it waits for.
        inputs, outputs: names of its files.
        code_id: number of its code: tasks of one kind have the same.
    """

    task_id: int
    run_s: float
    parents: tuple[int, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    code_id: int = 1


class Work(Struct, frozen=True):
    """A workflow that is replayed.

    Attributes:
        name: for people.
        tasks: parents before children.
        size_bytes: file -> its size.
    """

    name: str
    tasks: tuple[WorkTask, ...]
    size_bytes: Mapping[str, int] = field(default_factory=dict)

    def given(self) -> list[str]:
        """Return the files that no task makes."""
        made = {name for task in self.tasks for name in task.outputs}
        return list(dict.fromkeys(name for task in self.tasks for name in task.inputs if name not in made))


class Hosts(Struct, frozen=True):
    """Simulated hosts.

    Attributes:
        name: for people.
        speeds: of the cores of each host.
        groups: rack or site of each host.
        cores: of each host.
        beyond_bytes_per_s: between groups.
    """

    name: str
    speeds: tuple[float, ...]
    groups: tuple[int, ...]
    cores: int = 2
    beyond_bytes_per_s: float = FAR_BYTES_PER_S

    def bytes_per_s(self, source: int, target: int) -> float:
        """Return the bandwidth between two hosts, by number."""
        return NEAR_BYTES_PER_S if self.groups[source] == self.groups[target] else self.beyond_bytes_per_s

    def first_places(self, work: Work) -> dict[str, set[int]]:
        """Return where the files lie that no task makes: spread over all hosts, one after the other."""
        return {name: {number % len(self.speeds)} for number, name in enumerate(work.given())}


RACKS = Hosts("racks", (1.0,) * 8, (0,) * 4 + (1,) * 4)
SPEEDS = Hosts("speeds", (1.0, 2.0, 3.0, 4.0) * 4, (0,) * 16, cores=1)
SITES = Hosts(
    "sites", (1.0,) * 12, (0,) * 4 + (1,) * 4 + (2,) * 4, cores=1, beyond_bytes_per_s=SITE_BYTES_PER_S
)
CLUSTERS = (RACKS, SPEEDS, SITES)
"""8 hosts in 2 racks, 16 hosts of speeds 1 to 4, 12 hosts at 3 sites."""


class Run(Struct):
    """How a workflow was replayed.

    Attributes:
        makespan_s: until the last task ended.
        moved_bytes: fetched by hosts from others.
        ran_on: task -> number of its host.
    """

    makespan_s: float
    moved_bytes: int
    ran_on: Mapping[int, int]


class Copies:
    """Which host has which files, from when on, and what it takes to fetch others.

    Attributes:
        there: file -> hosts that have it, or are fetching it, and since or until when.
        moved_bytes: fetched by hosts from others.
    """

    def __init__(self, work: Work, hosts: Hosts) -> None:
        self._sizes, self._hosts = work.size_bytes, hosts
        self.there: dict[str, dict[int, float]] = {
            name: dict.fromkeys(on, 0.0) for name, on in hosts.first_places(work).items()
        }
        self.moved_bytes = 0

    def _missing(self, task: WorkTask, host: int, at_s: float) -> Iterator[tuple[str, int, int, float]]:
        """Yield the files that a core fetches from then on: name, source, bytes, seconds; no bytes if its
        host is fetching it already.
        """
        for name in task.inputs:
            there = self.there[name]
            since_s = there.get(host)
            if since_s is not None and since_s <= at_s:
                continue
            whole = [other for other, its_s in there.items() if its_s <= at_s and other != host]
            source = max(sorted(whole), key=lambda other: self._hosts.bytes_per_s(other, host))
            size_bytes = self._sizes.get(name, 0)
            seconds = size_bytes / self._hosts.bytes_per_s(source, host)
            if since_s is not None and since_s - at_s <= seconds:
                size_bytes, seconds = 0, since_s - at_s
            yield name, source, size_bytes, seconds
            at_s += seconds

    def fetch_s(self, task: WorkTask, host: int, at_s: float) -> float:
        """Return how long a core of a host fetches that begins then."""
        return sum(seconds for *_, seconds in self._missing(task, host, at_s))

    def fetch(self, task: WorkTask, host: int, at_s: float) -> list[tuple[int, int, float]]:
        """Have a core of a host fetch the files of a task; return the source, bytes and seconds of each."""
        moved = []
        for name, source, size_bytes, seconds in self._missing(task, host, at_s):
            at_s += seconds
            self.moved_bytes += size_bytes
            self.there[name][host] = min(at_s, self.there[name].get(host, at_s))
            moved.append((source, size_bytes, seconds))
        return moved

    def made(self, task: WorkTask, host: int, at_s: float) -> None:
        """A task has ended there: it has made its files."""
        for name in task.outputs:
            self.there.setdefault(name, {})[host] = at_s

    def holders(self, name: str) -> Iterable[int]:
        """Return the hosts that have a file, or will have it."""
        return self.there.get(name, ())


class Files(Copies):
    """What a plan asks of files on simulated hosts.

    Attributes:
        now: seconds.
    """

    def __init__(self, work: Work, hosts: Hosts, stated: bool = False) -> None:
        super().__init__(work, hosts)
        self._stated = stated
        self._work = work
        self._inputs = {task.task_id: task.inputs for task in work.tasks}
        self.now = 0.0

    def host(self, name: str, cores: int) -> PlanHost:
        """Return what a plan knows of a host."""
        number = host_number(name)
        rack, speed = str(self._hosts.groups[number]), self._hosts.speeds[number]
        uplink_bytes_per_s = self._hosts.beyond_bytes_per_s if self._stated else 0.0
        return PlanHost(name, rack, cores=cores, speed=speed, uplink_bytes_per_s=uplink_bytes_per_s)

    def inputs_of(self, task: Task) -> list[PlanData]:
        """Return the files of a task that are there, with the hosts that have them."""
        found = []
        for name in self._inputs.get(task.task_id, ()):
            there = self.there.get(name, {}).items()
            places = tuple(f"r{number}" for number, since_s in sorted(there) if since_s <= self.now)
            if places:
                found.append(PlanData(self._sizes.get(name, 0), places, name))
        return found

    def output_bytes(self, outcome: Outcome) -> int:
        """Return the size of what a task has made."""
        made = self._work.tasks[outcome.task_id - 1].outputs
        return sum(self._sizes.get(name, 0) for name in made)

    def named(self, label: str) -> str:
        """Return the name of a host."""
        return label

    def memory_host(self, name: str) -> str:
        """Return nothing: there is no memory layer."""
        del name
        return ""


class Replay:
    """A workflow on simulated hosts, under the real scheduler and resource manager.

    Args:
        work: the workflow.
        hosts: where it runs.
        scheduler: of the job; the usual one by default.
        plan: by which its tasks are planned, None: they are not.
        shape_of: what a task asks for when it gets ready.
        stated: whether tasks state their run times and the sizes of what they make, and hosts what they fetch
            from beyond their group.
    """

    def __init__(
        self,
        work: Work,
        hosts: Hosts,
        scheduler: Scheduler | None = None,
        plan: PlanPolicy | None = None,
        shape_of: Callable[[WorkTask], Shape] = lambda _: CORE,
        stated: bool = False,
    ) -> None:
        self.work, self.hosts = work, hosts
        self._stated = stated
        self.rm = ResourceManager(1)
        self.files = Files(work, hosts, stated)
        plans = None if plan is None else Plans(plan, self.files)
        self.scheduler = scheduler or USUAL.scheduler(JOB, recording=False, plans=plans)
        self.now = 0.0
        self.ran_on: dict[int, int] = {}
        self._shape_of = shape_of
        self._tasks = {task.task_id: task for task in work.tasks}
        self._missing = {task.task_id: len(set(task.parents)) for task in work.tasks}
        self._children: dict[int, list[int]] = {task.task_id: [] for task in work.tasks}
        for task in work.tasks:
            for parent in set(task.parents):
                self._children[parent].append(task.task_id)
        self._queues: dict[str, list[tuple[Submission, bool]]] = {}
        """Resource -> what was submitted there and has not ended; whether it has begun."""
        self._ends: list[tuple[float, int, str, Outcome]] = []
        self._count = 0
        up = self._add_hosts()
        self.rm.handle(JobJoined(JOB), 0.0)
        self.scheduler.handle(ResourcesUp(tuple(up)), 0.0)

    def _add_hosts(self) -> list[Resource]:
        up = []
        for host in range(len(self.hosts.speeds)):
            node = Resource(f"r{host}.node", "node")
            cores = [
                Resource(f"r{host}.core{core}", "core", (node.resource_id,))
                for core in range(self.hosts.cores)
            ]
            self.rm.handle(Added((node, *cores), f"host{host}"), 0.0)
            up += [node, *cores]
        return up

    def run(self) -> Run:
        """Run all tasks."""
        known = [
            KnownTask(self._described(task), tuple(dict.fromkeys(task.parents))) for task in self.work.tasks
        ]
        self.feed(
            [
                TasksKnown(tuple(known)),
                self._ready(task_id for task_id, missing in self._missing.items() if not missing),
            ]
        )
        while len(self.ran_on) < len(self.work.tasks):
            due = [it for it in (self.scheduler.deadline(), self.rm.deadline()) if it is not None]
            end_s = self._ends[0][0] if self._ends else None
            assert due or end_s is not None, f"nothing happens any more: {len(self.ran_on)} tasks have ended"
            if end_s is None or (due and min(due) < end_s):
                self.now = max(self.now, min(due))
                self.feed([Tick()])
                continue
            self.now, _, resource_id, outcome = heappop(self._ends)
            self._end(resource_id, outcome)
        return Run(self.now, self.files.moved_bytes, self.ran_on)

    def _ready(self, task_ids: Iterable[int]) -> TasksReady:
        """Return what the scheduler is told of tasks that wait for no others any more."""
        tasks = [self._tasks[task_id] for task_id in task_ids]
        return TasksReady(tuple(map(self._described, tasks)))

    def _described(self, task: WorkTask) -> Task:
        options = DEFAULT_OPTIONS
        if self._stated:
            made = sum(self.work.size_bytes.get(name, 0) for name in task.outputs)
            options = TaskOptions(estimate_s=task.run_s, output_bytes=made)
        return Task(
            task.task_id, f"t{task.task_id}", task.code_id, shape=self._shape_of(task), options=options
        )

    def _end(self, resource_id: str, outcome: Outcome) -> None:
        task = self._tasks[outcome.task_id]
        host = host_number(resource_id)
        self.files.made(task, host, self.now)
        self.ran_on[task.task_id] = host
        del self._queues[resource_id][0]
        events: list[object] = [Finished(JOB, resource_id, (outcome,))]
        freed = []
        for child in self._children[task.task_id]:
            self._missing[child] -= 1
            if not self._missing[child]:
                freed.append(child)
        if freed:
            events.append(self._ready(freed))
        self._begin(resource_id)
        self.feed(events)

    def _begin(self, resource_id: str) -> None:
        """Let a core begin the first task that it has, if it has not begun it."""
        queue = self._queues[resource_id]
        if not queue or queue[0][1]:
            return
        submission = queue[0][0]
        queue[0] = submission, True
        task, host = self._tasks[submission.task_id], host_number(resource_id)
        moved = self.files.fetch(task, host, self.now)
        run_s = task.run_s / self.hosts.speeds[host]
        outcome = Outcome(
            task.task_id,
            submission.attempt,
            Reason.FINISHED,
            RESULT,
            duration_s=run_s,
            moved=tuple(
                (f"r{source}", size_bytes, seconds) for source, size_bytes, seconds in moved if size_bytes
            ),
        )
        self._count += 1
        end_s = self.now + sum(seconds for *_, seconds in moved) + run_s
        heappush(self._ends, (end_s, self._count, resource_id, outcome))

    def feed(self, events: list[Any]) -> None:
        """Carry events from machine to machine until nothing comes of them any more."""
        self.files.now = self.now
        for event in events:
            if isinstance(event, Tick):
                events += self._of_rm(event)
            for action in self.scheduler.handle(event, self.now):
                if isinstance(action, Submit):
                    queue = self._queues.setdefault(action.resources[0], [])
                    queue += [(submission, False) for submission in action.submissions]
                    self._begin(action.resources[0])
                elif isinstance(action, TakeBack):
                    events += self._take_back(action)
                elif isinstance(action, Demand | Release):
                    events += self._of_rm(action)

    def rest(self, event: Rested) -> None:
        """Have the resource manager give out nothing of some resources, and ask for what is idle there."""
        self.feed([it for it in self.rm.handle(event, self.now) if isinstance(it, FROM_RM)])

    def _of_rm(self, event: Demand | Release | Tick) -> list[Any]:
        return [it for it in self.rm.handle(event, self.now) if isinstance(it, FROM_RM)]

    def _take_back(self, action: TakeBack) -> list[Any]:
        """Give tasks back that have not begun."""
        queue = self._queues[action.resource_id]
        asked = set(action.attempts)
        back = [it for it, begun in queue if not begun and (it.task_id, it.attempt) in asked]
        queue[:] = [it for it in queue if it[0] not in back]
        outcomes = tuple(Outcome(it.task_id, it.attempt, Reason.RETURNED) for it in back)
        return [Finished(JOB, action.resource_id, outcomes)] if outcomes else []


def host_number(resource_id: str) -> int:
    """Return the number of the host that a resource belongs to."""
    return int(resource_id.partition(".")[0].removeprefix("r"))


def read_works(folder: Path) -> list[Work]:
    """Return recorded runs as workflows.

    Raises:
        Skipped: there are none.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise Skipped(f"there are no recorded runs in {folder}; --traces says where they are")
    return [_work_of(file) for file in files]


def _work_of(file: Path) -> Work:
    trace = read_trace(Source(str(file), file.read_bytes()))
    children: dict[str, list[str]] = {name: [] for name in trace.tasks}
    for parent, child in trace.edges():
        children[parent].append(child)
    missing = {name: len(task.parents) for name, task in trace.tasks.items()}
    order = [name for name, count in missing.items() if not count]
    for name in order:
        for child in children[name]:
            missing[child] -= 1
            if not missing[child]:
                order.append(child)
    number = {name: position for position, name in enumerate(order, 1)}
    kinds: dict[str, int] = {}
    tasks = []
    for name in order:
        task = trace.tasks[name]
        tasks.append(
            WorkTask(
                number[name],
                task.runtime_s,
                tuple(number[parent] for parent in task.parents),
                task.inputs,
                task.outputs,
                kinds.setdefault(task.name.rpartition("_ID")[0], len(kinds) + 1),
            )
        )
    return Work(file.name.partition("-")[0].removesuffix(".json"), tuple(tasks), trace.files)
