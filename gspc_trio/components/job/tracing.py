"""Spans of a job: itself, the attempts of its tasks, and the phases of those (pure).

What has ended waits as spans in a bounded queue for whoever sends them. Of what finds no room there nothing
is made, it is only counted: a job that is faster than spans can be sent does not become slower. Of such a job
every so manieth attempt has a span, so that what is seen is spread over all of its time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from gspc_trio.components.job.scheduler.interface import AttemptEnded, EndedItems, TaskDone
from gspc_trio.components.job.spans import Span
from gspc_trio.core.ids import JobId, ResourceId, TaskId
from gspc_trio.core.task import Outcome, Reason, TaskError, TaskState
from gspc_trio.core.trace_context import TraceContext

QUEUE_SPANS_MAX = 2_048
"""So many spans wait to be sent."""

KEPT_FOR_FAILURES = 256
"""So many of these places are for attempts that did not finish, and for the job."""

SPANS_OF_MOST = 2
"""Spans of an attempt that stages no data: its own, and that of compute."""

TEXT_MAX = 4_096
"""Characters of a message or traceback in a span."""

RETRIED_MAX = 10_000
"""Of so many tasks that are tried again the span of the last attempt is remembered."""

BATCH_SPANS_MAX = 512
"""So many spans are sent at a time."""

BUSY_SHARE = 0.1
"""A process that takes more of a core than this computes."""

SENT_SHARE = 0.01
BUSY_SENT_SHARE = 0.002
"""So much of a core it takes at most to send spans: usually, and while the process of the job computes."""

LOOK_INTERVAL_S = 0.5
"""Spans wait for at most so long before they are sent, if those before them have been."""

PHASES = ("compute", "stage in", "stage out")
"""Their places in this list, from 1, number their spans."""


class SpanQueue:
    """Spans that wait; one thread puts them in and another one takes them.

    Args:
        spans_max: so many at most.
        kept: so many places only ``must`` may take.

    Attributes:
        to_pass: so many attempts are passed over before the next one has spans; those that did not finish
            are never.
    """

    def __init__(self, spans_max: int = QUEUE_SPANS_MAX, kept: int = KEPT_FOR_FAILURES) -> None:
        self._waiting: deque[Span] = deque()
        self._max = spans_max
        self._usual = spans_max - kept
        self.to_pass: int = 0
        self._pause = 0  # what that was at first
        self._every = 1  # of so many attempts one has spans
        self._asked = 0  # spans of those for which room was wanted
        self._passed = 0  # spans of those that were passed over before the last one
        self._refused = 0
        self._counted = 0  # when spans were taken last: all of these

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def dropped(self) -> int:
        """Number of spans for which there was no room, and of those of attempts that were passed over."""
        return self._refused + self._passed_over()

    def _passed_over(self) -> int:
        return self._passed + (self._pause - self.to_pass) * SPANS_OF_MOST

    def has_room(self, count: int, *, must: bool = False) -> bool:
        """Return whether so many spans can be put in; if not, they count as dropped."""
        self._asked += count
        self._passed += (self._pause - self.to_pass) * SPANS_OF_MOST
        self._pause = self.to_pass = self._every - 1
        if len(self._waiting) + count <= (self._max if must else self._usual):
            return True
        self._refused += count
        return False

    def drop(self, attempts: int) -> None:
        """Count the spans of so many attempts as dropped: there was no room for those before."""
        self._asked += attempts * SPANS_OF_MOST
        self._refused += attempts * SPANS_OF_MOST

    def put(self, spans: list[Span]) -> None:
        """Put in spans for which there is room."""
        self._waiting.extend(spans)

    def take(self, count: int) -> list[Span]:
        """Return at most so many of those that have waited longest.

        If more have come than that since it was called last, as many of those that come will be passed over.
        """
        counted = self._asked + self._passed_over()
        self._every = max(1, -(-(counted - self._counted) // min(count, self._usual)))
        self._counted = counted
        too_many = self.to_pass - self._every + 1
        if too_many > 0:  # it has become slower
            self._pause -= too_many
            self.to_pass -= too_many
        return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]


class SendingPace:
    """Decides how long to wait after spans were sent.

    Args:
        now: the time, in seconds.
        process_s: CPU time of the process of the job until now.
    """

    def __init__(self, now: float, process_s: float) -> None:
        self._looked, self._process_s = now, process_s

    def wait_s(self, now: float, process_s: float, sent_s: float) -> float:
        """Return how long to wait before more is sent.

        Args:
            now: the time, in seconds.
            process_s: CPU time of the process of the job until now.
            sent_s: CPU time that was spent, in another process, to send spans since this was called last.
        """
        is_busy = process_s - self._process_s > BUSY_SHARE * (now - self._looked)
        self._looked, self._process_s = now, process_s
        return max(LOOK_INTERVAL_S, sent_s / (BUSY_SENT_SHARE if is_busy else SENT_SHARE))


class JobTracer:
    """Makes the spans of one job.

    Args:
        context: of the span of the job.
        parent: number of the span above it, 0 if there is none.
        job: its id.
        name: of the job.
        begun_s: when it began, seconds since 1970.
        host_of: resource -> its host.
    """

    def __init__(
        self,
        context: TraceContext,
        parent: int,
        job: JobId,
        name: str,
        begun_s: float,
        host_of: Callable[[ResourceId], str],
    ) -> None:
        self.context = context
        self.queue: SpanQueue = SpanQueue()
        self._parent, self._job, self._name, self._begun_s = parent, job, name, begun_s
        self._host_of = host_of
        self._before: dict[TaskId, int] = {}  # spans of the last attempts of tasks that are tried again
        self._tells = context.sampled

    def before(
        self, on_done: Callable[[TaskDone], None] | None, clock: Callable[[], float]
    ) -> Callable[[TaskDone], None]:
        """Return what takes each task that has ended, and then gives it to another one, if there is one."""

        queue, before = self.queue, self._before

        def take(done: TaskDone) -> None:
            if done.items:  # :meth:`items_ended` is told of each
                before.pop(done.task_id, None)
            elif queue.to_pass > 0 and not before and done.state is TaskState.FINISHED:
                queue.to_pass -= 1
            else:
                self.finished(done, clock())
            if on_done is not None:
                on_done(done)

        return take

    def finished(self, done: TaskDone, now_s: float) -> None:
        """A task has ended; of one that has finished, this is its last attempt."""
        outcome = done.outcome
        if not self._tells or done.state is not TaskState.FINISHED or not outcome.attempt:
            self._before.pop(done.task_id, None)
            return
        link = self._before.pop(done.task_id, 0) if self._before else 0
        if self.queue.has_room(4 if outcome.staged_s else 2):
            spans = self._spans(outcome, done.name, done.tries, done.resource_id, link, now_s, 0.0)
            self.queue.put(spans)

    def items_ended(self, ended: EndedItems, now_s: float) -> None:
        """Calls of a range have ended.

        Those that have failed have spans as other attempts that did not finish; of the others those for which
        there is room, and that are not passed over.
        """
        if not self._tells:
            return
        queue, done, errors = self.queue, ended.done, ended.errors
        told = ended.name, done.tries, done.resource_id, 0, now_s, 0.0
        for place in sorted(errors):
            if queue.has_room(SPANS_OF_MOST, must=True):
                queue.put(self._spans(ended.outcome(place), *told))
        finished: Sequence[int] = range(ended.count)
        if errors:
            finished = [place for place in finished if place not in errors]
        at = 0
        while True:
            passed = min(queue.to_pass, len(finished) - at)
            queue.to_pass -= passed
            at += passed
            if at == len(finished):
                return
            if not queue.has_room(SPANS_OF_MOST):
                queue.drop(len(finished) - at - 1)
                return
            queue.put(self._spans(ended.outcome(finished[at]), *told))
            at += 1

    def ended(self, ended: AttemptEnded, now_s: float) -> None:
        """An attempt has ended and did not finish."""
        outcome, task_id = ended.outcome, ended.outcome.task_id
        if not self._tells:
            return
        link = self._before.pop(task_id, 0)
        if self.queue.has_room(4, must=True):
            told = (ended.name, ended.tries, ended.resource_id, link, now_s, ended.ran_s)
            self.queue.put(self._spans(outcome, *told))
            self._before[task_id] = self.context.span_of(task_id, outcome.attempt)
            if len(self._before) > RETRIED_MAX:
                del self._before[next(iter(self._before))]

    def end(self, state: str, detail: str, tasks: Mapping[str, int], now_s: float) -> None:
        """The job has ended."""
        if not self._tells:
            return
        counts = {f"gspc.tasks.{name}": number for name, number in tasks.items() if number}
        attributes: dict[str, str | int] = {"gspc.job.id": self._job, "gspc.outcome": state, **counts}
        error = None if state == "finished" else TaskError(state, detail[:TEXT_MAX])
        if self.queue.has_room(1, must=True):
            span_id = self.context.span_id
            span = Span(self._name, span_id, self._parent, self._begun_s, now_s, attributes, error)
            self.queue.put([span])

    def _spans(
        self,
        outcome: Outcome,
        name: str,
        tries: int,
        resource_id: ResourceId,
        link: int,
        now_s: float,
        ran_s: float,
    ) -> list[Span]:
        """Return the span of an attempt, and those of its phases."""
        task_id, attempt = outcome.task_id, outcome.attempt
        attributes: dict[str, str | int] = {
            "gspc.job.id": self._job,
            "gspc.task.id": task_id,
            "gspc.attempt": tries,
            "gspc.resource.id": resource_id,
            "host.name": self._host_of(resource_id),
            "gspc.outcome": outcome.reason.value,
        }
        if outcome.moved:
            attributes["gspc.fetched_bytes"] = sum(size_bytes for _, size_bytes, _ in outcome.moved)
        begun_s = outcome.started_s
        if not begun_s and (outcome.duration_s or ran_s):  # whoever knew it is gone, or was killed
            begun_s = now_s - (outcome.duration_s or ran_s)
        phases = {}
        if begun_s:
            phases[1] = begun_s, begun_s + (outcome.duration_s or ran_s)
        for part, at in ((2, 0), (3, 2)):
            begin_s, end_s = outcome.staged_s[at : at + 2] or (0.0, 0.0)
            if begin_s:
                phases[part] = begin_s, max(begin_s, end_s)
        whole = self.context.span_of(task_id, attempt)
        first_s = min((begin_s for begin_s, _ in phases.values()), default=now_s)
        last_s = max((end_s for _, end_s in phases.values()), default=now_s)
        error = None
        if outcome.reason is not Reason.FINISHED:
            error = _shortened(outcome.error or TaskError(outcome.reason.value, ""))
        spans = [Span(name, whole, self.context.span_id, first_s, last_s, attributes, error, link)]
        for part, (begin_s, end_s) in sorted(phases.items(), key=lambda phase: phase[1]):
            number = self.context.span_of(task_id, attempt, part)
            spans.append(Span(PHASES[part - 1], number, whole, begin_s, end_s, attributes))
        return spans


def _shortened(error: TaskError) -> TaskError:
    """Return an error as a span has it: bounded, and without the exception itself."""
    return TaskError(error.kind, error.message[:TEXT_MAX], error.traceback[-TEXT_MAX:])
