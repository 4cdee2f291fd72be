"""Recorded runs on simulated hosts: how long they take, and how many bytes are moved.

``plan.fifo_s_WORK_HOSTS``     makespan in today's order; of the plans it is a share of that:
``plan.move_of_fifo_WORK_HOSTS``, ``plan.heft_of_fifo_WORK_HOSTS``
``plan.bytes_ratio``           what hosts fetch from each other by the plan ``move``, of what they fetch today
``plan.heft_bytes_ratio``      the same of the plan ``heft``
``plan.worst_vs_fifo``         makespan of ``move`` of today's, at worst
``plan.tasks_per_s``           tasks planned by ``move`` for 1,000 hosts
``plan.flatness``              cost of a task with 10,000 hosts of that with 100
``plan.heft_tasks_per_s``      tasks planned by ``heft`` for 1,000 hosts

Plans know sizes and run times as a run learns them, and nothing of the speeds of hosts.
"""

from __future__ import annotations

import time
from pathlib import Path

from figures import Figures

from gspc_trio.components.job.plan import Links, PlanData, PlanHost, PlanTask
from gspc_trio.policies.plans.by_name import find_plan
from schedule.replay import CLUSTERS, Replay, read_works

TASKS = 20_000


def measure(figures: Figures, small: bool, traces: Path) -> None:
    """Replay each recorded run on each of the clusters, and measure what planning costs.

    Raises:
        Skipped: there are no recorded runs.
    """
    works = read_works(traces)
    moved = {"fifo": 0, "move": 0, "heft": 0}
    worst = 0.0
    for hosts in CLUSTERS[:1] if small else CLUSTERS:
        for work in works:
            fifo = Replay(work, hosts).run()
            figures.add(f"plan.fifo_s_{work.name}_{hosts.name}", fifo.makespan_s, "s")
            moved["fifo"] += fifo.moved_bytes
            for name in ("move", "heft"):
                run = Replay(work, hosts, plan=find_plan(name)).run()
                share = run.makespan_s / fifo.makespan_s
                figures.add(f"plan.{name}_of_fifo_{work.name}_{hosts.name}", share, "of 1")
                moved[name] += run.moved_bytes
                worst = max(worst, share) if name == "move" else worst
    figures.add("plan.bytes_ratio", moved["move"] / moved["fifo"], "of 1")
    figures.add("plan.heft_bytes_ratio", moved["heft"] / moved["fifo"], "of 1")
    figures.add("plan.worst_vs_fifo", worst, "of 1")
    tasks = TASKS // 20 if small else TASKS
    figures.add("plan.tasks_per_s", tasks / cost_s("move", 1_000, tasks), "1/s")
    figures.add("plan.flatness", cost_s("move", 10_000, tasks) / cost_s("move", 100, tasks), "x")
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
