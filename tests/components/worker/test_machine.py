"""The worker's machine: each test compares whole action lists (WRK-1, WRK-5)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gspc_trio.components.worker.events import (
    Aborted,
    Assign,
    Computed,
    ComputeKilled,
    ComputeLost,
    ComputeOpening,
    ComputeReady,
    EndWork,
    ForgetCompute,
    Kill,
    Retract,
    Retracted,
    StagedIn,
    StagedOut,
    StagingFailed,
    WorkerStopped,
)
from gspc_trio.components.worker.machine import QUEUE_ITEMS_MAX
from gspc_trio.components.worker.messages import Cancel, Finished, TakeBack
from gspc_trio.components.worker.verdict import CANCELLED, NOT_MADE, TAKEN_BACK
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.task import Reason, TaskError, TaskOptions
from gspc_trio.records.facts import WorkerChanged
from tests.components.worker.support import (
    IN,
    Bench,
    R,
    busy,
    compute,
    ended,
    finished,
    idle,
    lost,
    ok,
    sub,
    submit,
    with_reason,
)


def test_plain_tasks_are_handed_ahead_in_order_and_reported_as_they_end(bench: Bench) -> None:
    assert bench.give(sub(1), sub(2)) == [busy(), compute(sub(1), sub(2))]
    assert bench.give(sub(3)) == [compute(sub(3))]
    assert bench(Computed((ok(1), ok(2)))) == [finished(ok(1), ok(2))]
    assert bench(Computed((ok(3),)), 5.0) == [finished(ok(3)), *idle(5.0)]


def test_a_submit_without_submissions_changes_nothing(bench: Bench) -> None:
    assert bench.give() == []
    assert not bench.worker.busy


def test_what_is_for_another_class_resource_or_job_is_refused(bench: Bench) -> None:
    def refused(job: str, message: str) -> list[Any]:
        outcome = with_reason(1, Reason.RETURNED, "refused", message)
        return [Finished(job, R, (outcome,))]

    assert bench.give(sub(1), resource_class="gpu") == refused(
        "j1", "r1.core0 is a core, but the tasks are for a gpu"
    )
    assert bench(Assign(submit(sub(1), resource_class="core"))) == [busy(), compute(sub(1))]
    why = "r1.core0 still works for job j1 under grant (1, 1)"
    assert bench.give(sub(1), job="j2", grant=(1, 2)) == refused("j2", why)
    assert bench.give(sub(1), grant=(1, 2)) == refused("j1", why)
    wrong = bench.give(sub(1), resources=("r1.core1",))
    assert wrong == [
        Finished(
            "j1",
            "r1.core1",
            (with_reason(1, Reason.RETURNED, "refused", "r1.core0 was given tasks for r1.core1"),),
        )
    ]


def test_more_than_the_queue_holds_is_refused(bench: Bench) -> None:
    bench.give(*(sub(n) for n in range(QUEUE_ITEMS_MAX)))
    [answer] = bench.give(sub(QUEUE_ITEMS_MAX))
    assert answer.outcomes[0].error == TaskError("refused", "r1.core0 takes at most 16384 tasks at one time")
    bench(Computed((ok(0),)))
    assert bench.give(sub(QUEUE_ITEMS_MAX)) == [compute(sub(QUEUE_ITEMS_MAX))]


def test_cancel_of_the_task_in_compute_kills_and_hands_the_rest_to_the_replacement(bench: Bench) -> None:
    bench.give(sub(1), sub(2))
    assert bench(Cancel("j1", R, ((1, 1),))) == [Kill(R, "j1")]
    assert bench.give(sub(3)) == []
    assert bench(ComputeKilled(), 2.0) == [finished(ended(1, CANCELLED, 2.0)), compute(sub(2), sub(3))]


def test_a_result_that_came_before_the_kill_counts(bench: Bench) -> None:
    bench.give(sub(1), sub(2))
    bench(Cancel("j1", R, ((1, 1),)))
    assert bench(Computed((ok(1),))) == [finished(ok(1))]
    assert bench(ComputeKilled()) == [compute(sub(2))]


def test_cancel_of_a_queued_task_takes_back_and_hands_over_the_rest_again(bench: Bench) -> None:
    bench.give(sub(1), sub(2), sub(3))
    assert bench(Cancel("j1", R, ((2, 1),))) == [Retract(R, "j1")]
    assert bench(Cancel("j1", R, ((9, 1),))) == []
    assert bench(Retracted(((2, 1), (3, 1)))) == [finished(ended(2, CANCELLED)), compute(sub(3))]


def test_a_cancelled_task_that_was_read_ahead_is_killed_when_its_turn_comes(bench: Bench) -> None:
    bench.give(sub(1), sub(2), sub(3))
    bench(Cancel("j1", R, ((2, 1),)))
    assert bench(Retracted(((3, 1),))) == [compute(sub(3))]
    assert bench(Computed((ok(1),)), 1.0) == [finished(ok(1)), Kill(R, "j1")]
    assert bench(ComputeKilled(), 1.5) == [finished(ended(2, CANCELLED, 0.5)), compute(sub(3))]


def test_take_back_returns_what_has_not_begun(bench: Bench) -> None:
    bench.give(sub(1), sub(2), sub(3), sub(4, IN), sub(5))
    everything = tuple((n, 1) for n in range(1, 6))
    assert bench(TakeBack("j1", R, everything)) == [finished(ended(5, TAKEN_BACK)), Retract(R, "j1")]
    assert bench(Retracted(((3, 1),))) == [finished(ended(3, TAKEN_BACK))]
    # The second had been read by the compute process already: it stays.
    assert bench(Computed((ok(1), ok(2)))) == [finished(ok(1), ok(2))]


def test_take_back_during_a_kill_returns_what_is_left(bench: Bench) -> None:
    bench.give(sub(1), sub(2), sub(3))
    bench(Cancel("j1", R, ((1, 1),)))
    assert bench(TakeBack("j1", R, ((2, 1),))) == []
    assert bench(ComputeKilled()) == [finished(ended(1, CANCELLED), ended(2, TAKEN_BACK)), compute(sub(3))]


def test_a_lost_compute_process_counts_for_the_task_in_compute_alone(bench: Bench) -> None:
    bench.give(sub(1), sub(2), sub(3))
    record = WorkerChanged(4.0, R, "lost", "j1", detail="killed by signal 9")
    assert bench(ComputeLost("killed by signal 9"), 4.0) == [
        finished(lost(1, "killed by signal 9", 4.0)), record, ForgetCompute(R, "j1"), compute(sub(2), sub(3)),
    ]  # fmt: skip


def test_what_an_attempt_has_printed_is_reported_when_its_process_dies_or_is_killed(bench: Bench) -> None:
    said = (b"so far", b"so bad")
    bench.give(sub(1), sub(2), sub(3))
    [first, *_] = bench(ComputeLost("gone", printed=said))
    bench(Cancel("j1", R, ((2, 1),)))
    [second, *_] = bench(ComputeKilled(said))
    assert [(it.task_id, it.reason, it.stdout, it.stderr) for it in first.outcomes + second.outcomes] == [
        (1, Reason.LOST, *said), (2, Reason.CANCELLED, *said),
    ]  # fmt: skip


def test_what_is_being_taken_back_was_not_lost(bench: Bench) -> None:
    bench.give(sub(1), sub(2), sub(3))
    bench(TakeBack("j1", R, ((3, 1),)))
    assert bench(ComputeLost("gone")) == []
    record = WorkerChanged(1.0, R, "lost", "j1", detail="gone")
    assert bench(Retracted(((1, 1), (2, 1), (3, 1))), 1.0) == [
        finished(ended(3, TAKEN_BACK)), compute(sub(1), sub(2)),
    ]  # fmt: skip
    assert bench(ComputeLost("gone"), 1.0) == [
        finished(lost(1, "gone")),
        record,
        ForgetCompute(R, "j1"),
        compute(sub(2)),
    ]


def test_a_loss_without_tasks_in_compute_is_nobodys_loss(bench: Bench) -> None:
    assert bench(ComputeLost("gone")) == []
    bench.give(sub(1))
    bench(Cancel("j1", R, ((1, 1),)))
    assert bench(ComputeLost("gone")) == []
    assert bench(ComputeKilled()) == [finished(ended(1, CANCELLED)), *idle()]


def test_timeout_runs_from_when_the_task_became_the_one_in_compute(bench: Bench) -> None:
    hurried = sub(2, TaskOptions(timeout_s=3.0))
    bench.give(sub(1), hurried, sub(3))
    assert bench.worker.deadline() is None
    bench(Computed((ok(1),)), 10.0)
    assert bench.worker.deadline() == 13.0
    bench(ComputeOpening(), 10.0)
    assert bench.worker.deadline() is None
    bench(ComputeReady(), 11.0)
    assert bench.worker.deadline() == 14.0
    assert bench(Tick(), 13.9) == []
    assert bench(Tick(), 14.0) == [Kill(R, "j1")]
    assert bench.worker.deadline() is None
    error = "it ran longer than its timeout of 3 s"
    assert bench(ComputeKilled(), 14.5) == [
        finished(with_reason(2, Reason.FAILED, "timeout", error, 3.5)), compute(sub(3)),
    ]  # fmt: skip


def test_removal_of_an_idle_worker_stops_it_at_once_and_only_once(bench: Bench) -> None:
    stopped = [WorkerChanged(0.0, R, "stopped"), WorkerStopped(R)]
    assert bench(EndWork(Reason.LOST, "removed", close=True)) == stopped
    assert bench(EndWork(Reason.LOST, "removed", close=True)) == []


@pytest.mark.parametrize(
    "event",
    [
        "no event",
        Assign(submit(sub(1))),
        Assign(submit(sub(8), sub(8))),
        Computed((ok(2),)),
        Computed((ok(1), ok(2), ok(3))),
        ComputeKilled(),
        Retracted(((2, 1),)),
        StagedIn((1, 1)),
        StagedOut((3, 1)),
        Aborted((3, 1)),
        StagingFailed((2, 1), TaskError("x", "y")),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_is_impossible_raises_and_changes_nothing(bench: Bench, event: Any) -> None:
    bench.give(sub(1), sub(2), sub(3, IN))
    with pytest.raises(IllegalEvent):
        bench(event)
    bench.worker.check()
    assert bench(StagedIn((3, 1))) == []
    assert bench(Computed((ok(1), ok(2)))) == [finished(ok(1), ok(2)), compute(sub(3, IN))]


def test_what_is_taken_back_was_handed_over_in_that_order(bench: Bench) -> None:
    bench.give(sub(1), sub(2), sub(3))
    bench(TakeBack("j1", R, ((3, 1),)))
    for keys in (((2, 1), (1, 1)), ((3, 1), (4, 1)), ((3, 1), (3, 1))):
        with pytest.raises(IllegalEvent):
            bench(Retracted(keys))
    assert bench(Retracted(((2, 1), (3, 1)))) == [finished(ended(3, TAKEN_BACK)), compute(sub(2))]


def test_the_compute_process_may_read_one_from_between_what_is_taken_back(bench: Bench) -> None:
    timed = TaskOptions(timeout_s=5.0)
    bench.give(sub(1, timed), sub(2, timed), sub(3))
    bench(TakeBack("j1", R, ((3, 1),)), 1.0)
    back = [finished(ended(3, TAKEN_BACK)), compute(sub(1, timed))]
    assert bench(Retracted(((1, 1), (3, 1))), 2.0) == back
    assert bench.worker.deadline() == 7.0, "the second is in compute, and has been only since now"
    assert bench(Computed((ok(2), ok(1))), 3.0) == [finished(ok(2), ok(1)), *idle(3.0)]


def test_a_task_whose_code_was_taken_back_before_it_is_given_back(bench: Bench) -> None:
    undefined = with_reason(2, Reason.RETURNED, "undefined code", "its code was taken back before it")
    bench.give(sub(1), sub(2), sub(3))
    bench(TakeBack("j1", R, ((3, 1),)))
    bench(Retracted(((1, 1), (3, 1))))
    assert bench(Computed((undefined, ok(1)))) == [finished(undefined, ok(1)), *idle()]


def test_a_cancelled_task_whose_code_was_taken_back_is_cancelled(bench: Bench) -> None:
    undefined = with_reason(1, Reason.RETURNED, "undefined code", "its code was taken back before it")
    bench.give(sub(1))
    bench(Cancel("j1", R, ((1, 1),)))
    assert bench(Computed((undefined,))) == [finished(ended(1, CANCELLED))]


def test_what_was_sent_ahead_is_not_charged_with_a_loss_on_its_way_back(bench: Bench) -> None:
    behind = replace(sub(2), after=(1, 1))
    bench.give(sub(1), behind, fate=False)
    failed = with_reason(1, Reason.FAILED, "E", "no")
    assert bench(Computed((failed,))) == [finished(failed)]
    actions = bench(ComputeLost("gone"))
    assert finished(ended(2, NOT_MADE)) in actions
