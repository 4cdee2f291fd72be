"""A request that runs at a service: its order, jobs, and stages that others run (COA-4 to COA-6).

A stage that was given to a service below is followed here as if it ran here: what that service tells of its
jobs goes into the same order. So a stage whose service is lost goes on here with what had not begun.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.msgpack import encode
from msgspec.structs import replace

from gspc_trio.components.coallocation.agents.words import (
    LEASE_S,
    AttachRequest,
    CancelRequest,
    JobReport,
    JobsEnded,
    OptionLadder,
    PartNeed,
    PartsDone,
    PartsGo,
    RequestDone,
    SubmitParts,
    SubmitRequest,
)
from gspc_trio.components.coallocation.flow import (
    BeginFlow,
    CancelFlow,
    CoJobEnded,
    CoJobState,
    EndCoJobs,
    FlowEvent,
    NotRun,
    RequestFlow,
    StartCoJobs,
)
from gspc_trio.components.coallocation.jobs import CoJob, CoPart
from gspc_trio.components.coallocation.language import JobOrder
from gspc_trio.core.machine import MachineBase, Tick, handles

TELL_S, TELL_S_MAX = 0.05, 1.0
"""Ends of jobs are told together: so long after the first one, each time twice as long."""

OUTPUT_CHARACTERS_MAX = 1 << 20
"""Ends whose programs have printed more are told at once: a message has a limit."""

FIELDS = {"count": "count", "class": "resource_class", "memory": "memory_bytes", "features": "features"}
"""Option that may be a ladder -> attribute of a part."""


STAGE_BACK_S = 45.0
"""A service below that has a stage may be silent for so long, if the stage outlives that."""

_AFTER_CRASH = "it has not registered since this service was started again"


class PartProgram(Struct, frozen=True):
    """What runs on each resource of a part.

    Attributes:
        part: number of the part in its job, from 0.
        program: the program and its arguments.
        directory: where it runs.
        environment: variables that are added.
        max_time_s: after so many seconds it is stopped, and has failed; None: never.
        start: ``together`` or ``inside``.
    """

    part: int
    program: tuple[str, ...]
    directory: str
    environment: dict[str, str]
    max_time_s: float | None = None
    start: str = "together"


def needs_of(job: CoJob, directory: str) -> tuple[PartNeed, ...]:
    """Return what the parts of a job need, best first."""
    return tuple(_need(job, number, part, directory) for number, part in enumerate(job.parts))


def _need(job: CoJob, number: int, part: CoPart, directory: str) -> PartNeed:
    program = PartProgram(
        number,
        part.program,
        part.directory or directory,
        dict(part.environment),
        part.max_time_s,
        job.start,
    )
    return PartNeed(
        part.resource_class[0],
        part.count[0],
        part.memory_bytes[0],
        frozenset(part.features[0]),
        part.contact,
        encode(program),
    )


def ladders_of(job: CoJob) -> tuple[OptionLadder, ...]:
    """Return the options of a job that have several values, in the order of the text."""
    found = []
    for number, part in enumerate(job.parts):
        for name in part.order:
            values: Sequence[object] = getattr(part, FIELDS[name])
            if name == "features":
                values = [frozenset(one) for one in part.features]
            if len(values) > 1:
                found.append(OptionLadder(number, FIELDS[name], tuple(values)))
    return tuple(found)


class GivenStage(Struct, frozen=True):
    """A stage that a service below runs.

    Attributes:
        child: name of the service.
        first: number of its first job in the whole request.
        jobs: how many jobs it has.
        told: what the service is told; its jobs are numbered from 1.
    """

    child: str
    first: int
    jobs: int
    told: SubmitRequest


class BeginRequest(Struct, frozen=True):
    """It begins; or goes on after a crash of its service.

    Attributes:
        reports: how jobs have ended before.
        is_back: it goes on: services below know of their stages.
        begun: number of a job that was started before -> how often; none that has no attempts left.
    """

    reports: tuple[JobReport, ...] = ()
    is_back: bool = False
    begun: Mapping[int, int] = {}


class PlacedSaid(Struct, frozen=True):
    """What was placed here for a job says something."""

    said: PartsGo | PartsDone


class StageTold(Struct, frozen=True):
    """A service below tells of a stage."""

    said: JobsEnded | RequestDone


class StageLost(Struct, frozen=True):
    """A service below is gone.

    Attributes:
        child: its name.
        reason: why.
        is_silent: it may be there, and be cut off. Else its connection was closed: whoever is there connects
            again soon.
    """

    child: str
    reason: str
    is_silent: bool = False


class StageBack(Struct, frozen=True):
    """A service below is there."""

    child: str


class RequestCancelled(Struct, frozen=True):
    """Somebody cancels it.

    Attributes:
        reason: why.
    """

    reason: str = "cancelled"


class PlaceJob(Struct, frozen=True):
    """Try to get the parts of a job, and start them."""

    wanted: SubmitParts


class UnplaceJob(Struct, frozen=True):
    """Stop what was placed."""

    placed: str


class TellBelow(Struct, frozen=True):
    """Say something to a service below."""

    child: str
    said: SubmitRequest | AttachRequest | CancelRequest


class TellAsker(Struct, frozen=True):
    """Say something to whom the request came from."""

    said: JobsEnded | RequestDone


RequestEvent: TypeAlias = (
    BeginRequest | PlacedSaid | StageTold | StageLost | StageBack | RequestCancelled | Tick
)
RequestAction: TypeAlias = PlaceJob | UnplaceJob | TellBelow | TellAsker


class _Here(Struct):
    """A job that runs here: the number of its attempt, and whether its programs were started."""

    attempt: int
    started: bool = False
    stopping: bool = False


class _Needs(Struct):
    """What the jobs with the same parts, which start in the same way, need."""

    start: str
    needs: tuple[PartNeed, ...]
    ladders: tuple[OptionLadder, ...]


class RunningRequest(MachineBase[RequestEvent, RequestAction]):
    """One request of one asker.

    Args:
        told: what the asker has said.
        jobs: its jobs, in the order of the text.
        order: which of them wait for which.
        stages: what services below run.

    Attributes:
        request: what the asker calls it.
        jobs: see above.
        flow: its order.
        reports: number of a job that has ended -> how.
        here: number of a job -> how it runs here.
        is_cancelled: whether it was cancelled.
        ended: reports that its service has not noted yet.
        ended_stages: names of stages that are over below, of which it has not noted that.
    """

    noun = "a request at a service"

    def __init__(
        self, told: SubmitRequest, jobs: Sequence[CoJob], order: JobOrder, stages: Sequence[GivenStage] = ()
    ) -> None:
        super().__init__()
        self.request: str = told.request
        self.jobs: Sequence[CoJob] = jobs
        self.order = order
        self.flow: RequestFlow = RequestFlow(order)
        self.reports: dict[int, JobReport] = {}
        self.here: dict[int, _Here] = {}
        self.ended: list[JobReport] = []
        self.ended_stages: list[str] = []
        self._told = told
        self._stages: dict[str, GivenStage] = {stage.told.request: stage for stage in stages}
        self._attempts: dict[int, int] = {}
        self._needs: dict[int, _Needs] = {}
        self._untold: list[JobReport] = []
        self._untold_characters = 0
        self._tell_s: float | None = None
        self._pause_s = TELL_S
        self.is_cancelled: bool = False
        self._is_over = False
        self._before: dict[int, JobReport] = {}
        self._away: dict[str, tuple[float, str]] = {}

    @property
    def is_over(self) -> bool:
        """Whether nothing runs, and nothing will, and the asker was told."""
        return self._is_over

    def child_of(self, number: int) -> str:
        """Return which service below runs a job, "" if it is this one."""
        return next((s.child for s in self._stages.values() if s.first <= number < s.first + s.jobs), "")

    def told_reports(self) -> tuple[JobReport, ...]:
        """Return how jobs have ended, without those of which the asker is told soon."""
        untold = {report.number for report in self._untold}
        return tuple(report for number, report in self.reports.items() if number not in untold)

    def deadline(self) -> float | None:
        """Return when ends of jobs are to be told, or a service below is given up."""
        times = [until_s for until_s, _ in self._away.values()]
        if self._tell_s is not None:
            times.append(self._tell_s)
        return min(times, default=None)

    def check(self) -> None:
        """Assert that each job that was started runs at one place, and that each has one end."""
        self.flow.check()
        for number, state in enumerate(self.flow.states, 1):
            runs = (number in self.here) + bool(self.child_of(number))
            assert runs <= 1 or state is not CoJobState.STARTED, f"job {number} runs twice"
            assert state is not CoJobState.STARTED or runs == 1, f"job {number} runs nowhere"
            final = state not in (CoJobState.WAITING, CoJobState.STARTED)
            assert final == (number in self.reports), f"job {number} is {state}, and was told of wrongly"
        assert self._away.keys() <= self._stages.keys(), "a stage is waited for that is over"
        assert not self._is_over or not (self.here or self._stages), "it is over, and something runs"

    @handles(BeginRequest)
    def _begin(self, event: BeginRequest) -> None:
        self._before = {report.number: report for report in event.reports}
        self._attempts = dict(event.begun)
        for name, stage in self._stages.items():
            if event.is_back:
                self._away[name] = self.now + STAGE_BACK_S, _AFTER_CRASH
            else:
                self.actions.append(TellBelow(stage.child, stage.told))
        self._flow(BeginFlow())

    @handles(Tick)
    def _tick(self, _: Tick) -> None:
        if self._tell_s is not None and self.now >= self._tell_s:
            self._tell()
        for name, (until_s, reason) in list(self._away.items()):
            if self.now >= until_s:
                stage = self._stages[name]
                self._stage_over(stage, f"{stage.child} is gone: {reason}")

    @handles(PlacedSaid)
    def _answered(self, event: PlacedSaid) -> None:
        number, attempt = map(int, event.said.request.split("."))
        here = self.here.get(number)
        if here is None or here.attempt != attempt:
            return
        if isinstance(event.said, PartsGo):
            here.started = True
            return
        del self.here[number]
        done = event.said
        again = done.error and done.ran and not self.is_cancelled
        if again and attempt < self.jobs[number - 1].attempts:
            self._place(number)
            return
        output = "".join(text for _, text in done.outputs)
        self._job_ended(number, done.error, output)

    @handles(StageTold)
    def _stage_told(self, event: StageTold) -> None:
        stage = self._stages.get(event.said.request)
        if stage is None:
            return
        if isinstance(event.said, RequestDone):
            self._stage_over(stage, event.said.error or f"{stage.child} has not told how it ended")
            return
        for report in event.said.ends:
            number = stage.first + report.number - 1
            known = 0 < report.number <= stage.jobs
            if not known or self.flow.states[number - 1] is not CoJobState.STARTED:
                continue  # it is not run, or cancelled: that is known here
            failure = "" if report.state == CoJobState.FINISHED else report.reason or "it has failed"
            self._job_ended(number, failure, report.output)

    @handles(StageLost)
    def _stage_lost(self, event: StageLost) -> None:
        for name, stage in [(key, one) for key, one in self._stages.items() if one.child == event.child]:
            if not stage.told.outlives:
                self._stage_over(stage, f"{event.child} is gone: {event.reason}")
            elif name not in self._away:
                wait_s = STAGE_BACK_S if event.is_silent else LEASE_S
                self._away[name] = self.now + wait_s, event.reason

    @handles(StageBack)
    def _stage_back(self, event: StageBack) -> None:
        for name in [one for one in self._away if self._stages[one].child == event.child]:
            del self._away[name]
            self.actions.append(TellBelow(event.child, AttachRequest(name)))
            if self.is_cancelled:
                self.actions.append(TellBelow(event.child, CancelRequest(name)))

    @handles(RequestCancelled)
    def _cancel(self, _: RequestCancelled) -> None:
        if self.is_cancelled:
            return
        self.is_cancelled = True
        for stage in self._stages.values():
            self.actions.append(TellBelow(stage.child, CancelRequest(stage.told.request)))
        self._flow(CancelFlow())

    def settle(self) -> None:
        """Tell the asker when nothing runs any more."""
        if self.flow.is_over and not self._stages and not self._is_over:
            self._is_over = True
            self._tell()
            self._tell_s = None
            self.actions.append(TellAsker(RequestDone(self.request)))

    def _stage_over(self, stage: GivenStage, reason: str) -> None:
        """A service below does not run it any more: what it had begun has failed, the rest is run here."""
        del self._stages[stage.told.request]
        self._away.pop(stage.told.request, None)
        self.ended_stages.append(stage.told.request)
        for number in range(stage.first, stage.first + stage.jobs):
            if self.flow.states[number - 1] is CoJobState.STARTED and number not in self.here:
                self._job_ended(number, reason, "")

    # Jobs

    def _flow(self, event: FlowEvent) -> None:
        events = deque([event])
        while events:
            events += self._follow(events.popleft())

    def _follow(self, event: FlowEvent) -> Iterator[FlowEvent]:
        """Take an event of the order; yield what had happened before its service was started again."""
        for action in self.flow.handle(event, self.now):
            if isinstance(action, StartCoJobs):
                for number in action.numbers:
                    if (before := self._before.pop(number, None)) is not None:
                        self._report(before)
                        is_finished = before.state == CoJobState.FINISHED
                        yield CoJobEnded(number, "" if is_finished else before.reason or before.state)
                    elif not self.child_of(number):
                        self._place(number)
            elif isinstance(action, EndCoJobs):
                for number in action.numbers:
                    here = self.here.get(number)
                    if here is not None and not here.stopping:
                        here.stopping = True
                        self.actions.append(UnplaceJob(f"{number}.{here.attempt}"))
            elif isinstance(action, NotRun):
                cause = self.jobs[action.cause - 1]
                reason = f"it waits for job {cause.number} ({cause.name}), which has failed"
                self._report_first(JobReport(action.number, CoJobState.NOT_RUN, reason))
        if isinstance(event, CancelFlow):
            for number, state in enumerate(self.flow.states, 1):
                if state is CoJobState.CANCELLED and number not in self.reports:
                    self._report_first(JobReport(number, CoJobState.CANCELLED, "cancelled"))

    def _report_first(self, report: JobReport) -> None:
        """Report a job that was never started, as it was before its service was started again, if it was."""
        self._report(self._before.pop(report.number, report))

    def _place(self, number: int) -> None:
        job = self.jobs[number - 1]
        attempt = self._attempts[number] = self._attempts.get(number, 0) + 1
        self.here[number] = _Here(attempt)
        on_error = None if job.on_error == math.inf else int(job.on_error)
        known = self._needs.get(id(job.parts))
        if known is None or known.start != job.start:  # jobs that are alike have the same parts
            needs = needs_of(job, self._told.directory)
            known = self._needs[id(job.parts)] = _Needs(job.start, needs, ladders_of(job))
        wanted = SubmitParts(
            f"{number}.{attempt}",
            known.needs,
            known.ladders,
            on_error,
            job.barrier_timeout_s,
            self._told.credentials,
        )
        self.actions.append(PlaceJob(wanted))

    def _job_ended(self, number: int, failure: str, output: str) -> None:
        state = CoJobState.FINISHED
        if failure:
            state = CoJobState.CANCELLED if self.is_cancelled else CoJobState.FAILED
        self._report(JobReport(number, state, failure, output))
        self._flow(CoJobEnded(number, failure))

    def _report(self, report: JobReport) -> None:
        # What programs have printed is told once, and not kept.
        kept = replace(report, output="") if report.output else report
        self.reports[report.number] = kept
        self.ended.append(kept)
        self._untold.append(report)
        self._untold_characters += len(report.output)
        if self._untold_characters > OUTPUT_CHARACTERS_MAX:
            self._tell()
            return
        if self._tell_s is None:
            self._tell_s = self.now + self._pause_s
            self._pause_s = min(2 * self._pause_s, TELL_S_MAX)

    def _tell(self) -> None:
        self._tell_s = None
        if self._untold:
            self.actions.append(TellAsker(JobsEnded(self.request, tuple(self._untold))))
            self._untold, self._untold_characters = [], 0
