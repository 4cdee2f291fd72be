"""A job that is resumed while its run-time system comes back, too: who is back first makes no difference."""

from __future__ import annotations

import math
from typing import Any

from msgspec.structs import replace

from gspc_trio.components.rif.messages import Claim, RifHello
from gspc_trio.components.rm.events import Claimed, JobGone, JobJoined
from gspc_trio.components.rm.messages import Grant
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import RegisterJob
from gspc_trio.components.rts.state import Limits
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.machine import Tick
from gspc_trio.core.task import CORE
from gspc_trio.records.facts import JobChanged
from tests.components.rts.support import CORES, back_as

RESTORED = events.RifRestored("r1", 1, "anna", "local", 0, {})
BACK = events.RifConnected(
    5, RifHello("r1", 1, 7, "anna", "memory:r1", CORES, (Claim("j1", (1, 4), ("r1.core0",)),))
)
SUCCESSOR = events.JobConnected(19, RegisterJob("flow", 71, "head", grace_s=30.0, adopts="j1"))
SUCCESSOR_BACK = back_as(SUCCESSOR, "j2")
CLAIMED = actions.TellRm(Claimed("j1", (Grant("j1", CORE, (1, 4), ("r1.core0",)),)))
KEPT = ("j1", "j2", math.inf)


def run(*steps: tuple[float, Any], named: int = 1) -> tuple[Rts, list[Any]]:
    """Give events to the machine of a run-time system that was started again; return what it did."""
    machine = Rts(frozenset({"local"}), Limits(grace_s=30.0))
    machine.skip_names(1, named)
    done: list[Any] = []
    for now, event in ((0.0, RESTORED), *steps):
        done += machine.handle(event, now)
        machine.check()
    return machine, done


def orphans(machine: Rts) -> list[tuple[str, str, float | None]]:
    return [(job.job, job.successor, job.away_until) for job in machine.jobs if job.successor]


def test_a_successor_may_be_there_before_the_rif_that_has_the_work() -> None:
    """It was told that there was nothing to go on for, and ran all again that was at work there."""
    machine, done = run((1.0, SUCCESSOR), (5.0, BACK))
    assert actions.AcceptJob(19, "j2", "j1", rifs=("r1",)) in done
    assert done.count(actions.TellRm(JobJoined("j1"))) == 1
    assert CLAIMED in done
    assert orphans(machine) == [KEPT]
    assert machine.handle(Tick(), 40.0) == [], "it lasts as long as its successor wants"
    assert actions.TellRm(JobGone("j1")) in machine.handle(events.TakeoverDone("j2", "j1"), 50.0)


def test_a_successor_may_be_there_after_it() -> None:
    machine, done = run((1.0, BACK), (5.0, SUCCESSOR))
    assert actions.AcceptJob(19, "j2", "j1", rifs=("r1",)) in done
    assert CLAIMED in done
    assert orphans(machine) == [KEPT]


def test_a_job_is_awaited_of_which_nothing_is_at_work_but_its_results() -> None:
    """Its last task ended before its RIF was back: what it had brought was thrown away, and run again."""
    kept = events.RifConnected(
        5, RifHello("r1", 1, 7, "anna", "memory:r1", CORES, (Claim("j1", NO_GRANT, ()),))
    )
    machine, _ = run((1.0, kept))
    assert [(job.job, job.away_until) for job in machine.jobs] == [("j1", 31.0)]
    machine, done = run((1.0, kept), (5.0, SUCCESSOR))
    assert actions.AcceptJob(19, "j2", "j1", rifs=("r1",)) in done
    machine, done = run((1.0, kept), (31.0, Tick()))
    assert actions.CloseJobAt((5,), "j1") in done
    assert machine.jobs == ()


def test_what_no_rif_brings_ends_with_the_takeover() -> None:
    machine, _ = run((1.0, SUCCESSOR), (31.0, Tick()))
    out = machine.handle(events.TakeoverDone("j2", "j1"), 32.0)
    assert JobChanged(32.0, "j1", "stopped", "j1", "j2 went on for it") in out
    machine.check()


def test_a_successor_of_before_is_one_still() -> None:
    """Nobody knew that j1 had a successor: what it had at work was ended after 30 s, whatever it was."""
    for steps in (((1.0, SUCCESSOR_BACK), (2.0, BACK)), ((1.0, BACK), (2.0, SUCCESSOR_BACK))):
        machine, done = run(*steps, named=2)
        assert actions.AcceptJob(19, "j2", back=True) in done
        assert CLAIMED in done
        assert orphans(machine) == [KEPT]
        assert machine.deadline() == math.inf


def test_who_is_back_is_nobodys_successor_whose_job_is_there() -> None:
    first = back_as(events.JobConnected(18, RegisterJob("flow", 70, "anna", grace_s=30.0)), "j1")
    machine, _ = run((1.0, first), (2.0, SUCCESSOR_BACK), named=2)
    assert orphans(machine) == []


def test_a_job_that_never_was_or_is_over_has_no_successor() -> None:
    for never in ("j2", "j9", "r1", "j", "", "j01x"):
        _, done = run(
            (1.0, events.JobConnected(19, RegisterJob("flow", 71, "head", grace_s=30.0, adopts=never)))
        )
        assert actions.AcceptJob(19, "j2") in done
    empty = events.RifConnected(5, RifHello("r1", 1, 0, "anna", "memory:r1", CORES, ()))
    _, done = run((1.0, empty), (2.0, SUCCESSOR))
    assert actions.AcceptJob(19, "j2") in done, "nobody is awaited who could have something of it"


def test_who_goes_on_for_a_job_may_be_away_for_a_while() -> None:
    """What it had adopted was ended at once, and begun again by the successor, which lived."""
    silent = events.JobServerGone("j2", "nothing heard for 6 s", silent=True, link=19)
    machine, done = run((1.0, BACK), (2.0, SUCCESSOR), (3.0, silent))
    assert actions.TellRm(JobGone("j1")) not in done
    assert orphans(machine) == [KEPT]
    again = back_as(replace(SUCCESSOR, link=20), "j2")
    machine.handle(again, 4.0)
    machine.check()
    assert orphans(machine) == [KEPT]
    assert machine.deadline() == math.inf


def test_a_successor_that_does_not_come_back_ends_with_what_it_went_on_for() -> None:
    machine, _ = run((1.0, BACK), (2.0, SUCCESSOR), (3.0, events.JobServerGone("j2", "killed")))
    out = machine.handle(Tick(), 33.0)
    machine.check()
    ended = [action.event.job for action in out if isinstance(action, actions.TellRm)]
    assert ended == ["j1", "j2"]
    assert machine.jobs == ()


def test_the_successor_of_a_successor_that_is_away_has_what_that_had_itself() -> None:
    """The hosts have ended what the one before it went on for, with its connection."""
    third = events.JobConnected(21, RegisterJob("flow", 72, "head", grace_s=30.0, adopts="j2"))
    machine, _ = run((1.0, BACK), (2.0, SUCCESSOR), (3.0, events.JobServerGone("j2", "killed")))
    out = machine.handle(third, 4.0)
    machine.check()
    assert actions.TellRm(JobGone("j1")) in out
    assert orphans(machine) == [("j2", "j3", math.inf)]


def test_who_comes_back_when_another_goes_on_for_it_is_refused() -> None:
    back = back_as(events.JobConnected(23, RegisterJob("flow", 70, "head", grace_s=30.0)), "j1")
    machine, done = run((1.0, BACK), (5.0, SUCCESSOR), (6.0, back))
    assert done[-1] == actions.RefuseJob(23, "job j2 has gone on for it")
    assert orphans(machine) == [KEPT]
