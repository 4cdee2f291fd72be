"""What others would make of a workflow on simulated hosts: HEFT that knows all, and Dask's stealing.

Both move files as :mod:`schedule.replay` says: a core fetches the files of its task that its host does not
have, one after the other, each from where that is fastest; then it computes.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from heapq import heappop, heappush

from schedule.replay import Copies, Hosts, Run, Work, WorkTask

DASK_BYTES_PER_S = 1e8
"""Dask takes all links to be as fast as this until it has measured transfers."""

DASK_UNKNOWN_S = 0.5
"""Dask takes tasks of a kind of which none has ended to run so long."""


def upward_ranks(work: Work, hosts: Hosts) -> dict[int, float]:
    """Return the upward rank of each task, by mean speeds and mean bandwidth."""
    numbers = range(len(hosts.speeds))
    per_s = sum(1 / speed for speed in hosts.speeds) / len(numbers)
    pairs = [(one, other) for one in numbers for other in numbers]
    per_byte = sum(0.0 if one == other else 1 / hosts.bytes_per_s(one, other) for one, other in pairs)
    per_byte /= len(pairs)
    maker = {name: task.task_id for task in work.tasks for name in task.outputs}
    followed_s: dict[int, float] = {}
    ranks = {}
    for task in reversed(work.tasks):
        rank = task.run_s * per_s + followed_s.get(task.task_id, 0.0)
        ranks[task.task_id] = rank
        passed: dict[int, float] = dict.fromkeys(task.parents, 0.0)
        for name in task.inputs:
            if name in maker:
                passed[maker[name]] = passed.get(maker[name], 0.0) + work.size_bytes.get(name, 0) * per_byte
        for parent, transfer_s in passed.items():
            followed_s[parent] = max(followed_s.get(parent, 0.0), rank + transfer_s)
    return ranks


def heft(work: Work, hosts: Hosts) -> Run:
    """Return what HEFT with insertion does, which knows all run times, sizes, speeds and links."""
    ranks, copies = upward_ranks(work, hosts), Copies(work, hosts)
    cores: list[tuple[int, list[tuple[float, float]]]] = [
        (host, []) for host in range(len(hosts.speeds)) for _ in range(hosts.cores)
    ]
    ends: dict[int, float] = {}
    ran_on = {}
    for task in sorted(work.tasks, key=lambda it: (-ranks[it.task_id], it.task_id)):
        ready_s = max((ends[parent] for parent in task.parents), default=0.0)
        best: tuple[float, float, int] | None = None
        for number, (host, spans) in enumerate(cores):
            run_s = task.run_s / hosts.speeds[host]
            begin_s = _first_gap(spans, ready_s, copies.fetch_s(task, host, ready_s) + run_s)
            end_s = begin_s + copies.fetch_s(task, host, begin_s) + run_s
            if best is None or end_s < best[0]:
                best = end_s, begin_s, number
        assert best is not None
        end_s, begin_s, number = best
        host, spans = cores[number]
        copies.fetch(task, host, begin_s)
        copies.made(task, host, end_s)
        insort(spans, (begin_s, end_s))
        ends[task.task_id], ran_on[task.task_id] = end_s, host
    return Run(max(ends.values()), copies.moved_bytes, ran_on)


def _first_gap(spans: list[tuple[float, float]], ready_s: float, takes_s: float) -> float:
    begin_s = ready_s
    for from_s, until_s in spans:
        if begin_s + takes_s <= from_s:
            break
        begin_s = max(begin_s, until_s)
    return begin_s


class DaskLike:
    """Dask's scheduler: a ready task joins a worker at once, and idle workers steal.

    It goes to the worker of those with some of its data, or of the idle ones, where it begins first by
    occupancy and transfer; without data in turn. An idle worker takes a task from the one with most to do, if

        own occupancy + transfer + run <= victim's occupancy - (its transfer + run) / 2

    (``decide_worker`` and ``WorkStealing.balance`` of dask.distributed). A worker is a host; it computes as
    many tasks at a time as it has cores. Run times are the means of those with the same code.
    """

    def __init__(self, work: Work, hosts: Hosts) -> None:
        self.work, self.hosts = work, hosts
        self.copies = Copies(work, hosts)
        self.now = 0.0
        self.ran_on: dict[int, int] = {}
        self._tasks = {task.task_id: task for task in work.tasks}
        self._missing = {task.task_id: len(set(task.parents)) for task in work.tasks}
        self._children: dict[int, list[int]] = {}
        for task in work.tasks:
            for parent in set(task.parents):
                self._children.setdefault(parent, []).append(task.task_id)
        self._waiting: list[list[int]] = [[] for _ in hosts.speeds]
        self._running: list[dict[int, float]] = [{} for _ in hosts.speeds]
        self._means: dict[int, tuple[int, float]] = {}
        self._ends: list[tuple[float, int, int]] = []
        self._turn = 0

    def run(self) -> Run:
        """Run all tasks."""
        self._ready([task_id for task_id, missing in self._missing.items() if not missing])
        while self._ends:
            self.now, task_id, host = heappop(self._ends)
            self._end(self._tasks[task_id], host)
        return Run(self.now, self.copies.moved_bytes, self.ran_on)

    def _end(self, task: WorkTask, host: int) -> None:
        self.copies.made(task, host, self.now)
        self.ran_on[task.task_id] = host
        del self._running[host][task.task_id]
        count, mean = self._means.get(task.code_id, (0, 0.0))
        took_s = task.run_s / self.hosts.speeds[host]
        self._means[task.code_id] = count + 1, mean + (took_s - mean) / (count + 1)
        freed = []
        for child in self._children.get(task.task_id, ()):
            self._missing[child] -= 1
            if not self._missing[child]:
                freed.append(child)
        self._ready(freed)

    def _ready(self, task_ids: Iterable[int]) -> None:
        for task_id in task_ids:
            self._waiting[self._decide(self._tasks[task_id])].append(task_id)
        self._begin()
        self._balance()
        self._begin()

    def _run_s(self, task_id: int) -> float:
        return self._means.get(self._tasks[task_id].code_id, (0, DASK_UNKNOWN_S))[1]

    def _comm_s(self, task: WorkTask, host: int) -> float:
        absent = (it for it in task.inputs if host not in self.copies.holders(it))
        return sum(self.work.size_bytes.get(it, 0) for it in absent) / DASK_BYTES_PER_S

    def _occupancy_s(self, host: int) -> float:
        """Return the seconds of work that a worker has, one task after the other."""
        waits = sum(self._run_s(it) + self._comm_s(self._tasks[it], host) for it in self._waiting[host])
        runs = sum(
            max(0.0, self._run_s(it) - (self.now - since)) for it, since in self._running[host].items()
        )
        return waits + runs

    def _is_idle(self, host: int) -> bool:
        return len(self._waiting[host]) + len(self._running[host]) < self.hosts.cores

    def _decide(self, task: WorkTask) -> int:
        numbers = range(len(self.hosts.speeds))
        holders = {host for name in task.inputs for host in self.copies.holders(name)}
        if not holders:
            self._turn += 1
            return (self._turn - 1) % len(numbers)
        idle = [host for host in numbers if self._is_idle(host)]
        return min(
            sorted(holders | set(idle)),
            key=lambda it: self._occupancy_s(it) / self.hosts.cores + self._comm_s(task, it),
        )

    def _begin(self) -> None:
        for host, waiting in enumerate(self._waiting):
            while waiting and len(self._running[host]) < self.hosts.cores:
                task = self._tasks[waiting.pop(0)]
                self._running[host][task.task_id] = self.now
                fetch_s = sum(seconds for *_, seconds in self.copies.fetch(task, host, self.now))
                end_s = self.now + fetch_s + task.run_s / self.hosts.speeds[host]
                heappush(self._ends, (end_s, task.task_id, host))

    def _balance(self) -> None:
        """Let idle workers steal."""
        for thief in range(len(self._waiting)):
            while self._is_idle(thief):
                victim = max(range(len(self._waiting)), key=self._occupancy_s)
                stolen = self._worth_stealing(victim, thief)
                if stolen is None:
                    break
                self._waiting[victim].remove(stolen)
                self._waiting[thief].append(stolen)

    def _worth_stealing(self, victim: int, thief: int) -> int | None:
        if victim == thief:
            return None
        own_s, there_s = self._occupancy_s(thief), self._occupancy_s(victim)
        for task_id in self._waiting[victim]:
            task, run_s = self._tasks[task_id], self._run_s(task_id)
            before_s = there_s - (self._comm_s(task, victim) + run_s) / 2
            if own_s + self._comm_s(task, thief) + run_s <= before_s:
                return task_id
        return None
