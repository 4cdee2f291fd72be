"""Plans: on which host each task of a workflow is to run, before it can run (ASPIDE 3.1, ASP-5)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from math import floor, isfinite, log2
from typing import Protocol

from msgspec import Struct

from gspc_trio.core.ids import ResourceId, TaskId
from gspc_trio.core.similar import did_you_mean
from gspc_trio.core.task import Outcome, Task

RACK_BYTES_PER_S = 1e9
"""What hosts of one rack are taken to move between each other, until that is measured."""

BEYOND_BYTES_PER_S = 1e8
"""What other hosts are taken to move."""

MEASURED_BYTES_MIN = 1 << 16
"""A shorter transfer says more of latency than of bandwidth."""

SMOOTHING = 0.3
"""Weight of the newest transfer in a measured bandwidth."""


WORTH_MIN_S, WORTH_MAX_S = 0.05, 3600.0
"""What is worth less is not waited for longer than usual; nothing is waited for longer than this."""


HOLDERS_RATED = 32
"""Of the hosts that have some data so many are looked at."""


RACK = "rack:"
"""A feature that begins so names the rack of a host."""


SPEED = "speed:"
"""A feature that begins so states the speed of a host's cores, relative to others."""


UPLINK = "uplink:"
"""A feature that begins so states how many bytes per second a host fetches from beyond its rack."""


class PlanError(ValueError):
    """Nothing can be planned so; the message says what is wrong, and nothing was changed."""


class PlanData(Struct, frozen=True):
    """Data that a task reads, and that no task of the plan makes.

    Attributes:
        size_bytes: its size.
        hosts: that have all of it.
        data_id: of which data it is; data without one is taken to be the same if it is alike.
    """

    size_bytes: int
    hosts: tuple[str, ...]
    data_id: str = ""


class PlanTask(Struct, frozen=True):
    """What a plan knows of a task.

    Attributes:
        task_id: unique in the plan.
        dependencies: tasks whose output it reads.
        inputs: other data that it reads.
        output_bytes: size of what it makes.
        features: that its host must have.
        memory_bytes: that its host must have.
        run_s: seconds that it computes on a host of speed 1.
        name: for people.
        avoid: hosts that have failed it.
    """

    task_id: TaskId
    dependencies: tuple[TaskId, ...] = ()
    inputs: tuple[PlanData, ...] = ()
    output_bytes: int = 0
    features: frozenset[str] = frozenset()
    memory_bytes: int = 0
    run_s: float = 0.0
    name: str = ""
    avoid: frozenset[str] = frozenset()


class PlanHost(Struct, frozen=True):
    """What a plan knows of a host.

    Attributes:
        name: unique in the plan.
        rack: hosts of one rack are near each other.
        features: that it has.
        memory_bytes: that it has; 0: nobody knows, so it is enough.
        cores: how many tasks it computes at a time.
        speed: of its cores, relative to others.
        uplink_bytes_per_s: what it is taken to fetch from beyond its rack until that is measured; 0: what is
            usual.
    """

    name: str
    rack: str = ""
    features: frozenset[str] = frozenset()
    memory_bytes: int = 0
    cores: int = 1
    speed: float = 1.0
    uplink_bytes_per_s: float = 0.0

    def can_run(self, task: PlanTask) -> bool:
        """Return whether it has the features and the room that a task needs."""
        has_room = not self.memory_bytes or task.memory_bytes <= self.memory_bytes
        return has_room and task.features <= self.features and self.name not in task.avoid


class PlannedPlace(Struct, frozen=True):
    """Where a task is planned, or has run.

    Attributes:
        host: its name.
        score_s: seconds that it takes to bring its data there; of a plan by time, when it ends there.
        moved_bytes: how much of its data lies elsewhere.
        worth_s: how much more it costs on hosts that are not named here: so long the named ones are worth
            waiting for.
        others: that cost little more than the host, relative to all others; the best first.
        output_bytes: what it was taken to make, or has made.
        end_s: when it ends, or has ended; known to plans by time alone.
    """

    host: str
    score_s: float = 0.0
    moved_bytes: int = 0
    worth_s: float = 0.0
    others: tuple[str, ...] = ()
    output_bytes: int = 0
    end_s: float = 0.0


class ReadyTask(Struct, frozen=True):
    """A task that can run.

    Attributes:
        task: as it is planned; ``run_s`` is long if nobody knows it.
        after_s: how long the longest chain of tasks takes that waits for it.
    """

    task: PlanTask
    after_s: float = 0.0


class Following(Struct, frozen=True):
    """What is known of tasks that are not ready, besides which will follow.

    Attributes:
        late_s: so long the tasks take that run or wait, with what follows from them.
        work_s: so long all tasks keep all cores busy.
        ends_s: in how many seconds each task has ended that runs or waits.
        users: task -> those that take its result.
        run_s: task that is not ready -> how long it runs on a host of speed 1.
    """

    late_s: float
    work_s: float
    ends_s: Mapping[TaskId, float]
    users: Mapping[TaskId, Collection[TaskId]]
    run_s: Mapping[TaskId, float]


class ReadyPlace(Struct):
    """Where a task that can run is to run; times count from now.

    Attributes:
        host: its name.
        begin_s: when a core of it has done what it has to do.
        transfer_s: how long it takes to bring the data of the task there.
        end_s: when the task will have ended.
        worth_s: how much longer it takes at the next best host that is worse.
        spared_s: how much longer its data is brought elsewhere, at worst.
        until_s: when it is to have ended at the latest, if it is there to have less brought; 0: it is there
            to end soon.
        moved_bytes: how much is brought there.
    """

    host: str
    begin_s: float
    transfer_s: float
    end_s: float
    worth_s: float = 0.0
    spared_s: float = 0.0
    until_s: float = 0.0
    moved_bytes: int = 0


class Links:
    """Bytes per second between hosts: measured, until then by level.

    Args:
        rack_bytes_per_s: between hosts of one rack.
        beyond_bytes_per_s: between others.
    """

    def __init__(
        self, rack_bytes_per_s: float = RACK_BYTES_PER_S, beyond_bytes_per_s: float = BEYOND_BYTES_PER_S
    ) -> None:
        self.rack_bytes_per_s = rack_bytes_per_s
        self.beyond_bytes_per_s = beyond_bytes_per_s
        self.measured: dict[str, dict[str, float]] = {}
        """Target -> source -> bytes per second."""
        self.reached: dict[str, set[str]] = {}
        """Source -> targets to which it was measured."""

    def note(self, source: str, target: str, size_bytes: int, seconds: float) -> None:
        """Take a transfer into account."""
        if size_bytes < MEASURED_BYTES_MIN or seconds <= 0 or source == target:
            return
        newest = size_bytes / seconds
        known = self.measured.setdefault(target, {})
        before = known.get(source, newest)
        known[source] = before + SMOOTHING * (newest - before)
        self.reached.setdefault(source, set()).add(target)

    def bytes_per_s(self, source: PlanHost, target: PlanHost) -> float:
        """Return what moves from a host to another one."""
        found = self.measured.get(target.name, {}).get(source.name)
        if found is not None:
            return found
        return self.rack_bytes_per_s if source.rack == target.rack else self.from_beyond(target)

    def from_beyond(self, target: PlanHost) -> float:
        """Return what a host fetches from beyond its rack until that is measured."""
        return target.uplink_bytes_per_s or self.beyond_bytes_per_s


class HostsNow(Struct, frozen=True):
    """Hosts as they are when tasks get ready.

    Attributes:
        hosts: in their order.
        free_s: those that may be chosen, in their order -> for each core, in how many seconds it has done
            what it has to do.
        links: between hosts.
        brought: data -> hosts to which it is on its way.
    """

    hosts: Mapping[str, PlanHost]
    free_s: Mapping[str, Sequence[float]]
    links: Links
    brought: Mapping[str, Collection[str]]


class Planner(Protocol):
    """Plans tasks for some hosts, and remembers where those are on which others depend."""

    @property
    def placed(self) -> Mapping[TaskId, PlannedPlace]:
        """Where tasks were planned, or have run."""
        ...

    def plan(self, tasks: Sequence[PlanTask], now_s: float = 0.0) -> Mapping[TaskId, PlannedPlace]:
        """Place tasks, also such as were placed before; PlanError if that cannot be, and nothing changes."""
        ...

    def settle(self, task_id: TaskId, placed: PlannedPlace, now_s: float = 0.0) -> None:
        """A task has run there, or runs there until ``placed.end_s``."""
        ...

    def forget(self, task_ids: Sequence[TaskId]) -> None:
        """No task that is still to be placed depends on these."""
        ...


class PlanPolicy(Protocol):
    """How tasks are planned before they can run."""

    @property
    def name(self) -> str:
        """By which people ask for it."""
        ...

    def planner(self, hosts: Sequence[PlanHost], links: Links) -> Planner:
        """Return what plans for these hosts, which are there and in this order."""
        ...

    def place_ready(
        self, tasks: Sequence[ReadyTask], there: HostsNow, ahead: Following | None
    ) -> Sequence[ReadyPlace | None]:
        """Return where tasks that can run go by now, None for those for which no host will do.

        Args:
            tasks: in the order in which equal ones are served.
            there: the hosts.
            ahead: what follows; None: nobody knows.
        """
        ...


class PlanKnowledge(Protocol):
    """What a plan asks whoever knows the job's data and hosts."""

    def host(self, name: str, cores: int) -> PlanHost:
        """Return a host by the part that the ids of its resources share."""
        ...

    def inputs_of(self, task: Task) -> Sequence[PlanData]:
        """Return the data among a task's arguments, with the hosts that have it."""
        ...

    def output_bytes(self, outcome: Outcome) -> int:
        """Return how much of what a task has made stays where it ran."""
        ...

    def named(self, label: str) -> str:
        """Return the name of a host, as above, by what a worker calls it."""
        ...

    def memory_host(self, name: str) -> str:
        """Return the name that a host, named as above, has in the job's memory layer; "" if there is none."""
        ...


class InHand(Protocol):
    """A grant in hand."""

    @property
    def resource_id(self) -> ResourceId:
        """Whose worker runs its tasks."""
        ...

    @property
    def sent(self) -> Mapping[TaskId, object]:
        """What was submitted and has not ended; the first one runs."""
        ...

    @property
    def since_s(self) -> float:
        """Since when that runs."""
        ...


class Live(Protocol):
    """A task of the scheduler that has not ended."""

    @property
    def task(self) -> Task:
        """As it waits, or was submitted."""
        ...

    @property
    def held(self) -> InHand | None:
        """The grant that it was submitted to."""
        ...


class View(Protocol):
    """What a plan sees of the scheduler."""

    @property
    def now(self) -> float:
        """Seconds."""
        ...

    @property
    def tasks(self) -> Mapping[TaskId, Live]:
        """Those that are ready and have not ended."""
        ...

    @property
    def by_resource(self) -> Mapping[ResourceId, InHand]:
        """The grant of each resource that is held."""
        ...


def fetch_s(data: PlanData, host: PlanHost, hosts: Mapping[str, PlanHost], links: Links) -> float:
    """Return how long it takes to bring data to a host from the nearest one that has it.

    Args:
        data: which.
        host: that is to get it.
        hosts: all of them.
        links: between them.
    """
    if not data.size_bytes or host.name in data.hosts:
        return 0.0
    there = (hosts[name] for name in islice(data.hosts, HOLDERS_RATED) if name in hosts)
    fastest = max((links.bytes_per_s(source, host) for source in there), default=0.0)
    return data.size_bytes / fastest if fastest else 0.0


def in_order(tasks: Sequence[PlanTask], placed: Mapping[TaskId, PlannedPlace]) -> list[PlanTask]:
    """Return tasks with dependencies first, otherwise as they were added.

    Args:
        tasks: to be planned.
        placed: others, on which they may depend.

    Raises:
        PlanError: a task is there twice, depends on one that is not there, or on itself through others.
    """
    by_id = {task.task_id: task for task in tasks}
    if len(by_id) < len(tasks):
        twice = next(task for task in tasks if task is not by_id[task.task_id])
        raise PlanError(f"{_named(twice)} is there twice")
    order: dict[TaskId, PlanTask] = {}
    for first in tasks:
        if first.task_id in order:
            continue
        path, waiting = dict[TaskId, None](), [first]
        while waiting:
            task = waiting[-1]
            missing = [it for it in task.dependencies if it in by_id and it not in order]
            if not missing:
                waiting.pop()
                path.pop(task.task_id, None)
                if task.task_id not in order:
                    _check_dependencies(task, by_id, placed)
                    order[task.task_id] = task
                continue
            path[task.task_id] = None
            around = next((it for it in missing if it in path), None)
            if around is not None:
                cycle = [*list(path)[list(path).index(around) :], around]
                raise PlanError("tasks depend on each other: " + " -> ".join(map(str, reversed(cycle))))
            waiting += [by_id[it] for it in reversed(missing)]
    return list(order.values())


def _check_dependencies(
    task: PlanTask, by_id: Mapping[TaskId, PlanTask], placed: Mapping[TaskId, PlannedPlace]
) -> None:
    for other in task.dependencies:
        if other not in by_id and other not in placed:
            raise PlanError(f"{_named(task)} depends on task {other}, which is not there")


def check_tasks(tasks: Iterable[PlanTask], hosts: Mapping[str, PlanHost]) -> None:
    """See that tasks make sense by themselves.

    Raises:
        PlanError: a size or a time is negative, some data has no holder, or no host has a feature.
    """
    features = frozenset[str]()
    for task in tasks:
        sizes = (task.output_bytes, task.memory_bytes, *(data.size_bytes for data in task.inputs))
        if min(sizes) < 0:
            raise PlanError(f"{_named(task)} states {min(sizes)} bytes: a size is 0 or more")
        if not (isfinite(task.run_s) and task.run_s >= 0):
            raise PlanError(f"{_named(task)} runs for {task.run_s} s: that is a finite number, 0 or more")
        for data in task.inputs:
            if data.size_bytes and hosts.keys().isdisjoint(data.hosts):
                where = f": it was on {', '.join(data.hosts)}" if data.hosts else ""
                raise PlanError(f"{data.size_bytes} bytes that {_named(task)} reads are lost{where}")
        if task.features and not any(task.features <= host.features for host in hosts.values()):
            features = features or frozenset().union(*(host.features for host in hosts.values()))
            unknown = sorted(task.features - features)
            if unknown:
                there = ", ".join(sorted(features)[:20]) or "none"
                meant = did_you_mean(unknown[0], features)
                raise PlanError(
                    f"{_named(task)} needs {unknown[0]!r}, which no host has{meant}; there are: {there}"
                )


def check_hosts(hosts: Sequence[PlanHost]) -> dict[str, PlanHost]:
    """Return hosts by name.

    Raises:
        PlanError: there is none, one is there twice, or has no cores or no speed.
    """
    by_name = {host.name: host for host in hosts}
    if not by_name:
        raise PlanError("there is no host to plan for")
    if len(by_name) < len(hosts):
        raise PlanError("two hosts have the same name")
    for host in hosts:
        if host.cores < 1 or host.memory_bytes < 0 or not (isfinite(host.speed) and host.speed > 0):
            raise PlanError(
                f"host {host.name} has {host.cores} cores of speed {host.speed:g} and {host.memory_bytes} "
                "bytes of memory: there must be a core, a speed above 0 and no negative size"
            )
    return by_name


def no_host(task: PlanTask) -> PlanError:
    """Return what is wrong when no host has all that a task needs."""
    needs = sorted(task.features)
    if task.memory_bytes:
        needs.append(f"{task.memory_bytes:,} bytes of memory")
    but = f", but for {', '.join(sorted(task.avoid))}, where it has failed" if task.avoid else ""
    return PlanError(f"no host has {', '.join(needs) or 'what is needed'} for {_named(task)}{but}")


def _named(task: PlanTask) -> str:
    return f"task {task.task_id}" + (f" ({task.name})" if task.name else "")


def rack_of(features: Iterable[str], otherwise: str = "") -> str:
    """Return the feature that names the rack of a host, the first by name, or what is said otherwise."""
    return min((it for it in features if it.startswith(RACK)), default=otherwise)


def speed_of(features: Iterable[str], otherwise: float = 1.0) -> float:
    """Return the speed of a host's cores that a feature states, or what is said otherwise."""
    return _stated(features, SPEED, otherwise)


def uplink_of(features: Iterable[str], otherwise: float = 0.0) -> float:
    """Return what a feature states of what a host fetches from beyond its rack, or what is said otherwise."""
    return _stated(features, UPLINK, otherwise)


def _stated(features: Iterable[str], prefix: str, otherwise: float) -> float:
    """Return the number that a feature states; one that states none above 0, or several that differ, count
    for nothing.
    """
    stated = set[float]()
    for feature in features:
        if feature.startswith(prefix):
            try:
                stated.add(float(feature.removeprefix(prefix)))
            except ValueError:
                return otherwise
    found = stated.pop() if len(stated) == 1 else otherwise
    return found if isfinite(found) and found > 0 else otherwise


def why(policy: str, placed: PlannedPlace) -> str:
    """Return what speaks for the place of a task, for people."""
    if policy == "heft":
        return f"it ends there first, {placed.score_s:.3g} s later; {placed.moved_bytes:,} bytes are moved"
    return f"{placed.score_s:.3g} s to bring {placed.moved_bytes:,} bytes"


def patience_for(worth_s: float) -> float | None:
    """Return how long to wait for what is worth so much: a power of two, so that few shapes differ; None:
    as long as is usual.
    """
    if worth_s <= WORTH_MIN_S:
        return None
    return 2.0 ** floor(log2(min(worth_s, WORTH_MAX_S)))
