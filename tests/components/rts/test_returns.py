"""RIFs and jobs that come back to the RTS machine, or to the one in its place."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gspc_trio.components.rif.messages import Claim, RifHello, StopRif
from gspc_trio.components.rm.events import (
    Added,
    Awaited,
    Claimed,
    Coming,
    JobGone,
    JobJoined,
    JobWeighed,
    Removed,
    Settled,
)
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import (
    Demand,
    Grant,
    GrantsAhead,
    Interrupt,
    Lapsed,
    Refuse,
    Revoke,
    Revoked,
)
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.actions import TellJobs, TellRif
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import RegisterJob, RifUp
from gspc_trio.components.rts.state import Limits, RifState
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.task import CORE
from gspc_trio.records.facts import JobChanged, RifChanged
from tests.components.rts.support import BOOT, CORES, HELLO, IDS, JOB, REPORT, back_as

RESTORED = events.RifRestored("r1", 1, "anna", "local", 0, {})
BACK = events.RifConnected(
    5, RifHello("r1", 1, 7, "anna", "memory:r1", CORES, (Claim("j1", (1, 4), ("r1.core0",)),))
)
HELD = Grant("j1", CORE, (1, 4), ("r1.core0",))
JOB_BACK = back_as(events.JobConnected(19, RegisterJob("count", 70, "anna", "memory:j", 2.0)), "j1", (HELD,))
UP = RifChanged(5.0, "r1", "anna", "up")
THERE = TellJobs(("j1",), RifUp("r1", 1, "anna", "memory:r1", CORES))


def run(*steps: tuple[float, Any], grace_s: float = 30.0) -> tuple[Rts, list[Any]]:
    """Give events to a new machine; return it and the actions of the last."""
    machine = Rts(frozenset({"local"}), Limits(grace_s=grace_s))
    out: list[Any] = []
    for now, event in steps:
        out = machine.handle(event, now)
        machine.check()
    return machine, out


def test_a_rif_that_cannot_be_heard_is_awaited_with_all_it_has() -> None:
    machine, out = run(*BOOT, (3.0, JOB), (4.0, events.RifLost(1, "nothing heard")))
    assert out == [RifChanged(4.0, "r1", "anna", "away", "nothing heard")]
    assert machine.deadline() == 34.0
    assert machine.handle(BACK, 5.0) == [UP, THERE]
    machine.check()
    assert machine.deadline() is None
    assert machine.handle(events.RifLost(1, "late"), 6.0) == [], "the old connection"


def test_a_rif_that_does_not_come_back_is_lost_as_usual() -> None:
    machine, _ = run(*BOOT, (3.0, JOB), (4.0, events.RifLost(1, "nothing heard")))
    out = machine.handle(Tick(), 34.0)
    machine.check()
    assert actions.TellRm(Removed(IDS, "lose")) in out
    assert actions.KillRif("r1", 1) in out
    late = machine.handle(BACK, 35.0)
    assert late == [TellRif(5, StopRif())]


def test_without_a_grace_nobody_is_awaited() -> None:
    _, out = run(*BOOT, (4.0, events.RifLost(1, "reset")), grace_s=0.0)
    assert actions.KillRif("r1", 1) in out
    _, out = run(*BOOT, (3.0, JOB), (4.0, JOB_BACK), grace_s=0.0)
    assert out == [
        actions.RefuseJob(19, "this run-time system was started without --state: it takes no job back")
    ]


def test_a_rif_whose_process_has_ended_is_not_awaited() -> None:
    _, out = run(*BOOT, (4.0, events.RifLost(1, "closed")), (4.1, events.RifEnded("r1", 1, "killed")))
    assert actions.TellRm(Removed(IDS, "lose")) in out


def test_a_rif_that_something_is_asked_of_is_not_awaited() -> None:
    """What it has when it comes back would not be known."""
    _, out = run(*BOOT, (3.0, events.RemoveAsked(2, "r1", ("r1.core0",))), (4.0, events.RifLost(1, "reset")))
    assert actions.KillRif("r1", 1) in out


def test_a_rif_out_of_sight_is_asked_to_stop_when_it_is_not_needed() -> None:
    unseen = events.RifEnded("r1", 1, "ssh lost the connection", adrift=True)
    machine, out = run(*BOOT, (3.0, unseen))
    assert out == [], "it can be heard still"
    assert machine.handle(events.TeardownAsked(3, ("r1",)), 4.0)[-1] == TellRif(1, StopRif())
    machine.check()
    assert machine.handle(events.RifLost(1, "closed"), 4.5)[-1] == actions.Answer(
        3, actions.TornDown(("r1",))
    )
    machine, _ = run(*BOOT, (3.0, unseen), (4.0, events.TeardownAsked(3, ("r1",))))
    assert machine.handle(Tick(), 5.0)[-1] == actions.Answer(3, actions.TornDown(("r1",)))
    machine.check()
    machine, _ = run(*BOOT, (3.0, unseen), (4.0, events.RifLost(1, "reset")))
    assert machine.handle(events.TeardownAsked(3, ("r1",)), 5.0)[-1] == actions.Answer(
        3, actions.TornDown(("r1",))
    )
    machine.check()


def test_a_rif_out_of_sight_that_was_given_up_may_take_its_time_to_end() -> None:
    unseen = events.RifEnded("r1", 1, "ssh lost the connection", adrift=True)
    machine, _ = run(*BOOT, (3.0, events.RifLost(1, "nothing heard")), (4.0, unseen), (33.0, Tick()))
    assert machine.deadline() == 33.0 + Limits().adrift_end_s
    (starting, *_) = machine.handle(Tick(), 33.0 + Limits().adrift_end_s)
    assert starting == actions.StartRif("r1", 2, "anna", "local", 0, {})


def test_revoked_resources_end_the_wait() -> None:
    machine, _ = run(*BOOT, (4.0, events.RifLost(1, "nothing heard")))
    out = machine.handle(events.ResourcesLeft(("r1.core0",)), 10.0)
    machine.check()
    assert actions.TellRm(Removed(("r1.node",), "lose")) in out


def test_a_new_connection_before_the_end_of_the_old_one() -> None:
    machine, out = run(*BOOT, (3.0, JOB), (5.0, BACK))
    assert out == [RifChanged(5.0, "r1", "anna", "away", "it has connected again"), UP, THERE]
    machine.check()


@pytest.mark.parametrize(
    "wrong",
    [
        events.RifConnected(5, RifHello("r2", 1, 0, "anna", "memory:r1", CORES, ())),
        events.RifConnected(5, RifHello("r1", 2, 0, "anna", "memory:r1", CORES, ())),
        events.RifConnected(5, RifHello("r1", 1, 0, "anna", "memory:r1", CORES[:1], ())),
    ],
)
def test_another_rif_is_told_to_stop(wrong: events.RifConnected) -> None:
    machine, out = run(*BOOT, (3.0, events.RifLost(1, "reset")), (5.0, wrong))
    assert out[0] == TellRif(5, StopRif())
    machine.check()


def test_a_twin_at_another_address_does_not_push_out_the_one_that_is_up() -> None:
    """Both had been started as the same incarnation; the second was refused, and came back with nothing."""
    machine, out = run(
        *BOOT, (3.0, JOB), (5.0, events.RifConnected(5, RifHello("r1", 1, 0, "anna", "memory:twin", (), ())))
    )
    assert out == [TellRif(5, StopRif())]
    assert machine.rifs[0].state is RifState.UP
    machine.check()


# Another run-time system in the place of the first ----------------------------------------------------------


HAS_COME_BACK = [
    UP,
    JobChanged(5.0, "j1", "running", "j1"),
    actions.TellRm(JobJoined("j1")),
    actions.TellRm(Claimed("j1", (HELD,))),
    actions.TellRm(Added(CORES, "anna")),
    actions.TellRm(Settled("r1")),
]


def test_the_rifs_of_before_are_awaited_and_bring_what_they_have() -> None:
    machine, out = run((0.0, RESTORED))
    assert out == [actions.TellRm(Coming("r1", None, "anna"))]
    assert machine.deadline() == 30.0
    assert machine.handle(BACK, 5.0) == HAS_COME_BACK
    machine.check()
    assert machine.handle(JOB_BACK, 6.0) == [
        JobChanged(6.0, "j1", "running", "count"),
        actions.AcceptJob(19, "j1", back=True),
        THERE,
        actions.TellRm(JobWeighed("j1", 2.0, 0, "")),
        actions.TellRm(Claimed("j1", (HELD,), whole=True)),
    ]
    machine.check()
    assert machine.deadline() is None


def test_a_job_of_which_a_rif_spoke_first_gets_its_priority_when_it_is_back_itself() -> None:
    machine, _ = run((0.0, RESTORED), (5.0, BACK))
    back = machine.handle(replace(JOB_BACK, wish=replace(JOB_BACK.wish, priority=3)), 6.0)
    assert actions.TellRm(JobWeighed("j1", 2.0, 3, "")) in back
    assert machine.jobs[0].priority == 3


def test_what_goes_on_for_a_job_of_which_a_rif_spoke_first_gives_it_its_priority() -> None:
    machine, _ = run((0.0, RESTORED), (5.0, BACK))
    machine.skip_names(1, 1)
    after = events.JobConnected(20, RegisterJob("count", 9, "h", weight=2.0, adopts="j1", priority=3))
    assert actions.TellRm(JobWeighed("j1", 2.0, 3, "")) in machine.handle(after, 6.0)
    machine.check()


def test_what_is_in_use_on_a_rif_that_is_back_is_given_to_nobody() -> None:
    """A job that was back sooner got it, and the task of the other one there was ended and begun again."""
    machine, _ = run()
    rm = ResourceManager(2)
    early = back_as(events.JobConnected(18, RegisterJob("sooner", 71, "anna")), "j2")
    given: list[Any] = []
    for event in (RESTORED, early, Demand("j2", CORE, 1, NO_GRANT), BACK, JOB_BACK):
        if isinstance(event, Demand):
            given += rm.handle(event, 1.0)
            continue
        for action in machine.handle(event, 1.0):
            if isinstance(action, actions.TellRm):
                given += rm.handle(action.event, 1.0)
                rm.check()
    assert not [action for action in given if isinstance(action, Grant | Lapsed | Refuse)]
    assert [entry.held for entry in rm.status().jobs.values()] == [{}, {"core": 1}]


def test_a_job_whose_job_server_is_known_to_have_ended_is_not_awaited() -> None:
    machine, out = run((0.0, RESTORED), (0.0, events.JobServerEnded("j1")))
    assert out == []
    assert machine.handle(BACK, 5.0) == HAS_COME_BACK
    machine.check()
    assert machine.deadline() == 5.0
    assert machine.handle(Tick(), 5.0) == [
        actions.CloseJobAt((5,), "j1"),
        actions.TellRm(JobGone("j1")),
        JobChanged(5.0, "j1", "stopped", "j1", "its job server ended while there was no run-time system"),
    ]
    machine.check()


def test_a_job_that_comes_back_all_the_same_goes_on() -> None:
    machine, _ = run((0.0, RESTORED), (0.0, events.JobServerEnded("j1")), (5.0, BACK), (5.0, Tick()))
    assert machine.handle(JOB_BACK, 6.0)[:2] == [
        JobChanged(6.0, "j1", "running", "count"),
        actions.AcceptJob(19, "j1", back=True),
    ]
    machine.check()


def test_a_job_may_be_back_before_the_rifs() -> None:
    machine, out = run((0.0, RESTORED), (1.0, JOB_BACK))
    assert out == [
        JobChanged(1.0, "j1", "running", "count"),
        actions.AcceptJob(19, "j1", back=True),
        actions.TellRm(JobJoined("j1", 2.0)),
        actions.TellRm(Claimed("j1", (HELD,), whole=True)),
    ]
    assert machine.handle(BACK, 5.0)[:3] == [UP, THERE, actions.TellRm(Added(CORES, "anna"))]
    machine.check()


def test_who_does_not_come_back_is_given_up() -> None:
    machine, _ = run((0.0, RESTORED), (5.0, BACK))
    assert machine.handle(Tick(), 35.0) == [
        actions.CloseJobAt((5,), "j1"),
        actions.TellRm(JobGone("j1")),
        JobChanged(35.0, "j1", "stopped", "j1", "nobody went on for it within 30 s"),
    ]
    machine, _ = run((0.0, RESTORED), (1.0, JOB_BACK), (30.0, Tick()))
    assert machine.rifs[0].state is RifState.LOST
    assert machine.handle(Tick(), 38.0)[0] == actions.StartRif("r1", 2, "anna", "local", 0, {})
    machine.check()


def test_a_rif_that_is_known_to_have_ended_is_started_again_at_once() -> None:
    gone = events.RifRestored("r1", 1, "anna", "local", 0, {}, gone=True)
    machine, _ = run((0.0, gone))
    assert machine.deadline() == 0.0
    assert machine.handle(Tick(), 0.0)[0] == actions.StartRif("r1", 2, "anna", "local", 0, {})
    machine.check()
    with pytest.raises(IllegalEvent):
        machine.handle(RESTORED, 1.0)


FRESH = events.RifRestored("r1", 1, "anna", "local", 0, {}, fresh=True)


def test_a_rif_that_was_being_started_starts_on() -> None:
    """Its first word was refused, and its host was out of use for more than a minute."""
    machine, out = run((0.0, FRESH), (1.0, HELLO))
    assert RifChanged(1.0, "r1", "anna", "starting") in out
    assert machine.rifs[0].state is RifState.STARTING
    out = machine.handle(events.RifAnswered(1, 1, REPORT), 2.0)
    machine.check()
    assert RifChanged(2.0, "r1", "anna", "up") in out
    assert machine.handle(replace(HELLO, link=2), 3.0)[0] == actions.DropLink(
        2, "r1 incarnation 1 is refused: it is up"
    )
    machine.check()


def test_a_rif_that_was_being_started_may_have_ended() -> None:
    """It ended when it found nobody there: before it is let in it awaits nobody."""
    machine, _ = run((0.0, FRESH))
    assert machine.deadline() == Limits().fresh_s
    machine.handle(Tick(), 5.0)
    assert machine.deadline() == 5.1
    assert machine.handle(Tick(), 5.1)[0] == actions.StartRif("r1", 2, "anna", "local", 0, {})
    machine.check()
    assert machine.handle(HELLO, 5.2)[0] == actions.DropLink(
        1, "r1 incarnation 1 is refused: the newest is 2"
    )


def test_a_rif_that_came_up_in_the_last_moment_comes_back() -> None:
    """Nobody had noted that it was up."""
    machine, out = run((0.0, FRESH), (1.0, BACK))
    assert RifChanged(1.0, "r1", "anna", "up") in out
    machine.handle(events.RifLost(5, "nothing heard"), 2.0)
    machine.check()
    assert machine.deadline() == 31.0, "it is awaited as the job is that it has spoken of"


def test_no_name_is_given_twice() -> None:
    machine, _ = run((0.0, RESTORED))
    machine.skip_names(4, 6)
    (start, *_) = machine.handle(events.BootstrapAsked(1, ("berta",)), 1.0)
    assert start.rif_id == "r5"
    assert actions.AcceptJob(9, "j7") in machine.handle(JOB, 2.0)
    assert machine.named == (5, 7)


def test_a_job_that_was_cut_off_comes_back_under_its_name() -> None:
    silent = events.JobServerGone("j1", "nothing heard for 6 s", silent=True, link=9)
    machine, out = run(*BOOT, (3.0, JOB), (4.0, silent))
    assert out == [actions.TellRm(Interrupt("j1"))]
    assert machine.handle(JOB_BACK, 5.0)[1] == actions.AcceptJob(19, "j1", back=True)
    machine.check()
    machine, _ = run(*BOOT, (3.0, JOB), (5.0, JOB_BACK))
    assert machine.handle(silent, 6.0) == [], "of the connection before"
    assert [job.link for job in machine.jobs] == [19]
    machine.check()


def test_a_job_that_is_gone_without_silence_is_over() -> None:
    machine, _ = run(*BOOT, (3.0, JOB), (4.0, events.JobServerGone("j1", "closed", link=9)))
    assert machine.jobs == ()


def test_work_of_a_job_that_ended_meanwhile_is_ended() -> None:
    machine, _ = run(*BOOT, (4.0, events.RifLost(1, "nothing heard")))
    assert machine.handle(BACK, 5.0) == [UP, actions.CloseJobAt((5,), "j1")]


REVOKE = Revoke((1, 4), ("r1.core0",))
AWAITED = actions.TellRm(Awaited((1, 4), 44.0))
AGAIN = actions.TellRif(5, REVOKE)


def test_what_is_revoked_while_a_rif_is_away_is_said_when_it_is_back() -> None:
    machine, out = run(*BOOT, (4.0, events.RifLost(1, "nothing heard")), (5.0, REVOKE))
    assert out == [AWAITED], "the RM gives it all the time that it is awaited, and the usual time to answer"
    assert AGAIN in machine.handle(BACK, 33.0)
    machine.check()
    assert machine.deadline() == 38.0
    revoked = events.RevokedBy(5, Revoked((1, 4), ("r1.core0",)))
    assert machine.handle(revoked, 33.5) == [actions.TellRm(Revoked((1, 4), ("r1.core0",)))]
    machine.check()
    assert machine.deadline() is None


def test_what_was_being_revoked_when_a_rif_went_away_is_said_again() -> None:
    machine, out = run(*BOOT, (3.0, REVOKE), (4.0, events.RifLost(1, "nothing heard")))
    assert out == [AWAITED, RifChanged(4.0, "r1", "anna", "away", "nothing heard")]
    assert AGAIN in machine.handle(BACK, 5.0)
    machine.check()


def test_nothing_is_left_to_say_to_a_rif_that_does_not_come_back() -> None:
    machine, _ = run(*BOOT, (4.0, events.RifLost(1, "nothing heard")), (5.0, REVOKE), (34.0, Tick()))
    machine.check()
    assert machine.rifs[0].unsaid == {}


def test_rifs_hear_how_high_grants_count_when_they_come_when_they_are_back_and_when_that_changes() -> None:
    machine = Rts(frozenset({"local"}), Limits(grace_s=30.0))
    assert machine.handle(GrantsAhead((7, 100)), 0.0) == []
    machine.handle(BOOT[0][1], 0.0)
    assert actions.TellRif(HELLO.link, GrantsAhead((7, 100))) in machine.handle(HELLO, 1.0)
    more = GrantsAhead((7, 200))
    assert machine.handle(more, 2.0) == [actions.TellRif(HELLO.link, more)]
    restored = Rts(frozenset({"local"}), Limits(grace_s=30.0))
    restored.handle(RESTORED, 0.0)
    restored.handle(GrantsAhead((8, 100)), 0.0)
    assert actions.TellRif(BACK.link, GrantsAhead((8, 100))) in restored.handle(BACK, 1.0)
