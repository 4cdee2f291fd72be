"""The scheduler between a resource manager and workers whose messages cross."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gspc_trio.components.job.scheduler.interface import (
    CancelTasks,
    ResourcesLost,
    ResourcesUp,
    Restored,
    RetryTask,
    Stop,
    Stopped,
    TaskDone,
    TasksReady,
    Watched,
)
from gspc_trio.components.rif.messages import Hold
from gspc_trio.components.rm.messages import Demand, Grant, Lapsed, Recall, Refuse, Release
from gspc_trio.components.worker.messages import Cancel, Finished, Submit, TakeBack
from gspc_trio.core.ids import GrantId
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Reason, Shape, Task, TaskOptions, TaskState, TaskVariants
from gspc_trio.policies.scheduling import USUAL
from gspc_trio.records.facts import GrantChanged, QueueChanged, TaskChanged, TaskCounts
from gspc_trio.records.progress import Progress
from tests.components.job.scheduler.model import (
    CLASS_OF_CODE,
    GPU,
    NODE,
    OPTIONS,
    RESOURCES,
    SHAPES,
    VARIANTS,
    Host,
    Manager,
)
from tests.components.job.scheduler.support import GANG, JOB, singly


class SchedulerModel(RuleBasedStateMachine):
    """Each step lets one message through on one connection, or something happen at one end."""

    POLICY = USUAL

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = self.POLICY.scheduler(JOB)
        self.now = 0.0
        self.manager, self.host = Manager(), Host()
        self.to_manager: deque[Any] = deque()
        self.from_manager: deque[Any] = deque()
        self.to_host: deque[Any] = deque()
        self.from_host: deque[Any] = deque()
        self.tasks: dict[int, Task] = {}
        self.live: set[int] = set()
        self.failed: set[int] = set()
        self.states: dict[int, TaskState] = {}
        self.progress = Progress()
        self.watched = self.always_watched = True
        self.held: dict[GrantId, tuple[str, ...]] = {}
        self.recalled: set[GrantId] = set()
        self.up: set[str] = set()
        self.stopping = self.stopped = False
        self.handle(ResourcesUp(tuple(Resource(*item) for item in RESOURCES.items())))

    # The scheduler and its surroundings

    def handle(self, event: Any) -> None:
        if isinstance(event, Grant):
            self.held[event.grant_id] = event.resources
        elif isinstance(event, Recall):
            self.recalled.update(event.grant_ids)
        elif isinstance(event, ResourcesUp):
            self.up.update(resource.resource_id for resource in event.resources)
        elif isinstance(event, ResourcesLost):
            self.up.difference_update(event.resource_ids)
        elif isinstance(event, Lapsed):
            for grant_id in event.grant_ids:
                self.held.pop(grant_id, None)
        for action in singly(self.scheduler.handle(event, self.now)):
            self.perform(action)
        self.scheduler.check()

    def perform(self, action: Any) -> None:
        if isinstance(action, TaskDone):
            self.live.remove(action.task_id)
            if action.state is TaskState.FAILED:
                self.failed.add(action.task_id)
        elif isinstance(action, TaskCounts):
            self.progress.apply(action)
        elif isinstance(action, TaskChanged):
            assert self.watched, "nobody wants to know"
            self.states[action.task_id] = action.state
            self.progress.apply(action)
        elif isinstance(action, Release):
            del self.held[action.grant_id]
            self.to_manager.append(action)
        elif isinstance(action, Demand):
            self.to_manager.append(action)
        elif isinstance(action, Submit):
            self.check_submit(action)
            self.to_host.append(action)
        elif isinstance(action, Cancel | TakeBack | Hold):
            self.to_host.append(action)
        elif isinstance(action, Stopped):
            assert not self.stopped
            assert not self.live
            assert not self.held
            self.stopped = True
        elif not isinstance(action, QueueChanged):
            assert isinstance(action, GrantChanged)
            self.progress.apply(action)

    def check_submit(self, submit: Submit) -> None:
        assert not self.stopping
        assert self.held[submit.grant_id] == submit.resources
        assert submit.grant_id not in self.recalled
        assert self.up.issuperset(submit.resources)
        for submission in submit.submissions:
            assert submission.task_id in self.live
            if self.tasks[submission.task_id].variants is None:
                needs = [one.resource_class for one in self.tasks[submission.task_id].shape.requirements]
                assert needs == [RESOURCES[name] for name in submit.resources], "it needs something else"
            if self.tasks[submission.task_id].variants is not None:
                wanted = CLASS_OF_CODE.get(submission.code_id, "core")
                assert RESOURCES[submit.resources[0]] == wanted, "a variant runs on another class"
                assert submission.arguments == ((b"first",) if submission.code_id == 1 else ())
        alone = len(submit.resources) > 1 or not all(s.options.may_rerun for s in submit.submissions)
        assert not alone or len(submit.submissions) == 1

    @rule()
    def others_watch(self) -> None:
        """Whoever watches, at any time, sees what there is."""
        self.watched = not self.watched
        self.always_watched = False
        self.handle(Watched(self.watched))

    # What the job does

    @rule(
        number=st.integers(1, 12),
        shape=st.sampled_from(SHAPES),
        options=st.sampled_from(OPTIONS),
        variants=st.sampled_from(VARIANTS),
    )
    def become_ready(
        self, number: int, shape: Shape, options: TaskOptions, variants: TaskVariants | None = None
    ) -> None:
        first = len(self.tasks) + 1
        shape, code_id = (shape, 1) if variants is None else (variants.ways[0].shape, 2)
        tasks = tuple(
            Task(n, "t", code_id, (), shape, options, 0, variants) for n in range(first, first + number)
        )
        self.tasks.update((task.task_id, task) for task in tasks)
        self.live.update(task.task_id for task in tasks)
        self.handle(TasksReady(tasks))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.handle(CancelTasks(tuple(data.draw(st.sets(st.sampled_from(sorted(self.tasks)), max_size=5)))))

    @precondition(lambda self: self.failed)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.failed)))
        self.failed.remove(task_id)
        self.live.add(task_id)
        self.host.began[task_id] = 0
        self.handle(RetryTask(task_id))

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.1, 1.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.handle(Tick())

    @precondition(lambda self: len(self.tasks) > 30)
    @rule()
    def stop(self) -> None:
        self.stopping = True
        self.handle(Stop("enough"))

    # What the resource manager does

    @rule(number=st.integers(1, 4))
    def to_manager_passes(self, number: int) -> None:
        for _ in range(min(number, len(self.to_manager))):
            self.manager.take(self.to_manager.popleft())

    @rule(number=st.integers(1, 4))
    def from_manager_passes(self, number: int) -> None:
        for _ in range(min(number, len(self.from_manager))):
            self.handle(self.from_manager.popleft())

    @rule(number=st.integers(1, 4))
    def grant(self, number: int) -> None:
        for shape in [shape for shape, unmet in self.manager.unmet.items() if unmet][:number]:
            grant = self.manager.give(shape)
            if grant is not None:
                self.from_manager.append(grant)

    @precondition(lambda self: self.manager.held)
    @rule(data=st.data())
    def recall(self, data: st.DataObject) -> None:
        grant_id = data.draw(st.sampled_from(sorted(self.manager.held)))
        self.from_manager.append(Recall(JOB, (grant_id,)))

    @precondition(lambda self: self.manager.held)
    @rule(data=st.data())
    def lapse(self, data: st.DataObject) -> None:
        grant = self.manager.lapse(data.draw(st.sampled_from(sorted(self.manager.held))))
        self.host.kill(grant.resources)
        for name in grant.resources:
            self.host.fence[name] = max(self.host.fence[name], (1, grant.grant_id[1] + 1))
        self.manager.last += 1
        self.from_manager.append(Lapsed(JOB, (grant.grant_id,), "revoked"))

    @rule(shape=st.sampled_from([GANG, NODE, GPU]))
    def refuse(self, shape: Shape) -> None:
        if self.manager.unmet[shape]:
            self.manager.unmet[shape] = 0
            self.from_manager.append(Refuse(JOB, shape, "never"))

    # What the hosts do

    @rule(number=st.integers(1, 6))
    def to_host_passes(self, number: int) -> None:
        for _ in range(min(number, len(self.to_host))):
            message = self.to_host.popleft()
            outcomes = self.host.take(message)
            if outcomes:
                name = message.resources[0] if isinstance(message, Submit) else message.resource_id
                self.from_host.append(Finished(JOB, name, tuple(outcomes)))

    @rule(number=st.integers(1, 6))
    def from_host_passes(self, number: int) -> None:
        for _ in range(min(number, len(self.from_host))):
            self.handle(self.from_host.popleft())

    @rule(
        name=st.sampled_from(sorted(RESOURCES)),
        reasons=st.lists(
            st.sampled_from([Reason.FINISHED, Reason.FINISHED, Reason.FAILED, Reason.LOST]), max_size=6
        ),
        fate=st.booleans(),
    )
    def run(self, name: str, reasons: list[Reason], fate: bool) -> None:
        outcomes: list[Outcome] = []
        for reason in reasons:
            if self.host.queues[name]:
                outcomes += self.host.end_head(name, reason, fate and reason is Reason.FAILED)
        if outcomes:
            self.from_host.append(Finished(JOB, name, tuple(outcomes)))

    @rule(name=st.sampled_from(sorted(RESOURCES)))
    def data_is_missing(self, name: str) -> None:
        """What runs is given back until it is there; one that may not run again would not have begun."""
        queue = self.host.queues[name]
        if queue and self.tasks[queue[0][0]].options.may_rerun:
            self.from_host.append(
                Finished(JOB, name, tuple(self.host.end_head(name, Reason.RETURNED, False)))
            )

    @rule()
    def data_is_there_again(self) -> None:
        self.handle(Restored())

    @rule(name=st.sampled_from(sorted(RESOURCES)), lapses=st.booleans())
    def connection_breaks(self, name: str, lapses: bool) -> None:
        """Everything underway to and from the host is gone, for one resource that is not back at once."""
        self.from_host.clear()
        self.to_host.clear()
        self.host.kill(tuple(RESOURCES))
        self.handle(ResourcesLost(tuple(RESOURCES), "connection lost"))
        others = tuple(Resource(*item) for item in RESOURCES.items() if item[0] != name)
        if lapses:
            for grant_id in [g for g, grant in self.manager.held.items() if name in grant.resources]:
                self.manager.lapse(grant_id)
                self.from_manager.append(Lapsed(JOB, (grant_id,), "removed"))
        self.handle(ResourcesUp(others))
        self.from_manager.append(ResourcesUp((Resource(name, RESOURCES[name]),)))

    # What holds

    @invariant()
    def states_agree(self) -> None:
        status = self.scheduler.status()
        assert self.scheduler.live == len(self.live)
        if self.always_watched:
            assert Counter(self.states.values()) == Counter({state: n for state, n in status.items() if n})
        job = self.progress.jobs.get(JOB)
        if job is not None and self.watched:
            assert job.counts == status
            assert job.live.keys() == self.live
            assert job.held.keys() == self.scheduler._state.grants.keys()

    @invariant()
    def what_may_not_run_again_does_not(self) -> None:
        for task_id, times in self.host.began.items():
            assert self.tasks[task_id].options.may_rerun or times <= 1

    @invariant()
    def credit_is_conserved(self) -> None:
        if self.to_manager or self.from_manager:
            return
        told = {q.shape: q.told for q in self.scheduler._state.queues.values() if q.told}
        assert told == {shape: unmet for shape, unmet in self.manager.unmet.items() if unmet}
        assert set(self.held) == set(self.manager.held)

    # When faults stop, everything ends

    def teardown(self) -> None:
        self.drain(lambda: bool(self.live))
        self.stop()
        self.drain(lambda: not self.stopped)
        self.drain(lambda: bool(self.to_manager or self.from_manager))
        assert not self.manager.held
        assert self.manager.free == RESOURCES
        assert not any(self.manager.unmet.values())
        assert not any(self.host.queues.values())

    def drain(self, going_on: Any) -> None:
        for _ in range(3000):
            if not going_on():
                return
            self.to_manager_passes(100)
            self.grant(100)
            self.refuse(GPU)  # nobody waits for a class that is not there
            if any(self.manager.unmet.values()):
                self.from_manager.append(Recall(JOB, tuple(self.manager.held)))
            self.from_manager_passes(100)
            self.to_host_passes(100)
            for name in RESOURCES:
                self.run(name, [Reason.FINISHED] * 3, False)
            self.from_host_passes(100)
            self.tick(0.1)
        raise AssertionError(f"{self.live} never ended: {[self.scheduler.explain(n) for n in self.live]}")


SchedulerModel.TestCase.settings = settings(max_examples=50, stateful_step_count=60)
TestSchedulerModel = SchedulerModel.TestCase
