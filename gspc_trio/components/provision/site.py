"""The batch jobs of one site: submitted, watched and cancelled by what its batch system says of them.

A query that fails, is slow or cannot be read says nothing. A submission without a clear answer is unclear:
the job is there when a list has it, and is not when two lists a minute apart do not have it. A job that is
missing from a list is asked for by its id, and given up when nothing is heard of it for five minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TypeAlias

from attrs import frozen
from msgspec import Struct

from gspc_trio.components.provision.batch import BatchJob, BatchState
from gspc_trio.components.provision.blocks import Over
from gspc_trio.components.provision.site_job import SiteJob, SiteSnapshot
from gspc_trio.core.machine import IllegalEvent, MachineBase, Tick, handles


@frozen
class QueryTimes:
    """When a batch system is asked.

    Attributes:
        list_s, list_max_s: between two lists while things change, and at most.
        unclear_s: a job of an unclear submission that two lists so far apart do not have was not submitted.
        missing_s: how long a job may be missing before it is given up.
        cancel_s, cancel_max_s: how long after a cancel it is seen whether the job is gone; twice as long each
            time that it is not. Also how long after the first look when all that it runs has ended.
    """

    list_s: float = 10.0
    list_max_s: float = 60.0
    unclear_s: float = 60.0
    missing_s: float = 300.0
    cancel_s: float = 0.5
    cancel_max_s: float = 60.0


class JobWanted(Struct, frozen=True):
    """A job is to be submitted by this name, which no other has."""

    name: str


class JobAdopted(Struct, frozen=True):
    """An earlier run-time system has submitted a job by this name; its id is "" if that was not known yet."""

    name: str
    job_id: str


class JobRuns(Struct, frozen=True):
    """One of the job's own processes has said that it runs, under this id, or "" if it did not say."""

    name: str
    job_id: str


class JobContact(Struct, frozen=True):
    """So many of the job's own processes are connected: while there are any it is alive."""

    name: str
    count: int


class JobEnding(Struct, frozen=True):
    """What the job runs has ended, so that the job will be gone soon."""

    name: str


class JobUnwanted(Struct, frozen=True):
    """The job is to be cancelled, if there is one."""

    name: str


class JobForgotten(Struct, frozen=True):
    """Nobody wants to hear of the job any more, whatever becomes of it."""

    name: str


class SubmitAnswered(Struct, frozen=True):
    """The command that submits has ended; without an id it is not clear whether there is a job.

    Attributes:
        said: what it said then, "" if nothing.
    """

    name: str
    job_id: str | None
    said: str = ""


class SubmitRefused(Struct, frozen=True):
    """There is no job, and this is why; ``is_hopeless``: it would be said again."""

    name: str
    reason: str
    is_hopeless: bool = False


class JobsListed(Struct, frozen=True):
    """The list that was asked for: all jobs of the user, or None when it was not to be had, and why."""

    jobs: tuple[BatchJob, ...] | None
    problem: str = ""


class JobAnswered(Struct, frozen=True):
    """What was asked about one job: it, none if there is no such job, or None when it was not to be had."""

    name: str
    jobs: tuple[BatchJob, ...] | None


class CancelAnswered(Struct, frozen=True):
    """The command that cancels has ended; whether the job is gone is seen by asking."""

    name: str


SiteEvent: TypeAlias = (
    JobWanted
    | JobAdopted
    | JobRuns
    | JobContact
    | JobEnding
    | JobUnwanted
    | JobForgotten
    | SubmitAnswered
    | SubmitRefused
    | JobsListed
    | JobAnswered
    | CancelAnswered
    | Tick
)


class SubmitJob(Struct, frozen=True):
    """Submit; SubmitAnswered or SubmitRefused follows."""

    name: str


class ListQueue(Struct, frozen=True):
    """Ask for all jobs of the user; JobsListed follows."""


class AskJob(Struct, frozen=True):
    """Ask for one job; JobAnswered follows."""

    name: str
    job_id: str


class CancelJob(Struct, frozen=True):
    """Cancel, by name if the id is ""; CancelAnswered follows."""

    name: str
    job_id: str


class JobMoved(Struct, frozen=True):
    """Where a job is now.

    Attributes:
        name, job_id: what we and the batch system call it; "" while that is not known.
        state: where it is; None: nobody knows whether there is such a job.
        reason: why it waits.
        is_hopeless: it waits for what will never be, and is cancelled.
        text: all of this, for people.
    """

    name: str
    text: str
    job_id: str = ""
    state: BatchState | None = None
    reason: str = ""
    is_hopeless: bool = False


class JobOver(Struct, frozen=True):
    """It is over with a job; its name is not used again."""

    name: str
    how: Over
    reason: str


SiteAction: TypeAlias = SubmitJob | ListQueue | AskJob | CancelJob | JobMoved | JobOver


class BatchSite(MachineBase[SiteEvent, SiteAction]):
    """The batch jobs of one site.

    Args:
        system: name of the batch system, for messages.
        times: when it is asked.
    """

    noun = "a site"

    def __init__(self, system: str, times: QueryTimes) -> None:
        super().__init__()
        self._system = system
        self._times = times
        self._jobs: dict[str, SiteJob] = {}
        self._list_at: float | None = None
        self._list_s = times.list_s
        self._listed_from: float | None = None
        """When the list under way was asked for."""
        self._is_changed = False
        """Whether a job has moved since the last list."""
        self._due: list[tuple[float, str]] = []
        """Heap of when to look at which job; a date that was changed is left out when it comes up."""

    def deadline(self) -> float | None:
        """Return when to list, to ask, or to give a job up."""
        due = self._due
        while due and due[0][0] not in self._dates(due[0][1]):
            heappop(due)
        if due and (self._list_at is None or due[0][0] < self._list_at):
            return due[0][0]
        return self._list_at

    def check(self) -> None:
        """Assert that nothing is forgotten: each job that was submitted will be asked for."""
        for job in self._jobs.values():
            assert job.submitted_at is not None or not job.job_id
            assert job.submitted_at is None or self._list_at is not None or self._listed_from is not None
            assert all((date, job.name) in self._due for date in self._dates(job.name)), job.name

    def _dates(self, name: str) -> Iterator[float]:
        """Yield when to look at a job: to ask for it, or to give it up."""
        job = self._jobs.get(name)
        if job is None:
            return
        if job.ask_at is not None:
            yield job.ask_at
        if job.missing_since is not None and job.job_id and not job.connected:
            yield job.missing_since + self._times.missing_s

    def snapshot(self) -> SiteSnapshot:
        """Return all that is known, as it is until the next event."""
        times = (self._list_at, self._list_s, self._listed_from)
        return SiteSnapshot([*self._jobs.values()], *times, self._is_changed)

    def restore(self, state: SiteSnapshot) -> None:
        """Be as a site was that has returned this; it is new."""
        self._jobs = {job.name: job for job in state.jobs}
        self._list_at, self._list_s, self._listed_from = state.list_at, state.list_s, state.listed_from
        self._is_changed = state.is_changed
        self._due = sorted((date, name) for name in self._jobs for date in self._dates(name))

    # What is wanted -----------------------------------------------------------------------------------------

    @handles(JobWanted)
    def _wanted(self, event: JobWanted) -> None:
        if event.name in self._jobs:
            raise IllegalEvent(f"there is a job {event.name} already")
        self._jobs[event.name] = SiteJob(event.name)
        self.actions.append(SubmitJob(event.name))

    @handles(JobAdopted)
    def _adopted(self, event: JobAdopted) -> None:
        if event.name in self._jobs:
            raise IllegalEvent(f"there is a job {event.name} already")
        job = self._jobs[event.name] = SiteJob(event.name)
        job.submitted_at, job.answered, job.job_id = self.now, True, event.job_id
        # The list of a site that has just come is asked for at once.
        self._is_changed, self._list_s = True, self._times.list_s
        if self._listed_from is None:
            self._list_at = self.now

    @handles(JobRuns)
    def _runs(self, event: JobRuns) -> None:
        job = self._jobs.get(event.name)
        if job is None:
            return
        job.missing_since = None
        if job.submitted_at is None:
            job.submitted_at = self.now
            self._list_soon()
        if event.job_id and not job.job_id:
            job.job_id = event.job_id
            job.state = BatchState.RUNNING
            self._say(job, f"{self._system} job {job.job_id} is running")
            if job.unwanted:
                self._send_cancel(job)

    @handles(JobContact)
    def _connected(self, event: JobContact) -> None:
        job = self._jobs.get(event.name)
        if job is None or job.connected == event.count:
            return
        job.connected = event.count
        if event.count:
            job.missing_since = None
        elif job.job_id and job.submitted_at is not None:
            self._ask(job)
            self._list_soon()

    @handles(JobEnding)
    def _ending(self, event: JobEnding) -> None:
        job = self._jobs.get(event.name)
        if job is not None and not job.is_ending:
            job.is_ending = True
            job.ask_s = job.ask_s or self._times.cancel_s
            if job.job_id:
                self._ask(job)

    @handles(JobUnwanted)
    def _unwanted(self, event: JobUnwanted) -> None:
        job = self._jobs.get(event.name)
        if job is not None and not job.unwanted:
            self._cancel(job, "")

    @handles(JobForgotten)
    def _forgotten(self, event: JobForgotten) -> None:
        self._jobs.pop(event.name, None)
        if not self._has_submitted():
            self._list_at = None

    def _cancel(self, job: SiteJob, reason: str) -> None:
        job.unwanted, job.reason = True, reason
        job.ask_s = self._times.cancel_s
        if job.submitted_at is not None:  # else when the submission has been answered
            self._send_cancel(job)

    def _send_cancel(self, job: SiteJob) -> None:
        """Cancel a job, unless that is under way."""
        if not job.is_cancelling:
            job.is_cancelling = True
            self.actions.append(CancelJob(job.name, job.job_id))

    # What the batch system answers --------------------------------------------------------------------------

    @handles(SubmitAnswered)
    def _submitted(self, event: SubmitAnswered) -> None:
        job = self._submitting(event.name)
        if job is None or job.job_id:
            return
        runs = job.submitted_at is not None  # one of its own processes was faster
        if not runs:
            job.submitted_at = self.now
            self._list_soon()
        if event.job_id is not None:
            job.job_id, job.missing_since = event.job_id, None
            job.state = BatchState.RUNNING if runs else BatchState.QUEUED
            self._say(job, f"{self._system} job {job.job_id} is {job.state}")
        elif not runs:
            self._say_unclear(job, event.said)
        if job.unwanted:
            self._send_cancel(job)
        elif job.is_ending and job.job_id:
            self._ask(job)

    @handles(SubmitRefused)
    def _refused(self, event: SubmitRefused) -> None:
        job = self._submitting(event.name)
        if job is not None and job.submitted_at is None:
            self._over(job, "hopeless" if event.is_hopeless else "refused", event.reason)

    @handles(JobsListed)
    def _listed(self, event: JobsListed) -> None:
        began, self._listed_from = self._listed_from, None
        if began is None:
            raise IllegalEvent("nobody asked for a list")
        if event.jobs is not None:
            there = {told.name: told for told in event.jobs}
            for job in list(self._jobs.values()):
                if job.submitted_at is None or job.submitted_at > began:
                    continue
                told = there.get(job.name)
                if told is not None:
                    self._there(job, told)
                elif job.is_unclear:
                    self._not_submitted(job, began)
                else:
                    self._ask(job)
        elif event.problem:
            for job in self._jobs.values():
                if job.is_unclear:
                    self._say_unclear(job, event.problem)
        self._list_s = (
            self._times.list_s if self._is_changed else min(2 * self._list_s, self._times.list_max_s)
        )
        self._is_changed = False
        self._list_at = self.now + self._list_s if self._has_submitted() else None

    @handles(JobAnswered)
    def _answered(self, event: JobAnswered) -> None:
        job = self._jobs.get(event.name)
        if job is None:
            return  # a list was faster
        job.asking = False
        if event.jobs is None:
            self._see_later(job)
        elif there := [told for told in event.jobs if told.name in ("", job.name)]:
            self._there(job, there[0])
        elif job.unwanted or job.is_ending:
            self._over(job, "ended", job.reason or ("it was cancelled" if job.unwanted else "it has ended"))
        elif not job.connected:
            if job.missing_since is None:
                job.missing_since = self.now
                heappush(self._due, (self.now + self._times.missing_s, job.name))
                self._say(job, f"{self._system} does not know job {job.job_id} any more")
            self._give_up(job)

    @handles(CancelAnswered)
    def _cancelled(self, event: CancelAnswered) -> None:
        job = self._jobs.get(event.name)
        if job is not None:
            job.is_cancelling = False
            self._ask_in(job, job.ask_s)

    def _there(self, job: SiteJob, told: BatchJob) -> None:
        """The batch system knows the job."""
        job.job_id, job.missing_since = told.job_id, None
        if told.state in (BatchState.ENDED, BatchState.LOST):
            if job.connected and not job.unwanted:
                return  # whatever the batch system says; it is asked again when nobody is connected any more
            how: Over = "ended" if told.state is BatchState.ENDED else "missing"
            self._over(job, how, job.reason or f"{self._system} job {told.job_id} ended: {told.reason}")
            return
        if told.state is BatchState.UNKNOWN:  # it is there, and that is all
            self._see_later(job)
            return
        job.state, job.is_hopeless = told.state, told.is_hopeless
        job.why = "" if told.reason == "None" else told.reason
        why = f": {job.why}" if job.why else ""
        self._say(job, f"{self._system} job {told.job_id} is {told.state}{why}")
        if told.is_hopeless and not job.unwanted:
            words = f"{self._system} job {told.job_id} can never run as it was asked for: {told.reason}"
            self._cancel(job, words)
        else:
            self._see_later(job)

    def _say(self, job: SiteJob, text: str) -> None:
        """Tell where the job is, unless it was told before."""
        if text != job.text:
            job.text, self._is_changed = text, True
            self.actions.append(JobMoved(job.name, text, job.job_id, job.state, job.why, job.is_hopeless))

    def _say_unclear(self, job: SiteJob, said: str) -> None:
        """Tell that nobody knows whether there is such a job, and what was said of it."""
        job.said = said
        text = f"{self._system} did not say whether it has taken the job"
        self._say(job, f"{text}: {said}" if said else text)

    def _see_later(self, job: SiteJob) -> None:
        """Ask again later if it is to go soon; cancel it once more before, if it is not wanted."""
        if job.ask_at is not None or job.is_cancelling or not (job.unwanted or job.is_ending):
            return
        job.ask_s = min(2 * job.ask_s, self._times.cancel_max_s)
        if job.unwanted:
            self._send_cancel(job)
        else:
            self._ask_in(job, job.ask_s)

    def _ask_in(self, job: SiteJob, seconds: float) -> None:
        job.ask_at = self.now + seconds
        heappush(self._due, (job.ask_at, job.name))

    def _not_submitted(self, job: SiteJob, began: float) -> None:
        if job.connected:
            return
        if job.missing_since is None:
            job.missing_since = began
        elif began - job.missing_since >= self._times.unclear_s:
            said = f"; it said: {job.said}" if job.said else ""
            reason = f"{self._system} has not taken the job: no list has it{said}"
            self._over(job, "refused", reason)

    def _give_up(self, job: SiteJob) -> None:
        since = job.missing_since
        if (
            since is not None
            and job.job_id
            and not job.connected
            and self.now >= since + self._times.missing_s
        ):
            reason = f"nothing was heard of {self._system} job {job.job_id} for {self._times.missing_s:g} s"
            self._over(job, "missing", reason)

    def _ask(self, job: SiteJob) -> None:
        job.ask_at = None
        if not job.asking:
            job.asking = True
            self.actions.append(AskJob(job.name, job.job_id))

    def _over(self, job: SiteJob, how: Over, reason: str) -> None:
        del self._jobs[job.name]
        self._is_changed = True
        self.actions.append(JobOver(job.name, how, reason))
        if not self._has_submitted():
            self._list_at = None

    def _submitting(self, name: str) -> SiteJob | None:
        """Return the job whose submission is answered; None if it was forgotten."""
        job = self._jobs.get(name)
        if job is None:
            return None
        if job.answered:
            raise IllegalEvent(f"the submission of {name} was answered before")
        job.answered = True
        return job

    def _has_submitted(self) -> bool:
        return any(job.submitted_at is not None for job in self._jobs.values())

    # Time ---------------------------------------------------------------------------------------------------

    def _list_soon(self) -> None:
        self._is_changed = True
        self._list_s = self._times.list_s
        due = self.now + self._list_s
        if self._listed_from is None and (self._list_at is None or due < self._list_at):
            self._list_at = due

    @handles(Tick)
    def _tick(self, _event: Tick) -> None:
        if self._list_at is not None and self.now >= self._list_at:
            self._list_at, self._listed_from = None, self.now
            self.actions.append(ListQueue())
        while self._due and self._due[0][0] <= self.now:
            job = self._jobs.get(heappop(self._due)[1])
            if job is not None:
                self._look_at(job)

    def _look_at(self, job: SiteJob) -> None:
        if job.ask_at is not None and self.now >= job.ask_at:
            if job.job_id:
                self._ask(job)
            else:  # a list says whether there is such a job
                job.ask_at = None
                if self._listed_from is None:
                    self._list_at = self.now
        self._give_up(job)
