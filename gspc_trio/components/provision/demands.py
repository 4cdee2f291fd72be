"""What the tasks of all jobs need, as the sites plan it: what waits, what has a place, what runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from attrs import define, field

from gspc_trio.components.provision.planner import RunningTasks, refusal
from gspc_trio.components.provision.site_settings import SiteSettings
from gspc_trio.components.provision.waiting import Group, Taken
from gspc_trio.core.demand import RunningGroup, TaskDemand, TaskGroup
from gspc_trio.core.ids import JobId, RifId

WALLTIME_MIN_S = 0.001
"""A task that states a shorter time is taken for one of so long."""

Likeness: TypeAlias = tuple[float, int, int]
"""Tasks that are alike, of whatever job: their walltime, cores and nodes."""


@define(eq=False)
class _Job:
    """What one job has said, and when; what runs, by host; ``refused`` of its groups was told to it."""

    said: TaskDemand
    at: float
    running: dict[RifId, list[RunningGroup]]
    refused: set[TaskGroup] = field(factory=set)


class Demands:
    """What jobs have said last, and in one plan, what of it has no place yet."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, _Job] = {}
        self._left: Counter[Likeness] = Counter()

    def say(self, said: TaskDemand, now: float) -> None:
        """Take what a job says; one that needs nothing, and runs nothing, is forgotten."""
        self._jobs.pop(said.job, None)
        if said.groups or said.running:
            by_host: defaultdict[RifId, list[RunningGroup]] = defaultdict(list)
            for group in said.running:
                by_host[group.rif_id].append(group)
            self._jobs[said.job] = _Job(said, now, dict(by_host))

    @property
    def has_waiting(self) -> bool:
        """Whether any task waits."""
        return any(job.said.groups for job in self._jobs.values())

    # What waits ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a plan: nothing that waits has a place, and what was refused does not wait."""
        self._left = Counter()
        for job in self._jobs.values():
            for group in job.said.groups:
                if group not in job.refused and group.count:
                    self._left[_kind(group)] += group.count

    def groups(self, settings: SiteSettings) -> tuple[list[Likeness], list[Group]]:
        """Return what has no place yet, as a site plans it."""
        kinds = list(self._left)
        per_node = settings.blocks.cores_per_node
        groups = [
            Group(walltime_s, cores + nodes * per_node, self._left[walltime_s, cores, nodes])
            for walltime_s, cores, nodes in kinds
        ]
        return kinds, groups

    def take(self, kinds: Sequence[Likeness], given: Iterable[Taken]) -> None:
        """Note that tasks have a place: ``kinds`` are those that the numbers of groups refer to."""
        for taken in given:
            kind = kinds[taken.group]
            self._left[kind] -= taken.count
            if not self._left[kind]:
                del self._left[kind]

    def left_for(self, settings: SiteSettings) -> int:
        """Return how many tasks have no place yet which a site could ever run."""
        kinds, groups = self.groups(settings)
        del kinds
        return sum(group.count for group in groups if refusal(group, settings.blocks) is None)

    def new_groups(self) -> Iterator[tuple[JobId, TaskGroup]]:
        """Yield groups that wait and were not refused."""
        for name, job in self._jobs.items():
            yield from [(name, group) for group in job.said.groups if group not in job.refused]

    def refuse(self, job: JobId, group: TaskGroup) -> None:
        """Note that a job is told that nobody can run this."""
        self._jobs[job].refused.add(group)

    # What runs ----------------------------------------------------------------------------------------------

    def running(self, rif_ids: Iterable[RifId], settings: SiteSettings, now: float) -> list[RunningTasks]:
        """Return what runs on some hosts, as the site plans it."""
        per_node = settings.blocks.cores_per_node
        return [
            RunningTasks(_cores(group, per_node), max(0.0, group.rest_s - (now - job.at)), group.count)
            for job, group in self._running_on(rif_ids)
        ]

    def running_at(self, rif_ids: Iterable[RifId]) -> int:
        """Return how many tasks run on some hosts."""
        return sum(group.count for _, group in self._running_on(rif_ids))

    def _running_on(self, rif_ids: Iterable[RifId]) -> Iterator[tuple[_Job, RunningGroup]]:
        """Yield what runs on some hosts, and whose it is."""
        for rif_id in rif_ids:
            for job in self._jobs.values():
                for group in job.running.get(rif_id, ()):
                    if group.count:
                        yield job, group


def as_planned(group: TaskGroup, settings: SiteSettings) -> Group:
    """Return a group as a site plans it."""
    walltime_s, cores, nodes = _kind(group)
    return Group(walltime_s, cores + nodes * settings.blocks.cores_per_node, max(1, group.count))


def _kind(group: TaskGroup) -> Likeness:
    cores = group.cores if group.cores or group.nodes else 1
    return max(WALLTIME_MIN_S, group.walltime_s), cores, group.nodes


def _cores(group: RunningGroup, per_node: int) -> int:
    return max(1, group.cores + group.nodes * per_node)
