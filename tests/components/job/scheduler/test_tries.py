"""The number of an attempt as people are told it: what came back and had not begun is not counted."""

from __future__ import annotations

import pytest

from gspc_trio.components.job.scheduler.interface import ResourcesLost, Withheld
from gspc_trio.components.rm.messages import Lapsed, Recall
from gspc_trio.components.worker.verdict import CANCELLED, FATE, REFUSED, TAKEN_BACK, had_begun
from gspc_trio.core.machine import Tick
from gspc_trio.core.task import Outcome, Reason, TaskError, TaskOptions
from gspc_trio.records.facts import TaskChanged
from tests.components.job.scheduler.support import (
    FAILED,
    FINISHED,
    JOB,
    READY,
    RUNNING,
    SUBMITTED,
    World,
    bad,
    changed,
    core,
    done,
    ended,
    finished,
    grant,
    held,
    ok,
    ready,
    release,
    submit,
    take_back,
)

BACK = TAKEN_BACK.error


def test_what_is_taken_back_for_an_idle_worker_is_still_in_its_first_attempt() -> None:
    world = World(cores=2)
    world.measured(1e-4)
    world(ready(*range(1, 7)))
    assert world.do(grant(2)) == [take_back(1, (5, 1), (6, 1))]
    returned = finished(1, ended(5, Reason.RETURNED, 1, BACK), ended(6, Reason.RETURNED, 1, BACK))
    assert world(returned) == [
        changed(world.now, 5, READY, 0, 0, "taken back"),
        changed(world.now, 6, READY, 0, 0, "taken back"),
        submit(2, (5, 2), (6, 2)),
        changed(world.now, 5, RUNNING, 1, 2),
        changed(world.now, 6, SUBMITTED, 1, 2),
    ]
    assert world.scheduler.attempt_of(6) == (core(2), 2)
    named = [one for one in world.scheduler.glance(world.now, 9) if isinstance(one, TaskChanged)]
    assert {one.attempt for one in named} == {1}
    assert world(finished(2, ok(5, 2))) == [
        done(5, FINISHED, ok(5, 2), 2, given_back=1),
        changed(world.now, 5, FINISHED, 1, 2, duration_s=0.01),
        changed(world.now, 6, RUNNING, 1, 2),
    ]
    assert world.scheduler.attempt_of(5) is None


def test_what_is_taken_back_on_recall_is_still_in_its_first_attempt() -> None:
    world = World(cores=1)
    world.measured()
    world(ready(1, 2))
    assert world.do(Recall(JOB, ((1, 1),))) == [take_back(1, (2, 1))]
    back = world(finished(1, ended(2, Reason.RETURNED, 1, BACK)))
    assert changed(world.now, 2, READY, 0, 0, "taken back") in back
    assert world(finished(1, ok(1))) == [
        done(1, FINISHED, ok(1), 1),
        changed(world.now, 1, FINISHED, 1, 1, duration_s=0.01),
        release(1),
        held(world.now, 1, False),
    ]
    assert changed(world.now, 2, RUNNING, 1, 1) in world(grant(3, 1))


def test_a_failure_after_a_return_is_that_of_the_first_attempt() -> None:
    world = World(cores=1)
    world(ready(1, options=TaskOptions(attempts=2)))
    world(grant(1))
    world(finished(1, ended(1, Reason.RETURNED, 1, TaskError(REFUSED, "not ready"))), 1.0)
    world(Tick(), 2.0)
    assert world(finished(1, bad(1, 2)))[0] == changed(2.0, 1, READY, 1, 0, "ValueError: boom")
    world(Tick(), 20.0)
    assert world(finished(1, bad(1, 3))) == [
        done(1, FAILED, bad(1, 3), 1, given_back=1),
        changed(20.0, 1, FAILED, 2, 1, "ValueError: boom"),
    ]


@pytest.mark.parametrize("loss", [ResourcesLost((core(1),), "gone"), Lapsed(JOB, ((1, 1),), "gone")])
def test_what_comes_back_unsent_is_not_counted(loss: ResourcesLost | Lapsed) -> None:
    world = World(cores=2)
    world(ready(1))
    world(grant(1))
    world(Withheld((core(1),), 0))
    assert [one.attempt for one in world(loss) if isinstance(one, TaskChanged)] == [0]
    assert world(grant(2))[-2:] == [submit(2, (1, 2)), changed(0.0, 1, RUNNING, 1, 2)]


def test_what_fate_has_ended_had_begun() -> None:
    world = World(cores=1)
    world(ready(1))
    world(grant(1))
    fate = finished(1, ended(1, Reason.RETURNED, 1, TaskError(FATE, "another failed")))
    assert world(fate)[0] == changed(0.0, 1, READY, 1, 0, "returned: another failed")
    assert changed(0.0, 1, FINISHED, 2, 1, duration_s=0.01) in world(finished(1, ok(1, 2)))


@pytest.mark.parametrize(
    ("kind", "duration_s", "begun"),
    [
        (BACK.kind, 0.0, False),
        (REFUSED, 0.3, False),
        ("lost", 0.0, False),
        ("awaited", 0.0, False),
        ("awaited", 0.3, True),
        (FATE, 0.0, True),
        (CANCELLED.error.kind, 0.3, True),
    ],
)
def test_whether_what_came_back_had_begun(kind: str, duration_s: float, begun: bool) -> None:
    outcome = Outcome(1, 1, Reason.RETURNED, error=TaskError(kind, "why"), duration_s=duration_s)
    assert had_begun(outcome) is begun
