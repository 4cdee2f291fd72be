"""A launcher that goes on for one that was killed, and the server that comes back to it."""

from __future__ import annotations

import pytest

from gspc_trio.components.launcher import jobs
from gspc_trio.components.launcher.events import (
    CancelAtEngine,
    CancelClient,
    ClientMoved,
    ClientState,
    CloseConnection,
    CommandExited,
    EndClient,
    LauncherResumed,
    Listed,
    ListEngine,
    NewConnection,
    RefuseConnection,
    RequestAccepted,
    RequestRefused,
    SendToServer,
    ServerPing,
    Signal,
    Stop,
    SubmitClients,
    Submitted,
    SubmitToEngine,
)
from gspc_trio.components.launcher.states import RETURN_S
from gspc_trio.components.provision.batch import BatchState
from gspc_trio.core.machine import Tick
from tests.components.launcher.support import COMMAND, Study, job


def returned(study: Study, connection: int = 2) -> list[object]:
    """Let the server come back; return what it is told at once."""
    actions = study.tell(NewConnection(connection, 0, "10"))
    return [action.body for action in actions if isinstance(action, SendToServer)]


def test_a_server_that_comes_back_is_told_all_states_and_goes_on():
    study = Study().serving()
    study.want(1, 2)
    study.tell(Submitted(1, "11"))
    study.tell(CommandExited(1, 0, 1))
    assert study.tell(LauncherResumed()) == [ListEngine(2, "10")]  # nobody is connected who says that it runs
    assert study.state == "awaiting"
    assert study.tell(CommandExited(1, 0, 2)) == [ListEngine(3, "11")]  # nobody is there to be told
    assert returned(study) == [
        ClientMoved(1, ClientState.COMPLETED, "11", "exit status 0"),
        ClientMoved(2, ClientState.COMPLETED, "11", "exit status 0"),
    ]
    assert study.state == "serving"
    assert study.say(SubmitClients(2, (1,), COMMAND), 2)[0] == SendToServer(2, RequestAccepted(2))


def test_a_request_that_was_accepted_is_not_carried_out_again():
    study = Study().serving()
    study.want(1, request=5)
    study.tell(LauncherResumed())
    returned(study)
    asked = SubmitClients(5, (1,), COMMAND, again=True)
    assert study.say(asked, 2) == [SendToServer(2, RequestAccepted(5))]
    other = study.say(SubmitClients(6, (2,), COMMAND, again=True), 2)
    assert [action.client_ids for action in other if isinstance(action, SubmitToEngine)] == [(2,)]
    assert study.say(CancelClient(7, 9, again=True), 2)[0] == SendToServer(
        2, RequestRefused(7, "there is no client 9: it has ended, or was never asked for")
    )


def test_a_server_that_comes_back_is_not_told_of_an_earlier_client_by_the_same_id():
    study = Study(job_limit=2).serving()
    study.want(1)
    study.tell(Submitted(1, "11"))
    study.tell(CommandExited(1, 1))
    assert study.want(1, request=2)[0] == SendToServer(1, RequestAccepted(2))  # its job waits for a place
    study.tell(LauncherResumed())
    assert returned(study) == []


def test_what_is_kept_for_a_server_that_comes_back_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jobs, "RETURN_KEPT", 2)
    kept, nothing = Study(job_limit=10).serving(), Study(job_limit=10, resumable=False).serving()
    for study in (kept, nothing):
        for number in (1, 2, 3):
            study.want(number, request=number)
        study.tell(Submitted(1, "11"))
        study.tell(LauncherResumed())
    assert returned(nothing) == []
    assert returned(kept) == [
        ClientMoved(3, ClientState.SUBMITTED),
        ClientMoved(1, ClientState.QUEUED, "11", "slurm job 11 is queued"),
    ]
    answers = [kept.say(SubmitClients(one, (one,), COMMAND, again=True), 2)[0] for one in (1, 2, 3)]
    assert answers[1:] == [SendToServer(2, RequestAccepted(2)), SendToServer(2, RequestAccepted(3))]
    assert answers[0] == SendToServer(2, RequestRefused(1, "client 1 has not ended yet"))


def test_calls_of_a_launcher_that_was_resumed_are_answered():
    study = Study().serving()
    (asked,) = study.tell(LauncherResumed())
    assert isinstance(asked, ListEngine)
    assert study.tell(Listed(asked.uid, (job(0, BatchState.RUNNING),))) == []


def test_calls_of_before_have_no_answer_and_are_made_again():
    """An unclear submission is looked for; a job that was being cancelled is cancelled until it is gone."""
    study = Study().serving()
    study.want(1)
    study.want(2, request=2)
    study.tell(Submitted(2, "12"))
    assert study.say(CancelClient(3, 2))[1] == CancelAtEngine(3, "s-2", "12")
    study.tell(LauncherResumed())
    returned(study)
    there = (job(0, BatchState.RUNNING), job(1, BatchState.QUEUED))
    for _ in range(10):
        study.say(ServerPing(), 2)
        for action in study.tick():
            if isinstance(action, ListEngine):
                study.tell(
                    Listed(action.uid, tuple(one for one in there if action.job_id in ("", one.job_id)))
                )
    assert ClientMoved(2, ClientState.CANCELLED, "12", "it was cancelled") in study.told
    assert ClientMoved(1, ClientState.QUEUED, "11", "slurm job 11 is queued") in study.told
    assert study.state == "serving"


def test_a_client_of_a_group_that_is_to_end_is_ended_again():
    study = Study().serving()
    study.want(1, 2)
    study.tell(Submitted(1, "11"))
    assert study.say(CancelClient(2, 1))[1] == EndClient(2, 1, "11", 1)
    assert EndClient(4, 1, "11", 1) in study.tell(LauncherResumed())


def test_another_server_takes_the_place_of_one_that_does_not_come_back():
    study = Study().serving()
    study.want(1)
    study.tell(Submitted(1, "11"))
    study.tell(LauncherResumed())
    study.now += RETURN_S
    actions = study.tell(Tick())
    assert [one.incarnation for one in actions if isinstance(one, SubmitToEngine)] == [1]
    assert {one.name for one in actions if isinstance(one, CancelAtEngine)} == {"s-1", "s-0"}
    refused = study.tell(NewConnection(2, 0, "10"))[-1]
    assert isinstance(refused, RefuseConnection)
    assert refused.reason == "server 0 is over: server 1 has taken over"


def test_a_server_that_has_ended_meanwhile_is_replaced_as_one_that_was_connected():
    study = Study().serving()
    study.tell(LauncherResumed())
    for _ in range(3):  # servers that connect may end as often as they like
        server = study.tell(CommandExited(study.server, 1, is_gone=True))[-1]
        assert isinstance(server, SubmitToEngine)
        study.server = server.uid
        study.tell(Submitted(server.uid, "20"))
        study.tell(NewConnection(server.uid, server.incarnation))
        study.tell(LauncherResumed())
    assert study.state == "awaiting"


def test_a_study_that_stops_goes_on_stopping():
    study = Study().serving()
    assert isinstance(study.tell(Signal(15))[0], CloseConnection)
    study.now += 29
    study.tell(LauncherResumed())
    study.now += 29
    assert study.state == "stopping"
    study.now += 1
    assert study.tell(Tick())[-1] == Stop(143, "it got the signal 15", ("s-0 (10)",))
