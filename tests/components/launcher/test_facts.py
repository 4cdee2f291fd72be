"""What a launcher tells of itself, and its fold."""

from __future__ import annotations

import pytest

from gspc_trio.components.launcher.events import (
    CancelClient,
    CommandExited,
    ConnectionShutdown,
    LauncherAction,
    LauncherEvent,
    ListFailed,
    NewConnection,
    ServerPing,
    Signal,
    StudyDone,
    Submitted,
)
from gspc_trio.components.provision.batch import BatchJob, BatchState
from gspc_trio.records import study as study_records
from gspc_trio.records.facts import Record, StudyChanged, StudyClientChanged, StudyJobChanged
from gspc_trio.records.progress import Progress
from gspc_trio.records.study import StudyProgress
from tests.components.launcher.support import Study

KINDS = (StudyChanged, StudyJobChanged, StudyClientChanged)


class ToldStudy(Study):
    """A study whose records are folded."""

    def __init__(self, **options: bool | float) -> None:
        super().__init__(records=True, **options)
        self.progress = Progress()
        self.records: list[Record] = []

    def tell(self, event: LauncherEvent) -> list[LauncherAction]:
        actions = super().tell(event)
        for action in actions:
            if isinstance(action, KINDS):
                self.records.append(action)
                self.progress.apply(action)
        return [action for action in actions if not isinstance(action, KINDS)]

    @property
    def fold(self) -> StudyProgress:
        return self.progress.studies["s"]


def test_a_study_without_readers_tells_nothing() -> None:
    study = Study().serving()
    assert not [action for action in study.want(1, 2) if isinstance(action, KINDS)]


def test_the_records_of_a_study_from_its_start_to_its_end() -> None:
    study = ToldStudy().submitted()
    assert study.records == [
        StudyChanged(0.0, "s", "submitting", 0, 3),
        StudyJobChanged(0.0, "s", 0, "s-0", 0, "submitted"),
    ]
    study.records.clear()
    study.tell(Submitted(0, "71"))
    study.tell(NewConnection(1, 0, "71"))
    assert study.records == [
        StudyJobChanged(0.0, "s", 0, "s-0", 0, "queued", (), "71", "slurm job 71 is queued"),
        StudyChanged(0.0, "s", "awaiting", 0, 3),
        StudyChanged(0.0, "s", "serving", 0, 3),
        StudyChanged(0.0, "s", "serving", 0, 3, 0.0, "connected"),
        StudyJobChanged(0.0, "s", 0, "s-0", 0, "running", (), "71"),
    ]
    study.records.clear()
    study.want(5)
    assert study.records == [
        StudyChanged(0.0, "s", "serving", 0, 3, 0.0, "submit"),
        StudyClientChanged(0.0, "s", 0, 5, "postponed"),
        StudyJobChanged(0.0, "s", 1, "s-1", 0, "submitted", (5,)),
        StudyClientChanged(0.0, "s", 0, 5, "submitted", 1),
    ]
    study.records.clear()
    study.tell(Submitted(1, "72"))
    study.tell(CommandExited(1, 3))
    assert [record for record in study.records if isinstance(record, StudyClientChanged)] == [
        StudyClientChanged(0.0, "s", 0, 5, "queued", 1, "72", "slurm job 72 is queued"),
        StudyClientChanged(0.0, "s", 0, 5, "failed", 1, "72", "exit status 3"),
    ]
    assert study.fold.by_state() == {"failed": 1}
    study.tell(Signal(2))
    assert study.fold.changed is not None
    assert (study.fold.changed.state, study.fold.changed.detail) == ("stopping", "it got the signal 2")
    server = study.fold.server_job()
    assert server is not None
    assert server.state == "cancelling"


def test_nothing_is_told_after_the_stop() -> None:
    study = ToldStudy().serving()
    under_way = study.asked_for_list()
    study.say(StudyDone())
    study.now += 100.0  # nobody has answered meanwhile, and the first that comes is no tick
    assert study.tell(NewConnection(2, 0)) != []
    assert study.state == "stopped"
    study.records.clear()
    assert study.tell(ListFailed(under_way, "busy")) == study.tell(Signal(15)) == []
    assert study.records == []


def test_a_server_that_is_heard_again_and_again_is_told_of_once_a_second() -> None:
    study = ToldStudy().serving()
    study.records.clear()
    for moment in range(30):
        study.now = 1.0 + moment / 10
        study.say(ServerPing())
    heard = [record.heard_at_s for record in study.records if isinstance(record, StudyChanged)]
    assert len(heard) == 3


def test_the_clients_of_a_server_that_is_over_are_abandoned_and_not_counted_for_the_next_one() -> None:
    study = ToldStudy().serving()
    study.want(1, 2)
    study.want(3, 4)
    study.want(5)
    assert study.fold.by_state() == {"postponed": 1, "submitted": 4}
    study.tell(ConnectionShutdown(1))
    fold = study.fold
    assert fold.changed is not None
    assert (fold.changed.state, fold.changed.incarnation) == ("restarting", 1)
    assert fold.changed.detail == "the server has ended its connection"
    assert fold.by_state() == {}
    job = fold.job(1)
    assert job is not None
    assert job.state == "cancelling"
    assert [client.state for client in fold.clients_of(job)] == ["abandoned", "abandoned"]
    study.tell(NewConnection(2, 0))
    assert study.fold.changed is not None
    assert study.fold.changed.refusals == 1
    assert study.fold.changed.detail == "server 0 is over: server 1 has taken over"


def test_a_group_of_which_one_was_cancelled_and_an_id_that_was_used_again() -> None:
    study = ToldStudy().serving()
    study.want(1, 2)
    study.tell(Submitted(1, "72"))
    study.say(CancelClient(2, 1))
    study.tell(CommandExited(1, 143, client_id=1))
    study.want(1)
    first, again = study.fold.job(1), study.fold.job(3)
    assert first is not None
    assert again is not None
    assert [(one.client_id, one.state) for one in study.fold.clients_of(first)] == [
        (1, "cancelled"),
        (2, "queued"),
    ]
    assert [(one.client_id, one.state) for one in study.fold.clients_of(again)] == [(1, "submitted")]


def test_an_engine_that_tells_nothing_makes_what_is_known_stale() -> None:
    study = ToldStudy().serving()
    study.want(1)
    study.tell(Submitted(1, "72"))
    study.tell(ListFailed(study.asked_for_list(), "squeue: Unable to contact slurm controller"))
    assert study.fold.changed is not None
    assert study.fold.changed.stale == "squeue: Unable to contact slurm controller"
    study.listed(BatchJob("72", "s-1", BatchState.HELD, "JobHeldUser"))
    assert study.fold.changed.stale == ""
    assert study.fold.clients[1].state == "held"


def test_of_many_clients_that_have_ended_the_first_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_records, "ENDED_CLIENTS_MAX", 3)
    monkeypatch.setattr(study_records, "GONE_JOBS_MAX", 2)
    study = ToldStudy().serving()
    for number in range(1, 8):
        study.want(number)
        study.tell(Submitted(number, str(70 + number)))
        study.tell(CommandExited(number, 0, is_gone=True))
    fold = study.fold
    assert fold.by_state() == {"completed": 7}
    assert (list(fold.gone), len(fold.ended)) == ([6, 7], 3)
    assert [job.uid for job in fold.every_job()] == [7, 6, 0]
    again = Progress()
    for record in study.progress.snapshot():
        again.apply(record)
    assert again.studies["s"].by_state() == {"completed": 7}


def test_a_snapshot_makes_the_same_fold() -> None:
    study = ToldStudy().serving()
    study.want(1, 2)
    study.tell(Submitted(1, "72"))
    study.tell(CommandExited(1, 0, client_id=1))
    study.want(9)
    study.tell(ConnectionShutdown(1))
    again = Progress()
    for record in study.progress.snapshot():
        again.apply(record)
    assert again.studies["s"].by_state() == study.fold.by_state()
    assert again.studies["s"].ended == study.fold.ended
    assert again.snapshot() == study.progress.snapshot()
