"""The worker's machine: each test compares whole action lists."""

from __future__ import annotations

from typing import Any

import pytest

from gspc_trio.core.exchange import Cancel, Finished, Submission, Submit, TakeBack
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.records import WorkerChanged
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Reason, TaskError, TaskOptions
from gspc_trio.core.verdict import CANCELLED, TAKEN_BACK
from gspc_trio.core.work import (
    Abort,
    Aborted,
    Assign,
    Compute,
    Computed,
    ComputeKilled,
    ComputeLost,
    ComputeReady,
    EndWork,
    Kill,
    Retract,
    Retracted,
    StagedIn,
    StagedOut,
    StageIn,
    StageOut,
    StagingFailed,
    WorkerIdle,
    WorkerStopped,
)
from gspc_trio.core.worker import QUEUE_ITEMS_MAX, Worker

R = "r1.core0"
GRANT = (1, 1)
IN = TaskOptions(stage_in=True)
OUT = TaskOptions(stage_out=True)
BOTH = TaskOptions(stage_in=True, stage_out=True)
ONCE = TaskOptions(may_rerun=False)


def sub(task_id: int, options: TaskOptions | None = None) -> Submission:
    return Submission(task_id, 1, 7, (), options or TaskOptions())


def submit(*submissions: Submission, job: str = "j1", grant: tuple[int, int] = GRANT, **more: Any) -> Submit:
    return Submit(job, grant, more.pop("resources", (R,)), submissions, **more)


def ok(task_id: int) -> Outcome:
    return Outcome(task_id, 1, Reason.FINISHED, ((b"v",),))


def ended(task_id: int, verdict: Any, duration_s: float = 0.0) -> Outcome:
    return verdict.outcome_of(sub(task_id), duration_s)


def with_reason(task_id: int, reason: Reason, kind: str, message: str, duration_s: float = 0.0) -> Outcome:
    return Outcome(task_id, 1, reason, error=TaskError(kind, message), duration_s=duration_s)


def finished(*outcomes: Outcome) -> Finished:
    return Finished("j1", R, outcomes)


def compute(*submissions: Submission) -> Compute:
    return Compute(R, "j1", submissions)


def busy(at_s: float = 0.0) -> WorkerChanged:
    return WorkerChanged(at_s, R, "busy", "j1")


def idle(at_s: float = 0.0) -> list[Any]:
    return [WorkerChanged(at_s, R, "idle"), WorkerIdle(R)]


class Bench:
    """A worker under test: checks its invariants after each event."""

    def __init__(self) -> None:
        self.worker = Worker(Resource(R, "core"))

    def __call__(self, event: Any, now: float = 0.0) -> list[Any]:
        actions = self.worker.handle(event, now)
        self.worker.check()
        return actions

    def give(self, *submissions: Submission, fate: bool = True, **more: Any) -> list[Any]:
        return self(Assign(submit(*submissions, **more), fate))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_plain_tasks_are_handed_ahead_in_order_and_reported_as_they_end(bench: Bench) -> None:
    assert bench.give(sub(1), sub(2)) == [busy(), compute(sub(1), sub(2))]
    assert bench.give(sub(3)) == [compute(sub(3))]
    assert bench(Computed((ok(1), ok(2)))) == [finished(ok(1), ok(2))]
    assert bench(Computed((ok(3),)), 5.0) == [finished(ok(3)), *idle(5.0)]


def test_a_submit_without_submissions_changes_nothing(bench: Bench) -> None:
    assert bench.give() == []
    assert not bench.worker.busy


def test_stage_in_compute_and_stage_out_of_three_tasks_overlap(bench: Bench) -> None:
    s1, s2, s3, s4 = (sub(n, BOTH) for n in (1, 2, 3, 4))
    assert bench.give(s1, s2, s3, s4) == [busy(), StageIn(R, "j1", s1)]
    assert bench(StagedIn((1, 1))) == [compute(s1), StageIn(R, "j1", s2)]
    assert bench(StagedIn((2, 1))) == []
    assert bench(Computed((ok(1),))) == [StageOut(R, "j1", s1, ok(1)), compute(s2), StageIn(R, "j1", s3)]
    assert [bench.worker.status((n, 1)) for n in (1, 2, 3, 4, 5)] == [
        "stage_out", "compute", "stage_in", "waiting", None,
    ]  # fmt: skip
    # The second waits with its result for stage-out, and nothing else computes meanwhile.
    assert bench(Computed((ok(2),))) == []
    assert bench.worker.status((2, 1)) == "compute"
    assert bench(StagedIn((3, 1))) == []
    assert bench(StagedOut((1, 1))) == [
        finished(ok(1)),
        StageOut(R, "j1", s2, ok(2)),
        compute(s3),
        StageIn(R, "j1", s4),
    ]
    assert bench(StagedOut((2, 1))) == [finished(ok(2))]
    assert bench(StagedIn((4, 1))) == []
    assert bench(Computed((ok(3),))) == [StageOut(R, "j1", s3, ok(3)), compute(s4)]
    assert bench(StagedOut((3, 1))) == [finished(ok(3))]
    assert bench(Computed((ok(4),))) == [StageOut(R, "j1", s4, ok(4))]
    assert bench(StagedOut((4, 1))) == [finished(ok(4)), *idle()]


def test_stage_in_goes_on_while_plain_tasks_compute_and_order_is_kept(bench: Bench) -> None:
    s2 = sub(2, IN)
    assert bench.give(sub(1), s2, sub(3)) == [busy(), compute(sub(1)), StageIn(R, "j1", s2)]
    assert bench(StagedIn((2, 1))) == []
    assert bench(Computed((ok(1),))) == [finished(ok(1)), compute(s2)]
    assert bench(Computed((ok(2),))) == [finished(ok(2)), compute(sub(3))]


def test_a_plain_task_computes_beside_the_stage_out_of_the_one_before(bench: Bench) -> None:
    s1 = sub(1, OUT)
    assert bench.give(s1, sub(2)) == [busy(), compute(s1)]
    assert bench(Computed((ok(1),))) == [StageOut(R, "j1", s1, ok(1)), compute(sub(2))]
    assert bench(Computed((ok(2),))) == [finished(ok(2))]
    assert bench(StagedOut((1, 1))) == [finished(ok(1)), *idle()]


def test_a_task_that_may_not_run_again_is_never_overlapped(bench: Bench) -> None:
    s2 = sub(2, TaskOptions(may_rerun=False, stage_out=True))
    s3 = sub(3, IN)
    assert bench.give(sub(1), s2, s3, sub(4)) == [busy(), compute(sub(1))]
    assert bench(Computed((ok(1),))) == [finished(ok(1)), compute(s2)]
    assert bench(Computed((ok(2),))) == [StageOut(R, "j1", s2, ok(2))]
    assert bench(StagedOut((2, 1))) == [finished(ok(2)), StageIn(R, "j1", s3)]
    assert bench(StagedIn((3, 1))) == [compute(s3)]


def test_a_plain_task_does_not_start_beside_the_stage_out_of_one_that_may_not_run_again(bench: Bench) -> None:
    s1 = sub(1, TaskOptions(may_rerun=False, stage_out=True))
    bench.give(s1, sub(2))
    assert bench(Computed((ok(1),))) == [StageOut(R, "j1", s1, ok(1))]
    assert bench(StagedOut((1, 1))) == [finished(ok(1)), compute(sub(2))]


def test_tasks_that_hold_several_resources_run_one_by_one(bench: Bench) -> None:
    both = (R, "r1.core1")
    assert bench.give(sub(1), sub(2), resources=both) == [busy(), compute(sub(1))]
    assert bench(Computed((ok(1),))) == [finished(ok(1)), compute(sub(2))]


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


def test_cancel_in_staging_aborts_and_in_the_queue_ends_at_once(bench: Bench) -> None:
    s2, s3 = sub(2, IN), sub(3, IN)
    bench.give(sub(1), s2, s3, fate=False)
    assert bench(Cancel("j1", R, ((3, 1), (2, 1)))) == [finished(ended(3, CANCELLED)), Abort(R, (2, 1))]
    assert bench(StagedIn((2, 1))) == []
    assert bench(Aborted((2, 1))) == [finished(ended(2, CANCELLED))]
    assert bench(Computed((ok(1),))) == [finished(ok(1)), *idle()]


def test_cancel_of_a_task_with_stage_out_is_not_undone_by_the_end_of_its_compute(bench: Bench) -> None:
    bench.give(sub(1, OUT))
    assert bench(Cancel("j1", R, ((1, 1),))) == [Kill(R, "j1")]
    assert bench(Computed((ok(1),))) == [finished(ended(1, CANCELLED))]
    assert bench(ComputeKilled()) == idle()


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


def lost(task_id: int, detail: str, duration_s: float = 0.0) -> Outcome:
    return with_reason(task_id, Reason.LOST, "lost", detail, duration_s)


def test_a_lost_compute_process_counts_for_the_task_in_compute_alone(bench: Bench) -> None:
    bench.give(sub(1), sub(2), sub(3))
    record = WorkerChanged(4.0, R, "lost", "j1", detail="killed by signal 9")
    assert bench(ComputeLost("killed by signal 9"), 4.0) == [
        finished(lost(1, "killed by signal 9", 4.0)), record, compute(sub(2), sub(3)),
    ]  # fmt: skip


def test_what_is_being_taken_back_was_not_lost(bench: Bench) -> None:
    bench.give(sub(1), sub(2), sub(3))
    bench(TakeBack("j1", R, ((3, 1),)))
    assert bench(ComputeLost("gone")) == []
    record = WorkerChanged(1.0, R, "lost", "j1", detail="gone")
    assert bench(Retracted(((1, 1), (2, 1), (3, 1))), 1.0) == [
        finished(ended(3, TAKEN_BACK)), compute(sub(1), sub(2)),
    ]  # fmt: skip
    assert bench(ComputeLost("gone"), 1.0) == [finished(lost(1, "gone")), record, compute(sub(2))]


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
    bench(ComputeReady(), 11.0)
    assert bench.worker.deadline() == 14.0
    assert bench(Tick(), 13.9) == []
    assert bench(Tick(), 14.0) == [Kill(R, "j1")]
    assert bench.worker.deadline() is None
    error = "it ran longer than its timeout of 3 s"
    assert bench(ComputeKilled(), 14.5) == [
        finished(with_reason(2, Reason.FAILED, "timeout", error, 3.5)), compute(sub(3)),
    ]  # fmt: skip


def fated(task_id: int, other: int, how: str, duration_s: float = 0.0) -> Outcome:
    message = f"it was overlapped with task {other}, which was {how}"
    return with_reason(task_id, Reason.RETURNED, "fate", message, duration_s)


def failed(task_id: int) -> Outcome:
    return with_reason(task_id, Reason.FAILED, "ValueError", "no")


def three_in_phases(bench: Bench, fate: bool = True) -> None:
    bench.give(sub(1, OUT), sub(2), sub(3), sub(4, IN), sub(5), fate=fate)
    bench(Computed((ok(1),)))
    phases = [bench.worker.status((n, 1)) for n in range(1, 6)]
    assert phases == ["stage_out", "compute", "waiting", "stage_in", "waiting"]


def test_failure_in_compute_sends_those_in_staging_back_but_not_those_queued(bench: Bench) -> None:
    three_in_phases(bench)
    assert bench(Computed((failed(2),))) == [finished(failed(2)), Abort(R, (4, 1)), Abort(R, (1, 1))]
    assert bench(Aborted((4, 1))) == [finished(fated(4, 2, "failed")), compute(sub(5))]
    assert bench(Aborted((1, 1))) == [finished(fated(1, 2, "failed"))]
    assert bench(Computed((ok(3), ok(5)))) == [finished(ok(3), ok(5)), *idle()]


def test_failure_in_staging_sends_the_task_in_compute_back_and_runs_the_queue_again(bench: Bench) -> None:
    three_in_phases(bench)
    error = TaskError("OSError", "disk full")
    assert bench(StagingFailed((1, 1), error)) == [
        finished(Outcome(1, 1, Reason.FAILED, error=error)), Abort(R, (4, 1)), Kill(R, "j1"),
    ]  # fmt: skip
    assert bench(Aborted((4, 1))) == [finished(fated(4, 1, "failed"))]
    assert bench(ComputeKilled(), 2.0) == [finished(fated(2, 1, "failed", 2.0)), compute(sub(3), sub(5))]


def test_fate_can_be_switched_off(bench: Bench) -> None:
    three_in_phases(bench, fate=False)
    assert bench(Computed((failed(2),))) == [finished(failed(2))]
    error = TaskError("OSError", "disk full")
    assert bench(StagingFailed((4, 1), error)) == [
        finished(Outcome(4, 1, Reason.FAILED, error=error)), compute(sub(5)),
    ]  # fmt: skip
    assert bench(StagedOut((1, 1))) == [finished(ok(1))]


def test_a_result_that_waits_for_stage_out_shares_the_fate_too(bench: Bench) -> None:
    bench.give(sub(1, OUT), sub(2, OUT), sub(3, OUT))
    bench(Computed((ok(1),)))
    bench(Computed((ok(2),)))
    error = TaskError("OSError", "disk full")
    assert bench(StagingFailed((1, 1), error)) == [
        finished(Outcome(1, 1, Reason.FAILED, error=error), fated(2, 1, "failed")),
        compute(sub(3, OUT)),
    ]


def test_cancel_outweighs_fate(bench: Bench) -> None:
    three_in_phases(bench)
    bench(Computed((failed(2),)))
    assert bench(Cancel("j1", R, ((4, 1), (1, 1)))) == []
    # Cancelled, not merely returned: so the third, in compute by now, shares the fate of the first.
    assert bench(Aborted((1, 1))) == [finished(ended(1, CANCELLED)), Kill(R, "j1")]
    assert bench(Aborted((4, 1))) == [finished(ended(4, CANCELLED))]
    assert bench(ComputeKilled()) == [finished(fated(3, 1, "cancelled")), compute(sub(5))]


def test_the_end_of_a_job_cancels_everything(bench: Bench) -> None:
    three_in_phases(bench)
    gone = "the job has ended"
    assert bench(EndWork(Reason.CANCELLED, gone)) == [
        finished(with_reason(5, Reason.CANCELLED, "cancelled", gone)),
        Abort(R, (4, 1)),
        Abort(R, (1, 1)),
        Kill(R, "j1"),
    ]
    assert bench(Aborted((4, 1))) == [finished(with_reason(4, Reason.CANCELLED, "cancelled", gone))]
    assert bench(Aborted((1, 1))) == [finished(with_reason(1, Reason.CANCELLED, "cancelled", gone))]
    both = [with_reason(n, Reason.CANCELLED, "cancelled", gone) for n in (2, 3)]
    assert bench(ComputeKilled()) == [finished(*both), *idle()]


def test_removal_loses_what_has_begun_returns_the_rest_and_stops_the_worker(bench: Bench) -> None:
    three_in_phases(bench)
    assert bench(EndWork(Reason.LOST, "removed", close=True)) == [
        finished(with_reason(5, Reason.RETURNED, "lost", "removed")),
        Abort(R, (4, 1)),
        Abort(R, (1, 1)),
        Kill(R, "j1"),
    ]
    assert bench(Aborted((4, 1))) == [finished(with_reason(4, Reason.RETURNED, "lost", "removed"))]
    assert bench(Aborted((1, 1))) == [finished(lost(1, "removed"))]
    assert bench(ComputeKilled(), 6.0) == [
        finished(lost(2, "removed", 6.0), with_reason(3, Reason.RETURNED, "lost", "removed")),
        WorkerIdle(R),
        WorkerChanged(6.0, R, "stopped"),
        WorkerStopped(R),
    ]
    [answer] = bench.give(sub(9))
    assert answer.outcomes == (with_reason(9, Reason.RETURNED, "refused", "r1.core0 has been removed"),)


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


def test_only_the_last_ones_handed_over_can_have_been_taken_back(bench: Bench) -> None:
    bench.give(sub(1), sub(2), sub(3))
    bench(TakeBack("j1", R, ((3, 1),)))
    with pytest.raises(IllegalEvent):
        bench(Retracted(((1, 1), (2, 1))))
    assert bench(Retracted(((2, 1), (3, 1)))) == [finished(ended(3, TAKEN_BACK)), compute(sub(2))]
