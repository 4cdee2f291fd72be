"""The hosts and tasks of a job, as its plan sees them: resources, features, speeds, and what tasks need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

from attrs import define, field
from msgspec.structs import replace

from gspc_trio.components.job.plan import (
    HOLDERS_RATED,
    Links,
    PlanData,
    PlanHost,
    PlanKnowledge,
    PlannedPlace,
    PlanTask,
    ReadyTask,
    fetch_s,
    rack_of,
    speed_of,
    uplink_of,
)
from gspc_trio.core.ids import ResourceId, TaskId, host_name
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Shape, Task

LOOKED_AT = 32
"""If there are so many hosts or less all are looked at for tasks that get ready, else about so many."""

WORTH_SHARE, WORTH_LEAST_S = 0.01, 0.001
"""What is worth less, of the run time or if that is not known, is no reason to wish for a host."""

NEAR_LOOKED_AT = 2
"""In each rack that has data of them."""


class Known:
    """A task that has not ended, as its plan needs it.

    Attributes:
        task: as the planner has it; one that can run has no dependencies, but the data that it takes.
        code_id: of its code.
        output_bytes: the size of its result that it states, or None.
        estimate_s: the run time on a host of speed 1 that it states, or None.
        shape: what it asked for when it got ready, None before.
    """

    __slots__ = ("code_id", "estimate_s", "output_bytes", "shape", "task")

    def __init__(self, task: PlanTask, of: Task) -> None:
        self.task: PlanTask = task
        self.code_id: int = of.code_id
        self.output_bytes: int | None = of.options.output_bytes
        self.estimate_s: float | None = of.options.estimate_s
        self.shape: Shape | None = None


@define(eq=False)
class JobHosts:
    """The hosts where a job may have resources.

    Attributes:
        hosts: their names -> ids of their resources with the class of each.
        tops: host -> its resources that are below no others.
        features: host -> its features; one of the form ``rack:NAME`` says which hosts are near each other.
        resting: of these hosts nothing new is given out for now; data is there, and what runs goes on.
    """

    hosts: dict[str, dict[ResourceId, str]] = field(factory=dict)
    tops: dict[str, list[ResourceId]] = field(factory=dict)
    features: dict[str, frozenset[str]] = field(factory=dict)
    resting: set[str] = field(factory=set)

    @property
    def used(self) -> int:
        """How many hosts give out something new."""
        return len(self.hosts) - len(self.resting)

    def add(self, resources: Iterable[Resource]) -> bool:
        """These are there now; return whether any of them was not there before, or was on a host that rested.

        Who says so says next whether it rests still.
        """
        is_new = False
        for resource in resources:
            host = host_name(resource.resource_id)
            if host in self.resting:
                self.resting.remove(host)
                is_new = True
            there = self.hosts.setdefault(host, {})
            if resource.resource_id in there:
                continue
            there[resource.resource_id] = resource.resource_class
            if resource.features:
                self.features[host] = self.features.get(host, frozenset()).union(resource.features)
            if not resource.parents:
                self.tops.setdefault(host, []).append(resource.resource_id)
            is_new = True
        return is_new

    def remove(self, resource_ids: Iterable[ResourceId]) -> tuple[bool, list[str]]:
        """These are gone; return whether any of them was there, and the hosts that have no other."""
        was_there, gone = False, []
        for resource_id in resource_ids:
            host = host_name(resource_id)
            there = self.hosts.get(host, {})
            if there.pop(resource_id, None) is None:
                continue
            was_there = True
            if resource_id in self.tops.get(host, ()):
                self.tops[host].remove(resource_id)
            if not there:
                del self.hosts[host]
                self.features.pop(host, None)
                self.tops.pop(host, None)
                self.resting.discard(host)
                gone.append(host)
        return was_there, gone

    def note_rest(self, host: str, rests: bool) -> bool:
        """Nothing new is given out of a host for now, or again; return whether that is new."""
        if host not in self.hosts or (host in self.resting) is rests:
            return False
        (self.resting.add if rests else self.resting.remove)(host)
        return True

    def of_class(self, host: str, resource_class: str) -> list[ResourceId]:
        """Return the resources of a host that are of a class."""
        return [it for it, its_class in self.hosts[host].items() if its_class == resource_class]

    def share_of(self, resource_id: ResourceId, resource_class: str, number: int) -> int:
        """Return the part of a number that one of the resources of a class on a host has, 1 at least."""
        beside = self.hosts.get(host_name(resource_id), {})
        return max(1, number // max(1, sum(it == resource_class for it in beside.values())))

    def for_plan(self, knowledge: PlanKnowledge) -> list[PlanHost]:
        """Return the hosts as a planner takes them.

        Args:
            knowledge: what is known of them beside what their features say.
        """
        hosts = []
        for name, classes in self.hosts.items():
            host = knowledge.host(name, max(1, sum(it == "core" for it in classes.values())))
            features = self.features.get(name, frozenset())
            offered = features.union(map(_class_feature, classes.values()))
            hosts.append(
                replace(
                    host,
                    rack=rack_of(features, host.rack),
                    features=frozenset() if name in self.resting else offered,
                    speed=speed_of(features, host.speed),
                    uplink_bytes_per_s=uplink_of(features, host.uplink_bytes_per_s),
                )
            )
        return hosts

    def check(self) -> None:
        """Assert that each host has what it is known by."""
        assert self.resting <= self.hosts.keys(), "a host that is gone rests"
        for host, tops in self.tops.items():
            assert set(tops) <= self.hosts.get(host, {}).keys(), f"{host} is gone"


class HostTurns:
    """Picks hosts with a class of resources in turn, all or those of a rack.

    Args:
        there: the hosts, which do not change meanwhile.
        plan_hosts: the same as a planner has them, in their order.

    Attributes:
        position: host -> its place in this order.
    """

    def __init__(self, there: JobHosts, plan_hosts: Mapping[str, PlanHost]) -> None:
        self.position: dict[str, int] = {name: number for number, name in enumerate(plan_hosts)}
        self._there, self._plan_hosts = there, plan_hosts
        self._names: dict[tuple[str, str | None], list[str]] = {}
        self._next: dict[tuple[str, str | None], int] = {}

    def worth_a_look(
        self, resource_class: str, ready: Sequence[ReadyTask], placed: Mapping[TaskId, PlannedPlace]
    ) -> Collection[str]:
        """Return the hosts that are looked at for tasks, in their order: all if they are few.

        Else those that have data, some that are near to these, those where tasks are planned, and others in
        turn. Of so many that are picked blindly one has little to do. A host that idles takes tasks from
        others later, as with few hosts.

        Args:
            resource_class: that the tasks ask for first.
            ready: the tasks.
            placed: where they are planned.
        """
        hosts = self._plan_hosts
        if len(hosts) <= LOOKED_AT:
            return hosts
        found, racks = dict[str, None](), dict[str, None]()
        for it in ready:
            place = placed.get(it.task.task_id)
            near = [] if place is None else [place.host]
            for data in it.task.inputs:
                near += islice(data.hosts, HOLDERS_RATED)
            there = [name for name in near if name in hosts]
            found.update(dict.fromkeys(there))
            racks.update(dict.fromkeys(hosts[name].rack for name in there))
        for rack in racks:
            found.update(dict.fromkeys(self.take(resource_class, rack, NEAR_LOOKED_AT)))
        count = max(LOOKED_AT // 2, len(ready))
        found.update(dict.fromkeys(self.take(resource_class, None, count)))
        return sorted(found, key=self.position.__getitem__)

    def take(self, resource_class: str, rack: str | None, count: int) -> list[str]:
        """Return the next so many hosts.

        Args:
            resource_class: that they have.
            rack: where they are; None: anywhere.
            count: how many at most.
        """
        key = resource_class, rack
        if key not in self._names:
            self._names[key] = [
                name
                for name, host in self._plan_hosts.items()
                if rack in (None, host.rack) and resource_class in self._there.hosts[name].values()
            ]
        names, first = self._names[key], self._next.get(key, 0)
        count = min(count, len(names))
        self._next[key] = (first + count) % max(1, len(names))
        found = names[first : first + count]
        return found + names[: count - len(found)]


def place_matters(ready: Sequence[ReadyTask], links: Links) -> bool:
    """Return whether it matters where tasks run that are ready, and in which order, on hosts of one speed."""
    ranks = {it.task.run_s + it.after_s for it in ready}
    if max(ranks) - min(ranks) > WORTH_SHARE * max(ranks):
        return True
    least = WORTH_LEAST_S * links.rack_bytes_per_s
    return any(data.size_bytes >= least for it in ready for data in it.task.inputs)


def needed_by(task: Task) -> frozenset[str]:
    """Return what the host of a task must have: its first resource, and features."""
    first = task.shape.requirements[0]
    return frozenset((_class_feature(first.resource_class), *first.features))


def _class_feature(resource_class: str) -> str:
    """Return what stands for a resource of a class among the features of a host; no feature has this form."""
    return f"{resource_class} resources"


EXPECTED_HOSTS_MAX = 32
"""So many hosts are looked at for a task that is expected."""


def expected_host(
    task: Task, inputs: Sequence[PlanData], own: str, hosts: Mapping[str, PlanHost], links: Links
) -> str:
    """Return where a task will run that is not ready: where it says, else where least has to be brought.

    Args:
        task: that is expected.
        inputs: what it will take.
        own: a host that is as good as others where nothing tells them apart.
        hosts: all of them.
        links: between them.
    """
    wanted = [name for name in map(host_name, task.shape.requirements[0].preferences) if name in hosts]
    if wanted:
        return own if own in wanted else wanted[0]
    needs = PlanTask(task.task_id, features=needed_by(task), memory_bytes=task.shape.memory_bytes)
    names = dict.fromkeys((own, *(name for data in inputs for name in data.hosts), *hosts))
    usable = (hosts[name] for name in names if name in hosts and hosts[name].can_run(needs))
    looked_at = list(islice(usable, EXPECTED_HOSTS_MAX))

    def brought_s(host: PlanHost) -> float:
        return sum(fetch_s(data, host, hosts, links) for data in inputs)

    return min(looked_at, key=brought_s).name if looked_at else own


def learn(means: dict[int, tuple[int, float]], code_id: int, newest: float) -> None:
    """Take a sample into a mean in which the newest one weighs an eighth at least."""
    count, mean = means.get(code_id, (0, 0.0))
    count = min(count + 1, 8)
    means[code_id] = count, mean + (newest - mean) / count


def following(task_ids: Iterable[TaskId], users: Mapping[TaskId, Collection[TaskId]]) -> list[TaskId]:
    """Return all tasks that take something of these, or of others that do, in the order of their ids.

    Args:
        task_ids: of the tasks.
        users: task -> those that take its result.
    """
    waiting, found = list(task_ids), set[TaskId]()
    while waiting:
        more = set(users.get(waiting.pop(), ())) - found
        found |= more
        waiting += more
    return sorted(found)


def is_alike(own: Shape, other: Shape) -> bool:
    """Return whether a task of one shape may use a grant for another one: they differ by what they prefer."""
    if other.requirements[0].hard:
        return False
    first = own.requirements[0]
    alike = replace(other, requirements=(first, *other.requirements[1:]), estimate_s=own.estimate_s)
    return alike == own and other.requirements[0].resource_class == first.resource_class
