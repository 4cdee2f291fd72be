"""The task that runs now, as code in its process finds it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from gspc_trio.core.ids import Attempt, JobId, TaskId
from gspc_trio.core.trace_context import TraceContext, parse_traceparent


class Gathered(Protocol):
    """Results of tasks that have ended, which gather to be sent together."""

    def due_s(self) -> float | None:
        """Return in how many seconds they are to be sent, None if there are none."""
        ...

    def send(self) -> None:
        """Send them."""
        ...


class ComputePlace:
    """Where one task runs after the other.

    Args:
        address: name of the socket at which the host is to be reached.
        job: whose tasks they are.
        traceparent: trace context of the job; "": it has none.

    Attributes:
        task_id, attempt: of the task that runs now; 0 before the first one.
        trace: trace context of the job, None if it has none.
        on_end: called when it has ended, if anybody wants to know that; then ``behind`` is emptied, too.
        behind: what is called next without a look at this one's end.
        cut_off: why its job server could not be heard any more, and it has failed through that; or "".
        results: of the tasks before, None if they cannot wait; taken by a task that sends them when they are
            due, for it only waits itself.
        sends_results: whether it has taken them.
        is_silent: returns whether the task has printed nothing so far; None: nobody can tell.
        tell_event: takes what a task says to who monitors; None: nobody does.
        begun_items: returns how many items of the task have begun; None: it has none, or is not traced.
        undivided: a block in which the task does something half of which must not stay: its thread is not
            interrupted meanwhile. None: no thread is interrupted here.
    """

    __slots__ = (
        "address",
        "attempt",
        "begun_items",
        "behind",
        "cut_off",
        "is_silent",
        "job",
        "on_end",
        "results",
        "sends_results",
        "task_id",
        "tell_event",
        "trace",
        "undivided",
    )

    def __init__(self, address: str, job: JobId, traceparent: str = "") -> None:
        self.address: str = address
        self.job: JobId = job
        self.trace: TraceContext | None = parse_traceparent(traceparent) if traceparent else None
        self.task_id: TaskId = 0
        self.attempt: Attempt = 0
        self.on_end: Callable[[], None] | None = None
        self.behind: list[object] = []
        self.cut_off: str = ""
        self.results: Gathered | None = None
        self.sends_results: bool = False
        self.is_silent: Callable[[], bool] | None = None
        self.tell_event: Callable[[str], None] | None = None
        self.begun_items: Callable[[], int] | None = None
        self.undivided: AbstractContextManager[object] | None = None

    @property
    def number(self) -> TaskId:
        """Number of the task; or of its item that runs now, if each is told of (``core.task.Task.items``)."""
        return self.task_id + (0 if self.begun_items is None else self.begun_items())

    def take_results(self) -> Gathered | None:
        """Return the results of the tasks before for who sends them when they are due."""
        self.sends_results = True
        return self.results

    def end(self) -> None:
        """Say that the task has ended."""
        on_end, self.on_end, self.cut_off = self.on_end, None, ""
        if on_end is not None:
            on_end()


_find: Callable[[], ComputePlace | None] | None = None


def offer_place(find: Callable[[], ComputePlace | None]) -> None:
    """Have this answer whoever asks for the place of the code that runs."""
    global _find
    _find = find


def current_place() -> ComputePlace | None:
    """Return the place of the task whose code runs; None if this is no task."""
    return None if _find is None else _find()


def current_address() -> str:
    """Return the name of the socket at which processes of tasks reach their host; "" if this is no task."""
    place = current_place()
    return "" if place is None else place.address


def event(text: str) -> None:
    """Note that something has happened in the task whose code runs: a step begins, for example.

    It is kept beside what the task reads and writes, if the run-time system has a store of metrics and counts
    that; else nothing happens.

    Args:
        text: one line for people; 1,000 characters of it are kept.

    Raises:
        RuntimeError: this is no task, or another thread or process than the one in which the task runs.
    """
    place = current_place()
    if place is None:
        raise RuntimeError("event() is for the code of tasks: there is no task here")
    if place.tell_event is not None:
        place.tell_event(text)


def current_traceparent() -> str:
    """Return the trace context of the task whose code runs, as ``TRACEPARENT`` in the environment has it.

    Tasks in threads find it here alone: all threads of a process have one environment.

    Returns:
        str: in the form of W3C, ``00-<trace>-<span>-<flags>``; "" outside of tasks, and in jobs that are not
        traced.
    """
    place = current_place()
    if place is None or place.trace is None:
        return ""
    return place.trace.text_of(place.number, place.attempt)
