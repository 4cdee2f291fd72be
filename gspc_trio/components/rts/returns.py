"""RIFs and jobs that come back: to this run-time system, or to one that was started again in its place."""

from __future__ import annotations

import math
from typing import Any

from msgspec.structs import replace

from gspc_trio.components.rif.messages import Claim
from gspc_trio.components.rm.events import Added, Claimed, JobJoined, JobWeighed
from gspc_trio.components.rm.messages import Grant
from gspc_trio.components.rts.actions import (
    AcceptJob,
    CloseJobAt,
    RefuseJob,
    StopRif,
    TellRm,
    TellWeight,
)
from gspc_trio.components.rts.events import JobBack, JobEnded, Restored, RifBack, RifUp
from gspc_trio.components.rts.lifecycle import LifeCycle
from gspc_trio.components.rts.state import JobEntry, Rif, RifState, checked_dag
from gspc_trio.core.ids import Counter, JobId
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.resources import BadResources
from gspc_trio.core.task import Requirement, Shape
from gspc_trio.records.facts import JobChanged, RifChanged

Actions = list[Any]


class Returns:
    """Takes back what it had, or what an earlier run-time system had.

    Args:
        lives: the RIFs and jobs.
        job_links: connection -> job of those jobs that are there.
        names: of all jobs there ever were.
    """

    def __init__(self, lives: LifeCycle, job_links: dict[int, JobId], names: Counter) -> None:
        self.lives = lives
        self._job_links = job_links
        self._names = names

    # RIFs ---------------------------------------------------------------------------------------------------

    def restored(self, event: Restored, now: float, _: Actions) -> None:
        """Await a RIF that an earlier run-time system had; start it again at once if it has ended."""
        lives = self.lives
        if event.rif_id in lives.rifs or any(rif.host == event.host for rif in lives.rifs.values()):
            raise IllegalEvent(f"{event.rif_id} on {event.host} is there already")
        rif = Rif(event.rif_id, event.host, event.strategy, event.cores, dict(event.options))
        rif.incarnation = event.incarnation
        if event.gone:
            rif.state, rif.timer_at, rif.reason = RifState.LOST, now, "it ended with its run-time system"
        else:
            rif.state, rif.adrift, rif.fresh = RifState.AWAY, True, event.fresh
            rif.timer_at = now + rif.awaited_s(lives.limits)
        lives.adopt(rif)

    def job_ended(self, event: JobEnded, now: float, out: Actions) -> None:
        """Await this job no more than RIFs need to say what they have of it."""
        del now, out
        self.lives.ended_jobs.add(event.job)

    def first_word(self, event: RifUp, now: float, out: Actions) -> None:
        """A RIF says its first word: it starts on if it was being started when its run-time system went."""
        rif = self.lives.rifs.get(event.rif_id)
        if rif is None or not rif.fresh or rif.incarnation != event.incarnation:
            return
        if rif.state is RifState.AWAY:
            rif.move(RifState.STARTING)
            rif.fresh, rif.timer_at = False, now + self.lives.limits.bootstrap_timeout_s
            out.append(RifChanged(now, rif.rif_id, rif.host, *rif.shown))

    def rif_back(self, event: RifBack, now: float, out: Actions) -> None:
        """A RIF has connected again: it goes on as it was, or is told to stop."""
        lives = self.lives
        if event.link in lives.by_link:
            raise IllegalEvent(f"link {event.link} is that of {lives.by_link[event.link].rif_id} already")
        rif = lives.rifs.get(event.rif_id)
        same = rif is not None and (rif.incarnation, rif.address) == (event.incarnation, event.address)
        if rif is not None and same and rif.link is not None:
            del lives.by_link[rif.link]  # nobody has told yet that its old connection is over
            rif.link = None
            lives.part(rif, "it has connected again", now, out)
        if rif is None or rif.incarnation != event.incarnation or rif.state is not RifState.AWAY:
            out.append(StopRif(event.link))
            return
        new = not rif.resources
        names = {resource.resource_id for resource in event.resources}
        try:
            resources = checked_dag(rif, event.resources) if new else tuple(rif.resources.values())
            if not new and names != set(rif.resources):
                raise BadResources("it has other resources than before")
        except BadResources as error:
            out.append(StopRif(event.link))
            lives.lose(rif, f"it came back, but {error}", now, out)
            return
        rif.address, rif.pid, rif.fresh = event.address, event.pid, False
        rif.resources = {resource.resource_id: resource for resource in resources}
        lives.come_back(rif, event.link, now, out)
        for claim in event.claims:  # before the RM can give what is claimed to whoever waits
            self._claimed(rif, claim, new, now, out)
        if new and resources:
            out.append(TellRm(Added(resources, rif.host)))

    def _claimed(self, rif: Rif, claim: Claim, new: bool, now: float, out: Actions) -> None:
        """Work goes on at a RIF that has come back: its job is awaited, too, unless it is over."""
        lives, entry = self.lives, self.lives.jobs.get(claim.job)
        there = [rif.resources[name] for name in claim.resources if name in rif.resources]
        if entry is not None and (entry.away_until is None or entry.pid):
            return  # it says itself what it holds, or what it holds is known
        assert rif.link is not None
        if entry is None and not new:
            out.append(CloseJobAt((rif.link,), claim.job))
            return
        if entry is None:
            grace_s = 0.0 if claim.job in lives.ended_jobs else lives.limits.grace_s
            lives.jobs[claim.job] = JobEntry(
                claim.job, 0, claim.job, 0, "", "", 1.0, grace_s, away_until=now + grace_s
            )
            out.append(JobChanged(now, claim.job, "running", claim.job))
            out.append(TellRm(JobJoined(claim.job)))
        if there:
            shape = Shape(tuple(Requirement(one.resource_class) for one in there))
            ids = tuple(one.resource_id for one in there)
            out.append(TellRm(Claimed(claim.job, (Grant(claim.job, shape, claim.grant_id, ids),))))

    # Jobs ---------------------------------------------------------------------------------------------------

    def adopt(self, heir: JobId, orphan: JobId, now: float, out: Actions) -> JobId:
        """Have a job go on for an earlier one; return that, or "" if there is nothing to go on for.

        RIFs that have not come back yet may bring work of a job that nobody else has spoken of.
        """
        lives = self.lives
        entry = lives.jobs.get(orphan)
        if entry is None and orphan in self._names and any(map(_may_bring_work, lives.rifs.values())):
            entry = JobEntry(orphan, 0, orphan, 0, "", "", 1.0, lives.limits.grace_s)
            out.append(JobChanged(now, orphan, "running", orphan))
            out.append(TellRm(JobJoined(orphan)))
        if entry is None or orphan == heir or entry.heir not in ("", heir) or not entry.grace_s:
            return ""
        lives.jobs[orphan] = replace(entry, away_until=math.inf, heir=heir)
        return orphan

    def job_back(self, event: JobBack, now: float, out: Actions) -> None:
        """A job server has connected again: it goes on as the job it was."""
        lives, job, wish = self.lives, event.job, event.joining
        if wish.link in self._job_links:
            raise IllegalEvent(f"link {wish.link} is that of job {self._job_links[wish.link]} already")
        entry = lives.jobs.get(job)
        refusal = ""
        if lives.stopping:
            refusal = "the run-time system is stopping"
        elif not lives.limits.grace_s:
            refusal = "this run-time system was started without --state: it takes no job back"
        elif entry is not None and entry.heir:
            refusal = f"job {entry.heir} has gone on for it"
        if refusal:
            out.append(RefuseJob(wish.link, refusal))
            return
        if entry is not None and entry.away_until is None:
            del self._job_links[entry.link]
        # It may have been changed since the job was last told.
        weight = entry.weight if entry is not None and entry.pid else wish.weight
        lives.jobs[job] = JobEntry(
            job, wish.link, wish.name, wish.pid, wish.host, wish.address, weight, wish.grace_s
        )
        self._job_links[wish.link] = job
        orphan = lives.jobs.get(wish.adopts)
        if orphan is None or orphan.away_until is not None:
            self.adopt(job, wish.adopts, now, out)
        out.append(JobChanged(now, job, "running", wish.name))
        out.append(AcceptJob(wish.link, job, back=True))
        out.extend(lives.announcement(rif, (job,)) for rif in lives.rifs.values() if rif.state is RifState.UP)
        known = entry is not None
        out.append(TellRm(JobWeighed(job, weight) if known else JobJoined(job, weight, wish.priority)))
        if weight != wish.weight:
            out.append(TellWeight(job, weight))
        out.append(TellRm(Claimed(job, event.grants, whole=True)))


def _may_bring_work(rif: Rif) -> bool:
    """Whether a RIF is awaited of which nobody knows what it has."""
    return rif.state is RifState.AWAY and not rif.resources
