"""Chains of which parts are sent ahead: a job, workers and their processes, against a plain loop.

All machines are real. Messages between them are in order, and come when they come; processes are models.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gspc_trio.components.job.machine import Begin, JobMachine
from gspc_trio.components.job.scheduler.interface import (
    CancelTasks,
    ResourcesLost,
    ResourcesUp,
    Stop,
    TaskDone,
)
from gspc_trio.components.rm.messages import Demand, Grant, Lapsed, Recall, Release
from gspc_trio.components.worker.events import (
    Assign,
    Compute,
    Computed,
    ComputeKilled,
    ComputeLost,
    Kill,
    Retract,
    Retracted,
)
from gspc_trio.components.worker.machine import Worker
from gspc_trio.components.worker.messages import Cancel, Finished, Submission, Submit, TakeBack
from gspc_trio.components.worker.verdict import NOT_MADE
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, TO_COME, Outcome, Reason, TaskError, TaskOptions, TaskState
from gspc_trio.policies.scheduling import USUAL
from gspc_trio.workflow.graph import Ref, TaskGraph

JOB = "j1"
CORES = ("r1.core0", "r1.core1")
OPTIONS = TaskOptions(attempts=3, loss_attempts=50)


class Place:
    """A worker with its process, and what is on its way to it and from it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.worker = Worker(Resource(name, "core"))
        self.inbox: deque[Any] = deque()
        self.outbox: deque[Finished] = deque()
        self.answers: deque[Any] = deque()
        self.inside: list[Submission] = []
        self.last: tuple[tuple[int, int], bytes] | None = None

    def give(self, event: Any, now: float) -> None:
        actions = self.worker.handle(event, now)
        self.worker.check()
        for action in actions:
            if isinstance(action, Finished):
                self.outbox.append(action)
            elif isinstance(action, Compute):
                self.inside += action.submissions
            elif isinstance(action, Retract):
                back, self.inside = self.inside[1:], self.inside[:1]
                self.answers.append(Retracted(tuple((one.task_id, one.attempt) for one in back)))
            elif isinstance(action, Kill):
                self.inside, self.last = [], None
                self.answers.append(ComputeKilled())


class World:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.graph = TaskGraph()
        self.takes: dict[int, tuple[int | bytes, ...]] = {}
        scheduler = USUAL.scheduler(JOB, dependents=self.graph)
        self.job = JobMachine(JOB, "chains", self.graph, scheduler, True)
        self.places = {name: Place(name) for name in CORES}
        self.credit = 0
        self.granted: dict[tuple[int, int], str] = {}
        self.grants = 0
        self.ended: list[TaskDone] = []
        self.ahead = 0
        self.cancelled: set[int] = set()
        for _ in range(random.randint(1, 3)):
            last: int | bytes = b"%d" % random.randrange(100)
            for _ in range(random.randint(1, 12)):
                takes = (
                    last,
                    *([random.choice(list(self.takes))] if self.takes and not random.randrange(8) else ()),
                )
                last = self.add(*takes)
        self.tell(ResourcesUp(tuple(Resource(name, "core") for name in CORES)))
        self.tell(Begin())

    def add(self, *takes: int | bytes) -> int:
        arguments = [Ref(one) if isinstance(one, int) else one for one in takes]
        task_id = self.graph.add("link", 1, arguments, CORE, OPTIONS, keep=True)
        self.takes[task_id] = takes
        return task_id

    def tell(self, event: Any) -> None:
        actions = self.job.handle(event, self.now)
        self.job.check()
        self.graph.check()
        for action in actions:
            if isinstance(action, Demand):
                self.credit = action.credit
            elif isinstance(action, Release):
                del self.granted[action.grant_id]
            elif isinstance(action, TaskDone):
                self.ended.append(action)
            elif isinstance(action, Submit):
                self.ahead += sum(one.after is not None for one in action.submissions)
                self.places[action.resources[0]].inbox.append(Assign(action, False))
            elif isinstance(action, Cancel | TakeBack):
                self.places[action.resource_id].inbox.append(action)

    # What may happen

    def compute(self, place: Place) -> None:
        head, last = place.inside.pop(0), place.last
        place.last = None
        if head.after is not None and (last is None or head.after != last[0]):
            place.give(Computed((NOT_MADE.outcome_of(head),)), self.now)
            return
        made = b"" if last is None else last[1]
        values = [int(made if one == TO_COME else one) for one in head.arguments]
        key = head.task_id, head.attempt
        if self.random.random() < 0.1:
            outcome = Outcome(*key, Reason.FAILED, error=TaskError("ValueError", "boom"), duration_s=1e-6)
        else:
            place.last = key, b"%d" % (sum(values) + 1)
            outcome = Outcome(*key, Reason.FINISHED, ((place.last[1],),), started_s=1.0, duration_s=1e-6)
        place.give(Computed((outcome,)), self.now)

    def lose(self, place: Place) -> None:
        """Its process dies."""
        place.inside, place.last = [], None
        place.give(ComputeLost("gone"), self.now)

    def vanish(self, place: Place) -> None:
        """Its host is gone, and another one comes in its place."""
        self.places[place.name] = Place(place.name)
        self.tell(ResourcesLost((place.name,), "gone"))
        gone = tuple(grant_id for grant_id, name in self.granted.items() if name == place.name)
        self.tell(Lapsed(JOB, gone, "gone"))
        for grant_id in gone:
            self.granted.pop(grant_id, None)
        self.tell(ResourcesUp((Resource(place.name, "core"),)))

    def grant(self) -> None:
        free = [name for name in CORES if name not in self.granted.values()]
        if self.credit and free:
            self.credit -= 1
            self.grants += 1
            self.granted[1, self.grants] = free[0]
            self.tell(Grant(JOB, CORE, (1, self.grants), (free[0],)))

    def go_on(self, place: Place) -> bool:
        """Let the next thing happen at a place; return whether there was any."""
        if place.answers:
            place.give(place.answers.popleft(), self.now)
        elif place.inbox and (not place.inside or self.random.random() < 0.5):
            place.give(place.inbox.popleft(), self.now)
        elif place.inside:
            self.compute(place)
        elif place.outbox:
            self.tell(place.outbox.popleft())
        else:
            return False
        return True

    def disturb(self) -> None:
        place = self.random.choice(list(self.places.values()))
        draw = self.random.randrange(6)
        if draw == 0 and place.inside and not place.answers:
            self.lose(place)
        elif draw == 1:
            self.vanish(place)
        elif draw == 2 and self.granted:
            self.tell(Recall(JOB, (self.random.choice(list(self.granted)),)))
        elif draw == 3:
            task_id = self.random.choice(list(self.takes))
            if self.graph.state(task_id) is TaskState.SUBMITTED:  # as an executor does
                self.cancelled.add(task_id)
                self.tell(CancelTasks((task_id,)))
        elif draw == 4 and place.outbox:
            self.tell(place.outbox.popleft())
        else:
            self.now += 0.2
            self.tell(Tick())

    def run(self, disturbances: int) -> None:
        for _ in range(2_000):
            if self.job.ended is not None:
                return
            if disturbances and self.random.random() < 0.1:
                disturbances -= 1
                self.disturb()
            self.grant()
            if not any(self.go_on(place) for place in list(self.places.values())):
                self.now += 0.2
                self.tell(Tick())
        raise AssertionError("the job does not end")

    def check_end(self) -> None:
        """Each task has the result of a plain loop, or has failed, was cancelled, or takes what has none."""
        ids = [done.task_id for done in self.ended]
        assert sorted(ids) == sorted(self.takes), "each task ends once"
        for task_id, takes in self.takes.items():
            others = [one for one in takes if isinstance(one, int)]
            before = [ids.index(one) < ids.index(task_id) for one in others]
            state = self.graph.state(task_id)
            if state is TaskState.FINISHED:
                assert all(before), "a task ended before the one whose result it takes"
                results = [self.graph.result(one) if isinstance(one, int) else one for one in takes]
                assert self.graph.result(task_id) == b"%d" % (sum(int(one or 0) for one in results) + 1)
            elif state is TaskState.CANCELLED:
                assert task_id in self.cancelled
            elif all(self.graph.state(one) is TaskState.FINISHED for one in others):
                failures = [done for done in self.ended if done.task_id == task_id]
                assert failures[0].outcome.error is not None
                assert failures[0].outcome.error.kind == "ValueError", "it failed, and not by itself"
                assert failures[0].tries <= OPTIONS.attempts + 50


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), disturbances=st.sampled_from((0, 5, 30)))
def test_chains_end_as_a_plain_loop_says(seed: int, disturbances: int) -> None:
    world = World(Random(seed))
    world.run(disturbances)
    world.check_end()


def test_a_chain_is_sent_ahead_and_leaves_nothing_when_its_job_is_stopped() -> None:
    world = World(Random(3))
    for _ in range(20):
        world.add(world.graph.last_task_id)
    while world.ahead < 5:
        world.grant()
        for place in world.places.values():
            world.go_on(place)
    world.tell(Stop("it is enough"))
    world.run(0)
    assert world.job.scheduler.live == 0
    assert all(not place.worker.busy for place in world.places.values())
