"""The life of a job in a simulation: it runs again until it has not been disturbed too much to finish."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

import trio

from gspc_trio.components.job.engine_wrapper import Engine
from gspc_trio.components.job.result import JobFailed, JobResult, RtsLost
from gspc_trio.components.job.shell.journal_files import JournalError
from gspc_trio.components.job.shell.settings import RESUME_GRACE_S
from gspc_trio.iml.errors import ImlError, LayerGone
from gspc_trio.nursery.connections.rpc import PeerGone
from gspc_trio.nursery.scopes.scope import leaves
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.checkers.durable import Durable
from gspc_trio.testing.checkers.tasks import check_items
from gspc_trio.testing.cluster import Cluster
from gspc_trio.testing.fault_injection import FaultInjector
from gspc_trio.testing.layer.life import LayerLife
from gspc_trio.testing.observer import Observer, WatchedEngine
from gspc_trio.testing.simulated.disk import SimulatedDisk
from gspc_trio.testing.simulated.process import SimulatedProcess
from gspc_trio.testing.workload import (
    HASTY_TASK_SETTINGS,
    Workload,
    crowd,
    crowd_again,
    in_order,
    is_welcome,
)
from gspc_trio.workflow.net import Net

AGAIN_S = 0.2
"""Pause before a job server is started again."""

LATE_S = (AGAIN_S, AGAIN_S, AGAIN_S, AGAIN_S, 5.0, 2 * RESUME_GRACE_S)
"""The same for one with a journal: before or after its work has been given up."""

FILE_BYTES = (500, 5_000, 64 * 2**20)
"""When journals begin a new file; the last is the usual one."""


class JobSurroundings(Protocol):
    """What the life of a job needs of the simulation of which it is part."""

    cluster: Cluster
    injector: FaultInjector
    observer: Observer
    rts_ended: trio.Event

    def fail(self, error: BaseException) -> None:
        """End the simulation with an error."""
        ...


class JobLife:
    """One job.

    Args:
        simulation: of which it is part.
        name: of the job.
        workload: what it computes.
        random: to draw from.
        journaled: whether it has a journal.
        layers: memory layers for large values; one with a journal keeps none there.
        settings: of the job.

    Attributes:
        disk: where its journal is, or None.
        layers: where its large values are, or None.
    """

    def __init__(
        self,
        simulation: JobSurroundings,
        name: str,
        workload: Workload,
        random: Random,
        *,
        journaled: bool,
        layers: LayerLife | None = None,
        **settings: Any,
    ) -> None:
        self._settings = settings
        self._simulation = simulation
        self._random = random
        self.name = name
        self._net: Net | Callable[[], Any] = workload.net()
        self._expected = workload.results()
        self._runs_once = any(not settings.get("may_rerun", True) for settings in workload.settings)
        self._durable: Durable | None = None
        self.disk: SimulatedDisk | None = None
        self.layers: LayerLife | None = None if journaled else layers
        if journaled:
            self.disk = SimulatedDisk(f"the disk of {name}", random, random.choice(FILE_BYTES))
            self.disk.on_read = self._look_at_journal
            self._durable = Durable(name, workload.net(), random, self.disk.durable_journal)

    async def run(self) -> None:
        """Run it, again until it has finished."""
        simulation, disk = self._simulation, self.disk
        while True:
            rts_ended = simulation.rts_ended
            was_full = disk.was_full if disk is not None else 0
            data: dict[str, object] = {}
            if self.layers is not None:
                data = {"data": await self.layers.settled()}
            settings = {**data, **self._settings}
            job = simulation.cluster.start_job(self.name, self._net, wrap=self._watch, disk=disk, **settings)
            await job.process.ended.wait()
            self._glance_at_journal()
            result = job.result
            if result is not None and self._has_ended(result):
                return
            # One that is killed while it says why its job failed does not come to say it.
            disturbed = job.process.killed or job.process in simulation.injector.stopped or rts_ended.is_set()
            disturbed = disturbed or job.parted
            disturbed = disturbed or (self.layers is not None and self.layers.world.layer is not data["data"])
            small = self.layers is not None and self.layers.world.is_small
            disturbed = disturbed or (small and _had_no_room(result))
            disturbed = disturbed or (disk is not None and disk.was_full > was_full)
            # What may not run again cannot make its data again.
            disturbed = disturbed or (self._runs_once and bool(job.forgotten or _lost_its_data(result)))
            if result is not None and not disturbed and not is_explained(result, job.process.error):
                simulation.fail(Broken(f"{self.name} {result.state}: {result.detail} {result.failures}"))
            await trio.sleep(AGAIN_S if disk is None else self._random.choice(LATE_S))

    def _has_ended(self, result: JobResult) -> bool:
        """Whether it has ended as it must; what it must not is broken."""
        if result.state != "finished":
            return False
        outputs = {port: in_order(tokens) for port, tokens in result.outputs.items()}
        if outputs != self._expected:
            self._simulation.fail(Broken(f"{self.name} has other results than a plain loop"))
        return True

    def _look_at_journal(self, data: bytes) -> None:
        """A job server is about to go on with what an earlier one has left."""
        assert self._durable is not None
        try:
            self._durable.look(data)
        except Exception as error:
            self._simulation.fail(error)
            raise

    def _glance_at_journal(self) -> None:
        """A job server is over."""
        try:
            if self._durable is not None:
                self._durable.glance()
        except Exception as error:
            self._simulation.fail(error)

    def _watch(self, process: SimulatedProcess, engine: Engine) -> WatchedEngine:
        return self._simulation.observer.watch(process, engine, self._durable)


class DoomedLife(JobLife):
    """A job that must fail: its task asks for what is nowhere, or always fails.

    Args:
        simulation: of which it is part.
        name: of the job.
        hopeless: whether its task asks for what is nowhere.
        random: to draw from.
    """

    def __init__(self, simulation: JobSurroundings, name: str, hopeless: bool, random: Random) -> None:
        workload = Workload.doomed(random, hopeless)
        keep_going = random.random() < 0.5
        super().__init__(simulation, name, workload, random, journaled=False, keep_going=keep_going)
        self._kind = "refused" if hopeless else "ValueError"

    def _has_ended(self, result: JobResult) -> bool:
        if result.state == "finished":
            self._simulation.fail(Broken(f"{self.name} has finished, and must fail"))
            return True
        kinds = [failure.outcome.error.kind for failure in result.failures if failure.outcome.error]
        return result.state == "failed" and self._kind in kinds


class HastyLife(JobLife):
    """A job that does not wait for what is not there: it may be refused, and ends with that.

    Args:
        simulation: of which it is part.
        name: of the job.
        random: to draw from.
        tasks: about how many it has.
    """

    def __init__(self, simulation: JobSurroundings, name: str, random: Random, tasks: int) -> None:
        workload = Workload.make(random, tasks, HASTY_TASK_SETTINGS, stages_max=3)
        super().__init__(simulation, name, workload, random, journaled=False)

    def _has_ended(self, result: JobResult) -> bool:
        kinds = [failure.outcome.error.kind for failure in result.failures if failure.outcome.error]
        return super()._has_ended(result) or (result.state == "failed" and "refused" in kinds)


def _lost_its_data(result: JobResult | None) -> bool:
    """Whether what had only one attempt missed data, or could not leave its own anywhere."""
    failures = result.failures if result is not None else ()
    kinds = {failure.outcome.error.kind for failure in failures if failure.outcome.error}
    return bool(kinds) and kinds <= {"unknown", "staging", "DataLost", "LayerGone"}


def _had_no_room(result: JobResult | None) -> bool:
    """Whether others had taken all the memory of a host, that of a task or that of the job itself."""
    first = result.failures[0].outcome.error if result is not None and result.failures else None
    message = first.message if first is not None else result.detail if result is not None else ""
    return "no room" in message


def is_explained(result: JobResult, error: BaseException | None) -> bool:
    """Whether faults explain why a job failed: its run-time system went, or a task that may not run again."""
    if error is not None and any(isinstance(leaf, RtsLost) for leaf in leaves(error)):
        return True
    # The first failure ends a job; what fails while it is being ended gets no other attempt.
    first = result.failures[0].outcome.error if result.failures else None
    return first is not None and first.kind == "unknown"


def is_expected(error: BaseException, *, disk_was_full: bool, is_server: bool) -> bool:
    """Whether a process may end with this error when faults happen.

    A memory server says with any error of the layer why it did not start; who has started it is told.
    """
    allowed: tuple[type[BaseException], ...] = (OSError, PeerGone, JobFailed, trio.Cancelled, LayerGone)
    if disk_was_full:
        allowed = (*allowed, JournalError)
    if is_server:
        allowed = (*allowed, ImlError)
    return all(isinstance(leaf, allowed) for leaf in leaves(error))


TWO_STAGES = 0.5
"""So many of the farms of many items have another one behind them."""


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
