"""Journal of a co-allocation service: requests, which of their jobs were started, and how they have ended.

That a job is started is durable before any of its programs is. So a service that comes back after a crash
knows which were: one whose end was not noted has used one of its attempts, and has failed if that was the
last one. That a stage is given to a
service below is durable before that hears of it, and so is that it is over there: meanwhile nobody else
starts its jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec
from msgspec import Struct, field

from gspc_trio.components.coallocation.agents.words import JobReport, SubmitRequest
from gspc_trio.components.coallocation.running import GivenStage
from gspc_trio.records.journal_frames import BadJournal, Framer, Frames

CLOSED_MAX, CLOSED_CHARACTERS_MAX = 100, 16 << 20
"""So many requests that are over are kept for clients that have not heard of their end; of so much text."""

MAGIC = b"GSPCO1\r\n"
"""The first bytes of each file."""


class RequestNoted(Struct, frozen=True, tag=True):
    """A request was taken."""

    request_id: str
    told: SubmitRequest


class StageGiven(Struct, frozen=True, tag=True):
    """A stage is about to be given to a service below."""

    request_id: str
    stage: GivenStage


class StageEnded(Struct, frozen=True, tag=True):
    """A service below runs nothing of a stage any more, and will not."""

    request_id: str
    name: str


class JobBegun(Struct, frozen=True, tag=True):
    """The programs of a job are about to be started, by one more of its attempts."""

    request_id: str
    number: int


class JobNoted(Struct, frozen=True, tag=True):
    """How a job has ended."""

    request_id: str
    report: JobReport


class RequestNotWanted(Struct, frozen=True, tag=True):
    """A request was cancelled, or nobody is there any more who wants it."""

    request_id: str


class RequestClosed(Struct, frozen=True, tag=True):
    """Nothing of a request runs any more."""

    request_id: str


class RequestsNumbered(Struct, frozen=True, tag=True):
    """So many requests had been taken."""

    count: int


CoallocationRecord: TypeAlias = (
    RequestNoted
    | StageGiven
    | StageEnded
    | JobBegun
    | JobNoted
    | RequestNotWanted
    | RequestClosed
    | RequestsNumbered
)


class NotedRequest(Struct):
    """What a journal knows of a request that is not over.

    Attributes:
        request_id: of it.
        told: what was submitted.
        begun: number of a job that was started -> how often.
        reports: number of a job that has ended -> how.
        stages: name -> stage that a service below has.
        is_cancelled: it was cancelled.
    """

    request_id: str
    told: SubmitRequest
    begun: dict[int, int] = field(default_factory=dict)
    reports: dict[int, JobReport] = field(default_factory=dict)
    stages: dict[str, GivenStage] = field(default_factory=dict)
    is_cancelled: bool = False


class NotedRequests:
    """What the records of a journal come to.

    Attributes:
        requests: id -> request that is not over, oldest first.
        closed: id -> request that is over, of those the last ones.
        count: how many were taken in all.
    """

    def __init__(self) -> None:
        self.requests: dict[str, NotedRequest] = {}
        self.closed: dict[str, NotedRequest] = {}
        self.count: int = 0

    def take(self, record: CoallocationRecord) -> None:
        """Take the next record."""
        if isinstance(record, RequestsNumbered):
            self.count = record.count
            return
        if isinstance(record, RequestNoted):
            self.count += 1
            self.requests[record.request_id] = NotedRequest(record.request_id, record.told)
            return
        noted = self.requests.get(record.request_id)
        if noted is None:
            raise BadJournal(f"there is no request {record.request_id} in it")
        if isinstance(record, JobBegun):
            noted.begun[record.number] = noted.begun.get(record.number, 0) + 1
        elif isinstance(record, StageGiven):
            noted.stages[record.stage.told.request] = record.stage
        elif isinstance(record, StageEnded):
            noted.stages.pop(record.name, None)
        elif isinstance(record, JobNoted):
            noted.reports[record.report.number] = record.report
        elif isinstance(record, RequestNotWanted):
            noted.is_cancelled = True
        else:
            self.closed[record.request_id] = self.requests.pop(record.request_id)
            characters = sum(len(one.told.text) for one in self.closed.values())
            while len(self.closed) > CLOSED_MAX or (
                characters > CLOSED_CHARACTERS_MAX and len(self.closed) > 1
            ):
                characters -= len(self.closed.pop(next(iter(self.closed))).told.text)

    def records(self) -> Iterator[CoallocationRecord]:
        """Yield the records of a journal that comes to the same."""
        yield RequestsNumbered(self.count - len(self.requests) - len(self.closed))
        for noted in (*self.closed.values(), *self.requests.values()):
            yield RequestNoted(noted.request_id, noted.told)
            yield from (StageGiven(noted.request_id, stage) for stage in noted.stages.values())
            for number, times in sorted(noted.begun.items()):
                yield from (JobBegun(noted.request_id, number),) * times
            yield from (JobNoted(noted.request_id, report) for report in noted.reports.values())
            if noted.is_cancelled:
                yield RequestNotWanted(noted.request_id)
            if noted.request_id in self.closed:
                yield RequestClosed(noted.request_id)


def frames_of(framer: Framer, records: Iterable[CoallocationRecord]) -> bytes:
    """Return records as the bytes that follow in a file."""
    return b"".join(framer.frame(msgspec.msgpack.encode(record)) for record in records)


def read_records(data: bytes) -> NotedRequests:
    """Return what a file comes to; wherever it was cut, that is something that was true.

    Raises:
        BadJournal: it is no journal of a service.
    """
    noted = NotedRequests()
    for payload in Frames(data, MAGIC):
        try:
            noted.take(msgspec.msgpack.decode(payload, type=CoallocationRecord))
        except msgspec.DecodeError as error:
            raise BadJournal(f"this is no journal of a co-allocation service: {error}") from None
    return noted
