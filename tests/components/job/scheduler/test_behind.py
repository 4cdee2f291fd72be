"""Tasks that are sent before they are ready, behind the one whose result they take."""

from __future__ import annotations

from gspc_trio.components.job.scheduler.interface import CancelTasks, EndedUnsent, TasksReady
from gspc_trio.components.rm.messages import Recall
from gspc_trio.components.worker.messages import Submission, Submit
from gspc_trio.components.worker.verdict import NOT_MADE, TAKEN_BACK
from gspc_trio.core.machine import Tick
from gspc_trio.core.task import CORE, DEFAULT_OPTIONS, TO_COME, Outcome, Reason, TaskError, TaskOptions
from gspc_trio.workflow.graph import Ref, TaskGraph
from tests.components.job.scheduler.support import (
    CANCELLED,
    FAILED,
    FINISHED,
    JOB,
    World,
    bad,
    cancel,
    core,
    done,
    ended,
    finished,
    grant,
    ok,
    release,
    take_back,
    task,
)


class Chain(World):
    """A scheduler with idle grants, that knows how long tasks take, and a graph of them."""

    def __init__(self, links: int = 3, grants: int = 1, options: TaskOptions = DEFAULT_OPTIONS) -> None:
        self.graph = TaskGraph()
        super().__init__(cores=grants, dependents=self.graph)
        self.measured(grants=grants)
        arguments: list[bytes | Ref] = [b"0"]
        for _ in range(links):
            arguments = [Ref(self.graph.add("work", 1, arguments, CORE, options))]

    def begin(self) -> list[object]:
        first = self.graph.next()
        assert first is not None
        return self.do(TasksReady((self.graph.extract(first),)))


def sub(task_id: int, *arguments: bytes, attempt: int = 1, behind: int = 0) -> Submission:
    after = (behind, 1) if behind else None
    return Submission(task_id, attempt, 1, arguments, after=after)


def sent(*submissions: Submission, at: int = 1) -> Submit:
    return Submit(JOB, (1, at), (core(at),), submissions, "core")


FIRST, SECOND, THIRD = sub(1, b"0"), sub(2, TO_COME, behind=1), sub(3, TO_COME, behind=2)


def not_made(task_id: int) -> Outcome:
    return NOT_MADE.outcome_of(sub(task_id))


def test_a_chain_goes_to_one_worker_and_each_result_comes_before_the_next() -> None:
    chain = Chain()
    assert chain.begin() == [sent(FIRST), sent(SECOND, THIRD)]
    assert chain.do(finished(1, ok(1), ok(2))) == [done(1, FINISHED, ok(1), 1), done(2, FINISHED, ok(2), 1)]
    assert chain.do(finished(1, ok(3))) == [done(3, FINISHED, ok(3), 1)]


def test_nothing_is_sent_ahead_of_what_was_never_measured_or_must_run_once() -> None:
    for options in (TaskOptions(may_rerun=False), TaskOptions(stage_in=True)):
        chain = Chain(options=options)
        (only,) = chain.begin()
        assert isinstance(only, Submit)
        assert [one.task_id for one in only.submissions] == [1]
    graph = TaskGraph()
    graph.add("work", 7, [Ref(graph.add("work", 7, [b"0"]))])
    world = World(cores=1, dependents=graph)
    world(grant(1))
    graph.next()
    (only,) = world.do(TasksReady((graph.extract(1),)))
    assert isinstance(only, Submit)
    assert [one.task_id for one in only.submissions] == [1]


def test_who_is_ready_goes_first_by_its_rank() -> None:
    urgent = TaskOptions(priority=1)
    chain = Chain()
    chain.graph.next()
    actions = chain.do(TasksReady((chain.graph.extract(1), *(task(n, urgent) for n in range(100, 1600)))))
    ids = [one.task_id for action in actions if isinstance(action, Submit) for one in action.submissions]
    assert not {1, 2, 3} & set(ids)


def test_what_comes_back_waits_and_has_used_up_nothing() -> None:
    chain = Chain()
    chain.begin()
    failed = bad(1)
    assert chain.do(finished(1, failed, not_made(2), not_made(3))) == [done(1, FAILED, failed, 1)]
    assert chain.scheduler.explain(2) == "task 2 (work) waits for the result of another task"
    through = [done(number, FAILED, ended(number, Reason.FAILED, 0)) for number in (2, 3)]
    assert chain.do(EndedUnsent(tuple(through))) == []
    assert chain.scheduler.live == 0


def test_the_next_attempt_of_the_first_brings_what_came_back_along() -> None:
    chain = Chain(options=TaskOptions(attempts=2))
    chain.begin()
    actions = chain.do(finished(1, bad(1), not_made(2), not_made(3)))
    chain.now += 10
    actions += chain.do(Tick())
    options = TaskOptions(attempts=2)
    behind = [Submission(task_id, 2, 1, (TO_COME,), options, after=(task_id - 1, 2)) for task_id in (2, 3)]
    assert actions == [sent(Submission(1, 2, 1, (b"0",), options)), sent(*behind)]
    results = [ok(number, 2) for number in (1, 2, 3)]
    assert chain.do(finished(1, *results)) == [
        done(1, FINISHED, results[0], 1),
        done(2, FINISHED, results[1], 1, given_back=1),
        done(3, FINISHED, results[2], 1, given_back=1),
    ]


def test_a_result_that_was_made_of_one_that_does_not_count_does_not_count() -> None:
    chain = Chain(links=2)
    chain.begin()
    unsent = bad(1, error=TaskError("EncodeError", "its results cannot be sent"))
    assert chain.do(finished(1, unsent, ok(2))) == [done(1, FAILED, unsent, 1)]


def test_one_that_failed_through_another_is_counted_when_it_has_come_back() -> None:
    chain = Chain(links=2)
    chain.begin()
    chain.do(finished(1, bad(1)))
    chain.do(EndedUnsent((done(2, FAILED, ended(2, Reason.FAILED, 0)),)))
    assert chain.scheduler.status()[FAILED] == 1
    assert chain.scheduler.live == 1
    assert chain.do(finished(1, not_made(2))) == []
    assert chain.scheduler.status()[FAILED] == 2
    assert chain.scheduler.live == 0


def test_an_idle_worker_takes_none_whose_argument_is_made_elsewhere() -> None:
    chain = Chain(links=400, grants=2)
    chain.begin()
    assert chain.do(Tick(), chain.now + 1) == []


def test_a_recalled_grant_is_left_by_all_but_the_one_that_runs() -> None:
    chain = Chain()
    chain.begin()
    assert chain.do(Recall(JOB, ((1, 1),))) == [take_back(1, (2, 1), (3, 1))]
    back = [TAKEN_BACK.outcome_of(sub(number)) for number in (2, 3)]
    assert chain.do(finished(1, *back)) == []
    actions = chain.do(finished(1, ok(1)))
    assert actions[:2] == [done(1, FINISHED, ok(1), 1), release(1)]
    chain(grant(2, 1))
    assert chain.scheduler.attempt_of(2) == (core(1), 2)


def test_one_that_was_made_and_did_not_begin_gets_its_argument_sent() -> None:
    chain = Chain()
    chain.begin()
    chain.do(finished(1, ok(1)))
    assert chain.do(finished(1, not_made(2), not_made(3))) == [
        sent(sub(2, b"x", attempt=2)),
        sent(Submission(3, 2, 1, (TO_COME,), after=(2, 2))),
    ]


def test_a_cancelled_one_ends_and_the_others_behind_it_come_back() -> None:
    chain = Chain()
    chain.begin()
    assert chain.do(CancelTasks((2,))) == [cancel(1, (2, 1))]
    gone = ended(2, Reason.CANCELLED)
    actions = chain.do(finished(1, gone, not_made(3)))
    assert [type(action).__name__ for action in actions] == ["TaskDone"]
    assert actions[0].task_id == 2
    assert actions[0].state is CANCELLED
