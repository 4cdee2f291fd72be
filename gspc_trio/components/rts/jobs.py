"""The jobs of a run-time system: they join, leave, come back, go on for one another, or are given up."""

from __future__ import annotations

import math

from msgspec.structs import replace

from gspc_trio.components.rm.events import Claimed, JobGone, JobJoined, JobWeighed
from gspc_trio.components.rm.messages import Interrupt
from gspc_trio.components.rts import events
from gspc_trio.components.rts.actions import (
    AcceptJob,
    Answer,
    CloseJobAt,
    QuestionRefused,
    RefuseJob,
    TellJobs,
    TellRm,
    Weighed,
)
from gspc_trio.components.rts.history import History
from gspc_trio.components.rts.lifecycle import LifeCycle, announcements
from gspc_trio.components.rts.messages import EndedJob, EndState, JobEnd, NewWeight, RegisterJob
from gspc_trio.components.rts.state import ManagedJob, ManagedRif, RifState
from gspc_trio.core.ids import Counter, JobId
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.task import TaskState
from gspc_trio.policies.placement import bad_placement
from gspc_trio.records.facts import JobChanged, TaskCounts

ENDED = "its job server ended while there was no run-time system"
"""Why a job is given up that could not be awaited."""

STOPPED = "the run-time system was stopped"
"""Why a job is over that has said nothing else when everything is taken down."""


class Jobs:
    """All jobs there are, and those of which only RIFs have spoken (RTS-4).

    Args:
        lives: the RIFs.
        registered: the jobs there are, oldest first; changed only here.
    """

    def __init__(self, lives: LifeCycle, registered: dict[JobId, ManagedJob]) -> None:
        self._lives = lives
        self.registered = registered
        self.links: dict[int, JobId] = {}
        """Connection -> job of those that are there."""
        self.names: Counter = Counter("j")
        self.history: History = History()
        self._ended: set[JobId] = set()

    def asked(self, event: events.JobConnected) -> None:
        """A job server joins, perhaps to go on for an earlier job."""
        jobs, wish = self.registered, event.wish
        if event.link in self.links:
            raise IllegalEvent(f"link {event.link} is that of job {self.links[event.link]} already")
        refusal = ""
        if self._lives.stopping:
            refusal = "the run-time system is stopping"
        elif wrong := _bad_weight(wish.weight) or _bad_placement(wish.placement):
            refusal = wrong
        elif len(jobs) >= self._lives.limits.jobs_max:
            refusal = f"there may be {self._lives.limits.jobs_max} jobs at one time, and there are"
        if refusal:
            self._lives.actions.append(RefuseJob(event.link, refusal))
            return
        orphan = jobs.get(wish.adopts)
        job = self.names.next_name()
        jobs[job] = _managed(job, event.link, wish, wish.weight, self._lives.now)
        self.links[event.link] = job
        adopted = self._adopt(job, wish)
        if adopted and orphan is not None and orphan.away_until is None:
            # Its job server is gone though its connection does not know yet.
            del self.links[orphan.link]
            self._lives.actions.append(TellRm(Interrupt(adopted)))
        self._end_orphans(adopted)
        self._lives.actions.append(JobChanged(self._lives.now, job, "running", wish.name))
        rifs = [rif.rif_id for rif in self._lives.rifs.values() if rif.state in (RifState.UP, RifState.AWAY)]
        self._lives.actions.append(AcceptJob(event.link, job, adopted, rifs=tuple(rifs) if adopted else ()))
        self._announce_rifs(job)
        self._lives.actions.append(TellRm(JobJoined(job, wish.weight, wish.priority, wish.placement)))

    def _announce_rifs(self, job: JobId) -> None:
        """Tell a job which RIFs are up."""
        for rif in self._lives.rifs.values():
            if rif.state is RifState.UP:
                self._lives.actions += announcements(rif, (job,), self._lives.now)

    def _adopt(self, successor: JobId, wish: RegisterJob) -> JobId:
        """Have a job go on for an earlier one; return that, or "" if there is nothing to go on for.

        RIFs that have not come back yet may bring work of a job that nobody else has spoken of. Its priority
        and weight are those of who goes on for it: that is the same work.
        """
        lives, orphan = self._lives, wish.adopts
        entry = self.registered.get(orphan)
        if entry is None and orphan in self.names and any(map(_may_bring_work, lives.rifs.values())):
            entry = ManagedJob(
                orphan, 0, orphan, 0, "", "", wish.weight, lives.limits.grace_s,
                priority=wish.priority, registered_s=lives.now, placement=wish.placement,
            )  # fmt: skip
            lives.actions.append(JobChanged(lives.now, orphan, "running", orphan))
            lives.actions.append(TellRm(JobJoined(orphan, wish.weight, wish.priority, wish.placement)))
        elif entry is not None and not (entry.pid or entry.successor):  # only a RIF has spoken of it
            entry = replace(entry, weight=wish.weight, priority=wish.priority, placement=wish.placement)
            lives.actions.append(TellRm(JobWeighed(orphan, wish.weight, wish.priority, wish.placement)))
        if entry is None or orphan == successor or not entry.grace_s:
            return ""
        if entry.successor not in ("", successor):
            return ""
        self.registered[orphan] = replace(entry, away_until=math.inf, successor=successor)
        return orphan

    def back(self, event: events.JobConnected) -> None:
        """A job server has connected again: it goes on as the job it was."""
        lives, wish = self._lives, event.wish
        job = wish.job
        if event.link in self.links:
            raise IllegalEvent(f"link {event.link} is that of job {self.links[event.link]} already")
        entry = self.registered.get(job)
        refusal = ""
        if lives.stopping:
            refusal = "the run-time system is stopping"
        elif not lives.limits.grace_s:
            refusal = "this run-time system was started without --state: it takes no job back"
        elif entry is not None and entry.successor:
            refusal = f"job {entry.successor} has gone on for it"
        refusal = refusal or _bad_placement(wish.placement)
        if refusal:
            self._lives.actions.append(RefuseJob(event.link, refusal))
            return
        if entry is not None and entry.away_until is None:
            del self.links[entry.link]
        # It may have been changed since the job was last told.
        weight = entry.weight if entry is not None and entry.pid else wish.weight
        since_s = lives.now if entry is None else entry.registered_s
        self.registered[job] = _managed(job, event.link, wish, weight, since_s)
        self.links[event.link] = job
        orphan = self.registered.get(wish.adopts)
        if orphan is None or orphan.away_until is not None:
            self._adopt(job, wish)
        self._lives.actions.append(JobChanged(self._lives.now, job, "running", wish.name))
        self._lives.actions.append(AcceptJob(event.link, job, back=True))
        self._announce_rifs(job)
        said = (JobJoined if entry is None else JobWeighed)(job, weight, wish.priority, wish.placement)
        self._lives.actions.append(TellRm(said))
        if weight != wish.weight:
            self._lives.actions.append(TellJobs((job,), NewWeight(weight)))
        self._lives.actions.append(TellRm(Claimed(job, wish.grants, whole=True)))

    def weight_asked(self, event: events.WeightAsked) -> None:
        """Change a job's share of the resources."""
        jobs = self.registered
        refusal = _bad_weight(event.weight)
        if event.job not in jobs:
            there = ", ".join(jobs) or "none"
            refusal = f"there is no job {event.job}; registered: {there}"
        if refusal:
            self._lives.actions.append(QuestionRefused(event.ask, refusal))
            return
        jobs[event.job] = replace(jobs[event.job], weight=event.weight)
        self._lives.actions.append(TellRm(JobWeighed(event.job, event.weight)))
        self._lives.actions.append(TellJobs((event.job,), NewWeight(event.weight)))
        self._lives.actions.append(Answer(event.ask, Weighed()))

    def gone(self, event: events.JobServerGone) -> None:
        """A job has left, or cannot be heard any more: then it is awaited if it may come back."""
        jobs = self.registered
        entry = jobs.get(event.job)
        if (entry is not None and entry.successor) or (event.link and event.link not in self.links):
            return  # its connection is over at last: another has taken its place
        if entry is None or entry.away_until is not None:
            raise IllegalEvent(f"there is no job {event.job}")
        del self.links[entry.link]
        if not self._lives.limits.grace_s:  # it cannot come back as it was
            self._end_orphans(event.job)
        grace_s = max(entry.grace_s, self._lives.limits.grace_s if event.silent else 0.0)
        if grace_s > 0 and not event.left and not self._lives.stopping:
            jobs[event.job] = replace(entry, grace_s=grace_s, away_until=self._lives.now + grace_s)
            # What it holds stays; nobody could use more.
            self._lives.actions.append(TellRm(Interrupt(event.job)))
        else:
            self._end_job(entry, event)

    def takeover_done(self, event: events.TakeoverDone) -> None:
        """Who went on for a job has all that was left of it."""
        entry = self.registered.get(event.job)
        if entry is not None and entry.successor == event.successor:
            self._end_job(entry, events.JobServerGone(event.job, f"{event.successor} went on for it"))

    def ended(self, event: events.JobServerEnded) -> None:
        """Await this job no more than RIFs need to say what they have of it."""
        self._ended.add(event.job)

    def awaits(self, job: JobId, new: bool) -> bool:
        """Return whether work that a RIF brings back is claimed for its job, which is awaited.

        A job of which nobody has spoken before is awaited from now on if the RIF is ``new``: known only to a
        run-time system of before.
        """
        entry = self.registered.get(job)
        if entry is not None:
            return entry.away_until is not None and not entry.pid
        if new:
            grace_s = 0.0 if job in self._ended else self._lives.limits.grace_s
            now = self._lives.now
            self.registered[job] = ManagedJob(
                job, 0, job, 0, "", "", 1.0, grace_s, away_until=now + grace_s, registered_s=now
            )
            self._lives.actions.append(JobChanged(self._lives.now, job, "running", job))
            self._lives.actions.append(TellRm(JobJoined(job)))
        return new

    def deadline(self) -> float | None:
        """Return the earliest time at which a job is awaited no more."""
        times = [job.away_until for job in self.registered.values() if job.away_until is not None]
        return min(times, default=None)

    def tick(self) -> None:
        """Give those up that nobody went on for in time; an orphan ends with its successor."""
        for entry in list(self.registered.values()):
            if entry.away_until is not None and entry.away_until <= self._lives.now:
                reason = f"nobody went on for it within {entry.grace_s:g} s" if entry.grace_s else ENDED
                self._end_job(entry, events.JobServerGone(entry.job, reason))

    def stopped(self) -> None:
        """All is being taken down: note the end of the jobs that are there; they may still say more of it."""
        for entry in self.registered.values():
            self._note_end(entry, None, STOPPED)

    def check(self) -> None:
        """Assert the invariants of jobs."""
        jobs = self.registered
        there = {entry.link: job for job, entry in jobs.items() if entry.away_until is None}
        assert self.links == there, (self.links, there)
        assert all(entry.successor in jobs for entry in jobs.values() if entry.successor), (
            "a successor is gone"
        )
        assert all(entry.job == job for job, entry in jobs.items())

    def _end_orphans(self, successor: JobId) -> None:
        """Who went on for other jobs is gone: nobody else does."""
        for orphan in [one for one in self.registered.values() if successor and one.successor == successor]:
            self._end_job(orphan, events.JobServerGone(orphan.job, "who went on for it is gone"))

    def _end_job(self, entry: ManagedJob, event: events.JobServerGone) -> None:
        self._end_orphans(event.job)
        del self.registered[event.job]
        links = tuple(self._lives.by_link)
        if links:
            self._lives.actions.append(CloseJobAt(links, event.job))
        self._lives.actions.append(TellRm(JobGone(event.job)))
        end = event.left or JobEnd(EndState.STOPPED, STOPPED if self._lives.stopping else event.reason)
        if end.tasks:
            self._lives.actions.append(
                TaskCounts(
                    self._lives.now, event.job, dict(end.tasks), first_s=self._lives.now - end.elapsed_s
                )
            )
        detail = end.detail[: self._lives.limits.detail_characters_max]
        self._note_end(entry, event.left, detail)
        self._lives.actions.append(
            JobChanged(self._lives.now, event.job, end.state.value, entry.name, detail)
        )

    def _note_end(self, entry: ManagedJob, told: JobEnd | None, detail: str) -> None:
        """Keep how a job has ended, with what it told of that, if it told anything."""
        now = self._lives.now
        end = told or JobEnd(EndState.STOPPED, elapsed_s=now - entry.registered_s)
        self.history.add(
            EndedJob(
                entry.job,
                entry.name,
                end.state.value,
                detail,
                {} if told is None else dict.fromkeys(TaskState, 0) | told.tasks,
                end.elapsed_s,
                entry.pid,
                entry.host,
                now,
                end.summary,
            )
        )


def _managed(job: JobId, link: int, wish: RegisterJob, weight: float, registered_s: float) -> ManagedJob:
    return ManagedJob(
        job,
        link,
        wish.name,
        wish.pid,
        wish.host,
        wish.address,
        weight,
        wish.grace_s,
        priority=wish.priority,
        registered_s=registered_s,
        placement=wish.placement,
    )


def _bad_weight(weight: float) -> str:
    """Return what is wrong with a job's weight, or ""."""
    if weight > 0 and math.isfinite(weight):
        return ""
    return f"a job's weight is a number more than 0, not {weight}"


def _bad_placement(placement: str) -> str:
    """Return what is wrong with the placement that a job asks for, or ""."""
    wrong = bad_placement(placement) if placement else ""
    return wrong and f"placement {placement!r:.60}: {wrong}"


def _may_bring_work(rif: ManagedRif) -> bool:
    """Whether a RIF is awaited of which nobody knows what it has."""
    return rif.state is RifState.AWAY and not rif.resources
