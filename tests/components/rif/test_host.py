"""A RIF and its workers as one machine: each test compares whole action lists."""

from __future__ import annotations

import pytest

from gspc_trio.components.rif.events import AtWorker, Called, ReplyToCall, StartFailed, StopWorker, Unfit
from gspc_trio.components.rif.host import RifHost
from gspc_trio.components.rif.messages import AddResources, DagReport, RemoveResources
from gspc_trio.components.rm.messages import Revoke, Revoked
from gspc_trio.components.worker.events import (
    Compute,
    Computed,
    ComputeKilled,
    ComputeLost,
    ForgetCompute,
    Kill,
)
from gspc_trio.components.worker.messages import Finished, Submission, Submit
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.task import Outcome, Reason, TaskError, TaskOptions
from gspc_trio.records.facts import WorkerChanged
from tests.components.rif.support import CODE, CORE0, DAG, JOB, endpoint, refused, sub, submit


def host_bench() -> RifHost:
    host = RifHost("r1", "host", "ws://x")
    for event in (Called(1, AddResources(DAG)), JOB, CODE):
        host.handle(event, 0.0)
    return host


def test_the_machines_of_a_host_work_together() -> None:
    host = host_bench()
    hurried = Submission(1, 1, 7, (), TaskOptions(timeout_s=5.0))
    event = Submit("j1", (1, 5), ("r1.core0",), (hurried,))
    assert host.handle(event, 1.0) == [
        WorkerChanged(1.0, "r1.core0", "busy", "j1"),
        Compute("r1.core0", "j1", (hurried,)),
    ]
    host.check()
    assert host.deadline() == 6.0
    assert host.handle(Tick(), 6.0) == [Kill("r1.core0", "j1")]
    assert host.deadline() is None
    assert host.handle(Revoke((1, 5), ("r1.core0",)), 6.5) == []
    error = TaskError("timeout", "it ran longer than its timeout of 5 s")
    assert host.handle(AtWorker("r1.core0", ComputeKilled()), 7.0) == [
        Finished("j1", "r1.core0", (Outcome(1, 1, Reason.FAILED, error=error, duration_s=6.0),)),
        WorkerChanged(7.0, "r1.core0", "idle"),
        Revoked((1, 5), ("r1.core0",)),
    ]
    host.check()


def test_what_the_worker_refuses_leaves_nothing_behind_in_the_rif() -> None:
    host = host_bench()
    wrong_class = Submit("j1", (1, 5), ("r1.core0",), (sub(1),), "gpu")
    why = "r1.core0 is a core, but the tasks are for a gpu"
    assert host.handle(wrong_class, 0.0) == [refused(wrong_class, why)]
    host.check()
    with pytest.raises(IllegalEvent):
        host.handle(submit(CORE0, 6, 1, 1), 0.0)
    host.check()
    assert host.handle(submit(CORE0, 7, 1), 0.0)[-1] == Compute("r1.core0", "j1", (sub(1),))


def test_remove_of_a_busy_worker_ends_in_a_report() -> None:
    host = host_bench()
    host.handle(submit(CORE0, 5), 0.0)
    assert host.handle(Called(2, RemoveResources(("r1.core0",))), 0.0) == [Kill("r1.core0", "j1")]
    error = TaskError("lost", "its resource was removed")
    assert host.handle(AtWorker("r1.core0", ComputeKilled()), 2.0) == [
        Finished("j1", "r1.core0", (Outcome(1, 1, Reason.LOST, error=error, duration_s=2.0),)),
        WorkerChanged(2.0, "r1.core0", "stopped"),
        StopWorker("r1.core0"),
        ReplyToCall(2, DagReport((endpoint(CORE0),))),
    ]
    host.check()
    assert host.handle(AtWorker("r1.core0", Computed(())), 3.0) == []


DIED = StartFailed("compute process 17 was killed by SIGKILL", died=True)


def test_a_host_that_cannot_start_a_process_is_unfit_at_once() -> None:
    assert host_bench().handle(StartFailed("too many open files"), 1.0) == [Unfit("too many open files")]


def test_processes_that_die_before_they_take_a_task_make_a_host_unfit_from_the_second_on() -> None:
    host = host_bench()
    unfit = Unfit(
        "compute processes die before they take a task, the last: compute process 17 was killed by SIGKILL"
    )
    assert [host.handle(DIED, now) for now in (1.0, 2.0, 9.0)] == [[], [unfit], [unfit]]


def test_a_host_where_tasks_end_is_fit() -> None:
    host = host_bench()
    host.handle(DIED, 1.0)
    host.handle(submit(CORE0, 1, 1), 1.0)
    error = TaskError("ValueError", "boom")
    host.handle(AtWorker("r1.core0", Computed((Outcome(1, 1, Reason.FAILED, error=error),))), 2.0)
    assert host.handle(DIED, 3.0) == []


def test_a_process_that_dies_of_its_task_says_nothing_about_its_host() -> None:
    host = host_bench()
    for attempt in (1, 2, 3):
        host.handle(Submit("j1", (1, 5), ("r1.core0",), (Submission(1, attempt, 7),)), 1.0)
        lost = Outcome(1, attempt, Reason.LOST, error=TaskError("lost", "killed by SIGSEGV"))
        assert host.handle(AtWorker("r1.core0", ComputeLost("killed by SIGSEGV")), 1.0) == [
            Finished("j1", "r1.core0", (lost,)),
            WorkerChanged(1.0, "r1.core0", "lost", "j1", detail="killed by SIGSEGV"),
            ForgetCompute("r1.core0", "j1"),
            WorkerChanged(1.0, "r1.core0", "idle"),
        ]
    host.check()


def test_what_a_process_has_not_taken_is_given_back_when_it_dies_and_nothing_is_lost() -> None:
    host = host_bench()
    once = tuple(Submission(task, 1, 7, (), TaskOptions(may_rerun=False)) for task in (1, 2))
    host.handle(Submit("j1", (1, 5), ("r1.core0",), once), 1.0)
    back = Outcome(1, 1, Reason.RETURNED, error=TaskError("refused", "killed by SIGKILL"))
    assert host.handle(AtWorker("r1.core0", ComputeLost("killed by SIGKILL", begun=False)), 1.0) == [
        Finished("j1", "r1.core0", (back,)),
        WorkerChanged(1.0, "r1.core0", "lost", "j1", detail="killed by SIGKILL"),
        ForgetCompute("r1.core0", "j1"),
        Compute("r1.core0", "j1", once[1:]),
    ]
    host.check()
