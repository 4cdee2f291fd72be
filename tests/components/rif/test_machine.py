"""The RIF's machine: each test compares whole action lists (RIF-1)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gspc_trio.components.rif.events import (
    Called,
    CheckGrant,
    DropJob,
    EndJob,
    ForgetJob,
    ForwardToWorker,
    ReplyError,
    ReplyToCall,
    StartWorker,
    Stop,
    Stopped,
    StopWorker,
)
from gspc_trio.components.rif.messages import AddResources, Claim, DagReport, Hold, RemoveResources
from gspc_trio.components.rm.messages import GrantsAhead, Revoke, Revoked
from gspc_trio.components.worker.events import Assign, EndWork, WorkerIdle, WorkerStopped
from gspc_trio.components.worker.messages import Cancel, DefineCode, OpenJob, Submit, TakeBack
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.staging import StageLimits
from gspc_trio.core.task import Reason
from tests.components.rif.support import (
    CODE,
    CORE0,
    CORE1,
    DAG,
    JOB,
    NODE,
    SOCKET,
    Bench,
    endpoint,
    sub,
    submit,
)


@pytest.fixture
def bench() -> Bench:
    return Bench(Called(1, AddResources(DAG)), JOB, CODE, OpenJob("j2"), DefineCode("j2", 7, b""))


def test_add_starts_a_worker_for_each_resource_and_says_how_to_reach_them() -> None:
    bench = Bench()
    assert bench(Called(1, AddResources((CORE0, SOCKET, NODE)))) == [
        StartWorker(NODE),
        StartWorker(SOCKET),
        StartWorker(CORE0),
        ReplyToCall(1, DagReport((endpoint(CORE0), endpoint(SOCKET), endpoint(NODE)))),
    ]
    assert bench(Called(2, AddResources((CORE1,)))) == [
        StartWorker(CORE1),
        ReplyToCall(2, DagReport((endpoint(CORE1),))),
    ]


def test_a_wrong_add_or_remove_is_refused_and_changes_nothing(bench: Bench) -> None:
    orphan = Resource("r1.gpu0", "gpu", ("r1.socket9",))
    new = Resource("r1.core2", "core", ("r1.socket0",))
    assert bench(Called(2, AddResources((new, CORE0)))) == [ReplyError(2, "r1.core0 is there already")]
    assert bench(Called(3, AddResources((new, orphan)))) == [
        ReplyError(3, "r1.gpu0 has the parent r1.socket9, which is not in the DAG")
    ]
    assert bench(Called(4, RemoveResources(("r1.core0", "r1.core7")))) == [
        ReplyError(4, "r1 has no resource r1.core7")
    ]
    assert bench(Called(5, AddResources((new,)))) == [
        StartWorker(new),
        ReplyToCall(5, DagReport((endpoint(new),))),
    ]


def test_remove_answers_when_the_workers_have_stopped(bench: Bench) -> None:
    bench.takes(submit(CORE0, 1))
    closing = EndWork(Reason.LOST, "its resource was removed", close=True)
    assert bench(Called(2, RemoveResources(("r1.core0", "r1.core1")))) == [
        ForwardToWorker("r1.core0", EndWork(Reason.LOST, "its resource was removed")),
        ForwardToWorker("r1.core0", closing),
        ForwardToWorker("r1.core1", closing),
    ]
    assert bench(Called(3, AddResources((CORE1,)))) == [ReplyError(3, "r1.core1 is still being removed")]
    bench.refuses(submit(CORE1, 2), "r1.core1 is being removed")
    assert bench(WorkerStopped("r1.core1")) == [StopWorker("r1.core1")]
    assert bench(WorkerIdle("r1.core0")) == []
    assert bench(WorkerStopped("r1.core0")) == [
        StopWorker("r1.core0"),
        ReplyToCall(2, DagReport((endpoint(CORE0), endpoint(CORE1)))),
    ]
    bench.refuses(submit(CORE0, 3), "r1 has no resource r1.core0")


def test_a_resource_that_comes_back_honours_no_grant_from_before(bench: Bench) -> None:
    bench.takes(submit(CORE1, 8))
    bench(Called(2, RemoveResources(("r1.core0",))))
    bench(WorkerStopped("r1.core0"))
    assert bench(Revoke((1, 9), ("r1.core0",))) == [Revoked((1, 9), ("r1.core0",))]
    bench.refuses(submit(NODE, 10, more=("r1.core0",)), "r1 has no resource r1.core0")
    bench(Called(3, AddResources((CORE0,))))
    older = "r1.core0: grant (1, 9) was revoked, or is older than the resource"
    bench.refuses(submit(CORE0, 9), older, ("r1.core0", 9, 0))
    assert bench.hears("r1.core0", 9, 0, newest=0) == []
    bench.refuses(submit(CORE0, 9), older, ("r1.core0", 9, 0))
    bench.takes(submit(CORE0, 10))


def test_a_resource_that_comes_after_a_made_up_grant_is_given_out_under_lower_ones(bench: Bench) -> None:
    bench.takes(submit(CORE1, 80))
    new = Resource("r1.core2", "core", ("r1.socket0",))
    bench(Called(2, AddResources((new,))))
    older = "r1.core2: grant (1, {}) was revoked, or is older than the resource"
    bench.refuses(submit(new, 9, job="j2"), older.format(9), ("r1.core2", 9, 0))
    assert bench.hears("r1.core2", 9, 0, newest=9) == []
    bench.refuses(submit(new, 8), older.format(8), ("r1.core2", 8, 0))
    bench.takes(submit(new, 9, job="j2"))
    assert bench(Revoke((1, 10), ("r1.core2",)))
    assert bench.hears("r1.core2", 9, 0, newest=10) == []
    bench.refuses(submit(new, 10), older.format(10))


def test_grants_of_a_removed_parent_still_count_for_its_children(bench: Bench) -> None:
    bench.takes(submit(NODE, 8))
    bench(WorkerIdle("r1.node"))
    bench(Called(2, RemoveResources(("r1.node",))))
    bench(WorkerStopped("r1.node"))
    bench.refuses(submit(CORE0, 7), "r1.core0: grant (1, 7) was revoked, or is older than the resource")
    bench.takes(submit(CORE0, 9))


def test_a_parent_can_be_removed_before_its_children_and_come_back(bench: Bench) -> None:
    bench.takes(submit(CORE0, 1))
    bench(Called(2, RemoveResources(("r1.socket0",))))
    bench(WorkerStopped("r1.socket0"))
    assert bench(Called(3, AddResources((SOCKET,)))) == [
        StartWorker(SOCKET),
        ReplyToCall(3, DagReport((endpoint(SOCKET),))),
    ]
    # What works below the new socket still counts as being in its way.
    assert bench(submit(SOCKET, 2))[0] == CheckGrant("r1.socket0", (1, 2), 1)
    assert bench.hears("r1.socket0", 2, 1, newest=2) == [
        ForwardToWorker("r1.core0", EndWork(Reason.LOST, "grant (1, 1) was overtaken by grant (1, 2)"))
    ]


def test_submits_under_lapsed_grants_are_refused_and_siblings_are_not_touched(bench: Bench) -> None:
    bench.takes(submit(CORE0, 5))
    bench(WorkerIdle("r1.core0"))
    newer = "grant (1, 4) is older than (1, 5), which was used on it or a relative"
    bench.refuses(submit(CORE0, 4), f"r1.core0: {newer}", ("r1.core0", 5, 1))
    bench.refuses(submit(SOCKET, 4), f"r1.socket0: {newer}", ("r1.core0", 5, 1))
    bench.refuses(submit(NODE, 4), f"r1.node: {newer}", ("r1.core0", 5, 1))
    assert bench.hears("r1.core0", 5, 1, newest=5) == []
    bench.refuses(submit(NODE, 4), f"r1.node: {newer}", ("r1.core0", 5, 1))
    bench.takes(submit(CORE1, 4))
    bench(WorkerIdle("r1.core1"))
    bench.takes(submit(NODE, 6))
    bench(WorkerIdle("r1.node"))
    newer = "grant (1, 5) is older than (1, 6), which was used on it or a relative"
    bench.refuses(submit(CORE0, 5), f"r1.core0: {newer}", ("r1.node", 6, 1))
    # A restarted RM has a higher epoch.
    bench.takes(Submit("j1", (2, 1), ("r1.core0",), (sub(1),)))


def test_a_grant_that_was_never_given_is_refused_and_keeps_nobody_from_its_resource(bench: Bench) -> None:
    bench.takes(submit(CORE1, 900))  # before anything was said
    assert bench(GrantsAhead((1, 1000))) == []
    bench.refuses(submit(CORE0, 1001), "r1.core0: grant (1, 1001) was never given")
    assert bench(Hold("j2", (1, 10**15), ("r1.core0",))) == []
    later = replace(submit(CORE0, 1), grant_id=(2, 1))
    bench.refuses(later, "r1.core0: grant (2, 1) was never given")
    bench.takes(submit(CORE0, 5))
    bench(WorkerIdle("r1.core0"))
    assert bench(GrantsAhead((2, 10))) == []  # of one that was started in its place
    bench.takes(submit(CORE0, 999))
    bench(WorkerIdle("r1.core0"))
    bench.takes(replace(submit(CORE0, 1, 2), grant_id=(2, 10)))


def test_a_newer_grant_ends_what_still_runs_under_an_older_one_and_has_to_come_again(bench: Bench) -> None:
    bench.takes(submit(CORE0, 5))
    newer = submit(NODE, 6, job="j2")
    in_the_way = "r1.core0 still works for job j1 under grant (1, 5)"
    bench.refuses(newer, in_the_way, ("r1.node", 6, 2))
    bench.takes(submit(CORE0, 5, 3))
    bench.refuses(newer, in_the_way, ("r1.node", 6, 2))  # the answer may not have come
    overtaken = EndWork(Reason.LOST, "grant (1, 5) was overtaken by grant (1, 6)")
    assert bench.hears("r1.node", 6, 2, newest=7) == [ForwardToWorker("r1.core0", overtaken)]
    assert bench.hears("r1.node", 6, 2, newest=7) == []
    bench.refuses(newer, in_the_way)
    older = "grant (1, 5) is older than (1, 6), which was used on it or a relative"
    bench.refuses(submit(CORE0, 5, 2), f"r1.core0: {older}", ("r1.node", 6, 2))
    bench(WorkerIdle("r1.core0"))
    bench.takes(newer)


def test_who_would_overtake_with_a_made_up_grant_is_sent_away_and_nobody_else_notices(bench: Bench) -> None:
    bench.takes(submit(CORE0, 5))
    bench.takes(submit(CORE1, 6, job="j2"))
    in_the_way = "r1.core0 still works for job j1 under grant (1, 5)"
    bench.refuses(submit(CORE0, 10, job="j2"), in_the_way, ("r1.core0", 10, 2))
    never = "r1.core0: grant (1, 10) was never given"
    assert bench.hears("r1.core0", 10, 2, newest=5) == [
        DropJob("j2", never),
        ForwardToWorker("r1.core1", EndWork(Reason.CANCELLED, never)),
        ForgetJob("j2"),
    ]
    assert bench.hears("r1.core0", 10, 2, newest=5) == []
    bench(OpenJob("j2"))
    assert bench.hears("r1.core0", 10, 2, newest=5) == [], "another connection of the job has not said it"
    bench.takes(submit(CORE0, 5, 2))


def test_what_was_used_under_a_made_up_grant_is_undone_when_a_lower_one_comes(bench: Bench) -> None:
    bench.takes(submit(CORE0, 10, job="j2", more=("r1.core1",)))
    older = "grant (1, 5) is older than (1, 10), which was used on it or a relative"
    bench.refuses(submit(NODE, 5), f"r1.node: {older}", ("r1.core0", 10, 2), ("r1.core1", 10, 2))
    never = "r1.core0: grant (1, 10) was never given"
    assert bench.hears("r1.core0", 10, 2, newest=3) == [
        DropJob("j2", never),
        ForwardToWorker("r1.core0", EndWork(Reason.CANCELLED, never)),
        ForgetJob("j2"),
    ]
    assert bench.hears("r1.core1", 10, 2, newest=4) == []
    bench(WorkerIdle("r1.core0"))
    older = "grant (1, 2) is older than (1, 3), which was used on it or a relative"
    bench.refuses(submit(CORE0, 2), f"r1.core0: {older}", ("r1.core0", 3, 2))
    bench.takes(submit(NODE, 5))
    bench(WorkerIdle("r1.node"))
    bench.takes(submit(CORE0, 10))


def test_a_late_answer_changes_nothing_when_the_grant_has_been_given_since(bench: Bench) -> None:
    bench.takes(submit(CORE0, 10, job="j2"))
    older = "grant (1, 5) is older than (1, 10), which was used on it or a relative"
    bench.refuses(submit(CORE0, 5), f"r1.core0: {older}", ("r1.core0", 10, 2))
    bench(WorkerIdle("r1.core0"))
    bench.takes(submit(CORE0, 10))
    assert bench.hears("r1.core0", 10, 2, newest=9)[0] == DropJob(
        "j2", "r1.core0: grant (1, 10) was never given"
    )
    bench.takes(submit(CORE0, 10, 2))
    assert bench.hears("r1.core9", 10, 1, newest=0) == []  # it is gone


def test_what_two_jobs_use_under_one_made_up_grant_is_undone_for_both(bench: Bench) -> None:
    bench.takes(submit(CORE0, 10))
    assert bench(Hold("j2", (1, 10), ("r1.core0",))) == []
    never = "r1.core0: grant (1, 10) was never given"
    assert bench.hears("r1.core0", 10, 2, newest=5) == [
        DropJob("j2", never),
        ForgetJob("j2"),
        ForwardToWorker("r1.core0", EndWork(Reason.LOST, never)),
    ]


def test_more_submits_under_the_same_grant_are_passed_on(bench: Bench) -> None:
    bench.takes(submit(CORE0, 5, 1))
    bench.takes(submit(CORE0, 5, 2, 3))
    bench.refuses(submit(CORE0, 5, 4, job="j2"), "r1.core0 still works for job j1 under grant (1, 5)")


def test_a_grant_of_several_resources_takes_them_all(bench: Bench) -> None:
    both = submit(CORE0, 5, more=("r1.core1", "r2.core0"))
    bench.takes(both)
    bench.refuses(submit(CORE1, 5), "r1.core0 still works for job j1 under grant (1, 5)")
    bench.refuses(
        submit(CORE1, 4),
        "r1.core1: grant (1, 4) is older than (1, 5), which was used on it or a relative",
        ("r1.core1", 5, 1),
    )
    lost = EndWork(Reason.LOST, "grant (1, 5) was revoked")
    assert bench(Revoke((1, 5), ("r1.core1",))) == [ForwardToWorker("r1.core0", lost)]
    assert bench(WorkerIdle("r1.core0")) == [Revoked((1, 5), ("r1.core1",))]
    bench.takes(submit(CORE1, 6))


def test_removal_of_a_part_ends_the_work_and_waits_for_it(bench: Bench) -> None:
    bench.takes(submit(CORE0, 5, more=("r1.core1",)))
    why = "its resource was removed"
    assert bench(Called(2, RemoveResources(("r1.core1",)))) == [
        ForwardToWorker("r1.core0", EndWork(Reason.LOST, why)),
        ForwardToWorker("r1.core1", EndWork(Reason.LOST, why, close=True)),
    ]
    assert bench(WorkerStopped("r1.core1")) == []
    assert bench(WorkerIdle("r1.core0")) == [
        StopWorker("r1.core1"),
        ReplyToCall(2, DagReport((endpoint(CORE1),))),
    ]


def test_held_resources_refuse_other_submits(bench: Bench) -> None:
    assert bench(Hold("j1", (1, 5), ("r1.core0", "r1.core9"))) == []
    older = "grant (1, 4) is older than (1, 5), which was used on it or a relative"
    bench.refuses(submit(CORE0, 4), f"r1.core0: {older}", ("r1.core0", 5, 1))
    bench.refuses(submit(CORE0, 5), "r1.core0 is held for a task of job j1 that runs elsewhere")
    bench.takes(submit(CORE0, 6, job="j2"))
    assert bench(Hold("j1", (1, 5), ("r1.core0",))) == [CheckGrant("r1.core0", (1, 6), 2)]
    assert bench.rif.claims == (Claim("j2", (1, 6), ("r1.core0",)),), "a hold of an old grant holds nothing"
    bench.takes(submit(CORE0, 6, 2, job="j2"))
    assert bench(Hold("j1", (1, 7), ("r1.core0",))) == [CheckGrant("r1.core0", (1, 7), 1)]
    overtaken = EndWork(Reason.LOST, "grant (1, 6) was overtaken by grant (1, 7)")
    assert bench.hears("r1.core0", 7, 1, newest=7) == [ForwardToWorker("r1.core0", overtaken)]
    bench(WorkerIdle("r1.core0"))
    older = "grant (1, 6) is older than (1, 7), which was used on it or a relative"
    bench.refuses(submit(CORE0, 6, job="j2"), f"r1.core0: {older}", ("r1.core0", 7, 1))


def test_parts_may_be_held_at_the_rif_that_runs_the_task(bench: Bench) -> None:
    hold = Hold("j1", (1, 5), ("r1.core1",))
    both = submit(CORE0, 5, more=("r1.core1",))
    assert bench(hold) == []
    bench.refuses(
        submit(CORE0, 5, more=("r1.core1",), job="j2"),
        "r1.core1 is held for a task of job j1 that runs elsewhere",
    )
    bench.takes(both)
    assert bench(hold) == []
    bench.takes(both)
    bench(WorkerIdle("r1.core0"))
    bench.takes(both)


def test_a_hold_ends_with_its_job_or_its_grant(bench: Bench) -> None:
    held = "r1.core0 is held for a task of job j1 that runs elsewhere"
    bench(Hold("j1", (1, 5), ("r1.core0",)))
    bench.refuses(submit(CORE0, 5, job="j2"), held)
    bench(EndJob("j1", "its job is over"))
    bench.takes(submit(CORE0, 5, job="j2"))
    bench(Hold("j2", (1, 6), ("r1.core1",)))
    assert bench(Revoke((1, 6), ("r1.core1",))) == [Revoked((1, 6), ("r1.core1",))]
    bench.refuses(
        submit(CORE1, 6, job="j2"), "r1.core1: grant (1, 6) was revoked, or is older than the resource"
    )


def test_revoke_answers_when_the_work_is_gone_and_touches_no_sibling(bench: Bench) -> None:
    bench.takes(submit(CORE0, 5))
    bench.takes(submit(CORE1, 4, 2))
    lost = EndWork(Reason.LOST, "grant (1, 6) was revoked")
    assert bench(Revoke((1, 6), ("r1.core0",))) == [ForwardToWorker("r1.core0", lost)]
    bench.refuses(submit(CORE0, 6), "r1.core0: grant (1, 6) was revoked, or is older than the resource")
    bench.takes(submit(CORE1, 4, 3))
    assert bench(Revoke((1, 5), ("r1.core0",))) == []
    assert bench(WorkerIdle("r1.core1")) == []
    assert bench(WorkerIdle("r1.core0")) == [Revoked((1, 6), ("r1.core0",)), Revoked((1, 5), ("r1.core0",))]
    bench.takes(submit(CORE0, 7))


def test_revoke_of_an_older_grant_leaves_newer_work_alone(bench: Bench) -> None:
    bench.takes(submit(CORE0, 5))
    assert bench(Revoke((1, 3), ("r1.core0", "r9.core0"))) == [Revoked((1, 3), ("r1.core0", "r9.core0"))]
    bench.takes(submit(CORE0, 5, 2))


def test_the_end_of_a_job_ends_its_work_and_no_others(bench: Bench) -> None:
    why = "its job server is gone"
    event = EndJob("j1", why)
    bench.takes(submit(CORE0, 5))
    bench.takes(submit(CORE1, 6, job="j2"))
    assert bench(event) == [ForwardToWorker("r1.core0", EndWork(Reason.CANCELLED, why)), ForgetJob("j1")]
    assert bench(event) == []
    assert bench(DefineCode("j1", 8, b"late")) == []
    assert bench(Hold("j1", (1, 9), ("r1.core0",))) == []
    bench.refuses(submit(CORE0, 7), "job j1 is not open at r1")
    bench.takes(submit(CORE1, 6, 2, job="j2"))


def test_a_job_server_that_connects_again_starts_afresh(bench: Bench) -> None:
    bench.takes(submit(CORE0, 5))
    again = "its job server has connected again"
    assert bench(JOB) == [ForwardToWorker("r1.core0", EndWork(Reason.CANCELLED, again)), ForgetJob("j1"), JOB]
    with pytest.raises(IllegalEvent, match="not defined"):
        bench(submit(CORE0, 5))
    assert bench(CODE) == [CODE]
    bench.refuses(submit(CORE0, 5, 9), "r1.core0 still works for job j1 under grant (1, 5)")
    bench(WorkerIdle("r1.core0"))
    bench.takes(submit(CORE0, 5, 9))


def test_cancel_and_take_back_reach_only_ones_own_work(bench: Bench) -> None:
    bench.takes(submit(CORE0, 5))
    for kind in (Cancel, TakeBack):
        event = kind("j1", "r1.core0", ((1, 1),))
        assert bench(event) == [ForwardToWorker("r1.core0", event)]
        assert bench(kind("j2", "r1.core0", ((1, 1),))) == []
        assert bench(kind("j1", "r1.core1", ((1, 1),))) == []
        assert bench(kind("j1", "r9.core1", ((1, 1),))) == []


def test_stop_closes_every_worker_and_takes_nothing_more(bench: Bench) -> None:
    bench.takes(submit(CORE0, 5))
    names = [resource.resource_id for resource in DAG]
    actions = bench(Stop("the RTS is gone"))
    closing = EndWork(Reason.LOST, "the RTS is gone", close=True)
    assert [
        a for a in actions if a != ForwardToWorker("r1.core0", EndWork(Reason.LOST, "the RTS is gone"))
    ] == [ForwardToWorker(name, closing) for name in names]
    assert bench(Stop("again")) == []
    bench.refuses(submit(CORE1, 6), "r1 is stopping: the RTS is gone")
    new = Resource("r1.core2", "core")
    assert bench(Called(2, AddResources((new,)))) == [ReplyError(2, "r1 is stopping: the RTS is gone")]
    bench(WorkerIdle("r1.core0"))
    for name in names[:-1]:
        assert bench(WorkerStopped(name)) == [StopWorker(name)]
    assert bench(WorkerStopped(names[-1])) == [StopWorker(names[-1]), Stopped("the RTS is gone")]


def test_a_rif_without_workers_stops_at_once() -> None:
    assert Bench()(Stop("asked to")) == [Stopped("asked to")]


def test_an_unknown_event_is_illegal(bench: Bench) -> None:
    with pytest.raises(IllegalEvent):
        bench(Tick())


def test_a_job_says_how_much_data_its_tasks_may_have_fetched(bench: Bench) -> None:
    bench(OpenJob("j3", stage=StageLimits(inputs_bytes_max=7)))
    bench(DefineCode("j3", 7, b""))
    event = submit(CORE0, 1, job="j3")
    assert bench(event) == [ForwardToWorker(event.resources[0], Assign(event, True, 7))]
