"""A journaled job takes a result in when it is durable, and not before."""

from __future__ import annotations

from typing import Any

import pytest

from gspc_trio import Net, farm
from gspc_trio.components.job.journal import JournaledEngine
from gspc_trio.components.job.machine import (
    Begin,
    Close,
    JobEnded,
    JobMachine,
    Kept,
    Look,
    LookedUp,
    LookUpTasks,
    TakenOver,
)
from gspc_trio.components.job.scheduler.interface import ResourcesUp, Stop, TaskDone
from gspc_trio.components.rm.messages import Demand, Grant
from gspc_trio.components.worker.messages import Finished, Submit
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Outcome, Reason, TaskState
from gspc_trio.policies.scheduling import USUAL
from tests.workflow.support import engine_for


def double(item: int) -> int:
    return 2 * item


def two_steps() -> Net:
    net = Net("two")
    net.input("items", default=[3])
    net.output("results", final=True)
    net.place("middle")
    net.transition("first", double, {"item": "items"}, "middle")
    net.transition("second", double, {"item": "middle"}, "results")
    return net


def job(net: Net, **options: Any) -> JobMachine:
    return JobMachine("j1", "job", engine_for(net), USUAL.scheduler("j1"), journaled=True, **options)


def do(machine: JobMachine, event: Any, *kinds: type) -> list[Any]:
    actions = machine.handle(event, 0.0)
    machine.check()
    return [action for action in actions if isinstance(action, kinds)]


def granted(machine: JobMachine) -> list[Any]:
    do(machine, Begin())
    do(machine, ResourcesUp((Resource("r1.core0", "core"),)))
    return do(machine, Grant("j1", CORE, (1, 1), ("r1.core0",)), Submit)


def ended(task_id: int) -> Finished:
    return Finished("j1", "r1.core0", (Outcome(task_id, 1, Reason.FINISHED, ((b"\x80\x05K\x06.",),)),))


def test_what_depends_on_a_result_waits_until_it_is_durable() -> None:
    machine = job(two_steps())
    granted(machine)
    done, *others = do(machine, ended(1), TaskDone, Submit, JobEnded)
    assert (done.task_id, done.state, others) == (1, TaskState.FINISHED, [])
    (submit,) = do(machine, Kept(1), Submit)
    assert [submission.task_id for submission in submit.submissions] == [2]


def test_a_job_ends_when_its_last_result_is_durable() -> None:
    machine = job(farm(double, name="doubles", default=[1]))
    granted(machine)
    assert do(machine, ended(1), JobEnded) == []
    assert do(machine, Kept(1), JobEnded) == [JobEnded("finished")]
    assert machine.engine.outputs() == {"results": [6]}  # type: ignore[attr-defined]


def test_a_worker_gets_its_next_task_before_the_last_one_is_durable() -> None:
    machine = job(farm(double, name="doubles", default=[1, 2]))
    sent = [task.task_id for submit in granted(machine) for task in submit.submissions]
    more = do(machine, ended(1), Submit)
    sent += [task.task_id for submit in more for task in submit.submissions]
    assert sent == [1, 2]


def test_a_stopped_job_still_waits_for_what_is_being_written() -> None:
    machine = job(farm(double, name="doubles", default=[1]))
    granted(machine)
    do(machine, ended(1))
    assert do(machine, Stop("enough"), JobEnded) == []
    assert do(machine, Kept(1), JobEnded) == [JobEnded("stopped", "enough")]


def test_more_cannot_be_durable_than_there_is() -> None:
    machine = job(farm(double, name="doubles", default=[1]))
    granted(machine)
    with pytest.raises(IllegalEvent, match="0 wait"):
        machine.handle(Kept(1), 0.0)


def test_a_resumed_job_counts_what_had_finished_before() -> None:
    machine = job(farm(double, name="doubles", default=[1]), finished_before=41)
    granted(machine)
    do(machine, ended(1))
    do(machine, Kept(1), Demand)
    assert machine.counts()[TaskState.FINISHED] == 42


def known(task_id: int) -> Outcome:
    return Outcome(task_id, 0, Reason.FINISHED, ((b"\x80\x05K\x06.",),))


def test_a_result_that_is_known_is_taken_in_and_its_task_not_run() -> None:
    """As if it had just come: what depends on it waits until it is durable."""
    machine = job(two_steps(), recalled=True)
    do(machine, ResourcesUp((Resource("r1.core0", "core"),)))
    (asked,) = do(machine, Begin(), LookUpTasks, TaskDone, Demand, JobEnded)
    assert [task.name for task in asked.tasks] == ["first"]
    (done,) = do(machine, LookedUp(known=(known(1),)), TaskDone, Demand, JobEnded)
    assert (done.task_id, done.name, done.outcome.values) == (1, "first", ((b"\x80\x05K\x06.",),))
    assert do(machine, LookedUp(known=(known(1),)), TaskDone) == [], "it waits for nothing any more"
    (asked,) = do(machine, Kept(1), LookUpTasks, Demand)
    (demand,) = do(machine, LookedUp(missed=(asked.tasks[0].task_id,)), Demand)
    assert demand.credit == 1
    assert machine.counts()[TaskState.FINISHED] == 1
    (submit,) = do(machine, Grant("j1", CORE, (1, 1), ("r1.core0",)), Submit)
    assert [submission.task_id for submission in submit.submissions] == [2]


def test_a_job_of_which_all_is_known_ends_when_that_is_durable() -> None:
    net = farm(double, name="doubles", default=[1, 2])
    machine = job(net, recalled=True)
    do(machine, Begin())
    assert len(do(machine, LookedUp(known=(known(1), known(2))), TaskDone)) == 2
    assert do(machine, Kept(2), JobEnded) == [JobEnded("finished")]


def resumed(number: int) -> tuple[JobMachine, JournaledEngine]:
    """A job of so many tasks, all of which an earlier job server had given out."""
    earlier = engine_for(farm(double, name="doubles", default=list(range(number))))
    while (task_id := earlier.next()) is not None:
        earlier.extract(task_id)
    for task_id in list(earlier.activities):
        earlier.restore(task_id)
    engine = JournaledEngine(earlier)
    engine.hold_back()
    scheduler = USUAL.scheduler("j2")
    return JobMachine("j2", "job", engine, scheduler, open_ended=True, journaled=True), engine


def outcome(task_id: int) -> Outcome:
    return Outcome(task_id, 1, Reason.FINISHED, ((b"\x80\x05K\x06.",),))


def test_what_an_earlier_job_server_gave_out_is_taken_in_when_its_result_comes() -> None:
    machine, _ = resumed(2)
    assert do(machine, Begin(), Demand) == [], "nothing is given out again"
    ends = do(machine, TakenOver((outcome(2), outcome(1))), TaskDone)
    assert [(done.task_id, done.name) for done in ends] == [(2, "doubles"), (1, "doubles")]
    do(machine, Kept(2))
    assert do(machine, Close(), JobEnded) == [JobEnded("finished")]
    assert machine.counts()[TaskState.FINISHED] == 2


def test_a_job_that_has_ended_takes_nothing_over() -> None:
    machine, _ = resumed(2)
    do(machine, Begin())
    assert do(machine, Stop("its user stops it"), JobEnded) == [JobEnded("stopped", "its user stops it")]
    assert do(machine, TakenOver((outcome(2),)), object) == []


def test_what_is_lost_is_given_out_again_and_its_late_result_dropped() -> None:
    machine, engine = resumed(3)
    do(machine, Begin())
    engine.release({2})
    (demand,) = do(machine, Look(), Demand)
    assert demand.credit == 2
    assert do(machine, TakenOver((outcome(1),)), TaskDone) == []
    assert [done.task_id for done in do(machine, TakenOver((outcome(2),)), TaskDone)] == [2]
    do(machine, Close())
    assert machine.scheduler.live == 2
