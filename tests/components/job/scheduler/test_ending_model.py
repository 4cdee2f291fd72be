"""The scheduler with a host that ends at times which are said and said anew, and tasks that state theirs."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from gspc_trio.components.job.scheduler.ending import stated_s
from gspc_trio.components.job.scheduler.interface import ResourcesUp
from gspc_trio.components.worker.messages import Submit
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Shape, TaskOptions
from tests.components.job.scheduler.model import RESOURCES
from tests.components.job.scheduler.support import GANG
from tests.components.job.scheduler.test_stateful import SchedulerModel

SHAPES = (Shape(), Shape(estimate_s=1.0), Shape(estimate_s=4.0), GANG)
OPTIONS = (
    TaskOptions(),
    TaskOptions(attempts=2, timeout_s=0.5),
    TaskOptions(attempts=2, timeout_s=3.0),
    TaskOptions(estimate_s=1.5),
)


class EndingModel(SchedulerModel):
    """What the scheduler sends fits into the time that is left."""

    ends_at: float | None = None

    @rule(number=st.integers(1, 4), shape=st.sampled_from(SHAPES), options=st.sampled_from(OPTIONS))
    def become_ready_with_times(self, number: int, shape: Shape, options: TaskOptions) -> None:
        self.become_ready(number, shape, options)

    @rule(left_s=st.sampled_from([None, 0.0, 1.0, 2.0, 10.0]))
    def host_ends(self, left_s: float | None) -> None:
        self.ends_at = None if left_s is None else self.now + left_s
        resources = tuple(Resource(name, RESOURCES[name]) for name in sorted(self.up))
        self.handle(ResourcesUp(resources, self.ends_at))

    def check_submit(self, submit: Submit) -> None:
        super().check_submit(submit)
        ends_at = self.scheduler._state.ends.get("r1")
        for submission in submit.submissions:
            time_s = stated_s(self.tasks[submission.task_id])
            assert ends_at is None or self.now + (time_s or 0.0) <= ends_at

    def drain(self, going_on: Any) -> None:
        self.host_ends(None)
        super().drain(going_on)


EndingModel.TestCase.settings = settings(max_examples=25, stateful_step_count=50)
TestEndingModel = EndingModel.TestCase
