"""COA-4: a service with a journal goes on after a crash, and starts no job twice."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest

from gspc_trio.components.coallocation.agents.service import (
    PARENT,
    ParentLinked,
    PeerGone,
    PeerSaid,
    SiteOffered,
    ToPeer,
)
from gspc_trio.components.coallocation.agents.words import (
    LEASE_S,
    AttachRequest,
    JobReport,
    JobsEnded,
    PartsAccepted,
    PartsDone,
    PartsGo,
    PartsReady,
    PartsRequest,
    RegisterService,
    RequestDone,
    RequestTaken,
    ServiceRegistered,
    SiteOffer,
    SubmitRequest,
)
from gspc_trio.components.coallocation.host import (
    NOBODY,
    PARENT_BACK_S,
    CoallocationHost,
    HostEvent,
    NoteRecords,
    RequestRestored,
    RequestStopped,
)
from gspc_trio.components.coallocation.journal import (
    MAGIC,
    CoallocationRecord,
    JobBegun,
    JobNoted,
    NotedRequests,
    RequestClosed,
    RequestNoted,
    RequestNotWanted,
    StageEnded,
    StageGiven,
    frames_of,
    read_records,
)
from gspc_trio.components.coallocation.running import STAGE_BACK_S, GivenStage
from gspc_trio.components.coallocation.shell.journal_file import CoallocationJournal
from gspc_trio.components.coallocation.shell.service import read_request
from gspc_trio.core.machine import Tick
from gspc_trio.records.journal_frames import BadJournal, Framer

JOBS = '{"a": "&(executable=a)", "b": "&(executable=b)", "c": "&(executable=c)"}'
TOLD = SubmitRequest("request", "*(*(*(a))(b))(c)", JOBS)
RECORDS: list[CoallocationRecord] = [
    RequestNoted("top-1", TOLD),
    JobBegun("top-1", 1),
    JobNoted("top-1", JobReport(1, "finished")),
    JobBegun("top-1", 2),
]
STAGE = GivenStage("low", 1, 1, SubmitRequest("top-1.1", "*(a)", JOBS, outlives=True))


class Service:
    """A service with one site that does what it is asked for at once; programs run until they are ended.

    Attributes:
        said: to whom, and what.
        starts: how often programs of a job were started.
    """

    def __init__(self, noted: NotedRequests) -> None:
        self.host = CoallocationHost("top", "1", True, noted.count)
        self.noted = noted
        self.said: list[tuple[str, object]] = []
        self.starts = 0
        self.running: list[str] = []
        self.now = 0.0
        self.take(SiteOffered(SiteOffer(("s",), {"core": 9}, {"core": 9})))
        for one in list(noted.requests.values()):
            read = read_request(NOBODY + one.request_id, one.told)
            begun, stages = dict(one.begun), tuple(one.stages.values())
            reports = tuple(one.reports.values())
            self.take(RequestRestored(one.request_id, read, begun, reports, stages, False, one.is_cancelled))

    def take(self, event: HostEvent) -> None:
        events = deque([event])
        while events:
            actions = self.host.handle(events.popleft(), self.now)
            self.host.check()
            for number, action in enumerate(actions):
                if isinstance(action, NoteRecords):
                    assert number == 0, "it is noted before anything is done"
                    for record in action.records:
                        self.noted.take(record)
                elif isinstance(action, ToPeer):
                    events += self._answers(action)

    def _answers(self, action: ToPeer) -> list[HostEvent]:
        message = action.message
        if action.who != "s":
            self.said.append((action.who, message))
        elif isinstance(message, PartsRequest):
            told = (PartsAccepted(message.request), PartsReady(message.request))
            return [PeerSaid("s", one) for one in told]
        elif isinstance(message, PartsGo):
            self.running.append(message.request)
            self.starts += 1
        return []

    def end_all(self, error: str = "") -> None:
        self.now += 1.0
        running, self.running = self.running, []
        for request in running:
            self.take(PeerSaid("s", PartsDone(request, error, True)))
        self.now += 2.0
        self.take(Tick())


def fold(records: list[CoallocationRecord]) -> NotedRequests:
    noted = NotedRequests()
    for record in records:
        noted.take(record)
    return noted


def told_states(service: Service) -> str:
    """Return how the jobs of a request have ended, as a client hears that asks for it."""
    service.take(PeerSaid("client 7", AttachRequest("request", "top-1")))
    taken, ends, done = (message for who, message in service.said if who == "client 7")
    assert taken == RequestTaken("request", "top-1", True)
    assert done == RequestDone("request")
    assert isinstance(ends, JobsEnded)
    letters = {"finished": "f", "failed": "x", "not run": "n"}
    return "".join(letters[one.state] for one in sorted(ends.ends, key=lambda one: one.number))


@pytest.mark.parametrize(
    ("crash", "states", "starts"), [(1, "fff", 3), (2, "xnn", 0), (3, "fff", 2), (4, "fxn", 0)]
)
def test_what_was_started_is_not_started_again_and_the_rest_goes_on(crash: int, states: str, starts: int):
    service = Service(fold(RECORDS[:crash]))
    for _ in range(3):
        service.end_all()
    assert not service.noted.requests
    assert service.starts == starts
    assert told_states(service) == states


@pytest.mark.parametrize(
    ("crashes", "error", "states", "starts"), [(1, "", "fff", 2), (1, "x", "fxn", 1), (2, "", "fxn", 0)]
)
def test_a_job_that_ran_at_the_crash_has_used_an_attempt(crashes: int, error: str, states: str, starts: int):
    told = SubmitRequest("request", "*(*(*(a))(b(attempts=2)))(c)", JOBS)
    noted = fold([RequestNoted("top-1", told), *RECORDS[1:3], *[JobBegun("top-1", 2)] * crashes])
    service = Service(fold(list(noted.records())))
    assert service.noted.requests.keys() == ({"top-1"} if starts else set())
    service.end_all(error)
    service.end_all()
    assert service.starts == starts
    assert told_states(service) == states


def test_a_client_that_comes_back_hears_the_rest_and_others_do_not():
    service = Service(fold(RECORDS[:3]))
    service.take(PeerSaid("client 1", AttachRequest("request", "top-1")))
    service.take(PeerSaid("client 2", AttachRequest("request", "top-1")))
    assert service.said[-1] == ("client 2", RequestDone("request", "request top-1 is not there any more"))
    service.end_all()
    service.end_all()
    told = [message for who, message in service.said if who == "client 1"]
    numbers = [one.number for message in told if isinstance(message, JobsEnded) for one in message.ends]
    assert numbers == [1, 2, 3]
    assert told[-1] == RequestDone("request")


def test_a_new_request_is_noted_and_its_number_is_its_own():
    noted = fold([*RECORDS, RequestClosed("top-1")])
    service = Service(noted)
    service.take(read_request("client 1", TOLD))
    assert list(noted.requests) == ["top-2"]
    assert service.starts == 1


def test_a_journal_that_is_cut_anywhere_comes_to_what_was_true():
    records = [
        RECORDS[0],
        StageGiven("top-1", STAGE),
        *RECORDS[1:],
        RECORDS[3],
        StageEnded("top-1", "top-1.1"),
    ]
    data = MAGIC + frames_of(Framer(MAGIC), records)
    whole = [list(fold(records[:count]).records()) for count in range(len(records) + 1)]
    for end in range(len(data) + 1):
        assert list(read_records(data[:end]).records()) in whole


def test_the_directory_is_of_one_service_and_keeps_what_was_noted(tmp_path: Path):
    journal = CoallocationJournal(tmp_path / "j")
    journal.append(RECORDS)
    with pytest.raises(BadJournal, match="another service uses"):
        CoallocationJournal(tmp_path / "j")
    journal.close()
    again = CoallocationJournal(tmp_path / "j")
    assert list(again.noted.records()) == list(fold(RECORDS).records())
    again.close()


LOW = PeerSaid("low", RegisterService("low", "1", frozenset({"low", "x"}), (SiteOffer(("x",), {"core": 9}),)))
STAGES = SubmitRequest("request", "*(*(a)(b))(c(contact=s))", JOBS)
ENDS = (JobReport(1, "finished"), JobReport(2, "finished"))


def given_away() -> NotedRequests:
    """Return the journal of a service that has given a stage to the one below it, and has crashed."""
    service = Service(NotedRequests())
    service.take(LOW)
    service.take(read_request("client 1", STAGES))
    (stage,) = service.noted.requests["top-1"].stages.values()
    assert stage.told.outlives
    assert ("low", stage.told) in service.said
    return service.noted


def test_a_stage_given_below_goes_on_after_a_crash_and_is_started_by_nobody_else():
    service = Service(given_away())
    assert (service.said, service.starts) == ([], 0)
    service.take(LOW)
    assert service.said[-1] == ("low", AttachRequest("top-1.1"))
    service.take(PeerSaid("low", JobsEnded("top-1.1", ENDS)))
    assert service.starts == 1, "what waits for the stage runs here"
    service.take(PeerSaid("low", RequestDone("top-1.1")))
    again = Service(fold(list(service.noted.records())))
    again.take(LOW)
    to_low = [one for who, one in again.said if who == "low"]
    assert to_low == [ServiceRegistered(("top",))], "the stage is over"
    assert again.starts == 0
    service.end_all()
    assert [one.state for one in service.noted.closed["top-1"].reports.values()] == ["finished"] * 3


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_service_below_whose_connection_was_closed_is_waited_for_shortly(is_silent: bool):
    service = Service(NotedRequests())
    for event in (LOW, read_request("client 1", STAGES)):
        service.take(event)
    service.now = LEASE_S if is_silent else 1.0
    service.take(Tick() if is_silent else PeerGone("low", "the connection was cut"))
    service.now += LEASE_S - 0.1
    service.take(Tick())
    assert service.noted.requests
    service.now += 0.1
    service.take(Tick())
    assert bool(service.noted.requests) is is_silent, "who is silent may be cut off, and run the stage"


@pytest.mark.parametrize("comes_back", [False, True])
def test_jobs_of_a_stage_whose_service_has_lost_it_have_failed(comes_back: bool):
    service = Service(given_away())
    service.now = STAGE_BACK_S - 0.1
    service.take(Tick())
    if comes_back:
        service.take(LOW)
        service.take(PeerSaid("low", RequestDone("top-1.1", "low does not have it any more")))
    else:
        assert service.noted.requests
        service.now = STAGE_BACK_S
        service.take(Tick())
    reports = service.noted.closed["top-1"].reports
    assert [reports[number].state for number in (1, 2, 3)] == ["failed", "failed", "not run"]
    assert service.starts == 0


def test_a_stage_outlives_the_service_above_for_a_while():
    below = Service(NotedRequests())
    for event in (ParentLinked(), PeerSaid(PARENT, ServiceRegistered(("above",)))):
        below.take(event)
    told = SubmitRequest("above-1.1", "*(a)", JOBS, outlives=True)
    below.take(read_request(PARENT, told))
    below.take(PeerGone(PARENT))
    below.now = 10.0
    below.take(Tick())
    assert len(below.host.requests) == 1
    below.take(ParentLinked())
    below.take(PeerSaid(PARENT, AttachRequest("above-1.1")))
    assert below.said[-1] == (PARENT, JobsEnded("above-1.1", ()))
    below.take(PeerGone(PARENT))
    below.running.clear()
    below.end_all()
    below.now = 10.0 + PARENT_BACK_S
    below.take(Tick())
    allocation = next(iter(below.host.service.allocations.values()))
    below.take(PeerSaid("s", PartsDone(allocation.id_below, "cancelled", True)))
    assert not below.host.requests
    below.take(ParentLinked())
    below.take(PeerSaid(PARENT, AttachRequest("above-1.1")))
    ends, done = (one for _, one in below.said[-2:])
    assert isinstance(ends, JobsEnded)
    assert [one.state for one in ends.ends] == ["cancelled"]
    assert done == RequestDone("above-1.1")
    below.take(PeerSaid(PARENT, AttachRequest("above-9.1")))
    lost = RequestDone("above-9.1", "top does not have it any more")
    assert below.said[-1] == (PARENT, lost)


def test_a_client_hears_of_the_end_that_it_had_not_heard_before_the_crash():
    records = [*RECORDS, JobNoted("top-1", JobReport(2, "failed", "x")), RequestClosed("top-1")]
    noted = fold(records)
    assert list(fold(list(noted.records())).closed) == ["top-1"]
    service = Service(noted)
    (one,) = noted.closed.values()
    read = read_request(NOBODY + "top-1", one.told)
    service.take(RequestRestored("top-1", read, {1: 1, 2: 1}, tuple(one.reports.values()), (), True))
    service.take(PeerSaid("client 1", AttachRequest("request", "top-1")))
    _, ends, done = (message for who, message in service.said if who == "client 1")
    assert isinstance(ends, JobsEnded)
    assert {end.number: end.state for end in ends.ends} == {1: "finished", 2: "failed", 3: "not run"}
    assert done == RequestDone("request")


def test_what_was_cancelled_does_not_go_on_after_a_crash():
    noted = fold(RECORDS[:1])
    service = Service(noted)
    service.take(RequestStopped("top-1"))
    service.take(RequestStopped("top-1"))
    records = list(noted.records())
    assert records.count(RequestNotWanted("top-1")) == 1
    again = fold(records)
    assert Service(again).starts == 0
    (closed,) = again.closed.values()
    assert [closed.reports[number].state for number in (1, 2, 3)] == ["failed", "cancelled", "cancelled"]


def test_jobs_have_the_ends_that_were_told_before_the_crash():
    ends = [JobReport(number, "cancelled", "cancelled") for number in (2, 1)]
    noted = fold([RECORDS[0], *(JobNoted("top-1", end) for end in ends), RequestNotWanted("top-1")])
    service = Service(noted)
    service.take(PeerSaid("client 1", AttachRequest("request", "top-1")))
    told = next(message for _, message in service.said if isinstance(message, JobsEnded))
    assert {end.number: end.state for end in told.ends} == {1: "cancelled", 2: "cancelled", 3: "not run"}
