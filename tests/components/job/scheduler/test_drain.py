"""A job that is drained: what is at a worker runs to its end, nothing else is begun."""

from __future__ import annotations

from gspc_trio.components.job.scheduler.interface import Stop, Stopped, TaskDone
from gspc_trio.components.worker.messages import Cancel
from gspc_trio.core.task import DEFAULT_OPTIONS, Reason, TaskError, TaskOptions
from tests.components.job.scheduler.support import (
    CANCELLED,
    FINISHED,
    World,
    bad,
    cancel,
    done,
    ended,
    finished,
    grant,
    ok,
    ready,
    release,
)


def running(options: TaskOptions = DEFAULT_OPTIONS) -> World:
    """Task 1 runs, tasks 2 and 3 wait."""
    world = World()
    world(ready(1, 2, 3, options=options))
    world(grant(1))
    return world


def test_what_runs_ends_and_what_waits_is_cancelled() -> None:
    world = running()
    begun = world.do(Stop("enough", drain=True))
    assert [action.task_id for action in begun if isinstance(action, TaskDone)] == [2, 3]
    assert not any(isinstance(action, Cancel | Stopped) for action in begun)
    assert world.do(finished(1, ok(1))) == [done(1, FINISHED, ok(1), 1), release(1), Stopped()]


def test_what_fails_meanwhile_is_not_tried_again() -> None:
    world = running(TaskOptions(attempts=5))
    world(Stop("enough", drain=True))
    last = world.do(finished(1, bad(1)))
    assert [action.state for action in last if isinstance(action, TaskDone)] == [CANCELLED]
    assert last[-1] == Stopped()


def test_what_is_lost_meanwhile_is_not_tried_again() -> None:
    world = running()
    world(Stop("enough", drain=True))
    last = world.do(finished(1, ended(1, Reason.LOST, error=TaskError("lost", "gone"))))
    assert [action.state for action in last if isinstance(action, TaskDone)] == [CANCELLED]
    assert last[-1] == Stopped()


def test_a_stop_after_a_drain_cancels_what_runs() -> None:
    world = running()
    world(Stop("enough", drain=True))
    assert world.do(Stop("now")) == [cancel(1, (1, 1))]
    assert world.do(Stop("slowly", drain=True)) == []
    last = world.do(finished(1, ended(1, Reason.CANCELLED)))
    assert last[-1] == Stopped()


def test_what_comes_after_is_cancelled() -> None:
    world = running()
    world(Stop("enough", drain=True))
    states = [action.state for action in world.do(ready(9)) if isinstance(action, TaskDone)]
    assert states == [CANCELLED]
