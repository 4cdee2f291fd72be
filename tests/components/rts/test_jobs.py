"""Jobs that join and go, and revokes of what they held, in the RTS machine: whole action lists (RM-10)."""

from __future__ import annotations

import pytest

from gspc_trio.components.rm.events import Coming, JobGone, Removed
from gspc_trio.components.rm.messages import Revoke, Revoked
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.messages import EndState, JobEnd, RegisterJob
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.task import TaskState
from gspc_trio.records.facts import JobChanged, RifChanged, TaskCounts
from tests.components.rts.support import BOOT, CORES, IDS, JOB, make, run


def test_a_job_that_goes_is_closed_at_its_rifs_before_the_rm_takes_back_what_it_holds():
    machine = make()
    assert run(machine, *BOOT, (3.0, JOB), (4.0, events.JobServerGone("j1", "connection reset"))) == [
        actions.CloseJobAt((1,), "j1"),
        actions.TellRm(JobGone("j1")),
        JobChanged(4.0, "j1", "stopped", "count", "connection reset"),
    ]
    assert machine.jobs == ()
    assert run(machine, (5.0, JOB), (6.0, events.JobServerGone("j2", left=JobEnd())))[-1] == JobChanged(
        6.0, "j2", "finished", "count"
    )
    with pytest.raises(IllegalEvent, match="no job j1"):
        machine.handle(events.JobServerGone("j1", "again"), 7.0)


def test_how_a_job_ended_is_what_it_says_when_it_leaves():
    tasks = {TaskState.FINISHED: 7, TaskState.FAILED: 1}
    failed = JobEnd(EndState.FAILED, "x" * 3_000, tasks, 2.5)
    machine = make()
    assert run(machine, (1.0, JOB), (4.0, events.JobServerGone("j1", left=failed))) == [
        actions.TellRm(JobGone("j1")),
        TaskCounts(4.0, "j1", {TaskState.FINISHED: 7, TaskState.FAILED: 1}, first_s=1.5),
        JobChanged(4.0, "j1", "failed", "count", "x" * 2_000),
    ]
    stopped = JobEnd(EndState.STOPPED, "a client asked it to stop")
    assert run(machine, (5.0, JOB), (6.0, events.JobServerGone("j2", left=stopped)))[-1] == JobChanged(
        6.0, "j2", "stopped", "count", "a client asked it to stop"
    )


def test_a_job_that_says_nothing_of_its_end_took_the_time_since_it_joined_and_its_tasks_are_not_known():
    lost, taken_down = make(), make()
    run(lost, (1.0, JOB), (4.0, events.JobServerGone("j1", "connection reset")))
    run(taken_down, (1.0, JOB), (6.5, events.Stop()))
    for machine, elapsed_s in ((lost, 3.0), (taken_down, 5.5)):
        (ended,) = machine.history.jobs
        assert (ended.state, ended.elapsed_s, ended.tasks) == ("stopped", elapsed_s, {})
    told = make()
    run(told, (1.0, JOB), (4.0, events.JobServerGone("j1", left=JobEnd(elapsed_s=2.5))))
    (ended,) = told.history.jobs
    assert (ended.elapsed_s, ended.tasks) == (2.5, dict.fromkeys(TaskState, 0))


@pytest.mark.parametrize("weight", [0.0, -1.0, float("inf"), float("nan")])
def test_a_weight_that_is_none_is_refused(weight):
    asked = events.JobConnected(9, RegisterJob("count", 1, "anna", "", weight))
    assert run(make(), (0.0, asked)) == [
        actions.RefuseJob(9, f"a job's weight is a number more than 0, not {weight}")
    ]


def test_a_revoke_goes_to_the_rifs_concerned_and_its_answer_to_the_rm():
    machine = make()
    run(machine, *BOOT)
    revoke = Revoke((1, 4), ("r1.core0", "r9.core0"))
    assert run(machine, (3.0, revoke)) == [actions.TellRif(1, Revoke((1, 4), ("r1.core0",)))]
    revoked = events.RevokedBy(1, Revoked((1, 4), ("r1.core0",)))
    assert run(machine, (3.1, revoked)) == [actions.TellRm(Revoked((1, 4), ("r1.core0",)))]
    with pytest.raises(IllegalEvent, match="r1 answered for"):
        machine.handle(events.RevokedBy(1, Revoked((1, 4), ("r2.core0",))), 3.2)
    machine.check()
    assert machine.deadline() is None
    assert run(machine, (3.3, events.RevokedBy(8, Revoked((1, 4), ("r1.core0",))))) == []


def test_a_revoke_of_what_is_being_removed_goes_to_its_rif_too():
    machine = make()
    run(machine, *BOOT, (3.0, events.RemoveAsked(2, "r1", ("r1.core0",), "wait")))
    revoke = Revoke((1, 4), ("r1.core0",))
    assert run(machine, (3.1, revoke)) == [actions.TellRif(1, revoke)]


def test_a_rif_that_does_not_answer_a_revoke_in_time_is_replaced_with_all_it_had():
    machine = make()
    run(machine, *BOOT, (3.0, Revoke((1, 4), IDS)), (4.0, Revoke((1, 5), ("r1.node",))))
    assert machine.deadline() == 8.0
    run(machine, (5.0, events.RevokedBy(1, Revoked((1, 4), ("r1.core0",)))))
    assert machine.deadline() == 8.0
    run(machine, (5.0, events.RevokedBy(1, Revoked((1, 4), ("r1.node",)))))
    assert machine.deadline() == 9.0
    reason = "it did not say in time that revoked work has ended"
    assert run(machine, (9.0, Tick())) == [
        RifChanged(9.0, "r1", "anna", "lost", reason),
        actions.DropLink(1, reason),
        actions.TellRm(Coming("r1", CORES, "anna")),
        actions.TellRm(Removed(IDS, "lose")),
        actions.KillRif("r1", 1),
    ]


def test_nobody_waits_for_the_answer_to_a_revoke_of_what_was_removed():
    machine = make()
    run(machine, *BOOT, (3.0, Revoke((1, 4), ("r1.core0",))), (3.0, events.RemoveAsked(2, "r1", IDS)))
    run(machine, (3.0, events.ResourcesLeft(IDS)))
    assert machine.deadline() is None


def test_a_rif_whose_resources_the_rm_has_given_up_is_replaced_with_all_it_had():
    machine = make()
    reason = "it did not say in time that revoked work has ended"
    assert run(machine, *BOOT, (9.0, events.ResourcesLeft(("r1.core0",)))) == [
        RifChanged(9.0, "r1", "anna", "lost", reason),
        actions.DropLink(1, reason),
        actions.TellRm(Coming("r1", CORES, "anna")),
        actions.TellRm(Removed(("r1.node",), "lose")),
        actions.KillRif("r1", 1),
    ]
