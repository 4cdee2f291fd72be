"""The data of several attempts is fetched at a time: who computes next, and what stops whom then."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gspc_trio.components.worker.events import (
    Abort,
    Aborted,
    Assign,
    Compute,
    Computed,
    StagedIn,
    StageIn,
    StageOut,
    StagingFailed,
    begun_with,
)
from gspc_trio.components.worker.messages import Begun, Cancel, Submission, TakeBack
from gspc_trio.components.worker.verdict import CANCELLED, TAKEN_BACK
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


def ranked(task_id: int, rank: int, input_bytes: int = 1, options: TaskOptions = IN) -> Submission:
    return replace(sub(task_id, options), rank=rank, input_bytes=input_bytes)


def give(bench: Bench, *submissions: Submission, at_once: int = 3, bytes_max: int = 100) -> list[Any]:
    return bench(Assign(submit(*submissions), True, bytes_max, at_once))


def fetch(submission: Submission) -> StageIn:
    return StageIn(R, "j1", submission)


def test_so_many_fetch_at_a_time_and_the_next_one_when_one_computes(bench: Bench) -> None:
    first, second, third = ranked(1, 0), ranked(2, 0), ranked(3, 0)
    assert give(bench, first, second, third, at_once=2) == [busy(), fetch(first), fetch(second)]
    assert bench(StagedIn((1, 1))) == [compute(first), fetch(third)]


def test_fetching_waits_for_room_of_all_that_are_there(bench: Bench) -> None:
    first, second, third = ranked(1, 0, 60), ranked(2, 0, 40), ranked(3, 0, 10)
    assert give(bench, first, second, third) == [busy(), fetch(first), fetch(second)]
    assert bench(StagedIn((2, 1))) == [compute(second)]
    assert bench(Computed((ok(2),))) == [finished(ok(2)), fetch(third)]


def test_of_those_that_have_their_data_the_lowest_rank_goes_first(bench: Bench) -> None:
    tasks = [ranked(1, 0), ranked(2, 5), ranked(3, -7), ranked(4, -7)]
    give(bench, *tasks, at_once=4)
    assert bench(StagedIn((1, 1))) == [compute(tasks[0])]
    for key in ((4, 1), (2, 1), (3, 1)):
        assert bench(StagedIn(key)) == []
    order = []
    for task_id in (1, 3, 4, 2):  # of equal ranks the one that came first
        actions = bench(Computed((ok(task_id),)))
        order += [it.submissions[0].task_id for it in actions if type(it) is Compute]
    assert order == [3, 4, 2]


def test_who_has_no_data_yet_is_overtaken(bench: Bench) -> None:
    slow, fast = ranked(1, -9), ranked(2, 9)
    give(bench, slow, fast)
    assert bench(StagedIn((2, 1))) == [compute(fast)]
    assert bench(StagedIn((1, 1))) == []
    assert bench(Computed((ok(2),))) == [finished(ok(2)), compute(slow)]


def test_what_fetches_nothing_computes_while_no_data_is_there(bench: Bench) -> None:
    fetching, plain, later = ranked(1, 0), sub(2), sub(3)
    assert give(bench, fetching, plain) == [busy(), fetch(fetching), compute(plain)]
    assert bench(StagedIn((1, 1))) == []
    assert give(bench, later) == []  # no stream of such tasks keeps one waiting that has its data
    assert bench(Computed((ok(2),))) == [finished(ok(2)), compute(fetching)]
    assert bench(Computed((ok(1),))) == [finished(ok(1)), compute(later)]


@pytest.mark.parametrize("staged", [False, True])
def test_what_fetches_or_has_its_data_may_be_taken_back(bench: Bench, staged: bool) -> None:
    first, second = ranked(1, 0), ranked(2, 0)
    give(bench, first, second)
    bench(StagedIn((1, 1)))
    if staged:
        bench(StagedIn((2, 1)))
    assert bench(TakeBack("j1", R, ((2, 1), (1, 1))))[0] == Abort(R, (2, 1))
    assert bench(TakeBack("j1", R, ((2, 1),))) == []  # it is on its way already
    returned = TAKEN_BACK.outcome_of(second)
    assert bench(Aborted((2, 1))) == [finished(returned)]


def test_a_cancelled_one_is_not_taken_back(bench: Bench) -> None:
    first, second = ranked(1, 0), ranked(2, 0)
    give(bench, first, second)
    bench(StagedIn((1, 1)))
    assert bench(Cancel("j1", R, ((2, 1),))) == [Abort(R, (2, 1))]
    assert bench(TakeBack("j1", R, ((2, 1),))) == []
    assert bench(Aborted((2, 1))) == [finished(CANCELLED.outcome_of(second))]


def test_with_one_at_a_time_stage_in_is_a_beginning(bench: Bench) -> None:
    give(bench, ranked(1, 0), at_once=1)
    assert bench(TakeBack("j1", R, ((1, 1),))) == []


def test_what_has_not_begun_shares_no_fate(bench: Bench) -> None:
    first, second, third = ranked(1, 0), ranked(2, 0), ranked(3, 0)
    give(bench, first, second, third)
    bench(StagedIn((1, 1)))
    bench(StagedIn((2, 1)))
    failed = Outcome(1, 1, Reason.FAILED, error=TaskError("E", "no"))
    assert bench(Computed((failed,))) == [finished(failed), compute(second)]
    error = TaskError("staging", "no file")
    unfetched = with_reason(3, Reason.FAILED, "staging", "no file")
    assert bench(StagingFailed((3, 1), error)) == [finished(unfetched)]  # and the second one goes on
    assert bench(Computed((ok(2),))) == [finished(ok(2)), *idle()]


def test_one_that_may_not_run_again_is_alone_all_the_same(bench: Bench) -> None:
    alone = replace(ranked(2, 0), options=replace(IN, may_rerun=False))
    first, last = ranked(1, 0), ranked(3, 0)
    assert give(bench, first, alone, last) == [busy(), fetch(first)]
    assert bench(StagedIn((1, 1))) == [compute(first)]
    assert bench(Computed((ok(1),))) == [finished(ok(1)), fetch(alone)]
    assert bench(StagedIn((2, 1))) == [compute(alone)]
    assert bench(Computed((ok(2),))) == [finished(ok(2)), fetch(last)]


def test_a_job_hears_when_an_attempt_begins() -> None:
    fetching, storing, plain = sub(1, IN), sub(2, OUT), sub(3)
    assert begun_with(StageIn(R, "j1", fetching), False) == Begun("j1", R, 1, 1)
    assert begun_with(compute(sub(1, BOTH)), False) is None
    assert begun_with(compute(storing), False) == Begun("j1", R, 2, 1)
    assert begun_with(compute(plain), False) is None
    assert begun_with(StageIn(R, "j1", fetching), True) is None
    assert begun_with(compute(fetching), True) == Begun("j1", R, 1, 1, True)
    assert begun_with(compute(plain, sub(4)), True) == Begun("j1", R, 3, 1, True)
    assert begun_with(StageOut(R, "j1", storing, ok(2)), True) is None


def test_what_stages_nothing_computes_in_its_turn_among_those_that_fetch(bench: Bench) -> None:
    first, plain, third = ranked(1, 0), sub(2), ranked(3, 0)
    assert give(bench, first, plain, third) == [busy(), fetch(first), compute(plain), fetch(third)]


def test_nothing_computes_beside_the_stage_in_of_one_that_may_not_run_again(bench: Bench) -> None:
    alone = ranked(1, 0, options=replace(IN, may_rerun=False))
    assert give(bench, alone, sub(2)) == [busy(), fetch(alone)]
    assert bench(StagedIn((1, 1))) == [compute(alone)]
    assert bench(Computed((ok(1),))) == [finished(ok(1)), compute(sub(2))]
