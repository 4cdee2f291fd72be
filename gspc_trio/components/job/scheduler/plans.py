"""Plans of a scheduler: where tasks are to run, told as soon as they are known, and kept up to date (ASP-5).

A plan is a wish. A task whose place is planned asks for a resource there, and waits for it as long as that
is worth while others are free; then it takes any. What runs or has ended stays where it is. What has not
begun is planned anew when hosts come or go, and when a task has made much more or less than it was taken to
make.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, zip_longest
from math import inf

from attrs import define, evolve, field
from msgspec.structs import replace

from gspc_trio.components.job.plan import (
    Links,
    PlanData,
    PlanError,
    PlanHost,
    PlanKnowledge,
    PlannedPlace,
    Planner,
    PlanPolicy,
    PlanTask,
    View,
    patience_for,
    rack_of,
    speed_of,
    why,
)
from gspc_trio.components.job.scheduler.interface import KnownTask
from gspc_trio.components.worker.messages import Finished
from gspc_trio.core.ids import ResourceId, TaskId, host_name
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Reason, Shape, Task

OFF = 2.0
"""A size that is off by this factor has the rest planned anew, ..."""

OFF_BYTES_MIN = 1 << 16
"""... and by so many bytes."""

UNKNOWN_S = 0.5
"""A task is taken to run so long as long as nothing was measured."""

WORTH_SHARE, WORTH_LEAST_S = 0.01, 0.001
"""What is worth less, of the run time or if that is not known, is no reason to wish for a host."""

LOOKED_AT_MAX = 64
"""So many tasks that wait are looked at for an idle grant on a host for which none of them waits."""

ANEW_PAUSE_S = 1e-3
"""So many seconds for each task lie at least between two plans of all of them."""


class Known:
    """A task that has not ended, as its plan needs it.

    Attributes:
        task: as the planner has it; one that can run has no dependencies, but the data that it takes.
        code_id: of its code.
        output_bytes: the size of its result that it states, or None.
        shape: what it asked for when it got ready, None before.
        is_measured: its run time was measured or stated.
    """

    __slots__ = ("code_id", "is_measured", "output_bytes", "shape", "task")

    def __init__(self, task: PlanTask, code_id: int, output_bytes: int | None) -> None:
        self.task: PlanTask = task
        self.code_id: int = code_id
        self.output_bytes: int | None = output_bytes
        self.shape: Shape | None = None
        self.is_measured: bool = False


@define(eq=False)
class Plans:
    """The plan of one job.

    Attributes:
        policy: makes it.
        knowledge: of the job's data and hosts.
        links: between its hosts.
        known: tasks that have not ended.
        users: task -> those that take its result and are not ready.
        hosts: their names -> ids of their resources with the class of each.
        tops: host -> its resources that are below no others.
        features: host -> its features; one of the form ``rack:NAME`` says which hosts are near each other.
        sizes: code -> what its tasks have made on average, and how many were measured.
        problem: why nothing could be planned last, or "".
    """

    policy: PlanPolicy
    knowledge: PlanKnowledge
    links: Links = field(factory=Links)
    known: dict[TaskId, Known] = field(factory=dict)
    users: dict[TaskId, set[TaskId]] = field(factory=dict)
    hosts: dict[str, dict[ResourceId, str]] = field(factory=dict)
    tops: dict[str, list[ResourceId]] = field(factory=dict)
    features: dict[str, frozenset[str]] = field(factory=dict)
    sizes: dict[int, tuple[int, float]] = field(factory=dict)
    problem: str = ""
    wishes: dict[TaskId, str] = field(factory=dict)
    """Task that waits -> the host that it asks for; ``at`` has the same by host."""
    at: dict[str, dict[TaskId, None]] = field(factory=dict)
    brought: dict[str, set[str]] = field(factory=dict)
    """Data -> hosts without it where tasks are to run that take it."""
    _planner: Planner | None = None
    _run: dict[TaskId, PlannedPlace] = field(factory=dict)
    """Where tasks have run on whose results others wait."""
    _new: dict[TaskId, None] = field(factory=dict)
    """Known tasks that were never placed, or are to be placed anew."""
    _anew_s: float = 0.0
    _next: int = 0
    _is_full: bool = False
    """No host had room since a task has ended, or hosts have come or gone."""
    _fresh: list[TaskId] = field(factory=list)
    _off: bool = False

    @property
    def placed(self) -> dict[TaskId, PlannedPlace]:
        """Where live tasks are planned."""
        placed = {} if self._planner is None else self._planner.placed
        return {task_id: placed[task_id] for task_id in self.known if task_id in placed}

    # What happens

    def resources_up(self, resources: Iterable[Resource]) -> bool:
        """These are there now; return whether any of their hosts was not there before."""
        before = len(self.hosts)
        for resource in resources:
            host = host_name(resource.resource_id)
            there = self.hosts.setdefault(host, {})
            if resource.resource_id in there:
                continue
            there[resource.resource_id] = resource.resource_class
            if resource.features:
                self.features[host] = self.features.get(host, frozenset()).union(resource.features)
            if not resource.parents:
                self.tops.setdefault(host, []).append(resource.resource_id)
            self._hosts_changed()
        return len(self.hosts) > before

    def resources_lost(self, resource_ids: Iterable[ResourceId]) -> None:
        """These are gone: what was planned on a host without any other is planned anew."""
        for resource_id in resource_ids:
            host = host_name(resource_id)
            there = self.hosts.get(host, {})
            if there.pop(resource_id, None) is None:
                continue
            if resource_id in self.tops.get(host, ()):
                self.tops[host].remove(resource_id)
            if not there:
                del self.hosts[host]
                self.features.pop(host, None)
                self.tops.pop(host, None)
            self._hosts_changed()

    def tasks_known(self, state: View, tasks: Sequence[KnownTask]) -> None:
        """These tasks were added to the workflow."""
        for one in tasks:
            self._know(state, one.task, one.dependencies)
            for dependency in one.dependencies:
                self.users.setdefault(dependency, set()).add(one.task.task_id)

    def drop(self, task_ids: Iterable[TaskId]) -> None:
        """These tasks have ended, or never will be ready."""
        for task_id in task_ids:
            known = self.known.pop(task_id, None)
            self._new.pop(task_id, None)
            self._unwish(task_id)
            if known is not None:
                self._release(known.task)
            if task_id not in self.users:
                self._forget(task_id)

    def ended(self, state: View, event: Finished) -> None:
        """Attempts have ended: learn of those with which their tasks have finished."""
        for outcome in event.outcomes:
            is_over = outcome.reason is Reason.FINISHED and outcome.task_id not in state.tasks
            if is_over and outcome.task_id in self.known:
                self.finished(outcome, event.resource_id, state.now)

    def finished(self, outcome: Outcome, resource_id: ResourceId, now: float) -> None:
        """A task has run there; learn from it, and keep what it has made in mind for those that take it."""
        task_id, host = outcome.task_id, host_name(resource_id)
        self._is_full = False
        code_id = self.known[task_id].code_id
        for label, size_bytes, seconds in outcome.moved:
            self.links.note(self.knowledge.named(label), host, size_bytes, seconds)
        size_bytes = self.knowledge.output_bytes(outcome)
        assumed = self._placed(task_id)
        count, mean = self.sizes.get(code_id, (0, 0.0))
        count = min(count + 1, 8)
        self.sizes[code_id] = count, mean + (size_bytes - mean) / count
        if task_id in self.users:
            self._run[task_id] = PlannedPlace(host, output_bytes=size_bytes, end_s=now)
            if self._planner is not None and host in self.hosts:
                self._planner.settle(task_id, self._run[task_id], now)
            taken = 0 if assumed is None else assumed.output_bytes
            less, more = sorted((taken, size_bytes))
            if more >= OFF * less and more - less >= OFF_BYTES_MIN:
                self._off = True
        self.drop((task_id,))

    def _hosts_changed(self) -> None:
        for host in self.at.keys() - self.hosts.keys():
            for task_id in list(self.at[host]):
                self._unwish(task_id)
        self._planner, self._is_full = None, False
        self._new = dict.fromkeys(self.known)

    def _know(self, state: View, task: Task, dependencies: tuple[TaskId, ...] = ()) -> Known:
        options = task.options
        known = Known(
            PlanTask(
                task.task_id,
                tuple(dict.fromkeys(dependencies)),
                self._inputs_of(task),
                self._size_of(task.code_id, options.output_bytes),
                _needed(task),
                memory_bytes=task.shape.memory_bytes,
                run_s=self._run_s(state, task),
                name=task.name,
            ),
            task.code_id,
            options.output_bytes,
        )
        measured = (task.shape.requirements[0].resource_class, task.code_id) in state.times
        known.is_measured = measured or options.estimate_s is not None
        self.known[task.task_id] = known
        self._new[task.task_id] = None
        return known

    def _inputs_of(self, task: Task) -> tuple[PlanData, ...]:
        """Return the data of a task that is there; what is lost is being made again, nobody knows where."""
        found = self.knowledge.inputs_of(task)
        return tuple(data for data in found if not self.hosts.keys().isdisjoint(data.hosts))

    def _size_of(self, code_id: int, stated: int | None) -> int:
        return round(self.sizes.get(code_id, (0, 0.0))[1]) if stated is None else stated

    def _run_s(self, state: View, task: Task) -> float:
        """Return how long a task runs: measured, else stated, else what is usual."""
        time = state.times.get((task.shape.requirements[0].resource_class, task.code_id))
        if time is not None:
            return time.average_s
        stated = task.options.estimate_s
        return UNKNOWN_S if stated is None else stated

    def _release(self, task: PlanTask) -> None:
        """A task takes nothing from others any more."""
        for dependency in task.dependencies:
            users = self.users.get(dependency, set())
            users.discard(task.task_id)
            if not users:
                self.users.pop(dependency, None)
                if dependency not in self.known:
                    self._forget(dependency)

    def _forget(self, task_id: TaskId) -> None:
        self._run.pop(task_id, None)
        if self._planner is not None:
            self._planner.forget((task_id,))

    # Planning

    def ready(self, state: View, tasks: Iterable[Task]) -> list[Task]:
        """Return tasks that can run now, with wishes for where they are planned; variants have none."""
        wanted = list(tasks)
        if self.hosts:
            for task in wanted:
                self._know_ready(state, task, frozenset())
            self._bring_up_to_date(state)
        wishing = {it.task_id: self._wishing(state, it) for it in self._by_turns(wanted)}
        return [wishing[task.task_id] for task in wanted]

    def again(self, state: View, task: Task, avoid: frozenset[ResourceId]) -> Task:
        """Return a task that gets another attempt, planned anew without the hosts of what has failed it."""
        task = self.without_wish(task)
        if not self.hosts:
            return task
        hosts = frozenset(map(host_name, avoid))
        self._know_ready(state, task, hosts if self.hosts.keys() - hosts else frozenset())
        self._bring_up_to_date(state)
        return self._wishing(state, task)

    def without_wish(self, task: Task) -> Task:
        """Return a task as it was before it was planned."""
        known = self.known.get(task.task_id)
        return task if known is None or known.shape is None else replace(task, shape=known.shape)

    def _know_ready(self, state: View, task: Task, avoid: frozenset[str]) -> None:
        """Take in a task with the data that it takes, which says more than its dependencies."""
        if task.variants is not None:
            return
        if (before := self.known.get(task.task_id)) is not None:
            self._release(before.task)
        known = self._know(state, task)
        known.shape = task.shape
        known.task = replace(known.task, avoid=avoid)

    def _wishing(self, state: View, task: Task) -> Task:
        """Return a task that asks for a resource of the host where it is planned, or has room instead."""
        first, task_id = task.shape.requirements[0], task.task_id
        self._unwish(task_id)
        placed = self._placed(task_id)
        if first.preferences or placed is None or task.variants is not None:
            return task
        known = self.known[task_id]
        if placed.worth_s <= (WORTH_SHARE * known.task.run_s if known.is_measured else WORTH_LEAST_S):
            return task
        wait_s = self._wait_s(state, placed.host, known)
        host, patience_s = placed.host, patience_for(placed.worth_s)
        if wait_s > placed.worth_s:
            host, patience_s = self._with_room(state, known.task, placed.host), None
        for data in known.task.inputs:
            if host not in data.hosts:
                self.brought.setdefault(data.data_id, set()).add(host)
        self.wishes[task_id] = host
        self.at.setdefault(host, {})[task_id] = None
        self._fresh.append(task_id)
        wish = evolve(first, preferences=tuple(self.tops[host]), patience_s=patience_s)
        return replace(task, shape=replace(task.shape, requirements=(wish, *task.shape.requirements[1:])))

    def _unwish(self, task_id: TaskId) -> None:
        host = self.wishes.pop(task_id, None)
        if host is not None:
            there = self.at[host]
            del there[task_id]
            if not there:
                del self.at[host]

    def _wait_s(self, state: View, host: str, known: Known) -> float:
        """Return how long a task waits for a core of a host: nothing was measured, then for ever."""
        cores = self._cores(host)
        more = self._load(state, host) + 1 - cores
        if more <= 0:
            return 0.0
        return more / cores * known.task.run_s if known.is_measured else inf

    def _cores(self, host: str) -> int:
        return max(1, sum(it == "core" for it in self.hosts[host].values()))

    def _load(self, state: View, host: str) -> int:
        """Return how many tasks run on a host, or wait for it."""
        busy = 0
        for resource_id in self.hosts[host]:
            held = state.by_resource.get(resource_id)
            busy += held is not None and bool(held.sent)
        return busy + len(self._waiting_at(state, host))

    def _waiting_at(self, state: View, host: str) -> list[TaskId]:
        """Return the tasks that wait for a host, and forget those that wait no more."""
        found = []
        for task_id in list(self.at.get(host, ())):
            entry = state.tasks.get(task_id)
            if entry is not None and entry.held is not None:
                self._unwish(task_id)
            else:
                found.append(task_id)
        return found

    def _with_room(self, state: View, task: PlanTask, busy: str) -> str:
        """Return another host with a free core: one to which the most of the data is brought already, or the
        next one; the first choice if there is none.
        """
        there: dict[str, int] = {}
        for data in task.inputs:
            for host in (*data.hosts, *self.brought.get(data.data_id, ())):
                if host in self.hosts and host not in task.avoid:
                    there[host] = there.get(host, 0) + data.size_bytes
        for host in sorted(there, key=lambda it: -there[it]):
            if self._load(state, host) < self._cores(host):
                return host
        if self._is_full:
            return busy
        some: str | None = None
        names = list(self.hosts)
        for number in range(len(names)):
            host = names[(self._next + number) % len(names)]
            load = self._load(state, host) if host not in task.avoid else self._cores(host)
            if not load:
                self._next = (self._next + number) % len(names)
                return host
            if some is None and load < self._cores(host):
                some = host
        self._is_full = some is None and not task.avoid
        return some or busy

    def take_fresh(self) -> list[TaskId]:
        """Return the tasks that have got a wish since this was asked last."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def resources_wished(self, task_id: TaskId) -> Iterable[ResourceId]:
        """Return the resources of the host that a task wishes for."""
        return self.hosts.get(self.wishes.get(task_id, ""), {})

    def _by_turns(self, tasks: Sequence[Task]) -> Iterable[Task]:
        """Return tasks in an order in which those that read most of the same take turns with others.

        If there is no room for all of them, each data then goes to some hosts, and not the first to all.
        """
        groups: dict[str, list[Task]] = {}
        for task in tasks:
            known = self.known.get(task.task_id)
            inputs = () if known is None else known.task.inputs
            most = max(inputs, key=lambda it: it.size_bytes, default=None)
            groups.setdefault("" if most is None else most.data_id, []).append(task)
        if len(groups) == 1:
            return tasks
        return (task for turn in zip_longest(*groups.values()) for task in turn if task is not None)

    def for_host(self, state: View, resource_id: ResourceId) -> list[TaskId]:
        """Return the tasks that wait for the host of a resource; else others, of those that wait longest,
        most of whose data is there.
        """
        host = host_name(resource_id)
        found = self._waiting_at(state, host)
        if found:
            return found
        rated = []
        for task_id in islice(self.wishes, LOOKED_AT_MAX):
            inputs = self.known[task_id].task.inputs
            here = (it for it in inputs if host in it.hosts or host in self.brought.get(it.data_id, ()))
            own, total = sum(it.size_bytes for it in here), sum(it.size_bytes for it in inputs)
            entry = state.tasks.get(task_id)
            if 2 * own > total and entry is not None and entry.held is None:
                rated.append((own - total, task_id))
        return [max(rated, key=lambda it: it[0])[1]] if rated else []

    def may_use(self, task: Task, shape: Shape) -> bool:
        """Return whether a planned task may use a grant that was asked for by others of this shape."""
        known = self.known.get(task.task_id)
        if known is None or known.shape is None or shape.requirements[0].hard:
            return False
        first = known.shape.requirements[0]
        return replace(shape, requirements=(first, *shape.requirements[1:])) == known.shape and (
            shape.requirements[0].resource_class == first.resource_class
        )

    def _bring_up_to_date(self, state: View) -> None:
        """Plan what is new, and all that has not begun if sizes were off."""
        if self._off and state.now >= self._anew_s:
            self._off = False
            self._anew_s = state.now + ANEW_PAUSE_S * len(self.known)
            self._new = dict.fromkeys(self.known)
        planner = self._planner
        if planner is None:
            planner = self._planner = self.policy.planner(self._plan_hosts(), self.links)
            for task_id, placed in self._run.items():
                planner.settle(task_id, placed, state.now)
        tasks = []
        for task_id in self._new:
            known, entry = self.known[task_id], state.tasks.get(task_id)
            if entry is not None and entry.held is not None:
                end_s = state.now + known.task.run_s
                runs = PlannedPlace(
                    host_name(entry.held.resource_id), 0.0, 0, 0.0, (), known.task.output_bytes, end_s
                )
                planner.settle(task_id, runs, state.now)
                continue
            size_bytes = self._size_of(known.code_id, known.output_bytes)
            if size_bytes != known.task.output_bytes:
                known.task = replace(known.task, output_bytes=size_bytes)
            tasks.append(known.task)
        self._plan(planner, tasks, state.now)
        self._new.clear()

    def _plan(self, planner: Planner, tasks: Sequence[PlanTask], now: float) -> None:
        """Plan tasks; one that cannot be placed, and what depends on it, is not planned."""
        tasks = [self._with_what_is_there(planner, task) for task in tasks]
        try:
            planner.plan(tasks, now)
            self.problem = ""
            return
        except PlanError as error:
            self.problem = str(error)
        for task in tasks:
            try:
                planner.plan((self._with_what_is_there(planner, task),), now)
            except PlanError as error:
                self.problem = str(error)

    def _with_what_is_there(self, planner: Planner, task: PlanTask) -> PlanTask:
        """Return a task without dependencies of which nobody knows where they run: their data is lost."""
        planned = planner.placed
        missing = {it for it in task.dependencies if it not in planned and it not in self._new}
        if not missing:
            return task
        return replace(task, dependencies=tuple(it for it in task.dependencies if it not in missing))

    def _plan_hosts(self) -> list[PlanHost]:
        hosts = []
        for name, classes in self.hosts.items():
            host = self.knowledge.host(name, max(1, sum(it == "core" for it in classes.values())))
            features = self.features.get(name, frozenset())
            rack = rack_of(features, host.rack)
            hosts.append(
                replace(
                    host,
                    rack=rack,
                    features=features.union(map(_class_feature, classes.values())),
                    speed=speed_of(features, host.speed),
                )
            )
        return hosts

    def _placed(self, task_id: TaskId) -> PlannedPlace | None:
        return None if self._planner is None else self._planner.placed.get(task_id)

    def explain(self, task_id: TaskId) -> str:
        """Return where a task is planned and why, "" if it is not."""
        placed = self._placed(task_id)
        if placed is None or task_id not in self.known:
            return f"; nothing is planned: {self.problem}" if self.problem else ""
        return f"; planned on {placed.host} ({why(self.policy.name, placed)})"

    def check(self) -> None:
        """Assert that it knows those tasks alone that have not ended, and what they wait for."""
        for task_id in self._run:
            assert task_id in self.users, f"task {task_id} has ended, and nothing waits for its result"
        for task_id, users in self.users.items():
            assert users, f"nothing takes the result of task {task_id}"
            for user in users:
                assert task_id in self.known[user].task.dependencies, f"task {user} does not take it"
        for host, tops in self.tops.items():
            assert set(tops) <= self.hosts.get(host, {}).keys(), f"{host} is gone"
        for task_id, placed in self.placed.items():
            gone = placed.host not in self.hosts and task_id not in self._new
            assert not gone, f"task {task_id} is planned on {placed.host}, which is gone"


def _class_feature(resource_class: str) -> str:
    """Return what stands for a resource of a class among the features of a host; no feature has this form."""
    return f"{resource_class} resources"


def _needed(task: Task) -> frozenset[str]:
    """Return what the host of a task must have: its first resource, and features."""
    first = task.shape.requirements[0]
    return frozenset((_class_feature(first.resource_class), *first.features))
