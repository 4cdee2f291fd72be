"""Plan that moves data least: ASPIDE's Algorithm 1, with the score of its equation 3.2 (ASP-5).

``score(n, t) = min over holders m of dist(n, m, t.data) + sum over dependencies d of dist(n, A[d], d.out)``,
where ``dist = size / bandwidth(n, m)``, and 0 on the same host. The least score wins, the first host on ties.
The printed algorithm says ``task.data`` where the equation has the output of the dependency, which is meant.

Not all hosts are rated for each task. A host that has none of its data, and to which nothing was measured, is
as good as any other such host of its rack; racks without any of its data are all the same. So it is enough
to rate the hosts that have data, those to which links from these were measured, and one of each such kind.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

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

NAMED_MAX = 8
"""So many hosts a plan names at most for a task."""


class Candidates:
    """The hosts that have what tasks of one kind need, in order, by rack.

    Attributes:
        by_rack: rack -> positions of its hosts.
        racks: position of the first host of each rack, and the rack, in order.
    """

    def __init__(self, hosts: Sequence[PlanHost], task: PlanTask) -> None:
        self.by_rack: dict[str, list[int]] = {}
        for position, host in enumerate(hosts):
            if host.can_run(task):
                self.by_rack.setdefault(host.rack, []).append(position)
        self.racks: list[tuple[int, str]] = [(found[0], rack) for rack, found in self.by_rack.items()]

    def first_outside(self, racks: Mapping[str, float], rated: set[int]) -> int | None:
        """Return the first host of other racks than these that is none of those rated already."""
        best: int | None = None
        for position, rack in self.racks:
            if best is not None and position > best:
                break
            if rack not in racks:
                found = self.first_of(rack, rated)
                if found is not None and (best is None or found < best):
                    best = found
        return best

    def first_of(self, rack: str, rated: set[int]) -> int | None:
        """Return the first host of a rack that is none of those rated already."""
        for position in self.by_rack.get(rack, ()):
            if position not in rated:
                return position
        return None


class MovePlanner:
    """Places tasks, one after the other, each where least is to be moved.

    Args:
        hosts: in their order.
        links: between them.
        tightness: so many times the mean distance to the other planned tasks counts, too: how long their
            outputs would take to come.

    Attributes:
        placed: where tasks were planned or have run.

    Raises:
        PlanError: two hosts are the same, or there is none.
    """

    def __init__(self, hosts: Sequence[PlanHost], links: Links, tightness: float = 0.0) -> None:
        self.hosts: Mapping[str, PlanHost] = check_hosts(hosts)
        self.links: Links = links
        self.tightness: float = tightness
        self.placed: dict[TaskId, PlannedPlace] = {}
        self._list = list(hosts)
        self._position = {host.name: number for number, host in enumerate(hosts)}
        self._sizes = sorted({host.memory_bytes for host in hosts})
        self._candidates: dict[tuple[frozenset[str], int, frozenset[str]], Candidates] = {}
        self._made: dict[str, int] = {}
        """Host -> bytes that the tasks planned there make; kept for tightness alone."""

    def plan(self, tasks: Sequence[PlanTask], now_s: float = 0.0) -> dict[TaskId, PlannedPlace]:
        """Place tasks, dependencies first, then as they were added; those placed before stay.

        Args:
            tasks: to be placed, or to be placed anew.
            now_s: does not matter here.

        Returns:
            where each one is planned.

        Raises:
            PlanError: they make no sense, or no host will do; then nothing has changed.
        """
        del now_s
        check_tasks(tasks, self.hosts)
        before, made = {task.task_id: self.placed.get(task.task_id) for task in tasks}, dict(self._made)
        order = in_order(tasks, self.placed)
        try:
            return {task.task_id: self._place(task) for task in order}
        except BaseException:
            self._made = made
            for task_id, earlier in before.items():
                self.placed.pop(task_id, None)
                if earlier is not None:
                    self.placed[task_id] = earlier
            raise

    def settle(self, task_id: TaskId, placed: PlannedPlace, now_s: float = 0.0) -> None:
        """A task has run, or runs, there; what it makes is known. The time does not matter here."""
        del now_s
        self._note(task_id, placed)

    def forget(self, task_ids: Iterable[TaskId]) -> None:
        """Nothing depends on these tasks any more."""
        for task_id in task_ids:
            if (placed := self.placed.pop(task_id, None)) is not None and self.tightness:
                self._made[placed.host] -= placed.output_bytes

    def _note(self, task_id: TaskId, placed: PlannedPlace) -> None:
        self.forget((task_id,))
        self.placed[task_id] = placed
        if self.tightness:
            self._made[placed.host] = self._made.get(placed.host, 0) + placed.output_bytes

    def _place(self, task: PlanTask) -> PlannedPlace:
        if self.tightness:
            self.forget((task.task_id,))  # its distance to others counts, not to itself
        sources, choices = self._sources(task)
        candidates = self._candidates_of(task)
        near = self._by_rack(sources)
        rated = self._worth_rating(sources, choices)
        racks = dict(near)
        for data in choices:
            for name in data.hosts:
                if name in self.hosts:
                    racks.setdefault(self.hosts[name].rack, 0.0)
        ordinary = {it for rack in racks if (it := candidates.first_of(rack, rated)) is not None}
        outside = candidates.first_outside(racks, rated)
        if outside is not None:
            ordinary.add(outside)
        total = sum(near.values())
        scores = []
        for position in rated | ordinary:
            host = self._list[position]
            if position in ordinary or host.can_run(task):
                score_s = self._score_s(host, sources, near, total)
                scores.append((score_s + sum(self.distance_s(data, host) for data in choices), position))
        if not scores:
            raise no_host(task)
        placed = self._chosen(task, sorted(scores))
        self._note(task.task_id, placed)
        return placed

    def _chosen(self, task: PlanTask, scores: Sequence[tuple[float, int]]) -> PlannedPlace:
        """Return the place of a task by the scores of the rated hosts, the least first."""
        best_s, best = scores[0]
        name = self._list[best].name
        good_s = (best_s + scores[-1][0]) / 2
        others = tuple(self._list[it].name for score_s, it in scores[1:NAMED_MAX] if score_s <= good_s)
        rest = scores[1 + len(others) :]
        worth_s = rest[0][0] - best_s if rest else 0.0
        moved = moved_bytes(task, name, self.placed)
        return PlannedPlace(name, best_s, moved, worth_s, others if worth_s else (), task.output_bytes)

    def _sources(self, task: PlanTask) -> tuple[dict[str, float], list[PlanData]]:
        """Return host -> bytes that come from it wherever the task runs; and data with several holders."""
        sources: dict[str, float] = {}
        choices = []
        for data in task.inputs:
            holders = [name for name in data.hosts if name in self.hosts] if data.size_bytes else []
            if len(holders) > 1:
                choices.append(data)
            elif holders:
                sources[holders[0]] = sources.get(holders[0], 0) + data.size_bytes
        for dependency in task.dependencies:
            placed = self.placed[dependency]
            if placed.output_bytes and placed.host in self.hosts:
                sources[placed.host] = sources.get(placed.host, 0) + placed.output_bytes
        if self.tightness and self.placed:
            share = self.tightness / len(self.placed)
            for name, size_bytes in self._made.items():
                if size_bytes and name in self.hosts:
                    sources[name] = sources.get(name, 0) + share * size_bytes
        return sources, choices

    def _by_rack(self, sources: Mapping[str, float]) -> dict[str, float]:
        near: dict[str, float] = {}
        for name, size_bytes in sources.items():
            rack = self.hosts[name].rack
            near[rack] = near.get(rack, 0) + size_bytes
        return near

    def _worth_rating(self, sources: Mapping[str, float], choices: Iterable[PlanData]) -> set[int]:
        """Return the hosts that are not like all others of their rack."""
        found = set()
        for name in self._names(sources, choices):
            found.add(self._position[name])
            found |= {self._position[it] for it in self.links.reached.get(name, ()) if it in self._position}
        return found

    def _names(self, sources: Mapping[str, float], choices: Iterable[PlanData]) -> Iterator[str]:
        yield from sources
        for data in choices:
            yield from (name for name in data.hosts if name in self.hosts)

    def _candidates_of(self, task: PlanTask) -> Candidates:
        unknown = bool(self._sizes[0] == 0)  # a host of unknown size will do for all
        level = bisect_left(self._sizes, task.memory_bytes, lo=int(unknown)) if task.memory_bytes else 0
        key = task.features, level, task.avoid
        found = self._candidates.get(key)
        if found is None:
            found = self._candidates[key] = Candidates(self._list, task)
        return found

    def _score_s(
        self, host: PlanHost, sources: Mapping[str, float], near: Mapping[str, float], total: float
    ) -> float:
        """Return the seconds that it takes to bring to a host what other hosts have."""
        own = sources.get(host.name, 0)
        close = near.get(host.rack, 0)
        far = total - close
        close -= own
        measured_s = 0.0
        for name, bytes_per_s in self.links.measured.get(host.name, {}).items():
            size_bytes = sources.get(name, 0)
            if size_bytes:
                measured_s += size_bytes / bytes_per_s
                if self.hosts[name].rack == host.rack:
                    close -= size_bytes
                else:
                    far -= size_bytes
        links = self.links
        return close / links.rack_bytes_per_s + far / links.from_beyond(host) + measured_s

    def distance_s(self, data: PlanData, host: PlanHost) -> float:
        """Return how long it takes to bring data to a host from the nearest one that has it."""
        if host.name in data.hosts:
            return 0.0
        speeds = (self.links.bytes_per_s(self.hosts[it], host) for it in data.hosts if it in self.hosts)
        return data.size_bytes / max(speeds)


def moved_bytes(task: PlanTask, host: str, placed: Mapping[TaskId, PlannedPlace]) -> int:
    """Return how much of a task's data does not lie on a host."""
    made = (placed[it] for it in task.dependencies)
    return sum(it.size_bytes for it in task.inputs if host not in it.hosts) + sum(
        it.output_bytes for it in made if it.host != host
    )
