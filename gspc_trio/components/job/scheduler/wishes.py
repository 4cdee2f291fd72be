"""For which hosts tasks wait, what these have to do, and who gets an idle resource next (ASP-5).

A wish is what the plan says when a task gets ready. It takes into account what runs, for how long that is
taken to run, and what waits where. A task whose run time nobody knows is taken to run long: so nothing is put
behind it as long as there are idle cores.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from heapq import heapify, heapreplace
from itertools import islice
from math import inf, log

from attrs import define, field
from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.job.plan import PlanHost, PlanTask, ReadyPlace, View
from gspc_trio.components.worker.messages import Submission
from gspc_trio.core.ids import ResourceId, TaskId

LONG_S = 3600.0
"""A task is taken to run so long as long as nothing was measured."""

LOOKED_AT_MAX = 64
"""So many tasks that wait are looked at for an idle grant on a host for which none of them waits."""

BROUGHT_MAX = 10_000
"""Of so much data it is kept in mind where it was brought."""

SOONER_SHARE, SOONER_S = 0.02, 0.05
"""A task goes to another host than it waits for if it ends there sooner by this share of what it takes, and
by so many seconds."""


CHAIN_SHARE = 0.03
"""Chains of tasks whose lengths differ by a smaller share are equal."""


class Wish(Struct, frozen=True):
    """Where a task is to run.

    Attributes:
        host: its name.
        transfer_s: how long its data is taken to be brought there.
        begin_s: when it was taken to begin.
        until_s: when it is to have ended at the latest, if it is there to have less brought.
        brings: data that is brought there for this task first.
        rank: of two tasks with their data at a worker, that of the lower one goes first.
        patient_until_s: so long the task waits for the host while others idle.
    """

    host: str
    transfer_s: float
    begin_s: float
    until_s: float
    brings: tuple[str, ...] = ()
    rank: int = 0
    patient_until_s: float = inf


def rank_of_chain(run_s: float, after_s: float) -> int:
    """Return the rank of a task: the lower, the longer the chain that begins with it.

    Chains that differ by less than some percent have the same rank: those tasks keep their order.

    Args:
        run_s: the task takes.
        after_s: the longest chain takes that waits for it.
    """
    return -round(log(max(1e-6, run_s + after_s)) / log(1 + CHAIN_SHARE))


def longest_after(
    task_id: TaskId,
    users: Mapping[TaskId, Iterable[TaskId]],
    live: Container[TaskId],
    takes_s: Callable[[TaskId], float],
    found: dict[TaskId, float],
) -> float:
    """Return how long the longest chain of tasks takes that waits for a task.

    Args:
        task_id: of the task.
        users: task -> those that take its result.
        live: those that have not ended.
        takes_s: returns how long one takes.
        found: the same of other tasks; gets those that are looked at.
    """
    waiting = [task_id]
    while waiting:
        last = waiting[-1]
        its_users = [it for it in users.get(last, ()) if it in live]
        missing = [it for it in its_users if it not in found]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        found[last] = max((takes_s(it) + found[it] for it in its_users), default=0.0)
    return found[task_id]


@define(eq=False)
class Wishes:
    """The wishes of the tasks of one job.

    Attributes:
        run_s: returns how long a task runs on a host of speed 1, None if nobody knows.
        waiting: task that waits -> its wish.
        at: the same by host.
        sent: task that was sent -> its last wish.
        brought: data -> hosts without it where tasks are to run that take it.
        fresh: tasks that have got a wish, and were not looked at since.
    """

    run_s: Callable[[TaskId], float | None]
    waiting: dict[TaskId, Wish] = field(factory=dict)
    at: dict[str, dict[TaskId, None]] = field(factory=dict)
    sent: dict[TaskId, Wish] = field(factory=dict)
    brought: dict[str, set[str]] = field(factory=dict)
    fresh: list[TaskId] = field(factory=list)

    def add(
        self, task: PlanTask, place: ReadyPlace, now: float, rank: int = 0, patience_s: float = inf
    ) -> None:
        """A task is to run there, and waits for it for so long."""
        until_s = now + place.until_s if place.until_s else 0.0
        brings = []
        for data in task.inputs:
            there = self.brought.get(data.data_id, ())
            if place.host not in data.hosts and place.host not in there:
                self.brought.setdefault(data.data_id, set()).add(place.host)
                brings.append(data.data_id)
        begin_s, patient_until_s = now + place.begin_s, now + patience_s
        wish = Wish(place.host, place.transfer_s, begin_s, until_s, tuple(brings), rank, patient_until_s)
        self.waiting[task.task_id] = wish
        self.at.setdefault(place.host, {})[task.task_id] = None
        self.fresh.append(task.task_id)
        while len(self.brought) > BROUGHT_MAX:
            del self.brought[next(iter(self.brought))]

    def drop(self, task_id: TaskId) -> None:
        """A task has no wish any more."""
        self.sent.pop(task_id, None)
        self._leave(task_id)

    def take_back(self, task_id: TaskId) -> None:
        """A task that has not begun gets another wish, or none: nothing is brought for it as it was to be."""
        wish = self.waiting.get(task_id)
        if wish is not None:
            for data_id in wish.brings:
                self._forget_brought(data_id, wish.host)
        self.drop(task_id)

    def _forget_brought(self, data_id: str, host: str) -> None:
        hosts = self.brought.get(data_id)
        if hosts is not None:
            hosts.discard(host)
            if not hosts:
                del self.brought[data_id]

    def drop_host(self, host: str) -> None:
        """A host is gone."""
        for task_id in list(self.at.get(host, ())):
            self._leave(task_id)
        for data_id in [it for it, hosts in self.brought.items() if host in hosts]:
            self._forget_brought(data_id, host)

    def _leave(self, task_id: TaskId) -> Wish | None:
        wish = self.waiting.pop(task_id, None)
        if wish is not None:
            there = self.at[wish.host]
            del there[task_id]
            if not there:
                del self.at[wish.host]
        return wish

    def wish_of(self, task_id: TaskId) -> Wish | None:
        """Return the wish of a task that waits, or the last one of a task that was sent."""
        return self.waiting.get(task_id) or self.sent.get(task_id)

    def with_ranks(self, submissions: Sequence[Submission]) -> tuple[Submission, ...]:
        """Return tasks that are sent, each with what its worker goes by when it has the data of several."""
        wishes = [(one, self.wish_of(one.task_id)) for one in submissions]
        return tuple(one if wish is None else replace(one, rank=wish.rank) for one, wish in wishes)

    def waiting_at(self, state: View, host: str, by_rank: bool = False) -> list[TaskId]:
        """Return the tasks that wait for a host, as they were taken to begin, or by rank."""
        there = self.at.get(host)
        if not there:
            return []
        found = []
        for task_id in list(there):
            entry = state.tasks.get(task_id)
            if entry is not None and entry.held is not None:
                wish = self._leave(task_id)
                assert wish is not None, "a task that waits for a host has a wish"
                self.sent[task_id] = wish
            else:
                found.append(task_id)
        if len(found) > 1:
            found.sort(key=lambda it: (by_rank and self.waiting[it].rank, self.waiting[it].begin_s))
        return found

    def overdue(self, state: View) -> list[TaskId]:
        """Return the tasks that have waited for their hosts for longer than they were to, longest first."""
        found = [
            (wish.patient_until_s, task_id)
            for task_id, wish in islice(self.waiting.items(), LOOKED_AT_MAX)
            if wish.patient_until_s <= state.now
            and (entry := state.tasks.get(task_id)) is not None
            and entry.held is None
        ]
        return [task_id for _, task_id in sorted(found)]

    def check(self, hosts: Set[str]) -> None:
        """Assert that a task waits for one host or for none, and that this host is there."""
        for host, there in self.at.items():
            assert there, f"no task waits for {host}, and it is among those that are waited for"
            assert host in hosts, f"tasks {list(there)} wait for {host}, which is gone"
            for task_id in there:
                wish = self.waiting.get(task_id)
                assert wish is not None, f"task {task_id} waits for {host} without a wish"
                assert wish.host == host, f"task {task_id} waits for {host} and for {wish.host}"
        assert sum(map(len, self.at.values())) == len(self.waiting), (
            "a task waits for no host, and has a wish"
        )
        assert self.waiting.keys().isdisjoint(self.sent), "a task waits for a host, and was sent to one"
        for data_id, brought in self.brought.items():
            assert brought, f"{data_id} is brought nowhere"
            assert brought <= hosts, f"{data_id} is brought to {brought - hosts}, which is gone"

    # What hosts have to do

    def free_s(
        self,
        state: View,
        host: PlanHost,
        resource_ids: Iterable[ResourceId],
        ends: dict[TaskId, float] | None = None,
    ) -> list[float]:
        """Return in how many seconds each of some resources of a host has done what it has to do.

        Args:
            state: of the scheduler.
            host: which.
            resource_ids: of the host, for tasks of one kind.
            ends: gets in how many seconds each task that runs or waits there has ended.
        """
        waiting = self.waiting_at(state, host.name)
        free_s = []
        for resource_id in resource_ids:
            held, left_s = state.by_resource.get(resource_id), 0.0
            for task_id in () if held is None else held.sent:
                takes_s = self._takes_s(task_id, self.sent.get(task_id), host)
                if held is not None and not left_s:  # it runs; what is late is taken to run as long again
                    ran_s = state.now - held.since_s
                    takes_s = takes_s - ran_s if ran_s < takes_s else ran_s
                left_s += takes_s
                if ends is not None:
                    ends[task_id] = left_s
            free_s.append(left_s)
        if not free_s:
            return free_s
        heapify(free_s)
        for task_id in waiting:
            end_s = free_s[0] + self._takes_s(task_id, self.waiting[task_id], host)
            heapreplace(free_s, end_s)
            if ends is not None:
                ends[task_id] = end_s
        return free_s

    def _takes_s(self, task_id: TaskId, wish: Wish | None, host: PlanHost) -> float:
        """Return how long a core of a host is taken to be busy with a task, with what is brought."""
        run_s = self.run_s(task_id)
        takes_s = (LONG_S if run_s is None else run_s) / host.speed
        return takes_s + (wish.transfer_s if wish is not None and wish.host == host.name else 0.0)

    def better_here(
        self,
        state: View,
        host: PlanHost,
        wishes: Mapping[TaskId, Wish],
        ends_s: Callable[[str], Mapping[TaskId, float]],
        transfer_s: Callable[[TaskId], float],
    ) -> TaskId | None:
        """Return the task that gains most if an idle host takes it from the one for which it waits.

        Args:
            state: of the scheduler.
            host: the idle one.
            wishes: of tasks that have not begun elsewhere.
            ends_s: returns in how many seconds the tasks of a host have ended.
            transfer_s: returns how long the data of a task is brought to the idle host.
        """
        by_host: dict[str, Mapping[TaskId, float]] = {}
        best: TaskId | None = None
        best_s = 0.0
        is_waiting = wishes is self.waiting
        for task_id in list(islice(wishes, LOOKED_AT_MAX)):
            wish = wishes.get(task_id)
            if wish is None:
                continue
            if wish.host not in by_host:
                by_host[wish.host] = ends_s(wish.host)
            end_s = by_host[wish.host].get(task_id)
            entry = state.tasks.get(task_id)
            if end_s is None or entry is None or (entry.held is None) is not is_waiting:
                continue
            brought_s, run_s = transfer_s(task_id), self.run_s(task_id)
            if brought_s > wish.transfer_s and state.now + end_s <= wish.until_s:
                continue
            takes_s = brought_s + (LONG_S if run_s is None else run_s) / host.speed
            gained_s = end_s - takes_s
            if gained_s > max(best_s, SOONER_S, SOONER_SHARE * takes_s):
                best, best_s = task_id, gained_s
        return best
