"""Everything that is known of a run: a pure fold of the record streams of the RTS and of its jobs.

Views only draw it. It knows no clock, no network and no terminal; times of different streams become
wall-clock times by what each stream says of itself.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from gspc_trio.components.rm.messages import ClassStatus
from gspc_trio.components.rts.messages import RegisteredJob, RequestExplanation, RtsStatus
from gspc_trio.core.ids import JobId, ResourceId, TaskId
from gspc_trio.core.task import FINAL_STATES, TaskState
from gspc_trio.records.facts import (
    GrantChanged,
    JobChanged,
    QueueChanged,
    Record,
    ResourceChanged,
    RifChanged,
    StreamOpened,
    TaskChanged,
    TaskCounts,
)
from gspc_trio.records.progress import JobProgress, Progress
from gspc_trio.tui.facts import JobFacts
from gspc_trio.tui.hierarchy import Hierarchy, Holder, Use, holders
from gspc_trio.tui.lanes import Lanes, Span
from gspc_trio.tui.news import LogLine, joined, line_of

RTS = ""
"""Name of the stream of the run-time system; a job's stream has the name of the job."""

ENDED_MAX = 5_000
"""Last ended tasks that are kept of each job."""

LOG_MAX = 5_000
"""Lines of the log that are kept."""


SECONDS_KEPT = 600
"""How far back a series reaches."""


class Series:
    """One value for each second, the newest last."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=SECONDS_KEPT)
        self._second: int | None = None

    def note(self, second: int, value: float) -> None:
        """Set the value of a second; the seconds since the last one had that value too.

        A second that lies before the last one begins a new series: time has been turned back.
        """
        if self._second is None or second < self._second:
            self._values.clear()
            self._values.append(value)
        elif second == self._second:
            self._values[-1] = value
        else:
            missing = min(second - self._second, SECONDS_KEPT)
            last = self._values[-1]
            self._values.extend([last] * (missing - 1))
            self._values.append(value)
        self._second = second

    def copy(self) -> Series:
        """Return a series that goes its own way from now on."""
        other = Series()
        other._values, other._second = self._values.copy(), self._second
        return other

    def last(self, number: int) -> list[float]:
        """Return the newest ``number`` values, the newest last; fewer if there are fewer."""
        return list(self._values)[-number:] if number > 0 else []

    @property
    def now(self) -> float:
        """The newest value, 0 if there is none."""
        return self._values[-1] if self._values else 0.0


class Model:
    """The fold.

    Attributes:
        rts: what the RTS tells.
        streams: job -> what its job server tells.
        connected: jobs whose stream is being read.
        status: the last answer of the RTS to ``GetStatus``, or None.
        explanations: job -> why its requests wait, as the RTS has said last.
        link: how the connection is, for people; "" while it is as it should be.
        cores, rate, waiting: leaves in use, tasks finished per second, tasks that wait, for each second.
        lanes: what each worker did.
        log: what happened, oldest first; ``log_dropped`` lines were before that.
        version: grows with every change.
    """

    def __init__(self) -> None:
        self.rts: Progress = Progress()
        self.streams: dict[JobId, Progress] = {}
        self.connected: set[JobId] = set()
        self.status: RtsStatus | None = None
        self.explanations: dict[JobId, tuple[RequestExplanation, ...]] = {}
        self.link = ""
        self.cores: Series = Series()
        self.rate: Series = Series()
        self.waiting: Series = Series()
        self.lanes: Lanes = Lanes()
        self.log: deque[LogLine] = deque(maxlen=LOG_MAX)
        self.log_dropped: int = 0
        self.version: int = 0
        self.now_s: float = 0.0
        self._ended: dict[JobId, OrderedDict[TaskId, TaskChanged]] = {}
        self._rts_opened: StreamOpened | None = None
        self._offsets: dict[str, float] = {}
        self._hierarchy: Hierarchy | None = None
        self._holders: dict[ResourceId, Holder] | None = None
        self._in_use: int | None = None
        self._classes: dict[str, ClassStatus] | None = None
        self._rifs: dict[str, RifChanged] | None = None
        self._finished_before: dict[JobId, int] = {}

    def copy(self) -> Model:
        """Return a model that goes its own way from now on."""
        other = Model()
        other.rts = _copied(self.rts)
        other.streams = {job: _copied(stream) for job, stream in self.streams.items()}
        other.connected = set(self.connected)
        other.cores, other.rate, other.waiting = self.cores.copy(), self.rate.copy(), self.waiting.copy()
        other.lanes = self.lanes.copy()
        other.log.extend(self.log)
        other.log_dropped = self.log_dropped
        other.version, other.now_s = self.version, self.now_s
        other._ended = {job: OrderedDict(ended) for job, ended in self._ended.items()}
        other._rts_opened = self._rts_opened
        other._offsets = dict(self._offsets)
        other._finished_before = dict(self._finished_before)
        return other

    # Taking records in --------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Note that something that is no record has changed."""
        self.version += 1

    def begin(self, source: str) -> None:
        """Forget what was known from a stream: a snapshot of it follows."""
        if source == RTS:
            self.rts = Progress()
        else:
            self.streams[source] = Progress()
        self._hierarchy = self._holders = self._in_use = None
        self._classes = self._rifs = None
        self.version += 1

    def apply(self, source: str, record: Record, *, quiet: bool = False) -> None:
        """Take in one record of a stream.

        Args:
            source: RTS, or the job whose stream it is.
            record: what happened.
            quiet: it is part of a snapshot: nothing new, and nothing for the log.
        """
        if source != RTS and isinstance(record, ResourceChanged):
            return  # what a job sees of the resources, the RTS tells better
        self.version += 1
        stream = self.rts if source == RTS else self.streams.setdefault(source, Progress())
        if isinstance(record, StreamOpened):
            if source == RTS and self._rts_opened not in (None, record):
                self._forget_jobs()  # another one, which names its own jobs in the same way
            if source == RTS:
                self._rts_opened = record
            self._offsets[source] = record.wall_offset_s
        offset_s = self._offsets.get(source, 0.0)
        if type(record) is TaskChanged:
            self.lanes.apply(record, offset_s)
            self._note_ended(record)
        elif isinstance(record, ResourceChanged):
            self._hierarchy = self._in_use = self._classes = None
        elif isinstance(record, GrantChanged | JobChanged):
            self._holders = self._in_use = self._classes = None
        elif isinstance(record, RifChanged):
            self._rifs = None
        elif isinstance(record, TaskCounts):
            for one in record.lately:
                self._note_lately(one, offset_s)
        if not quiet:
            line = line_of(record, offset_s, stream, from_job=source != RTS, end=self._end_before(record))
            if line is not None:
                self._note_line(line)
        stream.apply(record)

    def _end_before(self, record: Record) -> str:
        """Return how a job that has changed had ended before, as any stream told; "" if none did."""
        if not isinstance(record, JobChanged):
            return ""
        told = (self.rts.jobs.get(record.job), self._own(record.job))
        return next((it.state for it in told if it is not None and it.state != "running"), "")

    def _forget_jobs(self) -> None:
        for job in [job for job in self.streams if job not in self.connected]:
            del self.streams[job]
            for known in (self._ended, self._offsets, self._finished_before, self.explanations):
                known.pop(job, None)

    def _note_line(self, line: LogLine) -> None:
        both = joined(self.log[-1], line) if self.log else None
        if both is not None:
            self.log[-1] = both
            return
        self.log_dropped += len(self.log) == LOG_MAX
        self.log.append(line)

    def apply_file(self, record: Record) -> None:
        """Take in a record of a job's file, which tells of resources and grants, too."""
        job = getattr(record, "job", None)
        if not isinstance(record, TaskChanged | TaskCounts):
            self.apply(RTS, record)
        if job is not None:
            self._offsets[job] = self._offsets.get(RTS, 0.0)
            self.connected.add(job)
            self.apply(job, record, quiet=type(record) is not TaskChanged)

    def _note_ended(self, record: TaskChanged) -> None:
        ended = self._ended.get(record.job)
        if ended is None:
            ended = self._ended[record.job] = OrderedDict()
        ended.pop(record.task_id, None)
        if record.state in FINAL_STATES:
            ended[record.task_id] = record
            if len(ended) > ENDED_MAX:
                ended.popitem(last=False)

    def _note_lately(self, record: TaskChanged, offset_s: float) -> None:
        ended = self._ended.get(record.job, ())
        if record.task_id not in ended:
            self._note_ended(record)
            self.lanes.apply(record, offset_s)

    # Looking at it ------------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> None:
        """Note the values of this second, in wall-clock time."""
        second = int(now_s)
        if second == int(self.now_s):
            self.now_s = now_s
            return
        passed = max(1, second - int(self.now_s)) if self.now_s else 1
        self.now_s = now_s
        self.cores.note(second, float(self.cores_in_use))
        finished = {job: it.counts[TaskState.FINISHED] for job, it in self._progresses()}
        known = self._finished_before
        new = sum(max(0, number - known.get(job, number)) for job, number in finished.items())
        self._finished_before = finished
        self.rate.note(second, new / passed)
        ready = sum(it.counts[TaskState.READY] for _, it in self._progresses() if it.state == "running")
        self.waiting.note(second, float(ready))

    @property
    def hierarchy(self) -> Hierarchy:
        """The resources, as a tree."""
        if self._hierarchy is None:
            self._hierarchy = Hierarchy(self.rts.resources)
        return self._hierarchy

    @property
    def held(self) -> Mapping[ResourceId, Holder]:
        """Who holds which resource."""
        if self._holders is None:
            live = (job for job in self.rts.jobs.values() if job.state == "running")
            self._holders = holders(grant for job in live for grant in job.held.values())
        return self._holders

    @property
    def rifs(self) -> Mapping[str, RifChanged]:
        """The last word on the RIF of each host."""
        if self._rifs is None:
            self._rifs = {rif.host: rif for rif in self.rts.rifs.values()}
        return self._rifs

    @property
    def classes(self) -> Mapping[str, ClassStatus]:
        """Class -> its resources: as the RTS says, or as records tell."""
        if self.status is not None:
            return self.status.classes
        if self._classes is None:
            counted: dict[str, Counter[Use]] = {}
            for resource in self.rts.resources.values():
                uses = counted.setdefault(resource.resource_class, Counter())
                uses[self.hierarchy.use(resource.resource_id, self.held)[0]] += 1
            self._classes = {
                name: ClassStatus(uses.total(), uses[Use.FREE], uses[Use.HELD], uses[Use.BLOCKED])
                for name, uses in counted.items()
            }
        return self._classes

    @property
    def registered(self) -> tuple[RegisteredJob, ...]:
        """The jobs that are registered, as the RTS has said last."""
        return self.status.jobs if self.status is not None else ()

    @property
    def cores_in_use(self) -> int:
        """Resources with nothing below them that are held, or below something that is."""
        if self._in_use is None:
            self._in_use = self.hierarchy.leaves_in_use(self.held)
        return self._in_use

    def jobs(self) -> list[JobFacts]:
        """Return all jobs that are known: those that run first, then the newest."""
        names = dict.fromkeys((*self.rts.jobs, *self.streams))
        facts = [self.job(name) for name in names]
        facts.sort(key=lambda it: (it.state != "running", -_number(it.job)))
        return facts

    def job(self, job: JobId) -> JobFacts:
        """Return one job; also one of which nothing is known."""
        nothing = JobProgress(job, 0.0, 0.0)
        told = self.rts.jobs.get(job)
        own = self._own(job)
        named = next((it for it in (own, told) if it is not None and it.changed), None)
        state, detail = "running", ""
        for it in (told, own):  # the job itself knows better how it ended
            if it is not None and it.changed is not None and it.state != "running":
                state, detail = it.state, it.changed.detail
        own_or_nothing = own or told or nothing
        now = self.now_s - self._offsets.get(job, 0.0)
        rate = own_or_nothing.finished_per_s(now) if own is not None and state == "running" else 0.0
        left = own_or_nothing.total - own_or_nothing.ended
        begun = min((it.first_s + self._offset_of(it, job) for it in (told, own) if it), default=self.now_s)
        last = max((it.last_s + self._offset_of(it, job) for it in (told, own) if it), default=begun)
        holding = told if told is not None and told.held else own_or_nothing
        return JobFacts(
            job,
            named.name if named is not None else "",
            state,
            detail,
            dict(own_or_nothing.counts),
            rate,
            left / rate if rate > 0 and left else None,
            max(0.0, (self.now_s if state == "running" else last) - begun),
            len(holding.held_resources) if state == "running" else 0,
            own_or_nothing.computed_s,
            job in self.connected,
            max(0.0, self.now_s - last) if state != "running" else 0.0,
        )

    def tasks(
        self,
        job: JobId | None,
        text: str = "",
        states: Iterable[TaskState] = (),
        most: int | None = None,
    ) -> list[TaskChanged]:
        """Return the tasks that are known by name, those that matter most first.

        Args:
            job: of which job, None for all.
            text: what id, name, resource, state or detail must contain.
            states: those wanted, none for all.
            most: how many at most, None for all.
        """
        wanted, text = frozenset(states), text.lower()
        fitting = (
            record
            for record in self._known(job)
            if (not wanted or record.state in wanted) and (not text or _contains(record, text))
        )
        return list(islice(fitting, most))

    def _known(self, job: JobId | None) -> Iterator[TaskChanged]:
        chosen = [(name, it) for name, it in self._progresses() if job is None or name == job]
        for _, it in chosen:
            yield from it.running.values()
        for _, it in chosen:
            yield from it.failures.values()
        for _, it in chosen:
            yield from (record for record in it.live.values() if record.task_id not in it.running)
        for name, it in chosen:
            ended = self._ended.get(name) or OrderedDict[TaskId, TaskChanged]()
            yield from (one for key, one in reversed(ended.items()) if key not in it.failures)

    def longest_running(self, job: JobId, most: int) -> tuple[TaskChanged, ...]:
        """Return at most ``most`` running tasks of a job, those that began first before the others."""
        own = self._own(job)
        return own.longest_running(most) if own is not None else ()

    def live_at_workers(self) -> dict[ResourceId, list[TaskChanged]]:
        """Return the tasks at each worker now, first the one that runs."""
        found: dict[ResourceId, list[TaskChanged]] = {}
        for _, it in self._progresses():
            if it.state == "running":
                for record in it.live.values():
                    if record.state is TaskState.RUNNING:
                        found.setdefault(record.resource_id, []).insert(0, record)
                    elif record.state is TaskState.SUBMITTED:
                        found.setdefault(record.resource_id, []).append(record)
        return found

    def spans_of(self, live: Iterable[TaskChanged]) -> list[Span]:
        """Return what these tasks look like in the lanes of their worker."""
        return [self.lanes.span_of(record, self._offsets.get(record.job, 0.0)) for record in live]

    def wall_s(self, record: TaskChanged) -> float:
        """Return the wall-clock time of a change of a task."""
        return record.at_s + self._offsets.get(record.job, 0.0)

    def wall_of(self, source: str, at_s: float) -> float:
        """Return the wall-clock time of a time of a stream."""
        return at_s + self._offsets.get(source, 0.0)

    def queue_of(self, job: JobId, resource_id: ResourceId) -> QueueChanged | None:
        """Return how much of a job waits for a resource, None if nothing does, or no queue is known."""
        stream = self._own(job)
        return None if stream is None else stream.queues.get(resource_id)

    def held_for_s(self, holder: Holder) -> float:
        """Return for how many seconds a resource has been held."""
        return max(0.0, self.now_s - holder.since_s - self._offsets.get(RTS, 0.0))

    def ends_in_s(self, rif: RifChanged) -> float | None:
        """Return in how many seconds the host of a RIF ends; None: nobody knows of an end."""
        if rif.ends_in_s is None:
            return None
        return max(0.0, rif.at_s + self._offsets.get(RTS, 0.0) + rif.ends_in_s - self.now_s)

    def host_of(self, resource_id: ResourceId) -> str:
        """Return the host of a resource, or what its name tells."""
        known = self.rts.resources.get(resource_id)
        return known.host if known is not None else resource_id.partition(".")[0]

    def _progresses(self) -> list[tuple[JobId, JobProgress]]:
        """Return what the jobs' own streams tell of them."""
        return [(job, it) for job in self.streams if (it := self._own(job)) is not None]

    def _own(self, job: JobId) -> JobProgress | None:
        stream = self.streams.get(job)
        return stream.jobs.get(job) if stream is not None else None

    def _offset_of(self, it: JobProgress, job: JobId) -> float:
        is_own = it is self._own(job)
        return self._offsets.get(job if is_own else RTS, self._offsets.get(RTS, 0.0))


def _contains(record: TaskChanged, text: str) -> bool:
    words = (str(record.task_id), record.name, record.resource_id, record.detail, record.state.value)
    return any(text in word.lower() for word in words)


def _number(job: JobId) -> int:
    return int(job[1:]) if job[1:].isdigit() else 0


def _copied(progress: Progress) -> Progress:
    other = Progress()
    for record in progress.snapshot():
        other.apply(record)
    return other
