"""COA-4: a service with a journal goes on after a crash, and starts no job twice."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest

from gspc_trio.components.coallocation.agents.service import PeerSaid, SiteOffered, ToPeer
from gspc_trio.components.coallocation.agents.words import (
    AttachRequest,
    JobReport,
    JobsEnded,
    PartsAccepted,
    PartsDone,
    PartsGo,
    PartsReady,
    PartsRequest,
    RequestDone,
    RequestTaken,
    SiteOffer,
    SubmitRequest,
)
from gspc_trio.components.coallocation.host import (
    NOBODY,
    CoallocationHost,
    HostEvent,
    NoteRecords,
    RequestRestored,
)
from gspc_trio.components.coallocation.journal import (
    MAGIC,
    CoallocationRecord,
    JobBegun,
    JobNoted,
    NotedRequests,
    RequestClosed,
    RequestNoted,
    frames_of,
    read_records,
)
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
            self.take(
                RequestRestored(one.request_id, read, frozenset(one.begun), tuple(one.reports.values()))
            )

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

    def end_all(self) -> None:
        self.now += 1.0
        running, self.running = self.running, []
        for request in running:
            self.take(PeerSaid("s", PartsDone(request, "", True)))
        self.now += 2.0
        self.take(Tick())


def fold(records: list[CoallocationRecord]) -> NotedRequests:
    noted = NotedRequests()
    for record in records:
        noted.take(record)
    return noted


@pytest.mark.parametrize(
    ("crash", "states", "starts"), [(1, "fff", 3), (2, "xnn", 0), (3, "fff", 2), (4, "fxn", 0)]
)
def test_what_was_started_is_not_started_again_and_the_rest_goes_on(crash: int, states: str, starts: int):
    service = Service(fold(RECORDS[:crash]))
    for _ in range(3):
        service.end_all()
    assert not service.noted.requests
    assert service.starts == starts
    service.take(PeerSaid("client 7", AttachRequest("request", "top-1")))
    taken, ends, done = (message for who, message in service.said if who == "client 7")
    assert taken == RequestTaken("request", "top-1", True)
    assert done == RequestDone("request")
    assert isinstance(ends, JobsEnded)
    letters = {"finished": "f", "failed": "x", "not run": "n"}
    assert "".join(letters[one.state] for one in sorted(ends.ends, key=lambda one: one.number)) == states


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
    data = MAGIC + frames_of(Framer(MAGIC), RECORDS)
    whole = [list(fold(RECORDS[:count]).records()) for count in range(len(RECORDS) + 1)]
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
