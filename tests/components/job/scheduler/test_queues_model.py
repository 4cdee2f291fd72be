"""Queues of resources beside naive ones, while the messages of a scheduler cross."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from gspc_trio.components.job.scheduler.interface import TasksReady
from gspc_trio.components.worker.messages import Submit
from gspc_trio.core.ids import ResourceId
from gspc_trio.core.task import Requirement, Shape, Task, TaskOptions
from gspc_trio.policies.queues import Queues
from gspc_trio.policies.scheduling import SchedulingPolicy
from gspc_trio.records.facts import QueueChanged
from tests.components.job.scheduler.model import OPTIONS
from tests.components.job.scheduler.test_stateful import SchedulerModel

SOFT = Shape((Requirement("core", ("r1.core1",)),))
HARD = Shape((Requirement("core", ("r1.core2",), hard=True),))
EITHER = Shape((Requirement("core", ("r1.core0", "r1.core3"), hard=True),))


class QueuesModel(SchedulerModel):
    """The same surroundings, and tasks that want to be somewhere."""

    POLICY = SchedulingPolicy(assign=Queues())

    def __init__(self) -> None:
        self.lengths: Counter[ResourceId] = Counter()
        super().__init__()

    def perform(self, action: Any) -> None:
        if isinstance(action, QueueChanged):
            self.lengths[action.resource_id] = action.tasks
        super().perform(action)

    def check_submit(self, submit: Submit) -> None:
        super().check_submit(submit)
        for submission in submit.submissions:
            first = self.tasks[submission.task_id].shape.requirements[0]
            assert not first.hard or submit.resources[0] in first.preferences, "it may not run there"

    @rule(
        number=st.integers(1, 12),
        shape=st.sampled_from([SOFT, HARD, EITHER]),
        options=st.sampled_from(OPTIONS),
        estimate_s=st.sampled_from([None, 1e-4, 0.1, 30.0]),
        priority=st.integers(0, 1),
    )
    def become_targeted(
        self, number: int, shape: Shape, options: TaskOptions, estimate_s: float | None, priority: int
    ) -> None:
        """Tasks that name resources get ready; some say how long they take."""
        first = len(self.tasks) + 1
        options = TaskOptions(
            options.attempts,
            options.loss_attempts,
            may_rerun=options.may_rerun,
            stage_in=options.stage_in,
            estimate_s=estimate_s,
            priority=priority,
        )
        tasks = tuple(Task(n, "t", 1, (), shape, options) for n in range(first, first + number))
        self.tasks.update((task.task_id, task) for task in tasks)
        self.live.update(task.task_id for task in tasks)
        self.handle(TasksReady(tasks))

    @invariant()
    def lengths_are_told(self) -> None:
        """Whoever has watched from the beginning knows all queues."""
        if self.always_watched:
            waiting = Counter(
                entry.line.resource_id for entry in self.scheduler._state.tasks.values() if entry.line
            )
            assert +self.lengths == waiting


QueuesModel.TestCase.settings = settings(max_examples=25, stateful_step_count=50)
TestQueuesModel = QueuesModel.TestCase
