"""Jobs whose work goes on without their job server, in the RTS machine: kept, adopted, given up."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gspc_trio.components.rm.events import JobGone, JobJoined
from gspc_trio.components.rm.messages import Interrupt
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import JobEnd, RegisterJob
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.records.facts import JobChanged

FIRST = events.JobConnected(9, RegisterJob("flow", 70, "anna", grace_s=30.0))
AGAIN = events.JobConnected(10, RegisterJob("flow", 71, "anna", grace_s=30.0, adopts="j1"))
LOST = events.JobServerGone("j1", "connection reset")


def run(*steps: tuple[float, Any]) -> tuple[Rts, list[Any]]:
    """Give events to a new machine; return it and the actions of the last."""
    machine = Rts(frozenset({"local"}))
    out: list[Any] = []
    for now, event in steps:
        out = machine.handle(event, now)
        machine.check()
    return machine, out


def test_what_a_lost_job_holds_is_kept_for_its_grace() -> None:
    machine, out = run((0.0, FIRST), (1.0, LOST))
    assert out == [actions.TellRm(Interrupt("j1"))], "it asks for no more"
    assert machine.deadline() == 31.0
    assert [job.job for job in machine.jobs] == ["j1"]
    assert machine.handle(Tick(), 30.9) == []
    assert machine.handle(Tick(), 31.0) == [
        actions.TellRm(JobGone("j1")),
        JobChanged(31.0, "j1", "stopped", "flow", "nobody went on for it within 30 s"),
    ]
    machine.check()
    assert machine.deadline() is None


def test_a_job_that_leaves_or_asks_for_no_grace_is_over_at_once() -> None:
    assert run((0.0, FIRST), (1.0, events.JobServerGone("j1", left=JobEnd())))[0].jobs == ()
    plain = events.JobConnected(9, RegisterJob("flow", 70, "anna"))
    assert run((0.0, plain), (1.0, LOST))[0].jobs == ()
    assert run((0.0, FIRST), (1.0, events.Stop()), (1.0, LOST))[0].jobs == ()


def test_an_adopted_job_lasts_as_long_as_its_successor_wants() -> None:
    machine, out = run((0.0, FIRST), (1.0, LOST), (2.0, AGAIN))
    assert out == [
        JobChanged(2.0, "j2", "running", "flow"),
        actions.AcceptJob(10, "j2", "j1"),
        actions.TellRm(JobJoined("j2", 1.0)),
    ]
    assert machine.deadline() == math.inf
    assert machine.handle(events.TakeoverDone("j9", "j1"), 50.0) == [], "it is not the successor"
    assert machine.handle(events.TakeoverDone("j2", "j1"), 50.0) == [
        actions.TellRm(JobGone("j1")),
        JobChanged(50.0, "j1", "stopped", "flow", "j2 went on for it"),
    ]
    machine.check()
    assert machine.handle(events.TakeoverDone("j2", "j1"), 51.0) == [], "it is over already"


def test_an_orphan_ends_with_its_successor_at_the_latest() -> None:
    machine, out = run(
        (0.0, FIRST), (1.0, LOST), (2.0, AGAIN), (3.0, events.JobServerGone("j2", "killed, too"))
    )
    assert actions.TellRm(JobGone("j1")) in out
    assert [job.job for job in machine.jobs] == ["j2"], "the successor may have a successor of its own"


def test_what_is_not_there_or_has_a_successor_cannot_be_adopted() -> None:
    for adopts in ("j7", "j2", ""):
        _, out = run(
            (0.0, FIRST), (1.0, events.JobConnected(10, RegisterJob("flow", 71, "anna", adopts=adopts)))
        )
        assert actions.AcceptJob(10, "j2") in out
    third = events.JobConnected(11, RegisterJob("flow", 72, "anna", adopts="j1"))
    _, out = run((0.0, FIRST), (1.0, LOST), (2.0, AGAIN), (3.0, third))
    assert actions.AcceptJob(11, "j3") in out, "it has a successor"
    plain = events.JobConnected(9, RegisterJob("flow", 70, "anna"))
    _, out = run((0.0, plain), (1.0, AGAIN))
    assert actions.AcceptJob(10, "j2") in out, "it never asked to be"


def test_a_job_server_whose_host_has_crashed_is_followed_before_its_silence_is_noticed() -> None:
    machine, out = run((0.0, FIRST), (1.0, AGAIN))
    assert out[0] == actions.TellRm(Interrupt("j1"))
    assert actions.AcceptJob(10, "j2", "j1") in out
    assert machine.handle(LOST, 6.0) == []
    machine.check()
    assert machine.handle(events.TakeoverDone("j2", "j1"), 7.0)[0] == actions.TellRm(JobGone("j1"))


def test_an_orphan_ends_when_its_successor_is_followed_before_its_silence_is_noticed() -> None:
    """The successor's host had crashed: its own successor took its place, and j1 was awaited for ever."""
    next_one = events.JobConnected(11, RegisterJob("flow", 72, "anna", grace_s=30.0, adopts="j2"))
    machine, out = run((0.0, FIRST), (1.0, LOST), (2.0, AGAIN), (3.0, next_one))
    assert actions.TellRm(JobGone("j1")) in out
    assert actions.AcceptJob(11, "j3", "j2") in out
    machine.handle(events.TakeoverDone("j3", "j2"), 4.0)
    machine.check()
    assert [job.job for job in machine.jobs] == ["j3"]


def test_a_lost_job_cannot_be_lost_again() -> None:
    machine, _ = run((0.0, FIRST), (1.0, LOST))
    with pytest.raises(IllegalEvent, match="no job j1"):
        machine.handle(LOST, 2.0)
