"""Lanes of each worker, for the way in, compute and the way out: what it did of late (WRK-2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from attrs import define, field
from msgspec import Struct

from gspc_trio.core.ids import JobId, ResourceId, TaskId
from gspc_trio.core.task import TaskState
from gspc_trio.records.facts import TaskChanged

LANES = ("in", "compute", "out")
"""On the way in: at the worker, waiting or fetching its data; on the way out: storing data, and reporting."""

SPANS_MAX = 200
"""Last spans that are kept of each lane."""

SENT_MAX = 20_000
"""Tasks at workers of which it is known since when."""


class Span(Struct, frozen=True):
    """A task in a lane, in wall-clock time; ``end_s`` is None while it lasts.

    ``staging``: its data is fetched or stored; without that it only waits at the worker, or is reported.
    """

    task_id: TaskId
    job: JobId
    name: str
    begin_s: float
    end_s: float | None
    state: TaskState
    staging: bool = False


def _spans() -> tuple[deque[Span], deque[Span], deque[Span]]:
    return deque(maxlen=SPANS_MAX), deque(maxlen=SPANS_MAX), deque(maxlen=SPANS_MAX)


@define
class Worker:
    """The lanes of one worker; what is there now is not yet in ``spans``."""

    resource_id: ResourceId
    spans: tuple[deque[Span], deque[Span], deque[Span]] = field(factory=_spans)
    last_s: float = 0.0


class Lanes:
    """The lanes of all workers."""

    def __init__(self) -> None:
        self.workers: dict[ResourceId, Worker] = {}
        self._sent: dict[tuple[JobId, TaskId], float] = {}

    def copy(self) -> Lanes:
        """Return lanes that go their own way from now on."""
        other = Lanes()
        for name, worker in self.workers.items():
            copied = other.workers[name] = Worker(name, last_s=worker.last_s)
            for mine, theirs in zip(copied.spans, worker.spans, strict=True):
                mine.extend(theirs)
        other._sent = dict(self._sent)
        return other

    def apply(self, record: TaskChanged, offset_s: float) -> None:
        """Take in a change of a task.

        Args:
            record: the change.
            offset_s: what to add to its time for wall-clock time.
        """
        key = (record.job, record.task_id)
        at_s = record.at_s + offset_s
        if record.state in (TaskState.SUBMITTED, TaskState.RUNNING):
            self._sent.setdefault(key, at_s)
            if len(self._sent) > SENT_MAX:
                del self._sent[next(iter(self._sent))]
            self._worker(record.resource_id).last_s = at_s
            return
        sent_s = self._sent.pop(key, None)
        in_s, in_end_s, out_s, out_end_s = record.staged_s or (0.0, 0.0, 0.0, 0.0)
        if not record.resource_id or not (record.started_s or in_s):
            return
        begun_s, ended_s = record.started_s or in_end_s, record.started_s + record.duration_s
        worker = self._worker(record.resource_id)
        worker.last_s = at_s
        for lane, begin_s, end_s, staging in (
            (0, begun_s if sent_s is None else sent_s, in_s or begun_s, False),
            (0, in_s, in_end_s, True),
            (1, begun_s, ended_s, False),
            (2, out_s, out_end_s, True),
            (2, out_end_s or ended_s, at_s, False),
        ):
            if end_s > begin_s > 0 or (lane == 1 and record.started_s):
                span = Span(record.task_id, record.job, record.name, begin_s, end_s, record.state, staging)
                worker.spans[lane].append(span)

    def span_of(self, record: TaskChanged, offset_s: float) -> Span:
        """Return the span, without an end, of a task that is at a worker now."""
        since_s = record.at_s + offset_s
        if record.state is TaskState.SUBMITTED:
            since_s = self._sent.get((record.job, record.task_id), since_s)
        return Span(record.task_id, record.job, record.name, since_s, None, record.state)

    def _worker(self, resource_id: ResourceId) -> Worker:
        worker = self.workers.get(resource_id)
        if worker is None:
            worker = self.workers[resource_id] = Worker(resource_id)
        return worker


def draw(spans: Iterable[Span], begin_s: float, end_s: float, width: int) -> list[Span | None]:
    """Return for each of ``width`` columns the last span that is in it, or None.

    A span is at least one column wide, so that short tasks are seen.
    """
    columns: list[Span | None] = [None] * width
    if width <= 0 or end_s <= begin_s:
        return columns
    scale = width / (end_s - begin_s)
    for span in spans:
        until_s = end_s if span.end_s is None else span.end_s
        if until_s < begin_s or span.begin_s > end_s:
            continue
        first = max(0, int((span.begin_s - begin_s) * scale))
        last = min(width, max(first + 1, round((until_s - begin_s) * scale)))
        for column in range(first, last):
            columns[column] = span
    return columns


def busy_share(spans: Iterable[Span], begin_s: float, end_s: float) -> float:
    """Return the part of the time for which a lane was busy, 0 to 1."""
    if end_s <= begin_s:
        return 0.0
    return min(1.0, sum(_overlap(spans, begin_s, end_s)) / (end_s - begin_s))


def _overlap(spans: Iterable[Span], begin_s: float, end_s: float) -> Iterator[float]:
    for span in spans:
        until_s = end_s if span.end_s is None else span.end_s
        yield max(0.0, min(end_s, until_s) - max(begin_s, span.begin_s))
