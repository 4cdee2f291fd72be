"""What overlaps at a worker, and the fate that it shares: each test compares whole action lists.

Requirements: WRK-2, WRK-3.
"""

from __future__ import annotations

from gspc_trio.components.worker.events import (
    Abort,
    Aborted,
    Computed,
    ComputeKilled,
    EndWork,
    Kill,
    StagedIn,
    StagedOut,
    StageIn,
    StageOut,
    StagingFailed,
    WorkerIdle,
    WorkerStopped,
)
from gspc_trio.components.worker.messages import Cancel
from gspc_trio.components.worker.verdict import CANCELLED
from gspc_trio.core.task import Outcome, Reason, TaskError, TaskOptions
from gspc_trio.records.facts import WorkerChanged
from tests.components.worker.support import (
    BOTH,
    IN,
    OUT,
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
    with_reason,
)


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


def test_what_runs_again_comes_before_what_was_staged_meanwhile(bench: Bench) -> None:
    bench.give(sub(1), sub(2), sub(3, IN), fate=False)
    bench(StagedIn((3, 1)))
    bench(Cancel("j1", R, ((1, 1),)))
    assert bench(ComputeKilled()) == [finished(ended(1, CANCELLED)), compute(sub(2))]
    assert bench(Computed((ok(2),))) == [finished(ok(2)), compute(sub(3, IN))]
