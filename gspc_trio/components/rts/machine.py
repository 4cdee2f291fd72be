"""The RTS machine: RIFs, their resources, jobs (GSPC19 2.1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from gspc_trio.components.rm import events as rm
from gspc_trio.components.rm.messages import GrantsAhead, Interrupt, Revoke, Revoked
from gspc_trio.components.rts import events
from gspc_trio.components.rts.actions import (
    AcceptJob,
    Answer,
    CloseJobAt,
    HostToResource,
    Refused,
    RefuseJob,
    Stopped,
    TellRm,
    TellWeight,
    Weighed,
)
from gspc_trio.components.rts.lifecycle import Actions, LifeCycle
from gspc_trio.components.rts.messages import EndState, JobEnd
from gspc_trio.components.rts.quarantine import Quarantines
from gspc_trio.components.rts.requests import Requests
from gspc_trio.components.rts.returns import Returns
from gspc_trio.components.rts.revoking import revoke
from gspc_trio.components.rts.state import Add, JobEntry, Limits, Rif, RifState
from gspc_trio.core.ids import Counter, JobId, ResourceId, RifId
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.records.facts import JobChanged, TaskCounts

ENDED = "its job server ended while there was no run-time system"
"""Why a job is given up that could not be awaited."""


class Rts:
    """Owns RIFs, resource DAGs and the list of jobs; the resource manager owns use and allocation (RTS-3).

    Args:
        strategies: names of the strategies there are.
        limits: times and sizes.
    """

    def __init__(self, strategies: frozenset[str], limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._lives = LifeCycle(strategies, self.limits)
        self._quarantines = Quarantines(self._lives)
        self._requests = Requests(self._lives)
        self._names = Counter("j")
        self._job_links: dict[int, JobId] = {}
        self._returns = Returns(self._lives, self._job_links, self._names)
        self._stopped = False
        self._table: dict[type, Callable[[Any, float, Actions], None]] = {
            events.BootstrapAsked: self._asked,
            events.TeardownAsked: self._asked,
            events.AddAsked: self._asked,
            events.RemoveAsked: self._asked,
            events.WeightAsked: self._asked,
            events.RifUp: self._rif_up,
            events.RifBack: self._returns.rif_back,
            events.Restored: self._returns.restored,
            events.JobEnded: self._returns.job_ended,
            events.RifLost: self._lives.link_lost,
            events.RifEnded: self._lives.ended,
            events.RifUnfit: self._quarantines.unfit,
            events.RifAnswered: self._requests.answered,
            events.RifRefused: self._requests.refused,
            events.RevokedBy: self._revoked_by,
            events.ResourcesLeft: self._requests.left,
            events.RmAnswered: self._requests.rm_answered,
            events.JobAsked: self._job_asked,
            events.JobBack: self._returns.job_back,
            events.JobGone: self._job_gone,
            events.Inherited: self._inherited,
            Revoke: self._revoke,
            GrantsAhead: self._lives.tell_of_grants,
            events.Stop: self._stop,
            Tick: self._tick,
        }

    # The contract of machines -------------------------------------------------------------------------------

    def handle(self, event: Any, now: float) -> Actions:
        """Take one event and return the actions to carry out, in order.

        Raises:
            IllegalEvent: the event is unknown or impossible now; nothing was changed.
        """
        handler = self._table.get(type(event))
        if handler is None:
            raise IllegalEvent(f"the RTS does not know {type(event).__name__}")
        out: Actions = []
        handler(event, now, out)
        self._lives.expected.tell(out)
        if self._lives.stopping and not self._lives.rifs and not self._stopped:
            self._stopped = True
            out.append(Stopped())
        return out

    def deadline(self) -> float | None:
        """Return the time at which ``Tick`` is due, or None."""
        times = [job.away_until for job in self._lives.jobs.values() if job.away_until is not None]
        due = self._lives.deadline(), self._quarantines.deadline()
        times += [due_s for due_s in due if due_s is not None]
        return min(times, default=None)

    def check(self) -> None:
        """Assert every invariant."""
        self._lives.check()
        self._lives.expected.check(self._lives.rifs.values())
        jobs = self._lives.jobs
        there = {entry.link: job for job, entry in jobs.items() if entry.away_until is None}
        assert self._job_links == there, (self._job_links, there)
        assert all(entry.heir in jobs for entry in jobs.values() if entry.heir), "an heir is gone"
        assert all(entry.job == job for job, entry in jobs.items())
        assert not self._stopped or not self._lives.rifs

    # What it knows ------------------------------------------------------------------------------------------

    @property
    def rifs(self) -> tuple[Rif, ...]:
        """The RIFs, oldest first; not to be changed."""
        return tuple(self._lives.rifs.values())

    @property
    def named(self) -> tuple[int, int]:
        """Numbers of RIFs and of jobs that were ever named, and so the last parts of the newest names."""
        return self._lives.names.last, self._names.last

    def skip_names(self, rifs: int, jobs: int) -> None:
        """Name no RIF and no job like one of the first: those belonged to a run-time system of before."""
        self._lives.names.last = max(rifs, self._lives.names.last)
        self._names.last = max(jobs, self._names.last)

    @property
    def jobs(self) -> tuple[JobEntry, ...]:
        """The jobs registered now, oldest first."""
        return tuple(self._lives.jobs.values())

    def may_have(self, rif_id: RifId, resource_id: ResourceId) -> bool:
        """Return whether a RIF has this resource, or was asked to have it."""
        rif = self._lives.rifs.get(rif_id)
        if rif is None:
            return False
        added = rif.request.resources if isinstance(rif.request, Add) else ()
        return resource_id in rif.resources or any(one.resource_id == resource_id for one in added)

    def host_to_resource(self) -> HostToResource:
        """Return host -> ids of the resources there are on it, parents before children (RTS-3)."""
        return {
            rif.host: tuple(one.resource_id for one in rif.usable())
            for rif in self.rifs
            if rif.state is RifState.UP
        }

    # Handlers -----------------------------------------------------------------------------------------------

    def _asked(self, event: Any, now: float, out: Actions) -> None:
        if self._lives.stopping:
            out.append(Refused(event.ask, "the run-time system is stopping"))
        elif isinstance(event, events.BootstrapAsked):
            self._lives.bootstrap(event, now, out)
        elif isinstance(event, events.TeardownAsked):
            self._lives.teardown(event, now, out)
        elif isinstance(event, events.WeightAsked):
            self._weight_asked(event, out)
        else:
            self._requests.asked(event, out)

    def _rif_up(self, event: events.RifUp, now: float, out: Actions) -> None:
        self._returns.first_word(event, now, out)
        if self._lives.up(event, now, out):
            self._requests.pump(self._lives.by_link[event.link], out)

    def _stop(self, _: events.Stop, now: float, out: Actions) -> None:
        self._lives.stopping = True
        for rif in self.rifs:
            self._lives.stop(rif, now, out)

    def _job_asked(self, event: events.JobAsked, now: float, out: Actions) -> None:
        jobs = self._lives.jobs
        if event.link in self._job_links:
            raise IllegalEvent(f"link {event.link} is that of job {self._job_links[event.link]} already")
        refusal = ""
        if self._lives.stopping:
            refusal = "the run-time system is stopping"
        elif bad_weight := _bad_weight(event.weight):
            refusal = bad_weight
        elif len(jobs) >= self.limits.jobs_max:
            refusal = f"there may be {self.limits.jobs_max} jobs at one time, and there are"
        if refusal:
            out.append(RefuseJob(event.link, refusal))
            return
        orphan = jobs.get(event.adopts)
        job = self._names.next_name()
        jobs[job] = JobEntry(
            job, event.link, event.name, event.pid, event.host, event.address, event.weight, event.grace_s
        )
        self._job_links[event.link] = job
        adopted = self._returns.adopt(job, event.adopts, now, out)
        if adopted and orphan is not None and orphan.away_until is None:
            # Its job server is gone though its connection does not know yet.
            del self._job_links[orphan.link]
            out.append(TellRm(Interrupt(adopted)))
        self._end_orphans(adopted, now, out)
        out.append(JobChanged(now, job, "running", event.name))
        rifs = [rif.rif_id for rif in self.rifs if rif.state in (RifState.UP, RifState.AWAY)]
        out.append(AcceptJob(event.link, job, adopted, rifs=tuple(rifs) if adopted else ()))
        out.extend(self._lives.announcement(rif, (job,)) for rif in self.rifs if rif.state is RifState.UP)
        out.append(TellRm(rm.JobJoined(job, event.weight, event.priority)))

    def _weight_asked(self, event: events.WeightAsked, out: Actions) -> None:
        jobs = self._lives.jobs
        refusal = _bad_weight(event.weight)
        if event.job not in jobs:
            there = ", ".join(jobs) or "none"
            refusal = f"there is no job {event.job}; registered: {there}"
        if refusal:
            out.append(Refused(event.ask, refusal))
            return
        jobs[event.job] = replace(jobs[event.job], weight=event.weight)
        out.append(TellRm(rm.JobWeighed(event.job, event.weight)))
        out.append(TellWeight(event.job, event.weight))
        out.append(Answer(event.ask, Weighed()))

    def _job_gone(self, event: events.JobGone, now: float, out: Actions) -> None:
        jobs = self._lives.jobs
        entry = jobs.get(event.job)
        if (entry is not None and entry.heir) or (event.link and event.link not in self._job_links):
            return  # its connection is over at last: another has taken its place
        if entry is None or entry.away_until is not None:
            raise IllegalEvent(f"there is no job {event.job}")
        del self._job_links[entry.link]
        if not self.limits.grace_s:  # it cannot come back as it was
            self._end_orphans(event.job, now, out)
        grace_s = max(entry.grace_s, self.limits.grace_s if event.silent else 0.0)
        if grace_s > 0 and not event.left and not self._lives.stopping:
            jobs[event.job] = replace(entry, grace_s=grace_s, away_until=now + grace_s)
            out.append(TellRm(Interrupt(event.job)))  # what it holds stays; nobody could use more
        else:
            self._end_job(entry, event, now, out)

    def _end_orphans(self, heir: JobId, now: float, out: Actions) -> None:
        """Who went on for other jobs is gone: nobody else does."""
        for orphan in [one for one in self._lives.jobs.values() if heir and one.heir == heir]:
            self._end_job(orphan, events.JobGone(orphan.job, "who went on for it is gone"), now, out)

    def _inherited(self, event: events.Inherited, now: float, out: Actions) -> None:
        entry = self._lives.jobs.get(event.job)
        if entry is not None and entry.heir == event.heir:
            self._end_job(entry, events.JobGone(event.job, f"{event.heir} went on for it"), now, out)

    def _tick(self, _: Tick, now: float, out: Actions) -> None:
        self._lives.tick(now, out)
        self._quarantines.tick(now, out)
        for entry in list(self._lives.jobs.values()):  # an orphan ends with its heir
            if entry.away_until is not None and entry.away_until <= now:
                reason = f"nobody went on for it within {entry.grace_s:g} s" if entry.grace_s else ENDED
                self._end_job(entry, events.JobGone(entry.job, reason), now, out)

    def _end_job(self, entry: JobEntry, event: events.JobGone, now: float, out: Actions) -> None:
        self._end_orphans(event.job, now, out)
        del self._lives.jobs[event.job]
        links = tuple(self._lives.by_link)
        if links:
            out.append(CloseJobAt(links, event.job))
        out.append(TellRm(rm.JobGone(event.job)))
        end = event.left or JobEnd(EndState.STOPPED, event.reason)
        if end.tasks:
            out.append(TaskCounts(now, event.job, dict(end.tasks), first_s=now - end.elapsed_s))
        detail = end.detail[: self.limits.detail_characters_max]
        out.append(JobChanged(now, event.job, end.state.value, entry.name, detail))

    def _revoke(self, event: Revoke, now: float, out: Actions) -> None:
        """Send a revoke to the RIFs concerned; what a lost one had is gone from the RM already."""
        parts: dict[RifId, list[ResourceId]] = {}
        for resource_id in event.resources:
            parts.setdefault(resource_id.partition(".")[0], []).append(resource_id)
        for rif_id, ids in parts.items():
            rif = self._lives.rifs.get(rif_id)
            if rif is None or rif.state not in (RifState.UP, RifState.AWAY):
                continue
            there = tuple(name for name in ids if name in rif.resources and name not in rif.left)
            if there:
                revoke(rif, event.grant_id, there, self.limits, now, out)

    def _revoked_by(self, event: events.RevokedBy, _: float, out: Actions) -> None:
        rif = self._lives.by_link.get(event.link)
        if rif is None or rif.state is not RifState.UP:
            return
        revoked = event.revoked
        foreign = [name for name in revoked.resources if name.partition(".")[0] != rif.rif_id]
        if foreign:
            raise IllegalEvent(f"{rif.rif_id} answered for {', '.join(foreign)}, which it does not have")
        there = tuple(name for name in revoked.resources if name in rif.resources and name not in rif.left)
        rif.settle(there, revoked.grant_id)
        if there:
            out.append(TellRm(Revoked(revoked.grant_id, there)))


def _bad_weight(weight: float) -> str:
    """Return what is wrong with a job's weight, or ""."""
    if weight > 0 and math.isfinite(weight):
        return ""
    return f"a job's weight is a number more than 0, not {weight}"
