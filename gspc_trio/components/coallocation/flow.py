"""The order of a request as a machine: which jobs may start, which never will, and why (COA-4 to COA-6).

A job may start when all that it waits for has finished. One that has failed is answered to every job that
waits for it, directly or not, once each: it is not run. Others go on. A cancelled request starts nothing
more, and has ended when nothing runs any more.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.components.coallocation.language import JobOrder
from gspc_trio.core.machine import IllegalEvent, MachineBase, handles


class CoJobState(StrEnum):
    """Where a job of a request is; the last four are final."""

    WAITING = "waiting"
    STARTED = "started"
    FINISHED = "finished"
    FAILED = "failed"
    NOT_RUN = "not run"
    CANCELLED = "cancelled"


class BeginFlow(Struct, frozen=True):
    """The request begins."""


class CoJobEnded(Struct, frozen=True):
    """A job that was started runs no more.

    Attributes:
        number: of the job.
        failure: why it failed, "" if it has finished.
    """

    number: int
    failure: str = ""


class CancelFlow(Struct, frozen=True):
    """The request is cancelled."""


class StartCoJobs(Struct, frozen=True):
    """These jobs may start; none waits for another one.

    Attributes:
        numbers: of the jobs, in rising order.
    """

    numbers: tuple[int, ...]


class EndCoJobs(Struct, frozen=True):
    """These jobs are to be stopped; each is answered by :class:`CoJobEnded`."""

    numbers: tuple[int, ...]


class NotRun(Struct, frozen=True):
    """A job gets a negative reply: it is not run.

    Attributes:
        number: of the job.
        cause: number of the job that failed.
    """

    number: int
    cause: int


class FlowEnded(Struct, frozen=True):
    """Nothing runs, and nothing will."""


FlowEvent: TypeAlias = BeginFlow | CoJobEnded | CancelFlow
FlowAction: TypeAlias = StartCoJobs | EndCoJobs | NotRun | FlowEnded

_FINAL = frozenset({CoJobState.FINISHED, CoJobState.FAILED, CoJobState.NOT_RUN, CoJobState.CANCELLED})


class RequestFlow(MachineBase[FlowEvent, FlowAction]):
    """The order of one request.

    Args:
        order: which jobs wait for which; without cycles.

    Attributes:
        states: of each job; that of number 1 comes first.
        causes: number of a job that is not run -> number of the job that failed.
    """

    noun = "the flow of a request"

    def __init__(self, order: JobOrder) -> None:
        super().__init__()
        self._order = order
        nodes = len(order.awaited)
        self.states: list[CoJobState] = [CoJobState.WAITING] * order.jobs
        self.causes: dict[int, int] = {}
        self._left = [0, *map(len, order.awaited)]
        self._dependents: list[list[int]] = [[] for _ in range(nodes + 1)]
        for number, awaited in enumerate(order.awaited, 1):
            for other in awaited:
                self._dependents[other].append(number)
        self._refused: set[int] = set()  # gates that never open
        self._running = 0
        self._undecided = order.jobs
        self._begun = self._cancelled = self._ended = False

    @property
    def is_over(self) -> bool:
        """Whether nothing runs, and nothing will."""
        return self._ended

    @handles(BeginFlow)
    def _begin(self, _: BeginFlow) -> None:
        if self._begun:
            raise IllegalEvent("the request has begun already")
        self._begun = True
        if not self._cancelled:
            self._start([number for number in range(1, self._order.jobs + 1) if not self._left[number]])

    @handles(CoJobEnded)
    def _job_ended(self, event: CoJobEnded) -> None:
        if not 0 < event.number <= self._order.jobs:
            raise IllegalEvent(f"there is no job {event.number}")
        if self.states[event.number - 1] is not CoJobState.STARTED:
            raise IllegalEvent(f"job {event.number} does not run: it is {self.states[event.number - 1]}")
        self._running -= 1
        if not event.failure:
            self._decide(event.number, CoJobState.FINISHED)
            if not self._cancelled:
                self._start(self._released(event.number))
            return
        self._decide(event.number, CoJobState.CANCELLED if self._cancelled else CoJobState.FAILED)
        if not self._cancelled:
            self._refuse_dependents(event.number)

    @handles(CancelFlow)
    def _cancel(self, _: CancelFlow) -> None:
        if self._cancelled or self._ended:
            return  # it is so already
        self._cancelled = True
        running = []
        for number, state in enumerate(self.states, 1):
            if state is CoJobState.WAITING:
                self._decide(number, CoJobState.CANCELLED)
            elif state is CoJobState.STARTED:
                running.append(number)
        if running:
            self.actions.append(EndCoJobs(tuple(running)))

    def settle(self) -> None:
        """End with the last job."""
        if not self._undecided and not self._ended and (self._begun or self._cancelled):
            self._ended = True
            self.actions.append(FlowEnded())

    def _decide(self, number: int, state: CoJobState) -> None:
        self.states[number - 1] = state
        self._undecided -= 1

    def _start(self, numbers: list[int]) -> None:
        if not numbers:
            return
        for number in numbers:
            self.states[number - 1] = CoJobState.STARTED
        self._running += len(numbers)
        self.actions.append(StartCoJobs(tuple(numbers)))

    def _released(self, number: int) -> list[int]:
        """Return the jobs that waited for this one last, in rising order."""
        found: list[int] = []
        stack = [number]
        while stack:
            for other in self._dependents[stack.pop()]:
                self._left[other] -= 1
                if self._left[other]:
                    continue
                if other > self._order.jobs:
                    stack.append(other)
                elif self.states[other - 1] is CoJobState.WAITING:
                    found.append(other)
        return sorted(found)

    def _refuse_dependents(self, cause: int) -> None:
        """Answer each job that waits for a failed one, directly or not."""
        found: list[int] = []
        stack = [cause]
        while stack:
            for other in self._dependents[stack.pop()]:
                if other > self._order.jobs:
                    if other not in self._refused:
                        self._refused.add(other)
                        stack.append(other)
                elif self.states[other - 1] is CoJobState.WAITING:
                    self._decide(other, CoJobState.NOT_RUN)
                    self.causes[other] = cause
                    found.append(other)
                    stack.append(other)
        self.actions.extend(NotRun(number, cause) for number in sorted(found))

    def deadline(self) -> float | None:
        """Return None: time changes nothing here."""
        return None

    def check(self) -> None:
        """Assert every invariant."""
        assert self._running == self.states.count(CoJobState.STARTED)
        assert self._undecided == sum(state not in _FINAL for state in self.states)
        not_run = {number for number, state in enumerate(self.states, 1) if state is CoJobState.NOT_RUN}
        assert not_run == set(self.causes)
        assert all(self.states[cause - 1] is CoJobState.FAILED for cause in self.causes.values())
        assert not self._ended or not self._undecided
        for number, state in enumerate(self.states, 1):
            awaited = self._order.awaited[number - 1]
            if state in (CoJobState.STARTED, CoJobState.FINISHED, CoJobState.FAILED):
                assert all(map(self._is_finished, awaited)), f"job {number} did not wait"

    def _is_finished(self, number: int) -> bool:
        if number > self._order.jobs:
            return not self._left[number]
        return self.states[number - 1] is CoJobState.FINISHED
