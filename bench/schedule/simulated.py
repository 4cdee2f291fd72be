"""Recorded runs on simulated hosts: how long they take, and how many bytes are moved.

``plan.fifo_s_WORK_HOSTS``     makespan in today's order; of the plans it is a share of that:
``plan.move_of_fifo_WORK_HOSTS``, ``plan.heft_of_fifo_WORK_HOSTS``, ``plan.learned_move_of_fifo_WORK_HOSTS``
``plan.bytes_ratio``           what hosts fetch from each other by the plan ``move``, of what they fetch today
``plan.learned_bytes_ratio``   the same if nothing is stated
``plan.heft_bytes_ratio``, ``plan.dask_bytes_ratio``, ``plan.known_bytes_ratio``
                               the same of the plan ``heft``, of Dask's stealing, and of HEFT that knows all
``plan.worst_vs_fifo``         makespan of ``move``, stated or learned, and of ``heft``, of today's, at worst;
                               ``plan.learned_heft_vs_fifo``: of ``heft`` if nothing is stated
``plan.makespan_vs_heft``      makespan of ``heft`` of that of HEFT that knows all run times, sizes, speeds
                               and links, at worst; ``plan.move_vs_heft``: of ``move``
``plan.makespan_vs_dask``      makespan of ``move`` of that with Dask's stealing, at worst
``plan.tasks_per_s``           tasks planned by ``move`` for 1,000 hosts
``plan.flatness``              cost of a task with 10,000 hosts of that with 100
``plan.ready_tasks_per_s``     tasks placed for 1,000 hosts when they get ready, ten at a time
``plan.ready_flatness``        cost of such a task with 10,000 hosts of that with 100
``plan.heft_tasks_per_s``      tasks planned by ``heft`` for 1,000 hosts

Tasks state what they took and made when they were recorded, and hosts what they fetch from beyond their
group, as those of a workflow that has run before. If nothing is stated (``learned``), plans know what the run
has taught so far. Hosts state their speeds. Today's order uses nothing of all that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from figures import Figures

from gspc_trio.components.job.plan import InHand, Links, Live, PlanData, PlanHost, PlanTask
from gspc_trio.components.job.scheduler.plans import Plans
from gspc_trio.core.ids import ResourceId, TaskId
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Task, TaskOptions
from gspc_trio.policies.plans.by_name import find_plan
from schedule.references import DaskLike, heft
from schedule.replay import CLUSTERS, Replay, read_works

TASKS = 20_000


def measure(figures: Figures, small: bool, traces: Path) -> None:
    """Replay each recorded run on each of the clusters, and measure what planning costs.

    Raises:
        Skipped: there are no recorded runs.
    """
    works = read_works(traces)
    moved: dict[str, int] = {}
    worst: dict[tuple[str, str], float] = {}
    for hosts in CLUSTERS[:1] if small else CLUSTERS:
        for work in works:
            runs = {
                "fifo": Replay(work, hosts).run(),
                "move": Replay(work, hosts, plan=find_plan("move"), stated=True).run(),
                "heft": Replay(work, hosts, plan=find_plan("heft"), stated=True).run(),
                "learned_move": Replay(work, hosts, plan=find_plan("move")).run(),
                "learned_heft": Replay(work, hosts, plan=find_plan("heft")).run(),
                "known": heft(work, hosts),
                "dask": DaskLike(work, hosts).run(),
            }
            for name, run in runs.items():
                moved[name] = moved.get(name, 0) + run.moved_bytes
                for other in ("fifo", "known", "dask"):
                    share = run.makespan_s / runs[other].makespan_s
                    worst[name, other] = max(worst.get((name, other), 0.0), share)
            figures.add(f"plan.fifo_s_{work.name}_{hosts.name}", runs["fifo"].makespan_s, "s")
            for name in ("move", "heft", "learned_move"):
                share = runs[name].makespan_s / runs["fifo"].makespan_s
                figures.add(f"plan.{name}_of_fifo_{work.name}_{hosts.name}", share, "of 1")
    figures.add("plan.bytes_ratio", moved["move"] / moved["fifo"], "of 1")
    figures.add("plan.learned_bytes_ratio", moved["learned_move"] / moved["fifo"], "of 1")
    for name in ("heft", "dask", "known"):
        figures.add(f"plan.{name}_bytes_ratio", moved[name] / moved["fifo"], "of 1")
    never_slower = max(worst[name, "fifo"] for name in ("move", "heft", "learned_move"))
    figures.add("plan.worst_vs_fifo", never_slower, "of 1")
    figures.add("plan.learned_heft_vs_fifo", worst["learned_heft", "fifo"], "of 1")
    figures.add("plan.makespan_vs_heft", worst["heft", "known"], "of 1")
    figures.add("plan.move_vs_heft", worst["move", "known"], "of 1")
    figures.add("plan.makespan_vs_dask", worst["move", "dask"], "of 1")
    tasks = TASKS // 20 if small else TASKS
    figures.add("plan.tasks_per_s", tasks / cost_s("move", 1_000, tasks), "1/s")
    figures.add("plan.flatness", cost_s("move", 10_000, tasks) / cost_s("move", 100, tasks), "x")
    ready_s = {hosts: ready_cost_s(hosts, tasks) for hosts in (100, 1_000, 10_000)}
    figures.add("plan.ready_tasks_per_s", tasks / ready_s[1_000], "1/s")
    figures.add("plan.ready_flatness", ready_s[10_000] / ready_s[100], "x")
    figures.add("plan.heft_tasks_per_s", tasks / 10 / cost_s("heft", 1_000, tasks // 10), "1/s")


def cost_s(name: str, hosts: int, tasks: int) -> float:
    """Return the CPU seconds that it takes to plan a layered graph whose tasks read data and two others."""
    there = [PlanHost(f"h{number}", f"rack:{number // 40}", cores=8) for number in range(hosts)]
    graph = [
        PlanTask(
            number,
            (number - 100, number - 101) if number > 101 else (),
            (PlanData(10_000_000, (f"h{number * 7 % hosts}",), str(number)),),
            5_000_000,
            run_s=1.0,
        )
        for number in range(1, tasks + 1)
    ]
    planner = find_plan(name).planner(there, Links())
    begun_s = time.process_time()
    planner.plan(graph)
    return time.process_time() - begun_s


class _NoView:
    """A scheduler in which nothing runs."""

    now = 0.0
    tasks: Mapping[TaskId, Live] = {}
    by_resource: Mapping[ResourceId, InHand] = {}


class _Sources:
    """Each task reads some megabytes that one host has."""

    def __init__(self, hosts: int) -> None:
        self._hosts = hosts

    def host(self, name: str, cores: int) -> PlanHost:
        """Return a host."""
        return PlanHost(name, f"rack:{int(name[1:]) // 40}", cores=cores)

    def inputs_of(self, task: Task) -> Sequence[PlanData]:
        """Return what a task reads."""
        return (PlanData(10_000_000, (f"h{task.task_id * 7 % self._hosts}",), str(task.task_id)),)

    def output_bytes(self, outcome: Outcome) -> int:
        """Return 0: nothing ends here."""
        del outcome
        return 0

    def named(self, label: str) -> str:
        """Return the name of a host."""
        return label

    def memory_host(self, name: str) -> str:
        """Return nothing: there is no memory layer."""
        del name
        return ""


def ready_cost_s(hosts: int, tasks: int) -> float:
    """Return the CPU seconds that it takes to plan tasks that get ready, with what hosts have to do already.

    Ten get ready at a time, and eight for each host are waiting or running then.
    """
    plans, view = Plans(find_plan("move"), _Sources(hosts)), _NoView()
    plans.resources_up(Resource(f"h{host}.core{core}", "core") for host in range(hosts) for core in range(8))
    options = TaskOptions(estimate_s=1.0)
    batches = [
        [Task(number, "work", 1, options=options) for number in range(first, first + 10)]
        for first in range(1, tasks + 1, 10)
    ]
    plans.ready(view, batches[0])  # makes what is made once for all hosts
    begun_s = time.process_time()
    for number, batch in enumerate(batches[1:], 1):
        plans.ready(view, batch)
        if number >= hosts:
            plans.drop(task.task_id for task in batches[number - hosts])
    return time.process_time() - begun_s
