"""The life of RIFs and jobs in the RTS machine: whole action lists (RTS-1, RTS-5)."""

from __future__ import annotations

import pytest

from gspc_trio.components.rif.messages import AddResources, RifHello, StopRif
from gspc_trio.components.rm.events import Added, Coming, JobJoined, Removed, Settled
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.actions import TellJobs, TellRif
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import RegisterJob, RifGone, RifUp
from gspc_trio.components.rts.state import Limits
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.resources import Resource
from gspc_trio.records.facts import JobChanged, RifChanged
from tests.components.rts.support import BOOT, CORES, HELLO, IDS, JOB, REPORT, make, run


def test_a_bootstrapped_rif_gets_its_hardware_and_is_then_announced_and_given_to_the_rm():
    machine = make()
    assert run(machine, BOOT[0]) == [
        actions.StartRif("r1", 1, "anna", "local", 0, {}),
        RifChanged(0.0, "r1", "anna", "starting"),
        actions.TellRm(Coming("r1", None, "anna")),
    ]
    assert run(machine, (0.5, JOB)) == [
        JobChanged(0.5, "j1", "running", "count"),
        actions.AcceptJob(9, "j1"),
        actions.TellRm(JobJoined("j1", 2.0)),
    ]
    assert run(machine, BOOT[1]) == [actions.AskRif(1, 1, AddResources(CORES))]
    assert machine.host_to_resource() == {}
    assert run(machine, BOOT[2]) == [
        RifChanged(2.0, "r1", "anna", "up"),
        TellJobs(("j1",), RifUp("r1", 1, "anna", "memory:r1", CORES)),
        actions.TellRm(Added(CORES, "anna")),
        actions.TellRm(Settled("r1")),
    ]
    assert run(machine, BOOT[3]) == [actions.Answer(1, actions.Bootstrapped({"anna": "r1"}, {}))]
    assert machine.host_to_resource() == {"anna": IDS}
    assert machine.deadline() is None


def test_a_job_that_joins_later_is_told_of_the_rifs_before_the_rm_knows_it():
    assert run(make(), *BOOT, (3.0, JOB)) == [
        JobChanged(3.0, "j1", "running", "count"),
        actions.AcceptJob(9, "j1"),
        TellJobs(("j1",), RifUp("r1", 1, "anna", "memory:r1", CORES)),
        actions.TellRm(JobJoined("j1", 2.0)),
    ]


def test_jobs_are_told_where_those_of_other_processes_reach_a_rif():
    inside, outside = "memory:r1", "ws://127.0.0.1:7"
    hello = events.RifConnected(1, RifHello("r1", 1, 7, "anna", inside, CORES, outside=outside))
    told = run(make(), BOOT[0], (0.5, JOB), (1.0, hello), BOOT[2])
    assert TellJobs(("j1",), RifUp("r1", 1, "anna", inside, CORES, outside=outside)) in told


def test_what_a_host_waits_for_is_told_until_it_is_up():
    machine = make()
    queued = events.RifWaits("r1", 1, "slurm job 7 is queued: Resources")
    run(machine, (0.0, events.BootstrapAsked(1, ("anna",))))
    told = [RifChanged(1.0, "r1", "anna", "starting", "slurm job 7 is queued: Resources")]
    assert run(machine, (1.0, queued)) == told
    assert run(machine, (2.0, queued)) == []
    assert run(machine, (2.0, events.RifWaits("r1", 2, "it is another"))) == []
    assert run(machine, (2.0, events.RifWaits("r9", 1, "it is nobody"))) == []
    run(machine, (3.0, HELLO))
    assert RifChanged(3.0, "r1", "anna", "up") in run(machine, (3.0, events.RifAnswered(1, 1, REPORT)))
    assert run(machine, (3.0, queued)) == []


def test_a_host_that_fails_is_reported_beside_those_that_came_up():
    machine = make()
    run(
        machine,
        (0.0, events.BootstrapAsked(1, ("anna", "bert"))),
        (1.0, HELLO),
        (1.0, events.RifAnswered(1, 1, REPORT)),
        (1.0, events.RmAnswered(Added(CORES, "anna"))),
    )
    assert run(machine, (2.0, events.RifEnded("r2", 1, "no such host"))) == [
        RifChanged(2.0, "r2", "bert", "lost", "no such host"),
        RifChanged(2.0, "r2", "bert", "failed", "no such host"),
        actions.Answer(1, actions.Bootstrapped({"anna": "r1"}, {"bert": "no such host"})),
        actions.TellRm(Settled("r2")),
    ]


def test_a_host_that_has_a_rif_is_not_given_a_second_one_but_a_failed_one_is_replaced():
    machine = make()
    run(machine, BOOT[0], (1.0, events.RifEnded("r1", 1, "broken")))
    assert run(machine, (2.0, events.BootstrapAsked(2, ("anna",)))) == [
        RifChanged(2.0, "r1", "anna", "down", "broken"),
        actions.StartRif("r2", 1, "anna", "local", 0, {}),
        RifChanged(2.0, "r2", "anna", "starting"),
        actions.TellRm(Coming("r2", None, "anna")),
    ]
    assert run(machine, (3.0, events.BootstrapAsked(3, ("anna",)))) == [
        actions.Answer(3, actions.Bootstrapped({}, {"anna": "anna has the RIF r2 already (starting)"}))
    ]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (events.BootstrapAsked(1, ("anna",), "ssh"), "there is no strategy 'ssh'; there are: local"),
        (events.BootstrapAsked(1, ()), "no host was named"),
        (events.BootstrapAsked(1, ("anna", "anna")), "hosts named twice: anna"),
        (events.BootstrapAsked(1, ("",)), "a host has no name"),
        (
            events.BootstrapAsked(1, ("anna",), "local", -1),
            "the number of cores is -1; it must not be negative",
        ),
        (
            events.BootstrapAsked(1, ("anna",), "local", 99999),
            "a host offers at most 4096 cores, not 99999: each has a process of its own",
        ),
        (events.TeardownAsked(1, ("r5",)), "there is no RIF r5; there are: none"),
        (events.AddAsked(1, "r5", CORES), "there is no RIF r5; there are: none"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(asked, reason):
    assert run(make(), (0.0, asked)) == [actions.QuestionRefused(1, reason)]


def test_a_rif_that_does_not_come_up_in_time_is_ended_and_the_answer_has_its_last_words():
    machine = make()
    run(machine, BOOT[0])
    assert machine.deadline() == 30.0
    assert run(machine, (30.0, Tick())) == [
        RifChanged(30.0, "r1", "anna", "lost", "it did not come up within 30 s"),
        actions.KillRif("r1", 1),
        actions.TellRm(Settled("r1")),
    ]
    assert run(machine, (31.0, events.RifEnded("r1", 1, "ImportError: trio"))) == [
        RifChanged(31.0, "r1", "anna", "failed", "it did not come up within 30 s; ImportError: trio"),
        actions.Answer(
            1, actions.Bootstrapped({}, {"anna": "it did not come up within 30 s; ImportError: trio"})
        ),
    ]


def test_hardware_that_makes_no_sense_fails_the_bootstrap():
    machine = make()
    bad = events.RifConnected(1, RifHello("r1", 1, 0, "anna", "memory:r1", (Resource("x.core0", "core"),)))
    reason = "its hardware makes no sense: resource ids of r1 begin with r1., not as in x.core0"
    assert run(machine, BOOT[0], (1.0, bad)) == [
        RifChanged(1.0, "r1", "anna", "lost", reason),
        actions.DropLink(1, reason),
        actions.KillRif("r1", 1),
        actions.TellRm(Settled("r1")),
    ]


def lost(machine: Rts, now: float = 10.0) -> list[object]:
    return run(machine, *BOOT, (3.0, JOB), (now, events.RifLost(1, "connection reset")))


def test_a_lost_rif_is_taken_from_jobs_and_rm_and_bootstrapped_again_with_what_it_had():
    machine = make()
    assert lost(machine) == [
        RifChanged(10.0, "r1", "anna", "lost", "connection reset"),
        TellJobs(("j1",), RifGone("r1", 1, "connection reset")),
        actions.TellRm(Coming("r1", CORES, "anna")),
        actions.TellRm(Removed(IDS, "lose")),
        actions.KillRif("r1", 1),
    ]
    assert machine.host_to_resource() == {}
    assert machine.deadline() is None, "the next one waits for the end of the old one"
    assert run(machine, (11.0, events.RifEnded("r1", 1, "killed"))) == [
        RifChanged(11.0, "r1", "anna", "lost", "connection reset; killed; it is tried again after 0.1 s")
    ]
    assert machine.deadline() == pytest.approx(11.1)
    assert run(machine, (11.1, Tick())) == [
        actions.StartRif("r1", 2, "anna", "local", 0, {}),
        RifChanged(11.1, "r1", "anna", "starting"),
    ]
    more = (*CORES, Resource("r1.core1", "core", ("r1.node",)))
    assert run(machine, (12.0, events.RifConnected(2, RifHello("r1", 2, 0, "anna", "memory:r1b", more)))) == [
        actions.AskRif(2, 2, AddResources(CORES))
    ]
    assert run(machine, (13.0, events.RifAnswered(2, 2, REPORT))) == [
        RifChanged(13.0, "r1", "anna", "up"),
        TellJobs(("j1",), RifUp("r1", 2, "anna", "memory:r1b", CORES)),
        actions.TellRm(Added(CORES, "anna")),
        actions.TellRm(Settled("r1")),
    ]


def test_the_end_of_the_process_alone_is_a_loss():
    machine = make()
    assert run(machine, *BOOT, (3.0, events.RifEnded("r1", 1, "exit status -9"))) == [
        actions.DropLink(1, "exit status -9"),
        actions.TellRm(Coming("r1", CORES, "anna")),
        actions.TellRm(Removed(IDS, "lose")),
        RifChanged(3.0, "r1", "anna", "lost", "exit status -9; it is tried again after 0.1 s"),
    ]
    assert run(machine, (3.0, events.RifLost(1, "late"))) == []


def lose_again(machine: Rts, number: int) -> tuple[float, float, list[object]]:
    """Let the next incarnation begin and end; return its pause, when it ended, and what came of that."""
    (rif,) = machine.rifs
    before, due = rif.timer_at - rif.pause_s, machine.deadline()
    assert run(machine, (due, Tick())) == [
        actions.StartRif("r1", number, "anna", "local", 0, {}),
        RifChanged(due, "r1", "anna", "starting"),
    ]
    return due - before, due + 1.0, run(machine, (due + 1.0, events.RifEnded("r1", number, "no memory")))


def test_a_rif_that_is_lost_again_and_again_is_tried_again_for_as_long_as_nobody_takes_it_down():
    machine = make()
    lost(machine)
    run(machine, (11.0, events.RifEnded("r1", 1)))
    pauses_s = []
    for number in range(2, 12):
        waited_s, at_s, out = lose_again(machine, number)
        pauses_s.append(waited_s)
        pause_s = machine.rifs[0].pause_s
        assert out == [
            RifChanged(at_s, "r1", "anna", "lost", f"no memory; it is tried again after {pause_s:g} s"),
        ]
        assert machine.rifs[0].retry_in_s(at_s + 1.0) == pytest.approx(pause_s - 1.0)
    assert pauses_s == pytest.approx([0.1, 1, 5, 10, 20, 40, 60, 60, 60, 60])
    at_s = machine.deadline() - 7.0
    assert run(machine, (at_s, events.TeardownAsked(2, ("r1",)))) == [
        RifChanged(at_s, "r1", "anna", "down", "no memory"),
        actions.Answer(2, actions.TornDown(("r1",))),
        actions.TellRm(Settled("r1")),
    ]
    assert machine.deadline() is None


def test_a_person_who_has_mended_a_host_need_not_wait_for_its_next_try():
    machine = make()
    lost(machine)
    run(machine, (11.0, events.RifEnded("r1", 1)))
    assert run(machine, (11.05, events.BootstrapAsked(2, ("anna",)))) == [
        actions.StartRif("r1", 2, "anna", "local", 0, {}),
        RifChanged(11.05, "r1", "anna", "starting"),
    ], "who waits for it goes on waiting"
    assert run(machine, (12.0, events.RifEnded("r1", 2, "no memory"))) == [
        actions.Answer(2, actions.Bootstrapped({}, {"anna": "no memory"})),
        RifChanged(12.0, "r1", "anna", "lost", "no memory; it is tried again after 0.1 s"),
    ]


def test_a_lost_host_that_is_asked_for_anew_in_another_way_may_fail_like_a_new_one():
    machine = make()
    lost(machine)
    run(machine, (11.0, events.RifEnded("r1", 1)))
    assert run(machine, (11.05, events.BootstrapAsked(2, ("anna",), "local", 4))) == [
        actions.StartRif("r1", 2, "anna", "local", 4, {}),
        RifChanged(11.05, "r1", "anna", "starting"),
        actions.TellRm(Coming("r1", None, "anna")),
    ]
    assert run(machine, (12.0, events.RifEnded("r1", 2, "no memory")))[-2:] == [
        actions.Answer(2, actions.Bootstrapped({}, {"anna": "no memory"})),
        actions.TellRm(Settled("r1")),
    ]


def test_a_rif_that_was_up_for_long_has_all_its_tries_again():
    machine = make()
    lost(machine)
    run(
        machine,
        (11.0, events.RifEnded("r1", 1)),
        (12.0, Tick()),
        (13.0, events.RifConnected(2, RifHello("r1", 2, 0, "anna", "a", ()))),
        (13.0, events.RifAnswered(2, 2, REPORT)),
        (73.0, events.RifEnded("r1", 2)),
    )
    assert machine.deadline() == pytest.approx(73.1)


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (
            events.RifConnected(5, RifHello("r1", 1, 0, "anna", "a", ())),
            "r1 incarnation 1 is refused: the newest is 2",
        ),
        (
            events.RifConnected(5, RifHello("r7", 1, 0, "anna", "a", ())),
            "r7 incarnation 1 is refused: there is no such RIF",
        ),
    ],
)
def test_a_late_old_incarnation_is_refused(hello, reason):
    machine = make()
    lost(machine)
    run(machine, (11.0, events.RifEnded("r1", 1)), (12.0, Tick()))
    assert run(machine, (12.5, hello)) == [actions.DropLink(5, reason)]


def test_a_second_connection_of_the_same_incarnation_is_refused():
    machine = make()
    again = events.RifConnected(2, RifHello("r1", 1, 0, "anna", "a", ()))
    assert run(machine, *BOOT[:2], (1.5, again)) == [
        actions.DropLink(2, "r1 incarnation 1 is refused: it is connected already")
    ]
    assert run(machine, BOOT[2], (3.0, again)) == [
        actions.DropLink(2, "r1 incarnation 1 is refused: it is up")
    ]
    assert run(machine, (4.0, events.RifLost(2, "dropped"))) == []


AGAIN = events.RifConnected(2, RifHello("r1", 1, 0, "anna", "a", ()))
"""A process that its strategy has started as well, and ends when it is refused."""


def test_an_end_that_may_be_that_of_a_refused_process_leaves_time_to_the_other_one():
    """Else the next incarnation would be at work beside one that stands still and goes on later."""
    machine = make()
    run(machine, *BOOT, (3.0, AGAIN), (3.5, events.RifLost(2, "dropped")))
    assert run(machine, (4.0, events.RifEnded("r1", 1, "refused"))) == [
        actions.DropLink(1, "refused"),
        actions.TellRm(Coming("r1", CORES, "anna")),
        actions.TellRm(Removed(IDS, "lose")),
        RifChanged(4.0, "r1", "anna", "lost", "refused; it is tried again after 30 s"),
    ]
    assert machine.deadline() == 4.0 + Limits().unwatched_end_s
    assert run(machine, (34.0, Tick()))[0] == actions.StartRif("r1", 2, "anna", "local", 0, {})
    run(machine, (35.0, events.RifEnded("r1", 2)))
    assert machine.deadline() == 36.0, "this time there was only one"


def test_a_refused_process_that_ends_does_not_end_the_teardown_of_the_other_one():
    machine = make()
    run(machine, *BOOT, (3.0, AGAIN), (4.0, events.TeardownAsked(3, ("r1",))))
    assert run(machine, (4.2, events.RifEnded("r1", 1))) == []
    assert actions.Answer(3, actions.TornDown(("r1",))) in run(machine, (4.5, events.RifLost(1, "gone")))


def test_teardown_asks_the_rif_to_stop_and_kills_it_after_a_second():
    machine = make()
    assert run(machine, *BOOT, (3.0, JOB), (4.0, events.TeardownAsked(2, ("r1", "r1")))) == [
        TellJobs(("j1",), RifGone("r1", 1, "it was taken down")),
        actions.TellRm(Removed(IDS, "lose")),
        TellRif(1, StopRif()),
    ]
    assert machine.deadline() == 5.0
    assert run(machine, (4.5, events.RifLost(1, "closed"))) == []
    assert run(machine, (5.0, Tick())) == [actions.KillRif("r1", 1)]
    assert run(machine, (5.1, events.RifEnded("r1", 1))) == [
        RifChanged(5.1, "r1", "anna", "down", "it was taken down"),
        actions.Answer(2, actions.TornDown(("r1",))),
    ]


def test_teardown_while_starting_answers_both_questions():
    machine = make()
    assert run(machine, BOOT[0], (1.0, events.TeardownAsked(2, ("r1",)))) == [
        actions.Answer(1, actions.Bootstrapped({}, {"anna": "it was taken down"})),
        actions.KillRif("r1", 1),
        actions.TellRm(Settled("r1")),
    ]


def test_teardown_of_a_rif_that_waits_for_its_next_try_is_done_at_once():
    machine = make()
    lost(machine)
    assert run(machine, (11.0, events.RifEnded("r1", 1)), (11.0, events.TeardownAsked(2, ("r1",)))) == [
        RifChanged(11.0, "r1", "anna", "down", "connection reset"),
        actions.Answer(2, actions.TornDown(("r1",))),
        actions.TellRm(Settled("r1")),
    ]


def test_stop_takes_everything_down_and_says_when_nothing_is_left():
    machine = make()
    assert run(machine, *BOOT, (4.0, events.Stop())) == [
        actions.TellRm(Removed(IDS, "lose")),
        TellRif(1, StopRif()),
    ]
    assert run(machine, (4.1, events.BootstrapAsked(2, ("bert",)))) == [
        actions.QuestionRefused(2, "the run-time system is stopping")
    ]
    assert run(machine, (4.1, JOB)) == [actions.RefuseJob(9, "the run-time system is stopping")]
    assert run(machine, (4.2, events.RifEnded("r1", 1))) == [
        actions.DropLink(1, "it was taken down"),
        RifChanged(4.2, "r1", "anna", "down", "it was taken down"),
        actions.Stopped(),
    ]
    assert run(machine, (5.0, JOB)) == [actions.RefuseJob(9, "the run-time system is stopping")]


def test_stop_without_rifs_is_over_at_once():
    assert run(make(), (0.0, events.Stop())) == [actions.Stopped()]


def test_jobs_and_rifs_are_limited():
    machine = Rts(frozenset({"local"}), Limits(jobs_max=1, rifs_max=1))
    run(machine, (0.0, JOB))
    assert run(machine, (0.0, events.JobConnected(10, RegisterJob("b", 1, "anna")))) == [
        actions.RefuseJob(10, "there may be 1 jobs at one time, and there are")
    ]
    assert run(machine, (0.0, events.BootstrapAsked(1, ("anna", "bert")))) == [
        actions.QuestionRefused(1, "there may be 1 RIFs; there are 0, 2 more were asked for")
    ]


@pytest.mark.parametrize("event", ["?", events.RifEnded("r1", 2), events.RifEnded("r2", 1)])
def test_an_illegal_event_changes_nothing(event):
    machine = make()
    run(machine, *BOOT)
    with pytest.raises(IllegalEvent):
        machine.handle(event, 3.0)
    machine.check()
    assert machine.host_to_resource() == {"anna": IDS}
