"""Farms of many short items in a simulation: their ranges end early, are lost or cancelled."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from gspc_trio.components.job.engine_wrapper import Engine
from gspc_trio.components.job.shell.handle import JobResult
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.checkers.items import check_items
from gspc_trio.testing.job_life import JobLife, JobSurroundings
from gspc_trio.testing.options import Options
from gspc_trio.testing.simulated.chains import ChainLife
from gspc_trio.testing.simulated.process import SimulatedProcess
from gspc_trio.testing.workload import Workload, crowd, crowd_again, is_welcome
from gspc_trio.workflow.net import Net

RANGED_EVERY = 3
"""Each so manieth seed has such a farm."""

TWO_STAGES = 0.5
"""So many of the farms have another one behind them."""


def farms(count: int, *, two: bool) -> Net:
    """Return a net with a farm of so many items, or with two, one behind the other."""
    net = Net("crowd")
    items, results = net.input("items", range(count)), net.output("results")
    between = net.place("between") if two else results
    net.transition("first", crowd, [items], between, wait=True)
    if two:
        net.transition("second", crowd_again, [between], results, wait=True)
    return net


class RangesLife(JobLife):
    """A job whose items travel in ranges.

    Args:
        simulation: of which it is part.
        name: of the job.
        random: to draw from.
        items: how many it has.
    """

    def __init__(self, simulation: JobSurroundings, name: str, random: Random, items: int) -> None:
        work = Workload.make(random, 1)
        super().__init__(simulation, name, work, random, journaled=False, fate=False, keep_going=True)
        self._items, self._two = items, random.random() < TWO_STAGES
        self._net = farms(items, two=self._two)

    def _watch(self, _process: SimulatedProcess, engine: Engine) -> Any:
        """Return the engine as it is: a wrapped one has a task for each item."""
        return engine

    def _has_ended(self, result: JobResult) -> bool:
        if result.state == "stopped" or result.detail not in ("", "some tasks failed"):
            return False
        values = [crowd(value) for value in range(self._items) if is_welcome(value)]
        expected = Counter(map(crowd_again, values) if self._two else values)
        refused = self._items - len(values)
        kinds = Counter(failure.outcome.error.kind for failure in result.failures if failure.outcome.error)
        lost = sum(number for kind, number in kinds.items() if kind != "ValueError")
        excused = lost + result.tasks["cancelled"]
        tasks = self._items + (len(values) if self._two else 0)
        try:
            check_items(self.name, Counter(result.outputs["results"]), expected, excused)
            if not excused and (sum(result.tasks.values()), result.tasks["failed"]) != (tasks, refused):
                raise Broken(f"{self.name}: {result.tasks}, and there were {tasks} tasks, {refused} to fail")
        except Broken as error:  # it ends the simulation
            self._simulation.fail(error)
        return True


def more_lives(simulation: JobSurroundings, options: Options, random: Random) -> list[JobLife]:
    """Return the jobs that a run has besides: chains, or farms whose items travel in ranges."""
    lives: list[JobLife] = []
    if options.chained:
        lives.append(ChainLife(simulation, "chains1", random, options.chained))
    if options.ranged:
        lives.append(RangesLife(simulation, "ranges1", random, options.ranged))
    return lives
