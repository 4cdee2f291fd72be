"""Queues of resources and stealing: 1,000 tasks that all stand in one of 16 queues, on a simulated clock.

``steal.vs_bound``   time until all are done, over the least that any order could need; run times are
                     log-normal, and the tasks state them; the median of 20 draws
``steal.unknown``    the same, with run times that nobody knows before
``steal.worst``      of these, the worst draw: one of the longest tasks begins near the end
``steal.moved``      how often tasks were stolen then, on average
"""

from __future__ import annotations

from heapq import heappop, heappush
from pathlib import Path
from random import Random
from statistics import mean, median

from figures import Figures

from gspc_trio.components.job.scheduler.interface import ResourcesUp, SchedulerEvent, TasksReady
from gspc_trio.components.job.scheduler.machine import Scheduler
from gspc_trio.components.rm.messages import Grant
from gspc_trio.components.worker.messages import Finished, Submit, TakeBack
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Outcome, Reason, Task, TaskOptions
from gspc_trio.policies.queues import Queues
from gspc_trio.policies.scheduling import SchedulingPolicy

TASKS, RESOURCES, DRAWS = 1_000, 16, 20

MEDIAN_S, SIGMA = 0.1, 1.0
"""Of the run times: a twentieth of them takes more than five times the median."""

JOB = "j1"


def measure(figures: Figures, small: bool, _traces: Path) -> None:
    """Draw run times, and print how close to the least time all is done."""
    seeds = range(3 if small else DRAWS)
    figures.add("steal.vs_bound", median(_run(seed, True)[0] for seed in seeds), "x")
    unknown = [_run(seed, False) for seed in seeds]
    figures.add("steal.unknown", median(ratio for ratio, _ in unknown), "x")
    figures.add("steal.worst", max(ratio for ratio, _ in unknown), "x")
    figures.add("steal.moved", mean(moved for _, moved in unknown), "tasks")


def _run(seed: int, stated: bool) -> tuple[float, int]:
    """Return how long all tasks take, over the lower bound, and how many were stolen."""
    random = Random(seed)
    runs_s = [random.lognormvariate(0.0, SIGMA) * MEDIAN_S for _ in range(TASKS)]
    scheduler = SchedulingPolicy(assign=Queues()).scheduler(JOB, recording=False)
    names = [f"r1.core{number}" for number in range(RESOURCES)]
    options = [TaskOptions(estimate_s=seconds if stated else None) for seconds in runs_s]
    tasks = tuple(Task(n + 1, "work", 1, (), CORE, one) for n, one in enumerate(options))
    world = _World(scheduler, runs_s)
    world.tell(ResourcesUp(tuple(Resource(name, "core") for name in names)))
    world.tell(Grant(JOB, CORE, (1, 1), (names[0],)))
    world.tell(TasksReady(tasks))
    for number, name in enumerate(names[1:], 2):
        world.tell(Grant(JOB, CORE, (1, number), (name,)))
    bound_s = max(sum(runs_s) / RESOURCES, *runs_s)
    return world.run() / bound_s, scheduler.stolen


class _World:
    """Workers that run what they get in order; nothing takes time but that."""

    def __init__(self, scheduler: Scheduler, runs_s: list[float]) -> None:
        self._scheduler, self._runs_s = scheduler, runs_s
        self._now = 0.0
        self._at: dict[str, list[tuple[int, int]]] = {}
        self._ends: list[tuple[float, str]] = []

    def tell(self, event: SchedulerEvent) -> None:
        """Let the scheduler handle an event, and do what it says."""
        for action in self._scheduler.handle(event, self._now):
            if isinstance(action, Submit):
                name = action.resources[0]
                queue = self._at.setdefault(name, [])
                queue += [(one.task_id, one.attempt) for one in action.submissions]
                if len(queue) == len(action.submissions):
                    self._begin(name)
            elif isinstance(action, TakeBack):
                queue = self._at[action.resource_id]
                back = [one for one in action.attempts if one in queue[1:]]
                self._at[action.resource_id] = [one for one in queue if one not in back]
                outcomes = tuple(Outcome(*one, Reason.RETURNED) for one in back)
                if outcomes:
                    self.tell(Finished(JOB, action.resource_id, outcomes))

    def run(self) -> float:
        """Run until all has ended; return the time."""
        while self._scheduler.live:
            due_s = self._scheduler.deadline()
            if due_s is not None and due_s < self._ends[0][0]:
                self._now = due_s
                self.tell(Tick())
                continue
            self._now, name = heappop(self._ends)
            task_id, attempt = self._at[name].pop(0)
            if self._at[name]:
                self._begin(name)
            seconds = self._runs_s[task_id - 1]
            self.tell(Finished(JOB, name, (Outcome(task_id, attempt, Reason.FINISHED, duration_s=seconds),)))
        return self._now

    def _begin(self, name: str) -> None:
        heappush(self._ends, (self._now + self._runs_s[self._at[name][0][0] - 1], name))
