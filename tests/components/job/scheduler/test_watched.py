"""Records of single tasks are made only while somebody reads them."""

from gspc_trio.components.job.scheduler.interface import Watched
from gspc_trio.core.task import TaskState
from gspc_trio.records.facts import TaskChanged, TaskCounts
from tests.components.job.scheduler.support import (
    FAILED,
    FINISHED,
    JOB,
    RUNNING,
    World,
    bad,
    changed,
    finished,
    grant,
    ok,
    ready,
)


def test_who_watches_late_is_told_what_there_is_and_nobody_is_told_of_each_task_otherwise() -> None:
    world = World(1)
    assert world(Watched(False)) == [TaskCounts(0.0, JOB, dict.fromkeys(TaskState, 0))]
    actions = [*world(ready(1, 2, 3)), *world(grant(1), 1.0), *world(finished(1, ok(1, 1, 0.5)), 2.0)]
    actions += world(finished(1, bad(2)), 3.0)
    assert not [action for action in actions if isinstance(action, TaskChanged | TaskCounts)]
    counts, *named = world(Watched(True), 4.0)
    finished_only = {state: int(state is FINISHED) for state in TaskState}
    lately = (changed(2.0, 1, FINISHED, 1, 1, duration_s=0.5),)
    assert counts == TaskCounts(4.0, JOB, finished_only, 0.5, 0.0, ((2, 1),), lately)
    assert [(record.task_id, record.state) for record in named] == [(2, FAILED), (3, RUNNING)]
    assert named[0].detail == "ValueError: boom"
    assert world(Watched(True)) == []
