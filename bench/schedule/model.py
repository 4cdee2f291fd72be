"""What it costs not to know how long the variants of a task run.

``model.regret``     time lost against an oracle that knows it, by what 50 tasks have taught, on average
``model.cold_cost``  the same by what is learned in the run itself
``model.regret_SCENARIO``, ``model.cold_cost_SCENARIO``  of each scenario

The real scheduler and resource manager, simulated clock and resources. A run has 500 tasks of a code with a
variant for GPUs and one for cores; all are ready at once, or they come as fast as the resources can take.
A task takes its mean time, which depends on the size of its input, times something random.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import exp
from pathlib import Path
from random import Random
from statistics import mean

from figures import Figures
from msgspec import Struct

from gspc_trio.components.job.scheduler.interface import Basis, Expected, RunKey, TasksReady
from gspc_trio.components.rm.events import Added
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Reason, Requirement, Shape, Task, TaskVariant, TaskVariants
from gspc_trio.policies.performance_model import PerformanceModel
from gspc_trio.policies.scheduling import USUAL
from schedule.replay import JOB, RESULT, Hosts, Replay, Work, WorkTask

TAUGHT = 50
"""Tasks of the run that teaches."""
TASKS = 500
SEEDS = 10
CORES, GPUS = 8, 2
NOISE = 0.1
"""Standard deviation of the logarithm of what a mean time is multiplied with."""
IMPORT_S = 0.5
"""The first task of a code in a process takes so much longer."""


WAYS = tuple(
    TaskVariant(name, number, Shape((Requirement(name),))) for number, name in enumerate(("gpu", "core"), 1)
)


class Scenario(Struct, frozen=True):
    """How long the variants take.

    Attributes:
        name: in the names of the figures.
        gpu_s, cpu_s: mean time for an input of size 1000.
        sizes: of inputs, each as likely as the others.
        exponent: with this power of the size the mean times grow.
        load: tasks come so fast, as a share of what the resources can do; 0: all at once.
    """

    name: str
    gpu_s: float
    cpu_s: float
    sizes: tuple[int, ...] = (1000,)
    exponent: float = 1.0
    load: float = 0.0

    def mean_s(self, resource_class: str, size: int) -> float:
        """Return the mean time of a variant."""
        factor: float = (size / 1000) ** self.exponent
        return factor * (self.gpu_s if resource_class == "gpu" else self.cpu_s)

    def arrivals(self, count: int) -> list[float]:
        """Return when tasks come."""
        if not self.load:
            return [0.0] * count
        per_task_s = [mean(self.mean_s(name, size) for size in self.sizes) for name in ("gpu", "core")]
        rate = GPUS / per_task_s[0] + CORES / per_task_s[1]
        return [number / (self.load * rate) for number in range(count)]


SCENARIOS = (
    Scenario("fast_gpu", 0.2, 2.0),
    Scenario("slow_gpu", 4.0, 1.0),
    Scenario("alike", 1.0, 1.2),
    Scenario("sizes", 0.2, 2.0, (500, 700, 1000, 1500, 2200, 4000)),
    Scenario("stream", 0.2, 2.0, load=0.9),
)


class Oracle:
    """Knows all mean times."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    def expected(self, key: RunKey, size: int, estimate_s: float | None) -> Expected | None:
        """Return the mean time, whatever is stated."""
        assert estimate_s is None, "these variants state nothing"
        return Expected(self._scenario.mean_s(key.resource_class, size), 1000, Basis.MEASURED)

    def is_measured(self, key: RunKey) -> bool:
        """Everything is known."""
        del key
        return True

    def learn(self, key: RunKey, size: int, estimate_s: float | None, seconds: float) -> None:
        """Nothing is to be learned."""


class VariantsReplay(Replay):
    """Tasks with variants on one host with cores and GPUs."""

    def __init__(self, scenario: Scenario, count: int, seed: int, model: PerformanceModel | Oracle) -> None:
        self._scenario = scenario
        random = Random(seed)
        self._drawn = [(random.choice(scenario.sizes), random.gauss(0.0, NOISE)) for _ in range(count)]
        self._begun_at: set[tuple[str, int]] = set()
        self._arrivals = scenario.arrivals(count)
        tasks = tuple(WorkTask(number, 0.0) for number in range(1, count + 1))
        scheduler = USUAL.scheduler(JOB, recording=False, model=model)
        super().__init__(Work(scenario.name, tasks), Hosts("host", (1.0,), (0,)), scheduler)

    def _add_hosts(self) -> list[Resource]:
        node = Resource("r0.node", "node")
        names = [*(f"core{number}" for number in range(CORES)), *(f"gpu{number}" for number in range(GPUS))]
        below = [Resource(f"r0.{name}", name.rstrip("0123456789"), ("r0.node",)) for name in names]
        self.rm.handle(Added((node, *below), "host0"), 0.0)
        return [node, *below]

    def lasts_s(self) -> float:
        """Run all tasks; return the mean of the seconds from when a task comes until it has ended, if they
        come one after the other, else those until the last has ended.
        """
        coming = list(enumerate(self._arrivals, 1))
        coming.reverse()
        ended_s: dict[int, float] = {}
        while len(ended_s) < len(self._arrivals):
            due = [it for it in (self.scheduler.deadline(), self.rm.deadline()) if it is not None]
            due += [coming[-1][1]] if coming else []
            end_s = self._ends[0][0] if self._ends else None
            if end_s is not None and end_s <= min(due, default=end_s):
                self.now, _, resource_id, outcome = heappop(self._ends)
                ended_s[outcome.task_id] = self.now
                self._end(resource_id, outcome)
                continue
            self.now = max(self.now, min(due))
            ready = []
            while coming and coming[-1][1] <= self.now:
                ready.append(self._task(coming.pop()[0]))
            self.feed([TasksReady(tuple(ready))] if ready else [Tick()])
        if not self._scenario.load:
            return self.now
        return mean(ended_s[number] - came_s for number, came_s in enumerate(self._arrivals, 1))

    def _task(self, task_id: int) -> Task:
        ways = TaskVariants(WAYS, size=self._drawn[task_id - 1][0])
        return Task(task_id, "solve", 1, shape=WAYS[0].shape, variants=ways)

    def _begin(self, resource_id: str) -> None:
        queue = self._queues[resource_id]
        if not queue or queue[0][1]:
            return
        submission = queue[0][0]
        queue[0] = submission, True
        size, noise = self._drawn[submission.task_id - 1]
        is_first = (resource_id, submission.code_id) not in self._begun_at
        self._begun_at.add((resource_id, submission.code_id))
        mean_s = self._scenario.mean_s("gpu" if submission.code_id == 1 else "core", size)
        run_s = mean_s * exp(noise) + is_first * IMPORT_S
        outcome = Outcome(
            submission.task_id,
            submission.attempt,
            Reason.FINISHED,
            RESULT,
            duration_s=run_s,
            first_run=is_first,
        )
        self._count += 1
        heappush(self._ends, (self.now + run_s, self._count, resource_id, outcome))


def lost(scenario: Scenario, seed: int, taught: int, count: int) -> float:
    """Return the share of time that is lost against the oracle, after a run with so many tasks.

    An oracle that takes what is best for each task alone may lose too: then nothing was lost.
    """
    model = PerformanceModel()
    if taught:
        VariantsReplay(scenario, taught, 1000 + seed, model).lasts_s()
    known_s = VariantsReplay(scenario, count, seed, Oracle(scenario)).lasts_s()
    return max(0.0, VariantsReplay(scenario, count, seed, model).lasts_s() / known_s - 1.0)


def measure(figures: Figures, small: bool, _traces: Path) -> None:
    """Measure what is lost in all scenarios."""
    seeds, count = (1, 100) if small else (SEEDS, TASKS)
    for name, taught in (("regret", TAUGHT), ("cold_cost", 0)):
        found = {
            scenario.name: [lost(scenario, seed, taught, count) for seed in range(seeds)]
            for scenario in SCENARIOS
        }
        for scenario_name, shares in found.items():
            figures.add(f"model.{name}_{scenario_name}", mean(shares), "of the time")
        figures.add(f"model.{name}", mean(map(mean, found.values())), "of the time")
