"""Plan by time: HEFT, earliest finish by upward rank, with insertion.

H. Topcuoglu, S. Hariri and M. Wu: Performance-effective and low-complexity task scheduling for
heterogeneous computing. IEEE Transactions on Parallel and Distributed Systems 13 (3), 2002. Tasks are taken
by upward rank: the time that they and what follows from them take on average. Each goes where it ends first;
it may fill a gap between tasks that were placed before. As workers here do, a core first brings what its
host does not have, and then computes. Data that was brought to a host stays there for the tasks after it.

Where there are many hosts not all are rated: those that have some of the data, and of each speed, and rack,
the few that are free first.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from gspc_trio.components.job.plan import (
    Links,
    PlanData,
    PlanHost,
    PlannedPlace,
    PlanTask,
    check_hosts,
    check_tasks,
    in_order,
    no_host,
)
from gspc_trio.core.ids import TaskId
from gspc_trio.policies.plans.move import moved_bytes

FREE_RATED = 8
"""Of the hosts of one rack and speed, so many that are free first are rated."""


class Core:
    """What a core is to do: begin and end of each task, in order."""

    __slots__ = ("spans",)

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []

    @property
    def free_s(self) -> float:
        """When it has done all that it has to do."""
        return self.spans[-1][1] if self.spans else 0.0

    def begin(self, ready_s: float, takes_s: float) -> float:
        """Return when a task that takes so long can begin: in the first gap that is long enough."""
        spans = self.spans
        number = bisect_right(spans, ready_s, key=lambda span: span[1])
        begin_s = ready_s
        for from_s, until_s in spans[number:]:
            if begin_s + takes_s <= from_s:
                return begin_s
            begin_s = max(begin_s, until_s)
        return begin_s


class HeftPlanner:
    """Places tasks where they end first.

    Args:
        hosts: in their order.
        links: between them.

    Attributes:
        placed: where tasks were planned or have run.

    Raises:
        PlanError: two hosts are the same, or there is none.
    """

    def __init__(self, hosts: Sequence[PlanHost], links: Links) -> None:
        self.hosts: Mapping[str, PlanHost] = check_hosts(hosts)
        self.links: Links = links
        self.placed: dict[TaskId, PlannedPlace] = {}
        self._cores: dict[str, list[Core]] = {}
        self._position = {host.name: number for number, host in enumerate(hosts)}
        self._kinds: dict[tuple[str, float], list[tuple[float, int, str]]] = {}
        """Rack and speed -> heap of its hosts: when a core of it is free, its position, its name."""
        for number, host in enumerate(hosts):
            self._kinds.setdefault((host.rack, host.speed), []).append((0.0, number, host.name))
        for heap in self._kinds.values():
            heapify(heap)
        self._brought: dict[PlanData, set[str]] = {}
        self._fetched: dict[TaskId, set[str]] = {}
        self._spans: dict[TaskId, tuple[Core, str, tuple[float, float]]] = {}
        self._mean_speed = sum(host.speed for host in hosts) / len(hosts)

    def plan(self, tasks: Sequence[PlanTask], now_s: float = 0.0) -> dict[TaskId, PlannedPlace]:
        """Place tasks after those that are placed; those with the highest upward rank first.

        Args:
            tasks: to be placed.
            now_s: none of them begins before.

        Returns:
            where each one is planned.

        Raises:
            PlanError: they make no sense, or no host will do; then nothing has changed.
        """
        check_tasks(tasks, self.hosts)
        order = in_order(tasks, self.placed)
        for task in order:
            if not any(host.can_run(task) for host in self.hosts.values()):
                raise no_host(task)
        ranks = self.ranks(order)
        position = {task.task_id: number for number, task in enumerate(order)}
        for task in order:
            self._take_out(task.task_id)
        order.sort(key=lambda task: (-ranks[task.task_id], position[task.task_id]))
        return {task.task_id: self._place(task, now_s) for task in order}

    def ranks(self, order: Sequence[PlanTask]) -> dict[TaskId, float]:
        """Return the upward rank of tasks that stand in an order with dependencies first."""
        links = self.links
        mean_bytes_per_s = links.rack_bytes_per_s
        if len({rack for rack, _ in self._kinds}) > 1:
            mean_bytes_per_s = (links.rack_bytes_per_s + links.beyond_bytes_per_s) / 2
        followed_s: dict[TaskId, float] = {}
        ranks = {}
        for task in reversed(order):
            rank = task.run_s / self._mean_speed
            rank += task.output_bytes / mean_bytes_per_s + followed_s.get(task.task_id, 0.0)
            ranks[task.task_id] = rank
            for dependency in task.dependencies:
                followed_s[dependency] = max(rank, followed_s.get(dependency, 0.0))
        return ranks

    def settle(self, task_id: TaskId, placed: PlannedPlace, now_s: float = 0.0) -> None:
        """A task has run, or runs, there; if ``placed.end_s`` is to come, a core is busy until then."""
        self._take_out(task_id)
        self.placed[task_id] = placed
        if placed.host in self.hosts and placed.end_s > now_s:
            core = min(self._cores_of(placed.host), key=lambda it: it.free_s)
            self._put_in(task_id, placed.host, core, (min(now_s, placed.end_s), placed.end_s))

    def forget(self, task_ids: Iterable[TaskId]) -> None:
        """Nothing depends on these tasks any more."""
        for task_id in task_ids:
            self._take_out(task_id)
            self.placed.pop(task_id, None)
            self._fetched.pop(task_id, None)

    def _put_in(self, task_id: TaskId, name: str, core: Core, span: tuple[float, float]) -> None:
        insort(core.spans, span)
        self._spans[task_id] = core, name, span
        self._free(name)

    def _take_out(self, task_id: TaskId) -> None:
        found = self._spans.pop(task_id, None)
        if found is not None:
            core, name, span = found
            core.spans.remove(span)
            self._free(name)

    def _cores_of(self, name: str) -> list[Core]:
        cores = self._cores.get(name)
        if cores is None:
            cores = self._cores[name] = [Core() for _ in range(self.hosts[name].cores)]
        return cores

    def _free(self, name: str) -> None:
        """Note when a host is free next."""
        host = self.hosts[name]
        free_s = min(core.free_s for core in self._cores[name])
        heappush(self._kinds[host.rack, host.speed], (free_s, self._position[name], name))

    def _place(self, task: PlanTask, now_s: float) -> PlannedPlace:
        ready_s = max([now_s, *(self.placed[it].end_s for it in task.dependencies)])
        rated = []
        for position, name in sorted(self._worth_rating(task)):
            host = self.hosts[name]
            transfer_s = self.transfer_s(task, host)
            takes_s = transfer_s + task.run_s / host.speed
            begins = [
                (core.begin(ready_s, takes_s), number) for number, core in enumerate(self._cores_of(name))
            ]
            begin_s, number = min(begins)
            rated.append((begin_s + takes_s, position, name, begin_s, number))
        end_s, _, name, begin_s, number = min(rated)
        host = self.hosts[name]
        moved = moved_bytes(task, name, self.placed)
        moved -= sum(it.size_bytes for it in task.inputs if name in self._brought.get(it, ()))
        again = (it for it in task.dependencies if name in self._fetched.get(it, ()))
        moved -= sum(self.placed[it].output_bytes for it in again if self.placed[it].host != name)
        self._put_in(task.task_id, name, self._cores[name][number], (begin_s, end_s))
        for data in task.inputs:
            if name not in data.hosts:
                self._brought.setdefault(data, set()).add(name)
        for dependency in task.dependencies:
            self._fetched.setdefault(dependency, set()).add(name)
        later = [it[0] for it in rated if it[2] != name]
        worth_s = min(later) - end_s if later else 0.0
        placed = PlannedPlace(name, end_s - now_s, moved, worth_s, (), task.output_bytes, end_s)
        self.placed[task.task_id] = placed
        return placed

    def _worth_rating(self, task: PlanTask) -> set[tuple[int, str]]:
        """Return the hosts that have some of the data, and the first free ones of each kind."""
        names = {it for data in task.inputs for it in (*data.hosts, *self._brought.get(data, ()))}
        for dependency in task.dependencies:
            names.add(self.placed[dependency].host)
            names |= self._fetched.get(dependency, set())
        found = {
            (self._position[it], it) for it in names if it in self.hosts and self.hosts[it].can_run(task)
        }
        for heap in self._kinds.values():
            found |= self._first_free(heap, task)
        return found

    def _first_free(self, heap: list[tuple[float, int, str]], task: PlanTask) -> set[tuple[int, str]]:
        """Return the hosts of a kind that are free first, and forget what the heap has of earlier times."""
        taken, found = [], set[tuple[int, str]]()
        seen = set[str]()
        while heap and len(found) < FREE_RATED:
            entry = heappop(heap)
            free_s, position, name = entry
            cores = self._cores.get(name)
            if name in seen or (cores is not None and free_s != min(core.free_s for core in cores)):
                continue
            seen.add(name)
            taken.append(entry)
            if self.hosts[name].can_run(task):
                found.add((position, name))
        for entry in taken:
            heappush(heap, entry)
        return found

    def transfer_s(self, task: PlanTask, host: PlanHost) -> float:
        """Return how long it takes to bring the data of a task to a host, one piece after the other."""
        seconds = 0.0
        for data in task.inputs:
            holders = {*data.hosts, *self._brought.get(data, ())}
            seconds += self._from_nearest(data.size_bytes, holders, host)
        for dependency in task.dependencies:
            placed = self.placed[dependency]
            holders = {placed.host, *self._fetched.get(dependency, ())}
            seconds += self._from_nearest(placed.output_bytes, holders, host)
        return seconds

    def _from_nearest(self, size_bytes: int, holders: set[str], host: PlanHost) -> float:
        if not size_bytes or host.name in holders:
            return 0.0
        speeds = [self.links.bytes_per_s(self.hosts[it], host) for it in holders if it in self.hosts]
        return size_bytes / max(speeds) if speeds else 0.0
