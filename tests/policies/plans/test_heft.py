"""The plan by time, against a plain transcription of HEFT with insertion."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings

from gspc_trio.components.job.plan import Links, PlanError, PlanHost, PlanTask
from gspc_trio.policies.plans.heft import HeftPlanner
from tests.policies.plans.test_move import cases


def naive(tasks: Sequence[PlanTask], hosts: Sequence[PlanHost], links: Links) -> dict[int, tuple[str, float]]:
    """HEFT: each host, and each gap of each core, is looked at for each task."""
    by_id = {task.task_id: task for task in tasks}
    by_name = {host.name: host for host in hosts}
    mean_speed = sum(host.speed for host in hosts) / len(hosts)
    several = len({host.rack for host in hosts}) > 1
    mean = (links.rack_bytes_per_s + links.beyond_bytes_per_s) / 2 if several else links.rack_bytes_per_s

    def rank(task: PlanTask) -> float:
        after = [rank(it) for it in tasks if task.task_id in it.dependencies]
        return task.run_s / mean_speed + task.output_bytes / mean + max(after, default=0.0)

    depth: dict[int, int] = {}
    order: list[PlanTask] = []
    while len(order) < len(tasks):
        order += [
            next(it for it in tasks if it not in order and all(by_id[d] in order for d in it.dependencies))
        ]
    depth = {task.task_id: number for number, task in enumerate(order)}
    spans: dict[tuple[str, int], list[tuple[float, float]]] = {
        (host.name, core): [] for host in hosts for core in range(host.cores)
    }
    ends: dict[int, tuple[str, float]] = {}
    has: dict[object, set[str]] = {}
    for task in sorted(order, key=lambda it: (-rank(it), depth[it.task_id])):
        ready = max([0.0, *(ends[it][1] for it in task.dependencies)])
        pieces = [(it, it.size_bytes, has.setdefault(it, set(it.hosts))) for it in task.inputs]
        pieces += [(it, by_id[it].output_bytes, has[it]) for it in task.dependencies]  # type: ignore[misc]
        best: tuple[float, int, int, float] | None = None
        for number, host in enumerate(hosts):
            if not host.can_run(task):
                continue
            takes = 0.0
            for _, size, holders in pieces:
                if size and host.name not in holders:
                    takes += size / max(links.bytes_per_s(by_name[it], host) for it in holders)
            takes += task.run_s / host.speed
            for core in range(host.cores):
                busy = sorted(spans[host.name, core])
                starts = [ready, *(end for _, end in busy if end > ready)]
                begin = next(
                    s for s in starts if all(s + takes <= a or b <= s for a, b in busy if (a, b) != (s, s))
                )
                if best is None or (begin + takes, number, begin, core) < (
                    best[0],
                    best[1],
                    best[3],
                    best[2],
                ):
                    best = begin + takes, number, core, begin
        assert best is not None
        end, number, core, begin = best
        name = hosts[number].name
        spans[name, core].append((begin, end))
        ends[task.task_id] = name, end
        for _, _, holders in pieces:
            holders.add(name)
        has[task.task_id] = {name}
    return ends


@settings(max_examples=50)
@given(cases())
def test_it_places_tasks_where_they_end_first(case: tuple[list[PlanTask], list[PlanHost], Links]) -> None:
    tasks, hosts, links = case
    found = HeftPlanner(hosts, links).plan(tasks)
    assert {it: (placed.host, placed.end_s) for it, placed in found.items()} == naive(tasks, hosts, links)


def test_a_task_fills_a_gap_and_a_fast_host_is_worth_waiting_for() -> None:
    hosts = [PlanHost("slow"), PlanHost("fast", speed=4.0)]
    found = HeftPlanner(hosts, Links()).plan([PlanTask(it, run_s=4.0) for it in (1, 2, 3, 4)])
    assert [(placed.host, placed.end_s) for placed in found.values()] == [
        ("fast", 1.0),
        ("fast", 2.0),
        ("fast", 3.0),
        ("slow", 4.0),
    ]
    assert [placed.worth_s for placed in found.values()] == [3.0, 2.0, 1.0, 0.0]


def test_what_no_host_can_run_is_refused() -> None:
    planner = HeftPlanner([PlanHost("h1", memory_bytes=5)], Links())
    with pytest.raises(PlanError, match="no host has 6 bytes of memory for task 2"):
        planner.plan([PlanTask(1), PlanTask(2, memory_bytes=6)])
    assert planner.placed == {}
