"""Scale beyond one machine: the real resource manager, job and scheduler with simulated workers.

    python bench/scale.py [--json] [--small] [--hosts N ...]

A cluster of hosts with 100 cores each runs five waves of tasks of 60 s. The clock is simulated; what the
machines compute is real, is measured, and is charged to the clock as if one core did it all: while they are
busy with one event, others wait, and so do cores.

``scale.cpu_us_per_task_N``   measured cost of a task, with N hosts
``scale.busy_N``              share of the cores' time that is used until the last wave begins
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import groupby
from typing import Any, ClassVar, NoReturn

from figures import Figures, options_parser

from gspc_trio.components.job.machine import Begin, JobEnded, JobMachine
from gspc_trio.components.job.scheduler.interface import ResourcesUp, Watched
from gspc_trio.components.rm.events import Added, JobJoined
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Grant, Lapsed, Recall, Refuse, Release
from gspc_trio.components.worker.messages import Finished, Submit
from gspc_trio.core.ids import TaskId
from gspc_trio.core.net import NetStatus
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Reason, Task
from gspc_trio.nursery.scopes.drive import RUN_MAX
from gspc_trio.policies.scheduling import USUAL

CORES = 100
WAVES = 5
TASK_S = 60.0
JOB = "j1"
FROM_RM = (Grant, Recall, Refuse, Lapsed)
RESULT = ((b"\xc0",),)


def clock_s() -> float:
    """Return the seconds that it takes to look at the clock of CPU time."""
    begun_s = time.process_time()
    for _ in range(1000):
        time.process_time()
    return (time.process_time() - begun_s) / 1000


CLOCK_S = clock_s()


class Farm:
    """An engine with so many tasks and nothing else."""

    is_stopped = has_more = False
    dependents = None
    named: frozenset[str] = frozenset()
    discarded: ClassVar[list[TaskId]] = []
    failures: ClassVar[list[str]] = []

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks
        self.given = self.finished = 0

    def next(self) -> int | None:
        """Return the id of the next task."""
        if self.given == self.tasks:
            return None
        self.given += 1
        return self.given

    def extract(self, task_id: int) -> Task:
        """Return it."""
        return Task(task_id, "work", 1)

    def inject(self, task_id: int, values: Any) -> None:
        """Count it."""
        del task_id, values
        self.finished += 1

    def explain_stuck(self) -> list[str]:
        """Nothing is ever stuck."""
        return []

    def describe(self) -> NetStatus:
        """It has no net."""
        return NetStatus()

    def _refuse(self, *_: object) -> NoReturn:
        raise AssertionError("no task fails here, and nothing is resumed")

    fail = cancelled = restore = take_over = resolve = _refuse


class Cluster:
    """Machines that are real, workers and a clock that are not."""

    def __init__(self, hosts: int) -> None:
        self.cores = hosts * CORES
        self.rm = ResourceManager(1)
        self.engine = Farm(self.cores * WAVES)
        self.scheduler = USUAL.scheduler(JOB)
        self.job = JobMachine(JOB, "scale", self.engine, self.scheduler)
        self.now = 0.0  # until when the machines are busy
        self.cpu_s = 0.0
        self.used_s = 0.0
        self.busy: float | None = None  # until no task was left to be handed out
        self.ended: JobEnded | None = None
        self.running: list[tuple[float, int, int, str]] = []
        up = []
        for host in range(hosts):
            node = Resource(f"r{host}.node", "node")
            cores = [Resource(f"r{host}.core{core}", "core", (node.resource_id,)) for core in range(CORES)]
            self.rm.handle(Added((node, *cores)), 0.0)
            up += cores
        self.rm.handle(JobJoined(JOB), 0.0)
        self.scheduler.handle(Watched(False), 0.0)
        self.job.handle(ResourcesUp(tuple(up)), 0.0)

    def run(self) -> None:
        """Run all tasks."""
        self.charge([Begin()])
        while self.running:
            self.now = max(self.now, self.running[0][0])
            done = []
            while self.running and self.running[0][0] <= self.now:
                _, task_id, attempt, resource_id = heappop(self.running)
                outcome = Outcome(task_id, attempt, Reason.FINISHED, RESULT, duration_s=TASK_S)
                done.append(Finished(JOB, resource_id, (outcome,)))
            self.used_s += TASK_S * len(done)
            self.charge(done)
        assert self.engine.finished == self.engine.tasks
        assert self.ended == JobEnded("finished")

    def charge(self, events: list[Any]) -> None:
        """Have the job take events and the RM what comes of them; put what it cost on the clock."""
        begun_s, now = time.process_time(), self.now
        submits: list[Submit] = []
        for begin in range(0, len(events), RUN_MAX):
            self.feed(events[begin : begin + RUN_MAX], now, submits)
        cost_s = max(0.0, time.process_time() - begun_s - CLOCK_S)
        self.cpu_s += cost_s
        for number, submit in enumerate(submits, 1):  # each goes out when its share of the work is done
            end_s = now + cost_s * number / len(submits)
            for submission in submit.submissions:
                end_s += TASK_S
                heappush(self.running, (end_s, submission.task_id, submission.attempt, submit.resources[0]))
        self.now = now + cost_s
        all_given = self.engine.given == self.engine.tasks
        if self.busy is None and all_given and not self.scheduler.unsent:
            self.busy = self.used_until_now() / (self.cores * self.now)

    def used_until_now(self) -> float:
        """Return the core seconds that were used."""
        parts = (min(TASK_S, max(0.0, self.now - (end_s - TASK_S))) for end_s, *_ in self.running)
        return self.used_s + sum(parts)

    def feed(self, events: list[Any], now: float, submits: list[Submit]) -> None:
        """Carry events from machine to machine until nothing comes of them any more, as drivers do it."""
        while events:
            following: list[Any] = []
            for run in runs_of(events, self.job.gathered):
                if len(run) == 1:
                    actions = self.job.handle(run[0], now)
                else:
                    actions = self.job.handle_run(run, now, refuse)
                for action in actions:
                    if type(action) is Submit:
                        submits.append(action)
                    elif type(action) is Demand or type(action) is Release:
                        following += [it for it in self.rm.handle(action, now) if isinstance(it, FROM_RM)]
                    elif type(action) is JobEnded:
                        self.ended = action
            events = following


def runs_of(events: list[Any], gathered: frozenset[type[object]]) -> Iterator[list[Any]]:
    """Yield the events in order, those together that a driver would have a machine take in one run."""
    for kind, group in groupby(events, type):
        same = list(group)
        step = RUN_MAX if kind in gathered else 1
        for begin in range(0, len(same), step):
            yield same[begin : begin + step]


def refuse(place: int, error: Exception) -> NoReturn:
    """No event is illegal."""
    raise AssertionError(place) from error


def main() -> None:
    """Measure and print."""
    parser = options_parser(__doc__)
    parser.add_argument("--hosts", type=int, nargs="*", help="numbers of hosts")
    options = parser.parse_args()
    figures = Figures(options.json)
    gc.set_threshold(100_000, 50, 1_000)
    for hosts in options.hosts or ((10,) if options.small else (10, 100, 1_000, 10_000)):
        cluster = Cluster(hosts)
        gc.collect()
        gc.freeze()
        cluster.run()
        figures.add(f"scale.cpu_us_per_task_{hosts}", 1e6 * cluster.cpu_s / cluster.engine.tasks, "us")
        figures.add(f"scale.busy_{hosts}", cluster.busy or 0.0, "")
        del cluster
        gc.unfreeze()


if __name__ == "__main__":
    main()
