"""Cores that waiting tasks lend: added, rested, used again and removed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gspc_trio.components.rif.messages import AddResources, DagReport, RemoveResources
from gspc_trio.components.rm.events import Added, Removed, Rested, Resumed
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.lending import LENT_KEEP_S, RETRY_S
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import RegisterJob
from gspc_trio.core.machine import Tick
from gspc_trio.core.nested import LENT_MAX
from gspc_trio.core.resources import Resource
from tests.components.rts.support import BOOT, JOB, make, run

LENT = Resource("r1.core0+1", "core", ("r1.node",))


def lend(count: int, job: str = "j1", resource_id: str = "r1.core0") -> events.LendAsked:
    return events.LendAsked(job, resource_id, count)


@pytest.fixture
def rts() -> Rts:
    """With one RIF, one job, and a core that was lent."""
    machine = make()
    assert run(machine, *BOOT, (2.0, JOB), (3.0, lend(1))) == [actions.AskRif(1, 2, AddResources((LENT,)))]
    told = [one for one in run(machine, (3.0, events.RifAnswered(1, 2, DagReport(())))) if is_told(one)]
    assert told == [actions.TellRm(Added((LENT,), "anna"))]
    assert run(machine, (3.0, events.RmAnswered(Added((LENT,), "anna")))) == []
    return machine


def is_told(action: object) -> bool:
    return isinstance(action, actions.TellRm)


def ids(machine: Rts) -> list[str]:
    return list(machine.rifs[0].resources)


def test_a_core_is_there_once_more_while_a_task_waits(rts: Rts) -> None:
    assert ids(rts) == ["r1.node", "r1.core0", "r1.core0+1"]
    assert run(rts, (4.0, lend(1))) == []
    assert run(rts, (4.0, lend(0))) == [actions.TellRm(Rested(("r1.core0+1",)))]
    assert run(rts, (4.5, lend(1))) == [actions.TellRm(Resumed(("r1.core0+1",)))]


def test_a_task_on_a_lent_core_lends_the_same_core_again(rts: Rts) -> None:
    (asked,) = run(rts, (4.0, lend(2, resource_id="r1.core0+1")))
    assert asked == actions.AskRif(1, 3, AddResources((replace(LENT, resource_id="r1.core0+2"),)))


def test_what_is_not_lent_for_a_while_is_removed(rts: Rts) -> None:
    run(rts, (4.0, lend(0)))
    assert rts.deadline() == 4.0 + LENT_KEEP_S
    assert run(rts, (6.0, Tick())) == [actions.TellRm(Removed(("r1.core0+1",), "wait"))]
    (asked,) = [one for one in run(rts, (7.0, lend(1))) if isinstance(one, actions.AskRif)]
    second = (replace(LENT, resource_id="r1.core0+2"),)
    assert asked.message == AddResources(second)
    run(rts, (7.0, events.RifAnswered(1, 3, DagReport(()))))
    run(rts, (7.0, events.RmAnswered(Added(second, "anna"))))
    left = run(rts, (8.0, events.ResourcesLeft(("r1.core0+1",))))
    assert actions.AskRif(1, 4, RemoveResources(("r1.core0+1",))) in left
    assert run(rts, (8.0, events.RifAnswered(1, 4, DagReport(())))) == []
    assert ids(rts) == ["r1.node", "r1.core0", "r1.core0+2"]
    assert rts.deadline() is None


def test_what_a_job_lends_goes_with_it(rts: Rts) -> None:
    told = [one for one in run(rts, (4.0, events.JobServerGone("j1", "it was killed"))) if is_told(one)]
    assert actions.TellRm(Rested(("r1.core0+1",))) in told
    assert run(rts, (5.0, lend(1))) == []  # it is no job


def test_a_job_that_is_awaited_lends_nothing(rts: Rts) -> None:
    joined = events.JobConnected(10, RegisterJob("kept", 71, "anna", grace_s=30.0))
    run(rts, (4.0, lend(0)), (4.0, joined), (4.0, lend(1, "j2")))
    told = run(rts, (5.0, events.JobServerGone("j2", "it was killed")))
    assert actions.TellRm(Rested(("r1.core0+1",))) in told
    assert rts.jobs[-1].away_until == 35.0


def test_a_host_that_was_lost_comes_back_without_what_was_lent(rts: Rts) -> None:
    run(rts, (4.0, events.RifLost(1, "it was cut off")))
    assert [one.resource_id for one in rts.rifs[0].wanted or ()] == ["r1.node", "r1.core0"]
    assert run(rts, (4.0, lend(0))) == []


def test_what_cannot_be_added_is_asked_for_again(rts: Rts) -> None:
    run(rts, (4.0, lend(2)))
    assert run(rts, (4.0, events.RifRefused(1, 3, "there is no room"))) == []
    assert rts.deadline() == 4.0 + RETRY_S
    (asked,) = run(rts, (4.0 + RETRY_S, Tick()))
    assert isinstance(asked, actions.AskRif)


def test_nobody_lends_without_bound(rts: Rts) -> None:
    asked = 0
    todo = run(rts, (4.0, lend(1_000_000)))
    while questions := [one for one in todo if isinstance(one, actions.AskRif)]:
        (question,) = questions
        assert isinstance(question.message, AddResources)
        asked += 1
        run(rts, (4.0, events.RifAnswered(1, question.call, DagReport(()))))
        todo = run(rts, (4.0, events.RmAnswered(Added(question.message.resources, "anna"))))
    assert asked == LENT_MAX - 1
