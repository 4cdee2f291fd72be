"""Chains of tasks in a simulation: each takes the result of the one before, and may be sent ahead of it."""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec.structs import replace

from gspc_trio.components.job.result import JobResult
from gspc_trio.core.code import CodeEntry
from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import CORE, TaskOptions, TaskState
from gspc_trio.protocol.values import dumps, loads
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.job_life import JobLife, JobSurroundings, RangesLife
from gspc_trio.testing.options import Options
from gspc_trio.testing.workload import FAILURES_MAX, Workload, link, link_twice
from gspc_trio.workflow.graph import Ref, TaskGraph

CHAIN_MAX = 30
"""Most links of a chain."""

FORKED = 0.1
"""So many of the links are taken by another task, too."""

RANGED_EVERY = 3
"""Each so manieth seed has a farm whose items travel in ranges."""

JOINED = 0.1
"""So many take the result of an earlier task of another chain as well."""

_CORE = replace(CORE, wait=True)

_OPTIONS = (
    TaskOptions(attempts=FAILURES_MAX + 3, loss_attempts=50),
    TaskOptions(attempts=FAILURES_MAX + 3, loss_attempts=50, timeout_s=5.0),
    TaskOptions(attempts=1, loss_attempts=50, may_rerun=False),
)
"""What links state: most of them the first."""


class ChainGraph(TaskGraph):
    """A graph of chains.

    Args:
        random: to draw from.
        tasks: about how many tasks it has.
    """

    code_table: tuple[CodeEntry, ...] = (CodeEntry(link), CodeEntry(link_twice))

    def __init__(self, random: Random, tasks: int) -> None:
        super().__init__()
        self.expected: dict[TaskId, int] = {}
        while self.last_task_id < tasks:
            self._chain(random, random.randint(1, CHAIN_MAX))

    @staticmethod
    def outputs() -> dict[str, list[Any]]:
        """Return nothing: results are with the tasks."""
        return {}

    def _chain(self, random: Random, links: int) -> None:
        """Add a chain; some links have others beside them."""
        usual = _OPTIONS[0] if random.random() < 0.9 else random.choice(_OPTIONS)
        last = self._link(random.randrange(1000), usual)
        for _ in range(links):
            others = list(self.expected)
            options = usual if random.random() < 0.95 else random.choice(_OPTIONS)
            if random.random() < FORKED:
                self._link(last, options, is_task=True)
            if random.random() < JOINED:
                last = self._twice(last, random.choice(others))
            else:
                last = self._link(last, options, is_task=True)

    def _link(self, value: int, options: TaskOptions, is_task: bool = False) -> TaskId:
        argument = Ref(value) if is_task else dumps(value)
        task_id = self.add("link", 0, (argument,), _CORE, options, keep=True)
        self.expected[task_id] = link(self.expected[value] if is_task else value)
        return task_id

    def _twice(self, one: TaskId, other: TaskId) -> TaskId:
        task_id = self.add("join", 1, (Ref(one), dumps(7), Ref(other)), _CORE, _OPTIONS[0], keep=True)
        self.expected[task_id] = link_twice(self.expected[one], 7, self.expected[other])
        return task_id

    def differs(self) -> str:
        """Say in what the results differ from those of a plain loop, "" if they do not."""
        for task_id, value in self.expected.items():
            result = self.result(task_id)
            if result is None or loads(result) != value:
                return f"task {task_id} has {result!r} as its result, and not {value}"
        return ""


class ChainLife(JobLife):
    """A job whose tasks are chains.

    Args:
        simulation: of which it is part.
        name: of the job.
        random: to draw from.
        tasks: about how many it has.
    """

    def __init__(self, simulation: JobSurroundings, name: str, random: Random, tasks: int) -> None:
        super().__init__(simulation, name, Workload.make(random, 1), random, journaled=False, fate=False)
        self._drawn, self._tasks = random.getrandbits(64), tasks
        self._net = self._make
        self._graph = self._make()

    def _make(self) -> ChainGraph:
        """Make the graph anew: each run of the job begins with it."""
        self._graph = ChainGraph(Random(self._drawn), self._tasks)
        return self._graph

    def _has_ended(self, result: JobResult) -> bool:
        if result.state != "finished" or self._graph.counts()[TaskState.CANCELLED]:
            return False  # what a user has cancelled has no result, nor what takes it
        if differs := self._graph.differs():
            self._simulation.fail(Broken(f"{self.name}: {differs}"))
        self._graph.check()
        return True


def more_lives(simulation: JobSurroundings, options: Options, random: Random) -> list[JobLife]:
    """Return the jobs that a run has besides: chains, or farms whose items travel in ranges."""
    lives: list[JobLife] = []
    if options.chained:
        lives.append(ChainLife(simulation, "chains1", random, options.chained))
    if options.ranged:
        lives.append(RangesLife(simulation, "ranges1", random, options.ranged))
    return lives
