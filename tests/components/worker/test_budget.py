"""Stage-in waits while those in the phases leave it no room; what staging may change of an attempt."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gspc_trio.components.worker.events import (
    Abort,
    Aborted,
    Assign,
    Computed,
    StagedIn,
    StagedOut,
    StageIn,
    StageOut,
    StagingFailed,
)
from gspc_trio.components.worker.messages import Cancel, Submission
from gspc_trio.components.worker.verdict import CANCELLED
from gspc_trio.core.task import Outcome, Reason, TaskError, TaskOptions
from tests.components.worker.support import (
    BOTH,
    IN,
    OUT,
    Bench,
    R,
    busy,
    compute,
    finished,
    idle,
    ok,
    sub,
    submit,
    with_reason,
)


def needs(task_id: int, input_bytes: int, options: TaskOptions = IN) -> Submission:
    return replace(sub(task_id, options), input_bytes=input_bytes)


def give(bench: Bench, *submissions: Submission, inputs_bytes_max: int = 10, fate: bool = True) -> list[Any]:
    return bench(Assign(submit(*submissions), fate, inputs_bytes_max))


def test_stage_in_waits_while_the_inputs_in_the_phases_leave_no_room(bench: Bench) -> None:
    first, second = needs(1, 6), needs(2, 5)
    assert give(bench, first, second) == [busy(), StageIn(R, "j1", first)]
    assert bench(StagedIn((1, 1))) == [compute(first)]  # 6 + 5 are more than 10
    assert bench(Computed((ok(1),))) == [finished(ok(1)), StageIn(R, "j1", second)]
    assert bench(StagedIn((2, 1))) == [compute(second)]
    assert bench(Computed((ok(2),))) == [finished(ok(2)), *idle()]


def test_stage_in_overlaps_as_long_as_there_is_room(bench: Bench) -> None:
    first, second = needs(1, 6), needs(2, 4)
    assert give(bench, first, second) == [busy(), StageIn(R, "j1", first)]
    assert bench(StagedIn((1, 1))) == [compute(first), StageIn(R, "j1", second)]


def test_inputs_count_until_stage_out_has_ended(bench: Bench) -> None:
    first, second, third = needs(1, 4, BOTH), needs(2, 4, BOTH), needs(3, 4, BOTH)
    give(bench, first, second, third)
    assert bench(StagedIn((1, 1))) == [compute(first), StageIn(R, "j1", second)]
    assert bench(StagedIn((2, 1))) == []
    done = ok(1)
    assert bench(Computed((done,))) == [
        StageOut(R, "j1", first, done),
        compute(second),
    ]  # 12 would be too much
    assert bench(StagedOut((1, 1))) == [finished(done), StageIn(R, "j1", third)]


def test_one_with_more_than_there_may_be_goes_alone(bench: Bench) -> None:
    large, small = needs(1, 1000), needs(2, 1)
    assert give(bench, large, small) == [busy(), StageIn(R, "j1", large)]
    assert bench(StagedIn((1, 1))) == [compute(large)]
    assert bench(Computed((ok(1),))) == [finished(ok(1)), StageIn(R, "j1", small)]
    assert bench(StagedIn((2, 1))) == [compute(small)]
    assert give(bench, needs(3, 1000)) == []
    assert bench(Computed((ok(2),))) == [finished(ok(2)), StageIn(R, "j1", needs(3, 1000))]


def test_without_inputs_nothing_waits_behind_a_large_one(bench: Bench) -> None:
    large, files, plain = needs(1, 1000), needs(2, 0, OUT), sub(3)
    give(bench, large, files, plain)
    assert bench(StagedIn((1, 1))) == [compute(large)]
    assert bench(Computed((ok(1),))) == [finished(ok(1)), compute(files)]


def test_what_is_cancelled_makes_room(bench: Bench) -> None:
    first, second = needs(1, 6), needs(2, 5)
    give(bench, first, second, fate=False)
    assert bench(Cancel("j1", R, ((1, 1),))) == [Abort(R, (1, 1))]
    cancelled = CANCELLED.outcome_of(first)
    assert bench(Aborted((1, 1))) == [finished(cancelled), StageIn(R, "j1", second)]


def test_stage_in_may_say_what_to_compute_instead(bench: Bench) -> None:
    first = needs(1, 1)
    give(bench, first)
    told = replace(first, arguments=(b"x",), directory="d")
    assert bench(StagedIn((1, 1), told)) == [compute(told)]
    assert bench(Computed((ok(1),))) == [finished(ok(1)), *idle()]


def test_stage_out_may_say_what_to_report_instead(bench: Bench) -> None:
    first = sub(1, OUT)
    give(bench, first)
    bench(Computed((ok(1),)))
    other = Outcome(1, 1, Reason.FINISHED, ((b"v",), (b"file",)))
    assert bench(StagedOut((1, 1), other)) == [finished(other), *idle()]


def test_staging_may_fail_through_no_doing_of_the_task(bench: Bench) -> None:
    give(bench, needs(1, 1))
    error = TaskError("staging", "its job server is gone")
    returned = with_reason(1, Reason.RETURNED, "staging", "its job server is gone")
    assert bench(StagingFailed((1, 1), error, returned=True)) == [finished(returned), *idle()]
