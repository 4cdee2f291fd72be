"""The launcher (MEL-1 to MEL-3) as lists of actions: transitions, order, life, limits, late servers."""

from __future__ import annotations

from typing import TypeAlias

import pytest

from gspc_trio.components.launcher import jobs, machine
from gspc_trio.components.launcher.events import (
    CLIENT_TRANSITIONS,
    CancelAtEngine,
    CancelClient,
    Cancelled,
    ClientMoved,
    ClientState,
    CloseConnection,
    CommandExited,
    ConnectionShutdown,
    EndClient,
    KillCommands,
    LauncherResumed,
    Listed,
    ListEngine,
    ListFailed,
    Message,
    NewConnection,
    PingServer,
    RefuseConnection,
    RequestAccepted,
    RequestRefused,
    SendToServer,
    ServerPing,
    Signal,
    StatesFresh,
    StatesStale,
    Stop,
    StudyDone,
    SubmitClients,
    SubmitFailed,
    Submitted,
    SubmitToEngine,
)
from gspc_trio.components.launcher.jobs import SERVERS_KEPT
from gspc_trio.components.launcher.states import LauncherState
from gspc_trio.components.provision.batch import BatchState
from gspc_trio.core.machine import IllegalEvent
from tests.components.launcher.support import COMMAND, Study, job

QUEUED, HELD, RUNNING, ENDED = BatchState.QUEUED, BatchState.HELD, BatchState.RUNNING, BatchState.ENDED
LOST = "the server has ended its connection"
DONE = "the server says that the study is done"


def moved(client_id: int, state: ClientState, job_id: str = "", text: str = "", at: int = 1) -> SendToServer:
    return SendToServer(at, ClientMoved(client_id, state, job_id, text))


def accepted(request: int = 1) -> SendToServer:
    return SendToServer(1, RequestAccepted(request))


# Each transition --------------------------------------------------------------------------------------------


def test_each_transition_by_its_actions():
    table = {(one, other) for one, others in machine.TRANSITIONS.items() for other in others}
    walks = (
        done_study(),
        connected_early(),
        interrupted_studies(),
        lost_servers(),
        lost_server_at_the_limit(),
        resumed(),
    )
    assert set().union(*walks) == table


Walked: TypeAlias = set[tuple[LauncherState, LauncherState]]


def done_study() -> Walked:
    study = Study()
    assert study.tick() == [SubmitToEngine(0, "s-0", 0)]
    assert study.tell(Submitted(0, "10")) == []
    assert study.tell(NewConnection(1, 0, "10")) == []
    assert study.say(StudyDone()) == [
        CloseConnection(1, f"the study stops: {DONE}"),
        ListEngine(1, "10"),
    ]
    assert study.tell(Listed(1, (job(0, RUNNING),))) == []
    assert study.tick() == [ListEngine(2, "10")]
    assert study.now == 1.0
    assert study.tell(Listed(2, (job(0, ENDED, "COMPLETED"),))) == [Stop(0, DONE)]
    return study.machine.walked


def connected_early() -> Walked:
    study = Study().submitted()
    assert study.tell(NewConnection(1, 0, "10")) == []
    assert study.tell(Submitted(0, "10")) == []
    assert study.state == "serving"
    return study.machine.walked


def interrupted_studies() -> Walked:
    reason = "it got the signal 2"
    idle, submitting, awaiting = Study(), Study().submitted(), Study().awaiting()
    assert idle.tell(Signal(2)) == [Stop(130, reason)]
    assert submitting.tell(Signal(2)) == [KillCommands()]
    assert submitting.tell(Submitted(0, None)) == [CancelAtEngine(1, "s-0", "")]
    assert awaiting.tell(Signal(2)) == [CancelAtEngine(1, "s-0", "10")]
    assert awaiting.tell(Signal(2)) == []
    closed = RefuseConnection(1, f"the study stops: {reason}")
    assert awaiting.tell(NewConnection(1, 0)) == [closed]
    assert awaiting.tell(Cancelled(1)) == []
    assert awaiting.tell(NewConnection(1, 0)) == [CancelAtEngine(2, "s-0", "10"), closed]
    awaiting.now += 30
    assert awaiting.tick()[-1] == Stop(130, reason, ("s-0 (10)",))
    return idle.machine.walked | submitting.machine.walked | awaiting.machine.walked


def lost_servers() -> Walked:
    refused, ended = Study().submitted(), Study().awaiting()
    assert refused.tell(SubmitFailed(0, "no")) == []
    assert refused.tick() == [SubmitToEngine(1, "s-1", 1, (), (), True)]
    assert refused.now == 5
    failed = CommandExited(0, 1, is_gone=True)
    assert ended.tell(failed) == [SubmitToEngine(1, "s-1", 1, (), (), True)]
    return refused.machine.walked | ended.machine.walked


def resumed() -> Walked:
    study = Study().serving()
    assert study.tell(LauncherResumed()) == [ListEngine(1, "10")]
    assert study.tell(NewConnection(2, 0, "10")) == []
    return study.machine.walked


def lost_server_at_the_limit() -> Walked:
    study, interrupted = Study(job_limit=2).serving(), Study(job_limit=2).serving()
    for one in (study, interrupted):
        one.want(1)
        assert one.tell(ConnectionShutdown(1)) == [
            CloseConnection(1, f"another server takes over: {LOST}"),
            ListEngine(2, "10"),
            CancelAtEngine(3, "s-0", "10"),
        ]
        assert one.state == "restarting"
    gone = Listed(2, (job(0, ENDED, "CANCELLED"),))
    assert study.tell(gone) == [SubmitToEngine(4, "s-4", 1, (), (), True)]
    assert study.tell(Submitted(1, "11")) == [CancelAtEngine(5, "s-1", "11")]
    assert interrupted.tell(Signal(2)) == [KillCommands()]
    return study.machine.walked | interrupted.machine.walked


CLIENT_PAIRS = [(one, other) for one, others in CLIENT_TRANSITIONS.items() for other in sorted(others)]
AT_ENGINE = {ClientState.QUEUED: QUEUED, ClientState.HELD: HELD, ClientState.RUNNING: RUNNING}


@pytest.mark.parametrize(("one", "other"), CLIENT_PAIRS)
def test_each_transition_of_a_client_is_told(one: ClientState, other: ClientState):
    study = Study(job_limit=2 if one is ClientState.POSTPONED else 3).serving()
    if one is ClientState.POSTPONED:
        study.want(6)
    study.want(7)
    uid = 1
    if one in AT_ENGINE:
        study.tell(Submitted(uid, None))
        study.listed(job(0, RUNNING), job(uid, AT_ENGINE[one]))
        assert study.told[-1] == ClientMoved(7, one, "11", study.told[-1].text)
    before = len(study.told)
    if other is ClientState.CANCELLED:
        study.say(CancelClient(2, 7))
    if one is ClientState.POSTPONED:
        study.tell(SubmitFailed(1, "no"))
    elif other in AT_ENGINE and one in AT_ENGINE:
        study.listed(job(0, RUNNING), job(uid, AT_ENGINE[other]))
    elif other in AT_ENGINE:
        study.tell(Submitted(uid, None))
        study.listed(job(0, RUNNING), job(uid, AT_ENGINE[other]))
    elif other is ClientState.NOT_SUBMITTED:
        study.tell(SubmitFailed(uid, "no"))
    else:
        study.tell(CommandExited(uid, int(other is not ClientState.COMPLETED), is_gone=True))
    moves = [told for told in study.told[before:] if isinstance(told, ClientMoved) and told.client_id == 7]
    assert [told.state for told in moves] == [other]


# Order and limit --------------------------------------------------------------------------------------------


def test_nothing_but_the_server_is_submitted_before_it_has_connected():
    study = Study().awaiting()
    assert study.say(SubmitClients(1, (1,), COMMAND)) == []  # nobody is connected there
    assert study.listed(job(0, QUEUED)) == []
    assert study.state == "awaiting"


def test_each_change_of_a_client_is_told_once_and_in_order():
    study = Study().serving()
    assert study.want(7) == [
        accepted(),
        SubmitToEngine(1, "s-1", 0, (7,), COMMAND),
        moved(7, ClientState.SUBMITTED),
    ]
    assert study.tell(Submitted(1, "11")) == [moved(7, ClientState.QUEUED, "11", "slurm job 11 is queued")]
    server = job(0, RUNNING)
    assert study.tell(ListFailed(study.asked_for_list(), "busy")) == [SendToServer(1, StatesStale("busy"))]
    assert study.tell(ListFailed(study.asked_for_list(), "busy")) == []
    running = moved(7, ClientState.RUNNING, "11", "slurm job 11 is running")
    assert study.listed(server, job(1, RUNNING)) == [SendToServer(1, StatesFresh()), running]
    assert study.listed(server, job(1, RUNNING)) == []
    held = "slurm job 11 is held: by admin"
    assert study.listed(server, job(1, HELD, "by admin")) == [moved(7, ClientState.HELD, "11", held)]
    assert study.listed(server, job(1, ENDED, "TIMEOUT")) == [
        moved(7, ClientState.FAILED, "11", "slurm job 11 ended: TIMEOUT")
    ]


def test_a_client_has_completed_when_its_own_command_says_so():
    study = Study().serving()
    study.want(7)
    study.tell(Submitted(1, "11"))
    completed = moved(7, ClientState.COMPLETED, "11", "exit status 0")
    assert study.tell(CommandExited(1, 0)) == [completed, ListEngine(2, "11")]
    assert study.tell(CommandExited(1, 0)) == []
    # Its id is free; its job counts until the engine says that it is gone.
    assert study.want(7)[0] == accepted()
    assert study.tell(Listed(2, (job(1, ENDED, "COMPLETED"),))) == []
    assert study.tell(CommandExited(3, 1, is_gone=True)) == [
        moved(7, ClientState.FAILED, "", "exit status 1")
    ]
    assert study.tell(Submitted(3, "12")) == []


def test_a_job_whose_clients_have_ended_is_looked_for_at_once():
    study = Study(timer_interval_s=1000.0).serving()
    study.want(7, 8)
    study.tell(Submitted(1, "11"))
    study.tell(CommandExited(1, 0, 7))
    study.listed(job(0, RUNNING), job(1, RUNNING))
    assert study.tell(CommandExited(1, 0, 8))[-1] == ListEngine(3, "11")
    ended = study.now
    assert study.tell(Listed(3, (job(1, RUNNING),))) == []
    assert study.tick() == [ListEngine(4, "11")]
    assert study.now == ended + 1.0


def test_a_job_that_runs_when_it_is_started_is_told_to_run():
    study = Study().serving()
    study.want(7)
    assert study.tell(Submitted(1, "11", is_running=True)) == [
        moved(7, ClientState.RUNNING, "11", "slurm job 11 is running")
    ]


def test_a_server_that_has_said_that_it_is_done_ends_by_itself_or_is_cancelled():
    study, interrupted = Study(stop_grace_s=3.0).serving(), Study().serving()
    for one in (study, interrupted):
        one.want(7)
        assert one.tell(Submitted(1, "11")) != []
        cancelled = [action for action in one.say(StudyDone()) if isinstance(action, CancelAtEngine)]
        assert [action.name for action in cancelled] == ["s-1"]
    assert study.tell(Listed(2, (job(0, RUNNING),))) == []
    assert study.tick() == [ListEngine(4, "10")]
    assert study.tell(Listed(4, (job(0, RUNNING),))) == []
    assert study.tick() == [CancelAtEngine(5, "s-0", "10")]
    assert study.now == 1.5
    assert interrupted.tell(Signal(2)) == [CancelAtEngine(4, "s-0", "10")]


def test_a_failed_submission_is_a_state():
    study = Study().serving()
    study.want(7)
    assert study.tell(SubmitFailed(1, "no such queue")) == [
        moved(7, ClientState.NOT_SUBMITTED, "", "no such queue")
    ]


def test_an_unclear_submission_is_found_in_a_list():
    study = Study().serving()
    study.want(7)
    assert study.tell(Submitted(1, None)) == []
    assert study.listed(job(0, RUNNING), job(1, RUNNING)) == [
        moved(7, ClientState.RUNNING, "11", "slurm job 11 is running")
    ]


def test_what_is_above_the_limit_waits_in_order():
    study = Study().serving()
    for client_id in range(1, 5):
        study.want(client_id)
    assert study.tell(Submitted(1, "11")) != []
    assert study.tell(CommandExited(1, 0, is_gone=True)) == [
        moved(1, ClientState.COMPLETED, "11", "exit status 0"),
        SubmitToEngine(3, "s-3", 0, (3,), COMMAND),
        moved(3, ClientState.SUBMITTED),
    ]
    assert study.say(CancelClient(9, 4)) == [accepted(9), moved(4, ClientState.CANCELLED)]


@pytest.mark.parametrize(
    ("ids", "command", "reason"),
    [
        ((), COMMAND, "a job has one client or more, and none twice"),
        ((1, 1), COMMAND, "a job has one client or more, and none twice"),
        ((1, 2, 3, 4, 5), COMMAND, "5 clients are too many for one job: group_size is 4"),
        ((1, 7), COMMAND, "client 7 has not ended yet"),
        ((1,), (), "there is no command"),
        ((1,), ("", "x"), "there is no command"),
        ((1,), ("a", "b\0"), "the command has 'b\\x00', which cannot be passed to a program"),
        ((1,), ("a", "\udc00"), "the command has '\\udc00', which cannot be passed to a program"),
    ],
)
def test_a_wrong_request_is_refused_and_changes_nothing(ids, command, reason):
    study = Study().serving()
    study.want(7)
    assert study.say(SubmitClients(2, ids, command)) == [SendToServer(1, RequestRefused(2, reason))]
    assert study.want(1)[0] == accepted()


@pytest.mark.parametrize(("bound", "most"), [("POSTPONED_MAX", 1), ("POSTPONED_CHARACTERS_MAX", 5)])
def test_clients_beyond_all_bounds_are_refused(bound, most, monkeypatch):
    monkeypatch.setattr(jobs, bound, most)
    study = Study(job_limit=2).serving()
    study.want(1)
    study.want(2)
    assert isinstance(study.told[-1], RequestAccepted)
    study.want(3)
    assert isinstance(study.told[-1], RequestRefused)
    study.say(CancelClient(1, 2))
    study.want(3)
    assert RequestAccepted(1) in study.told[-2:]


def test_a_command_that_is_too_long_is_refused():
    study = Study().serving()
    study.say(SubmitClients(1, (1,), ("solve", "x" * jobs.COMMAND_CHARACTERS_MAX)))
    assert isinstance(study.told[-1], RequestRefused)


# Cancels and groups -----------------------------------------------------------------------------------------


def test_a_cancel_is_repeated_until_the_job_is_gone():
    study = Study().serving()
    study.want(7)
    study.tell(Submitted(1, "11"))
    assert study.say(CancelClient(2, 7)) == [accepted(2), CancelAtEngine(2, "s-1", "11")]
    assert study.say(CancelClient(3, 7)) == [accepted(3)]
    assert study.tell(Cancelled(2)) == []
    assert study.tick() == [ListEngine(3, "11")]
    assert study.tell(Listed(3, (job(1, QUEUED),))) == [CancelAtEngine(4, "s-1", "11")]
    assert study.tell(Cancelled(4)) == []
    assert study.tick() == [ListEngine(5, "11")]
    gone = moved(7, ClientState.CANCELLED, "11", "it was cancelled")
    assert study.tell(Listed(5, ())) == [gone]
    reason = "there is no client 7: it has ended, or was never asked for"
    assert study.say(CancelClient(4, 7)) == [SendToServer(1, RequestRefused(4, reason))]


def test_each_client_of_a_group_has_its_own_state():
    study = Study().serving()
    assert study.want(1, 2, 3)[1] == SubmitToEngine(1, "s-1", 0, (1, 2, 3), COMMAND)
    text = "slurm job 11 is queued"
    assert study.tell(Submitted(1, "11")) == [moved(one, ClientState.QUEUED, "11", text) for one in (1, 2, 3)]
    assert study.say(CancelClient(2, 2)) == [accepted(2), EndClient(2, 1, "11", 2)]
    assert study.tell(CommandExited(1, 143, 2)) == [moved(2, ClientState.CANCELLED, "11", "exit status 143")]
    assert study.tell(CommandExited(1, 0, 1)) == [moved(1, ClientState.COMPLETED, "11", "exit status 0")]
    assert study.say(CancelClient(3, 3)) == [accepted(3), CancelAtEngine(3, "s-1", "11")]


def test_a_client_of_a_group_that_waits_is_left_out():
    study = Study(job_limit=2).serving()
    study.want(1)
    study.want(2, 3)
    assert study.say(CancelClient(2, 2)) == [accepted(2), moved(2, ClientState.CANCELLED)]
    assert SubmitToEngine(2, "s-2", 0, (3,), COMMAND) in study.tell(SubmitFailed(1, "no"))


# Life -------------------------------------------------------------------------------------------------------


def test_a_server_that_answers_is_pinged_and_lives():
    study = Study().serving()
    for _ in range(3):
        assert study.tick() == [PingServer(1)]
        assert study.say(ServerPing()) == []
    assert study.now == 15


def test_a_silent_server_is_replaced_at_once_and_refused_when_it_comes_back():
    study = Study().serving()
    study.want(7)
    study.tell(Submitted(1, "11"))
    assert study.tick() == [PingServer(1)]
    words = "nothing was heard of the server for 10 s"
    assert study.tick() == [
        CloseConnection(1, f"another server takes over: {words}"),
        ListEngine(2, "10"),
        CancelAtEngine(3, "s-0", "10"),
        CancelAtEngine(4, "s-1", "11"),
        SubmitToEngine(5, "s-5", 1, (), (), True),
    ]
    assert study.now == 10
    late = RefuseConnection(2, "server 0 is over: server 1 has taken over")
    assert study.tell(NewConnection(2, 0)) == [late]
    study.tell(Cancelled(3))
    assert study.tell(NewConnection(3, 0)) == [
        CancelAtEngine(6, "s-0", "10"),
        RefuseConnection(3, late.reason),
    ]
    # What becomes of its clients is not told to the new one.
    assert study.tell(NewConnection(4, 1)) == []
    assert study.tell(Message(1, StudyDone())) == []
    assert study.tell(CommandExited(1, 1, is_gone=True)) == []


def test_a_launcher_that_was_stopped_itself_listens_before_it_judges():
    study = Study().serving()
    study.now = 1000.0
    assert study.tell(ListFailed(study.asked_for_list(), "")) == [
        SendToServer(1, StatesStale("the engine does not tell of its jobs"))
    ]
    assert study.state == "serving"


def test_of_many_servers_the_last_are_kept_and_all_are_told_why():
    study = Study(job_limit=2 * SERVERS_KEPT).serving()
    last = SERVERS_KEPT + 5
    for number in range(1, last + 1):
        actions = study.tell(ConnectionShutdown(number))
        server = next(action for action in actions if isinstance(action, SubmitToEngine))
        study.tell(Submitted(server.uid, str(1000 + number)))
        study.tell(NewConnection(number + 1, number))
    assert len(study.machine._servers) == SERVERS_KEPT
    for number in (0, last - SERVERS_KEPT, last - 1):
        told = f"server {number} is over: server {last} has taken over"
        assert study.tell(NewConnection(1000 + number, number))[-1] == RefuseConnection(1000 + number, told)
    with pytest.raises(IllegalEvent):
        study.tell(NewConnection(2000, last + 1))


def test_a_second_connection_of_the_same_server_is_refused():
    study = Study().serving()
    words = "server 0 is connected already, and connects once"
    assert study.tell(NewConnection(2, 0)) == [RefuseConnection(2, words)]
    words = "it has not proved to be a server of this study"
    assert study.tell(NewConnection(3, None)) == [RefuseConnection(3, words)]


def test_three_servers_in_a_row_that_end_unconnected_stop_the_study():
    study = Study().submitted()
    assert study.tell(SubmitFailed(0, "a")) == []
    assert study.tick() == [SubmitToEngine(1, "s-1", 1, (), (), True)]
    assert study.tell(CommandExited(1, 127, is_gone=True)) == [SubmitToEngine(2, "s-2", 2, (), (), True)]
    reason = "3 servers in a row have ended before they connected, the last one: c"
    assert study.tell(Submitted(1, None)) == []
    assert study.tell(SubmitFailed(2, "c")) == [Stop(1, reason, output_uid=2)]


def test_a_server_that_has_connected_makes_the_count_begin_again():
    study = Study().submitted()
    for uid in (0, 1):
        study.tell(SubmitFailed(uid, "a"))
        study.tick()
    study.tell(NewConnection(1, 2))
    study.tell(ConnectionShutdown(1))
    assert study.state == "submitting"


def test_the_first_server_goes_on_from_a_checkpoint_if_that_is_asked_for():
    assert Study(load_from_checkpoint=True).tick() == [SubmitToEngine(0, "s-0", 0, (), (), True)]


@pytest.mark.parametrize("event", [ConnectionShutdown(1), SubmitFailed(1, "no"), CommandExited(1, 1)])
def test_without_fault_tolerance_the_first_failure_stops_the_study(event):
    study = Study(fault_tolerance=False).serving()
    study.want(7)
    assert any(isinstance(action, CloseConnection) for action in study.tell(event))
    assert study.state == "stopping"
    study.now += 30
    (stop,) = [action for action in study.tick() if isinstance(action, Stop)]
    assert stop.status == 1
    assert "s-0 (10)" in stop.left


def test_a_cancelled_client_is_no_failure():
    study = Study(fault_tolerance=False).serving()
    study.want(7)
    study.tell(Submitted(1, "11"))
    study.say(CancelClient(2, 7))
    study.tell(CommandExited(1, 143, is_gone=True))
    assert study.state == "serving"


# Events that cannot be --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event", [Submitted(5, "1"), SubmitFailed(5, ""), Listed(0, ()), Cancelled(0), NewConnection(1, 0),
              NewConnection(3, 1)]
)  # fmt: skip
def test_events_that_cannot_be_change_nothing(event):
    study = Study().serving()
    with pytest.raises(IllegalEvent):
        study.tell(event)
    assert study.state == "serving"
    assert study.tick() == [PingServer(1)]


def test_nothing_follows_the_stop():
    study = Study()
    study.tell(Signal(2))
    assert study.machine.deadline() is None
    assert study.tell(NewConnection(1, None)) == []
    assert study.tell(Message(1, StudyDone())) == []


def test_what_comes_with_a_server_counts_as_a_job_too():
    """With a job for each server beside its own, three jobs are a server and one client."""
    study = Study(job_limit=3, jobs_per_server=2).serving()
    wanted = [action for number in (1, 2) for action in study.want(number, request=number)]
    assert [action.client_ids for action in wanted if isinstance(action, SubmitToEngine)] == [(1,)]
    actions = study.tell(ConnectionShutdown(1))
    assert not any(isinstance(action, SubmitToEngine) for action in actions)
    assert study.state == "restarting", "a server has no place before the old one is gone"
    gone = study.tell(CommandExited(1, 1, is_gone=True))
    assert not any(isinstance(action, SubmitToEngine) for action in gone)
    gone = study.tell(CommandExited(0, 1, is_gone=True))
    assert [action.incarnation for action in gone if isinstance(action, SubmitToEngine)] == [1]
